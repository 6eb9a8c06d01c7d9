from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput, PoolExhausted
from tailwise.strategies import cold_start, make
from tailwise.strategies.typiclust import cluster, spread_rows, typicality, visiting_order

CENTRES = 20.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])


def blobs(sizes: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Well separated clusters of these sizes, and which each point is of."""
    places = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(places))
    return (CENTRES[places] + rng.normal(size=(len(places), 2)))[order], places[order]


def literal_typicality(points: np.ndarray, neighbours: int = 20) -> np.ndarray:
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    nearest = np.sort(distances, axis=1)[:, 1 : neighbours + 1]
    return 1 / nearest.mean(axis=1)


def select(points: np.ndarray, budget: int, **settings: object) -> tailwise.Selection:
    return make("typiclust", balance=0, **settings).select(cold_start(points, classes=3), budget)


def test_typicality_is_that_of_a_literal_reference() -> None:
    for size in (2, 15, 21, 80):
        points = np.random.default_rng(size).normal(size=(size, 3))
        np.testing.assert_allclose(typicality(points, np.random.default_rng(0)), literal_typicality(points), rtol=1e-6)


def test_typicality_far_from_the_origin_is_as_exact_as_near_it() -> None:
    points = np.random.default_rng(0).normal(size=(30, 3))
    np.testing.assert_allclose(
        typicality(points + 1e6, np.random.default_rng(0)), literal_typicality(points), rtol=1e-6
    )


def test_a_lone_point_is_not_typical_and_equal_points_are_equally_so() -> None:
    rng = np.random.default_rng(0)
    assert typicality(np.ones((1, 2)), rng).tolist() == [0.0]
    assert typicality(np.ones((5, 2)), rng).tolist() == [1.0] * 5


def test_duplicates_are_very_but_not_infinitely_typical() -> None:
    points = np.concatenate([np.zeros((30, 2)), np.random.default_rng(0).normal(size=(30, 2))])
    found = typicality(points, np.random.default_rng(0))
    assert np.isfinite(found).all()
    assert found[:30].min() > found[30:].max()


def test_neighbours_in_a_large_cluster_are_sought_in_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).normal(size=(3_000, 2))
    exact = typicality(points, np.random.default_rng(0))
    monkeypatch.setattr("tailwise.strategies.typiclust.REFERENCES", 1_000)
    sampled = typicality(points, np.random.default_rng(0))
    assert np.corrcoef(np.log(exact), np.log(sampled))[0, 1] > 0.9


def test_the_most_typical_point_of_each_cluster_is_picked_the_largest_cluster_first() -> None:
    points, places = blobs([30, 60, 40, 50])
    batch = select(points, 4)
    assert places[batch.indices].tolist() == [1, 3, 2, 0]
    for pick in batch.indices:
        members = np.flatnonzero(places == places[pick])
        typical = literal_typicality(points[members])
        assert pick == members[typical.argmax()]
        assert typical.max() == pytest.approx(typicality(points[members], np.random.default_rng(0)).max())
    assert batch.status == "greedy"


def test_clusters_that_hold_labelled_points_are_covered() -> None:
    points, places = blobs([30, 60, 40, 50])
    given = tailwise.Predictions(
        np.full((180, 3), 1 / 3), embeddings=points, labelled_embeddings=CENTRES[[1, 3]] + np.array([[0.1, 0.1]])
    )
    batch = make("typiclust", balance=0).select(given, 2)
    assert places[batch.indices].tolist() == [2, 0]


def test_a_budget_beyond_the_clusters_goes_round_again() -> None:
    points, places = blobs([30, 60, 40, 50])
    batch = select(points, 10, most_clusters=4)
    assert places[batch.indices].tolist() == [1, 3, 2, 0, 1, 3, 2, 0, 1, 3]
    assert len(set(batch.indices.tolist())) == 10


def test_small_clusters_wait_until_the_others_are_used_up() -> None:
    assert visiting_order(np.array([4, 16]), np.array([0, 0]), 18).tolist() == [1] * 16 + [0, 0]
    assert visiting_order(np.array([0, 5, 5]), np.array([9, 3, 2]), 3).tolist() == [2, 1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_in_a_small_pool_one_tight_class_does_not_take_all_picks(seed: int) -> None:
    """27 images and 9 clusters: only the tight class makes a cluster of five or more."""
    rng = np.random.default_rng(seed)
    spread = np.repeat([0.01, 3.0, 3.0], 9)[:, None]
    places = np.repeat(np.arange(3), 9)
    batch = make("typiclust", balance=0).select(
        cold_start(CENTRES[places] + spread * rng.normal(size=(27, 2)), classes=3), 9
    )
    taken = np.bincount(places[batch.indices], minlength=3)
    assert taken.min() >= 2
    assert taken[0] <= 3


def test_small_is_half_of_the_mean_where_the_paper_would_call_nearly_all_clusters_small() -> None:
    sizes = np.array([9, 4, 4, 4, 1])  # 4.4 in the mean: of these only the last is small
    assert visiting_order(sizes, np.zeros(5, np.int64), 6).tolist() == [0, 1, 2, 3, 0, 1]
    sizes = np.array([40, 30, 4, 20])  # 23 in the mean: five, as in the paper
    assert visiting_order(sizes, np.zeros(4, np.int64), 5).tolist() == [0, 1, 3, 0, 1]


def test_fewer_distinct_points_than_clusters_do_no_harm() -> None:
    points = np.repeat(np.array([[0.0, 0.0], [5.0, 5.0]]), [12, 8], axis=0)
    batch = select(points, 9)
    assert len(set(batch.indices.tolist())) == 9
    assert np.isfinite(batch.informativeness)
    assert set(points[batch.indices[:2], 0]) == {0.0, 5.0}


def test_a_large_pool_is_clustered_by_mini_batches_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    points, places = blobs([300, 600, 400, 500])
    exact = cluster(points, 4, seed=0)
    monkeypatch.setattr("tailwise.strategies.typiclust.EXACT_KMEANS", 0)
    quick = cluster(points, 4, seed=0)
    for found in (exact, quick):
        assert [len(set(found[places == place].tolist())) for place in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_starts_are_drawn_as_in_a_literal_k_means_plus_plus(kind: type) -> None:
    points = (1_000.0 + np.random.default_rng(3).normal(size=(200, 5))).astype(kind)
    rng, wide = np.random.default_rng(7), points.astype(np.float64)
    starts: list[int] = []
    for turn in range(20):
        nearest = ((wide[:, None] - wide[starts]) ** 2).sum(axis=2).min(axis=1) if turn else np.ones(200)
        starts.append(int(np.searchsorted(nearest.cumsum(), rng.random() * nearest.sum(), side="right")))
    assert spread_rows(points, 20, np.random.default_rng(7)).tolist() == starts


def test_starts_are_spread_over_far_clusters_and_drawn_from_a_sample_of_a_large_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points, places = blobs([300, 600, 400, 500])
    monkeypatch.setattr("tailwise.strategies.typiclust.START_ROWS", 100)
    drawn = [spread_rows(points, 4, np.random.default_rng(seed)) for seed in range(40)]
    assert sum(len(set(places[rows].tolist())) == 4 for rows in drawn) >= 30  # by chance alone: 4 of 40
    assert len(np.unique(np.concatenate(drawn))) > 100


def test_starts_among_copies_are_any_of_them() -> None:
    rows = spread_rows(np.repeat(np.array([[0.0, 1.0], [5.0, 5.0]]), [12, 8], axis=0), 6, np.random.default_rng(0))
    assert len(rows) == 6
    assert {0, 1} == {int(row >= 12) for row in rows[:2]}


def test_balance_weighs_typicality_against_the_target_within_each_cluster() -> None:
    rng = np.random.default_rng(1)
    points, _ = blobs([30, 60, 40, 50])
    proba = rng.dirichlet([3.0, 1.0, 0.3], size=180)
    given = tailwise.Predictions(proba, embeddings=points, labelled_embeddings=points[:0])
    lam = 0.4
    batch = make("typiclust", balance=lam).select(given, 4)
    places = cluster(points, 4, seed=0)
    expected = np.zeros(3)
    for place, pick in zip(np.argsort(-np.bincount(places)), batch.indices, strict=True):
        members = np.flatnonzero(places == place)
        distance = np.abs(4 / 3 - expected - proba[members]).sum(axis=1)
        price = lam * distance - literal_typicality(points[members])
        assert pick == members[price.argmin()]
        expected += proba[pick]


def test_a_cold_start_takes_no_memory_for_its_probabilities() -> None:
    given = cold_start(np.zeros((1_000, 2), np.float32), classes=7)
    assert np.asarray(given.proba).shape == (1_000, 7)
    assert np.asarray(given.proba).strides == (0, 0)


def test_half_precision_embeddings_are_clustered() -> None:
    points, places = blobs([30, 60, 40, 50])
    batch = select(points.astype(np.float16), 4)
    assert places[batch.indices].tolist() == [1, 3, 2, 0]


def test_bad_requests_are_refused() -> None:
    with pytest.raises(BadInput, match="most_clusters is 0"):
        make("typiclust", balance=0, most_clusters=0)
    with pytest.raises(PoolExhausted, match="asked for 4 picks, but only 3"):
        select(np.eye(3), 4)
