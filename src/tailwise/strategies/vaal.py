"""VAAL (with λ > 0: VAAL-CB): samples that a discriminator takes for unlabelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..inputs import per_row
from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Vaal(ScoreStrategy):
    """Samples least like the labelled set, by VAAL's discriminator: u is its probability of "labelled"."""

    name: ClassVar[str] = "vaal"
    needs: ClassVar[tuple[str, ...]] = ("proba", "labelledness")

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:
        """Minus the probability of being labelled, so that u = D(μ(x))."""
        return 0.0 - per_row(predictions.labelledness, "labelledness", task.rows.size)
