"""The SQLite file of a ledger: how it is opened, made, migrated, backed up, and repaired where it is damaged.

The caller holds the campaign's lock. A new file is written next to its place, checked, synced and renamed: a crash at
any moment leaves the old file or the new one, whole.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from ..errors import BadFile, LedgerBusy
from ..files import sync, usable
from .locks import PRIVATE_FOLDER, make_file, take_lock

LEDGER_FILE = "campaign.sqlite"
BACKUPS = "backups"
MIGRATIONS = Path(__file__).with_name("migrations")
APPLICATION = int.from_bytes(b"TLWS", "big")  # PRAGMA application_id of every ledger
OLDEST_SQLITE = (3, 37, 0)  # the first with STRICT tables
BUSY_SECONDS = 5.0
UNREADABLE = (sqlite3.DatabaseError, OSError)

# -- connections -------------------------------------------------------------------------------------------------------


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection that begins and ends its transactions itself; mode is "ro", "rw" or "rwc"."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise BadFile(
            f"a campaign needs SQLite 3.37 or later; this Python has {sqlite3.sqlite_version}: take a newer one"
        )
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    connection = sqlite3.connect(
        uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    return connection


def prepare_to_write(connection: sqlite3.Connection) -> None:
    """A commit is on the disk when it returns; rows point at rows that exist."""
    set_journal_mode(connection, "truncate")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    connection.execute("PRAGMA cache_size = -32000")  # kB: a large import stays in memory until its commit


def set_journal_mode(connection: sqlite3.Connection, mode: str) -> bool:
    """With "wal" commits go to a log next to the file from now on; "truncate" brings the log into the file and ends it.

    With a log readers and the writer do not wait for each other, and a commit waits for one sync of the disk, not
    three. False, and nothing has changed, where the file system or a reader prevents it, or the disk is full.
    """
    try:
        return bool(connection.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0] == mode)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):
            raise
        return False


def log_of(path: Path) -> Path:
    """Where SQLite writes a log ahead: next to the file itself, also where the path is a link."""
    final = path.resolve()
    return final.with_name(f"{final.name}-wal")


def schema_of(connection: sqlite3.Connection) -> int:
    """The number of the last step that was taken."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


# -- new ledgers, newer schemas, backups -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A migration, from schema number - 1 to schema number."""

    number: int
    sql: str


def read_steps(folder: Path = MIGRATIONS) -> tuple[Step, ...]:
    """Every migration, ascending."""
    return tuple(Step(int(path.stem), path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.sql")))


def make_new(path: Path, steps: Sequence[Step], meta: dict[str, str]) -> None:
    """A new ledger: made next to its place, then renamed."""
    part = _new_part(path)
    with closing(connect(part, "rwc")) as connection:
        prepare_to_write(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        _take(connection, steps)
        connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", meta.items())
    _put_in_place(part, path)


def migrate(path: Path, backups: Path, steps: Sequence[Step]) -> Path:
    """Bring an older ledger to the newest schema; gives the path of the copy that was kept of the old one."""
    with closing(connect(path, "rw")) as old:
        if not set_journal_mode(old, "truncate"):  # what is in a log would be played into the new file
            raise LedgerBusy(f"cannot bring {path} to the newest schema while somebody reads it; try again")
        if schema_of(old) == 0:  # no ledger is made so: another program has set the number
            raise BadFile(
                f"{path} says that it has schema 0, which no Tailwise has written; it is as it was: ask an expert"
            )
        kept = back_up(old, backups, f"before-schema-{steps[-1].number}")
        part = _new_part(path)
        try:
            with closing(connect(part, "rwc")) as new:
                old.backup(new)
                prepare_to_write(new)
                new.execute("PRAGMA foreign_keys = OFF")  # a step may have to rebuild a table; checked at the end
                _take(new, [step for step in steps if step.number > schema_of(old)])
                _check(old, new, path)
        except BaseException:
            _remove(part)
            raise
    _put_in_place(part, path)
    return kept


def back_up(connection: sqlite3.Connection, folder: Path, why: str) -> Path:
    """A whole copy of an open ledger in a folder, named by the time and the reason."""
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    final = folder / f"campaign-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}-{why}.sqlite"
    part = _new_part(final)
    with closing(connect(part, "rwc")) as copy:
        connection.backup(copy)
        set_journal_mode(copy, "truncate")  # it is a copy of that setting, too
    _put_in_place(part, final)
    return final


def _take(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    for step in steps:
        connection.executescript(f"BEGIN;\n{step.sql}\nPRAGMA user_version = {step.number};\nCOMMIT;")


def _check(old: sqlite3.Connection, new: sqlite3.Connection, path: Path) -> None:
    faults = [row[0] for row in new.execute("PRAGMA integrity_check(3)") if row[0] != "ok"]
    faults += [f"{row[0]} has a row that points nowhere" for row in new.execute("PRAGMA foreign_key_check")][:3]
    before, after = (c.execute("SELECT count(*) FROM event").fetchone()[0] for c in (old, new))
    if before != after:
        faults.append(f"it has {after} events, not {before}")
    if faults:
        raise BadFile(
            f"cannot bring {path} to the newest schema: {'; '.join(faults)}. It is as it was; keep a copy of it"
        )


def _new_part(path: Path) -> Path:
    """An empty file to become another one when it is whole; what a crash left in its place is removed."""
    part = path.with_name(f".{path.name}.part")
    _remove(part)
    make_file(part, like=path)
    return part


def _remove(part: Path) -> None:
    for left in (part, part.with_name(f"{part.name}-journal")):
        left.unlink(missing_ok=True)


def _put_in_place(part: Path, final: Path) -> None:
    """Sync and rename; the journal of the file that was there is empty, as its lock is held and it was read."""
    part.with_name(f"{part.name}-journal").unlink(missing_ok=True)  # empty, since the connection was closed
    sync(part)
    part.replace(final)
    sync(final.parent)


# -- the repair of a damaged ledger ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remedy:
    """How a damaged ledger can be repaired."""

    backup: Path | None  # the newest sound one
    whole: bool  # whether all answers can be read from the damaged file itself

    def __str__(self) -> str:
        if self.whole:
            return "write it anew from its own tables, which are whole, and keep the damaged file"
        assert self.backup is not None
        return f"put {self.backup.name} in its place, and keep the damaged file: only it holds later answers"


def remedy_for(folder: Path) -> Remedy | None:
    """What would be done; None where neither the file nor a backup can be used. Nothing is changed."""
    backups = sound_backups(folder)
    with TemporaryDirectory(prefix="tailwise-") as aside:
        whole = _written_anew(folder, Path(aside, LEDGER_FILE), backups)
    newest = backups[-1] if backups else None
    return Remedy(newest, whole) if whole or newest else None


def repair_ledger(folder: str | Path) -> Path:
    """Put a sound ledger in the place of a damaged one, which is kept; gives where it is kept.

    It is written anew from its own tables where these are whole; else the newest sound backup takes its place.
    """
    home = usable(folder).resolve()
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
    home = usable(folder).resolve()
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
    sound = []
    for path in sorted((folder / BACKUPS).glob("campaign-*.sqlite")):
        with suppress(sqlite3.DatabaseError), closing(connect(path, "ro")) as connection:
            whole = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
            if whole and connection.execute("SELECT count(*) FROM event").fetchone() is not None:
                sound.append(path)
    return sound


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


def _put_rescued_in_place(home: Path, new: Path) -> Path:
    """Rename a file to be the ledger; the old one goes to the backups, with SQLite's files next to it."""
    ledger = home / LEDGER_FILE
    kept = home / BACKUPS / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.sqlite"
    kept.parent.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    sync(new)
    if ledger.exists():
        ledger.replace(kept)
    for end in ("-journal", "-wal", "-shm"):  # of the damaged file; would be played back into the new one
        part = home / f"{LEDGER_FILE}{end}"
        if part.exists():
            part.replace(kept.with_name(f"{kept.name}{end}"))
    new.replace(ledger)
    sync(home)
    return kept
