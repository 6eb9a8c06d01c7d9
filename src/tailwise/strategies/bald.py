"""BALD (with λ > 0: BALD-CB): mutual information over dropout passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..score.mc import bald
from ..types import Float64Array, Predictions
from .base import ScoreStrategy, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Bald(ScoreStrategy):
    """Samples on which dropout passes disagree; balance uses the softmax with dropout off."""

    name: ClassVar[str] = "bald"
    needs: ClassVar[tuple[str, ...]] = ("proba", "mc_proba")

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:
        """Mutual information in nats."""
        passes = np.asarray(predictions.mc_proba)
        wanted = (task.rows.size, task.rows.classes)
        if passes.ndim != 3 or passes.shape[1:] != wanted or len(passes) < 1:
            raise BadInput(f"mc_proba must be (passes, {wanted[0]}, {wanted[1]}), but has shape {passes.shape}")
        if not np.isfinite(passes).all() or (passes < 0).any():
            raise BadInput("mc_proba must hold probabilities: finite and non-negative")
        return bald(passes)
