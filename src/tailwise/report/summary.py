"""What an experiment says, in numbers: rows of trials in; curves, paired gains, label savings and count errors out.

Pure. Means and standard deviations (ddof 1) are over seeds; a gain is paired: both methods of a seed start alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import BadInput
from ..experiments.experiment import Row
from .names import Condition, Method, Study, classical_form, method_order, study_methods

MEASURES = ("accuracy", "adjusted_accuracy", "balanced_accuracy", "tail_accuracy", "l1_score")
CLEAR = 2.0  # standard errors that a gain must be away from zero to be called one

Trials = dict[int, dict[int, Row]]  # seed → cycle → row


@dataclass(frozen=True, slots=True)
class Band:
    """A mean over seeds, with its spread; the spread of one seed is NaN, not 0."""

    mean: float
    std: float
    seeds: int

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.std / math.sqrt(self.seeds) if self.seeds else math.nan


@dataclass(frozen=True, slots=True)
class Point:
    """One cycle of a method, over its seeds."""

    cycle: int
    labelled: float
    share: float
    accuracy: Band
    adjusted_accuracy: Band
    balanced_accuracy: Band
    tail_accuracy: Band
    l1_score: Band

    def measure(self, name: str) -> Band:
        """One of MEASURES, by name."""
        found: Band = getattr(self, name)
        return found


@dataclass(frozen=True, slots=True)
class Curve:
    """The learning curve of a method in a condition."""

    condition: Condition
    method: Method
    points: tuple[Point, ...]  # ascending cycles

    def has(self, measure: str) -> bool:
        """Whether there is a number at all: a balanced pool has no tail."""
        return any(not math.isnan(point.measure(measure).mean) for point in self.points)

    @property
    def last(self) -> Point:
        """The end of the curve."""
        return self.points[-1]


@dataclass(frozen=True, slots=True)
class Gain:
    """What balance adds to a strategy at a cycle: the mean of the paired differences, over common seeds."""

    condition: Condition
    method: Method
    base: Method
    cycle: int  # ALL_CYCLES for the mean of a seed's cycles
    labelled: float
    share: float
    difference: Band  # in the unit of the measure: shares, not points

    @property
    def verdict(self) -> str:
        """One of "up", "down", "within noise" (nearer to zero than two standard errors) and "one seed"."""
        mean, error = self.difference.mean, self.difference.error
        if math.isnan(error):
            return "one seed"
        if mean == 0 or abs(mean) < CLEAR * error:
            return "within noise"
        return "up" if mean > 0 else "down"


ALL_CYCLES = -1


@dataclass(frozen=True, slots=True)
class Saving:
    """Labels that a method needs for an accuracy, the initial set included, compared with those of a reference."""

    condition: Condition
    method: Method
    reference: Method
    level: float
    needed: float  # labels; NaN where the level is not reached
    reference_needed: float  # NaN where the reference does not reach it
    reference_most: float  # labels at the end of the reference's curve
    ahead: int  # seeds in which the method alone got there first
    seeds: int  # common seeds

    @property
    def share(self) -> float:
        """Share of labels saved; where the reference never got there, the least that it can be. NaN: not reached."""
        against = self.reference_most if math.isnan(self.reference_needed) else self.reference_needed
        return 1 - self.needed / against

    @property
    def at_least(self) -> bool:
        """Whether `share` is a lower limit, because the reference does not reach the level."""
        return math.isnan(self.reference_needed) and not math.isnan(self.needed)


@dataclass(frozen=True, slots=True)
class CountError:
    """How far the class counts of a batch were from the expected ones, over seeds."""

    condition: Condition
    method: Method
    cycle: int
    picks: float
    absolute: Band  # mean over classes of |expected − realised|, as a share of the batch
    misplaced: Band  # Σ|expected − realised| / 2 as a share of the batch: images in another class than expected
    worst: int  # the class with the largest mean error
    worst_expected: float
    worst_realised: float


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """Rows of an experiment in their order: condition → method → seed → cycle."""

    trials: dict[Condition, dict[Method, Trials]]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Results:
        """Group rows; their order does not matter, but no cycle of a trial may be there twice."""
        rows = list(rows)
        if not rows:
            raise BadInput("nothing to report: there are no rows; run the experiment first")
        methods = study_methods(rows)
        found: dict[Condition, dict[Method, Trials]] = {}
        for row in rows:
            condition = Condition(row.pool, row.learner, row.setting, row.imbalance)
            method = methods[row.pool, row.learner, row.strategy, row.balance, row.settings]
            cycles = found.setdefault(condition, {}).setdefault(method, {}).setdefault(row.seed, {})
            if row.cycle in cycles:
                raise BadInput(
                    f"cycle {row.cycle} of {method.label}, seed {row.seed}, on {row.pool} ({row.setting}) is there "
                    "twice; report one experiment at a time"
                )
            cycles[row.cycle] = row
        # From balanced to most imbalanced, as in the paper.
        in_order = sorted(found, key=lambda one: (one.pool, one.learner, -one.imbalance, one.setting))
        return cls({condition: _ordered(found[condition]) for condition in in_order})

    @property
    def studies(self) -> list[Study]:
        """Pools and learners, each with its conditions from balanced to most imbalanced."""
        pairs = dict.fromkeys((condition.pool, condition.learner) for condition in self.trials)
        return [Study(*pair, tuple(one for one in self.trials if (one.pool, one.learner) == pair)) for pair in pairs]

    def find(self, condition: Condition, strategy: str, *, balanced: bool = False, settings: str = "") -> Method | None:
        """The method with this strategy, balanced or not; of several that with these settings, else the first."""
        fitting = [one for one in self.trials[condition] if one.strategy == strategy and one.balanced is balanced]
        return next((one for one in fitting if one.settings == settings), fitting[0] if fitting else None)

    @property
    def seeds(self) -> list[int]:
        """Every seed that ran somewhere."""
        runs = (trials for methods in self.trials.values() for trials in methods.values())
        return sorted({seed for trials in runs for seed in trials})


def band(values: Sequence[float]) -> Band:
    """Mean and standard deviation (ddof 1).

    >>> band([1.0, 3.0])
    Band(mean=2.0, std=1.4142135623730951, seeds=2)
    >>> band([5.0])
    Band(mean=5.0, std=nan, seeds=1)
    """
    count = len(values)
    mean = float(np.mean(values)) if count else math.nan
    return Band(mean, float(np.std(values, ddof=1)) if count > 1 else math.nan, count)


def curve(results: Results, condition: Condition, method: Method) -> Curve:
    """The learning curve: at each cycle over the seeds that got there."""
    trials = results.trials[condition][method]
    cycles = sorted({cycle for cycles in trials.values() for cycle in cycles})
    return Curve(
        condition, method, tuple(_point([c[cycle] for c in trials.values() if cycle in c]) for cycle in cycles)
    )


def curves(results: Results, condition: Condition) -> list[Curve]:
    """One curve per method of a condition."""
    return [curve(results, condition, method) for method in results.trials[condition]]


def pairs(results: Results, condition: Condition) -> list[tuple[Method, Method]]:
    """Each balanced method with its classical form, where both ran."""
    found = []
    for method in results.trials[condition]:
        if method.balanced:
            base = results.find(condition, classical_form(method.strategy), settings=method.settings)
            found += [(method, base)] if base is not None else []
    return found


def gains(results: Results, condition: Condition, measure: str = "accuracy") -> list[Gain]:
    """Gains of every balanced method over its base, cycle by cycle from 1 (cycle 0 is shared, its gain is 0)."""
    found = []
    for method, base in pairs(results, condition):
        ours, theirs = results.trials[condition][method], results.trials[condition][base]
        cycles = sorted({cycle for trial in ours.values() for cycle in trial if cycle > 0})
        for cycle in cycles:
            both = _both(ours, theirs, cycle)
            if both:
                found.append(_gain(condition, method, base, cycle, both, _differences(both, measure)))
    return found


def mean_gains(
    results: Results, condition: Condition, measure: str = "accuracy", *, over: Method | None = None
) -> list[Gain]:
    """Gains over all cycles from 1 on: each seed's mean over the cycles, then mean and error over seeds.

    Of each balanced method over its base, or of all methods over one of them. One number per method, steadier than
    that of any one cycle. Seeds that ended early are left out.
    """
    found = []
    compared = [(one, over) for one in results.trials[condition] if one != over] if over else pairs(results, condition)
    for method, base in compared:
        ours, theirs = results.trials[condition][method], results.trials[condition][base]
        cycles = sorted({cycle for trial in ours.values() for cycle in trial if cycle > 0})
        per_cycle = [both for both in (_both(ours, theirs, cycle) for cycle in cycles) if both]
        whole = set.intersection(*(set(both) for both in per_cycle)) if per_cycle else set()
        if whole:
            table = [_differences({seed: both[seed] for seed in sorted(whole)}, measure) for both in per_cycle]
            means = np.mean(table, axis=0).tolist()
            found.append(_gain(condition, method, base, ALL_CYCLES, per_cycle[-1], means))
    return found


def labels_needed(labelled: Sequence[float], accuracy: Sequence[float], level: float) -> float:
    """Labels at which a learning curve first meets a level, by straight lines between its points; NaN if never.

    The first crossing of the curve itself, not of its running maximum: after a dip that is the later, careful answer.
    A level that the first point meets needs no more labels than that point has.

    >>> labels_needed([100, 200], [0.5, 0.7], 0.6)
    150.0
    >>> labels_needed([100, 200], [0.5, 0.7], 0.8)
    nan
    """
    for place, (here, reached) in enumerate(zip(labelled, accuracy, strict=True)):
        if reached >= level:
            if place == 0:
                return float(here)
            before, low = labelled[place - 1], accuracy[place - 1]
            return float(before + (level - low) / (reached - low) * (here - before))
    return math.nan


def saving_levels(reference: Curve, others: Sequence[Curve]) -> list[float]:
    """Whole percents worth asking about: the highest that the reference meets, and the highest that anyone meets.

    Levels that are met before the first batch say nothing and are left out.
    """
    start = max(one.points[0].accuracy.mean for one in (reference, *others))
    peaks = [max(point.accuracy.mean for point in one.points) for one in (reference, *others)]
    wholes = sorted({math.floor(round(100 * peak, 9)) / 100 for peak in (peaks[0], max(peaks))})
    return [level for level in wholes if level > start]


def savings(results: Results, condition: Condition, reference: str = "random") -> list[Saving]:
    """Labels needed for each level, method by method, compared with the classical form of a reference strategy.

    Read off the mean curves; `ahead` counts the seeds whose own curves agree.
    """
    against = results.find(condition, reference)
    if against is None:
        return []
    base = curve(results, condition, against)
    others = [curve(results, condition, one) for one in results.trials[condition] if one != against]
    return [_saving(results, one, base, level) for level in saving_levels(base, others) for one in others]


def count_errors(results: Results, condition: Condition) -> list[CountError]:
    """Expected against true class counts of each batch, method by method and cycle by cycle."""
    found = []
    for method in results.trials[condition]:
        trials = results.trials[condition][method].values()
        for cycle in sorted({cycle for trial in trials for cycle in trial}):
            chosen = [trial[cycle] for trial in trials if cycle in trial and has_counts(trial[cycle])]
            if chosen:
                found.append(_count_error(condition, method, cycle, chosen))
    return found


def has_counts(row: Row) -> bool:
    """Whether a row has a batch with expected and true counts; the last cycle has none."""
    return row.picks > 0 and 0 < len(row.expected) == len(row.realised)


def passes_by_chance(seeds: int) -> float:
    """How often pure noise is two standard errors away from zero: Student's t with n − 1 degrees of freedom.

    >>> round(passes_by_chance(3), 2), round(passes_by_chance(10), 2)
    (0.18, 0.08)
    """
    if seeds < 2:
        return math.nan
    from scipy.special import stdtr

    return float(2 * stdtr(seeds - 1, -CLEAR))


def _ordered(methods: dict[Method, Trials]) -> dict[Method, Trials]:
    in_order = sorted(methods, key=method_order)
    return {
        method: {seed: dict(sorted(methods[method][seed].items())) for seed in sorted(methods[method])}
        for method in in_order
    }


def _point(rows: list[Row]) -> Point:
    labelled, share = band([row.labelled for row in rows]).mean, band([row.share for row in rows]).mean
    return Point(rows[0].cycle, labelled, share, *(band([getattr(row, name) for row in rows]) for name in MEASURES))


def _both(ours: Trials, theirs: Trials, cycle: int) -> dict[int, tuple[Row, Row]]:
    """Rows of both methods at a cycle, by seed; only where as much was labelled, else they do not compare."""
    found = {}
    for seed in sorted(ours.keys() & theirs.keys()):
        mine, base = ours[seed].get(cycle), theirs[seed].get(cycle)
        if mine is not None and base is not None and mine.labelled == base.labelled:
            found[seed] = (mine, base)
    return found


def _differences(both: dict[int, tuple[Row, Row]], measure: str) -> list[float]:
    return [float(getattr(mine, measure) - getattr(base, measure)) for mine, base in both.values()]


def _gain(
    condition: Condition, method: Method, base: Method, cycle: int, both: dict[int, tuple[Row, Row]],
    differences: list[float],
) -> Gain:  # fmt: skip
    mine = [row for row, _ in both.values()]
    labelled, share = band([row.labelled for row in mine]).mean, band([row.share for row in mine]).mean
    return Gain(condition, method, base, cycle, labelled, share, band(differences))


def _saving(results: Results, one: Curve, base: Curve, level: float) -> Saving:
    trials = results.trials[one.condition]
    ours, theirs = trials[one.method], trials[base.method]
    common = sorted(ours.keys() & theirs.keys())
    ahead = 0
    for seed in common:
        mine, reference = (
            labels_needed([row.labelled for row in rows], [row.accuracy for row in rows], level)
            for rows in (ours[seed].values(), theirs[seed].values())
        )
        ahead += not math.isnan(mine) and (math.isnan(reference) or mine < reference)
    needed, reference_needed = (
        labels_needed([point.labelled for point in each.points], [point.accuracy.mean for point in each.points], level)
        for each in (one, base)
    )
    return Saving(
        one.condition, one.method, base.method, level, needed, reference_needed, base.last.labelled, ahead, len(common)
    )


def _count_error(condition: Condition, method: Method, cycle: int, rows: list[Row]) -> CountError:
    expected = np.array([row.expected for row in rows], dtype=np.float64)  # (seeds, C)
    realised = np.array([row.realised for row in rows], dtype=np.float64)
    picks = np.array([row.picks for row in rows], dtype=np.float64)
    errors = np.abs(expected - realised)
    worst = int(errors.mean(axis=0).argmax())
    return CountError(
        condition, method, cycle, float(picks.mean()),
        absolute=band((errors.mean(axis=1) / picks).tolist()),
        misplaced=band((errors.sum(axis=1) / 2 / picks).tolist()),
        worst=worst,
        worst_expected=float(expected[:, worst].mean()),
        worst_realised=float(realised[:, worst].mean()),
    )  # fmt: skip
