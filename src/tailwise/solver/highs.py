"""HiGHS: exact duals and integer optima of a small core of the program, and covering programs (for CoreSet).

This is the only module that knows how programs are written for HiGHS.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import highspy
import numpy as np
from scipy import sparse

from ..errors import SolverFailed
from ..types import BoolArray, Float64Array, IntArray

if TYPE_CHECKING:
    from .dual import Part

Highs: TypeAlias = Any  # highspy.Highs, which ships without full types
Sparse: TypeAlias = Any  # scipy.sparse.csr_array
TOLERANCE = 1e-9
MOST_PIVOTS = 20_000
STATUS = highspy.HighsModelStatus
STOPPED = {STATUS.kTimeLimit, STATUS.kIterationLimit, STATUS.kSolutionLimit}  # the best so far and its bound hold
# What the final status of a cover means. The programs are bounded, so "unbounded or infeasible" is infeasible.
MEANING = {
    **dict.fromkeys([STATUS.kOptimal, STATUS.kObjectiveTarget], "solved"),
    **dict.fromkeys([STATUS.kInfeasible, STATUS.kUnboundedOrInfeasible], "impossible"),
    **dict.fromkeys(STOPPED, "stopped"),
}
MOST_SWAPS, EDGES_PER_SWAP = 4_000, 50  # steps of one local search on a cover: few where branching is fast anyway
ROUNDING = 1e-9  # share of a bound on a cover that its sums may have lost


@dataclass(frozen=True, slots=True, eq=False)
class CoreOptimum:
    """What branch and bound found on the core: the chosen rows (None if nothing), and a lower bound on the value."""

    chosen: BoolArray | None  # (m,)
    bound: float


def exact_duals(part: Part) -> Float64Array | None:
    """The y of an optimal basis of the relaxed program on a part, (C,); None where HiGHS does not reach one."""
    solver, scale = _load(part, integer=False)
    solver.setOptionValue("simplex_iteration_limit", MOST_PIVOTS)
    solver.run()
    if solver.getModelStatus() != STATUS.kOptimal:
        return None
    return np.array(solver.getSolution().row_dual)[:-1] * scale


def branch_and_bound(
    part: Part, incumbent: BoolArray, *, nodes: int, seconds: float, groups: Sequence[tuple[IntArray, int]] = (),
    prices: Float64Array | None = None,
) -> CoreOptimum:  # fmt: skip
    """The integer optimum of a part, or the best found within the limits; `incumbent` is where it starts.

    `groups` are rows of the part, and how many of these may be chosen. With `prices` (m,) the budget is what the chosen
    rows may cost, not how many they are.
    """
    solver, scale = _load(part, integer=True, prices=prices)
    for members, most in groups:
        solver.addRow(0.0, float(most), len(members), members.astype(np.int32), np.ones(len(members)))
    solver.setOptionValue("mip_max_nodes", nodes)
    if np.isfinite(seconds):
        solver.setOptionValue("time_limit", max(seconds, 0.01))
    start = highspy.HighsSolution()
    start.col_value = _columns(part, incumbent).tolist()
    solver.setSolution(start)
    solver.run()
    if solver.getModelStatus() not in {STATUS.kOptimal, *STOPPED}:
        return CoreOptimum(None, -np.inf)
    info = solver.getInfo()
    values = np.array(solver.getSolution().col_value)[: len(part.rows)]
    chosen = values > 0.5 if len(values) else None
    spent = 0.0 if chosen is None else float(chosen.sum() if prices is None else prices[chosen].sum())
    if spent > part.budget or (prices is None and spent < part.budget):
        chosen = None
    # Every row and every z may be off by the tolerance: what that can hide is taken off the bound.
    dearest = 1.0 + float(np.abs(part.cost).max()) / scale
    slack = TOLERANCE * (sum(part.rows.shape) + 1) * dearest + TOLERANCE * abs(info.mip_dual_bound)
    return CoreOptimum(chosen, (info.mip_dual_bound - slack) * scale + part.inside_cost)


def _load(part: Part, *, integer: bool, prices: Float64Array | None = None) -> tuple[Highs, float]:
    """A solver with the part's program, and the number by which its costs were divided.

    Columns z (m), shortfall t⁺ (C), surplus t⁻ (C); rows low ≤ Pᵀz + t⁺ − t⁻ ≤ high and 1ᵀz = b. Costs are divided by
    the larger of λ and their median absolute value, so that HiGHS's tolerances mean the same for scores in any unit.
    """
    m, classes = part.rows.shape
    scale = max(part.lam, float(np.median(np.abs(part.cost))))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = m + 2 * classes, classes + 1
    model.col_cost_ = np.concatenate([part.cost, np.full(2 * classes, part.lam)]) / scale
    model.col_lower_ = np.zeros(m + 2 * classes)
    model.col_upper_ = np.concatenate([np.ones(m), np.full(2 * classes, highspy.kHighsInf)])
    model.row_lower_ = np.append(part.ranges.low - part.inside, 0.0 if prices is not None else part.budget)
    model.row_upper_ = np.append(part.ranges.high - part.inside, part.budget)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    dense = m * (classes + 1)
    matrix.start_ = np.concatenate([np.arange(m + 1) * (classes + 1), dense + 1 + np.arange(2 * classes)])
    every = np.arange(classes)
    matrix.index_ = np.concatenate([np.tile(np.arange(classes + 1), m), every, every])
    units = np.ones(m) if prices is None else prices
    picks = np.concatenate([part.rows, units[:, None]], axis=1).ravel()  # column i: p_i, then 1 or its price
    matrix.value_ = np.concatenate([picks, np.ones(classes), -np.ones(classes)])
    if integer:
        kinds = highspy.HighsVarType
        model.integrality_ = [kinds.kInteger] * m + [kinds.kContinuous] * (2 * classes)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("random_seed", 0)
    for option in ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance"):
        solver.setOptionValue(option, TOLERANCE)
    solver.setOptionValue("mip_rel_gap", 1e-9)
    solver.setOptionValue("mip_abs_gap", 1e-9)
    solver.passModel(model)
    return solver, scale


def _columns(part: Part, chosen: BoolArray) -> Float64Array:
    """All columns of a feasible point: z, and the shortfall and surplus that follow from it."""
    expected = part.rows[chosen].sum(axis=0) + part.inside
    short = np.maximum(part.ranges.low - expected, 0.0)
    over = np.maximum(expected - part.ranges.high, 0.0)
    return np.concatenate([chosen.astype(np.float64), short, over])


# -- covering programs -----------------------------------------------------------------------------------------------

# Choose columns of a 0/1 matrix, the "cover" (m, N), such that all rows but Ξ have one: few columns, or at most b.


@dataclass(slots=True, eq=False, kw_only=True)
class CoverSearch:
    """What a cover must have, and what the search for it may still cost."""

    budget: int  # b, the columns that may be chosen
    outliers: int  # Ξ, the rows that may stay uncovered
    deadline: float  # seconds of time.perf_counter
    steps: float = np.inf  # simplex iterations and swaps that are left

    def spent(self) -> bool:
        """True where time or steps are used up."""
        return self.steps <= 0 or time.perf_counter() >= self.deadline


class ChosenColumns:
    """A choice of columns that changes in place, with the weight that each column would add or take away."""

    def __init__(self, cover: Sparse) -> None:
        self.cover, self.by_column = cover, cover.tocsc()  # (m, N) by rows and by columns
        self.weight = np.ones(cover.shape[0])  # (m,)
        self.count = np.zeros(cover.shape[0], dtype=np.int64)  # (m,) chosen columns that cover the row
        self.owners = self.count.copy()  # (m,) the sum of their numbers: the number itself where there is one
        self.gain = np.asarray(cover.sum(axis=0))  # (N,) weight of the uncovered rows that the column covers
        self.loss = np.full(cover.shape[1], np.inf)  # (N,) if chosen, weight of the rows that no other covers; else inf

    def move(self, column: int, sign: int) -> None:
        """Choose a column (sign 1) or drop it (sign −1)."""
        rows = self.by_column.indices[self.by_column.indptr[column] : self.by_column.indptr[column + 1]]
        others = self.count[rows] - (sign < 0)  # other chosen columns
        turned, shared = rows[others == 0], rows[others == 1]
        self.add_gain(turned, -sign * self.weight[turned])
        np.subtract.at(self.loss, self.owners[shared] - (sign < 0) * column, sign * self.weight[shared])
        self.loss[column] = self.weight[turned].sum() if sign > 0 else np.inf
        self.count[rows] += sign
        self.owners[rows] += sign * column

    def add_gain(self, rows: IntArray, weight: Float64Array) -> None:
        """Add weights to the gains of all columns that cover these rows."""
        starts, ends = self.cover.indptr[rows].tolist(), self.cover.indptr[rows + 1].tolist()
        near = [self.cover.indices[start:end] for start, end in zip(starts, ends, strict=True)]
        if near:
            self.gain += np.bincount(np.concatenate(near), np.repeat(weight, [*map(len, near)]), len(self.gain))

    def choose(self, worth: Float64Array, outliers: int) -> IntArray:
        """Choose until all but Ξ rows are covered, each time the column with the largest worth × gain."""
        picks: list[int] = []
        while (self.count == 0).sum() > outliers:
            picks.append(int((worth * self.gain).argmax()))
            self.move(picks[-1], 1)
        return np.array(picks, dtype=np.int64)

    def swap(self, search: CoverSearch) -> IntArray | None:
        """Swap columns until all but Ξ rows are covered; None if that fails.

        Row-weighting local search (Gao et al. 2015): an uncovered row gains 1 at each step; the column that costs least
        goes, the best one for the heaviest uncovered row (after Ξ given up) comes; of equals the one at rest longest.
        """
        new, moved = -1, np.zeros(len(self.gain), dtype=np.int64)  # (N,) step of the last move
        for step in range(1, min(MOST_SWAPS, 100 + self.cover.nnz // EDGES_PER_SWAP) + 1):
            waiting, chosen = np.flatnonzero(self.count == 0), np.flatnonzero(np.isfinite(self.loss))
            if len(waiting) <= search.outliers:
                return chosen
            if search.spent():
                break
            search.steps -= 1
            self.weight[waiting] += 1.0
            self.add_gain(waiting, np.ones(len(waiting)))
            old = _best(chosen, new, -self.loss, moved)
            self.move(old, -1)
            row = np.argsort(np.where(self.count == 0, -self.weight, 0.0), kind="stable")[search.outliers]
            new = _best(self.cover.indices[slice(*self.cover.indptr[row : row + 2])], old, self.gain, moved)
            self.move(new, 1)
            moved[[old, new]] = step
        return None


def _best(columns: IntArray, barred: int, worth: Float64Array, moved: IntArray) -> int:
    """The worthiest column that is not barred; of equals the one that moved longest ago, then the first."""
    free = columns[columns != barred] if len(columns) > 1 else columns
    top = free[worth[free] == worth[free].max()]
    return int(top[moved[top].argmin()])


def relax_cover(search: CoverSearch, cover: Sparse) -> tuple[float, Float64Array]:
    """How many centres a cover needs at least, and the fractional picks (N,) of the linear relaxation.

    Any y ≥ 0 (m,) with coverᵀy ≤ 1 proves  Σs ≥ Σ_covered y ≥ Σy − (the Ξ largest y).  So the duals are scaled into
    place and the bound is computed from them: no tolerance of the solver enters the proof.
    """
    solver = load_cover(search, cover, integer=False)
    if np.isfinite(search.steps):
        solver.setOptionValue("simplex_iteration_limit", max(0, int(search.steps)))
    run_cover(solver)
    search.steps -= max(0, solver.getInfo().simplex_iteration_count)
    solution = solver.getSolution()
    share = np.asarray(solution.col_value)[: cover.shape[1]] if solution.value_valid else np.ones(cover.shape[1])
    if not solution.dual_valid:
        return 0.0, share
    y = np.maximum(np.asarray(solution.row_dual)[: cover.shape[0]], 0.0)  # (m,)
    y /= max(1.0, (cover.T @ y).max())
    return float(np.sort(y)[: len(y) - search.outliers].sum() - ROUNDING * y.sum()), share


def run_cover(solver: Highs) -> str:
    """Run HiGHS: "solved", "impossible" or "stopped"."""
    solver.run()
    status = solver.getModelStatus()
    if status not in MEANING:
        raise SolverFailed(
            f"HiGHS ended a covering program with status {solver.modelStatusToString(status)!r}; if "
            "this process has used HiGHS with more threads, call highspy.Highs.resetGlobalScheduler(True) first"
        )
    return MEANING[status]


def load_cover(search: CoverSearch, cover: Sparse, *, integer: bool) -> Highs:
    """A solver with  min Σs,  cover·s + o ≥ 1,  Σo ≤ Ξ  (o only if Ξ > 0);  if integer also Σs ≤ b, s binary."""
    m, n = cover.shape
    spare = m if search.outliers else 0
    matrix = sparse.hstack([cover, sparse.eye_array(m)], format="csr") if spare else cover
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = m, n + spare
    model.col_cost_ = np.repeat([1.0, 0.0], [n, spare])
    model.col_lower_ = np.zeros(n + spare)
    # In the relaxation s ≤ 1 would change nothing but the duals, which then need not obey coverᵀy ≤ 1.
    model.col_upper_ = np.repeat([1.0 if integer else highspy.kHighsInf, 1.0], [n, spare])
    model.row_lower_, model.row_upper_ = np.ones(m), np.full(m, highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
    model.a_matrix_.value_ = matrix.data
    if integer:  # o is then binary by itself
        model.integrality_ = [highspy.HighsVarType.kInteger] * n + [highspy.HighsVarType.kContinuous] * spare
    solver: Highs = highspy.Highs()
    # Presolve compares columns pair by pair, which takes minutes here and does not heed the time limit.
    left = max(search.deadline - time.perf_counter(), 0.01)
    for option, value in {"output_flag": False, "threads": 1, "presolve": "off", "time_limit": left}.items():
        solver.setOptionValue(option, value)
    solver.passModel(model)
    if spare:
        solver.addRow(0.0, float(search.outliers), m, np.arange(n, n + m, dtype=np.int32), np.ones(m))
    if integer:
        solver.addRow(0.0, float(search.budget), n, np.arange(n, dtype=np.int32), np.ones(n))
    return solver
