from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.solve.coverage import (
    Coverage,
    herd,
    inclusion_chances,
    kernel_width,
    sample_references,
    squared_distances,
    unit_rows,
)


def reached(rows: np.ndarray, weights: np.ndarray, chosen: np.ndarray, width: float) -> float:
    """F, literally: every row by its most similar chosen row."""
    if not len(chosen):
        return 0.0
    distances = ((rows[:, None, :] - chosen[None, :, :]) ** 2).sum(axis=2)
    return float(weights @ np.exp(-distances / width).max(axis=1))


def greedy(rows: np.ndarray, weights: np.ndarray, labelled: np.ndarray, width: float, budget: int) -> list[int]:
    """The greedy algorithm, literally."""
    picks: list[int] = []
    for _ in range(budget):
        values = [
            -np.inf if i in picks else reached(rows, weights, np.vstack([labelled, rows[[*picks, i]]]), width)
            for i in range(len(rows))
        ]
        picks.append(int(np.argmax(values)))
    return picks


def make_pool(seed: int, size: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.random(size)
    return unit_rows(rng.normal(size=(size, 4))), weights / weights.sum(), unit_rows(rng.normal(size=(3, 4)))


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_lazy_picks_are_those_of_the_literal_greedy_algorithm(seed: int) -> None:
    rows, weights, labelled = make_pool(seed)
    batch = herd(Coverage.of(rows, weights, labelled, 0.5), rows, 6)
    assert batch.indices.tolist() == greedy(rows.astype(float), weights, labelled.astype(float), 0.5, 6)
    assert batch.value == pytest.approx(
        reached(rows, weights, np.vstack([labelled, rows[batch.indices]]), 0.5), abs=1e-5
    )
    assert (np.diff(batch.gains) <= 1e-6).all()


@pytest.mark.parametrize("seed", range(5))
def test_no_batch_reaches_more_than_the_bound(seed: int) -> None:
    rows, weights, labelled = make_pool(seed, size=12)
    batch = herd(Coverage.of(rows, weights, labelled, 0.5), rows, 3)
    best = max(
        reached(rows, weights, np.vstack([labelled, rows[list(some)]]), 0.5) for some in combinations(range(12), 3)
    )
    assert batch.value - 1e-6 <= best <= batch.bound + 1e-6


def test_the_whole_pool_can_be_picked() -> None:
    rows, weights, labelled = make_pool(0, size=8)
    batch = herd(Coverage.of(rows, weights, labelled, 0.5), rows, 8)
    assert sorted(batch.indices.tolist()) == list(range(8))
    assert batch.value == pytest.approx(1.0)
    assert batch.bound == pytest.approx(1.0)


def test_copies_of_a_pick_are_not_picked_while_others_add_something() -> None:
    rows = np.repeat(make_pool(1, size=10)[0], 20, axis=0)
    batch = herd(Coverage.of(rows, np.full(200, 1 / 200), rows[:0], 0.5), rows, 10)
    assert sorted((batch.indices // 20).tolist()) == list(range(10))


def test_distances_and_the_width_are_those_of_brute_force() -> None:
    rows = make_pool(2)[0].astype(float)
    literal = ((rows[:, None] - rows[None]) ** 2).sum(axis=2)
    single = rows.astype(np.float32)
    np.testing.assert_allclose(squared_distances(single, single), literal, atol=1e-5)
    np.fill_diagonal(literal, np.inf)
    assert kernel_width(single) == pytest.approx(np.median(literal.min(axis=1)), rel=1e-4)
    assert kernel_width(single, smallest=True) == pytest.approx(literal.min(), rel=1e-3)
    assert kernel_width(np.repeat(single[:1], 5, axis=0)) == 1e-4  # copies alone say nothing about distances
    assert kernel_width(single[:1]) == 1.0


def test_references_are_drawn_in_proportion_to_their_weights() -> None:
    weights = np.array([0.4, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.1])
    drawn = np.zeros(8)
    estimate = np.zeros(8)
    for seed in range(4_000):
        rows, shares = sample_references(weights, 4, np.random.default_rng(seed))
        assert len(rows) == 4
        assert shares.sum() == pytest.approx(1.0)
        drawn[rows] += 1 / 4_000
        estimate[rows] += shares / 4_000
    np.testing.assert_allclose(drawn, inclusion_chances(weights, 4), atol=0.03)
    np.testing.assert_allclose(estimate, weights, atol=0.02)


def test_chances_sum_to_the_number_drawn_and_never_exceed_one() -> None:
    for seed in range(50):
        rng = np.random.default_rng(seed)
        weights, count = rng.exponential(size=40) ** 4, int(rng.integers(1, 40))
        chances = inclusion_chances(weights, count)
        assert chances.sum() == pytest.approx(count)
        assert chances.max() <= 1 + 1e-12


def test_all_rows_with_weight_stand_for_themselves_where_there_are_few() -> None:
    rows, shares = sample_references(np.array([0.0, 2.0, 6.0]), 10, np.random.default_rng(0))
    assert rows.tolist() == [1, 2]
    assert shares.tolist() == [0.25, 0.75]
