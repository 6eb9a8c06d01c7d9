from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tailwise.matrix.shards import Rows
from tailwise.solver.program import Effort, Program
from tailwise.solver.solver import lower_bound
from tailwise.strategies.strategy import Imbalance, added_distance
from tailwise.targets import Ranges


@pytest.mark.parametrize("seed", range(5))
def test_what_a_row_adds_is_the_difference_of_two_distances(seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 3, size=4)
    ranges = Ranges(low, low + rng.uniform(0, 2, size=4) * (seed % 2))
    expected, rows = rng.uniform(0, 4, size=4), rng.dirichlet(np.ones(4), size=9)
    literal = [ranges.distance(expected + row) - ranges.distance(expected) for row in rows]
    np.testing.assert_allclose(added_distance(ranges, expected, rows), literal, atol=1e-12)


def test_what_a_row_adds_never_falls_while_others_are_picked() -> None:
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=20)
    imbalance = Imbalance(Rows(proba), Ranges(np.full(3, 2.0), np.full(3, 3.0)), 0.7)
    before = imbalance.added(proba)
    for row in range(12):
        imbalance.add(row)
        after = imbalance.added(imbalance.rows.take(np.arange(20)))
        assert (after >= before - 1e-12).all()
        before = after
    np.testing.assert_allclose(imbalance.expected, proba[:12].sum(axis=0))


def test_without_balance_nothing_is_added() -> None:
    proba = np.full((3, 2), 0.5)
    imbalance = Imbalance(Rows(proba), Ranges(np.ones(2), np.ones(2)), 0.0)
    imbalance.add(0)
    assert imbalance.added(proba).tolist() == [0.0] * 3


@pytest.mark.parametrize("lam", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("budget", [0, 3, 9])
def test_no_batch_is_below_the_lower_bound(lam: float, budget: int) -> None:
    rng = np.random.default_rng(budget)
    rows, cost, omega = Rows(rng.dirichlet(np.ones(3), size=9)), rng.normal(size=9), np.full(3, budget / 3)
    program = Program(rows, rows.hold(cost), budget, lam, Ranges(omega, omega))
    best = min(program.measure(np.array(some, dtype=np.int64)).value for some in combinations(range(9), budget))
    bound = lower_bound(program, Effort(gap=1e-3))
    assert bound <= best + 1e-12
    assert bound >= best - 0.5 * (1 + lam)  # what the relaxation of so tiny a pool may lose
