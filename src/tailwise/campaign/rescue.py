"""A damaged ledger: a campaign's folder in, what can be saved of it out, and a sound file in its place when asked for.

The damaged file is kept in every case. Where the tables can still be read, nothing that people said is lost.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import BadFile
from ..files import resolved, sync
from .ledger import BACKUPS, LEDGER_FILE
from .locks import make_file, make_folder, take_lock
from .migrations import connect

UNREADABLE = (sqlite3.DatabaseError, OSError)


@dataclass(frozen=True, slots=True)
class Remedy:
    """How a damaged ledger can be mended."""

    backup: Path | None  # the newest sound one
    whole: bool  # whether all answers can be read from the damaged file itself

    def __str__(self) -> str:
        if self.whole:
            return "write it anew from its own tables, which are whole, and keep the damaged file"
        assert self.backup is not None
        return (
            f"put {self.backup.name} in its place, and keep the damaged file beside it: later answers are in it alone"
        )


def remedy_for(folder: Path) -> Remedy | None:
    """What would be done; None where neither the file nor a backup can be used. Nothing is changed."""
    backups = sound_backups(folder)
    with TemporaryDirectory(prefix="tailwise-") as aside:
        whole = _written_anew(folder, Path(aside, LEDGER_FILE), backups)
    newest = backups[-1] if backups else None
    return Remedy(newest, whole) if whole or newest else None


def mend_ledger(folder: str | Path) -> Path:
    """Put a sound ledger in the place of a damaged one, which is kept; gives where it is kept.

    It is written anew from its own tables where these are whole; else the newest sound backup takes its place.
    """
    home = resolved(folder)
    lock = take_lock(home, "doctor", wait=5.0)
    try:
        with lock.turn:
            new = home / f".{LEDGER_FILE}.part"
            if _written_anew(home, new, sound_backups(home)):
                return _put_rescued_in_place(home, new)
    finally:
        lock.release()
    return restore_backup(home)


def restore_backup(folder: str | Path) -> Path:
    """Put the newest sound backup in the place of a damaged ledger, which is kept; gives where it is kept.

    What was said after the backup is in the damaged file alone: an expert may be able to read it.
    """
    home = resolved(folder)
    sound = sound_backups(home)
    if not sound:
        raise BadFile(f"no backup in {home / BACKUPS} is sound; keep {home / LEDGER_FILE} and ask an expert")
    lock = take_lock(home, "doctor", wait=5.0)
    try:
        with lock.turn:
            new = home / f".{LEDGER_FILE}.part"
            new.unlink(missing_ok=True)
            make_file(new, like=home / LEDGER_FILE)
            shutil.copyfile(sound[-1], new)
            return _put_rescued_in_place(home, new)
    finally:
        lock.release()


def sound_backups(folder: Path) -> list[Path]:
    """Backups of the ledger that are whole, the newest last."""
    return [path for path in sorted((folder / BACKUPS).glob("campaign-*.sqlite")) if _is_sound(path)]


def _written_anew(folder: Path, target: Path, backups: list[Path]) -> bool:
    """Copy all tables to a new file, without a look at the indexes, which are made again; False where rows are lost.

    Events are numbered from 1 and never deleted: none is missing in between, nor at the end that a backup knows.
    """
    target.unlink(missing_ok=True)
    try:
        make_file(target, like=folder / LEDGER_FILE)
        with closing(connect(folder / LEDGER_FILE, "ro")) as old, closing(connect(target, "rwc")) as new:
            _copy_tables(old, new)
        with closing(connect(target, "ro")) as connection:
            sound = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
            sound = sound and connection.execute("PRAGMA foreign_key_check").fetchone() is None
            count, last = connection.execute("SELECT count(*), coalesce(max(id), 0) FROM event").fetchone()
        whole = sound and count == last >= max((_last_event(path) for path in backups), default=0)
    except UNREADABLE:
        whole = False
    if not whole:
        target.unlink(missing_ok=True)
    return whole


def _copy_tables(old: sqlite3.Connection, new: sqlite3.Connection) -> None:
    """Every row as the table itself has it; SQLite's own VACUUM would copy damaged indexes as they are."""
    parts = old.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY type <> 'table', rowid"
    ).fetchall()
    new.execute("BEGIN")
    for part in parts:
        new.execute(part["sql"])
        if part["type"] == "table":
            rows = old.execute(f'SELECT * FROM "{part["name"]}" NOT INDEXED')
            marks = ", ".join("?" * len(rows.description))
            new.executemany(f'INSERT INTO "{part["name"]}" VALUES ({marks})', rows)
    new.execute("COMMIT")
    for name in ("application_id", "user_version"):
        new.execute(f"PRAGMA {name} = {int(old.execute(f'PRAGMA {name}').fetchone()[0])}")


def _last_event(path: Path) -> int:
    with closing(connect(path, "ro")) as connection:
        return int(connection.execute("SELECT coalesce(max(id), 0) FROM event").fetchone()[0])


def _is_sound(path: Path) -> bool:
    try:
        with closing(connect(path, "ro")) as connection:
            whole = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
            return whole and connection.execute("SELECT count(*) FROM event").fetchone() is not None
    except sqlite3.DatabaseError:
        return False


def _put_rescued_in_place(home: Path, new: Path) -> Path:
    """Rename a file to be the ledger; the old one goes to the backups, with what SQLite keeps beside it."""
    ledger = home / LEDGER_FILE
    kept = home / BACKUPS / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.sqlite"
    make_folder(kept.parent)
    sync(new)
    if ledger.exists():
        ledger.replace(kept)
    for end in ("-journal", "-wal", "-shm"):  # of the damaged file; would be played back into the new one
        beside = home / f"{LEDGER_FILE}{end}"
        if beside.exists():
            beside.replace(kept.with_name(f"{kept.name}{end}"))
    new.replace(ledger)
    sync(home)
    return kept
