"""Scores that are read off the softmax: probabilities in, one number per image out, larger = more informative.

Each score of (n, C) probabilities works on a block of rows, keeps its precision, and treats 0·log 0 as 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from .errors import BadInput
from .inputs import Registry, softmax_rows
from .processes import Scratch
from .types import Float64Array, FloatArray

Score: TypeAlias = Callable[[FloatArray], FloatArray]
SCORES: Registry[Score] = Registry("score")
MOST_RARE = 5.0  # an image of rare classes weighs no more than so many of the mean
_LOGS = Scratch(most_bytes=8 << 20)


@SCORES.register("entropy")
def entropy(proba: FloatArray) -> FloatArray:
    """Shannon entropy −Σ_k p_k log p_k in nats.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    proba = _rows(proba)
    tiny = np.finfo(proba.dtype).tiny  # p·log(max(p, tiny)) is exactly 0 at p = 0
    logs = _LOGS.array(proba.shape, proba.dtype)  # (n, C)
    np.clip(proba, tiny, np.inf, out=logs)  # a third of the time of np.maximum
    np.log(logs, out=logs)
    # 0 − x rather than −x: a certain row scores 0.0, not −0.0
    result: FloatArray = 0.0 - np.einsum("ij,ij->i", logs, proba)
    return result


@SCORES.register("margin")
def margin(proba: FloatArray) -> FloatArray:
    """One minus the distance between the two largest probabilities; 0 where there is one class.

    >>> margin(np.array([[0.5, 0.4, 0.1], [1.0, 0.0, 0.0]])).round(4).tolist()
    [0.9, 0.0]
    """
    proba = _rows(proba)
    if proba.shape[1] < 2:
        return np.zeros(len(proba), dtype=proba.dtype)
    top = np.partition(proba, -2, axis=1)[:, -2:]  # (n, 2), ascending
    result: FloatArray = 1.0 - (top[:, 1] - top[:, 0])
    return result


def balanced_margin(proba: FloatArray, shares: Float64Array) -> FloatArray:
    """The margin score times how rare the likely classes are: Σ_k p_k / (C·share_k), at most 5.

    Summed over a pool, every class weighs about the same. A class of share 0 counts for nothing.

    >>> balanced_margin(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0.8, 0.2])).round(3).tolist()
    [1.1, 1.4]
    """
    factors = np.divide(1 / len(shares), shares, out=np.zeros_like(shares), where=shares > 0)
    result: FloatArray = margin(proba) * np.minimum(proba @ factors.astype(proba.dtype), MOST_RARE)
    return result


@SCORES.register("least-confidence")
def least_confidence(proba: FloatArray) -> FloatArray:
    """One minus the largest probability.

    >>> least_confidence(np.array([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    result: FloatArray = 1.0 - _rows(proba).max(axis=1)
    return result


def _rows(proba: FloatArray) -> FloatArray:
    """A matrix of floats as it is, since the solver has checked its rows; anything else is read and checked first."""
    if type(proba) is np.ndarray and proba.ndim == 2 and proba.dtype.kind == "f" and proba.shape[1]:
        return proba
    rows: FloatArray = softmax_rows(proba, "proba")
    if rows.ndim != 2:
        raise BadInput(f"proba must be a matrix (images × classes), but has shape {rows.shape}")
    return rows


def bald(mc_proba: FloatArray) -> Float64Array:
    """H(mean_t p_t) − mean_t H(p_t), at least 0 (PAPER §3).

    >>> agree = np.array([[[0.5, 0.5]], [[0.5, 0.5]]])
    >>> disagree = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> bald(agree).round(4).tolist(), bald(disagree).round(4).tolist()
    ([0.0], [0.6931])
    """
    mc_proba = softmax_rows(mc_proba, "mc_proba")
    if mc_proba.ndim != 3 or not len(mc_proba):
        raise BadInput(f"mc_proba must be (passes, images, classes), but has shape {mc_proba.shape}")
    passes, rows, classes = mc_proba.shape
    mean = np.zeros((rows, classes))  # float64 sums, one pass at a time
    inner = np.zeros(rows)
    for one in mc_proba:
        mean += one
        inner += entropy(np.asarray(one, dtype=np.float64))
    information: Float64Array = np.maximum(entropy(mean / passes) - inner / passes, 0.0)
    return information
