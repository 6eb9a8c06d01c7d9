"""Least confidence (with λ > 0: balanced): samples whose best class is improbable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import ScoreStrategy, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class LeastConfidence(ScoreStrategy):
    """Samples whose most probable class is improbable."""

    name: ClassVar[str] = "least-confidence"
    softmax_score: ClassVar[str | None] = "least-confidence"
