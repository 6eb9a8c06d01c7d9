"""Least confidence (with λ > 0: balanced): samples whose best class is improbable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..score.softmax import least_confidence
from ..solve.source import scan
from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class LeastConfidence(ScoreStrategy):
    """Samples whose most probable class is improbable."""

    name: ClassVar[str] = "least-confidence"

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:  # noqa: ARG002 - the interface of all
        """One minus the largest probability."""
        return scan(task.rows, least_confidence)
