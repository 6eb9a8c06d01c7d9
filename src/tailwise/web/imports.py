"""Labels that another program sends: tasks of Label Studio in, answers in the ledger out, once the request is answered.

What waits is recorded together, in one thread; closing records all that was accepted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..campaign.classes import list_classes
from ..campaign.formats.base import Record
from ..campaign.formats.label_studio_tasks import task_records
from ..campaign.importing import Imported, Options, import_records
from ..campaign.ledger import Ledger
from ..errors import TailwiseError

log = logging.getLogger(__name__)

ANNOTATOR = "label-studio"  # of annotations that name nobody
Task = Mapping[str, Any]


class Imports:
    """Of one server."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._turn = threading.Lock()
        self._waiting: list[Task] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailwise-import")

    def add(self, tasks: Iterable[Task]) -> None:
        """Accept tasks; they are recorded soon."""
        with self._turn:
            idle = not self._waiting
            self._waiting += tasks
        if idle:
            self._thread.submit(self._record)

    def close(self) -> None:
        """Record what was accepted, and end the thread."""
        self._thread.shutdown()

    def _record(self) -> None:
        with self._turn:
            tasks, self._waiting = self._waiting, []
        try:
            done = record_tasks(self._ledger, tasks)
        except TailwiseError:
            log.exception("%d tasks of Label Studio could not be recorded", len(tasks))
            return
        left_out = [*done.problems, *(f"{one.path}: {one.reason}" for one in done.unmatched)]
        left_out += [f"{one.name}: {one.reason}" for one in done.unknown_classes]
        if left_out:
            log.warning("of Label Studio's annotations %d were left out: %s", len(left_out), "; ".join(left_out[:5]))


def record_tasks(ledger: Ledger, tasks: Iterable[Task]) -> Imported:
    """Record the annotations of tasks; what the same person says later stands."""
    classes = [one.name for one in list_classes(ledger)]
    records: list[Record] = []
    for number, task in enumerate(tasks, start=1):
        found, problems = task_records(task, number, classes)
        records += found
        for problem in problems:
            log.warning("left out: %s", problem)
    return import_records(ledger, records, Options(ANNOTATOR, overwrite=True))
