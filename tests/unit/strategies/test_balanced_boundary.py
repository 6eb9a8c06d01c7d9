"""BASE against a literal transcription (class order) and against the known optimum of an assignment (exact)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import tailwise
from tailwise.errors import BadInput
from tailwise.solve.shards import Rows
from tailwise.strategies import balanced_boundary, make
from tailwise.strategies.task import make_task


def softmax(seed: int, size: int = 70, classes: int = 5, *, ties: bool = False) -> np.ndarray:
    """Random rows; those with ties are sixteenths, so that equal distances are equal to the last bit."""
    proba = np.random.default_rng(seed).dirichlet(np.geomspace(2.0, 0.3, classes), size=size)
    return np.array([np.random.default_rng(seed).multinomial(16, row) for row in proba]) / 16 if ties else proba


def distance(row: np.ndarray, cls: int) -> float:
    """To the border of a class, from the definition."""
    best = max(range(len(row)), key=lambda k: (row[k], -k))
    gaps = [math.inf if row[k] == 0 else math.log(row[best] / row[k]) for k in range(len(row))]
    if cls != best:
        return gaps[cls]
    return min((gaps[k] for k in range(len(row)) if k != best), default=math.inf)


def equal_quotas(proba: np.ndarray, counts: list[int], budget: int) -> list[int]:
    known = [k for k in range(proba.shape[1]) if proba[:, k].max() > 0]
    quota = [budget // len(known) if k in known else 0 for k in range(proba.shape[1])]
    for k in sorted(known, key=lambda k: (counts[k], k))[: budget % len(known)]:
        quota[k] += 1
    return quota


def literal_base(proba: np.ndarray, counts: list[int], budget: int) -> list[int]:
    """Classes in turn, each its nearest images that are left."""
    picks: list[int] = []
    for cls, places in enumerate(equal_quotas(proba, counts, budget)):
        left = [i for i in range(len(proba)) if i not in picks]
        picks += sorted(left, key=lambda i: (distance(proba[i], cls), i))[:places]
    return picks


def least_total(proba: np.ndarray, quota: list[int]) -> float:
    """The least total distance: places of the classes as columns of an assignment problem."""
    columns = [cls for cls, places in enumerate(quota) for _ in range(places)]
    cost = np.array([[min(distance(row, cls), 750.0) for cls in columns] for row in proba])
    rows, places = linear_sum_assignment(cost)
    return float(cost[rows, places].sum())


COUNTS = [[0, 0, 0, 0, 0], [9, 4, 1, 0, 0], [0, 0, 7, 7, 7]]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("budget", [1, 4, 23, 70])
@pytest.mark.parametrize("seed", range(2))
def test_in_class_order_picks_are_those_of_the_literal_algorithm(
    counts: list[int], budget: int, seed: int, *, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    proba = softmax(seed, ties=ties)
    strategy = make("base", conflicts="class-order")
    batch = strategy.select(tailwise.Predictions(proba), budget, counts=counts)
    assert batch.indices.tolist() == literal_base(proba, counts, budget)
    assert batch.status == "greedy"
    monkeypatch.setattr(balanced_boundary, "SPARE", 0)  # lists that have to grow
    assert (
        strategy.select(tailwise.Predictions(proba), budget, counts=counts).indices.tolist() == batch.indices.tolist()
    )


@pytest.mark.parametrize("spare", [0, 50])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("budget", [1, 4, 23, 70])
@pytest.mark.parametrize("seed", range(2))
def test_exact_picks_have_the_least_total_distance(
    counts: list[int], budget: int, seed: int, spare: int, *, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balanced_boundary, "SPARE", spare)
    proba = softmax(seed, ties=ties)
    batch = make("base").select(tailwise.Predictions(proba), budget, counts=counts)
    quota = equal_quotas(proba, counts, budget)
    least = least_total(proba, quota)
    assert batch.objective == pytest.approx(least)
    assert least_total(proba[batch.indices], quota) == pytest.approx(least)  # the picks themselves reach it
    assert batch.bound == pytest.approx(least)
    assert (batch.status, batch.gap) == ("optimal", 0.0)


def test_the_exact_way_is_never_farther_than_class_order_and_sometimes_nearer() -> None:
    nearer = 0
    for seed in range(10):
        given = tailwise.Predictions(softmax(seed))
        exact, published = (make("base", conflicts=how).select(given, 25) for how in balanced_boundary.CONFLICTS)
        assert exact.objective <= published.objective + 1e-9
        nearer += exact.objective < published.objective - 1e-6
    assert nearer > 5


def test_few_rows_are_proved_to_be_enough_by_prices() -> None:
    """Near-copies fill the lists of several classes; then more rows have to be looked at."""
    proba = np.vstack(
        [np.full((200, 4), 0.25) + np.arange(200)[:, None] * [3e-5, -1e-5, -1e-5, -1e-5], softmax(0, 100, 4)]
    )
    batch = make("base").select(tailwise.Predictions(proba), 160)
    assert batch.objective == pytest.approx(least_total(proba, [40] * 4))


def test_balance_turns_equal_quotas_into_those_of_the_target() -> None:
    proba = softmax(3, size=400)
    task, _ = make_task(Rows(proba), 40, counts=[30, 12, 5, 0, 0])

    def places(lam: float) -> list[int]:
        return balanced_boundary.quotas(task, np.ones(5, dtype=bool), lam).tolist()

    assert places(0.0) == [8, 8, 8, 8, 8]
    assert places(1.0) == [4, 5, 9, 11, 11]  # halfway to the target
    assert places(1e15) == [0, 2, 9, 15, 14]  # all that get something are filled up to 14.25
    unknown = balanced_boundary.quotas(task, np.array([True, True, False, True, True]), 1e15)
    assert unknown.tolist() == [0, 5, 0, 18, 17]


def test_auto_keeps_the_quotas_of_the_target_and_reports_a_lambda_that_nearly_does() -> None:
    proba, counts = softmax(3, size=400), [30, 12, 5, 0, 0]
    given = tailwise.Predictions(proba)
    batch = make("base", balance="auto").select(given, 40, counts=counts)
    assert batch.indices.tolist() == make("base", balance=1e15).select(given, 40, counts=counts).indices.tolist()
    task, _ = make_task(Rows(proba), 40, counts=counts)
    off = [
        np.abs(balanced_boundary.quotas(task, np.ones(5, dtype=bool), lam) - [0, 2, 9, 15, 14]).max()
        for lam in (batch.lam, 0.95 * batch.lam)
    ]
    assert off[0] <= 1 < off[1]
    assert make("base", balance="auto").select(given, 40).lam == 0.0  # equal quotas are the target


def test_classes_that_the_model_does_not_know_get_nothing() -> None:
    proba = np.hstack([softmax(1), np.zeros((70, 2))])
    batch = make("base").select(tailwise.Predictions(proba), 20, counts=[0] * 7)
    plain = make("base").select(tailwise.Predictions(proba[:, :5]), 20)
    assert batch.indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
def test_edge_cases(conflicts: str) -> None:
    base = make("base", conflicts=conflicts)
    one_class, certain = np.ones((6, 1)), np.eye(3)[np.arange(9) % 3]
    assert base.select(tailwise.Predictions(one_class), 4).indices.tolist() == [0, 1, 2, 3]
    assert len(set(base.select(tailwise.Predictions(certain), 5).indices.tolist())) == 5
    assert len(set(base.select(tailwise.Predictions(np.full((12, 3), 1 / 3)), 7).indices.tolist())) == 7
    assert base.select(tailwise.Predictions(np.empty((0, 3))), 0).indices.tolist() == []


@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
def test_picks_are_the_same_for_any_number_of_shards(conflicts: str) -> None:
    proba = np.random.default_rng(0).dirichlet(np.full(2_000, 0.1), size=700).astype(np.float32)  # three blocks
    picks = [
        make("base", conflicts=conflicts, shards=shards).select(tailwise.Predictions(proba), 60).indices.tolist()
        for shards in (1, 3)
    ]
    assert picks[0] == picks[1]


def test_what_it_cannot_use_is_rejected() -> None:
    with pytest.raises(BadInput, match="conflicts is 'random'; it must be one of 'exact', 'class-order'"):
        make("base", conflicts="random")
    with pytest.raises(BadInput, match="need every probability, but a TopK"):
        make("base").select(tailwise.Predictions(tailwise.TopK.of(softmax(0), 3)), 4)
