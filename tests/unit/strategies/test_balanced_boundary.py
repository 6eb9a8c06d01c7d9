"""BASE against a literal transcription (class order) and against the known optimum of an assignment (exact)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import tailwise
from tailwise import Target
from tailwise.errors import BadInput
from tailwise.matrix.shards import Rows
from tailwise.strategies import balanced_boundary, make
from tailwise.strategies.strategy import make_task


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
    strategy = make("base", balance=0, conflicts="class-order", copies=True)
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
    batch = make("base", balance=0, copies=True).select(tailwise.Predictions(proba), budget, counts=counts)
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
        exact, published = (
            make("base", balance=0, conflicts=how).select(given, 25) for how in balanced_boundary.CONFLICTS
        )
        assert exact.objective <= published.objective + 1e-9
        nearer += exact.objective < published.objective - 1e-6
    assert nearer > 5


def test_few_rows_are_proved_to_be_enough_by_prices() -> None:
    """Near-copies fill the lists of several classes; then more rows have to be looked at."""
    proba = np.vstack(
        [np.full((200, 4), 0.25) + np.arange(200)[:, None] * [3e-5, -1e-5, -1e-5, -1e-5], softmax(0, 100, 4)]
    )
    batch = make("base", balance=0).select(tailwise.Predictions(proba), 160)
    assert batch.objective == pytest.approx(least_total(proba, [40] * 4))


def copies_before(proba: np.ndarray) -> list[int]:
    """How many equal rows stand before each."""
    seen: Counter[tuple[float, ...]] = Counter()
    levels = []
    for row in map(tuple, proba.tolist()):
        levels.append(seen[row])
        seen[row] += 1
    return levels


def with_copies(seed: int, *, images: int = 30, classes: int = 5, shuffled: bool = True) -> np.ndarray:
    """Every image one to six times."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.geomspace(2.0, 0.3, classes), size=images).repeat(rng.integers(1, 7, size=images), axis=0)
    return rng.permutation(proba) if shuffled else proba


@pytest.mark.parametrize("spare", [0, 50])
@pytest.mark.parametrize("budget", [1, 7, 25, 30, 31, 55])
@pytest.mark.parametrize("seed", range(3))
def test_each_image_is_picked_once_before_copies_come_and_the_batch_is_the_best_of_these(
    budget: int, seed: int, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balanced_boundary, "SPARE", spare)
    proba = with_copies(seed)
    batch = make("base", balance=0).select(tailwise.Predictions(proba), budget)
    levels = np.array(copies_before(proba))
    full = max(level for level in range(7) if (levels < level).sum() <= budget)  # levels that are in it as a whole
    assert set(np.flatnonzero(levels < full)) <= set(batch.indices.tolist()) <= set(np.flatnonzero(levels <= full))
    allowed = proba[levels <= full]
    must = 1e6 * (levels[levels <= full] < full)
    columns = [cls for cls, places in enumerate(equal_quotas(proba, [0] * 5, budget)) for _ in range(places)]
    cost = np.array([[min(distance(row, cls), 750.0) for cls in columns] for row in allowed])
    rows, places = linear_sum_assignment(cost - must[:, None])
    assert batch.objective == pytest.approx(cost[rows, places].sum())
    assert batch.bound == pytest.approx(batch.objective)
    assert batch.status == "optimal"


@pytest.mark.parametrize("budget", [1, 7, 25, 30, 31, 55])
@pytest.mark.parametrize("seed", range(3))
def test_in_class_order_too_the_image_that_was_taken_least_comes_first(budget: int, seed: int) -> None:
    proba = with_copies(seed)
    taken: Counter[tuple[float, ...]] = Counter()
    picks: list[int] = []
    for cls, places in enumerate(equal_quotas(proba, [0] * 5, budget)):
        for _ in range(places):
            left = [i for i in range(len(proba)) if i not in picks]
            picks.append(min(left, key=lambda i: (taken[tuple(proba[i])], distance(proba[i], cls), i)))
            taken[tuple(proba[picks[-1]])] += 1
    batch = make("base", balance=0, conflicts="class-order").select(tailwise.Predictions(proba), budget)
    assert batch.indices.tolist() == picks


@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_copies_never_fill_a_batch(conflicts: str, dtype: type) -> None:
    images = np.random.default_rng(3).dirichlet(np.full(10, 0.4), size=100)
    pool = images.repeat(20, axis=0).astype(dtype)
    batch = make("base", balance=0, conflicts=conflicts).select(tailwise.Predictions(pool), 40)
    assert len(set((batch.indices // 20).tolist())) == 40
    assert (batch.indices % 20 == 0).all()  # the first of its copies
    alone = make("base", balance=0, conflicts=conflicts).select(tailwise.Predictions(images.astype(dtype)), 40)
    assert (batch.indices // 20).tolist() == alone.indices.tolist()
    assert batch.objective == pytest.approx(alone.objective)
    published = make("base", balance=0, conflicts=conflicts, copies=True).select(tailwise.Predictions(pool), 40)
    assert len(set((published.indices // 20).tolist())) < 10


def test_copies_may_differ_by_the_rounding_errors_of_a_network() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(100, 10)).repeat(20, axis=0)
    logits += 1e-7 * rng.normal(size=logits.shape)
    pool = (np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)).astype(np.float32)
    batch = make("base", balance=0).select(tailwise.Predictions(pool), 40)
    assert len(set((batch.indices // 20).tolist())) == 40
    assert batch.status == "optimal"


@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
@pytest.mark.parametrize("classes", [2, 3, 5, 8])
def test_without_copies_in_the_pool_the_picks_are_those_of_the_published_method(conflicts: str, classes: int) -> None:
    for seed in range(4):
        given = tailwise.Predictions(softmax(seed, size=3_000, classes=classes))
        ours, published = (
            make("base", balance=0, conflicts=conflicts, copies=copies).select(given, 120) for copies in (False, True)
        )
        assert ours.indices.tolist() == published.indices.tolist()


def test_a_pool_of_a_hundred_copies_each_is_certified_and_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(5).dirichlet(np.full(12, 0.3), size=400)
    pool = np.tile(images, (100, 1)).astype(np.float32)
    reads = []
    nearest_borders = Rows.nearest_borders
    monkeypatch.setattr(
        Rows, "nearest_borders", lambda self, *asked: reads.append(asked) or nearest_borders(self, *asked)
    )
    batch = make("base", balance=0).select(tailwise.Predictions(pool), 240)
    alone = make("base", balance=0).select(tailwise.Predictions(images.astype(np.float32)), 240)
    assert batch.indices.tolist() == alone.indices.tolist()
    assert batch.gap <= 1e-3
    assert len(reads) <= 2 + 1  # of the large pool, and one of the small one


def test_quotas_may_differ_and_be_zero() -> None:
    proba, target = with_copies(2, images=80), [12, 0, 9, 1, 0]
    batch = make("base", balance=1e15).select(tailwise.Predictions(proba), 22, target=target)
    first = np.array(copies_before(proba)) == 0
    assert batch.objective == pytest.approx(least_total(proba[first], target))


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


def test_auto_looks_at_equally_many_of_each_class_unless_a_target_is_given() -> None:
    given, counts = tailwise.Predictions(softmax(3, size=400)), [30, 12, 5, 0, 0]
    batch = make("base", balance="auto").select(given, 40, counts=counts)
    assert batch.places.tolist() == [8, 8, 8, 8, 8]
    assert batch.lam == 0.0
    assert batch.indices.tolist() == make("base", balance=0).select(given, 40, counts=counts).indices.tolist()
    for target in (Target.uniform(), Target.paper(), [4, 4, 4, 4, 24]):
        kept = make("base", balance="auto").select(given, 40, counts=counts, target=target)
        assert kept.places.tolist() != batch.places.tolist()


def test_auto_keeps_the_quotas_of_a_target_and_reports_a_lambda_that_nearly_does() -> None:
    proba, counts = softmax(3, size=400), [30, 12, 5, 0, 0]
    given = tailwise.Predictions(proba)
    batch = make("base", balance="auto").select(given, 40, counts=counts, target=Target.uniform())
    assert batch.indices.tolist() == make("base", balance=1e15).select(given, 40, counts=counts).indices.tolist()
    task, _ = make_task(Rows(proba), 40, counts=counts)
    off = [
        np.abs(balanced_boundary.quotas(task, np.ones(5, dtype=bool), lam) - [0, 2, 9, 15, 14]).max()
        for lam in (batch.lam, 0.95 * batch.lam)
    ]
    assert off[0] <= 1 < off[1]
    # equal quotas are the target where nothing is labelled
    assert make("base", balance="auto").select(given, 40, target=Target.uniform()).lam == 0.0


def test_classes_that_the_model_does_not_know_get_nothing() -> None:
    proba = np.hstack([softmax(1), np.zeros((70, 2))])
    batch = make("base", balance=0).select(tailwise.Predictions(proba), 20, counts=[0] * 7)
    plain = make("base", balance=0).select(tailwise.Predictions(proba[:, :5]), 20)
    assert batch.indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
def test_edge_cases(conflicts: str) -> None:
    base = make("base", balance=0, conflicts=conflicts)
    one_class, certain = np.ones((6, 1)), np.eye(3)[np.arange(9) % 3]
    assert base.select(tailwise.Predictions(one_class), 4).indices.tolist() == [0, 1, 2, 3]
    assert len(set(base.select(tailwise.Predictions(certain), 5).indices.tolist())) == 5
    assert len(set(base.select(tailwise.Predictions(np.full((12, 3), 1 / 3)), 7).indices.tolist())) == 7
    assert base.select(tailwise.Predictions(np.empty((0, 3))), 0).indices.tolist() == []


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("conflicts", balanced_boundary.CONFLICTS)
def test_picks_are_the_same_for_any_number_of_shards(conflicts: str, *, copied: bool) -> None:
    proba = np.random.default_rng(0).dirichlet(np.full(2_000, 0.1), size=700).astype(np.float32)  # three blocks
    if copied:
        proba = np.tile(proba[:100], (7, 1))
    picks = [
        make("base", balance=0, conflicts=conflicts, shards=shards)
        .select(tailwise.Predictions(proba), 60)
        .indices.tolist()
        for shards in (1, 3)
    ]
    assert picks[0] == picks[1]


def test_what_it_cannot_use_is_rejected() -> None:
    with pytest.raises(BadInput, match="conflicts is 'random'; it must be one of 'exact', 'class-order'"):
        make("base", balance=0, conflicts="random")
    with pytest.raises(BadInput, match="copies is 'no'; it must be True or False"):
        make("base", balance=0, copies="no")
    with pytest.raises(BadInput, match=r"a TopK holds only the largest of each row; .* use strategy 'margin'"):
        make("base", balance=0).select(tailwise.Predictions(tailwise.TopK.of(softmax(0), 3)), 4)
