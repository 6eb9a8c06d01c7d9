"""Strategies that are a score: entropy, least confidence, margin, random, BALD and VAAL, each with a balanced form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import is_bfloat16, per_row, softmax_rows
from ..matrix.blocks import BFLOAT16_TOLERANCE, SUM_TOLERANCE
from ..score import bald
from ..types import Float64Array, FloatArray, Predictions
from .strategy import ScoreStrategy, Task, strategy


@strategy
@dataclass(frozen=True, kw_only=True)
class Entropy(ScoreStrategy):
    """The most uncertain samples by the entropy of their softmax."""

    name: ClassVar[str] = "entropy"
    title: ClassVar[str] = "Entropy"
    rank: ClassVar[int] = 2
    scale: ClassVar[float | None] = 1.0
    softmax_score: ClassVar[str | None] = "entropy"


@strategy
@dataclass(frozen=True, kw_only=True)
class LeastConfidence(ScoreStrategy):
    """Samples whose most probable class is improbable."""

    name: ClassVar[str] = "least-confidence"
    title: ClassVar[str] = "Least confidence"
    rank: ClassVar[int] = 9
    softmax_score: ClassVar[str | None] = "least-confidence"


@strategy
@dataclass(frozen=True, kw_only=True)
class Margin(ScoreStrategy):
    """Samples whose two most probable classes are close."""

    name: ClassVar[str] = "margin"
    title: ClassVar[str] = "Margin"
    rank: ClassVar[int] = 8
    softmax_score: ClassVar[str | None] = "margin"


@strategy
@dataclass(frozen=True, kw_only=True)
class Random(ScoreStrategy):
    """A uniformly random batch; with balance, random scores next to the l1 term."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "Random"
    rank: ClassVar[int] = 1

    def scores(self, task: Task, _predictions: Predictions) -> Float64Array:
        """Uniform numbers in [0, 1): the b largest are a uniformly random batch."""
        scores: Float64Array = np.random.default_rng([task.seed, 1]).random((task.rows.size,))
        return scores


@strategy
@dataclass(frozen=True, kw_only=True)
class Bald(ScoreStrategy):
    """Samples on which dropout passes disagree; balance uses the softmax with dropout off."""

    name: ClassVar[str] = "bald"
    title: ClassVar[str] = "BALD"
    rank: ClassVar[int] = 5
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


@strategy
@dataclass(frozen=True, kw_only=True)
class Vaal(ScoreStrategy):
    """Samples least like the labelled set, by VAAL's discriminator: u is its probability of "labelled"."""

    name: ClassVar[str] = "vaal"
    title: ClassVar[str] = "VAAL"
    rank: ClassVar[int] = 4
    needs: ClassVar[tuple[str, ...]] = ("proba", "labelledness")

    def scores(self, task: Task, predictions: Predictions) -> Float64Array:
        """Minus the probability of being labelled, so that u = D(μ(x))."""
        return 0.0 - per_row(predictions.labelledness, "labelledness", task.rows.size)
