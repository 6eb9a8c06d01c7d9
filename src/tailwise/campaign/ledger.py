"""The ledger of a campaign: one SQLite file that one process writes and any process reads.

What `writing()` has left without an error is on the disk. Reads go to connections of their own, which cannot write.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from ..errors import BadFile, BadInput, LedgerBusy, LedgerFault, LedgerReplaced, NewerLedger, OlderLedger, TailwiseError
from ..files import usable
from .database import (
    APPLICATION,
    BACKUPS,
    BUSY_SECONDS,
    LEDGER_FILE,
    Step,
    back_up,
    connect,
    log_of,
    make_new,
    migrate,
    prepare_to_write,
    read_steps,
    schema_of,
    set_journal_mode,
)
from .locks import Identity, WriterLock, holder_of, make_home, take_lock

CURRENT_SCHEMA = 2
PURPOSE = "a Python program"
LEFT_IN_A_WRITE = {sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY}
BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
OUTSIDE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}


def now() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


class Ledger(AbstractContextManager["Ledger"]):
    """An open ledger; make one with `create` or `open`.

    >>> from tempfile import mkdtemp
    >>> with Ledger.create(Path(mkdtemp()) / "birds") as ledger:
    ...     with ledger.writing() as connection:
    ...         _ = connection.execute("INSERT INTO meta VALUES ('note', 'hello')")
    ...     ledger.read("SELECT value FROM meta WHERE key = 'note'")[0]["value"]
    'hello'
    """

    def __init__(self, folder: Path, lock: WriterLock | None, files: Path | None = None) -> None:
        self.folder = folder
        self.path = folder / LEDGER_FILE  # never open it with anything but SQLite while a ledger is open
        self.read_only = lock is None
        self.files = folder if files is None else files  # features and models
        self._lock = lock
        self._writer: sqlite3.Connection | None = None
        self._writing_thread = 0
        self._depth = 0
        self._idle: deque[sqlite3.Connection] = deque()
        self._mine = threading.local()  # .connection: the one that this thread is reading from
        self._process = os.getpid()
        self._closed = False
        self._opened: tuple[Identity, ...] = ()  # that the connections have open
        self._replaced: Path | None = None  # the first of them that was found deleted or replaced
        self._copy: Path | None = None  # of what was saved until then

    @classmethod
    def create(cls, folder: str | Path, *, purpose: str = PURPOSE, wait: float = BUSY_SECONDS) -> Ledger:
        """Make a folder with an empty ledger, and open it for writing."""
        home = usable(folder).resolve()
        try:
            make_home(home)
        except OSError as error:
            raise BadFile(f"cannot make the folder {home}: {error.strerror or error}") from error
        lock = take_lock(home, purpose, wait)
        try:
            if (home / LEDGER_FILE).exists():
                raise BadInput(f"{home} holds a campaign already; open it, or name another folder")
            with _translating_errors(home):
                make_new(home / LEDGER_FILE, read_steps(), {"campaign": uuid.uuid4().hex, "created": str(now())})
            return cls.open(home, purpose=purpose)
        finally:
            lock.release()

    @classmethod
    def open(
        cls, folder: str | Path, *, read_only: bool = False, purpose: str = PURPOSE, wait: float = BUSY_SECONDS,
        steps: Sequence[Step] | None = None, files: Path | None = None,
    ) -> Ledger:  # fmt: skip
        """Open a campaign's ledger; for writing it is brought to the newest schema first.

        `wait` is how many seconds another writer is waited for; `steps` are the migrations, ours if not given; `files`
        is the folder of features and models, if it is another one.
        """
        home = usable(folder).resolve()
        if not (home / LEDGER_FILE).is_file():
            raise BadFile(f"no campaign in {home}; make one with `tailwise init`, or name its folder")
        ledger = cls(home, None if read_only else take_lock(home, purpose, wait), files)
        try:
            ledger._begin(read_steps() if steps is None else steps)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def read(self, sql: str, parameters: Sequence[object] | dict[str, object] = ()) -> list[sqlite3.Row]:
        """All rows of a query; inside `writing()` it sees what was written there."""
        with self.reading() as connection:
            return connection.execute(sql, parameters).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Several queries, `read()` too, that see the same state; keep it short, a commit waits for it."""
        self._check_open()
        outer = self._writer if self._writing_thread == threading.get_ident() else self._reading_now()
        if outer is not None:
            yield outer
            return
        with _translating_errors(self.folder), self._keeping_a_copy():
            self._check_files()
            self._mine.connection = connection = self._reader()
            try:
                self._check_files()  # it may have opened what has just taken the file's place
                yield connection
            finally:
                self._mine.connection = None
                self._give_back(connection)

    @contextmanager
    def writing(self, *, dry_run: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction, on the disk when the block ends; an exception inside or `dry_run` rolls it back.

        A block within a block is a part of the outer one, and is rolled back alone where it fails.
        """
        self._check_open()
        if self._lock is None or self._writer is None:
            raise BadInput(f"the campaign {self.folder} was opened read-only; open it for writing")
        if self._reading_now() is not None:
            raise BadInput("asked to write inside a reading() block, which the commit would wait for; end it first")
        with self._lock.turn, _translating_errors(self.folder), self._keeping_a_copy():
            inner = self._depth > 0
            begin, end, back = _INNER if inner else _OUTER
            self._check_files()
            if not inner and self._writer.in_transaction:  # an interrupt fell between two lines of this function
                self._writer.execute("ROLLBACK")
            self._writer.execute(begin)
            self._depth, self._writing_thread = self._depth + 1, threading.get_ident()
            try:
                yield self._writer
                self._check_files()
                for statement in back if dry_run else (end,):
                    self._writer.execute(statement)
                self._check_files()  # what was committed to a file without a name is not saved
            except BaseException:
                with suppress(sqlite3.OperationalError):  # a full disk has ended the transaction already
                    for statement in back:
                        self._writer.execute(statement)
                raise
            finally:
                self._depth -= 1
                self._writing_thread = threading.get_ident() if inner else 0

    def write_ahead(self) -> bool:
        """Until it is closed, readers and the writer do not wait for each other; False where that cannot be.

        Commits then go to a log next to the file, which `close` brings into it; after a crash the next writer does.
        """
        self._check_open()
        if self._lock is None or self._writer is None:
            return False
        with self._lock.turn:
            if not set_journal_mode(self._writer, "wal"):
                return False
            self._writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # now there is a log
            log = Identity.of(log_of(self.path))
            self._opened = (*self._opened[:1], *([log] if log else []))
            return True

    def back_up(self, why: str = "asked") -> Path:
        """A whole copy in the folder's backups; gives its path."""
        self._check_open()
        with _translating_errors(self.folder), self._keeping_a_copy():
            self._check_files()
            with closing(connect(self.path, "ro")) as connection:  # a backup brings its own transactions
                self._check_files()
                return back_up(connection, self.folder / BACKUPS, why)

    def close(self) -> None:
        """Close all connections, and let others write; closing twice is nothing."""
        if self._closed:
            return
        self._closed = True
        if self._process != os.getpid():
            return  # a forked child must not touch its parent's connections
        while self._idle:
            self._idle.pop().close()
        if self._writer is not None:
            with suppress(sqlite3.Error, TailwiseError), self._keeping_a_copy():
                self._check_files()  # the log of another file is not ours to remove
                set_journal_mode(self._writer, "truncate")  # a full disk or a reader: the log is whole and stays
            self._writer.close()
        if self._lock is not None:
            self._lock.release()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _begin(self, steps: Sequence[Step]) -> None:
        """Check whose file it is and of which schema, repair what a crash left, and be ready to write."""
        with _translating_errors(self.folder):
            if self._lock is not None:
                with self._lock.turn:
                    self._writer = self._ready_writer(steps)
            if not self._opened:
                self._remember_file()
            with self.reading() as connection:
                self._check_schema(connection, steps[-1].number)

    def _ready_writer(self, steps: Sequence[Step]) -> sqlite3.Connection:
        newest = steps[-1].number
        self._remember_file()
        writer = connect(self.path, "rw")
        try:
            writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # rolls back what a crash left half done
            self._check_schema(writer, newest)
            if schema_of(writer) < newest:
                writer.close()
                migrate(self.path, self.folder / BACKUPS, steps)
                self._remember_file()
                writer = connect(self.path, "rw")
            prepare_to_write(writer)
        except BaseException:
            writer.close()
            raise
        return writer

    def _check_schema(self, connection: sqlite3.Connection, newest: int) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise BadFile(f"{self.path} is not a ledger of Tailwise; name the folder of a campaign")
        found = schema_of(connection)
        if found > newest and not self.read_only:
            raise NewerLedger(
                f"{self.path} has schema {found}, written by a newer Tailwise; this one knows {newest}: "
                "upgrade it, or open the campaign read-only"
            )
        if found < newest and self.read_only:
            raise OlderLedger(
                f"{self.path} has schema {found}, and this Tailwise reads {newest}; open the campaign for writing "
                f"once, which brings it up to date and keeps the old file: `tailwise doctor {self.folder} --fix schema`"
            )

    def _reading_now(self) -> sqlite3.Connection | None:
        connection: sqlite3.Connection | None = getattr(self._mine, "connection", None)
        return connection

    def _reader(self) -> sqlite3.Connection:
        """A connection that has begun to read."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self.path, "ro")
        try:
            return _reading_from_now(connection)
        except sqlite3.OperationalError as error:
            connection.close()
            if error.sqlite_errorcode not in LEFT_IN_A_WRITE:
                raise
        self._roll_back()
        return _reading_from_now(connect(self.path, "ro"))

    def _give_back(self, connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        if self._closed:
            connection.close()
        else:
            self._idle.append(connection)

    def _roll_back(self) -> None:
        """A writer was killed in the middle of a commit: take its half back, which a reader cannot do."""
        try:
            lock = take_lock(self.folder, "a reader that repairs what a crash left", BUSY_SECONDS)
        except BadFile as error:
            raise BadFile(
                f"a program died while it wrote to {self.path}, and nothing can be written there to repair it; "
                "make the folder writable, and open the campaign once"
            ) from error
        try:
            with lock.turn:
                connection = connect(self.path, "rw")
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                connection.close()
        finally:
            lock.release()

    def _remember_file(self) -> None:
        """Before a connection is opened; the first check that follows shows that it is this file."""
        found = Identity.of(self.path.resolve())
        self._opened = (found,) if found else ()

    def _check_files(self) -> None:
        """That all is read from and written to the files that the paths lead to."""
        if self._replaced is None:
            try:
                self._replaced = next((one.path for one in self._opened if Identity.of(one.path) != one), None)
            except OSError as error:
                raise LedgerFault(f"cannot use {self.path}: {error.strerror or error}; check the disk") from error
        if self._replaced is not None:
            raise LedgerReplaced(self._replaced_text())

    def _replaced_text(self) -> str:
        copy = f"; what was saved until then is in {self._copy}" if self._copy else ""
        return (
            f"{self._replaced} was deleted or replaced while the campaign was open, so nothing more is written; "
            f"put the right file there and open the campaign again{copy}"
        )

    @contextmanager
    def _keeping_a_copy(self) -> Iterator[None]:
        """Keep what the connections still have of a file that was deleted or replaced, and say where."""
        try:
            yield
        except LedgerReplaced as error:
            self._keep_copy()
            raise LedgerReplaced(self._replaced_text()) from error

    def _keep_copy(self) -> None:
        """Back up the file that has lost its name, with its log, once; not where that cannot be, or not now."""
        if self._lock is None or self._writer is None or not self._lock.turn.acquire(blocking=False):
            return  # who writes now will notice at its end
        try:
            if self._copy is None and not self._writer.in_transaction and self.folder.is_dir():
                with suppress(sqlite3.Error):  # somebody reads: then the log stays next to the file that is there now
                    self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                self._copy = back_up(self._writer, self.folder / BACKUPS, "replaced")
        except (sqlite3.Error, OSError):  # a full disk: the next one tries again
            pass
        finally:
            self._lock.turn.release()

    def _check_open(self) -> None:
        if self._closed:
            raise BadInput(f"the campaign {self.folder} was closed; open it again")
        if self._process != os.getpid():
            raise LedgerBusy(f"the campaign {self.folder} was opened by the process that forked this one; open it here")


_OUTER = ("BEGIN IMMEDIATE", "COMMIT", ("ROLLBACK",))
_INNER = ("SAVEPOINT inner", "RELEASE inner", ("ROLLBACK TO inner", "RELEASE inner"))


def _reading_from_now(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # from here on it sees one state
    except BaseException:
        with suppress(sqlite3.OperationalError):  # a fault of the disk has ended the transaction already
            connection.execute("ROLLBACK")
        raise
    return connection


@contextmanager
def _translating_errors(folder: Path) -> Iterator[None]:
    """Turn SQLite's errors that come from outside (busy, damaged, full) into errors that say what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if code is not None else None
        if primary in BUSY:
            holder = holder_of(folder)
            who = f"{holder} holds it" if holder else "another program has it open"
            raise LedgerBusy(
                f"the ledger of {folder} is busy for longer than {BUSY_SECONDS:g} s: {who}; try again"
            ) from error
        if primary in DAMAGED:
            raise LedgerFault(
                f"{folder / LEDGER_FILE} is damaged ({error}); copies are in {folder / BACKUPS}: run `tailwise doctor`"
            ) from error
        if primary in OUTSIDE:
            raise LedgerFault(
                f"cannot use {folder / LEDGER_FILE}: {error}; free space or fix the permissions, then try again"
            ) from error
        raise


def read_meta(ledger: Ledger, key: str) -> str | None:
    """The text that the ledger keeps under a key, or None."""
    rows = ledger.read("SELECT value FROM meta WHERE key = ?", (key,))
    return str(rows[0]["value"]) if rows else None


def write_meta(ledger: Ledger, key: str, value: str) -> None:
    """Keep a text under a key, in place of the one that was there."""
    with ledger.writing() as connection:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


class HasLedger(Protocol):
    """A campaign, as far as the learning side needs it."""

    ledger: Ledger


def ledger_of(campaign: HasLedger | Ledger) -> Ledger:
    """The ledger of a campaign; a ledger is one too."""
    return campaign if isinstance(campaign, Ledger) else campaign.ledger
