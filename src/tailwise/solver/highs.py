"""HiGHS on a small core: exact duals of the relaxed program, and the exact integer optimum of a few dozen rows.

The only place that knows how the program is written for HiGHS: columns z (m), shortfall t⁺ (C), surplus t⁻ (C);
rows low ≤ Pᵀz + t⁺ − t⁻ ≤ high and 1ᵀz = b. Costs are divided by the larger of λ and their own median size, so that
HiGHS's tolerances mean the same for scores in any unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np

from ..types import BoolArray, Float64Array
from .newton import Part

TOLERANCE = 1e-9
MOST_PIVOTS = 20_000
OPTIMAL = highspy.HighsModelStatus.kOptimal
STOPPED = {  # states in which the best point and the bound so far are valid
    highspy.HighsModelStatus.kTimeLimit,
    highspy.HighsModelStatus.kIterationLimit,
    highspy.HighsModelStatus.kSolutionLimit,
}


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
    if solver.getModelStatus() != OPTIMAL:
        return None
    return np.array(solver.getSolution().row_dual)[:-1] * scale


def branch_and_bound(part: Part, incumbent: BoolArray, *, nodes: int, seconds: float) -> CoreOptimum:
    """The integer optimum of a part, or the best found within the limits; `incumbent` is where it starts."""
    solver, scale = _load(part, integer=True)
    solver.setOptionValue("mip_max_nodes", nodes)
    if np.isfinite(seconds):
        solver.setOptionValue("time_limit", max(seconds, 0.01))
    start = highspy.HighsSolution()
    start.col_value = _columns(part, incumbent).tolist()
    solver.setSolution(start)
    solver.run()
    if solver.getModelStatus() not in {OPTIMAL, *STOPPED}:
        return CoreOptimum(None, -np.inf)
    info = solver.getInfo()
    values = np.array(solver.getSolution().col_value)[: len(part.rows)]
    chosen = values > 0.5 if len(values) else None
    if chosen is not None and chosen.sum() != part.budget:
        chosen = None
    # Every row and every z may be off by the tolerance: what that can hide is taken off the bound.
    dearest = 1.0 + float(np.abs(part.cost).max()) / scale
    slack = TOLERANCE * (sum(part.rows.shape) + 1) * dearest + TOLERANCE * abs(info.mip_dual_bound)
    return CoreOptimum(chosen, (info.mip_dual_bound - slack) * scale + part.inside_cost)


def _load(part: Part, *, integer: bool) -> tuple[Any, float]:
    """A solver holding the part's program, and the number by which its costs were divided."""
    m, classes = part.rows.shape
    scale = max(part.lam, float(np.median(np.abs(part.cost))))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = m + 2 * classes, classes + 1
    model.col_cost_ = np.concatenate([part.cost, np.full(2 * classes, part.lam)]) / scale
    model.col_lower_ = np.zeros(m + 2 * classes)
    model.col_upper_ = np.concatenate([np.ones(m), np.full(2 * classes, highspy.kHighsInf)])
    model.row_lower_ = np.append(part.ranges.low - part.inside, part.budget)
    model.row_upper_ = np.append(part.ranges.high - part.inside, part.budget)
    matrix = model.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    dense = m * (classes + 1)
    matrix.start_ = np.concatenate([np.arange(m + 1) * (classes + 1), dense + 1 + np.arange(2 * classes)])
    every = np.arange(classes)
    matrix.index_ = np.concatenate([np.tile(np.arange(classes + 1), m), every, every])
    picks = np.concatenate([part.rows, np.ones((m, 1))], axis=1).ravel()  # column i: p_i, then 1
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
