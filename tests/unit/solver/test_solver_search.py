"""Local search: prices are right, nothing gets worse, and exchanges are the best there are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from tailwise.solver.dual import evaluate
from tailwise.solver.program import Program
from tailwise.solver.solver import Core, anneal, kick, open_core, pair_descent, swap_descent
from tailwise.targets import Ranges

from .programs import make_program


def make_core(seed: int, size: int = 60, classes: int = 4, width: float = 0.0) -> tuple[Program, Core]:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size)
    low = np.full(classes, 12 / classes)
    program = make_program(proba, rng.normal(size=size) * 0.3, 12, 1.0, Ranges(low, low + width))
    point = evaluate(program, rng.uniform(-0.5, 0.5, size=classes))
    return program, open_core(program, point, 30)


@pytest.mark.parametrize("width", [0.0, 0.7])
@pytest.mark.parametrize("seed", range(8))
def test_the_value_of_a_core_is_the_value_of_its_batch(seed: int, width: float) -> None:
    program, core = make_core(seed, width=width)
    for step in (core, swap_descent(core), pair_descent(core)):
        assert step.value() == pytest.approx(program.measure(step.picks()).value, abs=1e-10)
        assert len(step.picks()) == 12


@pytest.mark.parametrize("seed", range(8))
def test_swap_descent_ends_where_no_single_swap_gains(seed: int) -> None:
    _, core = make_core(seed)
    found = swap_descent(core)
    assert found.value() <= core.value()
    assert found.value() <= best_exchange(found, 1) + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_pair_descent_ends_where_no_two_swaps_gain(seed: int) -> None:
    _, core = make_core(seed, size=24)
    found = pair_descent(swap_descent(core))
    assert found.value() <= best_exchange(found, 2) + 1e-9


def best_exchange(core: Core, swaps: int) -> float:
    """The best value after exchanging exactly `swaps` rows, by trying them all."""
    inside, outside = np.flatnonzero(core.chosen), np.flatnonzero(~core.chosen)
    best = np.inf
    for outs in combinations(inside, swaps):
        for intos in combinations(outside, swaps):
            chosen = core.chosen.copy()
            chosen[list(outs)], chosen[list(intos)] = False, True
            best = min(best, replace(core, chosen=chosen).value())
    return best


def test_a_kick_changes_the_batch_and_keeps_its_size() -> None:
    _, core = make_core(1)
    kicked = kick(core, 3, np.random.default_rng(0))
    assert kicked.chosen.sum() == core.chosen.sum()
    assert 0 < (kicked.chosen != core.chosen).sum() <= 6


def test_annealing_is_never_worse_than_its_start_and_repeats_with_its_seed() -> None:
    _, core = make_core(3)
    first, second = (anneal(core, np.random.default_rng(1), steps=400, hot=0.1, cold=0.01).picks() for _ in range(2))
    assert first.tolist() == second.tolist()
    assert anneal(core, np.random.default_rng(2), steps=400, hot=0.1, cold=0.01).value() <= core.value()
