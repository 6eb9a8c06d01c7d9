"""Margin (with λ > 0: balanced): samples whose two best classes are close."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import ScoreStrategy, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class Margin(ScoreStrategy):
    """Samples whose two most probable classes are close."""

    name: ClassVar[str] = "margin"
    softmax_score: ClassVar[str | None] = "margin"
