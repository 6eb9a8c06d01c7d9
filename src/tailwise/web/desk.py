"""All that a running server works with: the ledger, its one writer, a few readers, pictures and the background job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from ..campaign.images import list_folders
from ..campaign.ledger import Ledger
from ..campaign.matching import Matcher
from ..errors import BadFile, LedgerReplaced, TailwiseError
from .gate import Gate
from .jobs import Jobs
from .label_control import Controls
from .logs import get_log
from .pictures import Pictures
from .public_text import PublicText
from .settings import WebSettings
from .sight import Sight
from .static_files import StaticFile, load
from .tallies import Ask, Remembered, Tallies
from .writer import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

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
