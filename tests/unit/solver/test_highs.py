"""HiGHS on a core: right optimum, right duals, and a bound that holds when it is stopped early."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tailwise.solver.dual import Part
from tailwise.solver.highs import branch_and_bound, exact_duals
from tailwise.solver.program import Effort
from tailwise.solver.solver import solve
from tailwise.targets import Ranges

from .programs import make_program


def make_part(seed: int, size: int = 12, lam: float = 1.0) -> Part:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(4, 0.5), size=size)
    low = np.full(4, size / 12 + 0.3)
    inside = rng.random(4)
    return Part(rows, rng.normal(size=size) * 0.2, size // 3, inside, -1.5, Ranges(low, low + 0.1), lam)


def value(part: Part, batch: list[int]) -> float:
    expected = part.rows[batch].sum(axis=0) + part.inside
    return part.inside_cost + part.cost[batch].sum() + part.lam * part.ranges.distance(expected)


@pytest.mark.parametrize("lam", [0.3, 1.0, 1e4])
@pytest.mark.parametrize("seed", range(5))
def test_the_optimum_is_that_of_all_batches(seed: int, lam: float) -> None:
    part = make_part(seed, lam=lam)
    start = np.arange(12) < 4
    found = branch_and_bound(part, start, nodes=10_000, seconds=np.inf)
    best = min(value(part, list(batch)) for batch in combinations(range(12), 4))
    assert found.chosen is not None
    assert value(part, np.flatnonzero(found.chosen).tolist()) == pytest.approx(best, abs=1e-6 * lam)
    assert found.bound <= best
    assert found.bound == pytest.approx(best, abs=1e-4 * max(1.0, lam))


def test_a_search_stopped_early_still_bounds_the_optimum() -> None:
    early = []
    for seed in range(6):
        part = make_part(seed, size=36)
        start = np.arange(36) < 12
        whole = branch_and_bound(part, start, nodes=100_000, seconds=np.inf)
        stopped = branch_and_bound(part, start, nodes=1, seconds=np.inf)
        assert whole.chosen is not None
        optimum = value(part, np.flatnonzero(whole.chosen).tolist())
        assert stopped.bound <= optimum
        early.append(optimum - stopped.bound)
    assert max(early) > 1e-3  # some were really stopped before the end


def test_the_certificate_of_a_stopped_search_is_not_the_objective() -> None:
    gaps = []
    for seed in (3, 4, 5):
        rng = np.random.default_rng(seed)
        target = Ranges(np.full(4, 3.3), np.full(4, 3.4))
        program = make_program(rng.dirichlet(np.full(4, 0.5), size=36), rng.normal(size=36) * 0.2, 12, 1.0, target)
        hasty = solve(program, Effort(gap=1e-9, restarts=0, kicks=0, nodes=1))
        careful = solve(program, Effort.for_gap(1e-9, None))
        assert hasty.bound <= careful.objective + 1e-9
        gaps.append(hasty.gap)
    assert max(gaps) > 1e-3


def test_duals_of_the_relaxation_bound_it() -> None:
    part = make_part(3)
    y = exact_duals(part)
    assert y is not None
    assert np.abs(y).max() <= part.lam + 1e-9
