"""The program with a side constraint: at most k picks of each group.

For any duals y the rows that a group may give are its k smallest reduced costs u − P·y. So the b smallest of these
survivors, plus h(y), bound every batch that keeps to the groups; and every batch of survivors keeps to them. A round
solves the plain program on the survivors of the last duals, which gives a batch and new duals, and these a new bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..processes import one_blas_thread
from ..types import BoolArray, Float64Array
from .dual import Part, maximise, rounding_margin, target_value
from .highs import branch_and_bound
from .program import Effort, Groups, Program, Report, Solution, certify, silent
from .solver import solve

MOST_ROUNDS = 8
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
    small = program.rows.size * program.rows.classes <= EXACT_ELEMENTS and not program.rows.sparse
    return _prove(program, groups, best, effort) if best.gap > effort.gap and small and not effort.expired else best


def _prove(program: Program, groups: Groups, best: Solution, effort: Effort) -> Solution:
    """Branch and bound on a pool that is small enough for it."""
    where = np.arange(program.rows.size)
    part = Part(
        program.rows.take(where), program.cost.values(), program.budget, np.zeros(program.rows.classes), 0.0,
        program.ranges, program.lam,
    )  # fmt: skip
    crowded = np.flatnonzero(np.bincount(groups.numbers, minlength=len(groups.most)) > groups.most)
    found = branch_and_bound(
        part, np.isin(where, best.indices), nodes=effort.nodes, seconds=effort.seconds_left,
        groups=[(np.flatnonzero(groups.numbers == group), int(groups.most[group])) for group in crowded],
    )  # fmt: skip
    picks = best.indices
    if found.chosen is not None and program.measure(np.flatnonzero(found.chosen)).value < best.objective:
        picks = np.flatnonzero(found.chosen)
    measured = program.measure(picks)
    return certify(picks, measured, max(best.bound, found.bound), best.duals, margin=measured.rounding, effort=effort)


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
