"""Groups in the program: exact on small pools, never a false bound, never a group with too many picks."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tailwise.errors import PoolExhausted
from tailwise.matrix.shards import rows_on, scan
from tailwise.score import SCORES
from tailwise.solver.constraints import solve_within
from tailwise.solver.program import Effort, Groups, Program
from tailwise.targets import Target


def pool(rows: int, classes: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    proba = np.exp(2 * rng.normal(size=(rows, classes)) - np.linspace(0, 3, classes))
    return proba / proba.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("lam", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(6))
def test_groups_on_a_small_pool_are_solved_exactly(lam: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    proba, numbers = pool(12, 3, seed), rng.integers(0, 4, 12)
    groups = Groups(numbers, np.array([1, 2, 1, 2]))
    with rows_on(proba) as rows:
        ranges = Target.uniform().resolve(np.zeros(3), 4)
        program = Program(rows, scan(rows, SCORES["entropy"]), 4, lam, ranges, groups)
        allowed = [
            np.array(batch)
            for batch in combinations(range(12), 4)
            if (np.bincount(numbers[list(batch)], minlength=4) <= groups.most).all()
        ]
        if not allowed:
            with pytest.raises(PoolExhausted, match="the groups allow only"):
                solve_within(program, Effort())
            return
        found, best = solve_within(program, Effort()), min(program.measure(batch).value for batch in allowed)
        reduced = rows.priced(program.cost, found.duals).at(found.indices)
    assert (np.diff(reduced) >= 0).all()  # best first
    assert found.objective == pytest.approx(best, abs=1e-12)
    assert found.bound <= best + 1e-9
    assert (np.bincount(numbers[found.indices], minlength=4) <= groups.most).all()


@pytest.mark.parametrize(("lam", "most"), [(0.0, 1), (0.3, 1), (1.0, 2)])
def test_groups_on_a_large_pool_are_certified(lam: float, most: int) -> None:
    rng = np.random.default_rng(3)
    proba = np.repeat(pool(800, 10, 3), 5, axis=0) * np.exp(0.1 * rng.normal(size=(4000, 10)))
    proba /= proba.sum(axis=1, keepdims=True)
    numbers = np.arange(4000) // 5  # bursts of five nearly equal images
    with rows_on(proba) as rows:
        ranges = Target.uniform().resolve(np.zeros(10), 200)
        plain = Program(rows, scan(rows, SCORES["entropy"]), 200, lam, ranges)
        free = solve_within(plain, Effort())
        program = Program(rows, plain.cost, 200, lam, ranges, Groups(numbers, np.full(800, most)))
        found = solve_within(program, Effort())
        assert np.bincount(numbers[free.indices]).max() > most
        assert np.bincount(numbers[found.indices]).max() <= most
        assert free.bound <= found.bound + 1e-9
        assert found.bound <= found.objective == pytest.approx(program.measure(found.indices).value)
    assert found.gap < 2e-3
    if lam == 0:
        score = SCORES["entropy"](proba)
        order = np.lexsort((-score, numbers))
        best = np.sort(-np.sort(-score[order].reshape(800, 5), axis=1)[:, :most].ravel())[-200:]
        assert found.objective == pytest.approx(-best.sum())


def test_equal_groups_of_one_change_nothing() -> None:
    with rows_on(pool(300, 5, 0)) as rows:
        ranges = Target.uniform().resolve(np.zeros(5), 30)
        plain = Program(rows, scan(rows, SCORES["margin"]), 30, 0.5, ranges)
        alone = Program(rows, plain.cost, 30, 0.5, ranges, Groups(np.arange(300), np.ones(300, np.int64)))
        assert solve_within(alone, Effort()).objective == pytest.approx(solve_within(plain, Effort()).objective)


def test_duals_of_a_larger_lambda_do_not_make_a_false_bound() -> None:
    with rows_on(pool(300, 5, 1)) as rows:
        ranges = Target.counts([30.0, 0, 0, 0, 0]).resolve(np.zeros(5), 30)
        program = Program(
            rows, scan(rows, SCORES["margin"]), 30, 0.1, ranges, Groups(np.arange(300) // 3, np.ones(100))
        )
        found = solve_within(program, Effort(), warm=np.array([9.0, -9.0, -9.0, -9.0, -9.0]))
        assert found.bound <= solve_within(program, Effort()).objective + 1e-9


def test_picks_that_branch_and_bound_has_found_are_listed_best_first() -> None:
    proba = np.random.default_rng(0).dirichlet([3.0, 2.0, 1.0, 0.5], size=400)
    groups = Groups(np.arange(400) // 4, np.ones(100, np.int64))
    with rows_on(proba) as rows:
        ranges = Target.uniform().resolve(np.zeros(4), 10)
        program = Program(rows, scan(rows, SCORES["entropy"]), 10, 1.0, ranges, groups)
        found = solve_within(program, Effort())
        reduced = rows.priced(program.cost, found.duals).at(found.indices)
    assert (np.diff(reduced) >= 0).all()
    assert not (np.diff(found.indices) > 0).all()
