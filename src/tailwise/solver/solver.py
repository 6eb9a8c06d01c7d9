"""The whole way from a program to a certified batch: duals → rounding → search → branch and bound.

Each step is taken only while the gap is wider than asked for.
"""

from __future__ import annotations

import math

import numpy as np

from ..processes import one_blas_thread
from ..types import Float64Array, IntArray, gap_between
from . import highs
from .dual import DualPoint, maximise, sparse_bound
from .newton import Part
from .program import Effort, Program, Report, Solution, certify, silent
from .rounding import Core, anneal, kick, open_core, pair_descent, swap_descent

SWAP_CORE = 200  # rows, or two per class
SWAP_ELEMENTS = 2_000_000  # beyond that a sweep of swaps takes seconds
LARGEST_CORE = 200_000  # elements
SEARCH_CORES = (180, 240)
KICK_CORE = 200
KICK_SWAPS = 4
KICKED_FINDS = 4
ANNEAL_STEPS = 2_000  # and as many more after each round through the cores
EXACT_ROWS = 40  # branch and bound on so few rows takes a second or two


def solve(
    program: Program, effort: Effort, *, seed: int = 0, warm: Float64Array | None = None, report: Report = silent
) -> Solution:
    """Solve a program to the gap asked for, or as near as the effort allows."""
    with one_blas_thread():
        if program.separable:
            return _cheapest(program)
        rng = np.random.default_rng(seed)
        point = maximise(program, effort, rng, warm, report)
        best, bound = _round(program, point, effort, report), point.bound
        if _open(best, point, effort):
            best, bound = _prove(program, point, best, effort, report)  # in a small pool that may be all there is to do
        if _open(best, point, effort, bound):
            best = _search(program, point, best, effort, rng, report)
            best, proven = _prove(program, point, best, effort, report)
            bound = max(bound, proven)
        return _certified(program, point, best.picks(), bound, effort)


def lower_bound(program: Program, effort: Effort, *, seed: int = 0) -> float:
    """A number that no batch's value is below, without looking for a batch that comes near it."""
    with one_blas_thread():
        if program.separable:
            return _cheapest(program).bound
        point = maximise(program, effort, np.random.default_rng(seed), None)
        return sparse_bound(program, point) if program.rows.sparse else point.bound


def _cheapest(program: Program) -> Solution:
    """The b cheapest rows, which are optimal where Pᵀz is fixed or free of cost."""
    picks = program.cost.smallest(program.budget)
    measured = program.measure(picks)
    hidden = program.hidden_cost(picks) + program.hidden_distance(picks)
    bound = measured.value - program.hidden_distance(picks)
    ordered = picks[np.argsort(program.cost.at(picks), kind="stable")]
    return certify(ordered, measured, bound, np.zeros(program.rows.classes), hidden=hidden)


def _gap(core: Core, point: DualPoint, bound: float | None = None) -> float:
    """The gap of a core's batch, as it will be certified; the bound is that of the duals if none is given."""
    found = core.measure()
    return gap_between(
        found.value, point.bound if bound is None else bound, found.magnitude, found.rounding + point.margin
    )


def _open(core: Core, point: DualPoint, effort: Effort, bound: float | None = None) -> bool:
    return _gap(core, point, bound) > effort.gap and not effort.expired


def _round(program: Program, point: DualPoint, effort: Effort, report: Report) -> Core:
    """Swap descent from the b smallest reduced costs, on a small core and, if needed, on larger ones."""
    least = max(SWAP_CORE, 2 * program.rows.classes)
    best = swap_descent(open_core(program, point, least))
    for size in (2 * least, _useful_rows(point, best)):
        report(f"rounding: gap {_gap(best, point):.1e}")
        too_large = size * program.rows.classes > SWAP_ELEMENTS
        if not _open(best, point, effort) or size <= len(best.where) or too_large:
            break
        best = _better(best, swap_descent(open_core(program, point, size)))
    return best


def _useful_rows(point: DualPoint, best: Core) -> int:
    """How many rows cost little enough to help: with a large λ, rows far from the threshold are worth their price."""
    worth = (best.value() - point.bound) / 300
    return min(point.reduced.distance_from(point.theta).count_up_to(worth), LARGEST_CORE // len(point.y))


def _search(
    program: Program, point: DualPoint, best: Core, effort: Effort, rng: np.random.Generator, report: Report
) -> Core:
    """Annealing with paired swaps from several starts, then kicks from the best finds; the best is kept."""
    hot = (best.value() - point.bound) / 17  # above 0, as the gap is open
    useful = _useful_rows(point, best)
    cores = [open_core(program, point, max(size, useful)) for size in SEARCH_CORES]
    finds = [best]

    def still_open(what: str) -> bool:
        nonlocal best
        best = min(finds, key=Core.value)
        report(f"{what}: gap {_gap(best, point):.1e}")
        return _open(best, point, effort)

    classes = program.rows.classes  # fewer restarts and kicks where each costs more
    for turn in range(math.ceil(effort.restarts / (1 + classes / 1000))):
        steps = ANNEAL_STEPS * (1 + turn // len(cores))
        found = anneal(cores[turn % len(cores)], rng, steps=steps, hot=hot, cold=hot / 10)
        finds.append(pair_descent(swap_descent(found)))
        if not still_open(f"search {turn + 1}"):
            return best
    finds = [open_core(program, point, KICK_CORE, find.picks()) for find in _distinct(finds)[:KICKED_FINDS]]
    for turn in range(math.ceil(effort.kicks / (1 + classes / 10))):
        at = turn % len(finds)
        finds[at] = _better(finds[at], pair_descent(swap_descent(kick(finds[at], KICK_SWAPS, rng))))
        if not still_open(f"kick {turn + 1}"):
            break
    return best


def _distinct(finds: list[Core]) -> list[Core]:
    """Finds of different value, best first."""
    unit = max(find.measure().magnitude for find in finds)  # above 0, as the gap is open
    by_value = {round(find.value() / unit, 12): find for find in finds}
    return [by_value[value] for value in sorted(by_value)]


def _better(best: Core, found: Core) -> Core:
    return found if found.value() < best.value() else best


def _prove(program: Program, point: DualPoint, best: Core, effort: Effort, report: Report) -> tuple[Core, float]:
    """Fix the rows whose reduced cost alone exceeds what is left to gain; branch and bound on the others if few."""
    if effort.nodes == 0 or not _open(best, point, effort):
        return best, point.bound
    left = best.value() - point.bound
    undecided = point.reduced.distance_from(point.theta).count_up_to(left * (1 + 1e-9))
    if undecided > EXACT_ROWS:
        report(f"branch and bound left out: {undecided} rows undecided")
        return best, point.bound
    core = open_core(program, point, max(undecided, 1), best.picks())
    part = Part(
        program.rows.take(core.where), core.cost, int(core.chosen.sum()), program.rows.total(core.fixed),
        float(program.cost.at(core.fixed).sum()), program.ranges, program.lam,
    )  # fmt: skip
    found = highs.branch_and_bound(part, core.chosen, nodes=effort.nodes, seconds=effort.seconds_left)
    if found.chosen is not None:
        core = _better(core, core.choosing(found.chosen))
    report(f"branch and bound on {undecided} rows: bound {found.bound:.6g}")
    # Rows outside the core were fixed for all solutions that beat the best one, which is in the core itself.
    return core, max(point.bound, found.bound)


def _certified(program: Program, point: DualPoint, picks: IntArray, bound: float, effort: Effort) -> Solution:
    """The final value in float64 from the rows themselves, and what may be said of it."""
    measured = program.measure(picks)
    hidden = program.hidden_cost(picks) + program.hidden_distance(picks)
    if program.rows.sparse:
        bound = sparse_bound(program, point)
    ordered = picks[np.argsort(point.reduced.at(picks), kind="stable")]
    return certify(ordered, measured, bound, point.y, hidden=hidden, margin=point.margin, effort=effort)
