"""The leaderboard's statistics: tidy scores in; paired gains, tests, ranks and saved labels out. Pure.

All comparisons are paired: two methods of a seed begin with the same labels on the same pool. Differences are in the
unit of the measure (shares, not points).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from benchmarks.quality.leaderboard.rows import FIRST_SET, RANDOM, RANDOM_LONG, CellKey, Method, Score
from tailwise.report.summary import labels_needed
from tailwise.types import Float64Array

Trial: TypeAlias = tuple[Score, ...]  # rounds, ascending
Trials: TypeAlias = Mapping[Method, Mapping[CellKey, Mapping[int, Trial]]]  # method → cell → seed

MEAN, END = "mean", "end"
SIGNIFICANT = 0.05
NO_TRIALS: Mapping[int, Trial] = {}


@dataclass(frozen=True, slots=True)
class Measure:
    """A number of a trial: a column of its scores, as the mean over its rounds or at the end."""

    column: str = "adjusted"
    at: str = MEAN

    def of(self, trial: Trial) -> float:
        """The number."""
        values = [getattr(score, self.column) for score in trial]
        return float(np.mean(values)) if self.at == MEAN else float(values[-1])


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of paired differences with its standard error and the p value of a two-sided paired t test.

    The t test, because Wilcoxon's p value cannot fall below 2⁻⁹ with ten seeds, which no correction for hundreds of
    comparisons survives: it could never show a loss. Each value is a mean over thousands of test images and some
    rounds, so that differences are close to normal.
    """

    mean: float
    error: float  # NaN for fewer than two seeds
    seeds: int
    p: float  # NaN for fewer than two seeds


@dataclass(frozen=True, slots=True)
class Test:
    """One method against another in a cell."""

    one: Method
    other: Method
    cell: CellKey
    measure: Measure
    difference: Difference
    holm: float  # p after Holm's correction over all tests of a list


@dataclass(frozen=True, slots=True)
class Overall:
    """The mean difference over cells, each weighing the same, with the standard error over seeds; pools are fixed."""

    mean: float
    error: float
    cells: int
    worst: float  # the smallest difference of a cell


@dataclass(frozen=True, slots=True)
class Ranks:
    """Mean ranks over cells, 1 is the best, with Friedman's test and Nemenyi's critical difference at 5 %."""

    mean: Mapping[Method, float]
    p: float
    critical: float
    cells: int


@dataclass(frozen=True, slots=True)
class Saved:
    """Labels saved against random selection, as a share; negative where random selection needs fewer."""

    share: float
    error: float  # jackknife over seeds
    limit: str = ""  # "≥" where random selection never got there, "≤" where its first labels were enough


def by_trial(scores: Iterable[Score]) -> Trials:
    """Scores by method, cell and seed."""
    found: dict[Method, dict[CellKey, dict[int, list[Score]]]] = {}
    for score in scores:
        found.setdefault(score.method, {}).setdefault(score.cell, {}).setdefault(score.seed, []).append(score)
    return {
        method: {
            cell: {seed: tuple(sorted(seeds[seed], key=lambda one: one.round)) for seed in sorted(seeds)}
            for cell, seeds in cells.items()
        }
        for method, cells in found.items()
    }


def trials_in(trials: Trials, method: Method, cell: CellKey) -> Mapping[int, Trial]:
    """Trials of a method in a cell by seed; none where it did not run."""
    return trials.get(method, {}).get(cell, NO_TRIALS)


def difference(values: Sequence[float]) -> Difference:
    """Mean, standard error and p value of paired differences.

    >>> difference([1.0, 2.0, 3.0])
    Difference(mean=2.0, error=0.577..., seeds=3, p=0.074...)
    """
    from scipy.special import stdtr

    count = len(values)
    mean = float(np.mean(values)) if count else math.nan
    if count < 2:
        return Difference(mean, math.nan, count, math.nan)
    error = float(np.std(values, ddof=1) / math.sqrt(count))
    if error == 0:
        return Difference(mean, 0.0, count, 1.0 if mean == 0 else 0.0)
    return Difference(mean, error, count, float(2 * stdtr(count - 1, -abs(mean) / error)))


def by_seed(trials: Trials, one: Method, other: Method, cell: CellKey, measure: Measure) -> dict[int, float]:
    """Differences of two methods by seed, for the seeds of both; only where they had equally many labels."""
    ours, theirs = trials_in(trials, one, cell), trials_in(trials, other, cell)
    return {
        seed: measure.of(ours[seed]) - measure.of(theirs[seed])
        for seed in sorted(ours.keys() & theirs.keys())
        if [score.labels for score in ours[seed]] == [score.labels for score in theirs[seed]]
    }


def compare(trials: Trials, one: Method, other: Method, cell: CellKey, measure: Measure) -> Difference:
    """One method minus another in a cell."""
    return difference(list(by_seed(trials, one, other, cell, measure).values()))


def compare_all(
    trials: Trials, one: Method, others: Sequence[Method], cells: Sequence[CellKey], measures: Sequence[Measure]
) -> list[Test]:
    """One method against each of the others in every cell and measure, with Holm's correction over all of them."""
    pairs = [(other, cell, measure) for other in others for cell in cells for measure in measures]
    found = [compare(trials, one, *pair) for pair in pairs]
    corrected = holm([single.p for single in found])
    together = zip(pairs, found, corrected, strict=True)
    return [Test(one, *pair, single, p) for pair, single, p in together if single.seeds > 1]


def holm(p_values: Sequence[float]) -> list[float]:
    """P values after Holm's step-down correction: the i-th smallest of m times m − i, never falling, at most 1.

    NaN stays NaN and does not count.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    known = [place for place, p in enumerate(p_values) if not math.isnan(p)]
    corrected, highest = [math.nan] * len(p_values), 0.0
    for rank, place in enumerate(sorted(known, key=lambda place: p_values[place])):
        highest = max(highest, min(1.0, (len(known) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def overall(trials: Trials, one: Method, other: Method, cells: Sequence[CellKey], measure: Measure) -> Overall:
    """The mean difference over the cells in which both ran with two common seeds or more.

    Regimes of one pool with one seed share images: their differences are averaged by seed before the standard error of
    the pool is taken. Pools are independent, so that their errors add up as squares.
    """
    pools: dict[str, list[dict[int, float]]] = {}
    for cell in cells:
        found = by_seed(trials, one, other, cell, measure)
        if len(found) > 1:
            pools.setdefault(cell[0], []).append(found)
    parts = [part for found in pools.values() for part in found]
    if not parts:
        return Overall(math.nan, math.nan, 0, math.nan)
    means = [float(np.mean(list(part.values()))) for part in parts]
    errors = [len(found) / len(parts) * _pool_error(found) for found in pools.values()]
    return Overall(float(np.mean(means)), math.sqrt(sum(error**2 for error in errors)), len(parts), min(means))


def _pool_error(found: Sequence[Mapping[int, float]]) -> float:
    """Standard error of the mean of a pool's cells; by seeds that all cells have, else cell by cell."""
    common = set.intersection(*(set(part) for part in found))
    if len(common) > 1:
        return difference([float(np.mean([part[seed] for part in found])) for seed in sorted(common)]).error
    return math.sqrt(sum(difference(list(part.values())).error ** 2 for part in found)) / len(found)


def cell_means(trials: Trials, methods: Sequence[Method], cells: Sequence[CellKey], measure: Measure) -> Float64Array:
    """Means over the seeds that all methods have, (cells, methods); NaN where they have none in common."""
    table = np.full((len(cells), len(methods)), np.nan)
    for row, cell in enumerate(cells):
        runs = [trials_in(trials, method, cell) for method in methods]
        common = set.intersection(*(set(run) for run in runs))
        if common:
            table[row] = [np.mean([measure.of(run[seed]) for seed in sorted(common)]) for run in runs]
    return table


def mean_ranks(trials: Trials, methods: Sequence[Method], cells: Sequence[CellKey], measure: Measure) -> Ranks:
    """Rank the methods in every cell (ties share a rank), and average; only cells that all methods have count."""
    from scipy.stats import friedmanchisquare, rankdata

    table = cell_means(trials, methods, cells, measure)
    table = table[~np.isnan(table).any(axis=1)]
    if len(methods) < 3 or len(table) < 2:
        return Ranks({}, math.nan, math.nan, len(table))
    ranks = rankdata(-table, axis=1).mean(axis=0)  # (methods,)
    all_tied = not np.ptp(table, axis=1).any()  # scipy divides by zero there
    p = 1.0 if all_tied else float(friedmanchisquare(*table.T).pvalue)
    critical = critical_difference(len(methods), len(table))
    return Ranks(dict(zip(methods, ranks.tolist(), strict=True)), p, critical, len(table))


def critical_difference(methods: int, cells: int, alpha: float = 0.05) -> float:
    """Nemenyi's: mean ranks that differ by less are not told apart. q·√(k(k + 1)/(6N)), q of the studentized range.

    >>> round(critical_difference(5, 30), 3)
    1.114
    """
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(1 - alpha, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * cells))


def not_told_apart(ranks: Ranks) -> list[tuple[Method, ...]]:
    """The largest groups of neighbours in rank that lie within the critical difference, two methods or more."""
    ordered = sorted(ranks.mean, key=lambda method: ranks.mean[method])
    groups: list[tuple[Method, ...]] = []
    last = 0
    for start, first in enumerate(ordered):
        end = max(at for at, one in enumerate(ordered) if ranks.mean[one] - ranks.mean[first] <= ranks.critical) + 1
        if end > last and end - start > 1:
            groups.append(tuple(ordered[start:end]))
        last = max(last, end)
    return groups


def labels_saved(trials: Trials, method: Method, cell: CellKey, measure: Measure) -> Saved:
    """How many labels less than random selection a method needs for the accuracy that it has, as a share.

    With n labels a method is as good as random selection with N, read off the mean curve of random selection over the
    same seeds by straight lines between its points. The share is 1 − n/N, and N/n − 1 where N is smaller than n, so
    that −50 % is the opposite of 50 %. Random selection goes on to about 3.5 times the labels; where even that is not
    enough, N is that number and the share a lower limit. Where its first labels are enough already, N is their
    number and the share an upper limit. Over rounds the mean is taken; it is limited where one of its rounds is.
    """
    needed = (method, FIRST_SET, RANDOM, RANDOM_LONG)
    seeds = sorted(set.intersection(*(set(trials_in(trials, one, cell)) for one in needed)))
    if not seeds:
        return Saved(math.nan, math.nan)
    share, limit = _saved(trials, method, cell, measure, seeds)
    if len(seeds) < 2:
        return Saved(share, math.nan, limit)
    without = [_saved(trials, method, cell, measure, [one for one in seeds if one != left])[0] for left in seeds]
    error = math.sqrt((len(seeds) - 1) / len(seeds) * float(np.sum((np.array(without) - np.mean(without)) ** 2)))
    return Saved(share, error, limit)


def _saved(trials: Trials, method: Method, cell: CellKey, measure: Measure, seeds: Sequence[int]) -> tuple[float, str]:
    labels, values = random_curve(trials, cell, measure.column, seeds)
    own = _mean_curve([trials_in(trials, method, cell)[seed] for seed in seeds], measure.column)
    found = [_saved_at(here, reached, labels, values) for here, reached in own[-1 if measure.at == END else 0 :]]
    limits = {limit for _, limit in found if limit}
    return float(np.mean([share for share, _ in found])), limits.pop() if len(limits) == 1 else "≈" * bool(limits)


def _saved_at(here: float, reached: float, labels: Sequence[float], values: Sequence[float]) -> tuple[float, str]:
    needed = labels_needed(labels, values, reached)
    limit = "≥" if math.isnan(needed) else "≤" if needed == labels[0] else ""
    needed = labels[-1] if math.isnan(needed) else needed
    return (1 - here / needed if needed >= here else needed / here - 1), limit


def random_curve(trials: Trials, cell: CellKey, column: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
    """Labels and mean accuracy of random selection: the first set, its rounds, and beyond them the long trials."""
    points: list[tuple[float, float]] = []
    for method in (FIRST_SET, RANDOM, RANDOM_LONG):
        found = _mean_curve([trials_in(trials, method, cell)[seed] for seed in seeds], column)
        points += [point for point in found if not points or point[0] > points[-1][0]]
    return [labels for labels, _ in points], [value for _, value in points]


def _mean_curve(runs: Sequence[Trial], column: str) -> list[tuple[float, float]]:
    """Labels and mean value of each round."""
    return [
        (float(scores[0].labels), float(np.mean([getattr(score, column) for score in scores])))
        for scores in zip(*runs, strict=True)
    ]
