"""Margin (with λ > 0: balanced): samples whose two best classes are close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..score.softmax import margin
from ..solve.source import scan
from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Margin(ScoreStrategy):
    """Samples whose two most probable classes are close."""

    name: ClassVar[str] = "margin"

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:  # noqa: ARG002 - the interface of all
        """One minus the margin."""
        return scan(task.rows, margin)
