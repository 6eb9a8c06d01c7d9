"""Everything that a running server works with: the ledger with one writer and a few readers, images, jobs, files.

All writes go through one thread. Those that wait when a transaction begins share it and its one sync of the disk (group
commit); a write that fails is rolled back alone.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from ..campaign.images import Matcher, list_folders
from ..campaign.ledger import Ledger
from ..errors import BadFile, LedgerBusy, LedgerReplaced, TailwiseError
from ..formats.label_studio_api import KEY_VARIABLE
from .background import BackgroundJob
from .images import ImageRenderer
from .jobs import Jobs
from .label_studio import Controls, follow_round
from .settings import PublicText, WebSettings, get_log
from .views import Cached, CountCache, Prelabels, Read

log = get_log(__name__)

READERS = 2
MOST_AT_ONCE = 128  # writes of one transaction

Result = TypeVar("Result")
Reply: TypeAlias = Future[Any] | asyncio.Future[Any]


class CannotWrite(TailwiseError, OSError):
    """The disk cannot be written; the same request may succeed later."""


class Service:
    """Opened and closed with the server: after `close` no thread is left."""

    def __init__(self, ledger: Ledger, settings: WebSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        self.files: StaticFiles = load_static()
        self._lock = ReadWriteLock(needed=not ledger.write_ahead())
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="tailwise-reader")
        self._writer = Writer(ledger, self._lock)
        self.images = ImageRenderer(self._run_query)
        self.counts = CountCache()
        self.matcher: Cached[Matcher] = Cached(lambda read: read(Matcher))
        self.controls = Controls()
        self.public = PublicText(ledger.folder, list_folders(ledger).values())
        self.jobs = Jobs(ledger, self._writer.submit, self.public, self._follow_round if settings.ml_backend else None)
        self.map_job = BackgroundJob(ledger, "drawing the map", self.public)
        self.errors_job = BackgroundJob(ledger, "checking the labels", self.public)
        self.duplicates_job = BackgroundJob(ledger, "looking for duplicates", self.public)
        self.measures_job = BackgroundJob(ledger, "measuring the model", self.public)
        self.prelabels = Prelabels(settings.blind, self.jobs.predictions)
        self._replaced = False  # whether this was logged

    async def read(self, query: Callable[[Ledger], Result]) -> Result:
        """Run a query on the ledger, concurrently with the writer."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._run_query, query)

    async def read_parts(self, view: Callable[[Read], Result]) -> Result:
        """Make a view of several queries, between which the writer may run."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, view, self._run_query)

    async def write(self, command: Callable[[Ledger], Result]) -> Result:
        """Run a command that changes the ledger; returns when it is on the disk."""
        try:
            return await self._writer.write(lambda: command(self.ledger))
        except LedgerReplaced:  # for good, and logged once
            raise
        except BadFile as error:  # a full or missing disk: not the client's fault
            log.exception("the ledger cannot be written")
            why = error.__cause__ or "its log says why"  # SQLite's message, without the path
            raise CannotWrite(
                f"the ledger cannot be written now ({why}), and nothing was; free space where the server runs"
            ) from error

    def log_replaced(self, error: LedgerReplaced) -> None:
        """Log it once, however many requests fail."""
        if not self._replaced:
            self._replaced = True
            log.error("%s", error)

    def close(self) -> None:
        """Commit what waits, end the threads and the job."""
        self.jobs.close()
        self.map_job.close()
        self.errors_job.close()
        self.duplicates_job.close()
        self.measures_job.close()
        self.images.close()
        self._readers.shutdown(cancel_futures=True)
        self._writer.close()

    def _follow_round(self) -> None:
        follow_round(self._run_query, self.ledger.folder, os.environ.get(KEY_VARIABLE))

    def _run_query(self, query: Callable[[Ledger], Result]) -> Result:
        with self._lock.reading():
            return query(self.ledger)


# The writer.


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A function that writes, and where its result goes."""

    work: Callable[[], Any]
    reply: Reply
    loop: asyncio.AbstractEventLoop | None = None  # the reply may be used in its thread alone

    def start(self) -> bool:
        """Whether it is still wanted; from here on it cannot be cancelled."""
        if isinstance(self.reply, Future):
            return self.reply.set_running_or_notify_cancel()
        return not self.reply.cancelled()


@dataclass(frozen=True, slots=True)
class Failed:
    """An error in place of a result."""

    error: BaseException


class Writer:
    """The one thread that writes; `close` writes what was submitted before it returns."""

    def __init__(self, ledger: Ledger, lock: ReadWriteLock) -> None:
        self._ledger = ledger
        self._lock = lock
        self._tasks: queue.SimpleQueue[WriteTask | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()  # a task is either queued before the end, or rejected
        self._thread = threading.Thread(target=self._run, name="tailwise-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Submit a write; its result comes after the commit."""
        reply: Future[Result] = Future()
        self._enqueue(WriteTask(work, reply))
        return reply

    async def write(self, work: Callable[[], Result]) -> Result:
        """The same for the event loop."""
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[Result] = loop.create_future()
        self._enqueue(WriteTask(work, reply, loop))
        return await reply

    def close(self) -> None:
        """Write what waits, then end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._tasks.put(None)
        self._thread.join()

    def _enqueue(self, task: WriteTask) -> None:
        with self._closing:
            if self._closed:
                raise LedgerBusy("the server is stopping; nothing was written: try again when it is back")
            self._tasks.put(task)

    def _run(self) -> None:
        going = True
        while going:
            batch, going = self._next_batch()
            if batch:
                self._commit(batch)

    def _next_batch(self) -> tuple[list[WriteTask], bool]:
        """All tasks that wait, at least one; and whether more may come."""
        found: list[WriteTask] = []
        task = self._tasks.get()
        while task is not None:
            if task.start():
                found.append(task)
            if len(found) == MOST_AT_ONCE or self._tasks.empty():
                return found, True
            task = self._tasks.get()
        return found, False

    def _commit(self, batch: list[WriteTask]) -> None:
        try:
            outcomes = self._run_batch(batch)
        except BaseException as error:  # nobody may wait for ever
            outcomes = [Failed(error)] * len(batch)
        _notify(batch, outcomes)

    def _run_batch(self, batch: list[WriteTask]) -> list[Any]:
        """Results and errors of a batch, on the disk when this returns."""
        with self._lock.writing(), self._ledger.writing() as connection:
            outcomes = []
            for task in batch:
                outcomes.append(self._run_task(task))
                if not connection.in_transaction:  # a full disk ended it: nothing of the batch is kept
                    raise outcomes[-1].error
            return outcomes

    def _run_task(self, task: WriteTask) -> Any:  # noqa: ANN401 — the work's own result
        try:
            with self._ledger.writing():
                return task.work()
        except Exception as error:
            return Failed(error)


def _notify(batch: Sequence[WriteTask], outcomes: Sequence[Any]) -> None:
    """Deliver the outcomes; those of one event loop together, which wakes it once."""
    by_loop: defaultdict[asyncio.AbstractEventLoop | None, list[tuple[Reply, Any]]] = defaultdict(list)
    for task, outcome in zip(batch, outcomes, strict=True):
        by_loop[task.loop].append((task.reply, outcome))
    for loop, replies in by_loop.items():
        if loop is None:
            _deliver(replies)
        else:
            with suppress(RuntimeError):  # nobody waits in a closed loop
                loop.call_soon_threadsafe(_deliver, replies)


def _deliver(replies: Iterable[tuple[Reply, Any]]) -> None:
    for reply, outcome in replies:
        if reply.cancelled():
            continue
        if isinstance(outcome, Failed):
            reply.set_exception(outcome.error)
        else:
            reply.set_result(outcome)


class ReadWriteLock:
    """Many readers or the one writer, in turns: neither waits for more than one turn of the other.

    For ledgers without a write-ahead log (some network drives), where SQLite waits by sleeping up to 100 ms at a time.
    It works between the threads of one process; SQLite's own locks still separate processes.
    """

    def __init__(self, *, needed: bool = True) -> None:
        self._needed = needed  # not with a write-ahead log: then nobody waits
        self._changed = threading.Condition()
        self._reading = 0
        self._writing = False
        self._writer_waits = False
        self._turn = 0  # of the writer; readers that waited through one go before the next
        self._queue = 0  # readers that wait
        self._owed = 0  # of them, those that the next write must let in first

    @contextmanager
    def reading(self) -> Iterator[None]:
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
    def writing(self) -> Iterator[None]:
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


# Static files of the page: read and compressed once, served from memory.
# The page names them under /static/v-<digest>/, which browsers keep for ever: other files have another digest.

STATIC_FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
MAIN = "js/main.js"
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
COMPRESSED = frozenset({".png", ".woff2"})  # already
# A comment that has its lines for itself; in the page's files no text begins a line like one.
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?:(?!\*/).)*\*/[ \t]*$|//[^\n]*$)", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"^import [^'\n]*'\./([\w-]+\.js)'", re.MULTILINE)  # import() loads later


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, ready to send."""

    content: bytes
    content_type: str
    etag: str
    gzipped: bytes | None = None


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """Every file of the page by its relative path, and the version that all of them make up."""

    files: Mapping[str, StaticFile]
    version: str = ""

    def find(self, name: str) -> tuple[StaticFile | None, bool]:
        """A file, and whether it was asked for by its version, so that it never changes."""
        versioned = name.startswith(f"{self.version}/")
        return self.files.get(name.removeprefix(f"{self.version}/")), versioned


def load_static(folder: Path = STATIC_FOLDER) -> StaticFiles:
    """Every file of a known type below the folder; the page names the others by their version."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in CONTENT_TYPES)
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    version = f"v-{digest.hexdigest()[:16]}"
    if INDEX in contents:
        ahead = "".join(f'<link rel="modulepreload" href="/static/js/{name}">' for name in imported(contents))
        html = contents[INDEX].replace(b"</head>", f"{ahead}</head>".encode())
        contents[INDEX] = html.replace(b'"/static/', f'"/static/{version}/'.encode())
    return StaticFiles({name: _static_file(name, content) for name, content in contents.items()}, version)


def without_comments(text: str) -> str:
    r"""Scripts and styles as browsers need them; lines keep their numbers.

    >>> without_comments("/** Adds.\n * @param a */\nadd(a); // now\n  // later\n/** @type {X} */ let b;")
    '\n\nadd(a); // now\n\n/** @type {X} */ let b;'
    """
    return _COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)


def imported(contents: Mapping[str, bytes]) -> list[str]:
    """The modules that the page's first one needs, found ahead so that browsers ask for all of them at once."""
    found, left = set[str](), [MAIN]
    while left:
        text = contents.get(left.pop(), b"").decode("utf-8")
        fresh = {name for name in _IMPORT.findall(text) if f"js/{name}" in contents} - found
        found |= fresh
        left += [f"js/{name}" for name in fresh]
    return sorted(found)


def _static_file(name: str, content: bytes) -> StaticFile:
    kind = Path(name).suffix
    if kind in (".css", ".js"):
        content = without_comments(content.decode("utf-8")).encode()
    packed = None if kind in COMPRESSED else gzip.compress(content, 9, mtime=0)
    return StaticFile(content, CONTENT_TYPES[kind], f'"{hashlib.sha256(content).hexdigest()[:32]}"', packed)
