from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment, linprog

from tailwise.solver import transport as module
from tailwise.solver.transport import (
    SparseValues,
    Transport,
    best_rows,
    dual_bound,
    falling_price,
    sparse_transport,
    transport,
)


def assignment_optimum(values: np.ndarray, quota: np.ndarray) -> float:
    """The best value with exact quotas, by SciPy's assignment solver with one column per place."""
    places = np.repeat(np.arange(len(quota)), quota)
    rows, columns = linear_sum_assignment(values[:, places], maximize=True)
    return float(values[:, places][rows, columns].sum())


def soft_optimum(values: np.ndarray, quota: np.ndarray, penalty: float) -> float:
    """The best value by linear programming: places inside the quota, and as many as wanted that cost the penalty."""
    budget, classes = int(quota.sum()), len(quota)
    places = np.concatenate([np.repeat(np.arange(classes), quota), np.repeat(np.arange(classes), budget)])
    fee = np.repeat([0.0, penalty], [budget, classes * budget])
    cost = -(values[:, places] - fee)
    size, slots = cost.shape
    once = np.kron(np.eye(size), np.ones(slots))
    filled = np.kron(np.ones(size), np.eye(slots))
    found = linprog(
        cost.ravel(), A_ub=np.vstack([once, filled]), b_ub=np.ones(size + slots), A_eq=np.ones((1, cost.size)),
        b_eq=[budget], bounds=(0, 1),
    )  # fmt: skip
    return -float(found.fun)


def check_certificate(best: Transport, values: np.ndarray, quota: np.ndarray, penalty: float = np.inf) -> None:
    counts = np.bincount(best.classes, minlength=len(quota))
    over = np.maximum(counts - quota, 0).sum()
    value = values[best.rows, best.classes].sum() - (penalty * over if over else 0.0)
    assert best.value == pytest.approx(value, abs=1e-9)
    assert len(set(best.rows.tolist())) == len(best.rows) == quota.sum()
    assert best.bound == pytest.approx(best.value, abs=1e-8)
    assert best.bound == pytest.approx(dual_bound(values, quota, best.prices, penalty))


problems = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(0, 10_000), st.booleans())


def make_problem(problem: tuple[int, int, int, bool]) -> tuple[np.ndarray, np.ndarray]:
    size, classes, seed, tied = problem
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (size, classes)).astype(float) if tied else rng.normal(size=(size, classes))
    return values, rng.multinomial(rng.integers(0, size + 1), np.full(classes, 1 / classes))


@given(problems)
def test_exact_quotas_reach_the_optimum_and_prove_it(problem: tuple[int, int, int, bool]) -> None:
    values, quota = make_problem(problem)
    best = transport(values, quota)
    assert np.bincount(best.classes, minlength=len(quota)).tolist() == quota.tolist()
    assert best.value == pytest.approx(assignment_optimum(values, quota), abs=1e-9)
    check_certificate(best, values, quota)


def border_problem(size: int, classes: int, seed: int, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Values as at the borders of classes, each row worth the same to its two nearest; steps make more equal."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(size, classes)) / step) * step
    values = logits - logits.max(axis=1, keepdims=True)
    top, second = np.argsort(-values, axis=1, kind="stable")[:, :2].T
    values[np.arange(size), top] = values[np.arange(size), second]
    return values, rng.multinomial(rng.integers(0, size + 1), rng.dirichlet(np.ones(classes)))


@given(st.integers(2, 60), st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([1e-9, 0.1, 0.5]))
def test_rows_that_are_worth_the_same_to_two_classes_are_assigned_optimally(
    size: int, classes: int, seed: int, step: float
) -> None:
    values, quota = border_problem(size, classes, seed, step)
    best = transport(values, quota)
    assert best.value == pytest.approx(assignment_optimum(values, quota), abs=1e-9)
    check_certificate(best, values, quota)


@given(st.integers(2, 60), st.integers(2, 7), st.integers(0, 10_000), st.sampled_from([1e-9, 0.1, 0.5]))
def test_the_falling_price_is_optimal_for_the_counts_that_it_fills(
    size: int, classes: int, seed: int, step: float
) -> None:
    values, quota = border_problem(size, classes, seed, step)
    rows, places = falling_price(values, quota)
    counts = np.bincount(places, minlength=classes)
    assert (counts <= quota).all()
    assert len(set(rows.tolist())) == len(rows)
    assert values[rows, places].sum() == pytest.approx(assignment_optimum(values, counts), abs=1e-9)


def test_the_falling_price_places_most_rows_where_they_lie_at_borders() -> None:
    values, _ = border_problem(3_000, 20, 0, 1e-9)
    rows, _ = falling_price(values, np.full(20, 15))
    assert len(rows) > 280


@settings(max_examples=60)
@given(problems, st.sampled_from([0.0, 0.1, 0.5, 3.0]))
def test_soft_quotas_reach_the_optimum_and_prove_it(problem: tuple[int, int, int, bool], penalty: float) -> None:
    values, quota = make_problem(problem)
    best = transport(values, quota, penalty)
    if quota.sum():
        assert best.value == pytest.approx(soft_optimum(values, quota, penalty), abs=1e-7)
    check_certificate(best, values, quota, penalty)


def test_the_penalty_is_twice_lambda_of_the_l1_distance_from_the_quota() -> None:
    rng = np.random.default_rng(1)
    values, quota, lam = rng.random((5, 3)), np.array([2, 1, 0]), 0.2
    best = -np.inf
    for places in product(range(-1, 3), repeat=5):
        chosen = np.array(places)
        if (chosen >= 0).sum() == 3:
            counts = np.bincount(chosen[chosen >= 0], minlength=3)
            rows = np.flatnonzero(chosen >= 0)
            best = max(best, values[rows, chosen[rows]].sum() - lam * np.abs(counts - quota).sum())
    assert transport(values, quota, penalty=2 * lam).value == pytest.approx(best)


def test_without_a_penalty_the_best_rows_win_and_a_large_one_is_exact() -> None:
    values, quota = np.random.default_rng(2).random((40, 4)), np.array([5, 0, 0, 0])
    free, strict = transport(values, quota, 0.0), transport(values, quota, 100.0)
    assert sorted(free.rows.tolist()) == sorted(np.argsort(-values.max(axis=1))[:5].tolist())
    assert strict.rows.tolist() == transport(values, quota).rows.tolist()


def test_any_prices_give_a_bound() -> None:
    rng = np.random.default_rng(3)
    values, quota = rng.random((30, 4)), np.array([3, 2, 1, 2])
    best = transport(values, quota).value
    assert all(dual_bound(values, quota, rng.normal(size=4)) >= best for _ in range(200))


def test_equal_rows_go_to_the_lower_index() -> None:
    assert transport(np.ones((6, 2)), np.array([2, 1])).rows.tolist() == [0, 1, 2]
    assert best_rows(np.array([[1.0], [2.0], [1.0], [2.0]]), 3)[:, 0].tolist() == [1, 3, 0]


def test_a_pool_of_copies_is_solved_to_the_optimum() -> None:
    values = np.repeat(np.random.default_rng(4).random((50, 8)), 100, axis=0)
    quota = np.full(8, 25)
    best = transport(values, quota)
    assert best.value == pytest.approx(assignment_optimum(values, quota))
    check_certificate(best, values, quota)


@settings(max_examples=60)
@given(
    st.integers(1, 120), st.integers(1, 5), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.1, 0.6]),
    st.sampled_from([np.inf, 0.0, 0.3]),
)  # fmt: skip
def test_sparse_values_give_the_assignment_of_dense_ones(
    size: int, classes: int, seed: int, tied: bool, share: float, penalty: float
) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.integers(0, 3, (size, classes)).astype(float) if tied else rng.random((size, classes))
    dense *= rng.random((size, classes)) < share
    barred = rng.random(size) < 0.2
    pairs = np.nonzero(dense.T)
    dense[barred] = -1.0
    budget = min(int(rng.integers(0, 30)), int((~barred).sum()))
    quota = rng.multinomial(budget, rng.dirichlet(np.full(classes, 0.5)))
    values = SparseValues(pairs[1], pairs[0], np.maximum(dense.T[pairs], 0.0), barred)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SPARE", 2)  # so that more rows have to be looked at now and then
        best = sparse_transport(values, quota, penalty)
    expected = transport(dense, quota, penalty)
    assert best.value == pytest.approx(expected.value, abs=1e-9)
    check_certificate(best, dense, quota, penalty)
    if not tied and best.value == dense[best.rows, best.classes].sum() and (dense[best.rows, best.classes] > 0).all():
        assert best.rows.tolist() == expected.rows.tolist()
        assert best.classes.tolist() == expected.classes.tolist()
