"""`python -m benchmarks.quality.cold_start --data FOLDER`: which first batch a campaign should begin with.

Nothing is labelled, and features are all there is. Each way to choose the first batch is followed by the default
strategy; random picks stay random. Rows go to tailwise-runs, a table to docs/results/cold-start.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.quality.leaderboard.study import SOURCES, Source
from tailwise.campaign.choosing import main_axes
from tailwise.campaign.state import Settings
from tailwise.cycle import choose, class_shares, fit, mark
from tailwise.files import csv_bytes, write_whole
from tailwise.learners import LinearLearner
from tailwise.pools.features import features
from tailwise.pools.pool import LabelledImages, Pool, exponential_profile, keep_counts
from tailwise.processes import one_blas_thread
from tailwise.report.tables import with_spread
from tailwise.strategies import cold_start, make
from tailwise.types import IntArray

RESULTS = Path("docs/results/cold-start")
ROWS = Path("tailwise-runs/quality/cold-start.csv")
RANDOM = "random"
ALL_AXES = 10**6
STARTS = {  # strategy, and along how many main axes of the features
    RANDOM: (RANDOM, ALL_AXES),
    "typiclust, 64 axes": ("typiclust", 64),
    "maxherding, 64 axes": ("maxherding", 64),
    "maxherding": ("maxherding", ALL_AXES),
    "boundary, 64 axes": ("boundary", 64),
    "boundary": ("boundary", ALL_AXES),
}
POOLS = ("cifar.01", "tiny100", "gtsrb", "flowers", "fish", "seedlings", "blood")
TUNED_ON = POOLS[:3]  # the choice was made on these, and checked on the others
COMMON = 100  # the usual budget of a round
MEASURES = ("adjusted", "plain", "found")


@dataclass(frozen=True, slots=True)
class Row:
    """One round of one campaign."""

    pool: str
    budget: int
    seed: int
    start: str
    round: int
    labels: int
    adjusted: float  # balanced accuracy, decisions divided by the classes' shares
    plain: float  # balanced accuracy
    found: int  # classes with labels
    seconds: float  # to choose the batch


def load(folder: Path, source: Source, seed: int) -> Pool:
    """Another pool for each seed: a random half, or a long tail cut from a balanced pool, with other rare classes."""
    pool = features(folder / source.file, classes=source.classes)
    rng, size = np.random.default_rng(seed), len(pool.train.labels)
    if source.factor == 1:
        return replace(pool, train=pool.train.take(np.sort(rng.choice(size, size // 2, replace=False))))
    counts = np.full(source.classes, pool.train.counts().min())
    wanted = exponential_profile(counts, source.factor, rng.permutation(source.classes))
    return replace(pool, train=pool.train.take(keep_counts(pool.train.labels, wanted, rng)))


def run(pool: Pool, start: str, budget: int, rounds: int, seed: int) -> Iterator[tuple[int, IntArray, float]]:
    """The labelled rows after each round, and the seconds that choosing took."""
    labelled, everything = np.empty(0, np.int64), np.arange(len(pool.train.labels))
    strategy = make(RANDOM) if start == RANDOM else make(Settings().strategy, balance=Settings().balance)
    for number in range(1, rounds + 1):
        began, left = time.perf_counter(), np.setdiff1d(everything, labelled)
        if number == 1:
            picks = first_batch(pool.train, start, budget, seed)
        else:
            known, learner = pool.train.take(labelled), LinearLearner()
            picks = choose(
                strategy, learner, fit(learner, known, seed=number), known, pool.train.inputs[left], budget,
                seed=1000 * seed + number,
            ).selection.indices  # fmt: skip
        labelled = np.concatenate([labelled, left[picks]])
        yield number, labelled, time.perf_counter() - began


def first_batch(train: LabelledImages, start: str, budget: int, seed: int) -> IntArray:
    """Rows chosen by features alone."""
    name, axes = STARTS[start]
    points = np.asarray(train.inputs)
    short, _ = main_axes(points, points[:0], axes)
    return make(name, balance=0).select(cold_start(short, classes=train.classes), budget, seed=seed).indices


def measure(folder: Path, source: Source, starts: Sequence[str], rounds: int, seed: int) -> list[Row]:
    """All campaigns of one pool and one seed."""
    found = []
    with one_blas_thread():
        pool = load(folder, source, seed)
        for budget in sorted({max(20, source.classes), COMMON}):
            for start in starts:
                for number, labelled, seconds in run(pool, start, budget, rounds, seed):
                    known = pool.train.take(labelled)
                    model = fit(LinearLearner(), known, seed=0)
                    rest = pool.train.inputs[np.setdiff1d(np.arange(len(pool.train.labels)), labelled)]
                    marks = mark(model, pool.test, class_shares(known, np.asarray(model.predict_proba(rest))))
                    found.append(Row(
                        source.name, budget, seed, start, number, len(labelled), marks.adjusted_balanced_accuracy,
                        marks.balanced_accuracy, int(np.count_nonzero(known.counts())), round(seconds, 2),
                    ))  # fmt: skip
    return found


def table(rows: Sequence[Row]) -> str:
    """Gains over random after the first batch and in the mean of later rounds, paired by seed, ± standard error."""
    lines = [
        "| pool, budget | start | seeds | first batch: adjusted | plain | classes found | "
        "later rounds: adjusted | plain | classes found | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    cells = list(dict.fromkeys((row.pool, row.budget) for row in rows))
    groups = {f"{pool}, {budget}": [(pool, budget)] for pool, budget in cells}
    groups["**tuned on**"] = [cell for cell in cells if cell[0] in TUNED_ON]
    groups["**the others**"] = [cell for cell in cells if cell[0] not in TUNED_ON]
    for name, group in groups.items():
        mine = [row for row in rows if (row.pool, row.budget) in group]
        lines += [f"| {name} | {_line(mine, start)} |" for start in dict.fromkeys(row.start for row in mine)]
    return "\n".join(lines) + "\n"


def _line(rows: Sequence[Row], start: str) -> str:
    seeds = len({row.seed for row in rows})
    parts = [start, str(seeds)]
    for later in (False, True):
        mine = [row for row in rows if (row.round > 1) == later]
        parts += [_gain(mine, start, measure) if mine else "–" for measure in MEASURES]
    seconds = [row.seconds for row in rows if row.start == start and row.round == 1]
    return " | ".join([*parts, f"{np.mean(seconds):.1f}"])


def _gain(rows: Sequence[Row], start: str, measure: str) -> str:
    """The level of random picks; else the mean difference to them, over cells, with the standard error of that mean."""
    unit = 1.0 if measure == "found" else 100.0
    values: dict[tuple[str, int], dict[int, list[float]]] = {}
    base = {_place(row): getattr(row, measure) for row in rows if row.start == RANDOM}
    for row in rows:
        if row.start == start:
            less = 0.0 if start == RANDOM else base[_place(row)]
            gain = unit * (getattr(row, measure) - less)
            values.setdefault((row.pool, row.budget), {}).setdefault(row.seed, []).append(gain)
    means = {cell: [float(np.mean(one)) for one in by_seed.values()] for cell, by_seed in values.items()}
    mean = float(np.mean([np.mean(one) for one in means.values()]))
    variance = sum(np.var(one, ddof=1) / len(one) for one in means.values() if len(one) > 1) / len(means) ** 2
    return f"{mean:.1f}" if start == RANDOM else with_spread(mean, math.sqrt(variance), sign=True)


def _place(row: Row) -> tuple[str, int, int, int]:
    return row.pool, row.budget, row.seed, row.round


def main() -> int:
    """Measure, and write the rows and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.cold_start", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the feature files")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="the first batch alone, or with rounds of the default")
    parser.add_argument("--only", action="append", choices=POOLS, help="a pool; may be given more than once")
    parser.add_argument("--start", action="append", choices=list(STARTS), help="may be given more than once")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    starts = list(dict.fromkeys([RANDOM, *(given.start or STARTS)]))
    sources = [one for one in SOURCES if one.name in (given.only or POOLS)]
    rows: list[Row] = []
    with ProcessPoolExecutor(given.processes) as executor:
        for seed in range(given.seeds):
            job = partial(measure, given.data, starts=starts, rounds=given.rounds, seed=seed)
            for found in executor.map(job, sources):
                rows += found
                write(rows, given.out)
    print(table(rows))
    return 0


def write(rows: Sequence[Row], folder: Path) -> None:
    """All rows and the table, as far as there are any."""
    for place in (ROWS.parent, folder):
        place.mkdir(parents=True, exist_ok=True)
    write_whole(ROWS, csv_bytes([field.name for field in fields(Row)], [astuple(row) for row in rows]))
    write_whole(folder / "table.md", table(rows).encode())


if __name__ == "__main__":
    raise SystemExit(main())
