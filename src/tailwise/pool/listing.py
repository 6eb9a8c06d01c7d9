"""Which images a folder holds and what they show: class folders or a CSV in, names with labels and splits out.

Links that lead out of the folder are reported, never followed; nothing is opened but the CSV.
"""

from __future__ import annotations

import csv
import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

from ..errors import BadFile
from ..files import open_regular
from .images import BadImage

CSV_NAME = "labels.csv"
SPLITS = ("train", "test")
SPLIT_FOLDERS = {"train": "train", "test": "test", "val": "test"}
DROPPINGS = {"thumbs.db", "desktop.ini"}  # left by file managers; hidden files are passed over too


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


def list_images(path: Path) -> Listing:
    """List a folder of class folders, a folder with labels.csv, or a CSV file beside its images."""
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
    return Listing(root, tuple(sorted(names)), tuple(sorted(entries, key=_by_name)), tuple(bad))


def _by_name(entry: Entry) -> str:
    return entry.name


def _split_folders(root: Path) -> list[tuple[Path, str]]:
    """The folders that hold class folders; "train" may be a class too, so all folders must be splits."""
    inside = {folder.name for folder in _subfolders(root)[0]}
    if "train" not in inside or not inside <= set(SPLIT_FOLDERS):
        return [(root, "")]
    if len(inside) != len(SPLITS):
        raise BadFile(f"{root} has {', '.join(sorted(inside))}; it must have train and test, or class folders alone")
    return [(root / name, SPLIT_FOLDERS[name]) for name in sorted(inside)]


def _subfolders(base: Path) -> tuple[list[Path], list[BadImage]]:
    """The folders in a folder, ascending, and what lies beside them that cannot be used."""
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
    kept = sorted((entry for entry in rows if not faults[entry.name]), key=_by_name)
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
