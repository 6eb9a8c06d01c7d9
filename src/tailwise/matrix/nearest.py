"""The images nearest to the border of each class, and how near they are, from the softmax alone.

The logit of class k is log p_k up to a constant of the row, so differences of logits need nothing but probabilities.
`LargestRows` gathers the nearest rows block by block, in any order, in O(m·C) memory. Rows are ordered by number, equal
ones by index, so the result does not depend on the order of the blocks. Of copies, rows with the same key, only some
may be kept, so that they do not crowd out other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..processes import Scratch
from ..types import BoolArray, Float64Array, FloatArray, IntArray

FAR_CLASSES = 10  # one class in so many may be looked at by itself
ROUNDED = 4  # units in the last place that products and quotients may be off by
COUNTABLE = 255  # by a byte

LEAST_WAITING = 1 << 15  # candidates that may wait to be sorted out, however few rows are wanted
FRACTION_BITS = 52  # of a float64
HALF_BITS = 10  # of a float16: the coarsest that probabilities are compared with
MIX = np.uint64(0x9E3779B97F4A7C15)  # an odd number without a pattern
Keys: TypeAlias = NDArray[np.uint64]
Found: TypeAlias = "tuple[IntArray, Float64Array, Keys]"
"""Rows, their numbers and their keys, (m, C) each, the largest first."""
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


def copy_keys(proba: FloatArray) -> Keys:
    """A number per row, (n,), the same for copies: rows with the same probabilities, as float16 would round them.

    A network gives two copies of an image the same logits but for rounding errors, so probabilities are compared to 10
    bits after the first, which is one part in a thousand of each. Rows of few different probabilities could agree in
    these by chance: with n of them above 0 it is 52/(n − 1) bits, where that is more. A chance of 2⁻⁶⁴ remains.

    >>> keys = copy_keys(np.array([[0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.5, 0.3 + 1e-12, 0.2 - 1e-12]]))
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1])
    (True, False)
    """
    exact = proba.astype(np.float64) + 0.0  # no −0.0
    ordered = np.sort(exact, axis=1)
    different = (ordered[:, 1:] > ordered[:, :-1]).sum(axis=1) + (ordered[:, 0] > 0)  # above 0, (n,)
    kept = np.clip(FRACTION_BITS // np.maximum(different - 1, 1), HALF_BITS, FRACTION_BITS)
    dropped = (FRACTION_BITS - kept).astype(np.uint64)[:, None]
    half = (np.uint64(1) << dropped) >> np.uint64(1)
    bits = (exact.view(np.uint64) + half) >> dropped  # rounded; numbers above 0 sort as their bits do
    weights = np.arange(1, 2 * proba.shape[1], 2, dtype=np.uint64) * MIX
    mixed = (bits ^ (bits >> np.uint64(29))) * MIX
    mixed ^= mixed >> np.uint64(32)
    mixed *= weights | np.uint64(1)
    mixed ^= mixed >> np.uint64(31)
    keys: Keys = mixed.sum(axis=1, dtype=np.uint64)
    return keys


class LargestRows:
    """Keeps the `count` largest numbers of each of C columns and their rows; `add` may be called by many threads.

    With `each` above 0, of the rows with the same key only the first so many are kept in a column.
    """

    def __init__(self, classes: int, count: int, each: int = 0) -> None:
        self.classes, self.count, self.each = classes, count, each
        none = np.empty(0, dtype=np.int64), np.empty(0), np.empty(0, dtype=np.uint64)
        self._kept = [none] * classes  # rows, numbers and keys, in any order
        # The smallest number that is kept, once there are enough, and its last row, (C,) each; replaced as one.
        self._least = np.full(classes, -np.inf), np.full(classes, -1, dtype=np.int64)
        self._waiting: list[tuple[IntArray, IntArray, Float64Array, Keys]] = []  # rows, columns, numbers, keys
        self._waits = 0
        self._lock = Lock()

    def least(self, start: int) -> Float64Array:
        """Numbers of rows from `start` on count only if they are at least this, (C,); above 0, if that is 0."""
        limit, last = self._least
        return np.where((limit <= 0) & (last > start), -np.inf, limit)

    def add(self, numbers: Float64Array, rows: IntArray, keys: Keys | None = None) -> None:
        """Take in a block (n, C) of rows in ascending order, (n,), with keys where copies are counted."""
        if not self.count:
            return
        places, columns = np.divmod(np.flatnonzero(self._may_count(numbers, rows)), self.classes)
        own = np.zeros(len(places), dtype=np.uint64) if keys is None else keys[places]
        with self._lock:
            self._waiting.append((rows[places], columns, numbers[places, columns], own))
            self._waits += len(places)
            if self._waits > max(LEAST_WAITING, self.classes * self.count):
                self._sort_out()

    def result(self) -> Found:
        """What is kept; m < count where there are fewer rows."""
        self._sort_out()
        return _in_order(self._kept)

    def _may_count(self, numbers: Float64Array, rows: IntArray) -> BoolArray:
        """Which numbers of a block come before the last that is kept, and are not beaten by enough in the block."""
        limit, last = self._least
        if not self.each and len(numbers) > self.count and (limit == -np.inf).any():
            by_column = np.ascontiguousarray(numbers.T)
            within = np.partition(by_column, len(numbers) - self.count, axis=1)[:, len(numbers) - self.count]
            limit, last = np.maximum(limit, within), np.where(within >= limit, rows[-1] + 1, last)
        found = numbers > limit
        late = np.flatnonzero(last > rows[0]) if len(rows) else np.empty(0, dtype=np.int64)
        if len(late):  # a tie counts if its row comes first
            found[:, late] |= (numbers[:, late] == limit[late]) & (rows[:, None] < last[late])
        return found

    def _sort_out(self) -> None:
        """Keep the first `count` of each column among those that are kept and those that wait."""
        if not self._waiting:
            return
        rows, columns, numbers, keys = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        self._waiting, self._waits = [], 0
        order = np.argsort(columns.astype(np.uint16) if self.classes < 1 << 16 else columns, kind="stable")
        stops = np.bincount(columns, minlength=self.classes).cumsum()[:-1]
        limit, last = self._least[0].copy(), self._least[1].copy()
        for column, places in enumerate(np.split(order, stops)):
            if not len(places):
                continue
            known = self._kept[column]
            kept = self._kept[column] = _largest(
                np.concatenate([known[0], rows[places]]), np.concatenate([known[1], numbers[places]]),
                np.concatenate([known[2], keys[places]]), self.count, self.each,
            )  # fmt: skip
            if len(kept[0]) == self.count:
                limit[column] = kept[1].min()
                last[column] = kept[0][kept[1] == limit[column]].max()
        self._least = limit, last


def merged(parts: Sequence[Found], count: int, each: int = 0) -> Found:
    """The results of several runs of rows as that of all of them."""
    if len(parts) == 1:
        return parts[0]
    rows, numbers, keys = (np.concatenate(column).T for column in zip(*parts, strict=True))  # (C, m)
    return _in_order([_largest(rows[k], numbers[k], keys[k], count, each) for k in range(len(rows))])


def _in_order(kept: Sequence[Found]) -> Found:
    """Columns of equal length as one array, the largest first, equal ones by row."""
    rows, numbers, keys = (np.stack(parts) for parts in zip(*kept, strict=True))  # (C, m)
    order = np.lexsort((rows, -numbers), axis=1)
    ordered = [np.take_along_axis(part, order, axis=1).T for part in (rows, numbers, keys)]
    return ordered[0], ordered[1], ordered[2]


def _largest(rows: IntArray, numbers: Float64Array, keys: Keys, count: int, each: int) -> Found:
    """The rows with the `count` largest numbers, equal ones by row, in any order; `each` with the same key."""
    if each:
        order = np.lexsort((rows, -numbers, keys))
        first = order[earlier(keys[order]) < each]
        rows, numbers, keys = rows[first], numbers[first], keys[first]
    if len(rows) <= count:
        return rows, numbers, keys
    limit = np.partition(numbers, -count)[-count]
    above = np.flatnonzero(numbers > limit)
    tied = np.flatnonzero(numbers == limit)
    tied = tied[np.argsort(rows[tied], kind="stable")][: count - len(above)]
    kept = np.concatenate([above, tied])
    return rows[kept], numbers[kept], keys[kept]


def earlier(ordered: NDArray[np.generic]) -> IntArray:
    """How many of the same stand directly before each, (n,), where equal ones stand together.

    >>> earlier(np.array([7, 7, 7, 2, 5, 5])).tolist()
    [0, 1, 2, 0, 0, 1]
    """
    places = np.arange(len(ordered))
    fresh = np.ones(len(ordered), dtype=bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return places - np.maximum.accumulate(np.where(fresh, places, 0))
