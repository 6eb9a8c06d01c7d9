"""From a program to a certified batch: duals → rounding → search → branch and bound, until the gap is small enough.

All but a few hundred rows are decided by their reduced costs. On the others, the `Core`, the l1 term is the city-block
distance of a residual r, so a swap of row i for row j costs u_j − u_i + ‖r + p_i − p_j‖₁ − ‖r‖₁, and scipy's compiled
cdist prices all j at once. Where no single swap gains, all pairs of the cheapest swaps are priced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from ..matrix.blocks import smallest
from ..processes import one_blas_thread
from ..types import BoolArray, Float64Array, IntArray, gap_between
from . import highs
from .dual import DualPoint, Part, maximise, sparse_bound
from .program import EPSILON, ROUNDINGS, Effort, Measured, Program, Report, Solution, certify, silent

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
        if (cheapest := _cheapest(program)) is not None:
            return cheapest
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
        if (cheapest := _cheapest(program)) is not None:
            return cheapest.bound
        point = maximise(program, effort, np.random.default_rng(seed), None)
        return sparse_bound(program, point) if program.rows.sparse else point.bound


def _cheapest(program: Program) -> Solution | None:
    """The b cheapest rows where they are optimal: balance costs nothing, or only one batch exists; else None.

    One class is not enough: rows may sum to 1 ± 1e-3, so that Pᵀz differs from batch to batch.
    """
    if program.lam > 0 and 0 < program.budget < program.rows.size:
        return None
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
        best = min(best, swap_descent(open_core(program, point, size)), key=Core.value)
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
        kicked = pair_descent(swap_descent(kick(finds[at], KICK_SWAPS, rng)))
        finds[at] = min(finds[at], kicked, key=Core.value)
        if not still_open(f"kick {turn + 1}"):
            break
    return best


def _distinct(finds: list[Core]) -> list[Core]:
    """Finds of different value, best first."""
    unit = max(find.measure().magnitude for find in finds)  # above 0, as the gap is open
    by_value = {round(find.value() / unit, 12): find for find in finds}
    return [by_value[value] for value in sorted(by_value)]


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
        core = min(core, replace(core, chosen=found.chosen), key=Core.value)
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


# -- local search on the core ----------------------------------------------------------------------------------------

NOISE_ROWS = 509  # random numbers are drawn once and used in turn: drawing took half the time
NOTABLE = 1e-11  # of the magnitude; smaller gains are rounding noise and would let a search circle
RESIDUAL_NOISE = 1e-15  # of what a residual is the difference of
PAIR_BLOCK = 256
KICKED_SWAPS = 300  # kicks are drawn from so many
PAIRED_SWAPS = 200
MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True, eq=False)
class Core:
    """The rows near the threshold, λ folded into their coordinates.

    A range [low, high] has the cost ½|s − low| + ½|s − high| − ½(high − low): two half-weighted points. So every
    target is a point here, in K ≥ C coordinates.
    """

    where: IntArray  # (m,) rows of the pool
    fixed: IntArray  # rows outside the core that are in the batch
    rows: Float64Array  # (m, K) λ·p, half-weighted and doubled for ranges
    cost: Float64Array  # (m,)
    reduced: Float64Array  # (m,) reduced costs
    chosen: BoolArray  # (m,)
    goal: Float64Array  # (K,) λ·target less the fixed rows
    offset: float  # what the fixed rows and the ranges add to the value
    fixed_size: float  # Σ|u| of the fixed rows
    ranged: float  # λ/2·Σ(high − low), which the doubled coordinates count too much
    summed: float  # λ·(Σlow + Σhigh + b): the residuals are differences of such sums

    def residual(self) -> Float64Array:
        """r = goal − Σ chosen rows, (K,)."""
        residual: Float64Array = self.goal - self.rows[self.chosen].sum(axis=0)
        return residual

    def value(self) -> float:
        """The program's objective."""
        return self.offset + float(self.cost[self.chosen].sum()) + float(np.abs(self.residual()).sum())

    def measure(self) -> Measured:
        """The value, its terms without their signs, and by how much rounding may have changed it."""
        costs, distance = self.cost[self.chosen], float(np.abs(self.residual()).sum())
        size = self.fixed_size + float(np.abs(costs).sum())
        rounding = ROUNDINGS * EPSILON * (size + self.summed)
        return Measured(self.offset + float(costs.sum()) + distance, size + distance - self.ranged, rounding)

    def notable(self) -> float:
        """The least gain that is more than noise."""
        return NOTABLE * self.measure().magnitude + RESIDUAL_NOISE * self.summed

    def picks(self) -> IntArray:
        """The whole batch, as rows of the pool, ascending."""
        return np.sort(np.concatenate([self.fixed, self.where[self.chosen]]))


def open_core(program: Program, point: DualPoint, size: int, picks: IntArray | None = None) -> Core:
    """The `size` rows nearest to the threshold; the batch starts as `picks`, or as the b smallest reduced costs."""
    where = point.reduced.distance_from(point.theta).smallest(size)
    batch = point.reduced.smallest(program.budget) if picks is None else picks
    chosen = np.isin(where, batch, assume_unique=True)
    fixed = batch[np.isin(batch, where, assume_unique=True, invert=True)]
    low, high = program.ranges.low, program.ranges.high
    ranged = np.flatnonzero(low < high)
    weight = np.full(len(low), program.lam)
    weight[ranged] /= 2
    columns = np.append(np.arange(len(low)), ranged)  # (K,)
    weights = weight[columns]
    inside = program.rows.total(fixed)
    goal = weights * (np.append(low, high[ranged]) - inside[columns])
    rows = program.rows.take(where)[:, columns] * weights
    fixed_costs, ranged_cost = program.cost.at(fixed), program.lam / 2 * float((high - low).sum())
    return Core(
        where, fixed, rows, program.cost.at(where), point.reduced.at(where), chosen, goal,
        offset=float(fixed_costs.sum()) - ranged_cost, fixed_size=float(np.abs(fixed_costs).sum()), ranged=ranged_cost,
        summed=program.lam * (float((low + high).sum()) + program.budget),
    )  # fmt: skip


def swap_descent(core: Core, sweeps: int = 60) -> Core:
    """Swap each chosen row for the best row outside, again and again, until no swap gains."""
    chosen, residual = core.chosen.copy(), core.residual()
    blocked = np.where(chosen, np.inf, 0.0) + core.cost  # chosen rows cannot be chosen again
    least = core.notable()
    for _ in range(sweeps):
        improved = False
        for out in np.flatnonzero(chosen):
            without = residual + core.rows[out]  # r with row `out` taken back
            price = cdist(without[None], core.rows, "cityblock")[0]
            stay = price[out] + core.cost[out]
            price += blocked
            into = int(price.argmin())
            if price[into] < stay - least:
                chosen[out], chosen[into] = False, True
                blocked[out], blocked[into] = core.cost[out], np.inf
                residual = without - core.rows[into]
                improved = True
        if not improved:
            break
    return replace(core, chosen=chosen)


def anneal(core: Core, rng: np.random.Generator, *, steps: int, hot: float, cold: float) -> Core:
    """Heat-bath annealing: take a chosen row out, put a row in with probability ∝ exp(−price / temperature).

    The row that leaves is the one with the higher reduced cost of two drawn at random: it is the likelier to be better
    replaced.
    """
    members, residual = np.flatnonzero(core.chosen), core.residual()
    if not 0 < len(members) < len(core.where):
        return core
    blocked = np.where(core.chosen, np.inf, 0.0) + core.cost
    best, change, lowest = members.copy(), 0.0, 0.0
    noise = rng.gumbel(size=(NOISE_ROWS, len(core.where)))  # argmin(price − T·noise) draws ∝ exp(−price / T)
    places = rng.integers(len(members), size=(steps, 2)).tolist()
    temperatures = np.geomspace(hot, cold, steps)
    for step, (place, other) in enumerate(places):
        if core.reduced[members[other]] > core.reduced[members[place]]:
            place = other
        out = members[place]
        blocked[out] = core.cost[out]
        without = residual + core.rows[out]
        price = cdist(without[None], core.rows, "cityblock")[0]
        price += blocked
        into = int((price - temperatures[step] * noise[step % NOISE_ROWS]).argmin())
        blocked[into] = np.inf
        if into != out:
            members[place], residual = into, without - core.rows[into]
            change += float(price[into] - price[out])
            if change < lowest:
                lowest, best = change, members.copy()
    chosen = np.zeros(len(core.where), dtype=bool)
    chosen[best] = True
    return replace(core, chosen=chosen)


def pair_descent(core: Core) -> Core:
    """Two swaps at once, the best pair of the cheapest swaps, until none gains."""
    least = core.notable()
    for _ in range(MOST_ROUNDS):
        pair = _best_pair(core, least)
        if pair is None:
            break
        core = _exchanged(core, *pair)
    return core


def kick(core: Core, swaps: int, rng: np.random.Generator) -> Core:
    """A few random cheap swaps: a start from which descent may end elsewhere."""
    outs, intos, _, _ = _cheap_swaps(core, KICKED_SWAPS)
    for swap in rng.permutation(np.arange(1, len(outs)))[:swaps]:
        if core.chosen[outs[swap]] and not core.chosen[intos[swap]]:
            core = _exchanged(core, outs[[swap]], intos[[swap]])
    return core


def _exchanged(core: Core, outs: IntArray, intos: IntArray) -> Core:
    chosen = core.chosen.copy()
    chosen[outs], chosen[intos] = False, True
    return replace(core, chosen=chosen)


def _best_pair(core: Core, least: float) -> tuple[IntArray, IntArray] | None:
    """Rows out and rows in of the best one or two swaps; None where nothing gains more than `least`."""
    outs, intos, price, moves = _cheap_swaps(core, PAIRED_SWAPS)
    residual = core.residual()
    best, found = -least, None
    now = float(np.abs(residual).sum())
    for start in range(0, len(outs), PAIR_BLOCK):
        part = slice(start, start + PAIR_BLOCK)
        total = cdist(residual - moves[part], moves, "cityblock")
        total += price[part, None] + (price - now)
        if total.min() >= best:
            continue
        # a row cannot leave or enter twice; the first "swap" is doing nothing, and may be paired with itself
        total[((outs[part, None] == outs) | (intos[part, None] == intos)) & (outs != -1)] = np.inf
        at = int(total.argmin())
        first, second = start + at // len(outs), at % len(outs)
        if total.flat[at] < best:
            best = float(total.flat[at])
            real = [index for index in (first, second) if outs[index] != -1]
            found = outs[real], intos[real]
    return found


def _cheap_swaps(core: Core, most: int) -> tuple[IntArray, IntArray, Float64Array, Float64Array]:
    """The `most` swaps of least reduced cost, after the empty one: rows out, rows in, prices and moves (K,)."""
    inside, outside = np.flatnonzero(core.chosen), np.flatnonzero(~core.chosen)
    reduced = core.reduced[outside] - core.reduced[inside][:, None]  # (inside, outside)
    cheap = smallest(reduced.ravel(), min(most, reduced.size))
    first, second = inside[cheap // len(outside)], outside[cheap % len(outside)]
    price = np.append(0.0, core.cost[second] - core.cost[first])
    moves = np.concatenate([np.zeros((1, core.rows.shape[1])), core.rows[second] - core.rows[first]])
    return np.append(-1, first), np.append(-1, second), price, moves
