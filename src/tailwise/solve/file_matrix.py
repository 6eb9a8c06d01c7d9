"""A matrix whose rows lie in files, one part after the other: what mapped and spooled matrices have in common.

Slices and row numbers in, rows out, as from a numpy array; pickled, it is a description and no data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..scratch import Scratch
from ..types import FloatArray, IntArray
from .stores import shown_place


class FileMatrix(ABC):
    """Rows (N, C) in files; part p holds the rows bounds[p] … bounds[p + 1]."""

    ndim = 2

    def __init__(self, location: str, bounds: IntArray, columns: int, dtype: np.dtype[Any]) -> None:
        self.location = location  # a path, absolute, or a URL
        self.bounds = bounds  # (parts + 1,)
        self._ends: list[int] = bounds.tolist()
        self.shape = (int(bounds[-1]), columns)
        self.dtype = dtype

    @abstractmethod
    def run(self, start: int, stop: int, room: Scratch | None = None) -> FloatArray:
        """Contiguous rows, at least one; read into `room`, they are good until the thread reads the next."""

    @abstractmethod
    def pick(self, rows: IntArray) -> FloatArray:
        """Rows by ascending number; at least one."""

    def __getitem__(self, where: Any, /) -> FloatArray:  # noqa: ANN401 - slice or row numbers, as numpy takes them
        """Contiguous rows, or rows by number; ascending numbers are read fastest."""
        if isinstance(where, slice):
            start, stop, step = where.indices(self.shape[0])
            if step == 1:
                return self.run(start, stop) if start < stop and self.shape[1] else self._empty(max(0, stop - start))
            where = np.arange(start, stop, step)
        rows = np.asarray(where, dtype=np.int64)
        if not len(rows):
            return self._empty(0)
        if not (rows.min() >= 0 and rows.max() < self.shape[0]):
            raise IndexError(f"rows {rows.min()} to {rows.max()} were asked for, but {self!r} has {self.shape[0]}")
        return self._pick_any(rows) if self.shape[1] else self._empty(len(rows))

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return np.array(self[:], dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_place(self.location)!r})"

    def parts(self, start: int, stop: int) -> range:
        """The parts that hold these rows."""
        return range(bisect_right(self._ends, start) - 1, bisect_left(self._ends, stop))

    def _pick_any(self, rows: IntArray) -> FloatArray:
        if (rows[1:] >= rows[:-1]).all():
            return self.pick(rows)
        order = np.argsort(rows, kind="stable")
        result = self._empty(len(rows))
        result[order] = self.pick(rows[order])
        return result

    def _empty(self, rows: int) -> FloatArray:
        return np.empty((rows, self.shape[1]), self.dtype)
