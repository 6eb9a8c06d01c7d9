"""Matrices that are slow to read, read once: each part goes into a temporary file when it is first asked for.

Parquet must be decoded and an object store is far away, while a solve reads the matrix five to fifteen times. The file
has no name, so that it is gone with the process, however that ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import BadFile
from ..scratch import Scratch
from ..types import BoolArray, FloatArray, IntArray
from .file_matrix import FileMatrix
from .mapped import Mapped, MappedFile
from .stores import shown_place

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
