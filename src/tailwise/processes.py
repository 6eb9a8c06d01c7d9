"""Processes on Linux, macOS and Windows: CPU count, inherited variables, and locks that end with their process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .errors import BadFile

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)  # fmt: skip


BINARY = getattr(os, "O_BINARY", 0)  # Windows translates line ends without it


def cores() -> int:
    """The number of CPUs that this process may use; all CPUs where the system has no such limit.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def lock_file(path: Path) -> int | None:
    """Lock a file, which is created if missing; the open descriptor, or None while another process holds the lock.

    The system releases the lock when the process ends, even by a kill. On Windows the first byte cannot be read by
    others meanwhile.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
    held = False
    try:
        held = _try_lock(descriptor) and _is_still_at(path, descriptor)
    finally:
        if not held:
            os.close(descriptor)
    return descriptor if held else None


def unlock_file(descriptor: int) -> None:
    """Release the lock and close the file."""
    try:
        _unlock(descriptor)  # if the file is only closed, Windows may release the lock much later
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether the lock of a file is held now; False where there is no file. A free lock is taken for a moment."""
    try:
        descriptor = os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY) | BINARY)
    except OSError:
        return False
    try:
        if _try_lock(descriptor):
            _unlock(descriptor)
            return False
        return True
    except OSError:  # some network file systems do not lock a file that may only be read
        return False
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock an open file exclusively; False while another descriptor, of this or another process, holds the lock."""
    from filelock import lock_descriptor  # not with the module: `select` needs the CPU count alone

    return lock_descriptor(descriptor, blocking=False)


def _unlock(descriptor: int) -> None:
    from filelock import unlock_descriptor

    unlock_descriptor(descriptor)


def _is_still_at(path: Path, descriptor: int) -> bool:
    """False if the file was removed or replaced after it was opened: two processes could then hold "the" lock."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder of results for one run."""
    descriptor = lock_file(folder / ".lock")
    if descriptor is None:
        raise BadFile(f"another run is at work in {folder}; wait for it, or give another --out")
    try:
        yield
    finally:
        unlock_file(descriptor)
