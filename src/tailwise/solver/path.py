"""Choosing λ, the price of one image of imbalance in units of score: "auto", the paper's rule (PAPER §6), or a wish.

"auto" is a share of the spread of the scores, and needs no solve. The paper's rule and wishes look at how the l1 loss
falls along a sweep of λ: in exact solutions it never rises with λ, so the smallest λ that meets them is found by
bisection. The paper's grid, (0, 3] for entropy, is stretched by the spread of other scores. Also here: which classes
cannot reach their target at any λ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from ..errors import TargetUnreachable
from ..inputs import real_number
from ..matrix.shards import Column, Rows
from ..selection import Shortfall
from ..targets import Ranges
from ..types import BoolArray, Float64Array, IntArray
from .constraints import solve_within
from .program import Effort, Program, Report, Solution, silent

Balance: TypeAlias = float | Literal["auto", "paper", "within 1%", "within 5%", "within 10%"] | str
"""λ ≥ 0, "auto" (our rule), "paper" (the paper's rule), or a wish such as "within 5%"."""

RULES = ("auto", "paper")
WISH = re.compile(r"^\s*within\s+(\d+(?:\.\d+)?)\s*%\s*$")
AUTO_SHARE = 0.1  # of the spread of the scores: what "auto" pays for one image of balance (benchmarks/LOG.md)
FAR_OFF = 0.05  # of the budget: a batch of "auto" farther from its target than this says so
GRID_STEPS = 30
GRID_END = 3.0  # the paper sweeps λ over (0, 3] with entropy scores
RULE_SHARE = 0.01
LATE = 0.8  # of the sweep: where "paper" takes a λ beyond it, the l1 loss still fell near the end
WISH_END = 30.0
WISH_STEPS = 12


def parse_balance(balance: Balance) -> float | str:
    """λ as a number, or the words of a rule or a wish, checked."""
    if isinstance(balance, str):
        text = balance.strip()
        if text in RULES or WISH.match(text):
            return text
        with suppress(ValueError):  # it is rejected below, as it was given
            balance = float(text)
    return real_number(balance, "balance", "a number ≥ 0, 'auto', 'paper', or a wish such as 'within 5%'")


@dataclass(frozen=True, slots=True)
class ChosenLambda:
    """The λ that a balance setting means, and what limited it.

    Attributes
    ----------
    value: λ.
    rule: "auto" or "paper" where one of these chose it; else empty.
    capped: λ is the most that the rule pays, so that the batch may have stopped short of its target.
    """

    value: float
    rule: str = ""
    capped: bool = False

    def note(self, away: float, budget: int) -> str:
        """One plain sentence where the limit kept a batch from its target; else empty.

        `away` is the l1 distance of its expected counts from the target beyond what no batch could avoid.

        >>> ChosenLambda(0.5, "auto", capped=True).note(12.0, 60).split(": ")[0]
        "balance 'auto' pays at most λ = 0.5 per image"
        """
        if not self.capped or (self.rule == "auto" and away <= FAR_OFF * budget):
            return ""
        limits = {"auto": "pays at most λ = {:.4g} per image", "paper": "took λ = {:.4g}, near the end of its sweep"}
        limit = limits[self.rule].format(self.value)
        return (
            f"balance '{self.rule}' {limit}: expected counts stay {away:.3g} images from the target in all "
            f"({100 * away / budget:.3g} % of the budget). For more balance give a number above {self.value:.4g}."
        )


def find_lam(
    balance: Balance, l1_at: Callable[[float], float], program: Program, *, scale: float, spread: float | None = None
) -> ChosenLambda:
    """Turn a balance setting into λ.

    `scale` is what λ = 1 is relative to entropy, for sweeps; `spread` what one image can gain or lose in score, for
    "auto": where it is not given, the scale.
    """
    setting = parse_balance(balance)
    if isinstance(setting, float):
        return ChosenLambda(setting)
    if not program.steerable:
        return ChosenLambda(0.0)
    if setting == "auto":
        return ChosenLambda(AUTO_SHARE * (scale if spread is None else spread), "auto", capped=True)
    if setting == "paper":
        grid = paper_grid(scale)
        lam = paper_lam(l1_at, grid)
        return ChosenLambda(lam, "paper", capped=lam >= LATE * grid[-1])
    wish = WISH.match(setting)
    assert wish is not None  # parse_balance let it through
    share = float(wish[1]) / 100
    forced = forced_l1(program.ranges, program.budget)  # the target may ask for more, or less, than b in all

    def describe(least: float) -> str:
        closest = 100 * (least - forced) / program.budget
        return (
            f"asked for expected counts {setting} of the target, but the closest batch is {closest:.1f} % away; "
            f"wish for 'within {np.ceil(closest):.0f}%' or change the target"
        )

    return ChosenLambda(wished_lam(l1_at, scale, forced + share * program.budget, describe))


def paper_lam(l1_at: Callable[[float], float], grid: Float64Array) -> float:
    """The λ of "paper": the smallest on an ascending grid after which the l1 loss no longer falls, to 1 % of its fall.

    An empty grid gives 0. Solved to a gap, l1 can rise a little from one λ to the next. Bisection then ends at a λ that
    meets the limit, while the last one below it that was looked at does not.

    >>> paper_lam(lambda lam: max(0.0, 1.0 - lam), paper_grid(1.0))
    1.0
    """
    if not len(grid):
        return 0.0
    at_zero, least = l1_at(0.0), l1_at(float(grid[-1]))
    limit = least + RULE_SHARE * max(0.0, at_zero - least)
    low, high = -1, len(grid) - 1  # the loss at grid[high] meets the limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if l1_at(float(grid[middle])) <= limit else (middle, high)
    return float(grid[high])


def paper_grid(scale: float) -> Float64Array:
    """λ over (0, 3], times the scale of the scores."""
    return scale * GRID_END * np.arange(1, GRID_STEPS + 1) / GRID_STEPS


def wished_lam(
    l1_at: Callable[[float], float], scale: float, allowed: float, describe: Callable[[float], str]
) -> float:
    """The smallest λ (to 2 %) whose l1 loss is at most `allowed`; an error with numbers where none is.

    >>> f"{wished_lam(lambda lam: 1.0 / (1.0 + lam), 1.0, 0.5, str):.1f}"
    '1.0'
    """
    if l1_at(0.0) <= allowed:
        return 0.0
    low, high = 0.0, WISH_END * scale
    least = l1_at(high)
    if least > allowed:
        raise TargetUnreachable(describe(least))
    for _ in range(WISH_STEPS):
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if l1_at(middle) <= allowed else (middle, high)
        if low and high / low < 1.02:
            break
    return high


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Solves one program at many λ, each once, starting from the duals of the nearest λ solved before."""

    program: Program
    effort: Effort
    seed: int
    report: Report = silent
    found: dict[float, Solution] = field(default_factory=dict)

    def at(self, lam: float) -> Solution:
        """The solution at one λ."""
        if lam not in self.found:
            program, warm = self.program.at(lam), self.nearest_duals(lam)
            self.found[lam] = solve_within(program, self.effort, seed=self.seed, warm=warm)
            self.report(f"λ = {lam:.4g}: l1 {self.l1_at(lam):.4g}")
        return self.found[lam]

    def l1_at(self, lam: float) -> float:
        """Distance of the expected counts from the target at one λ."""
        return self.program.ranges.distance(self.program.rows.total(self.at(lam).indices))

    def nearest_duals(self, lam: float) -> Float64Array | None:
        """Duals of the nearest λ > 0 that is solved; None before the first."""
        solved = [other for other in self.found if other > 0]
        return self.found[min(solved, key=lambda other: abs(other - lam))].duals if solved else None


def quick_effort(time_limit: float | None = None) -> Effort:
    """Enough for a rule: a gap of 1e-3, and a short search where swaps alone do not reach it."""
    return Effort(gap=1e-3, time_limit=time_limit, restarts=2, kicks=0, nodes=0)


# -- the spread of the scores ----------------------------------------------------------------------------------------

SAMPLED_ROWS = 1 << 17
CUT_OFF = 10.0  # a jump in the sorted scores that is so many times larger than all other differences together
CUT_OFF_EQUAL = 1e6  # the same where all rows on the kept side have one score, in units of that score or of 1
TRIMMED = 0.01  # of the rows that are left, at either end


def score_scale(costs: Column, budget: int) -> float:
    """What λ = 1 is for scores −u, relative to entropy; judged by a sample where the rows are many."""
    return scale_of(*_scores_seen(costs, budget), costs.rows.classes)


def spread_of(costs: Column, budget: int) -> float:
    """What one image can gain or lose in score, for scores −u; 1 where all are equal."""
    return score_spread(*_scores_seen(costs, budget)) or 1.0


def _scores_seen(costs: Column, budget: int) -> tuple[Float64Array, int]:
    """The scores, or a sample of them, and how many of them a batch would have."""
    size = costs.rows.size
    if size <= SAMPLED_ROWS:
        return -costs.values(), budget
    sample = costs.at(np.random.default_rng(0).integers(0, size, SAMPLED_ROWS))
    return -sample, -(-budget * SAMPLED_ROWS // size)


def scale_of(scores: Float64Array, budget: int, classes: int) -> float:
    """The spread of scores over that of entropy, log C; 1 where there is no spread.

    >>> f"{scale_of(np.linspace(0, 1, 101), 1, 2):.4f}"
    '1.4283'
    """
    spread = score_spread(scores, budget)
    return spread / float(np.log(classes)) if spread > 0 and classes > 1 else 1.0


def score_spread(scores: Float64Array, budget: int) -> float:
    """The range of the scores without 1 % at either end and without rows that are cut off from the others.

    Where the best b are fewer than 2 % their median is the upper end: it is among these rows that λ decides.

    >>> score_spread(np.append(np.linspace(0, 1, 101), [-1e9, -1e9]), budget=1)
    0.99
    """
    ordered = _without_cut_off(np.sort(scores), budget)
    if not len(ordered):
        return 0.0
    trimmed = int(TRIMMED * len(ordered))
    best = ordered[len(ordered) - 1 - min(trimmed, max(0, budget - 1) // 2)]
    spread = float(best - ordered[trimmed])
    return spread if spread > 0 else float(ordered[-1] - ordered[0])


def _without_cut_off(ordered: Float64Array, budget: int) -> Float64Array:
    """Ascending scores without those below, or above, a jump that dwarfs all other differences.

    Rows below it are to be left out if a whole batch lies above it; else the rows above it are to be taken in any case.
    """
    while len(ordered) > 2:
        jumps = np.diff(ordered)
        at = int(jumps.argmax()) + 1
        kept = ordered[at:] if len(ordered) - at >= budget else ordered[:at]
        others = float(ordered[-1] - ordered[0]) - float(jumps[at - 1])
        least = CUT_OFF * others if kept[-1] > kept[0] else CUT_OFF_EQUAL * max(1.0, abs(float(kept[0])))
        if jumps[at - 1] <= least:
            break
        ordered = kept
    return ordered


# -- classes that cannot reach their target --------------------------------------------------------------------------

COLUMNS_AT_ONCE = 4
SURE = 0.5  # a probability that is enough to call a row one of the class
SHORT = 1e-3  # relative; smaller shortfalls are the noise of rounding to whole picks
FEW_BLOCKS = 16  # one in so many blocks of rows is looked at first
RANKED_ROWS, RANKED_ELEMENTS = 8_192, 1 << 22
DEVIATIONS = 5.0  # of a rank in the sample, within which the rank in the pool almost surely lies


def shortfalls(rows: Rows, budget: int, ranges: Ranges, expected: Float64Array) -> tuple[Shortfall, ...]:
    """Classes whose target exceeds the sum of their b largest probabilities, the farthest from it first.

    `expected` (C,) is what a batch of this size has: classes that got enough can be reached. A part of the rows shows
    that most others can be reached as well, one read of all rows shows it of more, and one more what the rest can have.
    """
    missing = ranges.low - expected  # (C,)
    short = np.flatnonzero(missing > SHORT * np.maximum(1.0, ranges.low))
    short = short[np.argsort(-missing[short], kind="stable")]
    if 0 < budget < rows.size and len(short):
        for every in (FEW_BLOCKS, 1):
            short = short[~_surely_reached(rows, budget, ranges.low[short], short, every)]
        most = sums_of_largest(rows, budget, short)
    else:
        most = expected[short]  # there is one batch
    return tuple(
        Shortfall(int(cls), float(ranges.low[cls]), max(0.0, float(reachable)))
        for cls, reachable in zip(short, most, strict=True)
        if reachable < ranges.low[cls] * (1 - SHORT)
    )


def _surely_reached(rows: Rows, budget: int, low: Float64Array, classes: IntArray, every: int) -> BoolArray:
    """Whether rows with more than one half for a class reach its target: all of them, or b that have at least that.

    One in `every` blocks of rows is looked at.
    """
    if not len(classes):
        return np.zeros(0, dtype=bool)
    counts, sums = rows.above(classes, SURE, every)
    reached: BoolArray = np.where(counts <= budget, sums, SURE * budget) >= low
    return reached


def sums_of_largest(rows: Rows, budget: int, classes: IntArray) -> Float64Array:
    """The sum of the b largest probabilities of each class, (k,), from one read; 0 < b < N.

    A sample says between which two probabilities the b-th largest lies. What is larger than both is summed, and only
    what lies between them is ranked. If the sample was wrong the whole column is ranked: a read for every four columns.
    """
    if not len(classes):
        return np.empty(0)
    result, floor, ceiling = np.full(len(classes), np.nan), *_brackets(rows, budget, classes)
    known = np.flatnonzero(floor >= 0)
    if len(known):
        parts = rows.between(classes[known], floor[known], ceiling[known])
        for place, part in zip(known.tolist(), parts, strict=True):
            result[place] = part.sum_of_largest(budget)
    for start in range(0, len(left := np.flatnonzero(np.isnan(result))), COLUMNS_AT_ONCE):
        places = left[start : start + COLUMNS_AT_ONCE]
        columns = rows.minus_classes(classes[places].tolist())
        result[places] = [-column.sum_of_smallest(budget)[0] for column in columns]
    return result


def _brackets(rows: Rows, budget: int, classes: IntArray) -> tuple[Float64Array, Float64Array]:
    """A floor and a ceiling of the b-th largest probability of each class, (k,) each, almost surely.

    Both are probabilities that occur. The ceiling is inf where few rows are picked, the floor −1 where almost all are.
    """
    size = min(rows.size, max(1_000, min(RANKED_ROWS, RANKED_ELEMENTS // rows.classes)))
    sample = rows.take(np.linspace(0, rows.size - 1, size, dtype=np.int64))[:, classes]  # (m, k)
    rank = budget * size / rows.size
    slack = DEVIATIONS * np.sqrt(rank * (1 - rank / size)) + 2 if size < rows.size else 0.0
    above, below = size - int(np.floor(rank - slack)), size - int(np.ceil(rank + slack))  # ranks in ascending order
    sample = np.partition(sample, [max(0, below), min(size - 1, above)], axis=0)
    floor = sample[below] if below >= 0 else np.full(len(classes), -1.0)
    return floor, sample[above] if above < size else np.full(len(classes), np.inf)


def forced_l1(ranges: Ranges, budget: int, unreachable: Sequence[Shortfall] = ()) -> float:
    """An l1 distance that no batch can undercut, given the classes that the pool cannot fill.

    >>> target = np.array([4.0, 6.0])
    >>> forced_l1(Ranges(target, target), 10), forced_l1(Ranges(target, target), 10, [Shortfall(1, 6.0, 1.0)])
    (0.0, 10.0)
    """
    short = sum(one.wanted - one.reachable for one in unreachable)
    spare = sum(max(0.0, float(ranges.high[one.cls]) - one.reachable) for one in unreachable)
    missing = max(0.0, short, float(ranges.low.sum()) - budget)
    return missing + max(0.0, budget - float(ranges.high.sum()) + spare)
