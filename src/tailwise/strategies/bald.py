"""BALD (with λ > 0: BALD-CB): mutual information over dropout passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import is_bfloat16, softmax_rows
from ..score.mc import bald
from ..solve.checks import BFLOAT16_TOLERANCE, SUM_TOLERANCE
from ..types import Float64Array, FloatArray, Predictions
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
        return bald(checked_passes(task, predictions))


def checked_passes(task: Task, predictions: Predictions) -> FloatArray:
    """The softmax of the dropout passes, (T, N, C), one row for each row of the pool."""
    passes: FloatArray = softmax_rows(predictions.mc_proba, "mc_proba")
    wanted = (task.rows.size, task.rows.classes)
    if passes.ndim != 3 or passes.shape[1:] != wanted or len(passes) < 1:
        raise BadInput(f"mc_proba must be (passes, {wanted[0]}, {wanted[1]}), but has shape {passes.shape}")
    tolerance = BFLOAT16_TOLERANCE if is_bfloat16(predictions.mc_proba) else SUM_TOLERANCE.get(passes.dtype, 1e-3)
    sums = passes.sum(axis=2, dtype=np.float64)  # (T, N)
    if (np.abs(sums - 1) > tolerance).any():
        one, row = (int(at) for at in np.argwhere(np.abs(sums - 1) > tolerance)[0])
        raise BadInput(f"mc_proba must hold probabilities, but pass {one}, row {row} sums to {sums[one, row]:.4g}")
    return passes
