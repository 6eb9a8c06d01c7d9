"""Algorithm 2, pick for pick, against a literal transcription."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tailwise.balance.target import Ranges
from tailwise.solve import greedy
from tailwise.solve.greedy import k_center
from tailwise.solve.shards import Rows


def literal(
    pool: np.ndarray, labelled: np.ndarray, budget: int, proba: np.ndarray, lam: float, ranges: Ranges
) -> list[int]:
    """PAPER §4 as it stands: every distance and every price anew, one pick at a time."""
    pool, proba = pool.astype(np.float64), proba.astype(np.float64)
    d = np.min([np.sqrt(((pool - one) ** 2).sum(axis=1)) for one in labelled.astype(np.float64)], axis=0)
    expected, picks = np.zeros(proba.shape[1]), []
    for _ in range(budget):
        after = expected + proba
        distance = np.maximum(ranges.low - after, 0) + np.maximum(after - ranges.high, 0)
        price = -d + lam * distance.sum(axis=1)
        price[picks] = np.inf
        best = int(price.argmin())
        picks.append(best)
        expected += proba[best]
        d = np.minimum(d, np.sqrt(((pool - pool[best]) ** 2).sum(axis=1)))
    return picks


def random_case(seed: int, size: int = 300, classes: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, size=size, p=np.geomspace(1, 0.02, classes) / np.geomspace(1, 0.02, classes).sum())
    centres = rng.normal(size=(classes, 8))
    pool = (centres[labels] + rng.normal(size=(size, 8))).astype(np.float32)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size).astype(np.float32)
    return pool, (centres[rng.integers(classes, size=20)] + rng.normal(size=(20, 8))).astype(np.float32), proba


@pytest.mark.parametrize("lam", [0.0, 0.1, 0.5, 5.0, 1e3])
@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_the_literal_algorithm(seed: int, lam: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "ACTIVE_ROWS", 16)  # many refreshes
    pool, labelled, proba = random_case(seed)
    omega = np.full(6, 10.0)
    found = k_center(pool, labelled, 60, Rows(proba), lam, Ranges(omega, omega))
    assert found.indices.tolist() == literal(pool, labelled, 60, proba, lam, Ranges(omega, omega))


@pytest.mark.parametrize("seed", range(3))
def test_range_targets_follow_the_same_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "ACTIVE_ROWS", 32)
    pool, labelled, proba = random_case(seed)
    ranges = Ranges(np.full(6, 3.0), np.full(6, 12.0))
    found = k_center(pool, labelled, 50, Rows(proba), 0.7, ranges)
    assert found.indices.tolist() == literal(pool, labelled, 50, proba, 0.7, ranges)


def test_ties_and_duplicates_go_to_the_lower_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "ACTIVE_ROWS", 8)
    rng = np.random.default_rng(0)
    pool = np.repeat(rng.integers(0, 3, size=(40, 2)).astype(np.float64), 3, axis=0)  # a lattice, each point thrice
    proba = np.eye(3)[np.repeat(rng.integers(0, 3, size=40), 3)]
    ranges = Ranges(np.full(3, 30.0), np.full(3, 30.0))
    found = k_center(pool, pool[:1], 90, Rows(proba), 0.25, ranges)
    assert found.indices.tolist() == literal(pool, pool[:1], 90, proba, 0.25, ranges)


def test_distances_are_those_at_which_the_picks_were_made() -> None:
    pool, labelled, proba = random_case(1)
    found = k_center(pool, labelled, 10, Rows(proba), 0.0, Ranges(np.zeros(6), np.zeros(6)))
    for turn, pick in enumerate(found.indices):
        centres = np.concatenate([labelled, pool[found.indices[:turn]]]).astype(np.float64)
        nearest = np.sqrt(((centres - pool[pick]) ** 2).sum(axis=1)).min()
        assert found.distances[turn] == pytest.approx(nearest, rel=1e-9)


def test_without_labels_the_first_pick_is_the_most_central_row() -> None:
    pool, _, proba = random_case(2)
    none = np.empty((0, 8), dtype=np.float32)
    found = k_center(pool, none, 20, Rows(proba), 0.3, Ranges(np.full(6, 4.0), np.full(6, 4.0)))
    first = int(((pool - pool.mean(axis=0)) ** 2).sum(axis=1).argmin())
    assert found.indices[0] == first
    assert len(set(found.indices.tolist())) == 20


def test_the_whole_pool_can_be_picked_and_none_of_it() -> None:
    pool, labelled, proba = random_case(3, size=50)
    target = Ranges(np.full(6, 4.0), np.full(6, 4.0))
    assert sorted(k_center(pool, labelled, 50, Rows(proba), 0.5, target).indices) == list(range(50))
    assert len(k_center(pool, labelled, 0, Rows(proba), 0.5, target).indices) == 0


def test_no_matrix_of_pool_by_pool_or_pool_by_labelled_is_formed() -> None:
    rng = np.random.default_rng(0)
    pool, labelled = rng.normal(size=(12_000, 4)).astype(np.float32), rng.normal(size=(6_000, 4)).astype(np.float32)
    proba = np.full((12_000, 2), 0.5, dtype=np.float32)
    tracemalloc.start()
    k_center(pool, labelled, 50, Rows(proba), 0.5, Ranges(np.full(2, 25.0), np.full(2, 25.0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000 * 6_000 * 8 / 8  # an eighth of the float64 matrix of pool by labelled
