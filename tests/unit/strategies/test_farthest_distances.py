"""Distances to the nearest centre, lazily: against every difference, one by one."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.strategies import farthest_first
from tailwise.strategies.farthest_first import Nearest, Start, measure, most_central

from .algorithm_2 import OnDisk, random_case


def brute(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    wide, others = points.astype(np.float64), centres.astype(np.float64)
    return np.array([np.sqrt(((others - one) ** 2).sum(axis=1)).min(initial=np.inf) for one in wide])


def with_picks(start: Start, picks: list[int]) -> Nearest:
    near = Nearest(start, len(picks))
    for row in picks:
        near.add(row, np.asarray(start.pool[row : row + 1], dtype=np.float64)[0])
    return near


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_products_stay_within_the_slack_of_differences(dtype: type, scale: float) -> None:
    pool, labelled, _ = random_case(0)
    pool, labelled = (scale * (2 + pool)).astype(dtype), (scale * (2 + labelled)).astype(dtype)
    start = measure(pool, labelled)
    assert np.abs(start.squared - brute(pool, labelled) ** 2).max() <= start.slack
    assert start.slack <= 1e-12 * (pool.astype(np.float64) ** 2).sum(axis=1).max() * 8
    np.testing.assert_array_equal(
        start.nearest,
        [((labelled.astype(np.float64) - one.astype(np.float64)) ** 2).sum(axis=1).argmin() for one in pool],
    )


def test_a_row_is_as_far_as_before_until_it_learns() -> None:
    pool, labelled, _ = random_case(1)
    start = measure(pool, labelled)
    near = with_picks(start, [3, 200, 7])
    some = np.array([3, 10, 50, 200])
    near.learn(some, pool[some])
    expected = brute(pool, labelled)
    expected[some] = brute(pool[some], np.concatenate([labelled, pool[[3, 200, 7]]]))
    np.testing.assert_allclose(np.sqrt(near.squared), expected, atol=1e-6)
    assert np.count_nonzero(near.seen < near.count) == 296


@pytest.mark.parametrize("batch", [1, 2, 512])
def test_exact_distances_are_the_least_of_the_literal_loop_to_the_last_bit(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farthest_first, "BATCH_ROWS", batch)
    rng = np.random.default_rng(0)
    pool, labelled = 0.1 * rng.integers(0, 6, size=(80, 3)), 0.1 * rng.integers(0, 6, size=(9, 3))
    near = with_picks(measure(pool, labelled), [5, 60])
    every = np.arange(80)
    near.learn(every, pool)
    np.testing.assert_array_equal(near.exact_distances(every[:40]), brute(pool[:40], np.r_[labelled, pool[[5, 60]]]))
    more = with_picks(measure(pool, labelled), [5, 60, 33])  # the same, asked once at the end
    more.learn(every, pool)
    np.testing.assert_array_equal(more.exact_distances(every), brute(pool, np.r_[labelled, pool[[5, 60, 33]]]))


def test_exact_distances_follow_picks_made_after_the_first_comparison() -> None:
    rng = np.random.default_rng(1)
    pool, labelled = 0.1 * rng.integers(0, 6, size=(80, 3)), 0.1 * rng.integers(0, 6, size=(9, 3))
    near, every = Nearest(measure(pool, labelled), 30), np.arange(80)
    for turn, row in enumerate(rng.permutation(80)[:30].tolist()):
        near.add(row, pool[row])
        near.learn(every, pool)
        asked = every[turn % 3 :: 3]
        centres = np.concatenate([labelled, near.picks.points[: turn + 1]])
        np.testing.assert_array_equal(near.exact_distances(asked), brute(pool[asked], centres))


@pytest.mark.parametrize("far", [1, 5, 1_000])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_the_radius_is_that_of_all_distances(count: int, far: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farthest_first, "FAR_ROWS", far)
    pool, labelled, _ = random_case(2)
    picks = np.random.default_rng(2).permutation(300)[:count].tolist()
    found = with_picks(measure(OnDisk(pool), OnDisk(labelled)), picks).radius()
    assert found == pytest.approx(brute(pool, np.concatenate([labelled, pool[picks]])).max(), rel=1e-12)


def test_the_radius_without_any_centre_is_infinite_and_without_rows_zero() -> None:
    none = np.empty((0, 2))
    assert with_picks(measure(np.ones((3, 2)), none), []).radius() == np.inf
    assert with_picks(measure(none, np.ones((3, 2))), []).radius() == 0.0


def test_rows_that_cannot_be_the_farthest_are_not_read_for_the_radius(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farthest_first, "FAR_ROWS", 4)
    pool = np.concatenate([np.random.default_rng(0).normal(size=(500, 2)), [[90.0, 0], [0, 90.0]]])
    near = with_picks(measure(pool, np.zeros((1, 2))), [500])
    assert near.radius() == 90.0
    assert (near.seen == 1).sum() <= 8


def test_the_most_central_row_is_nearest_to_the_mean_whatever_is_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, _, _ = random_case(4)
    expected = int(((pool - pool.mean(axis=0, dtype=np.float64)) ** 2).sum(axis=1).argmin())
    assert most_central(pool) == expected
    monkeypatch.setattr(farthest_first, "BATCH_ROWS", 7)
    monkeypatch.setattr(farthest_first, "READ_BYTES", 1)
    assert most_central(OnDisk(pool)) == expected


def test_progress_is_told_while_the_labelled_set_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(farthest_first, "STRIDE_ROWS", 100)
    pool, labelled, _ = random_case(5, size=250)
    told: list[str] = []
    measure(pool, labelled, told.append)
    assert told == [f"k-center: {done} of 250 images compared with 20 of 20 labelled ones" for done in (100, 200, 250)]
