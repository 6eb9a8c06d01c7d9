"""Parquet files as matrices: which columns hold the numbers, and how row groups are decoded, once.

A solve reads the matrix five to fifteen times, and decoding is slow, as is an object store. So `SpooledMatrix` keeps
each part in a temporary file from its first read on. The file has no name: it is gone when the process ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import BadFile
from ..processes import Scratch
from ..types import BoolArray, FloatArray, IntArray
from .npy import FileMatrix, MappedFile, MappedFiles, Source
from .stores import Disk, Found, Store, need_pyarrow, shown_place

LIST_NAMES = ("prob", "proba", "probs", "probabilities", "softmax")
PART_BYTES = 32 << 20  # small row groups are read together up to this
BATCH_ELEMENTS = 1 << 20  # decoded at a time
BUFFER_BYTES = 1 << 20  # of each column, where the disk is near
CONNECTIONS = 16  # footers read at the same time
FOOTERS = 8  # kept, so that the many row groups of a file need its footer once
AHEAD = 2  # parts that a thread may read ahead while another reads the one it waits for
RESERVE = 256 << 20  # bytes that are left free on the disk of the temporary file


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that hold the numbers: one number each, or one list each row."""

    names: tuple[str, ...]
    width: int  # C
    dtype: np.dtype[Any]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Row groups of a file that are read together."""

    path: str
    groups: tuple[int, ...]
    rows: int


def open_parquet(store: Store, files: Sequence[Found]) -> ParquetSource:
    """One matrix from the rows of all files, in their order."""
    need_pyarrow("reading .parquet")
    with ThreadPoolExecutor(min(CONNECTIONS, len(files))) as pool:
        looked = list(pool.map(lambda file: _look(store, file.path), files))
    columns = agreeing(store, files, [columns for columns, _ in looked])
    parts = [
        part
        for file, (_, rows) in zip(files, looked, strict=True)
        for part in _parts(file.path, rows, columns.width * columns.dtype.itemsize)
    ]
    return ParquetSource(store, columns, tuple(parts))


class ParquetSource(Source):
    """Rows in Parquet files; a part is one row group, or a few small ones."""

    def __init__(self, store: Store, columns: Columns, parts: tuple[Part, ...]) -> None:
        bounds = np.cumsum([0, *(part.rows for part in parts)], dtype=np.int64)
        super().__init__(store.location, bounds, columns.width, columns.dtype)
        self.store, self.chosen, self.parts = store, columns, parts
        self.made_with = store, columns, parts
        self._lock = threading.Lock()
        self._footers: OrderedDict[str, Any] = OrderedDict()

    def blocks(self, part: int) -> Iterator[FloatArray]:
        """Decode a part, some rows at a time."""
        path, left = self.parts[part].path, self.parts[part].rows
        step = max(1, BATCH_ELEMENTS // max(1, self.columns))
        with _decoding(self.store, path), _opened(self.store, path, self._footer(path)) as file:
            self._keep_footer(path, file.metadata)
            groups = list(self.parts[part].groups)
            for batch in file.iter_batches(step, groups, list(self.chosen.names), use_threads=False):
                left -= batch.num_rows
                if left < 0:
                    break
                yield _matrix(batch, self.chosen, self.store.shown(path))
        need_pyarrow("reading .parquet").default_memory_pool().release_unused()  # it keeps what was decoded otherwise
        if left:
            raise BadFile(f"{self.store.shown(path)} has changed: it had other rows when it was opened")

    def _footer(self, path: str) -> Any:  # noqa: ANN401 - a pyarrow.parquet.FileMetaData
        with self._lock:
            return self._footers.get(path)

    def _keep_footer(self, path: str, footer: Any) -> None:  # noqa: ANN401 - see above
        with self._lock:
            self._footers[path] = footer
            self._footers.move_to_end(path)
            if len(self._footers) > FOOTERS:
                self._footers.popitem(last=False)


def agreeing(store: Store, files: Sequence[Found], found: list[Columns]) -> Columns:
    """The columns of all files, which must be the same, in the order of the first; of kinds of number the widest."""
    first = found[0]
    for file, other in zip(files, found, strict=True):
        if (sorted(other.names), other.width) != (sorted(first.names), first.width):
            raise BadFile(
                f"the files of a dataset must have the same columns of numbers, but "
                f"{store.shown(files[0].path)} has {_words(first)} and {store.shown(file.path)} has {_words(other)}"
            )
    return Columns(first.names, first.width, np.result_type(*(one.dtype for one in found)), first.listed)


def choose_columns(schema: Any, shown: str) -> tuple[str, ...]:  # noqa: ANN401 - a pyarrow.Schema
    """Columns prob_*; else a list named as probabilities are; else the only list; else every floating column."""
    from pyarrow import types

    flat = [field.name for field in schema if types.is_floating(field.type)]
    lists = [field.name for field in schema if is_list_of_floats(field.type)]
    named = [name for name in flat if name.startswith("prob_")]
    known = [name for name in LIST_NAMES if name in lists]
    if not named and not known and len(lists) > 1:
        raise BadFile(
            f"{shown} has several columns of lists ({', '.join(lists)}); name the one to read {LIST_NAMES[0]!r}"
        )
    chosen = named or known[:1] or lists or flat
    if not chosen:
        raise BadFile(f"{shown} has no floating-point columns, and none with lists of such numbers")
    if len({*chosen}) < len(chosen):
        raise BadFile(f"{shown} has several columns of the same name; give each its own")
    return tuple(chosen)


def is_list_of_floats(kind: Any) -> bool:  # noqa: ANN401 - a pyarrow.DataType
    """True of lists, of fixed size or not, and of tensors stored as such."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and types.is_floating(kind.value_type))


def _look(store: Store, path: str) -> tuple[Columns, list[int]]:
    """The columns of a file, and the rows of its row groups."""
    shown = store.shown(path)
    with _decoding(store, path), _opened(store, path) as file:
        schema, footer = file.schema_arrow, file.metadata
        names = choose_columns(schema, shown)
        kinds = [getattr(schema.field(name).type, "storage_type", schema.field(name).type) for name in names]
        listed = is_list_of_floats(kinds[0])
        width = _list_width(footer, kinds[0], names[0], shown) if listed else len(names)
        dtype = np.result_type(*((kind.value_type if listed else kind).to_pandas_dtype() for kind in kinds))
        return Columns(names, width, dtype, listed), [
            footer.row_group(at).num_rows for at in range(footer.num_row_groups)
        ]


def _list_width(footer: Any, kind: Any, name: str, shown: str) -> int:  # noqa: ANN401 - pyarrow's
    """How long each list is: by its type, or by how many numbers the first row group holds."""
    from pyarrow import types

    if types.is_fixed_size_list(kind):
        return int(kind.list_size)
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        for place in range(group.num_columns):
            column = group.column(place)
            if column.path_in_schema.startswith(f"{name}.") and group.num_rows:
                if column.num_values % group.num_rows:
                    raise BadFile(f"{shown}: the lists in column {name!r} have different lengths")
                return int(column.num_values // group.num_rows)
    return 0


def _matrix(batch: Any, columns: Columns, shown: str) -> FloatArray:  # noqa: ANN401 - a pyarrow.RecordBatch
    """The rows of a batch as a matrix (n, C)."""
    if columns.listed:
        return _from_lists(batch.column(columns.names[0]), columns, shown)
    block = np.empty((batch.num_rows, columns.width), columns.dtype)
    for at, name in enumerate(columns.names):
        block[:, at] = batch.column(name).to_numpy(zero_copy_only=False)
    return block


def _from_lists(array: Any, columns: Columns, shown: str) -> FloatArray:  # noqa: ANN401 - a pyarrow.Array
    from pyarrow import compute

    array = getattr(array, "storage", array)
    if array.null_count:
        raise BadFile(f"{shown}: column {columns.names[0]!r} is null in some rows")
    lengths = compute.list_value_length(array).to_numpy(zero_copy_only=False)
    if (lengths != columns.width).any():
        other = int(lengths[lengths != columns.width][0])
        raise BadFile(
            f"{shown}: column {columns.names[0]!r} holds lists of {columns.width} numbers, and one of {other}"
        )
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat).reshape(len(array), columns.width)


@contextmanager
def _opened(store: Store, path: str, footer: Any = None) -> Iterator[Any]:  # noqa: ANN401 - pyarrow's
    """A file for decoding; from afar the columns of a row group are asked for at once."""
    from pyarrow.parquet import ParquetFile

    near = isinstance(store, Disk)
    with (
        store.open(path) as raw,
        ParquetFile(raw, metadata=footer, pre_buffer=not near, buffer_size=BUFFER_BYTES if near else 0) as file,
    ):
        yield file


@contextmanager
def _decoding(store: Store, path: str) -> Iterator[None]:
    """Turn errors of pyarrow into ours."""
    arrow = need_pyarrow("reading .parquet")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        message = str(error).replace(store.location, shown_place(store.location))
        raise BadFile(f"{store.shown(path)} cannot be read as Parquet: {message}") from error


def _parts(path: str, rows: list[int], row_bytes: int) -> Iterator[Part]:
    """Row groups in runs: small neighbours together, a large one alone."""
    groups: list[int] = []
    held = 0
    for group, count in enumerate(rows):
        if groups and (held + count) * row_bytes > PART_BYTES:
            yield Part(path, tuple(groups), held)
            groups, held = [], 0
        groups.append(group)
        held += count
    if groups:
        yield Part(path, tuple(groups), held)


def _words(columns: Columns) -> str:
    if columns.listed:
        return f"lists of {columns.width} numbers in {columns.names[0]!r}"
    return f"{columns.width} ({columns.names[0]} … {columns.names[-1]})"


# -- temporary files -------------------------------------------------------------------------------------------------


class SpooledMatrix(FileMatrix):
    """Rows of a source, each part kept in a temporary file once it was read."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.location, source.bounds, source.columns, source.dtype)
        self.source, self.made_with = source, (source,)
        self._row_bytes = source.columns * source.dtype.itemsize
        self._kept: BoolArray = np.zeros(len(source.bounds) - 1, dtype=bool)
        self._busy = [threading.Lock() for _ in range(len(source.bounds) - 1)]
        self._lock = threading.Lock()
        self._mapped = MappedFiles()
        self._file: int | None = None

    def run(self, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        """Contiguous rows, read from the temporary file."""
        for part in self.parts(start, stop):
            self._bring(part)
        return self._mapped.file(0, self._map).rows(start, stop, scratch)

    def pick(self, rows: IntArray) -> FloatArray:
        """Chosen rows, copied."""
        for part in np.flatnonzero(np.diff(np.searchsorted(rows, self.bounds))).tolist():
            self._bring(part)
        return self._mapped.pick(0, self._map, rows)

    def _bring(self, part: int) -> None:
        """Wait until a part is in the temporary file; a thread that would only wait reads ahead."""
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
        check_disk_space((last - first) * self._row_bytes, self)
        at, end = first * self._row_bytes, last * self._row_bytes
        file = self._descriptor()
        for block in self.source.blocks(part):
            rest = memoryview(np.ascontiguousarray(block, self.dtype).reshape(-1).view(np.uint8).data)
            while rest:
                try:
                    written = self._write_at(file, rest, at)  # not by the map: there, a full disk ends the process
                except OSError as error:
                    raise disk_full(self, error.strerror or str(error)) from error
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


def check_disk_space(size: int, matrix: FileMatrix) -> None:
    """Raise before the disk is full."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < size + RESERVE:
        raise disk_full(matrix, f"{free / 1e9:.2f} GB are free")


def disk_full(matrix: FileMatrix, why: str) -> BadFile:
    """The error where the temporary file does not fit."""
    size = matrix.shape[0] * matrix.shape[1] * matrix.dtype.itemsize
    return BadFile(
        f"{shown_place(matrix.location)} is kept in a temporary file of {size / 1e9:.2f} GB while it is in use, but in "
        f"{tempfile.gettempdir()} {why}; set TMPDIR to a folder on a disk with enough space, or save it as .npy on "
        "this machine"
    )
