"""What a batch can reach of a class at most: the sum of its b largest probabilities, however it is found out."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.balance.target import Ranges
from tailwise.solve.reach import shortfalls
from tailwise.solve.shards import LocalHands, Rows, shard_bounds
from tailwise.types import Float64Array


def expected_shortfalls(proba: Float64Array, budget: int, low: Float64Array) -> dict[int, float]:
    """By sorting every column."""
    most = np.sort(proba, axis=0)[len(proba) - budget :].sum(axis=0)
    return {cls: most[cls] for cls in range(proba.shape[1]) if most[cls] < low[cls] * (1 - 1e-3)}


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("budget", [1, 40, 400])
@pytest.mark.parametrize("spread", [0.02, 0.3, 3.0])
def test_shortfalls_are_those_that_sorting_finds(spread: float, budget: int, shards: int) -> None:
    rng = np.random.default_rng([int(100 * spread), budget])
    proba = rng.dirichlet(spread * np.geomspace(1.0, 0.02, 30), size=12_000)
    most = np.sort(proba, axis=0)[len(proba) - budget :].sum(axis=0)
    low = most * rng.choice([0.2, 0.97, 1.03, 4.0], size=30)  # some far from what can be, some near it
    rows = Rows(hands=LocalHands(proba, shard_bounds(*proba.shape, shards)))
    found = shortfalls(rows, budget, Ranges(low, low + 1), np.zeros(30), np.arange(30))
    wanted = expected_shortfalls(proba, budget, low)
    assert {one.cls for one in found} == set(wanted)
    for one in found:
        assert one.reachable == pytest.approx(wanted[one.cls], rel=1e-9)


def test_classes_that_have_what_they_want_are_not_looked_at() -> None:
    proba = np.eye(3)[[0, 0, 0, 1]]
    wanted = Ranges(np.array([2.0, 2.0, 2.0]), np.full(3, 9.0))
    found = shortfalls(Rows(proba), 3, wanted, np.array([2.0, 1.0, 2.0]), np.arange(3))
    assert [(one.cls, one.reachable) for one in found] == [(1, 1.0)]
    assert shortfalls(Rows(proba), 3, wanted, np.full(3, 2.0), np.arange(3)) == ()
