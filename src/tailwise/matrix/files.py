"""A matrix whose rows lie in files, one part after the other: what mapped and spooled matrices have in common.

Slices and row numbers in, rows out, as from a numpy array; pickled, it is a description and no data.

Files of rows: runs of rows are read, single rows are picked from a map of the file, of which few pages stay.

The kernel counts every mapped page that was read as this process's memory. They are given back now and then; what is in
the page cache stays there, so reading them again costs next to nothing.

Matrices that are slow to read, read once: each part goes into a temporary file when it is first asked for.

Parquet must be decoded and an object store is far away, while a solve reads the matrix five to fifteen times. The file
has no name, so that it is gone with the process, however that ends.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BadFile
from ..processes import Scratch
from ..types import BoolArray, FloatArray, IntArray
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


AHEAD = 2  # parts that a thread may read ahead while another reads the one it waits for
RESERVE = 256 << 20  # bytes that are left free on the disk of the temporary file


class Source(ABC):
    """Rows (N, C) in parts that are read as a whole; part p holds the rows bounds[p] … bounds[p + 1]."""

    def __init__(self, location: str, bounds: IntArray, columns: int, dtype: np.dtype[Any]) -> None:
        self.location, self.bounds, self.columns, self.dtype = location, bounds, columns, dtype

    @abstractmethod
    def blocks(self, part: int) -> Iterator[FloatArray]:
        """All rows of a part, in order, some at a time."""


class SpooledMatrix(FileMatrix):
    """Rows of a source, each part kept in a temporary file once it was read."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.location, source.bounds, source.columns, source.dtype)
        self.source = source
        self._row_bytes = source.columns * source.dtype.itemsize
        self._kept: BoolArray = np.zeros(len(source.bounds) - 1, dtype=bool)
        self._busy = [threading.Lock() for _ in range(len(source.bounds) - 1)]
        self._lock = threading.Lock()
        self._mapped = Mapped()
        self._file: int | None = None

    def __reduce__(self) -> tuple[type[SpooledMatrix], tuple[Source]]:
        return SpooledMatrix, (self.source,)

    def run(self, start: int, stop: int, room: Scratch | None = None) -> FloatArray:
        """Contiguous rows, read from the temporary file."""
        for part in self.parts(start, stop):
            self._bring(part)
        return self._mapped.run(0, self._map, start, stop, room)

    def pick(self, rows: IntArray) -> FloatArray:
        """Chosen rows, copied."""
        for part in np.flatnonzero(np.diff(np.searchsorted(rows, self.bounds))).tolist():
            self._bring(part)
        return self._mapped.pick(0, self._map, rows)

    def _bring(self, part: int) -> None:
        """Wait until a part is in the temporary file; whoever would only wait reads ahead."""
        while not self._kept[part]:
            ahead = range(part, min(part + 1 + AHEAD, len(self._kept)))
            if not any(self._keep(one) for one in ahead if not self._kept[one]):
                with self._busy[part]:
                    pass

    def _keep(self, part: int) -> bool:
        """Read a part, unless another thread is at it."""
        if not self._busy[part].acquire(blocking=False):
            return False
        try:
            if not self._kept[part]:
                self._write(part)
                self._kept[part] = True
        finally:
            self._busy[part].release()
        return True

    def _write(self, part: int) -> None:
        first, last = int(self.bounds[part]), int(self.bounds[part + 1])
        check_room((last - first) * self._row_bytes, self)
        at, end = first * self._row_bytes, last * self._row_bytes
        file = self._descriptor()
        for block in self.source.blocks(part):
            rest = memoryview(np.ascontiguousarray(block, self.dtype).reshape(-1).view(np.uint8).data)
            while rest:
                try:
                    written = self._write_at(file, rest, at)  # not by the map: there, a full disk ends the process
                except OSError as error:
                    raise no_room(self, error.strerror or str(error)) from error
                at, rest = at + written, rest[written:]
        assert at == end, "a source must give all rows of a part"

    def _write_at(self, file: int, content: memoryview, place: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(file, content, place)
        with self._lock:  # Windows: all threads share one position
            os.lseek(file, place, os.SEEK_SET)
            return os.write(file, content)

    def _descriptor(self) -> int:
        with self._lock:
            if self._file is None:
                file = tempfile.TemporaryFile(prefix="tailwise-", buffering=0)  # noqa: SIM115 - closed with the matrix
                weakref.finalize(self, file.close)
                os.ftruncate(file.fileno(), self.shape[0] * self._row_bytes)
                self._file = file.fileno()
            return self._file

    def _map(self) -> MappedFile:
        return MappedFile(self._descriptor(), 0, self.shape, self.dtype)


def check_room(size: int, matrix: FileMatrix) -> None:
    """Refuse before the disk is full."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < size + RESERVE:
        raise no_room(matrix, f"{free / 1e9:.2f} GB are free")


def no_room(matrix: FileMatrix, why: str) -> BadFile:
    """What to do where the temporary file does not fit."""
    size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    return BadFile(
        f"{shown_place(matrix.location)} is kept in a temporary file of {size / 1e9:.2f} GB while it is in use, but in "
        f"{tempfile.gettempdir()} {why}; set TMPDIR to a folder on a disk with room, or save it as .npy on this machine"
    )
