"""Who may use the folder of a campaign: one writing process at a time, and on its files only their owner.

The lock is the operating system's, on the file `lock`, so it cannot outlive its process; what is written in the file
only says who holds it, and why. Readers take no lock: SQLite gives each of them a consistent state.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BadFile, LedgerBusy
from ..processes import is_locked, lock_file, unlock_file

LOCK_FILE = "lock"
RETRY_SECONDS = 0.05  # between two tries
TRIES = 3  # at least: `holder_of` in another process holds the lock for microseconds
LOOK_SECONDS = 0.01  # between two looks of `holder_of`
PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


@dataclass(frozen=True, slots=True)
class Holder:
    """Who writes to a campaign."""

    pid: int
    purpose: str
    host: str
    since: int  # microseconds since 1970

    def __str__(self) -> str:
        elsewhere = f" on {self.host}" if self.host != socket.gethostname() else ""
        return f"{self.purpose} (pid {self.pid}{elsewhere})"


@dataclass(slots=True)
class WriterLock:
    """The lock of one folder, shared by all ledgers of this process that write there."""

    folder: Path
    file: int  # descriptor
    users: int = 1
    turn: threading.RLock = field(default_factory=threading.RLock)  # one thread writes at a time

    def release(self) -> None:
        """Give back one use; the last one lets other processes write."""
        with _guard:
            self.users -= 1
            if self.users == 0 and _held.get(self.folder) is self:
                del _held[self.folder]
                os.ftruncate(self.file, 0)
                unlock_file(self.file)


_guard = threading.Lock()
_held: dict[Path, WriterLock] = {}


def take_lock(folder: Path, purpose: str, wait: float) -> WriterLock:
    """Hold a folder for writing, or raise LedgerBusy, which names the holder, after `wait` seconds."""
    deadline = time.monotonic() + wait
    for number in itertools.count(1):
        with _guard:
            mine = _held.get(folder)
            if mine is not None:
                mine.users += 1
                return mine
            file = _try_to_lock(folder)
            if file is not None:
                _write_note(file, purpose)
                _held[folder] = lock = WriterLock(folder, file)
                return lock
        if number >= TRIES and time.monotonic() >= deadline:
            break
        time.sleep(RETRY_SECONDS)
    raise LedgerBusy(_busy(folder, _read_note(folder)))


def holder_of(folder: Path) -> Holder | None:
    """Who holds a folder now; None where nobody does."""
    for number in range(TRIES):
        if folder in _held:  # by this process
            break
        if not is_locked(folder / LOCK_FILE):
            return None
        time.sleep(LOOK_SECONDS if number + 1 < TRIES else 0.0)
    return _read_note(folder)


def _try_to_lock(folder: Path) -> int | None:
    try:
        return lock_file(folder / LOCK_FILE)
    except OSError as error:
        raise BadFile(f"cannot write to the campaign {folder}: {error.strerror}; open it read-only") from error


def _busy(folder: Path, holder: Holder) -> str:
    page = "use its page, or stop it for what the page does not do: images, classes, imports"
    way_out = page if "label" in holder.purpose else "wait for it, or stop it"
    return f"cannot write to the campaign {folder}: {holder} holds it; {way_out}, and try again"


def _write_note(file: int, purpose: str) -> None:
    note = {"pid": os.getpid(), "purpose": purpose, "host": socket.gethostname(), "since": time.time_ns() // 1000}
    with suppress(OSError):  # only others read it; a full disk must not keep out the program that frees it
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        os.write(file, json.dumps(note).encode())


def _read_note(folder: Path) -> Holder:
    """The holder as it described itself; it may be about to do so. Windows locks the first byte, which is a brace."""
    try:
        with (folder / LOCK_FILE).open("rb", buffering=0) as file:
            file.seek(1)
            note = json.loads(b"{" + file.read(4096))
        return Holder(int(note["pid"]), str(note["purpose"]), str(note["host"]), int(note["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder(0, "another program", socket.gethostname(), 0)


def _forget_after_fork() -> None:
    """A child shares its parent's locks, which it must neither use nor keep alive."""
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held it
    for lock in _held.values():
        os.close(lock.file)
    _held.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forget_after_fork)


# -- files that only their owner can read; on Windows, where modes mean nothing, as private as the folder above --------


def make_home(folder: Path) -> None:
    """Make the folder of a campaign; one that is there becomes private only if it is empty."""
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        _change(folder, PRIVATE_FOLDER)


def make_file(path: Path, like: Path | None = None) -> None:
    """Make an empty private file; where it is to replace another one, with the mode that its owner gave to that."""
    mode = PRIVATE_FILE if like is None or not like.exists() else stat.S_IMODE(like.stat().st_mode)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
    if mode != PRIVATE_FILE:
        _change(path, mode)


def _change(path: Path, mode: int) -> None:
    with suppress(OSError):  # a disk without modes, or the folder of somebody else
        path.chmod(mode)


@dataclass(frozen=True, slots=True)
class Identity:
    """A path and the file that it led to, to notice when the file of an open ledger is deleted or replaced.

    SQLite goes on writing to the file that it has opened. Once that has lost its name, what is written there is lost.
    """

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Identity | None:
        """None where there is no file. Never opens it: closing it again would end SQLite's locks."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls(path, found.st_dev, found.st_ino)
