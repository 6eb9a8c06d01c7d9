"""The rows nearest to each class border are those of a sort by brute force, for any number of shards and threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadInput
from tailwise.score.borders import border_closeness, border_distances, one_against_rest
from tailwise.solve import nearest
from tailwise.solve.blocks import rows_per_block
from tailwise.solve.nearest import LargestRows
from tailwise.solve.shards import LocalHands, Rows, shard_bounds
from tailwise.solve.top_k import TopK


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
    return Rows(hands=LocalHands(matrix, shard_bounds(*matrix.shape, shards), threads))


def softmax(size: int, classes: int, dtype: type, seed: int = 0) -> np.ndarray:
    """Rows with many equal ones, certain ones, and a class that never occurs."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size).astype(np.float16)
    proba[:, classes // 2] = 0
    proba[rng.random(size) < 0.2] = np.eye(classes)[0]
    proba[size // 2 :: 3] = proba[: len(proba[size // 2 :: 3])]
    return (proba / proba.sum(axis=1, keepdims=True, dtype=np.float64)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
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
        kept.add(numbers[start : start + step], start)
        if rng.random() < 0.5:
            kept._sort_out()
    order = np.argsort(-numbers, axis=0, kind="stable")[:count]
    rows, found = kept.result()
    assert np.array_equal(rows, order)
    assert np.array_equal(found, np.take_along_axis(numbers, order, axis=0))


def test_candidates_are_sorted_out_before_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "LEAST_WAITING", 10)
    numbers, kept = np.random.default_rng(0).random((4_000, 3)), LargestRows(3, 5)
    for start in range(0, 4_000, 10):
        kept.add(numbers[start : start + 10], start)
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
