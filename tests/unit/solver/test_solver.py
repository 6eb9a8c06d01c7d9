"""The solver against brute force over all batches, and against optima that are known."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.solver.program import Effort, Program
from tailwise.solver.solver import solve
from tailwise.targets import Ranges

from .programs import make_program, proba_of

TINY = 1e-9


def brute_force(program: Program) -> float:
    """The smallest objective over every batch, written out from PAPER §3."""
    proba, cost = proba_of(program), program.cost.values()
    low, high = program.ranges.low, program.ranges.high
    best = np.inf
    for batch in combinations(range(len(proba)), program.budget):
        chosen = list(batch)
        expected = proba[chosen].sum(axis=0)
        distance = np.maximum(low - expected, 0).sum() + np.maximum(expected - high, 0).sum()
        best = min(best, cost[chosen].sum() + program.lam * distance)
    return float(best)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Small programs of every awkward kind: ties, duplicate and one-hot rows, ranges, λ from 0 to huge."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    size, classes = draw(st.integers(1, 14)), draw(st.integers(1, 5))
    budget = draw(st.integers(0, size))
    kind = draw(st.sampled_from(["smooth", "sharp", "one-hot", "duplicates"]))
    proba = softmax(rng.normal(size=(size, classes)) * (1.0 if kind == "smooth" else 6.0))
    if kind == "one-hot":
        proba = np.eye(classes)[proba.argmax(axis=1)]
    if kind == "duplicates":
        proba = proba[rng.integers(0, max(1, size // 3), size=size)]
    cost = rng.integers(-3, 3, size=size).astype(float) if draw(st.booleans()) else rng.normal(size=size)
    low = rng.random(classes) * draw(st.sampled_from([0.5, 1.0, 2.0])) * max(budget, 1) * 2 / classes
    high = low + (rng.random(classes) * 2 if draw(st.booleans()) else 0.0)
    lam = draw(st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 100.0, 1e6]))
    dtype = draw(st.sampled_from([np.float64, np.float32, np.float16]))
    return make_program(proba.astype(dtype), cost, budget, lam, Ranges(low, high))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(programs())
def test_bound_and_objective_enclose_the_brute_force_optimum(program: Program) -> None:
    optimum = brute_force(program)
    solution = solve(program, Effort.for_gap(1e-9, None))
    scale = max(1.0, abs(optimum))
    assert solution.bound <= optimum + TINY * scale
    assert solution.objective >= optimum - TINY * scale
    assert solution.objective == pytest.approx(program.measure(solution.indices).value, abs=TINY * scale)
    assert len(set(solution.indices.tolist())) == program.budget


@settings(max_examples=150, deadline=None, derandomize=True)
@given(programs())
def test_small_programs_are_solved_to_the_optimum(program: Program) -> None:
    optimum = brute_force(program)
    solution = solve(program, Effort.for_gap(1e-9, None))
    assert solution.objective == pytest.approx(optimum, abs=2e-6 * max(1.0, program.lam, abs(optimum)))


@pytest.mark.parametrize("gap", [1e-2, 1e-4])
def test_a_status_within_gap_means_a_gap_within_gap(gap: float) -> None:
    program = long_tailed(3_000, 8, seed=1)
    solution = solve(program, Effort.for_gap(gap, None))
    assert (solution.gap <= gap) == (solution.status in {"optimal", "within gap"})


def long_tailed(size: int, classes: int, seed: int, lam: float = 1.0, budget: int | None = None) -> Program:
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(size, classes)) + np.linspace(2, -2, classes)
    proba = softmax(logits).astype(np.float32)
    cost = (proba * np.log(np.maximum(proba, 1e-30))).sum(axis=1).astype(np.float64)
    budget = size // 18 if budget is None else budget
    omega = np.full(classes, budget / classes)
    return make_program(proba, cost, budget, lam, Ranges(omega, omega))


def test_lambda_zero_is_the_b_cheapest_with_ties_to_the_lower_index() -> None:
    cost = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    program = make_program(np.full((5, 2), 0.5), cost, 3, 0.0, Ranges(np.ones(2), np.ones(2)))
    solution = solve(program, Effort())
    assert solution.indices.tolist() == [1, 3, 0]
    assert solution.status == "optimal"
    assert solution.gap == 0.0


def test_balanced_one_hot_rows_reach_an_l1_of_zero_as_lambda_grows() -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=400, p=[0.7, 0.2, 0.07, 0.03])
    omega = np.full(4, 3.0)
    program = make_program(np.eye(4)[labels], rng.normal(size=400), 12, 1e4, Ranges(omega, omega))
    solution = solve(program, Effort())
    assert np.bincount(labels[solution.indices], minlength=4).tolist() == [3, 3, 3, 3]
    cheapest = sum(np.sort(program.cost.values()[labels == k])[:3].sum() for k in range(4))
    assert solution.objective == pytest.approx(cheapest)


@pytest.mark.parametrize(("budget", "wanted"), [(0, 0), (1, 1), (60, 60)])
def test_budgets_at_the_edges(budget: int, wanted: int) -> None:
    program = long_tailed(60, 3, seed=0, budget=budget)
    solution = solve(program, Effort())
    assert len(solution.indices) == wanted
    assert solution.bound <= solution.objective


def test_a_target_beyond_the_budget_still_has_a_certificate() -> None:
    program = long_tailed(4_000, 6, seed=3)
    greedy_target = Ranges(program.ranges.low * 3, program.ranges.high * 3)
    solution = solve(Program(program.rows, program.cost, program.budget, 1.0, greedy_target), Effort())
    assert solution.bound <= solution.objective
    assert solution.gap < 1e-2


def test_a_permuted_pool_gives_the_same_picks() -> None:
    program = long_tailed(28, 3, seed=5, budget=7)
    order = np.random.default_rng(1).permutation(28)
    permuted = make_program(proba_of(program)[order], program.cost.values()[order], 7, 1.0, program.ranges)
    here, there = solve(program, Effort.for_gap(1e-9, None)), solve(permuted, Effort.for_gap(1e-9, None))
    assert set(here.indices.tolist()) == set(order[there.indices].tolist())


def test_picks_and_certificate_depend_neither_on_threads_nor_on_shards() -> None:
    program = long_tailed(60_000, 12, seed=2)
    found = solve(program, Effort())
    proba, cost = proba_of(program), program.cost.values()
    for threads, shards in ((1, 1), (5, 1), (None, 2), (1, 4), (2, 8)):
        other = make_program(proba, cost, program.budget, 1.0, program.ranges, threads=threads, shards=shards)
        again = solve(other, Effort())
        assert again.indices.tolist() == found.indices.tolist()
        assert (again.objective, again.bound) == (found.objective, found.bound)


def test_the_same_seed_gives_the_same_picks() -> None:
    program = long_tailed(3_000, 10, seed=4)
    first, second = (solve(program, Effort(), seed=7) for _ in range(2))
    assert first.indices.tolist() == second.indices.tolist()


def test_a_time_limit_of_zero_still_gives_a_valid_batch_and_bound() -> None:
    program = long_tailed(3_000, 10, seed=4)
    solution = solve(program, Effort.for_gap(1e-9, 0.0))
    assert len(set(solution.indices.tolist())) == program.budget
    assert solution.status == "time limit"
    assert np.isfinite(solution.bound)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_the_costs_does_not_spoil_the_gap(scale: float) -> None:
    plain = long_tailed(20_000, 8, seed=6)
    scaled = make_program(proba_of(plain), plain.cost.values() * scale, plain.budget, scale, plain.ranges)
    expected = solve(plain, Effort())
    solution = solve(scaled, Effort())
    assert solution.objective - solution.bound <= 3e-4 * scale * abs(expected.objective)
