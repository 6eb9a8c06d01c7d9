"""Runs the trials of an experiment, by default on several processes, and resumes after a crash.

All state is in the folder: what is complete is not done again. One run at a time locks the folder; the system releases
the lock when a run dies. A `Watcher` follows a run: a progress bar, TensorBoard, MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from ..errors import BadFile, MissingExtra
from ..files import write_whole
from ..processes import ONE_THREAD, alone, cores, environment
from ..types import Progress
from .experiment import Experiment, Row, Trial, trials_of
from .store import PoolRecord, Store, adopt_older, has_older_results, identify, recorded_content, write_rows
from .trial_run import first_model, run_trial, sweep_lam
from .workers import Workers, failure_words

MEASURES = (
    "accuracy", "adjusted_accuracy", "balanced_accuracy", "adjusted_balanced_accuracy", "tail_accuracy", "l1_score",
    "lam", "gap", "informativeness", "l1",
)  # fmt: skip


class Watcher:
    """Follows a run and ignores everything; a progress bar, TensorBoard and MLflow override what they need."""

    def line(self, trial: Trial, done: float, what: str) -> None:
        """A trial says what it is doing, and how much of it is done."""

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """A trial has ended; its rows are on the disk."""

    def retried(self, trial: Trial, why: str) -> None:
        """A trial, or what it needs, was lost and is begun again."""

    def failed(self, trial: Trial, why: str) -> None:
        """A trial could not go on; the others do."""


@dataclass(frozen=True, slots=True)
class Status:
    """How far an experiment is."""

    trials: int
    complete: int
    cycles: int
    cycles_done: int


@dataclass(frozen=True, slots=True)
class Task:
    """Something for a worker to do."""

    kind: str  # "model", "trial" or "sweep"
    trial: Trial
    then: tuple[Task, ...] = ()  # what can begin once it is done


RunTasks: TypeAlias = Callable[[list[Task], Store, tuple[Watcher, ...]], dict[str, str]]
"""Does the tasks of a plan, each followed by its `then`, notifies the watchers, returns the reasons of failures."""


def run_experiment(
    experiment: Experiment, store: Store, *, processes: int | None = None, watchers: tuple[Watcher, ...] = (),
    run_tasks: RunTasks | None = None, adopt: bool = False, data: PoolRecord | None = None,
) -> dict[str, str]:  # fmt: skip
    """Do all that is not done yet; gives the reasons of the trials that failed, by title.

    The work is done by `run_tasks`, such as that of a cluster; without it by `processes`, one per core. `adopt` takes
    results of a version that did not record their data as results of this data; without it they are refused.
    `data` is what `identify` gave just before, if it was called.
    """
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {store.folder}: {error.strerror or error}") from error
    with alone(store.folder):
        record = data or identify(experiment.pool)  # a fault of the pool is reported once, before anything runs
        if has_older_results(experiment, store):
            if not adopt:
                raise BadFile(
                    f"an older version of Tailwise left results in {store.folder} and did not record the data that "
                    "they belong to. If it was the same data, run again with --adopt to go on with them; else give "
                    "another --out"
                )
            adopt_older(experiment, store, record.content)
        store.keep_pool(record)
        write_whole(store.folder / "experiment.toml", experiment.to_toml().encode())
        plan = _plan(experiment, store, record.content)
        failed = (run_tasks or on_processes(processes))(plan, store, watchers)
        keep_results(experiment, store, record.content)
    return failed


def _plan(experiment: Experiment, store: Store, content: str) -> list[Task]:
    """What is left to do: for each factor and seed first the model, then the sweep (first seed only) and the trials."""
    groups: dict[tuple[float, int], list[Trial]] = {}
    for trial in trials_of(experiment, content):
        groups.setdefault((trial.factor, trial.seed), []).append(trial)
    plan = []
    for (_, seed), (first, *others) in groups.items():
        swept = seed != experiment.seeds[0] or store.sweep(first.folder).is_file()
        sweeps = [] if swept else [Task("sweep", first)]
        trials = [Task("trial", trial) for trial in (first, *others) if not store.is_complete(trial)]
        if sweeps or trials:
            plan.append(Task("model", first, (*sweeps, *trials)))
    return plan


def on_processes(processes: int | None = None) -> RunTasks:
    """Run tasks on so many processes, by default one per core, one thread each; in this one where one is enough."""

    def run_tasks(plan: list[Task], store: Store, watchers: tuple[Watcher, ...]) -> dict[str, str]:
        tasks = sum(len(first.then) for first in plan)
        workers = max(1, min(processes or cores(), tasks))
        return _run_here(plan, store, watchers) if workers == 1 else _run_apart(plan, store, workers, watchers)

    return run_tasks


def work(task: Task, report: Progress, *, store: Store) -> list[Row]:
    """Do a task, wherever this is; gives the rows of a trial."""
    task.trial.experiment.import_plugins()
    if task.kind == "trial":
        return run_trial(task.trial, store, report)
    (first_model if task.kind == "model" else sweep_lam)(task.trial, store, report)
    return []


def _run_here(plan: list[Task], store: Store, watchers: tuple[Watcher, ...]) -> dict[str, str]:
    """In this process, one after the other."""
    failed: dict[str, str] = {}
    for first in plan:
        for task in (first, *first.then):

            def report(done: float, what: str, trial: Trial = task.trial) -> None:
                for watcher in watchers:
                    watcher.line(trial, done, what)

            try:
                rows = work(task, report, store=store)
            except Exception as error:  # whatever it is, the other trials go on
                notify_failure(task, failure_words(error), watchers, failed)
            else:
                notify_end(task, rows, watchers)
    return failed


def _run_apart(plan: list[Task], store: Store, number: int, watchers: tuple[Watcher, ...]) -> dict[str, str]:
    """On several processes."""
    failures: dict[str, str] = {}

    def line(task: Task, done: float, what: str) -> None:
        for watcher in watchers:
            watcher.line(task.trial, done, what)

    def retried(task: Task, why: str) -> None:
        for watcher in watchers:
            watcher.retried(task.trial, why)

    def ended(task: Task, rows: list[Row]) -> Sequence[Task]:
        notify_end(task, rows, watchers)
        return task.then

    def failed(task: Task, why: str) -> Sequence[Task]:
        notify_failure(task, why, watchers, failures)
        return task.then  # where a model failed, its trials fail with the same words

    def lost(task: Task, why: str) -> None:
        for one in (task, *task.then):  # a model's trials would train it again, and be killed in turn
            notify_failure(one, why, watchers, failures)

    with environment(ONE_THREAD):
        Workers(
            number, partial(work, store=store), line=line, ended=ended, failed=failed, retried=retried,
            lost=lost, named=lambda task: f"the {task.kind} {task.trial.title}",
        ).run(plan)  # fmt: skip
    return failures


def notify_end(task: Task, rows: list[Row], watchers: tuple[Watcher, ...]) -> None:
    """Notify the watchers that a task is done."""
    if task.kind == "trial":
        for watcher in watchers:
            watcher.finished(task.trial, rows)


def notify_failure(task: Task, why: str, watchers: tuple[Watcher, ...], failed: dict[str, str]) -> None:
    """Record why a task failed and notify the watchers; a model's trials fail after it with the same reason."""
    if task.kind == "model":
        return
    failed[f"{task.kind}: {task.trial.title}"] = why
    for watcher in watchers:
        watcher.failed(task.trial, why)


# What is there.


def status_of(experiment: Experiment, store: Store, content: str | None = None) -> Status:
    """Count what is there, for data of this content; without one, for the data that the folder has recorded."""
    content = recorded_content(experiment, store).content if content is None else content
    return count_done(list(trials_of(experiment, content)), store)


def count_done(trials: Sequence[Trial], store: Store) -> Status:
    """How far some of the trials are."""
    done = [(trial, list(store.cycles(trial))) for trial in trials]
    return Status(
        trials=len(trials),
        complete=sum(store.is_complete(trial, cycles) for trial, cycles in done),
        cycles=sum(trial.experiment.cycles + 1 for trial in trials),
        cycles_done=sum(len(cycles) for _, cycles in done),
    )


def collect(experiment: Experiment, store: Store, content: str | None = None) -> list[Row]:
    """All rows that are there, in the order of the trials, under the name that the pool has now."""
    content = recorded_content(experiment, store).content if content is None else content
    name = store.pool_name(content)
    return [
        replace(cycle.row, settings=trial.settings, pool=name or cycle.row.pool)
        for trial in trials_of(experiment, content) for cycle in store.cycles(trial)
    ]  # fmt: skip


def keep_results(experiment: Experiment, store: Store, content: str | None = None) -> list[Row]:
    """Write all rows as results.csv, and as .parquet where pyarrow is installed."""
    rows = collect(experiment, store, content)
    write_rows(rows, store.folder / "results.csv")
    with suppress(ImportError):  # an extra; the .csv holds the same
        write_rows(rows, store.folder / "results.parquet")
    return rows


# Trackers.


class TensorBoard(Watcher):
    """One run per trial in a log folder, one point per cycle."""

    def __init__(self, folder: str) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:  # now, and not after hours of training
            raise MissingExtra.named("--tensorboard", "tensorboard", "tracking") from error
        self.folder, self._writer = folder, Writer

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Write the curves of a trial."""
        writer = self._writer(f"{self.folder}/{trial.folder}")
        for row in rows:
            for name, value in _numbers(row):
                writer.add_scalar(name, value, row.labelled)
        writer.close()


class Mlflow(Watcher):
    """One MLflow run per trial, in the experiment's name."""

    def __init__(self, uri: str) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise MissingExtra.named("--mlflow", "mlflow", "tracking") from error
        self._client = MlflowClient(tracking_uri=uri)

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Log the parameters and curves of a trial."""
        client = self._client
        experiment = client.get_experiment_by_name(trial.experiment.name)
        home = experiment.experiment_id if experiment else client.create_experiment(trial.experiment.name)
        run = client.create_run(home, run_name=trial.title, tags={"fingerprint": trial.fingerprint})
        for name in ("pool", "setting", "learner", "strategy", "balance", "seed"):
            client.log_param(run.info.run_id, name, getattr(rows[0], name))
        for row in rows:
            for name, value in _numbers(row):
                client.log_metric(run.info.run_id, name, value, step=row.labelled)
        client.set_terminated(run.info.run_id)


def _numbers(row: Row) -> list[tuple[str, float]]:
    values = ((name, float(getattr(row, name))) for name in MEASURES)
    return [(name, value) for name, value in values if math.isfinite(value)]
