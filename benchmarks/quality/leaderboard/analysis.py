"""All numbers of the leaderboard's page, computed once: gains, ranks, tests and saved labels of every method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from benchmarks.quality.leaderboard.rows import FIRST_SET, RANDOM, RANDOM_LONG, CellKey, Method, Score
from benchmarks.quality.leaderboard.statistics import (
    END,
    MEAN,
    SIGNIFICANT,
    Measure,
    Overall,
    Ranks,
    Saved,
    Test,
    by_trial,
    compare,
    compare_all,
    labels_saved,
    mean_ranks,
    overall,
    trials_in,
)
from tailwise.report.names import classical_form, strategy_title

ADJUSTED, PLAIN = Measure("adjusted", MEAN), Measure("balanced", MEAN)
ADJUSTED_END, PLAIN_END = Measure("adjusted", END), Measure("balanced", END)
ENOUGH_SEEDS = 8  # a comparison with fewer proves nothing
TAIL, CLASSES = Measure("tail", MEAN), Measure("classes", END)


@dataclass(frozen=True, slots=True)
class Setup:
    """What the page is about; names and order come from the study."""

    default: Method
    rivals: tuple[Method, ...]  # compared first, and drawn
    pools: Mapping[str, str]  # names as people write them
    cells: tuple[CellKey, ...]
    long_cells: tuple[CellKey, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)  # strategies that do not run, and why
    parts: Mapping[Method, str] = field(default_factory=dict)  # variants of one strategy, in words


class Analysis:
    """The numbers behind the page."""

    def __init__(self, scores: Sequence[Score], setup: Setup) -> None:
        self.trials, self.setup, self.default = by_trial(scores), setup, setup.default
        self.cells = [cell for cell in setup.cells if trials_in(self.trials, RANDOM, cell)]
        self.long_cells = [cell for cell in setup.long_cells if trials_in(self.trials, RANDOM, cell)]
        known = [one for one in self.trials if one not in (FIRST_SET, RANDOM_LONG) and one == one.whole]
        ran = [one for one in known if self._enough(one)]
        self.waiting = [one for one in known if one not in ran]  # too few seeds so far: stored, and not shown
        gains = {one: self.gain(one).mean for one in ran}
        self.methods = sorted(ran, key=lambda one: -math.inf if math.isnan(gains[one]) else gains[one], reverse=True)
        wanted = dict.fromkeys((self.default, RANDOM, *setup.rivals))
        self.drawn = [one for one in wanted if one in self.trials]  # the default, random selection and the rivals

    def _enough(self, method: Method) -> bool:
        """Whether at least half of the cells have enough seeds of a method, or as many as of the default."""
        seeds = {cell: len(trials_in(self.trials, method, cell)) for cell in self.cells}
        wanted = {cell: min(ENOUGH_SEEDS, len(trials_in(self.trials, self.default, cell))) for cell in seeds}
        return 2 * sum(count >= max(wanted[cell], 1) for cell, count in seeds.items()) >= len(self.cells)

    def gain(self, method: Method, measure: Measure = ADJUSTED) -> Overall:
        """Over random selection, in the mean over cells."""
        return overall(self.trials, method, RANDOM, self.cells, measure)

    @cached_property
    def ranks(self) -> Ranks:
        """By adjusted accuracy, of methods as published and the default, in the cells that all of them have.

        While a study runs, those that have less than half of the cells are left out.
        """
        field = [
            one for one in self.methods
            if (one == self.default or not one.settings or classical_form(one.strategy) != one.strategy)
            and 2 * sum(bool(trials_in(self.trials, one, cell)) for cell in self.cells) >= len(self.cells)
        ]  # fmt: skip
        return mean_ranks(self.trials, field, self.cells, ADJUSTED)

    @property
    def others(self) -> list[Method]:
        """The strategies beside the default's and random selection, the one that gains most first."""
        return [one for one in self.methods if one.strategy not in (self.default.strategy, RANDOM.strategy)]

    @cached_property
    def tests(self) -> list[Test]:
        """The default against everyone, adjusted and plain."""
        others = [one for one in self.methods if one != self.default]
        return compare_all(self.trials, self.default, others, self.cells, (ADJUSTED, PLAIN))

    @cached_property
    def losses(self) -> list[Test]:
        """Those with p < 0.05 before correction: first what is significant after it, then by size."""
        found = [one for one in self.tests if one.difference.mean < 0 and one.difference.p < SIGNIFICANT]
        return sorted(found, key=lambda one: (one.holm >= SIGNIFICANT, one.difference.mean))

    def significant(self, sign: int) -> list[Test]:
        """Wins (1) or losses (−1) that are significant after correction."""
        return [one for one in self.tests if sign * one.difference.mean > 0 and one.holm < SIGNIFICANT]

    def saved(self, method: Method, measure: Measure = ADJUSTED_END) -> Saved:
        """Labels saved in the mean over cells."""
        found = [labels_saved(self.trials, method, cell, measure) for cell in self.cells]
        found = [one for one in found if not math.isnan(one.share)]
        if not found:
            return Saved(math.nan, math.nan)
        limits = {one.limit for one in found if one.limit}
        error = math.sqrt(sum(one.error**2 for one in found)) / len(found)
        limit = limits.pop() if len(limits) == 1 else "≈" * bool(limits)
        return Saved(float(np.mean([one.share for one in found])), error, limit)

    def fewer_classes(self) -> dict[CellKey, float]:
        """Cells in which the default finds fewer classes than random selection, and how many fewer."""
        found = {cell: compare(self.trials, self.default, RANDOM, cell, CLASSES).mean for cell in self.cells}
        return {cell: -mean for cell, mean in found.items() if mean < 0}

    def seconds(self, method: Method) -> float:
        """The median time for a batch."""
        runs = (runs for cell, runs in self.trials[method].items() if cell in self.cells)
        found = [score.seconds for one in runs for trial in one.values() for score in trial]
        return float(np.nanmedian(found)) if found else math.nan

    def shown(self, method: Method) -> str:
        """The name; the default is marked."""
        return f"{name_of(method)} (default)" if method == self.default else name_of(method)


def name_of(method: Method) -> str:
    """As people write it: "Entropy-CB"; other settings behind it.

    >>> name_of(Method("entropy", "auto")), name_of(Method("kcenter")), name_of(Method("kcenter", "0.3 parts=4"))
    ('Entropy-CB', 'KCenter', 'KCenter-CB (0.3 parts=4)')
    """
    behind = "" if method.balance == "0" or classical_form(method.strategy) != method.strategy else "-CB"
    others = method.settings.removeprefix("auto").strip()
    return strategy_title(method.strategy) + behind + (f" ({others})" if others else "")
