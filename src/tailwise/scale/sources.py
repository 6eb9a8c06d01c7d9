"""Where the images of a pool come from, shard by shard: a folder or Parquet in; shards, their pieces and blocks out.

A block is what a learner is asked about at once. Which images are in it follows from the input alone, never from how
many workers there are, so that every engine gives the same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..campaign.scanning import Found, scan
from ..errors import BadFile, BadInput
from ..solve.stores import HALF_URL, URL

BLOCK = 64  # images that a learner is asked about at once
BLOCKS_PER_PIECE = 4  # that a worker reads in one go
SHARD_SIZE = 10_000


@dataclass(frozen=True, slots=True)
class Picture:
    """An image before it is decoded: a file, or bytes, or the reason why there is neither."""

    name: str  # tells one image of a pool from all others
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
    files: tuple[Found, ...] = ()  # of a folder
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


class Source(Protocol):
    """A pool on the disk; it is sent to workers, and so holds no list of images."""

    @property
    def description(self) -> dict[str, str]:
        """What the user named, for the manifest."""
        ...

    def shards(self) -> list[InputShard]:
        """All shards, in order; nothing is decoded yet."""
        ...

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """Read a piece; BadFile where that is impossible for more than single images."""
        ...


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

    def _shard(self, number: int, files: Sequence[Found]) -> InputShard:
        step = BLOCK * BLOCKS_PER_PIECE
        pieces = tuple(
            Piece(number, at, len(some), files=tuple(some))
            for at in range(0, len(files), step)
            for some in [files[at : at + step]]
        )
        name = f"{files[0].path} to {files[-1].path}" if len(files) > 1 else files[0].path
        return InputShard(number, name, len(files), digest([_facts(file) for file in files]), pieces)

    def blocks(self, piece: Piece) -> Iterator[Block]:
        """The files of a piece, which are opened when they are decoded."""
        if not self.root.is_dir():
            raise BadFile(f"the folder {self.root} is not there; on a cluster every machine must see the images there")
        pictures = [Picture(file.path, file.trouble or self.root / file.path) for file in piece.files]
        yield from in_blocks(piece, iter(pictures))


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


def open_source(
    images: str | Path, *, shard_size: int = SHARD_SIZE, column: str | None = None, root: str | Path | None = None
) -> Source:
    """The pool that a path means: a folder of images, a Parquet file, or a folder of Parquet files."""
    refuse_url(images, "images")
    path = Path(images).expanduser().resolve()
    if shard_size < 1:
        raise BadInput(f"a shard of {shard_size} images cannot be; give at least 1")
    if not path.exists():
        raise BadFile(f"nothing at {path}; name a folder of images, a Parquet file or a folder of them")
    if path.is_file() and path.suffix.lower() != ".parquet":
        raise BadFile(f"{path} is neither a folder of images nor a .parquet file")
    tables = sum(1 for _ in tables_of(path))
    if path.is_dir() and tables and scan(path).files:
        raise BadFile(f"{path} holds images and {tables} Parquet files; name a folder that holds one kind")
    if tables:
        from .parquet_source import ParquetSource

        return ParquetSource.open(path, column, Path(root).expanduser().resolve() if root else None)
    if column or root:
        raise BadInput(f"{path} is a folder of images; a column and a root of paths belong to Parquet")
    return FolderSource(path, shard_size)


def refuse_url(place: str | Path, what: str) -> None:
    """Say that an address of an object store cannot be used here, before a folder of its name is made."""
    if URL.match(str(place)) or HALF_URL.match(str(place)):
        raise BadInput(f"the {what} are at {place}, but must be in a folder of this machine; mount or copy them")


def tables_of(path: Path) -> Iterator[Path]:
    """The Parquet files that a path means, by name."""
    if path.is_file():
        yield path
    else:
        found = (file for file in path.rglob("*") if file.suffix.lower() == ".parquet" and file.is_file())
        yield from sorted(file for file in found if not any(part[0] in "._" for part in file.relative_to(path).parts))


def digest(facts: Any) -> str:  # noqa: ANN401 - plain JSON
    """A short name for plain values."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _facts(file: Found) -> list[object]:
    return [file.path, file.stamp and [file.stamp.bytes, file.stamp.mtime_ns], file.trouble]
