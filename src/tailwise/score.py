"""Scores that are read off the softmax matrix: (n, C) probabilities → (n,) numbers, larger = more informative.

Each works on a block of rows, keeps its precision, and treats 0·log 0 as 0.

How far images are from the borders between classes, read off the softmax: (n, C) probabilities in, (n, C) out.

The logit of class k is log p_k up to a constant of the row, so differences of logits need nothing but probabilities.

BALD: mutual information between a sample's label and the model, from T stochastic passes.

(T, N, C) probabilities in, (N,) numbers out, larger = more informative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import BadInput
from .inputs import softmax_rows
from .registry import Registry
from .threads import Scratch
from .types import Float64Array, FloatArray, IntArray

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


FAR_CLASSES = 10  # one class in so many may be looked at by itself
ROUNDED = 4  # units in the last place that products and quotients may be off by
COUNTABLE = 255  # by a byte
_FOUND = Scratch()


def border_distances(proba: FloatArray) -> Float64Array:
    """How far each image is from the border of each class, in logits, (n, C).

    With t = argmax_k p_ik: d_ik = log p_it − log p_ik for k ≠ t, and d_it = min over k ≠ t. A class of probability 0 is
    infinitely far, and so is the own class of a row that is certain.

    >>> border_distances(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).round(2).tolist()
    [[0.69, 0.69, 0.69], [inf, inf, inf]]
    """
    return as_distances(border_closeness(proba))


def border_closeness(proba: FloatArray) -> Float64Array:
    """exp(−d_ik), (n, C): p_ik / p_it, from 0 (infinitely far) to 1 (on the border). It ranks without logarithms.

    >>> border_closeness(np.array([[0.5, 0.25, 0.125, 0.125]])).tolist()
    [[0.5, 0.5, 0.25, 0.25]]
    """
    each = np.arange(len(proba))
    best = proba.argmax(axis=1)  # t, (n,); the first where several are equal
    top = proba[each, best].astype(np.float64)
    closeness: Float64Array = np.divide(proba, top[:, None], dtype=np.float64)
    closeness[each, best] = 0.0
    closeness[each, best] = closeness.max(axis=1)
    return closeness


def rows_near_borders(proba: FloatArray, least: Float64Array) -> IntArray:
    """Rows, ascending, with all among them that have exp(−d_ik) ≥ least_k, or > 0 if that is 0, for some class k.

    Such a row has a second probability of at least min(least) times its largest. That is seen without a division, from
    the bits of the numbers, which sort as they do. Classes that reach much farther are looked at one by one.

    >>> rows_near_borders(np.array([[0.5, 0.4, 0.1], [0.9, 0.1, 0.0]]), np.full(3, 0.7)).tolist()
    [0]
    """
    size, classes = proba.shape
    ordinary = least >= np.partition(least, classes // FAR_CLASSES)[classes // FAR_CLASSES] / 2
    limit = float(least[ordinary].min(initial=np.inf))
    if classes < 2 or limit <= 0:
        return np.arange(size)
    bits: NDArray[Any] = proba.view(f"i{proba.dtype.itemsize}")
    tops: FloatArray = bits.max(axis=1).view(proba.dtype)  # (n,)
    enough = (tops * limit).astype(proba.dtype).view(bits.dtype) - ROUNDED  # (n,)
    found = np.greater_equal(bits, enough[:, None], out=_FOUND.array(bits.shape, np.bool_)).view(np.uint8)
    near = np.zeros(size, dtype=np.int64)  # how many are large enough: the largest is
    for start in range(0, classes, COUNTABLE):
        near += np.einsum("ij->i", found[:, start : start + COUNTABLE])
    far = np.flatnonzero(~ordinary)
    if len(far):
        near += 2 * (proba[:, far] > (1 - 1e-9) * least[far] * tops.astype(np.float64)[:, None]).any(axis=1)
    return np.flatnonzero(near > 1)


def as_distances(closeness: Float64Array) -> Float64Array:
    """d of exp(−d); 0 where it is 1, inf where it is 0.

    >>> as_distances(np.array([1.0, 0.5, 0.0])).round(2).tolist()
    [0.0, 0.69, inf]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(0.0 - np.log(closeness))  # no −0.0


def one_against_rest(proba: FloatArray) -> Float64Array:
    """p_ik − max over j ≠ k of p_ij, (n, C): above 0 where the model says class k. With one class it is p itself.

    >>> one_against_rest(np.array([[0.6, 0.3, 0.1]])).round(2).tolist()
    [[0.3, -0.3, -0.5]]
    """
    each = np.arange(len(proba))
    best = proba.argmax(axis=1)
    margins = proba.astype(np.float64)
    top = margins[each, best]
    margins[each, best] = 0.0
    second = margins.max(axis=1)
    margins -= top[:, None]
    margins[each, best] = top - second
    return margins


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
