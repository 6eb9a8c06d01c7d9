"""The page's own files: read once from web/static, served from memory by their exact name and no other.

All that a running server works with: the ledger, its one writer, a few readers, pictures and the background job.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..campaign.images import Matcher, list_folders
from ..campaign.ledger import Ledger
from ..errors import BadFile, LedgerReplaced, TailwiseError
from .errors import PublicText, get_log
from .images import Pictures
from .jobs import Jobs
from .label_studio_schemas import Controls
from .predictions import Sight
from .settings import WebSettings
from .tallies import Ask, Remembered, Tallies
from .writer import Gate, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping


FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
KINDS = {
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


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    content: bytes
    kind: str
    etag: str


def load(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """Every file of a known kind below the folder, by its name with /."""
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in KINDS)
    return {path.relative_to(folder).as_posix(): _read(path) for path in paths}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, KINDS[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


log = get_log(__name__)

READERS = 2

Result = TypeVar("Result")


class CannotWrite(TailwiseError, OSError):
    """The disk does not take what was said; the same request may succeed later."""


class Desk:
    """Opened with the server, closed with it: after `close` none of its threads is left."""

    def __init__(self, ledger: Ledger, settings: WebSettings) -> None:
        self.ledger = ledger
        self.settings = settings
        self.files: Mapping[str, StaticFile] = load()
        self._gate = Gate(needed=not ledger.write_ahead())
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="tailwise-reader")
        self._writer = Writer(ledger, self._gate)
        self.pictures = Pictures(ledger, self._gate)
        self.tallies = Tallies()
        self.matcher: Remembered[Matcher] = Remembered(lambda ask: ask(Matcher))
        self.controls = Controls()
        self.public = PublicText(ledger.folder, list_folders(ledger).values())
        self.jobs = Jobs(ledger, self._writer, self.public)
        self._replaced = False  # whether the log says that the ledger's file was

    @property
    def sight(self) -> Sight:
        """What people see of the model's guesses."""
        return Sight(self.settings.blind, self.jobs.guesses)

    async def read(self, question: Callable[[Ledger], Result]) -> Result:
        """Ask the ledger something, beside the writer."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._answered, question)

    async def read_parts(self, view: Callable[[Ask], Result]) -> Result:
        """Make a view of several questions, between which the writer has its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, view, self._answered)

    async def write(self, deed: Callable[[Ledger], Result]) -> Result:
        """Change something; returns when it is on the disk."""
        try:
            return await self._writer.write(lambda: deed(self.ledger))
        except LedgerReplaced:  # for good, and logged once
            raise
        except BadFile as error:  # a full disk, or one that is gone: not the fault of who asks
            log.exception("the ledger cannot be written")
            why = error.__cause__ or "its log says why"  # what SQLite says, without the path
            raise CannotWrite(
                f"the ledger cannot be written now ({why}), and nothing was; free space where the server runs"
            ) from error

    def log_replaced(self, error: LedgerReplaced) -> None:
        """Write one line to the log, however many requests fail for it."""
        if not self._replaced:
            self._replaced = True
            log.error("%s", error)

    def close(self) -> None:
        """Commit what was acknowledged or waits, end the threads and the job."""
        self.jobs.close()
        self.pictures.close()
        self._readers.shutdown(cancel_futures=True)
        self._writer.close()

    def _answered(self, question: Callable[[Ledger], Result]) -> Result:
        with self._gate.shared():
            return question(self.ledger)
