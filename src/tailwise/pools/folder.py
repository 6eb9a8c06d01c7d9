"""Any folder of images as a pool: class folders, train/ and test/ with class folders, or a CSV of paths and labels.

Images stay on disk, in a folder or a .zip, and are decoded when they are read. Every file is checked on loading; what
cannot be used is reported with its reason. Links that lead out of the folder are not followed. Nothing is written.
"""

from __future__ import annotations

import csv
import io
import os
import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Literal, TypeVar

import numpy as np

from ..errors import BadFile, BadInput
from ..files import open_regular
from ..processes import cores
from ..types import IntArray, Progress, no_progress
from .decode import fault, read_pixels
from .pool import (
    MOST_HASHED,
    POOLS,
    BadImage,
    InputArray,
    Inputs,
    LabelledImages,
    Pool,
    array_digest,
    joined_digest,
    keep_counts,
    sample_of,
)

if TYPE_CHECKING:
    from zipfile import ZipFile


CSV_NAME = "labels.csv"
SPLITS = ("train", "test")
SPLIT_FOLDERS = {"train": "train", "test": "test", "val": "test"}
DROPPINGS = {"thumbs.db", "desktop.ini"}  # left by file managers; hidden files are passed over too
MOST_SIZE = 4096
BLOCK = 64  # images that a thread takes at once
MOST_BYTES = 1 << 28  # of one file in a .zip, which could otherwise unpack to anything

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Entry:
    """One image that is there, perhaps unusable."""

    name: str  # below the root, with /
    label: str
    split: str  # "train", "test", or "" where it is not given


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds, before any image is opened."""

    root: Path
    class_names: tuple[str, ...]  # ascending
    entries: tuple[Entry, ...]  # by name
    bad: tuple[BadImage, ...]


@POOLS.register("folder")
def folder(
    path: Path | None = None, *, size: int = 64, test_share: float = 0.2, seed: int = 0, verify: Verify = "header",
    report: Progress = no_progress,
) -> Pool:  # fmt: skip
    """A folder of images, each the largest centred square scaled to `size`; without a given split, a stratified one."""
    if path is None:
        raise BadInput("the pool 'folder' needs a path: a folder of class folders, or a CSV with path,label")
    _check(size, test_share, verify)
    listing = list_images(path)
    entries, bad = usable(listing, decode=verify == "decode", report=report)
    images = _images(listing, entries, size)
    if listing.entries and listing.entries[0].split:
        tested: IntArray = np.flatnonzero([entry.split == "test" for entry in entries])
    else:
        wanted = test_counts(images.counts(), test_share)
        tested = keep_counts(images.labels, wanted, np.random.default_rng(seed))
    others = np.setdiff1d(np.arange(len(images)), tested)
    return Pool(path.resolve().stem, images.take(others), images.take(tested), (*listing.bad, *bad))


def test_counts(counts: IntArray, share: float) -> IntArray:
    """How many of each class to test on: the nearest to `share` that leaves one on both sides, where there are two.

    >>> test_counts(np.array([100, 2, 1, 0]), 0.2).tolist()
    [20, 1, 0, 0]
    """
    if not share:
        return np.zeros_like(counts)
    most = np.maximum(counts - 1, 0)
    near = np.floor(share * counts + 0.5).astype(np.int64)
    tested: IntArray = np.minimum(np.maximum(near, 1), most)
    return tested


def usable(listing: Listing, *, decode: bool, report: Progress = no_progress) -> tuple[list[Entry], list[BadImage]]:
    """Open every image, on all cores; those that can be used, and the others with the reasons."""

    def look(entry: Entry) -> str | None:
        try:
            with open_below(listing.root, entry.name) as file:
                return fault(file, decode=decode)
        except BadFile as error:
            return str(error)

    good, bad = [], []
    for number, reason in enumerate(in_threads(look, listing.entries)):
        if number % BLOCK == 0:
            report(number / len(listing.entries), f"checking {len(listing.entries):,} images")
        entry = listing.entries[number]
        if reason is None:
            good.append(entry)
        else:
            bad.append(BadImage(str(listing.root / entry.name), reason))
    _check_some_left(listing, good, bad)
    return good, bad


def _images(listing: Listing, entries: list[Entry], size: int) -> LabelledImages:
    numbers = {name: number for number, name in enumerate(listing.class_names)}
    labels = np.array([numbers[entry.label] for entry in entries], dtype=np.int64)
    files = Files(listing.root, tuple(entry.name for entry in entries), size)
    return LabelledImages(files, labels, listing.class_names)


def _check_some_left(listing: Listing, good: list[Entry], bad: list[BadImage]) -> None:
    if not good:
        faults = [*bad, *listing.bad]
        first = f"; the first of {len(faults)} faults: {faults[0].path}: {faults[0].reason}" if faults else ""
        raise BadFile(f"{listing.root} holds no usable image; put them into one folder per class{first}")


def _check(size: int, test_share: float, verify: str) -> None:
    if not 1 <= size <= MOST_SIZE:
        raise BadInput(f"size is {size}; it must lie between 1 and {MOST_SIZE} pixels")
    if not 0 <= test_share < 1:
        raise BadInput(f"test_share is {test_share:g}; it must lie in [0, 1)")
    if verify not in ("header", "decode"):
        raise BadInput(f"verify is {verify!r}; it must be 'header' or 'decode'")


# What a folder holds.


def list_images(path: Path) -> Listing:
    """List a folder of class folders, a folder with labels.csv, or a CSV file next to its images."""
    table = path if path.is_file() else path / CSV_NAME
    if table.is_file():
        return _from_csv(table)
    if not path.is_dir():
        raise BadFile(f"no folder at {path}; name a folder of class folders, or a CSV with the columns path,label")
    return _from_folders(path)


def _from_folders(root: Path) -> Listing:
    names: set[str] = set()
    entries: list[Entry] = []
    bad: list[BadImage] = []
    for base, split in _split_folders(root):
        classes, strays = _subfolders(base)
        names.update(folder.name for folder in classes)
        bad += strays
        for folder in classes:
            for file, reason in _walk(folder, root.resolve()):
                if reason:
                    bad.append(BadImage(str(file), reason))
                else:
                    entries.append(Entry(file.relative_to(root).as_posix(), folder.name, split))
    return Listing(root, tuple(sorted(names)), tuple(sorted(entries, key=lambda entry: entry.name)), tuple(bad))


def _split_folders(root: Path) -> list[tuple[Path, str]]:
    """The folders that hold class folders; "train" may be a class too, so all folders must be splits."""
    inside = {folder.name for folder in _subfolders(root)[0]}
    if "train" not in inside or not inside <= set(SPLIT_FOLDERS):
        return [(root, "")]
    if len(inside) != len(SPLITS):
        raise BadFile(f"{root} has {', '.join(sorted(inside))}; it must have train and test, or class folders alone")
    return [(root / name, SPLIT_FOLDERS[name]) for name in sorted(inside)]


def _subfolders(base: Path) -> tuple[list[Path], list[BadImage]]:
    """The folders in a folder, ascending, and other entries, which cannot be used."""
    folders, strays = [], []
    for entry in _entries(base):
        if entry.is_dir(follow_symlinks=False):
            folders.append(Path(entry.path))
        else:
            linked = "a linked folder, which is not followed" if entry.is_dir() else "not in a class folder"
            strays.append(BadImage(entry.path, linked))
    return folders, strays


def _walk(folder: Path, home: Path) -> Iterator[tuple[Path, str]]:
    """Every file below a folder, with the reason why it cannot be used, empty where it may be."""
    for entry in _entries(folder):
        file = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(file, home)
        elif entry.is_symlink():
            yield file, _link_fault(file, home)
        else:
            yield file, "" if entry.is_file() else "not a regular file"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            shown = [entry for entry in found if entry.name[0] != "." and entry.name.lower() not in DROPPINGS]
    except OSError as error:
        raise BadFile(f"cannot list {folder}: {error.strerror}") from error
    return sorted(shown, key=lambda entry: entry.name)


def _link_fault(file: Path, home: Path) -> str:
    """Why a path that may hold links cannot be used; empty where it leads to a file in the folder."""
    try:
        real = file.resolve()
    except (OSError, RuntimeError, ValueError):  # a circle of links, or no path at all
        return "a link that leads nowhere"
    if not real.is_relative_to(home):
        return "it leads out of the folder"
    if real.is_dir():
        return "a linked folder, which is not followed" if file.is_symlink() else "a folder"
    return "" if real.is_file() else "no such file"


def _from_csv(table: Path) -> Listing:
    root = table.parent
    home = root.resolve()
    rows = _rows(table)
    faults = {entry.name: _link_fault(root / entry.name, home) for entry in rows}
    bad = tuple(BadImage(str(root / name), reason) for name, reason in faults.items() if reason)
    kept = sorted((entry for entry in rows if not faults[entry.name]), key=lambda entry: entry.name)
    return Listing(root, tuple(sorted({entry.label for entry in rows})), tuple(kept), bad)


def _rows(table: Path) -> list[Entry]:
    """The rows of a CSV with the columns path, label and perhaps split; others are passed over."""
    try:
        with TextIOWrapper(open_regular(table), encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = {"path", "label"} - set(reader.fieldnames or ())
            if missing:
                raise BadFile(f"{table} has no column {min(missing)!r}; its first line must be path,label or so")
            return list(_checked(reader, table, with_split="split" in (reader.fieldnames or ())))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadFile(f"{table} cannot be read as CSV in UTF-8: {error}") from error


def _checked(reader: Iterable[dict[str, str | None]], table: Path, *, with_split: bool) -> Iterator[Entry]:
    lines: dict[str, int] = {}
    for number, row in enumerate(reader, start=2):
        name, label, split = ((row.get(column) or "").strip() for column in ("path", "label", "split"))
        name = posixpath.normpath(_as_stored(name, table.parent)) if name else ""  # Path does not drop ".."
        if not name or not label:
            raise BadFile(f"{table}, row {number}, has no {'path' if not name else 'label'}; give one or drop the row")
        if with_split and split not in SPLITS:
            raise BadFile(f"{table}, row {number}, has the split {split!r}; it must be train or test")
        if name in lines:
            raise BadFile(f"{table} names {name} in rows {lines[name]} and {number}; keep one of them")
        lines[name] = number
        yield Entry(name, label, split)


def _as_stored(name: str, root: Path) -> str:
    """A path with slashes, also if the table was written on Windows; backslashes in a file's own name stay."""
    windows = "\\" in name and not (os.name != "nt" and os.path.lexists(root / name))
    return name.replace("\\", "/") if windows else name


# Image files as inputs.


@dataclass(frozen=True, slots=True, eq=False)
class Files(Inputs):
    """Image files as inputs, decoded on all cores each time they are asked for."""

    root: Path  # a folder or a .zip
    names: tuple[str, ...]  # (N,) below the root, with /
    size: int  # pixels of a side

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, size, size, 3)."""
        return (len(self.names), self.size, self.size, 3)

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


Verify = Literal["header", "decode"]
