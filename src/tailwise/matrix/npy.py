"""Matrices in files: what they have in common, and .npy files, mapped on this machine or read from an object store.

Slices and row numbers in, rows out, as from a numpy array; a pickled matrix is a description without data. Runs of rows
are read; single rows are picked from a map of the file. The kernel counts every mapped page as memory of this process,
so mapped pages are given back now and then: they stay in the page cache, and reading them again is cheap.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from ..errors import BadFile
from ..files import NPY_START, npy_header, open_regular
from ..processes import Scratch
from ..types import FloatArray, IntArray
from .stores import Disk, Found, Remote, Store, reaching, shown_place

MOST_OPEN = 32  # files at a time, two descriptors each: a folder may hold thousands
MOST_RESIDENT = 128 << 20  # bytes that reads may leave mapped
FAULT_BYTES = 2 << 20  # what the kernel may map around one row: as much as a huge page
PICKED_PAGES = 16  # of such a size, between two looks at how much is mapped
PART_BYTES = 32 << 20  # of a remote file read at a time
CONNECTIONS = 16  # headers of remote files read at the same time


class Reopened:
    """Pickled as the arguments that it was made with, without data: it is opened again where it is needed."""

    made_with: tuple[Any, ...]

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), self.made_with


class FileMatrix(Reopened, ABC):
    """Rows (N, C) in files; part p holds the rows bounds[p] … bounds[p + 1]."""

    ndim = 2

    def __init__(self, location: str, bounds: IntArray, columns: int, dtype: np.dtype[Any]) -> None:
        self.location = location  # a path, absolute, or a URL
        self.bounds = bounds  # (parts + 1,)
        self._ends: list[int] = bounds.tolist()
        self.shape = (int(bounds[-1]), columns)
        self.dtype = dtype

    @abstractmethod
    def run(self, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        """Contiguous rows, at least one; read into `scratch`, they are good until the thread reads the next."""

    @abstractmethod
    def pick(self, rows: IntArray) -> FloatArray:
        """Rows by ascending number; at least one."""

    def __getitem__(self, where: Any, /) -> FloatArray:  # noqa: ANN401 - slice or row numbers, as numpy takes them
        """Contiguous rows, or rows by number; ascending numbers are read fastest."""
        if isinstance(where, slice):
            start, stop, step = where.indices(self.shape[0])
            if step == 1 and start < stop and self.shape[1]:
                return self.run(start, stop)
            where = np.arange(start, stop, step)
        rows = np.asarray(where, dtype=np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < self.shape[0]):
            raise IndexError(f"rows {rows.min()} to {rows.max()} were asked for, but {self!r} has {self.shape[0]}")
        if (rows[1:] >= rows[:-1]).all() and len(rows) and self.shape[1]:
            return self.pick(rows)
        result = np.empty((len(rows), self.shape[1]), self.dtype)
        if result.size:
            order = np.argsort(rows, kind="stable")
            result[order] = self.pick(rows[order])
        return result

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        return np.array(self[:], dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_place(self.location)!r})"

    def parts(self, start: int, stop: int) -> range:
        """The parts that hold these rows."""
        return range(bisect_right(self._ends, start) - 1, bisect_left(self._ends, stop))


@dataclass(eq=False)
class Source(Reopened, ABC):
    """Rows (N, C) in parts that are read as a whole; part p holds the rows bounds[p] … bounds[p + 1]."""

    location: str
    bounds: IntArray  # (parts + 1,)
    columns: int
    dtype: np.dtype[Any]

    @abstractmethod
    def blocks(self, part: int) -> Iterator[FloatArray]:
        """All rows of a part, in order, some at a time."""


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

    def rows(self, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        """Contiguous rows, read and not mapped: a page that is brought in costs more than its bytes copied."""
        if self._order == "F" or start >= stop or not hasattr(os, "preadv"):  # Windows and older macOS read the map
            return self.array[start:stop]
        shape = (stop - start, self.array.shape[1])
        rows: Any = np.empty(shape, self.array.dtype) if scratch is None else scratch.array(shape, self.array.dtype)
        place, rest = self._offset + start * rows.strides[0], memoryview(rows).cast("B")
        while rest:  # one call gives at most 2 GiB
            got = os.preadv(self._descriptor, [rest], place)
            if not got:
                raise BadFile("a file of the matrix has become shorter while it was read; begin again with whole files")
            place, rest = place + got, rest[got:]
        result: FloatArray = rows
        return result

    def release_pages(self) -> None:
        """Give the pages back; views stay valid, and the kernel brings pages again when they are read."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


class MappedFiles:
    """The files that were read last, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: OrderedDict[int, MappedFile] = OrderedDict()
        self._touched = 0

    def pick(self, key: int, make: Callable[[], MappedFile], rows: IntArray) -> FloatArray:
        """Rows of a file by ascending number, copied."""
        array = self.file(key, make).array
        picked: FloatArray = np.empty((len(rows), array.shape[1]), array.dtype)
        pages = rows * (array.shape[1] * array.itemsize) // FAULT_BYTES
        places = np.cumsum(np.diff(pages, prepend=-1) > 0)  # 1 for the rows in the first page that is met, then 2, …
        cuts = np.searchsorted(places, np.arange(1, places[-1] + 1, PICKED_PAGES)).tolist()
        for start, stop in pairwise([*cuts, len(rows)]):
            picked[start:stop] = array[rows[start:stop]]
            self._touch(int(places[stop - 1] - places[start] + 1) * FAULT_BYTES)
        return picked

    def file(self, key: int, make: Callable[[], MappedFile]) -> MappedFile:
        """A file that is open, or opened now."""
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
            file.release_pages()


@dataclass(frozen=True, slots=True)
class NpyFile:
    """What the header of a .npy file says."""

    path: str  # by which the store opens it
    size: int  # bytes
    offset: int  # where the numbers begin
    rows: int
    columns: int
    dtype: np.dtype[Any]
    fortran: bool  # column by column

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.columns * self.dtype.itemsize


def open_npy(store: Store, files: Sequence[Found]) -> NpyMatrix | NpySource:
    """One matrix from the rows of all files, in their order."""
    if isinstance(store, Disk):
        return NpyMatrix(store, agreeing(store, [_local_header(file) for file in files]))
    assert isinstance(store, Remote)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        headers = agreeing(store, list(pool.map(lambda file: _remote_header(store, file), files)))
    for file in headers:
        if file.fortran and file.columns > 1:
            raise BadFile(
                f"{store.shown(file.path)} is in Fortran order, so its rows lie scattered; "
                "save numpy.ascontiguousarray of it, or copy it to this machine"
            )
    return NpySource(store, headers)


class NpyMatrix(FileMatrix):
    """Rows in .npy files of this machine; a part is a file."""

    def __init__(self, store: Disk, files: tuple[NpyFile, ...]) -> None:
        bounds = np.cumsum([0, *(file.rows for file in files)], dtype=np.int64)
        super().__init__(store.location, bounds, files[0].columns, files[0].dtype)
        self.files, self.made_with = files, (store, files)
        self._mapped = MappedFiles()

    def run(self, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        """Contiguous rows, read from one file or several."""
        parts = self.parts(start, stop)
        if len(parts) == 1:
            return self._run(parts[0], start, stop, scratch)
        return np.concatenate([self._run(part, start, stop) for part in parts])

    def pick(self, rows: IntArray) -> FloatArray:
        """Chosen rows, copied."""
        result = np.empty((len(rows), self.shape[1]), self.dtype)
        cuts = np.searchsorted(rows, self.bounds)
        for part in np.flatnonzero(np.diff(cuts)).tolist():
            where = slice(cuts[part], cuts[part + 1])
            result[where] = self._mapped.pick(part, partial(map_npy, self.files[part]), rows[where] - self.bounds[part])
        return result

    def _run(self, part: int, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        low, high = int(self.bounds[part]), int(self.bounds[part + 1])
        file = self._mapped.file(part, partial(map_npy, self.files[part]))
        return file.rows(max(start, low) - low, min(stop, high) - low, scratch)


def mapped_rows(array: np.memmap[Any, Any]) -> NpyMatrix | None:
    """The rows of a memory-mapped array, read from its file, so that they do not stay in memory.

    None where the file does not hold them as they are: changed copies, columns picked out, a file that is gone.
    """
    whole: Any = array._mmap  # type: ignore[attr-defined]
    rows_follow = array.ndim == 2 and array.flags.c_contiguous and array.size
    if not rows_follow or whole is None or array.filename is None or array.mode == "c":
        return None
    first = np.frombuffer(whole, np.uint8).__array_interface__["data"][0]
    mapped_from = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + array.__array_interface__["data"][0] - first
    path = Path(array.filename)
    try:
        size = path.stat().st_size
    except OSError:
        return None
    if size < offset + array.nbytes:
        return None
    rows, columns = array.shape
    file = NpyFile(str(path.absolute()), size, offset, rows, columns, array.dtype, fortran=False)
    return NpyMatrix(Disk(str(path)), (file,))


def map_npy(file: NpyFile) -> MappedFile:
    """Map a file that was looked at before, if it is still the same."""
    try:
        with open_regular(file.path) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != file.size:
                raise BadFile(_changed(file.path, f"it had {file.size} bytes and has {size}"))
            return MappedFile(
                opened.fileno(), file.offset, (file.rows, file.columns), file.dtype, "F" if file.fortran else "C"
            )
    except OSError as error:
        raise BadFile(_changed(file.path, error.strerror or str(error))) from error


class NpySource(Source):
    """Rows in .npy files of an object store; a part is a range of bytes."""

    def __init__(self, store: Remote, files: tuple[NpyFile, ...]) -> None:
        self.store, self.made_with = store, (store, files)
        self.parts = [(file, first, last) for file in files for first, last in _runs(file)]
        bounds = np.cumsum([0, *(last - first for _, first, last in self.parts)], dtype=np.int64)
        super().__init__(store.location, bounds, files[0].columns, files[0].dtype)

    def blocks(self, part: int) -> Iterator[FloatArray]:
        """One read of a range."""
        file, first, last = self.parts[part]
        shown, wanted = self.store.shown(file.path), (last - first) * file.row_bytes
        try:
            with self.store.open(file.path) as opened:
                if (size := opened.size()) != file.size:
                    raise BadFile(_changed(shown, f"it had {file.size} bytes and has {size}"))
                content = opened.read_at(wanted, file.offset + first * file.row_bytes)
        except OSError as error:
            raise BadFile(_changed(shown, str(error))) from error
        if len(content) != wanted:
            raise BadFile(_changed(shown, f"{wanted} bytes were asked for and {len(content)} came"))
        yield np.frombuffer(content, file.dtype).reshape(last - first, file.columns)


def parse_header(start: bytes, file: Found, shown: str) -> NpyFile:
    """The header in the first bytes of a .npy file; an error where the rest cannot be read in blocks."""
    try:
        header = npy_header(start)
    except ValueError as error:
        raise BadFile(f"{shown} cannot be read as a plain .npy array: {error}") from error
    shape, dtype = header.shape, header.dtype
    if dtype.hasobject:
        raise BadFile(
            f"{shown} is not a plain .npy array: it holds pickled objects, which are never loaded; save a float matrix"
        )
    if dtype.names is not None:
        raise BadFile(f"{shown} holds records ({', '.join(dtype.names)}), not a matrix of numbers")
    if len(shape) != 2:
        raise BadFile(f"{shown} must be a matrix (images × columns), but has shape {shape}")
    made = NpyFile(file.path, file.size, header.offset, shape[0], shape[1], dtype, header.fortran)
    if made.offset + made.rows * made.row_bytes > made.size:
        there = f"{made.size - made.offset} of {made.rows * made.row_bytes} bytes"
        raise BadFile(f"{shown} is not a whole plain .npy array: it is cut short, {there} are there; write it again")
    return made


def agreeing(store: Store, files: list[NpyFile]) -> tuple[NpyFile, ...]:
    """The files, if all have the same columns and the same kind of number."""
    first = files[0]
    for file in files:
        for what in ("columns", "dtype"):
            one, other = getattr(first, what), getattr(file, what)
            if one != other:
                raise BadFile(
                    f"the shards of a matrix must have the same {what}, but {store.shown(first.path)} has {one} "
                    f"and {store.shown(file.path)} has {other}"
                )
    return tuple(files)


def _local_header(file: Found) -> NpyFile:
    try:
        with open_regular(file.path) as opened:
            start = opened.read(NPY_START)
    except OSError as error:
        raise BadFile(f"{file.path} cannot be read: {error.strerror or error}") from error
    return parse_header(start, file, file.path)


def _remote_header(store: Remote, file: Found) -> NpyFile:
    with reaching(store), store.open(file.path) as opened:
        start = opened.read_at(min(NPY_START, file.size), 0)
    return parse_header(start, file, store.shown(file.path))


def _runs(file: NpyFile) -> Iterator[tuple[int, int]]:
    """Rows of a file in runs of about PART_BYTES; one run, empty, of a file without rows."""
    step = max(1, PART_BYTES // max(1, file.row_bytes))
    for first in range(0, max(1, file.rows), step):
        yield first, min(first + step, file.rows)


def _changed(shown: str, how: str) -> str:
    return f"{shown} cannot be read any more, though it could be when it was opened: {how}"
