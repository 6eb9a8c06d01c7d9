"""What a batch can cover at most: no batch beats it, and it is near to what the best one reaches."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.strategies.coverage import Candidates, Coverage, Herd, herd, unit_rows
from tailwise.strategies.coverage_bound import ceiling_at, ceiling_of_pool, lowest_ceilings

WIDTH = 0.5


def make_batch(seed: int, size: int = 12, labelled: int = 3, budget: int = 3) -> Herd:
    rng = np.random.default_rng(seed)
    rows, known = unit_rows(rng.normal(size=(size, 4))), unit_rows(rng.normal(size=(labelled, 4)))
    return herd(Coverage.of(rows, rng.dirichlet(np.ones(size)), known, WIDTH), rows, budget)


def best_value(batch: Herd) -> float:
    """F of the best batch of the same size, in float64, by trying all."""
    coverage, rows = batch.candidates.coverage, batch.candidates.rows.astype(np.float64)
    similar = np.exp(-((rows[:, None] - coverage.references.astype(np.float64)[None]) ** 2).sum(axis=2) / WIDTH)
    return max(
        float(coverage.weights @ np.maximum(similar[list(some)].max(axis=0), batch.start))
        for some in combinations(range(len(rows)), len(batch.indices))
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(1, 4))
def test_no_batch_reaches_more_than_the_lowest_ceiling(seed: int, labelled: int, budget: int) -> None:
    batch = make_batch(seed, labelled=labelled, budget=budget)
    assert best_value(batch) <= lowest_ceilings(batch, gap=0.0)[0].of(budget)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_any_levels_above_what_labels_cover_give_a_ceiling(seed: int, labelled: int) -> None:
    batch = make_batch(seed, labelled=labelled)
    draws = np.random.default_rng(seed).random(len(batch.start)).astype(np.float32)
    for levels in (batch.start, np.maximum(batch.start, draws), np.minimum(1, batch.start + draws)):
        one = ceiling_at(batch, levels)
        assert best_value(batch) <= one.of(3)
        pool = 7.0 * batch.candidates.rows  # of any length
        whole = ceiling_of_pool(batch.candidates.coverage, levels, pool, np.arange(12))
        assert whole.of(3) == pytest.approx(one.of(3), abs=1e-5)
        assert best_value(batch) <= whole.of(3) + 1e-6


def test_similarities_kept_after_some_picks_are_not_taken_for_all_of_them() -> None:
    batch = make_batch(5, size=400, labelled=0, budget=20)
    coverage, rows = batch.candidates.coverage, batch.candidates.rows
    exact = [ceiling_at(batch, levels).of(20) for levels in (batch.start, coverage.covered)]
    late = replace(batch, candidates=Candidates(coverage, rows, Candidates(coverage, rows).keep()))
    assert late.candidates.kept is not None
    found = [ceiling_at(late, levels).of(20) for levels in (batch.start, coverage.covered)]
    assert found == pytest.approx(exact, rel=1e-6)
    assert lowest_ceilings(late, gap=0.0)[0].of(20) == pytest.approx(
        lowest_ceilings(batch, gap=0.0)[0].of(20), rel=0.01
    )


def test_levels_of_the_batch_give_the_bound_of_submodular_functions() -> None:
    batch = make_batch(1, size=40, budget=5)
    coverage = batch.candidates.coverage
    gains = np.sort(coverage.gains(batch.candidates.rows))[-5:]
    assert ceiling_at(batch, coverage.covered).of(5) == pytest.approx(batch.value + gains.sum(), abs=1e-5)


@pytest.mark.parametrize("labelled", [0, 3])
def test_the_lowest_ceiling_is_far_below_that_of_the_batch(labelled: int) -> None:
    batch = make_batch(2, size=400, labelled=labelled, budget=20)
    usual = ceiling_at(batch, batch.candidates.coverage.covered).of(20) - batch.value
    found = lowest_ceilings(batch, gap=0.0)[0].of(20) - batch.value
    assert 0 <= found < 0.35 * usual


def test_the_optimum_of_separate_clusters_of_copies_is_nearly_proved() -> None:
    sizes = np.arange(17, 3, -1)
    rows = unit_rows(np.repeat(np.eye(14), sizes, axis=0))
    batch = herd(Coverage.of(rows, np.full(len(rows), 1 / len(rows)), rows[:0], 0.1), rows, 9)
    assert batch.value == pytest.approx(sizes[:9].sum() / len(rows), abs=1e-3)  # the largest clusters
    assert batch.value <= lowest_ceilings(batch, gap=0.0)[0].of(9) <= 1.03 * batch.value
    assert ceiling_at(batch, batch.start).of(9) > 1.3 * batch.value  # nine images of the largest cluster
    assert ceiling_at(batch, batch.candidates.coverage.covered).of(9) > 1.2  # nine copies of the next cluster


def test_a_wide_enough_gap_ends_the_search() -> None:
    batch = make_batch(3, size=400, budget=20)
    usual, early = ceiling_at(batch, batch.candidates.coverage.covered), lowest_ceilings(batch, gap=1e6)[0]
    assert np.array_equal(usual.levels, early.levels)


def test_where_images_do_not_overlap_the_start_proves_the_optimum() -> None:
    rows = unit_rows(np.eye(40))
    batch = herd(Coverage.of(rows, np.full(40, 1 / 40), rows[:0], 0.04), rows, 7)
    assert lowest_ceilings(batch, gap=0.0)[0].of(7) == pytest.approx(7 / 40, rel=1e-4)
