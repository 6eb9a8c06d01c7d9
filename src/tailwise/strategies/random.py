"""Random (with λ > 0: random among balanced batches): uniform random scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Random(ScoreStrategy):
    """A uniformly random batch; with balance, random scores beside the l1 term."""

    name: ClassVar[str] = "random"

    def scores(self, task: Task, _predictions: Predictions) -> Float64Array:
        """Uniform numbers in [0, 1): the b largest are a uniformly random batch."""
        scores: Float64Array = np.random.default_rng([task.seed, 1]).random((task.rows.size,))
        return scores
