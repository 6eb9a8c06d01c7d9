"""Work as Ray tasks: the trials of an experiment, or any function over a list of items.

A task whose worker dies is started again by Ray.
"""

from __future__ import annotations

import importlib
import logging
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..errors import BadFile
from ..experiments.experiment import Row, Trial
from ..experiments.runner import RunTasks, Task, Watcher, notify_end, notify_failure, work
from ..experiments.store import Store
from ..experiments.workers import failure_words
from .cluster import connect, ray_module

POLL_SECONDS = 0.2  # between looks at what tasks report
RETRIES = 3  # of a task whose worker died


def on_ray(engine: str, *, cpus: int | None = None) -> RunTasks:
    """Run tasks on a cluster, which is started or joined only if there are any; `cpus` are those of one we start."""

    def run_tasks(plan: list[Task], store: Store, watchers: tuple[Watcher, ...]) -> dict[str, str]:
        if not plan:
            return {}
        with connect(engine, cpus=cpus):
            return _Run(Store(store.folder.resolve()), watchers).all(plan)

    return run_tasks


@dataclass
class Mailbox:
    """An actor that holds what tasks say of their progress until they are fetched."""

    lines: list[tuple[str, float, str]] = field(default_factory=list)

    def put(self, fingerprint: str, done: float, what: str) -> None:
        """Keep a line."""
        self.lines.append((fingerprint, done, what))

    def take(self) -> list[tuple[str, float, str]]:
        """All lines since the last time."""
        lines, self.lines = self.lines, []
        return lines


@dataclass(frozen=True, slots=True)
class Place:
    """Where the files of a run are: paths in an experiment may be relative to the folder that it was begun in."""

    store: Store
    home: Path

    def enter(self) -> None:
        """Refuse on a machine that does not see the results."""
        if not self.store.folder.is_dir():
            raise BadFile(
                f"{socket.gethostname()} sees no folder {self.store.folder}; on a cluster the results must lie where "
                "every machine sees them at the same path: give such a folder as --out"
            )
        with suppress(OSError):  # absolute paths do without
            os.chdir(self.home)


def do_task(task: Task, place: Place, mailbox: Any) -> list[Row]:  # noqa: ANN401 - a handle of an actor
    """In a worker."""
    place.enter()
    fingerprint = task.trial.fingerprint
    return work(task, lambda done, what: mailbox.put.remote(fingerprint, done, what), store=place.store)


class _Run:
    """Tasks that are under way."""

    def __init__(self, store: Store, watchers: tuple[Watcher, ...]) -> None:
        self.ray = ray_module()
        self.watchers, self.place = watchers, Place(store, Path.cwd())
        self.mailbox = self.ray.remote(num_cpus=0, max_restarts=-1)(Mailbox).remote()
        self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(do_task)
        self.trials: dict[str, Trial] = {}
        self.running: dict[Any, Task] = {}
        self.failed: dict[str, str] = {}

    def all(self, plan: list[Task]) -> dict[str, str]:
        """Do every task, and those that can begin after it."""
        self.trials = {task.trial.fingerprint: task.trial for first in plan for task in (first, *first.then)}
        self._begin(plan)
        while self.running:
            ended, _ = self.ray.wait(list(self.running), timeout=POLL_SECONDS)
            self._pass_on()
            for reference in ended:
                self._end(reference)
        return self.failed

    def _begin(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            self.running[self.task.remote(task, self.place, self.mailbox)] = task

    def _end(self, reference: Any) -> None:  # noqa: ANN401 - a reference of Ray
        task = self.running.pop(reference)
        try:
            notify_end(task, self.ray.get(reference), self.watchers)
        except self.ray.exceptions.RayTaskError as error:
            notify_failure(task, failure_words(error.cause), self.watchers, self.failed)
        except self.ray.exceptions.RayError as error:
            lost = f"its worker died {RETRIES + 1} times, the last time so: {str(error).splitlines()[0]}"
            notify_failure(task, lost, self.watchers, self.failed)
        self._begin(task.then)  # where a model failed, its trials fail with the same words

    def _pass_on(self) -> None:
        """Hand over what tasks have said; a mailbox that is lost takes no trial with it."""
        with suppress(self.ray.exceptions.RayError):
            for fingerprint, done, what in self.ray.get(self.mailbox.take.remote()):
                for watcher in self.watchers:
                    watcher.line(self.trials[fingerprint], done, what)


COLUMN = "rows"
MOST_TASKS = 2_000  # a lost task starts again from its beginning, but a million tasks would keep Ray itself busy
Item = TypeVar("Item")
Result = TypeVar("Result")


def map_on_ray(
    work: Callable[[Item], Iterable[Result]], items: Sequence[Item], workers: int
) -> Iterator[Result]:  # fmt: skip
    """Everything that `work` yields for the items, on at most `workers` cores, in the order in which it is ready.

    A Ray Data pipeline inside a session of `connect`. `work`, the items and the results are pickled. A row of the
    dataset is one item or one result, so it does not matter how Ray cuts and joins its batches.
    """
    if not items:
        return
    data: Any = importlib.import_module("ray.data")

    def work_on(table: Any) -> Iterator[Any]:  # noqa: ANN401 - tables of pyarrow, which has no types
        for item in _unpacked(table):
            yield from map(_packed, work(item))

    with _silent(data):
        # Tasks rather than actors: workers keep what `work` caches all the same, and no pool of actors has to start.
        tasks = min(len(items), MOST_TASKS)
        rows = [{COLUMN: pickle.dumps(item)} for item in items]
        results = data.from_items(rows, override_num_blocks=tasks).map_batches(
            work_on, batch_size=1, batch_format="pyarrow", num_cpus=1,
            compute=data.TaskPoolStrategy(min(workers, tasks)),
        )  # fmt: skip
        for table in results.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from _unpacked(table)


def _packed(row: object) -> Any:  # noqa: ANN401 - a table of pyarrow, which has no types
    import pyarrow

    return pyarrow.table({COLUMN: pyarrow.array([pickle.dumps(row)], pyarrow.large_binary())})


def _unpacked(table: Any) -> Iterator[Any]:  # noqa: ANN401 - a table of pyarrow, which has no types
    """Unpickle rows; only our own workers write them, and Ray would pickle them anyway."""
    for row in table.column(COLUMN):
        yield pickle.loads(row.as_buffer())


@contextmanager
def _silent(data: Any) -> Iterator[None]:  # noqa: ANN401 - the module
    """No progress bars and no log on the terminal: both would run into our own."""
    context, log = data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False}
    before, level = {name: getattr(context, name) for name in wanted}, log.level
    log.setLevel(logging.ERROR)
    for name, value in wanted.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)
