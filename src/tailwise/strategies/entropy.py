"""Entropy (with λ > 0: Entropy-CB): the most uncertain samples by Shannon entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..score.softmax import entropy
from ..solve.source import scan
from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Entropy(ScoreStrategy):
    """The most uncertain samples by the entropy of their softmax."""

    name: ClassVar[str] = "entropy"
    scale: ClassVar[float | None] = 1.0

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:  # noqa: ARG002 - the interface of all
        """Entropy in nats."""
        return scan(task.rows, entropy)
