"""Processes and threads on Linux, macOS and Windows: CPU count, BLAS threads, scratch memory, variables, file locks."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import DTypeLike, NDArray

from .errors import BadFile

ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"
)  # fmt: skip


BINARY = getattr(os, "O_BINARY", 0)  # Windows translates line ends without it


def cores() -> int:
    """The number of CPUs to use: those that this process may use, or fewer within `most_threads`.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        count = os.process_cpu_count() or 1
    elif hasattr(os, "sched_getaffinity"):  # Linux
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return min(count, _most_threads.get() or count)


_most_threads: ContextVar[int | None] = ContextVar("most_threads", default=None)


@contextmanager
def most_threads(count: int | None) -> Iterator[None]:
    """Let the calls of this thread use at most so many CPUs meanwhile; None: as many as before."""
    token = _most_threads.set(count or _most_threads.get())
    try:
        yield
    finally:
        _most_threads.reset(token)


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


# -- threads ---------------------------------------------------------------------------------------------------------

_lock, _holders = threading.Lock(), 0
_shared: list[tuple[Any, int]] = []  # libraries that are limited for the whole process, and their number of threads
_known: tuple[int, list[Any]] = (0, [])  # modules at the last search for libraries, and what it found


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: the same sums in the same order, and no contention for the cores.

    Calls may be nested and may overlap with those of other threads. In most builds of BLAS the number of threads
    belongs to the whole process, so such calls share one limit: the first saves the number and sets 1, the last
    restores it.
    """
    own = _acquire()
    try:
        yield
    finally:
        _release(own)


def _acquire() -> list[tuple[Any, int]]:
    """Set the limit; returns the libraries that this thread alone limits, and their number of threads."""
    global _holders
    with _lock:
        own: list[tuple[Any, int]] = []
        shared: list[tuple[Any, int]] = []
        for library in _libraries():
            per_thread = library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp"
            (own if per_thread else shared).append((library, library.get_num_threads()))
        if _holders == 0:
            _shared[:] = shared
        _holders += 1
        _set_threads([(library, 1) for library, _ in (*own, *_shared)])
        return own


def _libraries() -> list[Any]:
    """The BLAS libraries of this process; the search costs milliseconds, so it is done only after an import."""
    global _known
    modules = len(sys.modules)
    if _known[0] != modules:
        _known = modules, threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return _known[1]


def _release(own: list[tuple[Any, int]]) -> None:
    global _holders
    with _lock:
        _holders -= 1
        _set_threads(own)
        if _holders == 0:
            _set_threads(_shared)
            _shared.clear()


def _set_threads(wanted: list[tuple[Any, int]]) -> None:
    """Set the number of threads, from any thread.

    Newer versions of threadpoolctl ignore all threads but the first one that set a limit, unless it is forgotten.
    """
    openblas = getattr(threadpoolctl, "OpenBLASController", None)
    forget = getattr(openblas, "clear_controlling_thread", lambda **_: None)
    forget(force=True)
    for library, threads in wanted:
        library.set_num_threads(threads)
    forget(force=True)


def _after_fork() -> None:
    """Another thread may have held the lock at the moment of the fork, and it does not run in the child."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_after_fork)


MOST_BYTES = 64 << 20  # that a thread keeps for one use; what is larger is made anew each time


class Scratch(threading.local):
    """Memory for one array at a time in each thread: fresh pages for every block cost more than the work on them.

    >>> scratch = Scratch()
    >>> first = scratch.array((2, 3), np.float32)
    >>> second = scratch.array((3,), np.float64)  # overwrites the first
    >>> np.shares_memory(first, second)
    True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._memory = np.empty(0, dtype=np.uint8)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An uninitialised array, valid until the thread asks for the next one."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > self._most:
            return np.empty(shape, dtype)
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.uint8)
        return self._memory[:size].view(dtype).reshape(shape)


# -- locks that end with their process -------------------------------------------------------------------------------


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
