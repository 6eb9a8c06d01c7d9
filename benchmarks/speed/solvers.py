"""General solvers on the same program, each called in a process of its own: an instance and a time limit in, picks out.

CVXPY models are written as its users would, with two favours to the solver: the residual is a variable of its own (half
the non-zeros of the plain form), and the search stops as soon as it reaches the objective that it is compared with.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from .apart import Answer
from .instances import Array, Instance, costs, generate, objective


def cvxpy_with(solver: str, size: int, classes: int, seed: int, limit: float, goal: float) -> Answer:
    """Solve by CVXPY with "HIGHS" or "SCIP"; `seconds` is the solver's own time, all else is `build`."""
    import cvxpy

    instance = Instance(size, classes, seed)
    proba, _ = generate(instance)
    started = time.perf_counter()
    problem, z = _model(instance, proba)
    try:
        problem.solve(solver=solver, **_options(solver, limit, goal))
    except cvxpy.error.SolverError:
        wall = time.perf_counter() - started
        if wall < limit:  # a true failure; after the limit it is how CVXPY says that no solution was found
            raise
        return {"seconds": limit, "build": wall - limit, "objective": np.inf}
    wall = time.perf_counter() - started
    seconds = problem.solver_stats.solve_time
    return {"seconds": seconds, "build": wall - seconds, "objective": objective(instance, proba, _picks(z.value))}


def _model(instance: Instance, proba: Array) -> tuple[Any, Any]:
    import cvxpy

    z = cvxpy.Variable(instance.size, boolean=True)
    residual = cvxpy.Variable(instance.classes)
    wanted = cvxpy.Minimize(costs(proba) @ z + cvxpy.norm1(residual))
    limits = [cvxpy.sum(z) == instance.budget, residual == instance.omega - proba.T.astype(np.float64) @ z]
    return cvxpy.Problem(wanted, limits), z


def _options(solver: str, limit: float, goal: float) -> dict[str, Any]:
    """Time limit, no early stop at a gap, stop at the goal."""
    if solver == "HIGHS":
        return {"time_limit": limit, "mip_rel_gap": 0.0, "mip_abs_gap": 0.0, "objective_target": goal}
    from cvxpy import settings
    from cvxpy.reductions.solvers.conic_solvers import scip_conif

    # SCIP's word for "the goal is reached" is missing from CVXPY's table, which would raise.
    scip_conif.STATUS_MAP.setdefault("primallimit", settings.OPTIMAL_INACCURATE)
    return {"scip_params": {"limits/time": limit, "limits/gap": 0.0, "limits/primal": goal}}


def scip(size: int, classes: int, seed: int, limit: float) -> Answer:
    """Solve by SCIP through its own Python interface."""
    import pyscipopt

    instance = Instance(size, classes, seed)
    proba, _ = generate(instance)
    model = pyscipopt.Model()
    model.hideOutput()
    model.setParam("limits/time", limit)
    z = [model.addVar(vtype="B", obj=float(cost)) for cost in costs(proba)]
    model.addCons(pyscipopt.quicksum(z) == instance.budget)
    for k, omega in enumerate(instance.omega):
        over, under = model.addVar(obj=1.0), model.addVar(obj=1.0)  # λ = 1 for each side
        expected = pyscipopt.quicksum(float(p) * one for p, one in zip(proba[:, k], z, strict=True))
        model.addCons(expected - over + under == float(omega))
    model.optimize()
    found = model.getNSols() > 0
    values = np.array([model.getVal(one) for one in z]) if found else np.zeros(size)
    return {
        "seconds": model.getSolvingTime(), "status": model.getStatus(),
        "objective": objective(instance, proba, _picks(values)),
    }  # fmt: skip


def _picks(z: Array | None) -> Array:
    """Rows that are chosen: z is only nearly integer, and may be no solution at all."""
    return np.flatnonzero(np.zeros(0) if z is None else np.asarray(z) > 0.5)


def reaches(found: float, goal: float) -> bool:
    """Whether an objective is as low as another, up to rounding."""
    return found <= goal + 1e-9 * abs(goal)
