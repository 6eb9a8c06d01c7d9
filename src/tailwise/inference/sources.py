"""The images of a pool, shard by shard: a folder or Parquet in; shards, their pieces and blocks out.

A block is what a learner is asked about at once. Which images are in it follows from the input alone, never from the
number of workers, so that every engine gives the same bits. In Parquet each file is one shard, with a column of encoded
images, as Hugging Face stores them or plain, or of paths to them; files are read one row group at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from ..campaign.images import real_path
from ..campaign.indexing import ImageFile, scan
from ..errors import BadFile, BadInput
from ..files import open_regular
from ..formats.tables import need_arrow
from ..matrix.stores import reject_url

BLOCK = 64  # images that a learner is asked about at once
BLOCKS_PER_PIECE = 4  # that a worker reads in one go
SHARD_SIZE = 10_000
PATH_NAMES = ("path", "image", "file", "file_name", "filename", "image_path", "file_path")
NO_IMAGE = "the row has no image"
BYTES = 1  # what `_fitting` says of a column that holds images and no paths
STAMPED = 4_096  # rows looked at at a time


@dataclass(frozen=True, slots=True)
class Picture:
    """An image before it is decoded: a file, or bytes, or the reason why there is neither."""

    name: str  # unique in its pool
    content: Path | bytes | str  # a reason as str
    path: str = ""  # what a table says of where it came from


@dataclass(frozen=True, slots=True)
class Block:
    """Some images of a shard, in order."""

    shard: int
    start: int  # the place of the first in the shard
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a shard that one worker reads."""

    shard: int
    start: int
    rows: int
    files: tuple[ImageFile, ...] = ()  # of a folder
    table: str = ""  # the Parquet file, and which row group of it
    group: int = 0


@dataclass(frozen=True, slots=True)
class InputShard:
    """What becomes one shard of the output."""

    number: int
    name: str
    rows: int
    fingerprint: str  # of the names, sizes and times of its files
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class FolderSource:
    """Every image below a folder, by name, in runs of `shard_size`."""

    root: Path
    shard_size: int = SHARD_SIZE

    @property
    def description(self) -> dict[str, str]:
        """The folder."""
        return {"kind": "folder", "path": self.root.as_posix()}

    def shards(self) -> list[InputShard]:
        """List the folder."""
        files = scan(self.root).files
        starts = range(0, len(files), self.shard_size)
        return [self._shard(number, files[at : at + self.shard_size]) for number, at in enumerate(starts)]

    def _shard(self, number: int, files: Sequence[ImageFile]) -> InputShard:
        step = BLOCK * BLOCKS_PER_PIECE
        pieces = tuple(
            Piece(number, at, len(some), files=tuple(some))
            for at in range(0, len(files), step)
            for some in [files[at : at + step]]
        )
        name = f"{files[0].path} to {files[-1].path}" if len(files) > 1 else files[0].path
        facts = [[one.path, one.stat and [one.stat.bytes, one.stat.mtime_ns], one.trouble] for one in files]
        return InputShard(number, name, len(files), digest(facts), pieces)

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """The files of a piece, which are opened when they are decoded."""
        if not self.root.is_dir():
            raise BadFile(f"the folder {self.root} is not there; on a cluster every machine must see the images there")
        pictures = [Picture(file.path, file.trouble or self.root / file.path) for file in piece.files]
        yield from in_blocks(piece, iter(pictures))


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """Parquet files below a folder, or one file."""

    path: Path
    root: Path  # the folder from which paths in the column start
    column: str

    @classmethod
    def open(cls, path: Path, column: str | None = None, root: Path | None = None) -> ParquetSource:
        """Look at the first file for the column of images."""
        first = next(tables_of(path))
        with _opened(first) as file:
            found = _column(file.schema_arrow, column, first)
        return cls(path, root or (path.parent if path.is_file() else path), found)

    @property
    def description(self) -> dict[str, str]:
        """The files and the column."""
        return {"kind": "parquet", "path": self.path.as_posix(), "column": self.column, "root": self.root.as_posix()}

    def shards(self) -> list[InputShard]:
        """Look at every file; one that cannot be opened is reported now, before hours of work."""
        return [self._shard(number, path) for number, path in enumerate(tables_of(self.path))]

    def _shard(self, number: int, path: Path) -> InputShard:
        name = path.relative_to(self.path).as_posix() if self.path.is_dir() else path.name
        with _opened(path) as file:
            _column(file.schema_arrow, self.column, path)
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        starts = [sum(sizes[:group]) for group in range(len(sizes))]
        pieces = tuple(
            Piece(number, start, rows, table=name, group=group)
            for group, (start, rows) in enumerate(zip(starts, sizes, strict=True))
        )
        stamp = path.stat()
        facts = [name, stamp.st_size, stamp.st_mtime_ns, self.column, self.root.as_posix(), self._files_of(path)]
        return InputShard(number, name, sum(sizes), digest(facts), pieces)

    def _files_of(self, table: Path) -> str:
        """A digest of the sizes and times of the files that a table names; "" where it holds the images themselves."""
        with _opened(table) as file:
            paths = _column_of_paths(file, self.column)
            if paths is None:
                return ""
            stamps = hashlib.sha256()
            for batch in file.iter_batches(STAMPED, columns=[paths]):
                for cell in batch.column(0).to_pylist():
                    stamps.update(json.dumps(self._stamp(self._picture("", cell).content)).encode() + b"\n")
            return stamps.hexdigest()

    @staticmethod
    def _stamp(content: Path | bytes | str) -> object:
        """Size and time of a file, if it is one and is there."""
        if not isinstance(content, Path):
            return content if isinstance(content, str) else None  # bytes are in the table, which has a time of its own
        try:
            found = content.stat()
        except OSError:
            return [str(content), None]
        return [str(content), found.st_size, found.st_mtime_ns]

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Read a row group, some rows at a time."""
        yield from in_blocks(piece, self._pictures(piece))

    def _pictures(self, piece: Piece) -> Iterator[Picture]:
        path = self.path / piece.table if self.path.is_dir() else self.path
        with _opened(path) as file:
            row = piece.start
            for batch in file.iter_batches(BLOCK, row_groups=[piece.group], columns=[self.column]):
                for cell in batch.column(0).to_pylist():
                    yield self._picture(f"{piece.table}#{row}", cell)
                    row += 1

    def _picture(self, name: str, cell: Any) -> Picture:  # noqa: ANN401 - whatever the column holds
        if isinstance(cell, bytes):
            return Picture(name, cell)
        content, path = (cell.get("bytes"), cell.get("path") or "") if isinstance(cell, dict) else (None, cell or "")
        if content is not None:
            return Picture(name, content, path)
        if not path:
            return Picture(name, NO_IMAGE)
        try:
            return Picture(name, real_path(self.root, path), path)
        except BadFile:
            return Picture(name, f"its path leads out of {self.root}; give the folder of the images as --root", path)


Source: TypeAlias = FolderSource | ParquetSource
"""A pool on the disk; it is sent to workers, and so holds no list of images."""


def open_source(
    images: str | Path, *, shard_size: int = SHARD_SIZE, column: str | None = None, root: str | Path | None = None
) -> Source:
    """The pool that a path means: a folder of images, a Parquet file, or a folder of Parquet files."""
    reject_url(images, "images")
    path = Path(images).expanduser().resolve()
    if shard_size < 1:
        raise BadInput(f"shard_size is {shard_size}; it must be at least 1")
    if not path.exists():
        raise BadFile(f"nothing at {path}; name a folder of images, a Parquet file or a folder of them")
    if path.is_file() and path.suffix.lower() != ".parquet":
        raise BadFile(f"{path} is neither a folder of images nor a .parquet file")
    tables = sum(1 for _ in tables_of(path))
    if path.is_dir() and tables and scan(path).files:
        raise BadFile(f"{path} holds images and {tables} Parquet files; name a folder that holds one kind")
    if tables:
        return ParquetSource.open(path, column, Path(root).expanduser().resolve() if root else None)
    if column or root:
        raise BadInput(f"{path} is a folder of images; a column and a root of paths belong to Parquet")
    return FolderSource(path, shard_size)


def in_blocks(piece: Piece, pictures: Iterator[Picture]) -> Iterator[Block]:
    """Blocks of one size, but for the last of a piece."""
    start, some = piece.start, []
    for picture in pictures:
        some.append(picture)
        if len(some) == BLOCK:
            yield Block(piece.shard, start, tuple(some))
            start, some = start + len(some), []
    if some:
        yield Block(piece.shard, start, tuple(some))


def digest(facts: Any) -> str:  # noqa: ANN401 - plain JSON
    """A short name for plain values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def tables_of(path: Path) -> Iterator[Path]:
    """The Parquet files that a path means, by name."""
    if path.is_file():
        yield path
    else:
        found = (file for file in path.rglob("*") if file.suffix.lower() == ".parquet" and file.is_file())
        yield from sorted(file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts))


def _column_of_paths(file: Any, column: str) -> str | None:  # noqa: ANN401 - pyarrow has no types
    """What to read to learn which files a table names, bytes left out; None where every row has its bytes."""
    rank = _fitting([file.schema_arrow.field(column)])[column]
    if rank == BYTES:
        return None
    if rank > BYTES:
        return column
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    leaves = [group.column(at) for group in groups for at in range(group.num_columns)]
    bytes_ = [leaf.statistics for leaf in leaves if leaf.path_in_schema == f"{column}.bytes"]
    whole = all(one is not None and one.has_null_count and one.null_count == 0 for one in bytes_)
    has_paths = any(leaf.path_in_schema == f"{column}.path" for leaf in leaves)
    return f"{column}.path" if has_paths and not whole else None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A Parquet file; whatever is wrong with it, now or when it is read, is a BadFile."""
    arrow, parquet = need_arrow()
    try:
        with open_regular(path), parquet.ParquetFile(path) as file:  # not a pipe, on which Arrow would wait
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise BadFile(f"{path} cannot be read as Parquet: {error}; was it written to its end?") from error


def _column(schema: Any, wanted: str | None, path: Path) -> str:  # noqa: ANN401 - pyarrow has no types
    """The column of images: the one that is named, or the only one that can be."""
    fitting = _fitting(schema)
    if wanted is not None:
        if wanted not in fitting:
            shown = ", ".join(fitting) or "none"
            raise BadInput(f"{path} has no column {wanted!r} of images or paths; those that can be: {shown}")
        return wanted
    if not fitting:
        raise BadFile(f"{path} has no column of encoded images or of paths; its columns are {', '.join(schema.names)}")
    best = min(fitting.values())
    named = [name for name, rank in fitting.items() if rank == best]
    if len(named) > 1:
        raise BadInput(f"{path} has several columns that may be the images: {', '.join(named)}; choose with --column")
    return named[0]


def _fitting(schema: Iterable[Any]) -> dict[str, int]:
    """Columns that may hold images, by how likely: 0 as Hugging Face has them, 1 bytes, 2 paths by name, 3 text."""
    arrow, _ = need_arrow()
    kinds = arrow.types
    found = {}
    for field in schema:
        kind = field.type
        parts = {part.name for part in kind} if kinds.is_struct(kind) else set()
        if "bytes" in parts:
            found[field.name] = 0
        elif kinds.is_binary(kind) or kinds.is_large_binary(kind):
            found[field.name] = 1
        elif kinds.is_string(kind) or kinds.is_large_string(kind):
            found[field.name] = 2 if field.name.lower() in PATH_NAMES else 3
    return found
