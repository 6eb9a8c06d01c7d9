"""One BLAS thread while our loops run: the same sums in the same order, and no fight over the cores.

In most builds of BLAS the number of threads belongs to the whole process, so calls that overlap must share one limit:
the first one saves the number and sets 1, the last one restores it.

Memory that a thread uses again: fresh pages for every block cost more than the work on them.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import threadpoolctl
from numpy.typing import DTypeLike, NDArray

_lock, _holders = threading.Lock(), 0
_shared: list[tuple[Any, int]] = []  # libraries that are limited for the whole process, and their number of threads
_known: tuple[int, list[Any]] = (0, [])  # modules at the last search for libraries, and what it found


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread; calls may be nested and may overlap with those of other threads."""
    own = _acquire()
    try:
        yield
    finally:
        _release(own)


def _acquire() -> list[tuple[Any, int]]:
    """Set the limit; returns the libraries that this thread alone limits, and their number of threads."""
    global _holders
    with _lock:
        counted = [(library, library.get_num_threads()) for library in _libraries()]
        own = [pair for pair in counted if _is_per_thread(pair[0])]
        if _holders == 0:
            _shared[:] = [pair for pair in counted if not _is_per_thread(pair[0])]
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


def _is_per_thread(library: Any) -> bool:  # noqa: ANN401 - threadpoolctl has no types
    """Whether a library counts its threads for each calling thread, not for the process."""
    return library.internal_api == "mkl" or getattr(library, "threading_layer", "") == "openmp"


def _set_threads(wanted: list[tuple[Any, int]]) -> None:
    """Set the number of threads from whichever thread this is.

    Newer versions of threadpoolctl ignore all threads but the first one that set a limit, unless told to forget it.
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
    """Room for one array at a time in each thread.

    >>> room = Scratch()
    >>> first = room.array((2, 3), np.float32)
    >>> second = room.array((3,), np.float64)  # in the place of the first
    >>> np.shares_memory(first, second)
    True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._memory = np.empty(0, dtype=np.uint8)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array whose numbers are yet to be written; it is good until the thread asks for the next."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > self._most:
            return np.empty(shape, dtype)
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.uint8)
        return self._memory[:size].view(dtype).reshape(shape)
