"""The certificate means the same for scores in any unit, and a wrong bound is never hidden."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import tailwise
from tailwise.errors import SolverFailed
from tailwise.solver.program import Effort, Measured, Program, certify
from tailwise.solver.solver import solve
from tailwise.targets import Ranges
from tailwise.types import Float64Array

from .programs import make_program, proba_of

FACTORS = [1e-6, 2.0**-17, 1e-3, 2.0**13, 1e6]


def all_values(program: Program) -> Float64Array:
    """The objective of every batch."""
    batches = np.array(list(combinations(range(program.rows.size), program.budget)))
    expected = proba_of(program)[batches].sum(axis=1)
    low, high = program.ranges.low, program.ranges.high
    l1 = (np.maximum(low - expected, 0) + np.maximum(expected - high, 0)).sum(axis=1)
    return program.cost.values()[batches].sum(axis=1) + program.lam * l1


def tiny(seed: int, factor: float = 1.0, *, mixed: bool = False, classes: int = 4) -> Program:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.5), size=16)
    cost = rng.normal(size=16) if mixed else -rng.random(16)
    low = np.full(classes, 5 / classes) * rng.uniform(0.8, 1.2, size=classes)
    return make_program(proba, factor * cost, 5, factor * 0.7, Ranges(low, low + (seed % 2) * 0.1))


def pool(seed: int, size: int = 20_000, classes: int = 8) -> Program:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.linspace(2.0, 0.2, classes), size=size)
    omega = np.full(classes, size / 20 / classes)
    return make_program(proba, -rng.random(size), size // 20, 1.0, Ranges(omega, omega))


def scaled(program: Program, factor: float) -> Program:
    costs = program.rows.hold(factor * program.cost.values())
    return Program(program.rows, costs, program.budget, factor * program.lam, program.ranges)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("mixed", [False, True])
def test_optimal_means_the_best_of_all_batches_in_any_unit(factor: float, mixed: bool) -> None:
    for seed in range(3):
        program = tiny(seed, factor, mixed=mixed)
        values, found = all_values(program), solve(program, Effort.for_gap(0.0, None))
        magnitude = program.measure(found.indices).magnitude
        assert found.bound <= values.min() + 1e-12 * magnitude
        assert found.gap >= (found.objective - values.min()) / magnitude - 1e-12
        assert found.status == "optimal"
        assert found.objective == pytest.approx(values.min(), abs=1e-6 * magnitude)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4])
def test_scores_and_lambda_in_another_unit_give_the_same_picks_and_gap(factor: float, gap: float) -> None:
    for seed in range(3):
        program = pool(seed)
        plain, other = (solve(one, Effort.for_gap(gap, None)) for one in (program, scaled(program, factor)))
        assert other.indices.tolist() == plain.indices.tolist()
        assert other.status == plain.status
        assert other.gap == pytest.approx(plain.gap, rel=1e-6)
        assert other.objective == pytest.approx(factor * plain.objective, rel=1e-12)


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_a_long_search_takes_the_same_path_where_scaling_does_not_round(factor: float) -> None:
    program = pool(1, size=1_000)
    plain, other = (solve(one, Effort(gap=1e-6)) for one in (program, scaled(program, factor)))
    assert plain.status == "best found"
    assert other.indices.tolist() == plain.indices.tolist()
    assert (other.objective, other.bound, other.gap) == (factor * plain.objective, factor * plain.bound, plain.gap)


def test_a_bad_batch_is_not_optimal_because_its_scores_are_small() -> None:
    program = tiny(0, 1e-6)
    values = np.sort(all_values(program))
    worse = Measured(float(values[20]), 5e-6, 0.0)
    made = certify(np.arange(5), worse, float(values[0]), np.zeros(4))
    assert made.gap == pytest.approx((values[20] - values[0]) / 5e-6)
    assert made.status == "best found"


def test_an_objective_near_zero_has_the_gap_of_its_terms() -> None:
    program = pool(5)
    shift = solve(program, Effort()).objective / program.budget  # so that the objective comes out near 0
    shifted = program.rows.hold(program.cost.values() - shift)
    found = solve(Program(program.rows, shifted, program.budget, 1.0, program.ranges), Effort())
    l1 = program.ranges.distance(program.rows.total(found.indices))
    terms = np.abs(shifted.at(found.indices)).sum() + l1
    assert abs(found.objective) < 1e-3 * terms
    assert found.gap <= 1e-3
    assert found.gap == pytest.approx((found.objective - found.bound) / terms)


@pytest.mark.parametrize("lam", [1e-9, 1.0, 1e9])
def test_scores_of_zero_are_solved_for_balance_alone(lam: float) -> None:
    labels = np.random.default_rng(0).choice(4, size=400, p=[0.7, 0.2, 0.07, 0.03])
    omega = np.full(4, 3.0)
    one_hot = make_program(np.eye(4)[labels], np.zeros(400), 12, lam, Ranges(omega, omega))
    exact = solve(one_hot, Effort())
    assert (exact.objective, exact.gap, exact.status) == (0.0, 0.0, "optimal")
    beyond = make_program(np.eye(4)[labels], np.zeros(400), 12, lam, Ranges(3 * omega, 3 * omega))
    short = solve(beyond, Effort())
    assert short.objective == pytest.approx(24 * lam)
    assert short.status == "optimal"


def test_the_first_example_of_the_readme_has_a_sane_gap() -> None:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(2000, 10)) + np.linspace(2, -2, 10)
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    batch = tailwise.select(proba, 100, counts=[40, 36, 30, 26, 20, 16, 12, 8, 6, 6], seed=0, score="entropy")
    assert batch.gap <= 5e-3
    assert batch.gap == pytest.approx((batch.objective - batch.bound) / (batch.informativeness + batch.lam * batch.l1))


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_a_bound_above_the_objective_is_reported_and_not_hidden(factor: float) -> None:
    measured = tiny(0, factor).measure(np.arange(5))
    within = certify(np.arange(5), measured, measured.value + 0.5 * measured.rounding, np.zeros(4))
    assert (within.bound, within.gap) == (measured.value, 0.0)
    with pytest.raises(SolverFailed, match=r"lower bound of .* please report this"):
        certify(np.arange(5), measured, measured.value + 1e-9 * measured.magnitude, np.zeros(4))


@pytest.mark.parametrize("seed", range(10))
def test_one_class_whose_rows_do_not_quite_sum_to_one_has_a_true_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    proba = 1 + rng.uniform(-9e-4, 9e-4, size=(14, 1))
    cost = rng.normal(size=14) * 1e-3
    omega = np.array([6.004])
    program = make_program(proba, cost, 6, 2.0, Ranges(omega, omega))
    values, found = all_values(program), solve(program, Effort.for_gap(1e-9, None))
    assert found.bound <= values.min() + 1e-15
    assert found.objective == pytest.approx(values.min(), abs=1e-9)


def test_one_class_is_called_optimal_through_the_front_door_only_where_it_is() -> None:
    rng = np.random.default_rng(3)
    proba, scores = 1 + rng.uniform(-9e-4, 9e-4, size=(12, 1)), rng.random(12) * 1e-4
    batch = tailwise.select(proba, 4, score=scores, target=[4.0], balance=1.0)
    batches = np.array(list(combinations(range(12), 4)))
    values = np.abs(4.0 - proba[batches, 0].sum(axis=1)) - scores[batches].sum(axis=1)
    assert batch.bound <= values.min() + 1e-12
    assert (batch.objective - values.min()) <= (batch.gap + 1e-9) * (batch.informativeness + batch.l1)
