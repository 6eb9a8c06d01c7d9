"""The bound holds for every y, and the duals found are those of the relaxed program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from tailwise.solver import dual
from tailwise.solver.dual import Part, Survey, evaluate, maximise
from tailwise.solver.program import Effort, Program
from tailwise.targets import Ranges

from .programs import make_program, proba_of


def random_program(size: int, classes: int, seed: int, lam: float, width: float = 0.0) -> Program:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.4), size=size)
    low = rng.random(classes) * 2 * (size // 10) / classes
    return make_program(proba, rng.normal(size=size), size // 10, lam, Ranges(low, low + width))


def relaxed_optimum(program: Program) -> float:
    """The relaxed program, written out for scipy's linprog: z, shortfall, surplus."""
    proba, (low, high) = proba_of(program), (program.ranges.low, program.ranges.high)
    size, classes = proba.shape
    cost = np.concatenate([program.cost.values(), np.full(2 * classes, program.lam)])
    eye, none = np.eye(classes), np.zeros((classes, classes))
    at_least = np.hstack([-proba.T, -eye, none])  # Pᵀz + t⁺ ≥ low
    at_most = np.hstack([proba.T, none, -eye])  # Pᵀz − t⁻ ≤ high
    total = np.concatenate([np.ones(size), np.zeros(2 * classes)])[None]
    bounds = [(0, 1)] * size + [(0, None)] * (2 * classes)
    found = linprog(cost, np.vstack([at_least, at_most]), np.concatenate([-low, high]), total, [program.budget], bounds)
    return float(found.fun)


@pytest.mark.parametrize("width", [0.0, 3.0])
@pytest.mark.parametrize("lam", [0.05, 0.5, 2.0, 50.0])
@pytest.mark.parametrize("size", [200, 3_000])
def test_the_best_bound_is_the_optimum_of_the_relaxed_program(size: int, lam: float, width: float) -> None:
    program = random_program(size, 7, seed=size, lam=lam, width=width)
    optimum = relaxed_optimum(program)
    point = maximise(program, Effort.for_gap(1e-6, None), np.random.default_rng(0), None)
    assert point.bound <= optimum + 1e-7 * max(1.0, abs(optimum))
    assert point.bound == pytest.approx(optimum, rel=2e-5, abs=2e-5)


def test_a_pool_larger_than_the_part_in_memory_is_bounded_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailwise.solver.dual.OPEN_ELEMENTS", 5_000)
    program = random_program(12_000, 5, seed=8, lam=1.0)
    point = maximise(program, Effort.for_gap(1e-4, None), np.random.default_rng(0), None)
    assert point.bound == pytest.approx(relaxed_optimum(program), rel=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_no_dual_point_exceeds_the_value_of_any_batch(seed: int) -> None:
    program = random_program(40, 4, seed=seed, lam=0.7, width=float(seed % 3))
    rng = np.random.default_rng(seed)
    bound = evaluate(program, rng.uniform(-0.7, 0.7, size=4)).bound
    values = [program.measure(rng.choice(40, size=4, replace=False)).value for _ in range(300)]
    assert bound <= min(values)


def large_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pools of a few thousand rows count as large: surveyed, opened in part, at first in float32."""
    monkeypatch.setattr("tailwise.solver.dual.SURVEY_ELEMENTS", 3_000)
    monkeypatch.setattr("tailwise.solver.dual.OPEN_ELEMENTS", 5_000)
    monkeypatch.setattr("tailwise.solver.dual.SAMPLE_ELEMENTS", 5_000)
    monkeypatch.setattr("tailwise.solver.dual.ROUGH_ELEMENTS", 1_000)


@pytest.mark.parametrize("width", [0.0, 3.0])
@pytest.mark.parametrize("lam", [0.05, 0.5, 2.0, 50.0])
def test_a_large_pool_is_bounded_as_tightly(lam: float, width: float, monkeypatch: pytest.MonkeyPatch) -> None:
    large_pools(monkeypatch)
    program = random_program(20_000, 5, seed=8, lam=lam, width=width)
    assert len(Survey.of(program).cost) == 600
    optimum = relaxed_optimum(program)
    point = maximise(program, Effort.for_gap(1e-5, None), np.random.default_rng(0), None)
    assert point.bound <= optimum + 1e-7 * abs(optimum)
    assert point.bound == pytest.approx(optimum, rel=2e-5)


@pytest.mark.parametrize("limit", [-2.0, 0.0, np.inf])
def test_a_point_found_from_another_has_the_bound_of_one_found_alone(limit: float) -> None:
    program = random_program(4_000, 5, seed=3, lam=1.0)
    rng = np.random.default_rng(4)
    for drift in (0.0, 0.01, 0.4):
        known = evaluate(program, rng.uniform(-0.5, 0.5, size=5))
        y = known.y + drift * rng.uniform(-1, 1, size=5)
        again, alone = evaluate(program, y, known=known, limit=limit), evaluate(program, y)
        assert again.theta == pytest.approx(alone.theta, abs=1e-12)
        assert again.bound == pytest.approx(alone.bound, rel=1e-12)


def test_a_survey_foresees_about_how_many_rows_are_below_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailwise.solver.dual.SURVEY_ELEMENTS", 6_000)
    program, y = random_program(40_000, 6, seed=5, lam=1.0), np.linspace(-1.0, 1.0, 6)
    survey, reduced = Survey.of(program), evaluate(program, y).reduced.values()
    for count in (4_000, 12_000, 30_000):
        assert (reduced <= survey.limit(y, count)).sum() == pytest.approx(count, rel=0.2)
    assert survey.limit(y, 40_000) == np.inf


def test_a_pool_that_is_small_is_not_surveyed() -> None:
    program = random_program(2_000, 6, seed=6, lam=1.0)
    assert Survey.of(program).limit(np.zeros(6), 1) == np.inf


def test_a_part_in_single_precision_says_what_one_in_double_precision_does() -> None:
    rng = np.random.default_rng(7)
    proba, z = rng.dirichlet(np.full(8, 0.3), size=30_000).astype(np.float32), rng.random(30_000)
    cost, inside, ranges = rng.normal(size=30_000), rng.random(8), Ranges(np.zeros(8), np.zeros(8))
    y = rng.normal(size=8)
    rough, exact = (Part(rows, cost, 10.0, inside, 0.0, ranges, 1.0) for rows in (proba, proba.astype(np.float64)))
    np.testing.assert_allclose(rough.excess(y, 0.3), proba.astype(np.float64) @ y + 0.3 - cost, atol=3e-6)
    np.testing.assert_allclose(exact.excess(y, 0.3), proba.astype(np.float64) @ y + 0.3 - cost, atol=1e-13)
    np.testing.assert_allclose(rough.expected(z), z @ proba.astype(np.float64) + inside, rtol=1e-6)
    np.testing.assert_allclose(exact.expected(z), z @ proba.astype(np.float64) + inside, rtol=1e-12)


def test_rows_in_single_precision_are_not_searched_below_what_rounding_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    proba, cost = rng.dirichlet(np.full(20, 0.3), size=60_000).astype(np.float32), rng.normal(size=60_000)
    wanted = 3_000 * rng.dirichlet(np.full(20, 5.0))
    rough, exact = (
        Part(rows, cost, 3_000.0, np.zeros(20), 0.0, Ranges(wanted, wanted), 1.0)
        for rows in (proba, proba.astype(np.float64))
    )
    values: list[float] = []
    value = dual._value

    def counted(*given: Any) -> Any:  # noqa: ANN401 - as the function that is counted
        found = value(*given)
        values.append(found[1])
        return found

    monkeypatch.setattr(dual, "_value", counted)
    found = dual.minimise(rough, np.zeros(20), -1.6, 0.02, tolerance=1e-9, trust=np.inf)
    assert len(values) <= dual.MOST_STEPS  # each step that is halved to the end would take 15 looks
    best = dual.minimise(exact, np.zeros(20), -1.6, 0.02, tolerance=1e-9, trust=np.inf)
    assert value(exact, found.y, found.theta, 0.02)[1] == pytest.approx(
        value(exact, best.y, best.theta, 0.02)[1], rel=3 * dual.SINGLE_NOISE
    )


def test_warm_duals_beyond_the_box_are_brought_into_it() -> None:
    program = random_program(500, 4, seed=1, lam=0.3)
    point = maximise(program, Effort(), np.random.default_rng(0), np.full(4, 9.0))
    assert np.abs(point.y).max() <= 0.3
    assert point.bound == pytest.approx(relaxed_optimum(program), rel=1e-4)


@pytest.mark.parametrize("kinds", [1, 3, 12])
@pytest.mark.parametrize("classes", [4, 150])
def test_pools_of_a_few_rows_repeated_are_bounded_tightly(kinds: int, classes: int) -> None:
    rng = np.random.default_rng(kinds)
    which = np.repeat(np.arange(kinds), 1_200 // kinds)
    proba, cost = rng.dirichlet(np.full(classes, 0.3), size=kinds)[which], rng.normal(size=kinds)[which]
    omega = np.full(classes, 100 / classes)
    program = make_program(proba, cost, 100, 1.0, Ranges(omega, omega))
    optimum = relaxed_optimum(program)
    point = maximise(program, Effort(), np.random.default_rng(0), None)
    assert point.bound == pytest.approx(optimum, rel=1e-4)
