"""Indexing: bring the rows of images up to date with the files of one folder.

New and unchanged files are committed as they come. Changes of a row's identity (files that moved, were swapped or
changed) are decided at the end, when all files are known, in one transaction.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

from ..errors import BadFile
from ..files import check_open_files, open_regular, usable
from ..inputs import many
from ..pools.decode import read_header
from ..pools.folder import in_threads
from ..types import Progress, no_progress
from .database import LEDGER_FILE
from .images import FileStat, ImageRow, file_stat, find_image, image_row, list_folders, name_is_unicode, real_path
from .ledger import Ledger, now

SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".dib", ".tif", ".tiff", ".webp", ".mpo", ".apng",
})  # fmt: skip
NOT_UNICODE = "its name is not valid UTF-8; rename it"
LINKED_FOLDER = "a linked folder, which is not followed; index the folder that it leads to"
BATCH = 500  # images of a transaction
MISSING = "its file is missing"
CHANGED = "its bytes changed after people answered"
REPLACED = "its file was replaced by another image of the campaign"


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexing a folder found."""

    added: int = 0  # new rows, duplicates and quarantined ones among them
    known: int = 0  # files that can be used and whose row has stayed theirs
    moved: int = 0  # rows that followed their files to new names
    changed: tuple[str, ...] = ()  # files whose bytes are others than those that were there
    missing: tuple[str, ...] = ()  # files that are not there any more
    duplicates: int = 0  # of the added
    quarantined: tuple[tuple[str, str], ...] = ()  # path and reason of all files that are there and cannot be used
    passed_over: tuple[tuple[str, int], ...] = ()  # other suffixes, with how many files


@dataclass(frozen=True, slots=True)
class ImageFile:
    """A file that is there, by name an image; the checksum and what follows are known once it was read."""

    path: str  # below the folder, with /; bytes of a name that are not Unicode are written as \\xff
    stat: FileStat | None = None
    sha256: str | None = None
    width: int | None = None
    height: int | None = None
    orientation: int | None = None
    trouble: str | None = None  # why it cannot be read


@dataclass(frozen=True, slots=True)
class Scan:
    """A folder, before any image is opened."""

    files: tuple[ImageFile, ...]  # by path
    faults: tuple[tuple[str, str], ...]  # folders that are not read, and why
    passed_over: tuple[tuple[str, int], ...]  # other suffixes, with how many files


@dataclass(slots=True)
class Work:
    """One run over a folder."""

    folder_id: int
    folders: dict[int, Path]
    rows: dict[str, ImageRow]  # of this folder, by path, as they were before the run
    present: frozenset[str]  # paths of this folder that are there
    certain: set[int] = field(default_factory=set)  # ids of rows whose file is known to hold their bytes
    later: list[ImageFile] = field(default_factory=list)  # files that touch the identity of a row
    groups: set[str] = field(default_factory=set)  # checksums whose duplicates are to be sorted out again
    known: int = 0
    added: int = 0
    moved: int = 0
    duplicates: int = 0
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)


def index(ledger: Ledger, folder: str | Path, report: Progress = no_progress) -> Indexed:
    """Bring the ledger up to date with a folder; may be interrupted at any time, and repeated."""
    root = usable(folder).resolve()
    report(0.0, f"listing {root}")
    found = scan(root)
    work = _begin(ledger, root, found)
    known = [file for file in found.files if _is_known(work.rows.get(file.path), file)]
    work.certain.update(work.rows[file.path].id for file in known)
    names = {file.path for file in known}
    todo = [file for file in found.files if file.path not in names]
    done = 0
    examined = iter(in_threads(partial(examine, root), todo))
    while batch := list(islice(examined, BATCH)):
        with ledger.writing() as connection:
            for one in batch:
                _place(connection, work, one)
        done += len(batch)
        report(done / len(todo), f"indexing {many(len(todo), 'image')}")
    with ledger.writing() as connection:
        _settle(connection, work)
    return Indexed(
        work.added, len(known) + work.known, work.moved, tuple(work.changed), tuple(work.missing), work.duplicates,
        (*found.faults, *work.bad), found.passed_over,
    )  # fmt: skip


def accept_changed(ledger: Ledger, images: Iterable[int]) -> int:
    """Take the bytes that are there now for those that people labelled; returns how many images that repaired."""
    accepted = 0
    folders = list_folders(ledger)
    for number in images:
        row = find_image(ledger, number)
        root = folders[row.folder_id]
        try:
            real_path(root, row.path)
        except BadFile:  # a link that leads out of the folder
            continue
        file = examine(root, ImageFile(row.path, file_stat(root / row.path)))
        if file.sha256 is not None and file.trouble is None:
            with ledger.writing() as connection:
                _write(connection, row.id, row.folder_id, file)
                for sha256 in {row.sha256 or file.sha256, file.sha256}:
                    _regroup(connection, sha256)
            accepted += 1
    return accepted


def unreferenced(ledger: Ledger, images: Sequence[int]) -> list[int]:
    """Those that no answer, no round and no lease names."""
    with ledger.reading() as connection:
        return [number for number in images if not _is_referenced(connection, number)]


def forget(ledger: Ledger, images: Sequence[int]) -> None:
    """Drop the rows of images that nothing refers to; one whose file comes back is a new image."""
    with ledger.writing() as connection:
        for number in images:
            if not _is_referenced(connection, number):
                _drop(connection, number)


def _drop(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("UPDATE image SET duplicate_of = NULL WHERE duplicate_of = ?", (number,))
    connection.execute("DELETE FROM image WHERE id = ?", (number,))


def _begin(ledger: Ledger, root: Path, found: Scan) -> Work:
    with ledger.writing() as connection:
        connection.execute("INSERT OR IGNORE INTO folder (path) VALUES (?)", (root.as_posix(),))
        folders = list_folders(ledger)
        number = next(number for number, path in folders.items() if path == root)
        rows = connection.execute("SELECT * FROM image WHERE folder_id = ?", (number,)).fetchall()
        before = {row["path"]: image_row(row) for row in rows}
        if not found.files and any(row.trouble is None for row in before.values()):
            raise BadFile(
                f"{root} holds no image any more, where {len(before):,} were indexed; is its disk mounted? "
                f"If they moved: tailwise init {ledger.folder} --images NEW"
            )
    return Work(number, folders, before, frozenset(file.path for file in found.files))


def _is_known(row: ImageRow | None, file: ImageFile) -> bool:
    """A row in trouble is always read again: a permission may have been corrected."""
    if row is None or row.trouble is not None or file.stat is None or file.trouble is not None:
        return False
    return file.stat == FileStat(row.bytes or 0, row.mtime_ns or 0, row.ctime_ns or 0)


def _place(connection: sqlite3.Connection, work: Work, one: ImageFile) -> None:
    """Write a file whose row is plain; put the others off."""
    if one.trouble is not None:
        work.bad.append((one.path, one.trouble))
    row = work.rows.get(one.path)
    if row is not None and one.sha256 is None:
        connection.execute("UPDATE image SET trouble = ? WHERE id = ?", (one.trouble, row.id))
        work.certain.add(row.id)  # nothing says that its bytes are others
    elif row is not None and one.sha256 == row.sha256:
        _write(connection, row.id, work.folder_id, one)
        work.certain.add(row.id)
        work.known += one.trouble is None
        work.groups.update([row.sha256] if row.trouble is not None and row.sha256 else [])
    elif row is not None and row.sha256 is not None:
        work.later.append(one)
    elif row is not None:
        _write(connection, row.id, work.folder_id, one)
        work.certain.add(row.id)
        work.known += one.trouble is None
        work.groups.update([one.sha256] if one.sha256 else [])
    else:
        same = _with_bytes(connection, one.sha256)
        if all(_is_certain(work, other) for other in same):
            _insert(connection, work, one, same)
        else:
            work.later.append(one)


def _with_bytes(connection: sqlite3.Connection, sha256: str | None) -> list[ImageRow]:
    """All rows with these bytes: originals first."""
    if sha256 is None:
        return []
    query = "SELECT * FROM image WHERE sha256 = ? ORDER BY duplicate_of IS NOT NULL, id"
    return [image_row(row) for row in connection.execute(query, (sha256,)).fetchall()]


def _is_certain(work: Work, row: ImageRow) -> bool:
    if row.folder_id == work.folder_id:
        return row.id in work.certain
    return file_stat(work.folders[row.folder_id] / row.path) is not None


def _insert(connection: sqlite3.Connection, work: Work, one: ImageFile, same: list[ImageRow]) -> None:
    cursor = connection.execute(
        "INSERT INTO image (key, folder_id, path, added_at) VALUES (?, ?, ?, ?)",
        (secrets.token_hex(8), work.folder_id, one.path, now()),
    )
    number = int(cursor.lastrowid or 0)
    original = next((row.id for row in same if row.usable), None) if one.trouble is None else None
    _write(connection, number, work.folder_id, one, original)
    work.certain.add(number)
    work.added += 1
    work.duplicates += original is not None


def _write(
    connection: sqlite3.Connection, number: int, folder_id: int, one: ImageFile, original: int | None = None
) -> None:  # fmt: skip
    """Make a row say what was read of a file; whose duplicate it is, is kept while its bytes are."""
    found = one.stat
    sizes = (found.bytes, found.mtime_ns, found.ctime_ns) if found else (None, None, None)
    connection.execute(
        "UPDATE image SET folder_id = ?, path = ?, bytes = ?, mtime_ns = ?, ctime_ns = ?, width = ?, height = ?, "
        "orientation = ?, trouble = ?, duplicate_of = CASE WHEN sha256 IS ? THEN duplicate_of ELSE ? END, sha256 = ? "
        "WHERE id = ?",
        (
            folder_id, one.path, *sizes, one.width, one.height, one.orientation, one.trouble, one.sha256, original,
            one.sha256, number,
        ),
    )  # fmt: skip


def _settle(connection: sqlite3.Connection, work: Work) -> None:
    """Decide which row each file belongs to that was put off, and which rows have no file any more."""
    lost = _lost_rows(connection, work)
    home = _assign(work, lost)
    files = {one.path: one for one in work.later}
    owners = {path: number for number, path in home.items()}
    for row in lost.values():
        if row.id in home:
            connection.execute("UPDATE image SET path = ? WHERE id = ?", (f"/{row.id}", row.id))  # no path is so
        elif row.folder_id == work.folder_id and row.path in owners:
            _give_way(connection, work, row)
    for number, path in home.items():
        _write(connection, number, work.folder_id, files[path])
        work.moved += (lost[number].folder_id, lost[number].path) != (work.folder_id, path)
    for path, one in files.items():
        if path not in owners:
            _place_changed(connection, work, one)
    for row in lost.values():
        gone = row.folder_id == work.folder_id and row.path not in work.present
        if row.id not in home and gone and row.path not in owners:
            connection.execute("UPDATE image SET trouble = ? WHERE id = ?", (MISSING, row.id))
            work.missing.append(row.path)
    work.groups.update(row.sha256 for row in lost.values() if row.sha256)
    work.groups.update(one.sha256 for one in work.later if one.sha256)
    for sha256 in sorted(work.groups):
        _regroup(connection, sha256)


def _lost_rows(connection: sqlite3.Connection, work: Work) -> dict[int, ImageRow]:
    """Rows whose file is gone or holds other bytes, by id; and their duplicates, whose files they may take over."""
    waiting = {one.path for one in work.later}
    lost = {
        row.id: row for path, row in work.rows.items()
        if row.id not in work.certain and (path not in work.present or path in waiting)
    }  # fmt: skip
    for one in list(work.later):
        others = (row for row in _with_bytes(connection, one.sha256) if not _is_certain(work, row))
        lost.update((row.id, row) for row in others)
    for row in list(lost.values()):
        if row.duplicate_of is None:
            twins = (
                twin for twin in _with_bytes(connection, row.sha256)
                if twin.folder_id == work.folder_id and twin.id in work.certain and twin.duplicate_of is not None
                and twin.trouble is None
            )  # fmt: skip
            if (twin := next(twins, None)) is not None:
                lost[twin.id] = twin
                found = FileStat(twin.bytes or 0, twin.mtime_ns or 0, twin.ctime_ns or 0)
                work.later.append(
                    ImageFile(twin.path, found, twin.sha256, twin.width, twin.height, twin.orientation)
                )  # fmt: skip
    return lost


def _assign(work: Work, lost: dict[int, ImageRow]) -> dict[int, str]:
    """Rows to the paths that hold their bytes now, originals before duplicates."""
    waiting: dict[str, list[ImageRow]] = {}
    for row in sorted(lost.values(), key=lambda row: (row.duplicate_of is not None, row.id)):
        if row.sha256 is not None:
            waiting.setdefault(row.sha256, []).append(row)
    home = {}
    for one in work.later:
        if one.sha256 is not None and waiting.get(one.sha256):
            home[waiting[one.sha256].pop(0).id] = one.path
    return home


def _give_way(connection: sqlite3.Connection, work: Work, row: ImageRow) -> None:
    """A row without a file, at whose path another row's file lies now; one that nothing refers to is dropped."""
    if not _is_referenced(connection, row.id):
        _drop(connection, row.id)
        return
    connection.execute(
        "UPDATE image SET path = ?, trouble = ? WHERE id = ?", (f"{row.path}#{row.id}", REPLACED, row.id)
    )  # fmt: skip
    work.missing.append(row.path)


def _is_referenced(connection: sqlite3.Connection, number: int) -> bool:
    """Whether an answer, a round or a lease names an image."""
    return any(
        connection.execute(f"SELECT 1 FROM {table} WHERE image_id = ? LIMIT 1", (number,)).fetchone()
        for table in ("event", "round_image", "lease")
    )


def _place_changed(connection: sqlite3.Connection, work: Work, one: ImageFile) -> None:
    """A file without a row of its own: the row at its path changed, unless it went elsewhere."""
    row = connection.execute(
        "SELECT id, sha256, EXISTS (SELECT 1 FROM event WHERE image_id = image.id) AS answered FROM image "
        "WHERE folder_id = ? AND path = ?",
        (work.folder_id, one.path),
    ).fetchone()
    if row is None:
        _insert(connection, work, one, _with_bytes(connection, one.sha256))
    elif row["answered"]:
        connection.execute("UPDATE image SET trouble = ? WHERE id = ?", (CHANGED, row["id"]))
        work.changed.append(one.path)
        work.bad.append((one.path, CHANGED))
    else:
        _write(connection, row["id"], work.folder_id, one)
        work.changed.append(one.path)


def _regroup(connection: sqlite3.Connection, sha256: str) -> None:
    """Of all usable rows with the same bytes one is the original: the one that was, or else the first."""
    rows = [row for row in _with_bytes(connection, sha256) if row.trouble is None]
    for place, row in enumerate(rows):
        original = None if place == 0 else rows[0].id
        if row.duplicate_of != original:
            connection.execute("UPDATE image SET duplicate_of = ? WHERE id = ?", (original, row.id))


# -- files of a folder: nothing is written here; links out of the folder and other campaigns are not read --------------


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


def examine(root: Path, file: ImageFile) -> ImageFile:
    """Read one file: its checksum, its size and orientation, or its trouble."""
    if file.trouble is not None or file.stat is None:
        return file
    try:
        with open_regular(root / file.path) as opened:
            file = replace(file, sha256=hashlib.file_digest(opened, "sha256").hexdigest())
            found = FileStat.of(os.fstat(opened.fileno()))
            opened.seek(0)
            header = read_header(opened)
    except BadFile as error:
        return replace(file, trouble=str(error))
    except OSError as error:
        return replace(file, sha256=None, trouble=f"it cannot be read ({error.strerror or error})")
    return replace(file, stat=found, width=header.width, height=header.height, orientation=header.orientation)


def _walk(root: Path, folder: Path, faults: list[tuple[str, str]], others: Counter[str]) -> Iterator[ImageFile]:
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


def _file(root: Path, entry: os.DirEntry[str]) -> ImageFile:
    name = _name(root, entry.path)
    try:
        if not name_is_unicode(entry.path):
            return ImageFile(name, trouble=NOT_UNICODE)
        if entry.is_symlink():
            real_path(root, name)
        found = entry.stat()
    except BadFile:
        return ImageFile(name, trouble="a link that leads out of the folder")
    except OSError as error:
        return ImageFile(name, trouble=f"it cannot be read ({error.strerror or error})")
    if not stat.S_ISREG(found.st_mode):
        return ImageFile(name, trouble="it is not a regular file")
    return ImageFile(name, FileStat.of(found))


def _name(root: Path, path: str) -> str:
    """The path below the root as text that any database takes."""
    below = os.path.relpath(path, root).replace(os.sep, "/")
    return os.fsencode(below).decode("utf-8", "backslashreplace")
