"""Images found in a folder from elsewhere or in an earlier export of ours: files with labels in, records out.

Where an image lies decides its label; records.csv of an export adds what a folder cannot say: who, when, which path.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import BadFile
from ...files import open_regular
from ...pool.listing import DROPPINGS
from ...pool.tree import in_threads
from .base import Kind, Record
from .copies import CHUNK
from .safe_names import NO_CLASS, OTHER

SPLITS = {"train", "test", "val", "valid", "validation", "dev", "eval"}


@dataclass(frozen=True, slots=True)
class Found:
    """One image in a folder or an archive, and what its place there says."""

    file: str  # below the root, with /
    path: str  # what is left of it without split and class
    label: str | None
    kind: Kind = "label"
    split: str = ""


def files_below(root: Path) -> tuple[list[str], list[str]]:
    """Every file below a folder, ascending, and what was passed over; links are not followed."""
    files, problems = [], []
    for folder, below, names in os.walk(root, onerror=_raise):
        below[:] = sorted(name for name in below if _shown(name))
        inside = Path(folder).relative_to(root)
        for name in sorted(filter(_shown, [*names, *(name for name in below if Path(folder, name).is_symlink())])):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                problems.append(f"{path}: a link or no file, which is not followed")
            else:
                files.append((inside / name).as_posix())
    return sorted(files), problems


def class_tree(
    files: Iterable[str], folders: dict[str, str], *, split: bool | None = None
) -> tuple[list[Found], list[str]]:
    """Images in class folders, perhaps below train/, test/ …; `folders` says which class an odd folder is.

    Whether the uppermost folders are splits is told by their names where it is not known.
    """
    names = [file.split("/") for file in files]
    split = has_splits(names) if split is None else split
    found, strays = [], []
    for parts in names:
        base, rest = (parts[0], parts[1:]) if split else ("", parts)
        if len(rest) < 2:
            strays.append(f"{'/'.join(parts)}: not in a class folder")
            continue
        label, kind = _meaning(rest[0], folders)
        found.append(Found("/".join(parts), "/".join(rest[1:]), label, kind, base))
    return found, strays


def has_splits(names: Sequence[Sequence[str]]) -> bool:
    """Whether the uppermost folders are splits: "train" may be a class too, so all must be, with folders below."""
    tops = {parts[0] for parts in names if len(parts) > 1}
    deep = all(len(parts) > 2 for parts in names if len(parts) > 1)
    return bool(tops) and tops <= SPLITS and deep


def reconciled(
    found: Sequence[Found], listed: Sequence[tuple[str, Record]], hashes: Callable[[Sequence[str]], Iterable[str]]
) -> tuple[list[Record], list[str]]:
    """Records for the images found: as they were listed where nothing was moved, else by where they lie now."""
    here = {item.file: item for item in found}
    kept = [record for file, record in listed if file in here and here[file].label == record.label]
    known = {file for file, record in listed if file in here and here[file].label == record.label}
    relabelled = {file: record for file, record in listed if file in here and file not in known}
    moved = [item for item in found if item.file not in known and item.file not in relabelled]
    paths = {record.sha256: record.path for _, record in listed if record.sha256}
    records = kept + [_renewed(here[file], record.path, record.sha256) for file, record in relabelled.items()]
    taken = set()
    for item, sha256 in zip(moved, hashes([item.file for item in moved]), strict=True):
        taken.add(sha256)
        records.append(_renewed(item, paths.get(sha256, item.path), sha256))
    return records, _gone(listed, here.keys(), taken)


def hashes_below(root: Path) -> Callable[[Sequence[str]], Iterator[str]]:
    """A function that hashes files below a folder, on all cores."""
    return lambda names: in_threads(lambda name: sha256_of(root / name), names)


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def lies_in(root: Path, file: str) -> bool:
    """Whether a name from elsewhere is that of a file in a folder, not of one that it climbs or links to."""
    path = root / file
    try:
        return path.is_file() and path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links, or no path at all
        return False


def class_names(found: Iterable[Found]) -> tuple[str, ...]:
    """The classes that were found, ascending."""
    return tuple(sorted({item.label for item in found if item.label is not None}))


def _renewed(item: Found, path: str, sha256: str) -> Record:
    return Record(path, item.label, split=item.split, kind=item.kind, sha256=sha256)


def _gone(listed: Sequence[tuple[str, Record]], here: Iterable[str], moved: set[str]) -> list[str]:
    """What is listed and nowhere to be found; an image that was moved is found by its bytes."""
    there = set(here)
    missing: defaultdict[str, str] = defaultdict(str)
    for file, record in listed:
        if file not in there and record.sha256 not in moved:
            missing[file] = f"{file}: listed in records.csv, but not there"
    return list(missing.values())


def _meaning(folder: str, folders: dict[str, str]) -> tuple[str | None, Kind]:
    if folder in folders:
        return folders[folder], "label"
    if folder in NO_CLASS:
        return None, "other" if folder == OTHER else "label"
    return folder, "label"


def _shown(name: str) -> bool:
    return not name.startswith(".") and name.lower() not in DROPPINGS


def _raise(error: OSError) -> None:
    raise BadFile(f"cannot list {error.filename}: {error.strerror}") from error
