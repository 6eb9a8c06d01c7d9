from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.strategies import coverage as coverage_module
from tailwise.strategies.coverage import (
    Candidates,
    Coverage,
    first_copies,
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


def test_the_whole_pool_can_be_picked() -> None:
    rows, weights, labelled = make_pool(0, size=8)
    batch = herd(Coverage.of(rows, weights, labelled, 0.5), rows, 8)
    assert sorted(batch.indices.tolist()) == list(range(8))
    assert batch.value == pytest.approx(1.0)


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


def test_gains_from_kept_similarities_are_those_of_all_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_module, "TILE", 37)
    rng = np.random.default_rng(3)
    references, rows = (unit_rows(rng.normal(size=(size, 5))) for size in (200, 1_300))
    rows[[0, 700]] = 0.0  # images without any feature
    coverage = Coverage.of(references, rng.dirichlet(np.ones(200)), rows[::50], 0.3)
    candidates, everything = Candidates(coverage, rows), np.arange(1_300)
    for _ in range(4):
        gains = candidates.gains(everything)
        assert candidates.kept is not None
        np.testing.assert_allclose(gains, coverage.gains(rows), atol=1e-7)
        some = rng.choice(1_300, 70, replace=False)
        np.testing.assert_allclose(candidates.gains(some), gains[some], rtol=1e-12)
        before, best = coverage.value, int(gains.argmax())
        assert not candidates.add_if(best, least=1.01 * gains[best])
        assert coverage.value == before
        assert candidates.add_if(best, least=0.99 * gains[best])
        assert coverage.value == pytest.approx(before + gains[best], abs=1e-7)


def test_similarities_are_kept_only_where_they_are_few() -> None:
    rows = unit_rows(np.random.default_rng(4).normal(size=(600, 5)))
    coverage = Coverage.of(rows, np.full(600, 1 / 600), rows[:0], 0.3)
    candidates = Candidates(coverage, rows)
    candidates.gains(np.arange(600))
    assert candidates.kept is None  # nothing is covered: every similarity counts
    coverage.covered[:] = coverage.similarities(rows[:100]).max(axis=0)
    candidates.gains(np.arange(599))
    assert candidates.kept is None  # another pass is not worth it yet
    candidates.gains(np.arange(1))
    assert candidates.kept is not None


def test_copies_are_found_whatever_their_numbers() -> None:
    rng = np.random.default_rng(5)
    for dtype in (np.float16, np.float32, np.float64):
        rows = rng.integers(-2, 3, (3_000, 4)).astype(dtype)  # 625 different rows of numbers with few bits
        rows[rng.random((3_000, 4)) < 0.1] *= -1  # and both zeros
        _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        assert np.array_equal(first_copies(rows), first[same])
    assert first_copies(np.empty((0, 4))).tolist() == []


def test_every_second_or_third_image_sets_the_width_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = make_pool(6, size=1_500)[0]
    exact = kernel_width(rows)
    monkeypatch.setattr(coverage_module, "WIDTH_ROWS", 400)
    assert kernel_width(rows) == pytest.approx(exact, rel=0.2)
    assert kernel_width(rows) != exact
    assert kernel_width(rows, smallest=True) < exact
