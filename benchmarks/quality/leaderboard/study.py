"""The leaderboard's study, defined once: pools, regimes, methods and seeds; runs what is missing, gives tidy scores.

Every method of a seed begins with the same first set, drawn from the pool by chance. The trials are those of
`tailwise.experiments`: they go on where they were stopped, on any number of processes with one BLAS thread each.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.quality.leaderboard.rows import (
    LONG,
    RANDOM,
    START,
    CellKey,
    Key,
    Method,
    Score,
    scores_of,
    settings_text,
)
from tailwise.campaign.state import Settings
from tailwise.cli.bench import ProgressLines
from tailwise.errors import BadInput, UnknownName
from tailwise.experiments.experiment import Experiment, Trial, balance_name, trials_of
from tailwise.experiments.runner import Task, Watcher, on_processes, run_experiment
from tailwise.experiments.store import PoolRecord, Store, identify, recorded_content
from tailwise.solver.path import parse_balance
from tailwise.strategies import STRATEGIES, make

LONG_ROUNDS = 6  # of the random trials that go on to many more labels
LEFT_OUT = {
    "vaal": "trains two nets for every batch",
    "coreset": "takes minutes for every batch",
}
ONLY_BALANCED = {"entropy-l1-pseudo-label"}  # without balance it is entropy
NEVER_BALANCED = {"direct", "galaxy"}  # "auto" is the same as no balance


@dataclass(frozen=True, slots=True)
class Source:
    """A pool, and how its tail is made."""

    name: str
    shown: str
    file: str  # below the data folder; empty for the embedded digits
    classes: int  # C; the first ones of the file
    factor: float = 1.0  # of the exponential tail, whose classes depend on the seed; 1: the tail that the data has


@dataclass(frozen=True, slots=True)
class Cell:
    """One pool in one regime."""

    source: Source
    regime: str
    initial: int
    budget: int
    rounds: int

    @property
    def key(self) -> CellKey:
        """As scores name it."""
        return self.source.name, self.regime

    @property
    def long_batches(self) -> int:
        """Batches per round of the random trials that go on to about 3.5 times the labels of the others."""
        return -(-4 * self.rounds // LONG_ROUNDS)


SOURCES = (
    Source("cifar.1", "CIFAR-10, tail 0.1", "cifar10_features.npz", 10, 0.1),
    Source("cifar.01", "CIFAR-10, tail 0.01", "cifar10_features.npz", 10, 0.01),
    Source("tiny50", "Tiny ImageNet 50, tail 0.01", "tinyimagenet_features.npz", 50, 0.01),
    Source("tiny100", "Tiny ImageNet 100, tail 0.01", "tinyimagenet_features.npz", 100, 0.01),
    Source("tiny200", "Tiny ImageNet 200, tail 0.1", "tinyimagenet_features.npz", 200, 0.1),
    Source("gtsrb", "Traffic signs (GTSRB)", "gtsrb_features.npz", 43),
    Source("flowers", "Flowers-102", "flowers_features.npz", 102),
    Source("fish", "Fish4Knowledge", "fish_features.npz", 22),
    Source("seedlings", "Plant seedlings", "seedlings_features.npz", 12),
    Source("blood", "Blood cells", "bloodcells_features.npz", 11),
)
LONG_TAILS = (
    Source("tiny200-10", "Tiny ImageNet, tail 1:10", "tinyimagenet_features.npz", 200, 1 / 10),
    Source("tiny200-50", "Tiny ImageNet, tail 1:50", "tinyimagenet_features.npz", 200, 1 / 50),
)


def few(source: Source) -> Cell:
    """About one label per class, and as many more in each of six rounds."""
    size = max(source.classes, 20)
    return Cell(source, "few", size, size, 6)


def more(source: Source) -> Cell:
    """Hundreds of labels, and a hundred more in each round."""
    if source.name.startswith("cifar"):
        return Cell(source, "more", 100, 100, 6)
    return Cell(source, "more", 300 if source.classes < 100 else 400, 100, 5)


@dataclass(frozen=True, slots=True)
class Board:
    """Cells, and which methods run in them with which seeds."""

    name: str
    cells: tuple[Cell, ...]
    methods: tuple[Method, ...]
    seeds: tuple[tuple[int, ...], ...]  # blocks: all cells have a block before any has the next
    nearest: tuple[Method, ...] = ()  # run with `more_seeds`, too
    more_seeds: tuple[int, ...] = ()

    def parts(self) -> Iterator[tuple[tuple[int, ...], tuple[Method, ...]]]:
        """Blocks of seeds, each with the methods that run in it."""
        for block in self.seeds:
            yield block, self.methods
        if self.more_seeds and self.nearest:
            yield self.more_seeds, self.nearest


def default_method() -> Method:
    """What a campaign does where nothing else is asked for."""
    usual = Settings()
    return Method(usual.strategy, "" if balance_name(usual.balance) == "0" else usual.balance)


def registered_methods() -> tuple[Method, ...]:
    """Every strategy that can run here, without balance and with "auto" where it has a balanced form."""
    found = [Method(name, settings) for name in STRATEGIES if name not in LEFT_OUT for settings in ("", "auto")]
    return tuple(one for one in found if _runs(one))


def _runs(method: Method) -> bool:
    if method.strategy in (NEVER_BALANCED if method.settings else ONLY_BALANCED):
        return False
    try:
        make(method.strategy, balance=parse_balance(method.balance), **method.own_settings)
    except (BadInput, UnknownName):
        return False
    return True


def nearest_rivals(methods: Sequence[Method]) -> tuple[Method, ...]:
    """The default and those that it is compared with first."""
    wanted = (default_method(), *(Method(name) for name in RIVALS), Method("boundary", "auto"))
    return tuple(one for one in dict.fromkeys(wanted) if one in methods)


RIVALS = ("random", "margin", "typiclust", "base", "badge")
BLOCKS = ((0, 1), (2, 3, 4), (5, 6, 7, 8, 9))
BOARDS = ("leaderboard", "leaderboard-longtail", "leaderboard-parts")
PARTS = {  # of the boundary strategy: what is left of it without one of them
    Method("boundary", "auto cold=0, sure=0"): "without covering the pool first",
    Method("boundary", "auto sure=0"): "covering it only while labels are few, however unsure the model is",
    Method("boundary", "auto cold=1000000"): "covering the pool all the time",
    Method("boundary", "auto near=1"): "the images nearest to the borders, whatever they cover",
    Method("boundary"): "without quotas",
}


def board(name: str, methods: Sequence[Method] | None = None) -> Board:
    """A study by its name.

    "leaderboard" is every method; "leaderboard-longtail" the long-tail protocol of dal-toolbox for the nearest rivals;
    "leaderboard-parts" the boundary strategy without each of its parts.
    """
    chosen = tuple(registered_methods() if methods is None else methods)
    if name == "leaderboard-longtail":
        cells = tuple(Cell(source, "long", 100, 100, 20) for source in LONG_TAILS)
        return Board(name, cells, chosen if methods else nearest_rivals(chosen), BLOCKS)
    cells = tuple(regime(source) for source in SOURCES for regime in (few, more))
    if name == "leaderboard-parts":
        parts = tuple(one for one in PARTS if _runs(one) and one.strategy in {method.strategy for method in chosen})
        return Board(name, cells, parts, BLOCKS)
    return Board(name, cells, chosen, BLOCKS, nearest_rivals(chosen), tuple(range(10, 20)))


def quick_board(methods: Sequence[Method] | None = None) -> Board:
    """Two minutes: two small pools, two rounds, two seeds, three methods; shows that everything works, nothing else."""
    cells = tuple(replace(few(source), rounds=2) for source in SOURCES if source.name in ("seedlings", "gtsrb"))
    chosen = methods or (Method("random"), Method("margin"), default_method())
    return Board("leaderboard-quick", cells, tuple(dict.fromkeys(chosen)), ((0, 1),))


def experiment(
    cell: Cell, data: Path, methods: Iterable[Method], seeds: Sequence[int], *, batches: int = 1
) -> Experiment:
    """The trials of a cell; with `batches` above 1 those that go on to many more labels, so many batches at a time."""
    source = cell.source
    features = {"name": "features", "path": str(data / source.file), "settings": {"classes": source.classes}}
    return Experiment.model_validate({
        "name": f"leaderboard-{source.name}-{cell.regime}".replace(".", "-"),
        "pool": features if source.file else {"name": "digits"},
        "imbalance": {"profile": "exponential", "factors": [source.factor], "tail": "random"},
        "start": {"initial": cell.initial, "draw": "pool"},
        "budget": cell.budget * batches,
        "cycles": cell.rounds if batches == 1 else LONG_ROUNDS,
        "seeds": list(seeds),
        "lam": "every",  # as in a campaign
        "strategies": [
            {"name": one.strategy, "balance": [one.balance], "settings": one.own_settings} for one in methods
        ],
    })  # fmt: skip


@dataclass(frozen=True, slots=True)
class Runs:
    """Where trials are kept, and how they are run."""

    folder: Path
    data: Path
    known: frozenset[Key] = frozenset()  # trials that are published: they are not run again
    processes: int | None = None
    anew: bool = False  # forget earlier trials of the methods first

    def store(self, cell: Cell) -> Store:
        """The folder of a cell."""
        return Store(self.folder / f"{cell.source.name}-{cell.regime}")

    def plans(self, cell: Cell, methods: Sequence[Method], seeds: Sequence[int]) -> list[Plan]:
        """All trials of a cell with these seeds; random selection also with many more labels."""
        usual = Plan(cell, experiment(cell, self.data, methods, seeds))
        baseline = [one for one in methods if one == RANDOM]
        if not baseline:
            return [usual]
        longer = experiment(cell, self.data, baseline, seeds, batches=cell.long_batches)
        return [usual, Plan(cell, longer, LONG, cell.long_batches)]


@dataclass(frozen=True, slots=True)
class Plan:
    """An experiment of a cell, and how its rows are named."""

    cell: Cell
    experiment: Experiment
    settings: str | None = None
    step: int = 1

    def key(self, trial: Trial) -> Key:
        """The trial as scores name it."""
        settings = settings_text(balance_name(trial.balance), trial.settings)
        return *self.cell.key, trial.part.name, settings if self.settings is None else self.settings, trial.seed

    def scores(self, store: Store, trial: Trial) -> list[Score]:
        """Those of a trial, if it is whole."""
        cycles = list(store.cycles(trial))
        if not store.is_complete(trial, cycles):
            return []
        return scores_of((one.row for one in cycles), *self.cell.key, self.settings, self.step)


def run_board(study: Board, runs: Runs, minutes: float | None = None) -> dict[str, str]:
    """Run what is missing; gives the reasons of the trials that failed. After `minutes` no further cell is begun."""
    started, failed = time.monotonic(), dict[str, str]()
    for seeds, methods in study.parts():
        for cell in study.cells if methods else ():
            if minutes is not None and time.monotonic() - started > 60 * minutes:
                return failed
            record = None
            for plan in runs.plans(cell, methods, seeds):
                record = record or identify(plan.experiment.pool)
                failed |= _run_plan(plan, runs, record)
    return failed


def _run_plan(plan: Plan, runs: Runs, record: PoolRecord) -> dict[str, str]:
    store = runs.store(plan.cell)
    trials = list(trials_of(plan.experiment, record.content))
    if runs.anew:
        for trial in trials:
            shutil.rmtree(store.trial(trial), ignore_errors=True)
    missing = {plan.key(trial) for trial in trials if not store.is_complete(trial)} - runs.known
    if not missing:
        return {}

    def run_tasks(tasks: list[Task], store: Store, watchers: tuple[Watcher, ...]) -> dict[str, str]:
        """The trials alone, without the λ sweep of usual experiments."""
        kept = [
            replace(
                task, then=tuple(one for one in task.then if one.kind == "trial" and plan.key(one.trial) in missing)
            )
            for task in tasks
        ]
        return on_processes(runs.processes)([task for task in kept if task.then], store, watchers)

    where, seeds = f"{plan.cell.source.name} {plan.cell.regime}", plan.experiment.seeds
    print(f"{where}, seeds {min(seeds)}-{max(seeds)}: {len(missing)} trials", file=sys.stderr, flush=True)
    failed = run_experiment(
        plan.experiment, store, run_tasks=run_tasks, data=record, watchers=(ProgressLines(len(missing)),)
    )
    return {f"{where} {title}": why for title, why in failed.items()}


def collect_scores(study: Board, runs: Runs) -> list[Score]:
    """Scores of all whole trials in the folder; round 0 of each seed once."""
    found: list[Score] = []
    for cell in study.cells:
        store = runs.store(cell)
        starts: dict[int, Score] = {}
        for seeds, methods in study.parts() if study.methods else ():
            for plan in runs.plans(cell, methods, seeds):
                for trial in trials_of(plan.experiment, recorded_content(plan.experiment, store).content):
                    scores = plan.scores(store, trial)
                    found += scores[1:]
                    starts |= {one.seed: one for one in scores[:1]}
        found += [replace(one, strategy=START, settings="", seconds=math.nan) for one in starts.values()]
    return found


def merged(older: Iterable[Score], newer: Iterable[Score]) -> list[Score]:
    """All scores, each once; where both have a trial the newer ones count."""
    kept = {(one.trial, one.round): one for one in newer}
    done = {trial for trial, _ in kept}
    return [*(one for one in older if one.trial not in done), *kept.values()]
