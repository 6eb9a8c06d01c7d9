"""How far images are from the borders between classes, read off the softmax: (n, C) probabilities in, (n, C) out.

The logit of class k is log p_k up to a constant of the row, so differences of logits need nothing but probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..scratch import Scratch
from ..types import Float64Array, FloatArray, IntArray

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
