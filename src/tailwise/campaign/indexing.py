"""Brings the rows of images up to date with one folder: a ledger and a folder in, what was found out.

New and unchanged files are committed as they come. Whatever touches the identity of a row — files that moved, were
swapped or changed — is decided at the end, when all files are known, in one transaction.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ..errors import BadFile
from ..pools.folder import in_threads
from ..types import Progress
from .images import ImageRow, Indexed, find_image, image_row, list_folders
from .ledger import Ledger, now
from .names import many
from .scanning import Examined, Found, Scan, Stamp, examine, real_path, scan, stamp_of

BATCH = 500  # images of a transaction
MISSING = "its file is missing"
CHANGED = "its bytes changed after people answered"
REPLACED = "its file was replaced by another image of the campaign"

Item = TypeVar("Item")


@dataclass(slots=True)
class Work:
    """One run over a folder."""

    folder_id: int
    folders: dict[int, Path]
    rows: dict[str, ImageRow]  # of this folder, by path, as they were before the run
    present: frozenset[str]  # paths of this folder that are there
    certain: set[int] = field(default_factory=set)  # ids of rows whose file is known to hold their bytes
    later: list[Examined] = field(default_factory=list)  # files that touch the identity of a row
    groups: set[str] = field(default_factory=set)  # checksums whose duplicates are to be sorted out again
    known: int = 0
    added: int = 0
    moved: int = 0
    duplicates: int = 0
    changed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)


def index_folder(ledger: Ledger, root: Path, report: Progress) -> Indexed:
    """Bring the ledger up to date with a folder, given with its links resolved."""
    report(0.0, f"listing {root}")
    found = scan(root)
    work = _begin(ledger, root, found)
    known = [file for file in found.files if _is_known(work.rows.get(file.path), file)]
    work.certain.update(work.rows[file.path].id for file in known)
    names = {file.path for file in known}
    todo = [file for file in found.files if file.path not in names]
    done = 0
    for batch in _batches(in_threads(partial(examine, root), todo), BATCH):
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
    """Take the bytes that are there now for those that people spoke of; gives how many images that mended."""
    accepted = 0
    folders = list_folders(ledger)
    for number in images:
        row = find_image(ledger, number)
        one = _examine_again(folders[row.folder_id], row.path)
        if one.sha256 is not None and one.trouble is None:
            with ledger.writing() as connection:
                _write(connection, row.id, row.folder_id, one)
                for sha256 in {row.sha256 or one.sha256, one.sha256}:
                    _regroup(connection, sha256)
            accepted += 1
    return accepted


def unspoken(ledger: Ledger, images: Sequence[int]) -> list[int]:
    """Those that no answer, no round and no lease names."""
    with ledger.reading() as connection:
        return [number for number in images if not _is_spoken_of(connection, number)]


def forget(ledger: Ledger, images: Sequence[int]) -> None:
    """Drop the rows of images that nobody spoke of; one whose file comes back is a new image."""
    with ledger.writing() as connection:
        for number in images:
            if not _is_spoken_of(connection, number):
                _drop(connection, number)


def _drop(connection: sqlite3.Connection, number: int) -> None:
    connection.execute("UPDATE image SET duplicate_of = NULL WHERE duplicate_of = ?", (number,))
    connection.execute("DELETE FROM image WHERE id = ?", (number,))


def _examine_again(root: Path, path: str) -> Examined:
    try:
        real_path(root, path)
    except BadFile as error:
        return Examined(path, trouble=str(error))
    return examine(root, Found(path, stamp_of(root / path)))


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


def _is_known(row: ImageRow | None, file: Found) -> bool:
    """A row in trouble is always looked at again: a permission may have been mended."""
    if row is None or row.trouble is not None or file.stamp is None or file.trouble is not None:
        return False
    return file.stamp == Stamp(row.bytes or 0, row.mtime_ns or 0, row.ctime_ns or 0)


def _batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    while batch := list(islice(items, size)):
        yield batch


def _place(connection: sqlite3.Connection, work: Work, one: Examined) -> None:
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
        _place_new(connection, work, one)


def _place_new(connection: sqlite3.Connection, work: Work, one: Examined) -> None:
    same = _with_bytes(connection, one.sha256)
    if any(not _is_certain(work, other) for other in same):
        work.later.append(one)
    else:
        _insert(connection, work, one, same)


def _with_bytes(connection: sqlite3.Connection, sha256: str | None) -> list[ImageRow]:
    """All rows with these bytes: originals first."""
    if sha256 is None:
        return []
    rows = connection.execute(
        "SELECT * FROM image WHERE sha256 = ? ORDER BY duplicate_of IS NOT NULL, id", (sha256,)
    ).fetchall()  # fmt: skip
    return [image_row(row) for row in rows]


def _is_certain(work: Work, row: ImageRow) -> bool:
    if row.folder_id == work.folder_id:
        return row.id in work.certain
    return stamp_of(work.folders[row.folder_id] / row.path) is not None


def _insert(connection: sqlite3.Connection, work: Work, one: Examined, same: list[ImageRow]) -> None:
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
    connection: sqlite3.Connection, number: int, folder_id: int, one: Examined, original: int | None = None
) -> None:  # fmt: skip
    """Make a row say what was read of a file; whose duplicate it is, is kept while its bytes are."""
    stamp = one.stamp
    sizes = (stamp.bytes, stamp.mtime_ns, stamp.ctime_ns) if stamp else (None, None, None)
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
    _mark_missing(connection, work, lost, home)
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
            twin = next((twin for twin in _with_bytes(connection, row.sha256) if _may_swap(work, twin)), None)
            if twin is not None:
                lost[twin.id] = twin
                work.later.append(_as_examined(twin))
    return lost


def _may_swap(work: Work, twin: ImageRow) -> bool:
    here = twin.folder_id == work.folder_id
    return here and twin.id in work.certain and twin.duplicate_of is not None and twin.trouble is None


def _as_examined(row: ImageRow) -> Examined:
    stamp = Stamp(row.bytes or 0, row.mtime_ns or 0, row.ctime_ns or 0)
    return Examined(row.path, stamp, row.sha256, row.width, row.height, row.orientation)


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
    """A row without a file, at whose path another row's file lies now; what nobody spoke of is dropped."""
    if not _is_spoken_of(connection, row.id):
        _drop(connection, row.id)
        return
    connection.execute(
        "UPDATE image SET path = ?, trouble = ? WHERE id = ?", (f"{row.path}#{row.id}", REPLACED, row.id)
    )  # fmt: skip
    work.missing.append(row.path)


def _is_spoken_of(connection: sqlite3.Connection, number: int) -> bool:
    """Whether an answer, a round or a lease names an image."""
    return any(
        connection.execute(f"SELECT 1 FROM {table} WHERE image_id = ? LIMIT 1", (number,)).fetchone()
        for table in ("event", "round_image", "lease")
    )


def _place_changed(connection: sqlite3.Connection, work: Work, one: Examined) -> None:
    """A file that is no row's: the row at its path changed, unless it went elsewhere."""
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


def _mark_missing(
    connection: sqlite3.Connection, work: Work, lost: dict[int, ImageRow], home: dict[int, str]
) -> None:  # fmt: skip
    owned = set(home.values())
    for row in lost.values():
        gone = row.folder_id == work.folder_id and row.path not in work.present
        if row.id not in home and gone and row.path not in owned:
            connection.execute("UPDATE image SET trouble = ? WHERE id = ?", (MISSING, row.id))
            work.missing.append(row.path)


def _regroup(connection: sqlite3.Connection, sha256: str) -> None:
    """Of all usable rows with the same bytes one is the original: the one that was, or else the first."""
    rows = [row for row in _with_bytes(connection, sha256) if row.trouble is None]
    for place, row in enumerate(rows):
        original = None if place == 0 else rows[0].id
        if row.duplicate_of != original:
            connection.execute("UPDATE image SET duplicate_of = ? WHERE id = ?", (original, row.id))
