"""One shard: a run of rows of the matrix with columns of numbers, and every operation on them.

Arguments and results are small compared with the rows, so a shard may live in another process. Blocks begin
at multiples of `rows_per_block` of the whole matrix and each is computed by one BLAS thread, so a row's numbers are the
same bit for bit wherever the shards are cut and whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..processes import Scratch
from ..score import entropy
from ..types import Float64Array, FloatArray, IntArray
from .blocks import (
    Loops,
    added_problems,
    exact_sum,
    fixed_point_sums,
    is_plain,
    larger_than,
    largest_product,
    map_blocks,
    product,
    rough_product,
    row_problems,
    rows_per_block,
    take_rows,
    widen,
)
from .nearest import Found, LargestRows, border_closeness, copy_keys, rows_near_borders
from .npy import FileMatrix
from .open import TopK

if TYPE_CHECKING:
    from ..score import Score
    from .open import Matrix


COLUMN_ROWS = 1 << 18  # 2 MB: what is made on the way stays in the cache, and digits are counted over enough numbers
DIGIT_BITS = 16
SPARSE_ROWS = 32  # where fewer than one in so many rows of a file is wanted they are looked up, else all are read
RUN_BLOCKS = 2  # are read at once where there is little to do: fewer calls, for which threads wait for each other
_READ = Scratch()
Result = TypeVar("Result")
BlockParts: TypeAlias = "tuple[IntArray, Float64Array, Float64Array, NDArray[np.int32]]"
"""Counts above, at the ceiling and at the floor (3, k); sums above (blocks, k); values between and their class."""


class Shard:
    """Rows `start` … `stop` of a matrix, and columns by key.

    Row numbers in arguments and results are those of the whole matrix; blocks (`where`) are counted from `start`.
    """

    def __init__(
        self, matrix: Matrix, start: int, stop: int, threads: int | None = None, *, loops: Loops | None = None
    ) -> None:
        self.matrix, self.start, self.stop, self.threads = matrix, start, stop, threads
        self._loops = loops  # compiled ones, for dense rows; without them numpy does it
        self.columns: dict[int, Float64Array] = {}
        self._made: set[int] = set()  # keys of columns whose memory is our own
        self._spare: Float64Array | None = None
        self._plain = False  # whether all numbers are known to be plain halves, or no halves
        self._step = rows_per_block(matrix.shape[1])

    # -- columns ------------------------------------------------------------------------------------------------------

    def hold(self, key: int, values: Float64Array) -> None:
        """Keep a column that was made elsewhere."""
        self.columns[key] = values

    def scan(self, key: int, score: Score | None, tolerance: float) -> tuple[int, list[str]]:
        """Keep 0 − score of every row (zeros without a score); how many rows are bad, and what is wrong with some."""
        column = self.columns[key] = np.zeros(self.stop - self.start)
        halves = self._loops if score is entropy and self.matrix.dtype == np.float16 else None

        def work(where: slice) -> tuple[bool, tuple[int, list[str]]]:
            stored = self._stored(where)
            if halves is not None and halves.minus_entropy(stored, tolerance, column[where]):
                return True, (0, [])
            plain = is_plain(stored)
            block = widen(stored, reuse=True, plain=plain)
            bad, found = row_problems(block, self.start + where.start, tolerance)
            if score is not None and not bad:
                column[where] = 0.0 - score(block)  # no −0.0
            return plain, (bad, found)

        blocks = self._map(work)
        self._plain = all(plain for plain, _ in blocks)
        return added_problems(problems for _, problems in blocks)

    def price(self, key: int, cost: int, y: Float64Array) -> None:
        """Keep u − P·y, in float64, from one pass over the rows."""
        column, costs, loops = self._new(key), self.columns[cost], self._loops

        def work(where: slice) -> None:
            if loops is not None:
                loops.price(self._stored(where), y, costs[where], column[where])
            elif isinstance(self.matrix, TopK):
                column[where] = costs[where] - self.matrix.times(self._in_matrix(where), y)
            else:
                column[where] = costs[where] - product(self._stored(where), y, plain=self._plain)

        self._map(work, 1 if loops is None else RUN_BLOCKS)

    def price_roughly(self, key: int, cost: int, y: Float64Array) -> None:
        """Keep u − P·y, or a little less; compiled loops need no such leave."""
        if self._loops is not None:
            return self.price(key, cost, y)
        column, costs = self._new(key), self.columns[cost]

        def work(where: slice) -> None:
            borders = range(self._step, where.stop - where.start, self._step)
            most = rough_product(self._stored(where), y, borders, plain=self._plain)
            np.subtract(costs[where], most, out=column[where])

        self._map(work, RUN_BLOCKS)

    def price_again(
        self, key: int, cost: int, y: Float64Array, known: int, known_y: Float64Array, limit: float
    ) -> None:
        """Keep u − P·y where it is at most `limit`, and elsewhere that or less.

        For most rows a known column is enough: it holds u − P·y, or less, at other duals, and from there it cannot
        fall by more than the largest p·(y − known_y). Compiled loops price all of them in the time of a read.
        """
        if self._loops is not None:
            return self.price(key, cost, y)
        column, costs = self._new(key), self.columns[cost]
        most = largest_product(y - known_y, self.matrix.dtype)
        near = self._lowered(column, self.columns[known], most, limit)

        def work(where: slice) -> None:
            rows = near[slice(*np.searchsorted(near, (where.start, where.stop)))]
            if len(rows):
                picked = take_rows(self._stored(where), rows - where.start)
                borders = np.searchsorted(rows, range(where.start + self._step, where.stop, self._step))
                column[rows] = costs[rows] - product(picked, y, borders.tolist(), plain=self._plain)

        self._map(work, RUN_BLOCKS)

    def subtract_hidden(self, key: int, reduced: int, y: Float64Array) -> None:
        """Keep a column u − P·y less what a sparse softmax may hide of P·y."""
        column, known, sparse = self._new(key), self.columns[reduced], self.matrix
        assert isinstance(sparse, TopK)
        most_hidden = sparse.most_hidden
        self._map(lambda at: np.subtract(known[at], most_hidden(self._in_matrix(at), y), out=column[at]))

    def hidden(self, key: int, score: Score | None) -> None:
        """Keep what a sparse softmax may hide of a score; of ‖p‖₁ without one."""
        column, sparse = self._new(key), self.matrix
        assert isinstance(sparse, TopK)

        def work(where: slice) -> None:
            rows = self._in_matrix(where)
            column[where] = sparse.hidden_l1(rows) if score is None else sparse.hidden_score(rows, score)

        self._map(work)

    def distance(self, key: int, reduced: int, theta: float) -> None:
        """Keep |x − θ| of a column x."""
        column = np.subtract(self.columns[reduced], theta, out=self._new(key))
        np.abs(column, out=column)

    def minus_classes(self, keys: Sequence[int], classes: Sequence[int]) -> None:
        """Keep −p of some classes, from one pass over the rows."""
        columns = [self._new(key) for key in keys]

        def work(where: slice) -> None:
            block = widen(self._stored(where), reuse=True)
            for cls, column in zip(classes, columns, strict=True):
                np.negative(block[:, cls], out=column[where])

        self._map(work)

    def drop(self, keys: list[int]) -> None:
        """Forget columns; the memory of one is used again."""
        for key in keys:
            column = self.columns.pop(key, None)
            if column is not None and key in self._made:
                self._spare = column
            self._made.discard(key)

    # -- questions about rows -----------------------------------------------------------------------------------------

    def read(self, where: slice) -> FloatArray:
        """Contiguous rows as float32 or float64."""
        return widen(self.matrix[where])

    def take(self, indices: IntArray) -> FloatArray:
        """Rows by ascending number, as they are stored."""
        if not isinstance(self.matrix, FileMatrix) or len(indices) * SPARSE_ROWS < self.stop - self.start:
            return np.asarray(self.matrix[indices])
        local, taken = indices - self.start, np.empty((len(indices), self.matrix.shape[1]), self.matrix.dtype)

        def work(where: slice) -> None:
            first, last = np.searchsorted(local, (where.start, where.stop)).tolist()
            if first < last:
                rows, out = local[first:last] - where.start, taken[first:last]
                np.take(self._stored(where), rows, axis=0, out=out, mode="clip")

        self._map(work, RUN_BLOCKS)
        return taken

    def total(self, indices: IntArray, variances: bool = False) -> IntArray:
        """Fixed-point sums of rows by ascending number, (2, C); with `variances` of p·(1 − p)."""

        def work(where: slice) -> IntArray:
            block = widen(np.asarray(self.matrix[indices[where]]))
            if variances:  # p may be a little above 1 where sums of rows are off
                block = np.maximum(block * (1 - block.astype(np.float64)), 0)
            return fixed_point_sums(block)

        none = np.zeros((2, self.matrix.shape[1]), dtype=np.int64)
        return sum(map_blocks(len(indices), self._step, work, self.threads), start=none)

    def inside(self, reduced: int, theta: float, cost: int, but: IntArray) -> tuple[int, IntArray, int]:
        """Count, fixed-point sums and exact cost of the rows whose column is below θ, but for some."""
        below = self.columns[reduced] < theta
        below[but - self.start] = False
        indices = np.flatnonzero(below)
        return len(indices), self.total(indices + self.start), exact_sum(self.columns[cost][indices])

    def above(self, classes: IntArray, limit: float, every: int = 1) -> tuple[IntArray, Float64Array]:
        """For each of some classes, how many rows give it more than `limit`, and the sum of these probabilities.

        With `every` above 1 only so many blocks are read: one in `every`.
        """
        width, loops = self.matrix.shape[1], self._loops

        def work(where: slice) -> tuple[IntArray, Float64Array]:
            if (self.start + where.start) // self._step % every:
                return np.zeros(width, dtype=np.int64), np.zeros(width)
            if loops is not None:
                return loops.above(self._stored(where), limit)
            places, values = larger_than(self._stored(where), limit)
            each = places % width
            sums = np.bincount(each, weights=values, minlength=width).astype(np.float64, copy=False)  # they are
            return np.bincount(each, minlength=width), sums

        counts, sums = np.zeros(width, dtype=np.int64), np.zeros(width)
        for more_counts, more_sums in self._map(work):
            counts += more_counts
            sums += more_sums
        return counts[classes], sums[classes]

    def between(self, classes: IntArray, floor: Float64Array, ceiling: Float64Array) -> BlockParts:
        """Probabilities of some classes: counted and summed above a ceiling, listed between that and a floor."""

        def work(where: slice) -> BlockParts:
            block = widen(np.ascontiguousarray(self._stored(where).T[classes]))  # (k, n)
            lows = floor.astype(block.dtype)[:, None]  # exact: they occur in it
            at_low = np.where(floor < ceiling, np.count_nonzero(block == lows, axis=1), 0)
            places = np.flatnonzero(block > lows)  # few, so the rest is quick
            values, which = block.reshape(-1)[places].astype(np.float64), places // max(1, block.shape[1])
            above, at_high = values > ceiling[which], values == ceiling[which]
            sums = np.bincount(which[above], values[above], len(classes)).astype(np.float64, copy=False)  # they are
            counts = [np.bincount(which[part], minlength=len(classes)) for part in (above, at_high)]
            between = ~(above | at_high)
            return np.stack([*counts, at_low]), sums[None], values[between], which[between].astype(np.int32)

        none = np.zeros((3, len(classes)), np.int64), np.empty((0, len(classes))), np.empty(0), np.empty(0, np.int32)
        counts, sums, values, which = zip(none, *self._map(work), strict=True)
        return np.sum(counts, axis=0), np.concatenate(sums), np.concatenate(values), np.concatenate(which)

    def class_sums(self) -> IntArray:
        """Fixed-point sums of all rows, (2, C)."""
        none = np.zeros((2, self.matrix.shape[1]), dtype=np.int64)
        return sum(self._map(lambda where: fixed_point_sums(widen(self._stored(where), reuse=True))), start=none)

    def largest_class(self) -> IntArray:
        """The most probable class of every row."""
        parts = self._map(lambda where: widen(self._stored(where), reuse=True).argmax(axis=1))
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])

    def nearest_borders(self, count: int, each: int = 0) -> Found:
        """For each class the `count` rows nearest to its border, exp(−distance) and keys, (m, C) each, nearest first.

        With `each` above 0, of copies only the first so many.
        """
        nearest = LargestRows(self.matrix.shape[1], min(count, self.stop - self.start), each)

        def work(where: slice) -> None:
            stored, first = self._stored(where), self.start + where.start
            near = rows_near_borders(stored, nearest.least(first))
            block = widen(stored if len(near) == len(stored) else stored[near])
            nearest.add(border_closeness(block), near + first, copy_keys(block) if each else None)

        if count:
            self._map(work)
        return nearest.result()

    # -- questions about a column -------------------------------------------------------------------------------------

    def at(self, key: int, indices: IntArray | None = None) -> Float64Array:
        """A column, or its numbers at some rows."""
        column = self.columns[key]
        return column if indices is None else column[indices - self.start]

    def extent(self, key: int) -> tuple[float, float]:
        """Smallest and largest number of a column; (inf, −inf) where it is empty."""
        column = self.columns[key]
        return float(column.min(initial=np.inf)), float(column.max(initial=-np.inf))

    def count_up_to(self, key: int, limit: float) -> int:
        """How many numbers of a column are at most `limit`."""
        return int((self.columns[key] <= limit).sum())

    def sum_below(self, key: int, limit: float) -> tuple[int, int]:
        """Count and exact sum of the numbers of a column that are below `limit`."""
        column = self.columns[key]
        below = column[column < limit]
        return len(below), exact_sum(below)

    def below(self, key: int, limit: float, most: int) -> tuple[IntArray, IntArray]:
        """Rows whose number is below `limit`, and the first `most` whose number is `limit` itself."""
        column = self.columns[key]
        return np.flatnonzero(column < limit) + self.start, np.flatnonzero(column == limit)[:most] + self.start

    def histogram(self, key: int, prefix: int, shift: int) -> tuple[NDArray[np.uint16], IntArray]:
        """The 16-bit digits at `shift` of the ordered bits that begin with `prefix`, and how often each occurs."""

        def work(where: slice) -> IntArray:
            bits = ordered_bits(self.columns[key][where])
            if shift + DIGIT_BITS < 64:
                bits = bits[(bits >> np.uint64(shift + DIGIT_BITS)) == np.uint64(prefix)]
            digits = (bits >> np.uint64(shift)) & np.uint64((1 << DIGIT_BITS) - 1)
            return np.bincount(digits.astype(np.intp), minlength=1 << DIGIT_BITS)

        none = np.zeros(1 << DIGIT_BITS, dtype=np.int64)
        counts = sum(map_blocks(self.stop - self.start, COLUMN_ROWS, work, self.threads), start=none)
        occurring = np.flatnonzero(counts)  # few, so that little travels
        return occurring.astype(np.uint16), counts[occurring]

    def with_prefix(self, key: int, prefix: int, shift: int) -> Float64Array:
        """The numbers of a column whose ordered bits above `shift` are `prefix`."""

        def work(where: slice) -> Float64Array:
            part = self.columns[key][where]
            found: Float64Array = part[(ordered_bits(part) >> np.uint64(shift)) == np.uint64(prefix)]
            return found

        return np.concatenate([np.empty(0), *map_blocks(self.stop - self.start, COLUMN_ROWS, work, self.threads)])

    def _stored(self, where: slice) -> FloatArray:
        """Contiguous rows as they are stored, valid until the thread asks for the next."""
        matrix, place = self.matrix, self._in_matrix(where)
        rows = matrix.run(place.start, place.stop, _READ) if isinstance(matrix, FileMatrix) else matrix[place]
        return np.ascontiguousarray(rows)  # what lies column by column would be added up in another order

    def _lowered(self, column: Float64Array, known: Float64Array, by: float, limit: float) -> IntArray:
        """Fill a column with a known one less a number; the rows, counted in the shard, where that is up to a limit."""

        def work(where: slice) -> IntArray:
            np.subtract(known[where], by, out=column[where])
            near: IntArray = np.flatnonzero(column[where] <= limit) + where.start
            return near

        none = np.empty(0, dtype=np.int64)
        return np.concatenate([none, *map_blocks(self.stop - self.start, COLUMN_ROWS, work, self.threads)])

    def _new(self, key: int) -> Float64Array:
        """A column that is yet to be written: fresh pages take as long as the writing."""
        column, self._spare = self._spare, None
        self.columns[key] = np.empty(self.stop - self.start) if column is None else column
        self._made.add(key)
        return self.columns[key]

    def _in_matrix(self, where: slice) -> slice:
        """Where rows that are counted from the first of the shard are in the matrix."""
        return slice(self.start + where.start, self.start + where.stop)

    def _map(self, work: Callable[[slice], Result], blocks: int = 1) -> list[Result]:
        """Apply `work` to runs of blocks, rows being counted from the first of the shard."""
        return map_blocks(self.stop - self.start, blocks * self._step, work, self.threads)


def ordered_bits(values: Float64Array) -> NDArray[np.uint64]:
    """float64 → uint64 that sort the same way (−0.0 counts as 0.0).

    >>> bits = ordered_bits(np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf]))
    >>> bool((np.diff(bits.astype(object)) >= 0).all()), bool(bits[2] == bits[3])
    (True, True)
    """
    bits = (values + 0.0).view(np.uint64)
    bits ^= (bits.view(np.int64) >> 63).view(np.uint64) | np.uint64(1 << 63)  # all of negative numbers, else the sign
    return bits
