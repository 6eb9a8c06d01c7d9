"""Entropy (with λ > 0: Entropy-CB): the most uncertain samples by Shannon entropy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import ScoreStrategy, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class Entropy(ScoreStrategy):
    """The most uncertain samples by the entropy of their softmax."""

    name: ClassVar[str] = "entropy"
    scale: ClassVar[float | None] = 1.0
    softmax_score: ClassVar[str | None] = "entropy"
