"""The m rows with the largest numbers of each column, gathered block by block in any order, in O(m·C) memory.

Rows are ordered by number, equal ones by index, so the result does not depend on the order of the blocks.
"""

from __future__ import annotations

from threading import Lock

import numpy as np

from ..types import BoolArray, Float64Array, IntArray

LEAST_WAITING = 1 << 19  # candidates that may wait to be sorted out, however few rows are wanted


class LargestRows:
    """Keeps the `count` largest numbers of each of C columns and their rows; `add` may be called by many threads."""

    def __init__(self, classes: int, count: int) -> None:
        self.classes, self.count = classes, count
        self._kept = [(np.empty(0, dtype=np.int64), np.empty(0))] * classes  # rows and numbers, in any order
        # The smallest number that is kept, once there are enough, and its last row, (C,) each; replaced as one.
        self._least = np.full(classes, -np.inf), np.full(classes, -1, dtype=np.int64)
        self._waiting: list[tuple[IntArray, IntArray, Float64Array]] = []  # rows, columns, numbers
        self._lock = Lock()

    def add(self, numbers: Float64Array, start: int) -> None:
        """Take in a block (n, C) whose first row has the number `start`."""
        if not self.count:
            return
        rows, columns = np.divmod(np.flatnonzero(self._may_count(numbers, start)), self.classes)
        with self._lock:
            self._waiting.append((rows + start, columns, numbers[rows, columns]))
            if sum(len(one[0]) for one in self._waiting) > max(LEAST_WAITING, self.classes * self.count):
                self._sort_out()

    def result(self) -> tuple[IntArray, Float64Array]:
        """Rows and numbers, (m, C) each, the largest first, equal ones by row; m < count where there are fewer rows."""
        self._sort_out()
        rows, numbers = (np.stack(parts) for parts in zip(*self._kept, strict=True))  # (C, m)
        order = np.lexsort((rows, -numbers), axis=1)
        return np.take_along_axis(rows, order, axis=1).T, np.take_along_axis(numbers, order, axis=1).T

    def _may_count(self, numbers: Float64Array, start: int) -> BoolArray:
        """Which numbers of a block come before the last that is kept."""
        limit, last = self._least
        found = numbers > limit
        late = np.flatnonzero(last > start)  # a tie counts if its row comes first
        if len(late):
            rows = np.arange(start, start + len(numbers))[:, None]
            found[:, late] |= (numbers[:, late] == limit[late]) & (rows < last[late])
        return found

    def _sort_out(self) -> None:
        """Keep the first `count` of each column among those that are kept and those that wait."""
        if not self._waiting:
            return
        rows, columns, numbers = (np.concatenate(column) for column in zip(*self._waiting, strict=True))
        self._waiting = []
        order = np.argsort(columns, kind="stable")
        stops = np.bincount(columns, minlength=self.classes).cumsum()[:-1]
        limit, last = self._least[0].copy(), self._least[1].copy()
        for column, places in enumerate(np.split(order, stops)):
            known_rows, known_numbers = self._kept[column]
            both = np.concatenate([known_rows, rows[places]]), np.concatenate([known_numbers, numbers[places]])
            kept_rows, kept_numbers = self._kept[column] = _largest(*both, self.count)
            if len(kept_rows) == self.count:
                limit[column] = kept_numbers.min()
                last[column] = kept_rows[kept_numbers == limit[column]].max()
        self._least = limit, last


def _largest(rows: IntArray, numbers: Float64Array, count: int) -> tuple[IntArray, Float64Array]:
    """The rows with the `count` largest numbers, equal ones by row, in any order."""
    if len(rows) <= count:
        return rows, numbers
    limit = np.partition(numbers, -count)[-count]
    above = np.flatnonzero(numbers > limit)
    tied = np.flatnonzero(numbers == limit)
    tied = tied[np.argsort(rows[tied], kind="stable")][: count - len(above)]
    kept = np.concatenate([above, tied])
    return rows[kept], numbers[kept]
