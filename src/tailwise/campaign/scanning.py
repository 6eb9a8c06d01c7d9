"""What is in a folder of images now: its files with their stamps, and, of one file, its checksum and its header.

Nothing is written. Links out of the folder, pipes, other campaigns and files that no image ends like are not read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadFile
from ..files import check_open_files, open_regular
from ..pools.decode import read_header
from .ledger import LEDGER_FILE

SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".mpo", ".apng",
})  # fmt: skip
NOT_UNICODE = "its name is no valid UTF-8; rename it"
LINKED_FOLDER = "a linked folder, which is not followed; index the folder that it leads to"


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells, without reading it, that a file is the one it was: a rename changes the last."""

    bytes: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there, by name an image."""

    path: str  # below the folder, with /; what is no Unicode in it is written as \\xff
    stamp: Stamp | None = None
    trouble: str | None = None  # why it is not to be read


@dataclass(frozen=True, slots=True)
class Examined:
    """What was read of a file."""

    path: str
    stamp: Stamp | None = None
    sha256: str | None = None
    width: int | None = None
    height: int | None = None
    orientation: int | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """A folder, before any image is opened."""

    files: tuple[Found, ...]  # by path
    faults: tuple[tuple[str, str], ...]  # folders that are not read, and why
    passed_over: tuple[tuple[str, int], ...]  # suffixes that are no image's, with how many


def scan(root: Path) -> Scan:
    """List a folder and the folders in it."""
    if not root.is_dir():
        raise BadFile(f"no folder at {root}; name the folder of your images")
    if (root / LEDGER_FILE).exists():
        raise BadFile(f"{root} is a campaign; keep the images in another folder than the campaign")
    faults: list[tuple[str, str]] = []
    others: Counter[str] = Counter()
    files = {found.path: found for found in _walk(root, root, faults, others)}
    return Scan(tuple(files[path] for path in sorted(files)), tuple(faults), tuple(sorted(others.items())))


def examine(root: Path, found: Found) -> Examined:
    """Read one file: its checksum, its size and orientation, or its trouble."""
    if found.trouble is not None or found.stamp is None:
        return Examined(found.path, found.stamp, trouble=found.trouble)
    sha256 = None
    try:
        with open_regular(root / found.path) as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            stamp = _stamp(os.fstat(file.fileno()))
            file.seek(0)
            header = read_header(file)
    except BadFile as error:
        return Examined(found.path, found.stamp, sha256, trouble=str(error))
    except OSError as error:
        return Examined(found.path, found.stamp, trouble=f"it cannot be read ({error.strerror or error})")
    return Examined(found.path, stamp, sha256, header.width, header.height, header.orientation)


def real_path(root: Path, path: str) -> Path:
    """Where a file below a folder really is; BadFile where a link leads out of the folder."""
    try:
        real = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise BadFile(f"{root / path} leads nowhere: {error}") from error
    if not real.is_relative_to(root.resolve()):
        raise BadFile(f"{root / path} leads out of the folder; it is not read")
    return real


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file, links followed; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return _stamp(found) if stat.S_ISREG(found.st_mode) else None


def _walk(root: Path, folder: Path, faults: list[tuple[str, str]], others: Counter[str]) -> Iterator[Found]:
    for entry in _entries(root, folder, faults):
        if entry.is_dir(follow_symlinks=False):
            if not os.path.lexists(os.path.join(entry.path, LEDGER_FILE)):  # noqa: PTH118 - a Path per entry is slow
                yield from _walk(root, Path(entry.path), faults, others)
        elif entry.is_symlink() and os.path.isdir(entry.path):  # noqa: PTH112 - entry.is_dir() fails on a circle of links
            faults.append((_name(root, entry.path), LINKED_FOLDER))
        elif (suffix := os.path.splitext(entry.name)[1].lower()) in SUFFIXES:  # noqa: PTH122 - the same
            yield _file(root, entry)
        else:
            others[suffix.encode("utf-8", "replace").decode()] += 1


def _entries(root: Path, folder: Path, faults: list[tuple[str, str]]) -> list[os.DirEntry[str]]:
    """What a folder holds, but for hidden entries; one that cannot be listed is a fault, not the end."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        check_open_files(error)
        if folder == root:
            raise BadFile(f"cannot list {folder}: {error.strerror}") from error
        faults.append((_name(root, str(folder)), f"the folder cannot be listed ({error.strerror})"))
        return []


def _file(root: Path, entry: os.DirEntry[str]) -> Found:
    name = _name(root, entry.path)
    try:
        if not name_is_unicode(entry.path):
            return Found(name, trouble=NOT_UNICODE)
        if entry.is_symlink():
            real_path(root, name)
        found = entry.stat()
    except BadFile:
        return Found(name, trouble="a link that leads out of the folder")
    except OSError as error:
        return Found(name, trouble=f"it cannot be read ({error.strerror or error})")
    if not stat.S_ISREG(found.st_mode):
        return Found(name, trouble="it is no regular file")
    return Found(name, _stamp(found))


def name_is_unicode(path: str) -> bool:
    r"""Whether a path can be written as UTF-8.

    >>> name_is_unicode("café.jpg"), name_is_unicode("caf\udce9.jpg")
    (True, False)
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(root: Path, path: str) -> str:
    """The path below the root as text that any database takes."""
    below = os.path.relpath(path, root).replace(os.sep, "/")
    return os.fsencode(below).decode("utf-8", "backslashreplace")


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
