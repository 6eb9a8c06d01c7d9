"""What a batch can reach of a class at most: the sum of its b largest probabilities, however it is found out."""

from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds
from tailwise.solver.path import shortfalls, sums_of_largest
from tailwise.targets import Ranges
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
    rows = Rows(backend=LocalBackend(proba, shard_bounds(*proba.shape, shards)))
    found = shortfalls(rows, budget, Ranges(low, low + 1), np.zeros(30))
    wanted = expected_shortfalls(proba, budget, low)
    assert {one.cls for one in found} == set(wanted)
    for one in found:
        assert one.reachable == pytest.approx(wanted[one.cls], rel=1e-9)


def test_classes_that_have_what_they_want_are_not_looked_at() -> None:
    proba = np.eye(3)[[0, 0, 0, 1]]
    wanted = Ranges(np.array([2.0, 2.0, 2.0]), np.full(3, 9.0))
    found = shortfalls(Rows(proba), 3, wanted, np.array([2.0, 1.0, 2.0]))
    assert [(one.cls, one.reachable) for one in found] == [(1, 1.0)]
    assert shortfalls(Rows(proba), 3, wanted, np.full(3, 2.0)) == ()


def sharp(size: int, classes: int, seed: int) -> Float64Array:
    return np.random.default_rng(seed).dirichlet(0.3 * np.geomspace(1.0, 0.05, classes), size=size)


@pytest.mark.parametrize("kind", ["smooth", "one-hot", "few values", "constant", "mostly zero", "sorted"])
@pytest.mark.parametrize("share", [0.00001, 0.0001, 0.05, 0.5, 0.97, 0.9999])
def test_the_sum_of_the_largest_is_that_of_sorting(kind: str, share: float) -> None:
    proba = sharp(20_011, 12, seed=5)
    if kind == "one-hot":
        proba = np.eye(12)[proba.argmax(axis=1)]
    elif kind == "few values":
        proba = np.round(proba * 4) / 4
    elif kind == "constant":
        proba = np.full((20_011, 12), 1 / 12)
    elif kind == "mostly zero":
        proba[:, 3:] = 0.0
        proba[77, 5] = 0.4
    elif kind == "sorted":
        proba = np.sort(proba, axis=0)
    budget, classes = max(1, round(share * len(proba))), np.array([0, 3, 5, 11, 8])
    wanted = np.sort(proba, axis=0)[len(proba) - budget :, classes].sum(axis=0)
    for dtype, shards in ((np.float64, 1), (np.float64, 4), (np.float32, 1), (np.float16, 3)):
        rows = Rows(backend=LocalBackend(proba.astype(dtype), shard_bounds(*proba.shape, shards)))
        found = sums_of_largest(rows, budget, classes)
        np.testing.assert_allclose(found, wanted, rtol={2: 3e-3, 4: 1e-6, 8: 1e-10}[dtype().itemsize], atol=1e-6)


def test_a_sample_that_misleads_does_not_change_the_sum() -> None:
    proba = np.full((16_384, 2), 0.5)
    proba[1::2] = [0.9, 0.1]  # of the sample, every row but the last is one of the others
    rows, wanted = Rows(proba), np.sort(proba, axis=0)[-3_000:].sum(axis=0)
    np.testing.assert_allclose(sums_of_largest(rows, 3_000, np.array([0, 1])), wanted, rtol=1e-12)


def test_every_class_is_looked_at_however_many_there_are() -> None:
    rng = np.random.default_rng(1)
    proba = np.zeros((3_000, 130))
    proba[:, :10] = rng.dirichlet(np.full(10, 0.5), size=3_000)  # the other 120 classes cannot be had
    batch = tailwise.select(proba, 260, balance=1.0, score="entropy")
    assert {one.cls for one in batch.unreachable} == set(range(10, 130))
    assert all((one.wanted, one.reachable) == (2.0, 0.0) for one in batch.unreachable)


@pytest.mark.parametrize("balance", [0.7, "auto", "within 400%"])
@pytest.mark.parametrize("name", ["entropy", "entropy-l1-pseudo-label", "kcenter", "margin"])
@pytest.mark.parametrize("budget", [100, 400])
def test_all_strategies_and_budgets_report_what_cannot_be_reached(name: str, budget: int, balance: object) -> None:
    proba = np.hstack([sharp(400, 4, seed=2), np.zeros((400, 1))])
    embeddings = np.random.default_rng(0).normal(size=(400, 3))
    given = tailwise.Predictions(proba, embeddings, embeddings[:5])
    wanted = np.array([20.0, 20.0, 20.0, 90.0, 3.0])
    batch = tailwise.strategies.make(name, balance=balance).select(given, budget, target=wanted)
    most = np.sort(proba, axis=0)[400 - budget :].sum(axis=0)
    expected = {cls: most[cls] for cls in range(5) if most[cls] < wanted[cls] * (1 - 1e-3)}
    assert set(expected) == {3, 4}
    assert {one.cls: one.reachable for one in batch.unreachable} == pytest.approx(expected)


def test_nothing_is_reported_where_balance_was_not_asked_for() -> None:
    assert tailwise.select(np.eye(3)[[0, 0, 1, 1]], 2, balance=0, score="entropy").unreachable == ()


def test_a_batch_of_none_reaches_nothing() -> None:
    found = shortfalls(Rows(sharp(50, 3, 0)), 0, Ranges(np.array([0.0, 2.0, 1.0]), np.full(3, 9.0)), np.zeros(3))
    assert [(one.cls, one.wanted, one.reachable) for one in found] == [(1, 2.0, 0.0), (2, 1.0, 0.0)]
