"""Many readers or the one writer, in turns: neither waits for more than one turn of the other.

For where no log can be written ahead (some network drives): there SQLite makes them wait for each other by sleeping and
looking again, up to 100 ms at a time; here they are woken.

The one thread that writes: pieces of work in, their results out once they are on the disk.

All that waits when a transaction begins shares it, its one sync of the disk (group commit), and the one call that
wakes who waits; a piece that fails is taken back alone.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from ..campaign.ledger import Ledger
from ..errors import LedgerBusy


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


MOST_AT_ONCE = 128

Result = TypeVar("Result")
Reply: TypeAlias = Future[Any] | asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class Order:
    """A piece of work that writes, and whom to tell."""

    work: Callable[[], Any]
    reply: Reply
    loop: asyncio.AbstractEventLoop | None = None  # in whose thread alone the reply may be touched

    def is_wanted(self) -> bool:
        """Whether somebody still waits; from here on it cannot be called off."""
        if isinstance(self.reply, Future):
            return self.reply.set_running_or_notify_cancel()
        return not self.reply.cancelled()


@dataclass(frozen=True, slots=True)
class Failed:
    """In place of a result."""

    error: BaseException


class Writer:
    """Writes for everybody; `close` writes what was taken on before it returns."""

    def __init__(self, ledger: Ledger, gate: Gate) -> None:
        self._ledger = ledger
        self._gate = gate
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()  # an order is either before the end of the queue, or refused
        self._thread = threading.Thread(target=self._run, name="tailwise-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Take on a piece of work; its result comes after the commit."""
        reply: Future[Result] = Future()
        self._take_on(Order(work, reply))
        return reply

    async def write(self, work: Callable[[], Result]) -> Result:
        """The same for the event loop."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Result] = loop.create_future()
        self._take_on(Order(work, reply, loop))
        return await reply

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._orders.put(None)
        self._thread.join()

    def _take_on(self, order: Order) -> None:
        with self._closing:
            if self._closed:
                raise LedgerBusy("the server is stopping; nothing was written: try again when it is back")
            self._orders.put(order)

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._waiting()
            if batch:
                self._commit(batch)

    def _waiting(self) -> tuple[list[Order], bool]:
        """All orders that wait, at least one; and whether more may come."""
        found: list[Order] = []
        order = self._orders.get()
        while order is not None:
            if order.is_wanted():
                found.append(order)
            if len(found) == MOST_AT_ONCE or self._orders.empty():
                return found, True
            order = self._orders.get()
        return found, False

    def _commit(self, batch: list[Order]) -> None:
        try:
            outcomes = self._written(batch)
        except BaseException as error:  # whatever it is, nobody may wait for ever
            outcomes = [Failed(error)] * len(batch)
        _tell(batch, outcomes)

    def _written(self, batch: list[Order]) -> list[Any]:
        """Results and failures of a batch, on the disk when this returns."""
        with self._gate.alone(), self._ledger.writing() as connection:
            outcomes = []
            for order in batch:
                outcomes.append(self._outcome(order))
                if not connection.in_transaction:  # a full disk has ended it: nothing of the batch is kept
                    raise outcomes[-1].error
            return outcomes

    def _outcome(self, order: Order) -> Any:  # noqa: ANN401 — whatever the work gives
        try:
            with self._ledger.writing():
                return order.work()
        except Exception as error:
            return Failed(error)


def _tell(batch: Sequence[Order], outcomes: Sequence[Any]) -> None:
    """Each its outcome; all of one event loop at once, which is woken a single time."""
    by_loop: defaultdict[asyncio.AbstractEventLoop | None, list[tuple[Reply, Any]]] = defaultdict(list)
    for order, outcome in zip(batch, outcomes, strict=True):
        by_loop[order.loop].append((order.reply, outcome))
    for loop, replies in by_loop.items():
        if loop is None:
            _deliver(replies)
        else:
            with suppress(RuntimeError):  # a loop that is closed has nobody left who waits
                loop.call_soon_threadsafe(_deliver, replies)


def _deliver(replies: Iterable[tuple[Reply, Any]]) -> None:
    for reply, outcome in replies:
        if reply.cancelled():
            continue
        if isinstance(outcome, Failed):
            reply.set_exception(outcome.error)
        else:
            reply.set_result(outcome)
