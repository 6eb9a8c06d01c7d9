"""UHerding (Bae, Oliveira and Sutherland 2025): images that represent the uncertain part of the pool best.

MaxHerding with weights u = 1 − margin of the softmax, tempered if asked for; without labels u = 1, and the two are one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..balance.calibrate import with_temperature
from ..errors import BadInput
from ..inputs import real_number
from ..score.softmax import margin
from ..solve.blocks import map_blocks, rows_per_block
from ..solve.shards import Column
from ..types import Float64Array
from .base import strategy
from .maxherding import MaxHerding
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class UHerding(MaxHerding):
    """Images that represent best what the model is uncertain of; with a bound on what any batch can reach."""

    temperature: float = 1.0
    """T of the softmax p^(1/T) whose margin is the uncertainty. 1 leaves probabilities as they are, for a calibrated
    model; balance always counts the probabilities as given."""

    name: ClassVar[str] = "uherding"
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if real_number(self.temperature, "temperature", "a number above 0") == 0:
            raise BadInput(f"temperature is {self.temperature}; it must be a number above 0")

    def weights(self, task: Task, costs: Column, *, labelled: int) -> Float64Array:
        """u = 1 − (largest − second largest probability), (N,); 1 without labels."""
        if not labelled:
            return np.ones(task.rows.size)
        values = -costs.values() if self.temperature == 1 else self._tempered(task)
        weights: Float64Array = np.maximum(values, 0.0)
        return weights

    def _tempered(self, task: Task) -> Float64Array:
        def uncertainty(where: slice) -> Float64Array:
            scores: Float64Array = margin(with_temperature(task.rows.read(where), self.temperature)).astype(np.float64)
            return scores

        parts = map_blocks(task.rows.size, rows_per_block(task.rows.classes), uncertainty)
        return np.concatenate([np.empty(0), *parts])
