"""Images that stay on the disk: a folder or a .zip with names in it in, pixels uint8 (n, size, size, 3) out when asked.

Nothing is ever written there, and a .zip is read where it lies.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, TypeVar

import numpy as np

from ..errors import BadFile
from ..files import open_regular
from ..processes import cores
from ..types import IntArray
from .content import MOST_HASHED, array_digest, joined_digest, sample_of
from .decode import read_pixels
from .images import InputArray

if TYPE_CHECKING:
    from zipfile import ZipFile

BLOCK = 64  # images that a thread takes at once
MOST_BYTES = 1 << 28  # of one file in a .zip, which could otherwise unpack to anything

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """Image files as inputs, decoded on all cores each time they are asked for."""

    root: Path  # a folder or a .zip
    names: tuple[str, ...]  # (N,) below the root, with /
    size: int  # pixels of a side

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, size, size, 3)."""
        return (len(self.names), self.size, self.size, 3)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        names = [self.names[index] for index in indices]
        pixels = np.empty((len(names), *self.shape[1:]), np.uint8)

        def decode(row: int) -> None:  # straight into its place: a pool may hardly fit into memory once
            with open_below(self.root, names[row]) as file:
                pixels[row] = read_pixels(file, self.size, str(self.root / names[row]))

        for _ in in_threads(decode, range(len(names))):
            pass
        return pixels

    def digest(self, rows: IntArray) -> bytes:
        """Of names, sizes and bytes; where the files are large, of the bytes of some."""
        names = [self.names[row] for row in rows]
        sizes = np.fromiter(in_threads(lambda name: size_below(self.root, name), names), np.int64, len(names))
        places = np.arange(len(names))
        read = places if sizes.sum() <= MOST_HASHED else sample_of(places)

        def hashed(place: int) -> bytes:
            with open_below(self.root, names[place]) as file:
                return joined_digest([file.read()])

        stored = "\n".join(names).replace("\\", "/").encode("utf-8", "surrogatepass")
        return joined_digest([stored, array_digest(sizes), *in_threads(hashed, read.tolist())])


def open_below(root: Path, name: str) -> IO[bytes]:
    """Open a file below a folder or in a .zip for reading."""
    try:
        if root.is_dir():
            return open_regular(root / name)
        return io.BytesIO(_unzipped(root, name))
    except OSError as error:
        raise BadFile(f"cannot read {root / name}: {error.strerror or error}; was it moved?") from error


def size_below(root: Path, name: str) -> int:
    """Bytes of a file below a folder or in a .zip."""
    try:
        if root.is_dir():
            return (root / name).stat().st_size
        return _zip(root, os.getpid())[0].getinfo(name).file_size
    except (OSError, KeyError) as error:
        raise BadFile(f"cannot read {root / name}: {error}; was it moved?") from error


def names_below(root: Path) -> list[str]:
    """Every file below a folder or in a .zip, with /, ascending; linked folders are not followed."""
    if not root.is_dir():
        return sorted(name for name in _zip(root, os.getpid())[0].namelist() if not name.endswith("/"))
    return sorted(
        Path(folder, name).relative_to(root).as_posix() for folder, _, names in os.walk(root) for name in names
    )


def in_threads(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The results in the order of the items; after a fault no more items are begun."""
    from concurrent.futures import ThreadPoolExecutor

    blocks = [items[at : at + BLOCK] for at in range(0, len(items), BLOCK)]
    workers = min(cores(), len(blocks))
    if workers <= 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        for done in pool.map(lambda block: [work(item) for item in block], blocks):
            yield from done
    finally:
        pool.shutdown(cancel_futures=True)


def _unzipped(archive: Path, name: str) -> bytes:
    from zipfile import BadZipFile
    from zlib import error as zlib_error

    file, turn = _zip(archive, os.getpid())
    try:
        info = file.getinfo(name)
        if info.file_size > MOST_BYTES:
            raise BadFile(f"{archive / name} unpacks to {info.file_size:,} bytes, more than the {MOST_BYTES:,} allowed")
        with turn:  # a ZipFile counts its readers without a lock
            return file.read(info)
    except (KeyError, BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib_error) as error:
        raise BadFile(f"cannot read {archive / name}: {error}") from error


@lru_cache(maxsize=4)
def _zip(archive: Path, _process: int) -> tuple[ZipFile, Lock]:
    """An open .zip, one per process: two that share a file's position would read each other's bytes."""
    from zipfile import BadZipFile, ZipFile

    try:
        with open_regular(archive):  # not a pipe; a ZipFile closes only what it has opened itself
            return ZipFile(archive), Lock()
    except (BadZipFile, OSError) as error:
        raise BadFile(f"{archive} cannot be read as a .zip: {error}") from error
