"""Many readers or the one writer, in turns: neither waits for more than one turn of the other.

For where no log can be written ahead (some network drives): there SQLite makes them wait for each other by sleeping and
looking again, up to 100 ms at a time; here they are woken.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """For the threads of one process; other processes are still kept apart by SQLite itself."""

    def __init__(self, *, needed: bool = True) -> None:
        self._needed = needed  # with a write-ahead log readers and the writer do not wait for each other at all
        self._changed = threading.Condition()
        self._reading = 0
        self._writing = False
        self._writer_waits = False
        self._turn = 0  # of the writer; readers that waited through one go before the next
        self._queue = 0  # readers that wait
        self._owed = 0  # of them, those that the next write must let in first

    @contextmanager
    def shared(self) -> Iterator[None]:
        """For reading."""
        if not self._needed:
            yield
            return
        with self._changed:
            self._enter()
        try:
            yield
        finally:
            with self._changed:
                self._reading -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For writing; one thread only."""
        with self._changed:
            self._writer_waits = True
            self._changed.wait_for(lambda: self._reading == 0 and self._owed == 0)
            self._writer_waits, self._writing = False, True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._turn += 1
                self._owed = self._queue
                self._changed.notify_all()

    def _enter(self) -> None:
        came = self._turn
        self._queue += 1
        self._changed.wait_for(lambda: not self._writing and (not self._writer_waits or self._turn > came))
        self._queue -= 1
        if self._turn > came and self._owed:
            self._owed -= 1
        self._reading += 1
