"""The pseudo-label form is exact: against brute force over counts and batches."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tailwise.strategies.pseudo_label import solve_one_hot
from tailwise.targets import Ranges

from ..solver.programs import make_program


@pytest.mark.parametrize("lam", [0.0, 0.2, 1.0, 50.0])
@pytest.mark.parametrize("seed", range(30))
def test_the_solution_is_the_best_of_all_batches(seed: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=11)
    cost = rng.integers(-2, 3, size=11).astype(float) if seed % 2 else rng.normal(size=11)
    low = rng.random(3) * 3
    ranges = Ranges(low, low + (rng.random(3) if seed % 3 else 0))
    program = make_program(np.eye(3)[labels], cost, 5, lam, ranges)
    best = min(program.measure(np.array(batch)).value for batch in combinations(range(11), 5))
    solution = solve_one_hot(program, labels)
    assert solution.objective == pytest.approx(best)
    assert solution.objective == pytest.approx(program.measure(solution.indices).value)
    assert solution.gap == 0.0


def test_within_a_class_the_cheapest_rows_are_taken_first() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, size=200)
    program = make_program(np.eye(4)[labels], rng.normal(size=200), 40, 1.0, Ranges(np.full(4, 10.0), np.full(4, 10.0)))
    picks = solve_one_hot(program, labels).indices
    for cls in range(4):
        mine = np.flatnonzero(labels == cls)
        taken = np.isin(mine, picks)
        cost = program.cost.values()
        assert cost[mine[taken]].max(initial=-np.inf) <= cost[mine[~taken]].min(initial=np.inf)
