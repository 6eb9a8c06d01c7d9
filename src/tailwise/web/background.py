"""Long work other than training, such as drawing the map: one job at a time of each kind, in a child process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..campaign.ledger import Ledger
from ..errors import TailwiseError
from . import schemas
from .jobs import BROKEN, AlreadyRunning, JobFailed, JobProcess, job_folder
from .settings import get_log

log = get_log(__name__)


class BackgroundJob:
    """One kind of job; it works on a copy of the ledger, and keeps what it makes among the campaign's files.

    It does not wait for training, nor training for it. A restart drops a job that was running.
    """

    def __init__(self, ledger: Ledger, name: str, public: Callable[[str], str] = str) -> None:
        self.state = schemas.Job(state="idle")  # progress, or how the last one ended
        self._ledger = ledger
        self._name = name  # "drawing the map"
        self._public = public  # removes paths from messages
        self._turn = threading.Lock()
        self._closed = False
        self._child: JobProcess | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailwise-background")

    def start(self, task: Mapping[str, Any]) -> schemas.Job:
        """Start the task, see `jobs.run_task`."""
        with self._turn:
            if self._closed or self.state.state == "running":
                raise AlreadyRunning(f"{self._name} has begun already; wait for it")
            self.state = schemas.Job(state="running", what="starting")
            self._thread.submit(self._work, task)
            return self.state

    def close(self) -> None:
        """Stop the running job, if any."""
        with self._turn:
            self._closed = True
            if self._child is not None:
                self._child.process.kill()
        self._thread.shutdown(cancel_futures=True)

    def _work(self, task: Mapping[str, Any]) -> None:
        try:
            with job_folder(self._ledger) as folder:
                self._run({"folder": str(folder), **task})
            self.state = schemas.Job(state="done", share=1.0, what=self.state.what)
        except (TailwiseError, OSError) as error:
            log.warning("%s failed: %s", self._name, error)
            self.state = schemas.Job(state="failed", what=self.state.what, error=self._public(str(error)))
        except Exception:
            log.exception("%s failed", self._name)
            self.state = schemas.Job(state="failed", what=self.state.what, error=BROKEN)

    def _run(self, task: Mapping[str, Any]) -> None:
        with self._turn:
            if self._closed:
                raise JobFailed("the server is stopping")
            self._child = child = JobProcess()
        try:
            child.run(task, self._report)
        finally:
            self._child = None

    def _report(self, share: float, what: str) -> None:
        self.state = schemas.Job(state="running", share=share, what=what)
