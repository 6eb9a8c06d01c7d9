"""Files of rows: runs of rows are read, single rows are picked from a map of the file, of which few pages stay.

The kernel counts every mapped page that was read as this process's memory. They are given back now and then; what is in
the page cache stays there, so reading them again costs next to nothing.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ..errors import BadFile
from ..scratch import Scratch
from ..types import FloatArray, IntArray

MOST_OPEN = 32  # files at a time, two descriptors each: a folder may hold thousands
MOST_RESIDENT = 128 << 20  # bytes that reads may leave mapped
FAULT_BYTES = 2 << 20  # what the kernel may map around one row: as much as a huge page
PICKED_PAGES = 16  # of such a size, between two looks at how much is mapped


class MappedFile:
    """The rows of one file."""

    def __init__(
        self, descriptor: int, offset: int, shape: tuple[int, int], dtype: np.dtype[Any], order: Literal["C", "F"] = "C"
    ) -> None:
        length = offset + shape[0] * shape[1] * dtype.itemsize
        self._map = mmap.mmap(descriptor, length, access=mmap.ACCESS_READ)
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._offset, self._order = offset, order
        self.array: FloatArray = np.ndarray(shape, dtype, buffer=self._map, offset=offset, order=order)

    def rows(self, start: int, stop: int, room: Scratch | None = None) -> FloatArray:
        """Contiguous rows, read and not mapped: a page that is brought in costs more than its bytes copied."""
        if self._order == "F" or start >= stop or not hasattr(os, "preadv"):  # Windows and older macOS read the map
            return self.array[start:stop]
        shape = (stop - start, self.array.shape[1])
        rows: Any = np.empty(shape, self.array.dtype) if room is None else room.array(shape, self.array.dtype)
        place, rest = self._offset + start * rows.strides[0], memoryview(rows).cast("B")
        while rest:  # one call gives at most 2 GiB
            got = os.preadv(self._descriptor, [rest], place)
            if not got:
                raise BadFile("a file of the matrix has become shorter while it was read; begin again with whole files")
            place, rest = place + got, rest[got:]
        result: FloatArray = rows
        return result

    def let_go(self) -> None:
        """Give the pages back; views stay valid, and the kernel brings pages again when they are read."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class Mapped:
    """The files that were read last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[int, MappedFile] = OrderedDict()
        self._touched = 0

    def run(
        self, key: int, make: Callable[[], MappedFile], start: int, stop: int, room: Scratch | None = None
    ) -> FloatArray:
        """Contiguous rows of a file."""
        return self._file(key, make).rows(start, stop, room)

    def pick(self, key: int, make: Callable[[], MappedFile], rows: IntArray) -> FloatArray:
        """Rows of a file by ascending number, copied."""
        array = self._file(key, make).array
        picked: FloatArray = np.empty((len(rows), array.shape[1]), array.dtype)
        pages = rows * (array.shape[1] * array.itemsize) // FAULT_BYTES
        places = np.cumsum(np.diff(pages, prepend=-1) > 0)  # 1 for the rows in the first page that is met, then 2, …
        cuts = np.searchsorted(places, np.arange(1, places[-1] + 1, PICKED_PAGES)).tolist()
        for start, stop in pairwise([*cuts, len(rows)]):
            picked[start:stop] = array[rows[start:stop]]
            self._touch(int(places[stop - 1] - places[start] + 1) * FAULT_BYTES)
        return picked

    def _file(self, key: int, make: Callable[[], MappedFile]) -> MappedFile:
        with self._lock:
            file = self._files.get(key)
            if file is None:
                file = self._files[key] = make()
                if len(self._files) > MOST_OPEN:
                    self._files.popitem(last=False)  # it is unmapped when the last view of it is gone
            else:
                self._files.move_to_end(key)
            return file

    def _touch(self, size: int) -> None:
        with self._lock:
            self._touched += size
            if self._touched < MOST_RESIDENT:
                return
            self._touched = 0
            files = list(self._files.values())
        for file in files:
            file.let_go()
