"""The program with a side constraint: at most k picks of each group, or a limit on what the batch costs.

For any duals y the rows that a group may give are its k smallest reduced costs u − P·y. So the b smallest of these
survivors, plus h(y), bound every batch that keeps to the groups; and every batch of survivors keeps to them. A round
solves the plain program on the survivors of the last duals, which gives a batch and new duals, and these a new bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from ..processes import one_blas_thread
from ..types import BoolArray, Float64Array, IntArray
from .dual import Part, maximise, rounding_margin, target_value
from .highs import branch_and_bound
from .program import Effort, Groups, Program, Report, Solution, certify, silent
from .solver import solve

MOST_ROUNDS = 8
PRICED_ROUNDS = 30
PRICED_CORE = 400  # rows near the threshold that a local search with prices looks at
EXACT_ELEMENTS = 4_000  # of a pool on which branch and bound takes a second or two
SHARES = (0.5, 0.2, 0.05)  # of the way to new duals: those of the survivors alone may lead too far
FAR = 4.0  # times all that a batch could gain: a row that costs so much more is never picked


def solve_within(
    program: Program, effort: Effort, *, seed: int = 0, warm: Float64Array | None = None, report: Report = silent
) -> Solution:
    """Solve a program, keeping to its groups if it has some."""
    if program.groups is None:
        return solve(program, effort, seed=seed, warm=warm, report=report)
    return solve_grouped(program, program.groups, effort, seed=seed, warm=warm, report=report)


def solve_grouped(
    program: Program, groups: Groups, effort: Effort, *, seed: int = 0, warm: Float64Array | None = None,
    report: Report = silent,
) -> Solution:  # fmt: skip
    """Solve a program whose batch holds at most so many rows of each group, with a bound on all such batches."""
    groups.check(program.budget)
    if warm is None and program.lam > 0 and 0 < program.budget < program.rows.size:
        with one_blas_thread():
            warm = maximise(program, effort, np.random.default_rng(seed), None, report).y
    start = np.zeros(program.rows.classes) if warm is None else np.clip(warm, -program.lam, program.lam)
    priced = _Priced.at(program, groups, start)
    costs, best, bound = program.cost.values(), None, priced
    far = FAR * (1.0 + float(np.ptp(costs)) + 2 * program.lam) * max(1, program.budget)
    for turn in range(MOST_ROUNDS):
        inside = replace(program, groups=None, cost=program.rows.hold(np.where(priced.survivors, costs, costs + far)))
        found = solve(inside, effort, seed=seed, warm=priced.y, report=report)
        if best is None or program.measure(found.indices).value < best.objective:
            best = found
        before, priced = priced, _ascend(program, groups, bound, found.duals)
        bound = max(bound, priced, key=lambda one: one.bound)
        best = certify(
            best.indices, program.measure(best.indices), bound.bound, best.duals, margin=bound.margin, effort=effort,
            hidden=program.hidden_cost(best.indices) + program.hidden_distance(best.indices),
        )  # fmt: skip
        report(f"groups, round {turn + 1}: gap {best.gap:.1e}")
        if best.gap <= effort.gap or effort.expired or (priced.survivors == before.survivors).all():
            break
    assert best is not None
    return _prove(program, best, effort)


def _prove(program: Program, best: Solution, effort: Effort, purse: Purse | None = None) -> Solution:
    """Branch and bound on a pool that is small enough for it, if the gap is open."""
    small = program.rows.size * program.rows.classes <= EXACT_ELEMENTS and not program.rows.sparse
    if best.gap <= effort.gap or not small or effort.expired:
        return best if purse is None else replace(best, indices=_best_first(program, best.indices, best.duals, purse))
    where = np.arange(program.rows.size)
    budget = program.budget if purse is None else purse.limit
    groups: list[tuple[IntArray, int]] = []
    if program.groups is not None:
        numbers, most = program.groups.numbers, program.groups.most
        crowded = np.flatnonzero(np.bincount(numbers, minlength=len(most)) > most)
        groups = [(np.flatnonzero(numbers == group), int(most[group])) for group in crowded]
    part = Part(
        program.rows.take(where), program.cost.values(), budget, np.zeros(program.rows.classes), 0.0,
        program.ranges, program.lam,
    )  # fmt: skip
    found = branch_and_bound(
        part, np.isin(where, best.indices), nodes=effort.nodes, seconds=effort.seconds_left, groups=groups,
        prices=None if purse is None else purse.prices,
    )  # fmt: skip
    picks = best.indices
    if found.chosen is not None and program.measure(np.flatnonzero(found.chosen)).value < best.objective:
        picks = np.flatnonzero(found.chosen)
    measured = program.measure(picks)
    ordered = _best_first(program, picks, best.duals, purse)
    return certify(ordered, measured, max(best.bound, found.bound), best.duals, margin=measured.rounding, effort=effort)


def _best_first(program: Program, picks: IntArray, y: Float64Array, purse: Purse | None) -> IntArray:
    """Picks by their reduced cost, per price where there are prices; equal ones by index."""
    rows = np.sort(picks)
    reduced = program.rows.priced(program.cost, y).at(rows)
    ordered: IntArray = rows[np.argsort(reduced if purse is None else reduced / purse.prices[rows], kind="stable")]
    return ordered


def _ascend(program: Program, groups: Groups, best: _Priced, y: Float64Array) -> _Priced:
    """A point on the way from the best duals to new ones that raises the bound; the last one tried if none does."""
    priced = _Priced.at(program, groups, y)
    for share in SHARES:
        if priced.bound > best.bound:
            break
        priced = _Priced.at(program, groups, best.y + share * (y - best.y))
    return priced


@dataclass(frozen=True, slots=True, eq=False)
class _Priced:
    """Duals, the rows that the groups may give at their prices, and the bound that follows."""

    y: Float64Array  # (C,)
    survivors: BoolArray  # (N,)
    bound: float  # h(y) plus the b smallest reduced costs of the survivors, less the margin
    margin: float  # for rounding errors

    @classmethod
    def at(cls, program: Program, groups: Groups, y: Float64Array) -> _Priced:
        """Price every row in one pass; what a sparse softmax hides of P·y is taken off for the bound."""
        reduced = program.rows.priced(program.cost, y)
        prices = reduced.values()
        lowest = program.rows.subtract_hidden(reduced).values() if program.rows.sparse else prices
        cheapest = np.sort(lowest[groups.survivors(lowest)])[: program.budget]
        ends = (float(cheapest[0]), float(cheapest[-1])) if len(cheapest) else (0.0, 0.0)
        margin = rounding_margin(program, y, *ends)
        bound = target_value(program.ranges, y) + float(cheapest.sum()) - margin
        return cls(y, groups.survivors(prices), bound, margin)


# -- a budget of prices ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Purse:
    """What each row costs to label, and what the batch may cost."""

    prices: Float64Array  # (N,) above 0
    limit: float

    def fill(self, reduced: Float64Array) -> tuple[float, float, int]:
        """The fractional knapsack: the least Σ reduced·z with Σ price·z ≤ limit, its price per unit θ, and its rows.

        Rows of negative reduced cost are taken in the order of reduced cost per price; the last one in part.
        """
        wanted = np.flatnonzero(reduced < 0)
        order = wanted[np.argsort(reduced[wanted] / self.prices[wanted], kind="stable")]
        spent = np.cumsum(self.prices[order])
        whole = int(np.searchsorted(spent, self.limit, side="right"))
        total = float(reduced[order[:whole]].sum())
        if whole == len(order):
            return total, 0.0, whole
        last = order[whole]
        share = (self.limit - (spent[whole - 1] if whole else 0.0)) / self.prices[last]
        return total + share * float(reduced[last]), -float(reduced[last] / self.prices[last]), whole


def solve_priced(program: Program, purse: Purse, effort: Effort, *, seed: int = 0, report: Report = silent) -> Solution:
    """Solve a program whose batch may be of any size, but must cost no more than the purse holds.

    For any y in the box and θ ≥ 0, h(y) − θ·limit + Σ min(0, u − P·y + θ·price) bounds every such batch; the best θ
    for given y is that of the fractional knapsack. A round solves the plain program with costs u + θ·price and as many
    picks as the knapsack holds: that gives new duals, and picks that are brought within the limit and improved.
    """
    costs, best, picks = program.cost.values(), None, np.empty(0, np.int64)
    bound, y = _Knapsack.at(program, purse, np.zeros(program.rows.classes)), np.zeros(program.rows.classes)
    quick = replace(effort, gap=max(effort.gap, 1e-3), restarts=0, kicks=0, nodes=0)  # duals matter, not the picks
    for turn in range(PRICED_ROUNDS):
        size = min(max(bound.size, 1), program.rows.size)
        tilted = replace(program, budget=size, cost=program.rows.hold(costs + bound.theta * purse.prices))
        found = solve(tilted, quick, seed=seed, warm=y if turn else None)
        y = found.duals
        before, point = bound, _Knapsack.at(program, purse, y)
        for share in SHARES:
            if point.bound > before.bound:
                break
            point = _Knapsack.at(program, purse, before.y + share * (y - before.y))
        bound = max(before, point, key=lambda one: one.bound)
        improved = _Budgeted.of(program, purse, found.indices, point).descend()
        if best is None or program.measure(improved).value < best.objective:
            picks = improved
        best = certify(
            picks, program.measure(picks), bound.bound, bound.y, margin=bound.margin, effort=effort,
            hidden=program.hidden_cost(picks) + program.hidden_distance(picks),
        )  # fmt: skip
        report(f"prices, round {turn + 1}: gap {best.gap:.1e}")
        if best.gap <= effort.gap or effort.expired:
            break
    assert best is not None
    return _prove(program, best, effort, purse)


@dataclass(frozen=True, slots=True, eq=False)
class _Knapsack:
    """Duals and the bound of the fractional knapsack at their prices."""

    y: Float64Array  # (C,)
    theta: float
    size: int
    bound: float
    margin: float
    reduced: Float64Array  # (N,)

    @classmethod
    def at(cls, program: Program, purse: Purse, y: Float64Array) -> _Knapsack:
        priced = program.rows.priced(program.cost, y)
        reduced = priced.values()
        _, theta, size = purse.fill(reduced)
        total = purse.fill(program.rows.subtract_hidden(priced).values() if program.rows.sparse else reduced)[0]
        sized = replace(program, budget=max(size, 1) + 1)
        margin = rounding_margin(sized, y, float(reduced.min(initial=0.0)), 0.0)
        return cls(y, theta, size, target_value(program.ranges, y) + total - margin, margin, reduced)


@dataclass(slots=True, eq=False)
class _Budgeted:
    """Local search among the rows near the threshold, never above the limit."""

    where: IntArray  # (m,) rows of the pool
    fixed: IntArray  # picks outside the core
    rows: Float64Array  # (m, K) λ·p, half-weighted and doubled for ranges
    cost: Float64Array  # (m,)
    prices: Float64Array  # (m,)
    chosen: BoolArray  # (m,)
    residual: Float64Array  # (K,) λ·(target − expected)
    left: float  # of the purse

    @classmethod
    def of(cls, program: Program, purse: Purse, picks: IntArray, point: _Knapsack) -> _Budgeted:
        """The core around the threshold; picks with the worst value per price leave until the rest can be paid."""
        worth = point.reduced + point.theta * purse.prices
        order = picks[np.argsort(point.reduced[picks] / purse.prices[picks], kind="stable")]
        kept = order[np.cumsum(purse.prices[order]) <= purse.limit]
        where = np.sort(np.argsort(np.abs(worth), kind="stable")[:PRICED_CORE])
        low, high = program.ranges.low, program.ranges.high
        ranged = np.flatnonzero(low < high)  # ½|s − low| + ½|s − high| is the distance from a range, but for a constant
        columns = np.append(np.arange(len(low)), ranged)
        weights = program.lam * np.where(np.isin(columns, ranged), 0.5, 1.0)  # (K,)
        goal = np.append(low, high[ranged])
        return cls(
            where, np.setdiff1d(kept, where), program.rows.take(where)[:, columns] * weights, program.cost.at(where),
            purse.prices[where], np.isin(where, kept), weights * (goal - program.rows.total(kept)[columns]),
            purse.limit - float(purse.prices[kept].sum()),
        )  # fmt: skip

    def descend(self) -> IntArray:
        """Add, drop and swap rows while that lowers the objective; the picks, ascending."""
        for _ in range(60):
            improved = False
            for out in [-1, *np.flatnonzero(self.chosen).tolist()]:
                improved |= self._move(out)
            if not improved:
                break
        return np.sort(np.concatenate([self.fixed, self.where[self.chosen]]))

    def _move(self, out: int) -> bool:
        """The best row in place of `out` (−1: none), or none in its place; whether that gained."""
        if out >= 0 and not self.chosen[out]:
            return False
        without = self.residual + (self.rows[out] if out >= 0 else 0.0)
        left = self.left + (self.prices[out] if out >= 0 else 0.0)
        now = float(np.abs(self.residual).sum()) + (self.cost[out] if out >= 0 else 0.0)
        dropped = float(np.abs(without).sum())
        price = cdist(without[None], self.rows, "cityblock")[0] + self.cost
        price[self.chosen | (self.prices > left)] = np.inf
        into = int(price.argmin())
        if min(price[into], dropped if out >= 0 else np.inf) >= now - 1e-12 * (1 + abs(now)):
            return False
        if out >= 0:
            self.chosen[out], self.residual, self.left = False, without, left
        if price[into] <= dropped or out < 0:
            self.chosen[into], self.left = True, self.left - self.prices[into]
            self.residual = self.residual - self.rows[into]
        return True
