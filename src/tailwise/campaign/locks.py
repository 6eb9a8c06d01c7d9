"""One writing process per campaign: a folder and a purpose in, a lock that the system itself lets go of out.

The lock is flock's, so it cannot outlive its process; the file beside it only says who holds it, and why.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BadFile, LedgerBusy

LOCK_FILE = "lock"
GLANCE = 0.05  # seconds between two tries


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
                os.close(self.file)


_guard = threading.Lock()
_held: dict[Path, WriterLock] = {}


def take_lock(folder: Path, purpose: str, wait: float) -> WriterLock:
    """Hold a folder for writing, or raise LedgerBusy, which names the holder, after `wait` seconds."""
    deadline = time.monotonic() + wait
    while True:
        with _guard:
            mine = _held.get(folder)
            if mine is not None:
                mine.users += 1
                return mine
            file = _open_lock(folder)
            if _try_to_lock(file, folder):
                _write_note(file, purpose)
                _held[folder] = lock = WriterLock(folder, file)
                return lock
        holder = _read_note(file)
        os.close(file)
        if time.monotonic() >= deadline:
            raise LedgerBusy(_busy(folder, holder))
        time.sleep(GLANCE)


def holder_of(folder: Path) -> Holder | None:
    """Who holds a folder now; None where nobody does."""
    try:
        file = os.open(folder / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_note(file)
    finally:
        os.close(file)
    return None


def _open_lock(folder: Path) -> int:
    try:
        return os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise BadFile(f"cannot write to the campaign {folder}: {error.strerror}; open it read-only") from error


def _try_to_lock(file: int, folder: Path) -> bool:
    """False where another holds it; also where the file was removed meanwhile, which would make two locks of one."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), (folder / LOCK_FILE).stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _busy(folder: Path, holder: Holder) -> str:
    page = "use its page, or stop it for what the page does not do: images, classes, imports"
    way_out = page if "label" in holder.purpose else "wait for it, or stop it"
    return f"cannot write to the campaign {folder}: {holder} holds it; {way_out}, and try again"


def _write_note(file: int, purpose: str) -> None:
    note = {"pid": os.getpid(), "purpose": purpose, "host": socket.gethostname(), "since": time.time_ns() // 1000}
    with suppress(OSError):  # it is only told to others; a full disk must not keep out who comes to free it
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(note).encode(), 0)


def _read_note(file: int) -> Holder:
    """What the holder wrote; it may be about to write it."""
    try:
        note = json.loads(os.pread(file, 4096, 0))
        return Holder(int(note["pid"]), str(note["purpose"]), str(note["host"]), int(note["since"]))
    except (ValueError, KeyError, TypeError):
        return Holder(0, "another program", socket.gethostname(), 0)


def _forget_after_fork() -> None:
    """A child shares its parent's locks, which it must neither use nor keep alive."""
    global _guard
    _guard = threading.Lock()  # another thread of the parent may have held it
    for lock in _held.values():
        os.close(lock.file)
    _held.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
