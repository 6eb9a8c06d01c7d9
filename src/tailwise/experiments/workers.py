"""Runs tasks on worker processes, each with its own pipe, so that the death of one costs only its task.

A killed worker (kill −9, out of memory) is replaced and its task is started again, at most `ATTEMPTS` times; the others
go on. Workers are started with "spawn": the same on Linux, macOS and Windows.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeAlias, TypeVar

from ..errors import TailwiseError, WorkersLost

ATTEMPTS = 3
POLL_SECONDS = 1.0  # between looks at whether workers are alive
END_SECONDS = 10.0  # for a worker to end by itself

Task = TypeVar("Task")
Report: TypeAlias = Callable[[float, str], None]
Work: TypeAlias = Callable[[Any, Report], Any]
"""work(task, report) → result, importable by name."""


@dataclass(slots=True, eq=False)
class Worker(Generic[Task]):
    """One process and the task that it is at."""

    process: SpawnProcess
    pipe: Connection
    task: Task | None = None
    ready: bool = False  # it has said that it can work

    def give(self, task: Task) -> None:
        """Have it begin a task."""
        self.task = task
        with suppress(OSError):  # it is dead: that is noticed when its pipe is read
            self.pipe.send(task)


class Workers(Generic[Task]):
    """As many processes as asked for, and the tasks that wait for one.

    All callbacks run in the calling process. `ended(task, result)` and `failed(task, why)` give the tasks that can
    begin now. A task whose worker died is `retried`, and after that happened again and again `lost`, each with the
    cause. `line(task, done, what)` is progress.
    """

    def __init__(
        self, number: int, work: Work, *, line: Callable[[Task, float, str], None],
        ended: Callable[[Task, Any], Sequence[Task]], failed: Callable[[Task, str], Sequence[Task]],
        retried: Callable[[Task, str], None], lost: Callable[[Task, str], None], named: Callable[[Task], str],
    ) -> None:  # fmt: skip
        self.number, self.work = number, work
        self.line, self.ended, self.failed, self.retried, self.lost = line, ended, failed, retried, lost
        self.named = named
        self.context = multiprocessing.get_context("spawn")
        self.waiting: deque[Task] = deque()
        self.workers: list[Worker[Task]] = []
        self.deaths: dict[int, int] = {}  # of workers, by the id of their task
        self.failed_starts = 0  # workers in a row that ended before they could work

    def run(self, tasks: Sequence[Task]) -> None:
        """Do every task, and those that follow from it."""
        self.waiting.extend(tasks)
        try:
            while self.waiting or any(worker.task is not None for worker in self.workers):
                self._assign_tasks()
                pipes = {worker.pipe: worker for worker in self.workers}
                for pipe in wait(list(pipes), POLL_SECONDS):
                    self._receive(pipes[pipe])  # type: ignore[index]  # what was given is what comes back
                self._find_dead_workers()
            self._stop_workers()
        finally:
            for worker in self.workers:
                worker.process.terminate()
            self._close_workers()

    def _assign_tasks(self) -> None:
        """Give waiting tasks to idle workers, and start workers while there is more to do."""
        for idle in self.workers:
            if idle.task is None and self.waiting:
                idle.give(self.waiting.popleft())
        while self.waiting and len(self.workers) < self.number:
            here, there = self.context.Pipe()
            process = self.context.Process(target=_serve, args=(there, self.work))
            worker: Worker[Task] = Worker(process, here)
            self.workers.append(worker)
            process.start()
            there.close()  # so that the end of the process ends the pipe
            worker.give(self.waiting.popleft())

    def _find_dead_workers(self) -> None:
        """Find workers whose pipe stays open after their end, because a process that they started holds it."""
        for worker in [worker for worker in self.workers if not worker.process.is_alive()]:
            while worker in self.workers and worker.pipe.poll():
                self._receive(worker)
            if worker in self.workers:
                self._lost(worker)

    def _receive(self, worker: Worker[Task]) -> None:
        """Take one message of a worker."""
        try:
            kind, *content = worker.pipe.recv()
        except (EOFError, OSError):
            self._lost(worker)
            return
        if kind == "ready":
            worker.ready, self.failed_starts = True, 0
        elif worker.task is not None and kind == "line":
            self.line(worker.task, *content)
        elif worker.task is not None:
            task, worker.task = worker.task, None
            self.waiting.extend((self.ended if kind == "ended" else self.failed)(task, content[0]))

    def _lost(self, worker: Worker[Task]) -> None:
        """A worker has died: begin its task again, behind all others, or give it up."""
        self.workers.remove(worker)
        _end(worker.process)
        worker.pipe.close()
        task, code = worker.task, worker.process.exitcode
        if task is None:
            return
        if not worker.ready:
            self._count_failed_start(code)
            self.waiting.appendleft(task)
            return
        deaths = self.deaths[id(task)] = self.deaths.get(id(task), 0) + 1
        cause = f"a worker process {death_words(code)} while running {self.named(task)}"
        if deaths < ATTEMPTS:
            self.retried(task, f"{cause}; beginning again, attempt {deaths + 1} of {ATTEMPTS}")
            self.waiting.append(task)
        else:
            self.lost(task, f"{cause}, {ATTEMPTS} times; fewer --processes need less memory")

    def _count_failed_start(self, code: int | None) -> None:
        self.failed_starts += 1
        if self.failed_starts >= ATTEMPTS:
            raise WorkersLost(
                f"worker processes cannot start: the last one {death_words(code)}. In a script, put the call below "
                'if __name__ == "__main__":, or use one process'
            )

    def _stop_workers(self) -> None:
        """All is done: have the workers end."""
        for worker in self.workers:
            with suppress(OSError):
                worker.pipe.send(None)
        for worker in self.workers:
            worker.process.join(END_SECONDS)

    def _close_workers(self) -> None:
        for worker in self.workers:
            _end(worker.process)
            worker.pipe.close()
        self.workers.clear()


def _end(process: SpawnProcess) -> None:
    """Wait for a process that is about to end, and not for ever."""
    process.join(END_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()


def failure_words(error: BaseException) -> str:
    """What a task's error says: our own words, else the error's last line, with its kind."""
    if isinstance(error, TailwiseError):
        return str(error)
    return "".join(traceback.format_exception_only(error)).strip()


def death_words(code: int | None) -> str:
    """How a process ended, by its exit code.

    >>> death_words(-9)
    'was killed (signal 9; often out of memory)'
    >>> death_words(-11), death_words(3)
    ('was killed (signal 11)', 'ended unexpectedly (exit code 3)')
    """
    if code is not None and code < 0:
        return f"was killed (signal {-code}{'; often out of memory' if code == -9 else ''})"
    return f"ended unexpectedly (exit code {code})"


def _serve(pipe: Connection, work: Work) -> None:
    """In a worker: do tasks until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the calling process decides; it ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the calling process is gone
        pipe.send(("ready",))
        while (task := pipe.recv()) is not None:
            try:
                result = work(task, lambda done, what: pipe.send(("line", done, what)))
            except Exception as error:  # whatever it is, it is for the calling process to report
                pipe.send(("failed", failure_words(error)))
            else:
                pipe.send(("ended", result))


def _end_with_parent() -> None:
    """End this process once its parent is gone: a killed run leaves nobody behind who writes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
