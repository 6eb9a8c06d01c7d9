"""The rows nearest to each class border are those of a sort by brute force, for any number of shards and threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadInput
from tailwise.matrix import nearest
from tailwise.matrix.blocks import rows_per_block
from tailwise.matrix.nearest import LargestRows, border_closeness, border_distances, one_against_rest, rows_near_borders
from tailwise.matrix.open import TopK
from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds


def closeness_by_definition(proba: np.ndarray) -> np.ndarray:
    """exp(−d), row by row and class by class, from the definition."""
    result = np.zeros(proba.shape)
    for i, row in enumerate(proba.astype(np.float64)):
        best = max(range(len(row)), key=lambda k: (row[k], -k))
        others = [row[k] / row[best] for k in range(len(row)) if k != best]
        for k in range(len(row)):
            result[i, k] = max(others, default=0.0) if k == best else row[k] / row[best]
    return result


def nearest_by_sorting(closeness: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(-closeness, axis=0, kind="stable")[:count]
    with np.errstate(divide="ignore"):
        return order, 0.0 - np.log(np.take_along_axis(closeness, order, axis=0))


def rows_in(matrix: np.ndarray | TopK, shards: int = 1, threads: int | None = None) -> Rows:
    return Rows(backend=LocalBackend(matrix, shard_bounds(*matrix.shape, shards), threads))


def softmax(size: int, classes: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Rows with many equal ones, certain ones, and a class that never occurs."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size).astype(np.float16)
    proba[:, classes // 2] = 0
    proba[rng.random(size) < 0.2] = np.eye(classes)[0]
    proba[size // 2 :: 3] = proba[: len(proba[size // 2 :: 3])]
    return (proba / proba.sum(axis=1, keepdims=True, dtype=np.float64)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, pytest.param(np.float64, marks=pytest.mark.long)])
def test_the_nearest_rows_are_those_of_a_sort_for_any_number_of_shards(dtype: type) -> None:
    proba = softmax(200, 6000, dtype)
    assert rows_per_block(6000) < 100  # three blocks
    closeness = closeness_by_definition(proba)
    for count, layouts in {0: [(1, 1)], 3: [(1, 4), (3, 1)], 150: [(2, 2)], 999: [(1, 1)]}.items():
        rows, distances = nearest_by_sorting(closeness, count)
        for shards, threads in layouts:
            found = rows_in(proba, shards, threads).nearest_borders(count)
            assert np.array_equal(found[0], rows)
            assert np.array_equal(found[1], distances)


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 50), st.integers(1, 12), st.integers(0, 999))
def test_blocks_in_any_order_and_sorted_out_at_any_time_give_the_same(
    classes: int, size: int, count: int, step: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 4, size=(size, classes)) / 4.0  # nearly all are ties
    kept = LargestRows(classes, count)
    for start in rng.permutation(range(0, size, step)).tolist():
        kept.add(numbers[start : start + step], np.arange(start, min(start + step, size)))
        if rng.random() < 0.5:
            kept._sort_out()
    order = np.argsort(-numbers, axis=0, kind="stable")[:count]
    rows, found, _ = kept.result()
    assert np.array_equal(rows, order)
    assert np.array_equal(found, np.take_along_axis(numbers, order, axis=0))


@given(
    st.integers(1, 6),
    st.integers(0, 40),
    st.integers(0, 50),
    st.integers(1, 12),
    st.integers(1, 4),
    st.integers(0, 999),
)
def test_of_rows_with_the_same_key_only_the_first_are_kept(
    classes: int, size: int, count: int, step: int, each: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    numbers, keys = rng.integers(0, 4, size=(size, classes)) / 4.0, rng.integers(0, 9, size=size).astype(np.uint64)
    starts = rng.permutation(range(0, size, step)).tolist()
    halves = [LargestRows(classes, count, each), LargestRows(classes, count, each)]
    for start in starts:
        where = np.arange(start, min(start + step, size))
        halves[start >= size // 2].add(numbers[where], where, keys[where])
    rows, found, kept = nearest.merged([half.result() for half in halves], count, each)
    for cls in range(classes):
        order = np.argsort(-numbers[:, cls], kind="stable").tolist()
        allowed = [row for at, row in enumerate(order) if sum(keys[other] == keys[row] for other in order[:at]) < each]
        assert rows[:, cls].tolist() == allowed[:count]
    assert np.array_equal(found, numbers[rows, np.arange(classes)])
    assert np.array_equal(kept, keys[rows])


@given(
    st.integers(1, 30), st.integers(1, 300), st.integers(0, 999), st.sampled_from([np.float16, np.float32, np.float64])
)
def test_no_row_that_is_near_enough_is_passed_over(size: int, classes: int, seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size).astype(dtype)
    proba[:, classes // 2] = 0
    proba[:, 0] += 0.01
    closeness = border_closeness(proba)
    least = np.quantile(closeness, rng.random(), axis=0)  # some of them occur
    least[rng.random(classes) < 0.05] = 0.0
    wanted = np.where(least > 0, closeness >= least, closeness > 0).any(axis=1)
    assert set(np.flatnonzero(wanted)) <= set(rows_near_borders(proba, least).tolist())


def test_rows_far_from_all_borders_are_passed_over() -> None:
    proba = softmax(5_000, 40, np.float32)
    closeness = border_closeness(proba)
    limits = np.sort(closeness, axis=0)[-50]
    assert len(rows_near_borders(proba, limits)) < 2.5 * (closeness >= limits).any(axis=1).sum()


@given(st.integers(2, 40), st.integers(0, 999))
def test_keys_are_the_same_for_rounding_errors_and_for_no_other_rows(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.5), size=300) + 1e-30
    assert len(np.unique(nearest.copy_keys(proba))) == 300
    for dtype in (np.float16, np.float32):
        stored = proba.astype(dtype)
        assert np.array_equal(nearest.copy_keys(stored), nearest.copy_keys(stored.astype(np.float64)))
    if classes > 6:
        noisy = proba * (1 + 1e-9 * rng.normal(size=proba.shape))
        assert (nearest.copy_keys(noisy) == nearest.copy_keys(proba)).mean() > 0.99


@pytest.mark.parametrize("rest", [0.0, 1e-3])
def test_rows_of_few_different_probabilities_are_compared_exactly(rest: float) -> None:
    share = np.linspace(0.4, 0.41, 1_000)
    proba = np.full((1_000, 12), rest)
    proba[:, 0], proba[:, 1] = share, 1 - share - 10 * rest
    assert len(np.unique(nearest.copy_keys(proba))) == 1_000
    assert len(np.unique(nearest.copy_keys(np.vstack([proba, proba])))) == 1_000


def test_candidates_are_sorted_out_before_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "LEAST_WAITING", 10)
    numbers, kept = np.random.default_rng(0).random((4_000, 3)), LargestRows(3, 5)
    for start in range(0, 4_000, 10):
        kept.add(numbers[start : start + 10], np.arange(start, start + 10))
        assert sum(len(one[0]) for one in kept._waiting) <= 15 + 30
    assert np.array_equal(kept.result()[0], np.argsort(-numbers, axis=0)[:5])


def test_a_sparse_softmax_has_no_distances_to_borders() -> None:
    with pytest.raises(BadInput, match="need every probability, but a TopK holds only the largest"):
        rows_in(TopK.of(softmax(20, 6, np.float64), 3)).nearest_borders(2)


@given(st.integers(1, 8), st.integers(0, 999), st.sampled_from([np.float16, np.float32, np.float64]))
def test_distances_are_differences_of_logits(classes: int, seed: int, dtype: type) -> None:
    proba = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=12).astype(dtype)
    assert np.array_equal(border_closeness(proba), closeness_by_definition(proba))
    with np.errstate(divide="ignore"):
        logits = np.log(proba.astype(np.float64))
    for row, found in zip(logits, border_distances(proba), strict=True):
        top = int(row.argmax())
        wanted = row[top] - row
        wanted[top] = np.delete(wanted, top).min(initial=np.inf)
        np.testing.assert_allclose(found, wanted, atol=1e-12)


@given(st.integers(1, 8), st.integers(0, 999), st.sampled_from([np.float16, np.float32, np.float64]))
def test_one_against_rest_is_the_margin_of_each_class(classes: int, seed: int, dtype: type) -> None:
    proba = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=12).astype(dtype)
    for row, found in zip(proba.astype(np.float64), one_against_rest(proba), strict=True):
        for k in range(classes):
            assert found[k] == row[k] - np.delete(row, k).max(initial=0.0)
