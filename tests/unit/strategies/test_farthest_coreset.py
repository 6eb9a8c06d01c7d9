"""Two rounds of k-center: what is promised of the radius, against the optimum by trying every batch."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from tailwise.matrix.shards import Rows
from tailwise.strategies.farthest_first import measure
from tailwise.strategies.kcenter import covering_radius, find_coreset, k_center
from tailwise.targets import Ranges

from .algorithm_2 import OnDisk, random_case

ONE_CLASS = Ranges(np.zeros(1), np.zeros(1))


def distances(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.sqrt(((points[:, None] - centres[None]) ** 2).sum(axis=2))


def optimum(pool: np.ndarray, labelled: np.ndarray, budget: int) -> float:
    """The smallest radius of any batch."""
    to_labelled = distances(pool, labelled).min(axis=1, initial=np.inf)
    between = distances(pool, pool)
    return min(
        float(np.minimum(to_labelled, between[:, batch].min(axis=1)).max())
        for batch in map(list, combinations(range(len(pool)), budget))
    )


def small_pool(seed: int, labelled: int) -> tuple[np.ndarray, np.ndarray]:
    """Clusters that lie apart, so that batches differ much in their radius."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=4.0, size=(5, 2))
    return centres[rng.integers(5, size=18)] + rng.normal(size=(18, 2)), rng.normal(scale=4.0, size=(labelled, 2))


@pytest.mark.parametrize("labelled", [0, 3])
@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("seed", range(6))
def test_each_round_is_within_twice_and_both_within_four_times_the_optimal_radius(
    seed: int, parts: int, labelled: int
) -> None:
    pool, known = small_pool(seed, labelled)
    rows, best = Rows(np.ones((18, 1))), optimum(pool, known, 3)
    start = measure(pool, known)
    coreset = find_coreset(start, rows, 3, parts)
    picks = coreset.k_center(3, 0.0, ONE_CLASS)
    achieved = covering_radius(start, picks.indices)
    among = covering_radius(coreset.start, np.searchsorted(coreset.indices, picks.indices))
    rounding = 1e-9
    assert coreset.radius <= 2 * best + rounding
    assert among <= 2 * best + rounding
    assert achieved <= coreset.radius + among + rounding
    assert best - rounding <= achieved <= 4 * best + rounding


def test_the_reported_radii_are_those_of_all_distances() -> None:
    pool, labelled, proba = random_case(3)
    start = measure(pool, labelled)
    coreset = find_coreset(start, Rows(proba), 10, 4)
    wide, known = pool.astype(np.float64), labelled.astype(np.float64)
    # Each row is covered by the candidates of its own part, which is no nearer than by all of them.
    assert coreset.radius >= distances(wide, np.concatenate([known, wide[coreset.indices]])).min(axis=1).max() - 1e-9
    per_part = [
        distances(wide[low:high], np.concatenate([known, wide[own]])).min(axis=1).max()
        for low, high in ((0, 75), (75, 150), (150, 225), (225, 300))
        if len(own := coreset.indices[(coreset.indices >= low) & (coreset.indices < high)]) == 10
    ]
    assert len(per_part) == 4
    assert coreset.radius == pytest.approx(max(per_part), rel=1e-9)
    picks = coreset.k_center(10, 0.5, Ranges(np.full(6, 2.0), np.full(6, 2.0))).indices
    expected = distances(wide, np.concatenate([known, wide[picks]])).min(axis=1).max()
    assert covering_radius(start, picks) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("lam", [0.0, 0.7])
def test_the_second_round_is_algorithm_2_among_the_candidates(lam: float) -> None:
    pool, labelled, proba = random_case(4)
    ranges = Ranges(np.full(6, 2.0), np.full(6, 2.0))
    coreset = find_coreset(measure(pool, labelled), Rows(proba), 12, 3)
    chosen = coreset.indices
    assert (len(chosen), len(np.unique(chosen))) == (36, 36)
    found = coreset.k_center(12, lam, ranges)
    alone = k_center(pool[chosen], labelled, 12, Rows(proba[chosen]), lam, ranges)
    assert found.indices.tolist() == chosen[alone.indices].tolist()
    np.testing.assert_allclose(found.distances, alone.distances)


def test_the_candidates_of_a_part_are_its_own_farthest_first_picks() -> None:
    pool, labelled, proba = random_case(5)
    coreset = find_coreset(measure(OnDisk(pool), OnDisk(labelled)), Rows(proba), 15, 2)
    for first, end in ((0, 150), (150, 300)):
        alone = k_center(pool[first:end], labelled, 15, Rows(np.ones((150, 1))), 0.0, ONE_CLASS).indices
        own = coreset.indices[(coreset.indices >= first) & (coreset.indices < end)]
        assert own.tolist() == sorted((first + alone).tolist())


def test_a_part_smaller_than_the_budget_gives_all_it_has() -> None:
    pool, labelled, proba = random_case(6, size=20)
    coreset = find_coreset(measure(pool, labelled), Rows(proba), 8, 5)
    assert coreset.indices.tolist() == list(range(20))
    assert coreset.radius == 0.0
