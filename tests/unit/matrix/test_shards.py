"""Rows and columns answer as plain arrays would, the same bit for bit for any number of threads and shards."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.matrix.blocks import larger_than, map_blocks, product, rough_product, rows_per_block, smallest, widen
from tailwise.matrix.open import open_proba
from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds
from tailwise.score import entropy

SHARDS = (1, 2, 4, 8)


def rows_in(array: np.ndarray, shards: int, threads: int | None = None) -> Rows:
    return Rows(backend=LocalBackend(array, shard_bounds(*array.shape, shards), threads))


def softmax_rows(size: int, classes: int, dtype: type = np.float64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.3), size=size).astype(dtype)


def test_every_finite_non_negative_half_is_widened_exactly() -> None:
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    assert np.array_equal(widen(every), every.astype(np.float32))


def test_negative_and_non_finite_halves_are_widened_by_the_slow_way() -> None:
    odd = np.array([-1.5, np.inf, np.nan], dtype=np.float16)
    assert np.array_equal(widen(odd), odd.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_product_is_that_in_float64_whatever_was_in_the_scratch_before(dtype: type) -> None:
    rng = np.random.default_rng(0)
    for size in (50, 3, 0, 700, 20):
        block, y = rng.dirichlet(np.full(9, 0.02), size=size).astype(dtype), rng.normal(size=9)
        np.testing.assert_allclose(product(block, y), block.astype(np.float64) @ y, rtol=1e-13, atol=1e-15)
    odd = np.array([[-0.0, 1.0], [0.25, -0.5]], dtype=dtype)
    assert product(odd, np.array([2.0, 4.0])).tolist() == [4.0, -1.5]


@given(
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.integers(1, 400),
    st.floats(0.005, 5.0),
    st.sampled_from([0.0, 1e-30, 1e-3, 1.0, 1e6, 1e30]),
    st.integers(0, 1000),
)
def test_a_rough_product_is_never_less_than_the_true_one_and_hardly_more(
    dtype: type, classes: int, spread: float, scale: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    block = rng.dirichlet(np.full(classes, spread), size=60).astype(dtype)
    y = scale * rng.normal(size=classes)
    exact = block.astype(np.longdouble) @ y.astype(np.longdouble)
    rough = rough_product(block, y, [20, 20, 41])
    assert (rough >= exact - 1e-15 * np.abs(y).max()).all()
    assert (rough - exact <= 3e-7 * (classes + 10) * np.abs(y).max()).all()
    np.testing.assert_allclose(product(block, y, [20, 20, 41]), exact.astype(float), atol=1e-14 * np.abs(y).max())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rough_prices_are_bounds_the_same_for_any_number_of_threads_and_shards(dtype: type) -> None:
    array, y = softmax_rows(60_000, 30, dtype), np.linspace(-2, 1, 30)
    array[50_000, :2] = 0.5, -0.0  # no plain half
    array[50_000, 2:] = 0.5 / 28
    cost = np.random.default_rng(1).normal(size=60_000)
    exact = cost - array.astype(np.float64) @ y

    def priced(rows: Rows) -> np.ndarray:
        rows.scan(None, 5e-3)
        return rows.priced(rows.hold(cost), y, roughly=True).values()

    found = priced(rows_in(array, 1, 1))
    assert (found <= exact + 1e-14).all()
    assert (found >= exact - 4e-5).all()
    for shards, threads in ((1, 2), (3, 2), (8, None)):
        assert np.array_equal(priced(rows_in(array, shards, threads)), found)


@pytest.mark.parametrize("odd", [-0.0, np.nan, np.inf])
def test_halves_that_are_not_plain_are_multiplied_as_they_are(odd: float) -> None:
    array, y = softmax_rows(30_000, 40, np.float16), np.linspace(-1, 1, 40)
    array[20_000, 3] = odd
    rows = rows_in(array, 2)
    costs, _ = rows.scan(None, 5e-3)
    with np.errstate(invalid="ignore"):
        found = rows.priced(costs, y).values()
        np.testing.assert_allclose(found, -(array.astype(np.float64) @ y), atol=1e-14)


@given(st.integers(0, 500), st.integers(1, 60), st.integers(1, 5))
def test_blocks_come_in_order_and_cover_everything(size: int, step: int, threads: int) -> None:
    found = map_blocks(size, step, lambda where: list(range(size))[where], threads)
    assert [number for part in found for number in part] == list(range(size))
    assert all(len(part) == step for part in found[:-1])


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 31))
def test_smallest_is_a_stable_sort_cut_off(values: list[int], count: int) -> None:
    array = np.array(values, dtype=float)
    expected = np.sort(np.argsort(array, kind="stable")[:count])
    assert smallest(array, count).tolist() == expected.tolist()


@given(st.integers(0, 20_000), st.integers(1, 3_000), st.integers(1, 9))
def test_shards_cover_all_rows_and_begin_where_blocks_do(size: int, classes: int, count: int) -> None:
    bounds = shard_bounds(size, classes, count)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, size, count + 1)
    assert (np.diff(bounds) >= 0).all()
    step = rows_per_block(classes)
    assert all(border % step == 0 or border == size for border in bounds.tolist())


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_sums_and_reads_equal_those_in_float64(dtype: type, shards: int) -> None:
    rng = np.random.default_rng(0)
    array = softmax_rows(100_000, 7, dtype)
    rows, y, some = rows_in(array, shards), rng.normal(size=7), rng.permutation(100_000)[:70_000]
    wide = array.astype(np.float64)
    cost = rows.hold(np.ones(100_000))
    np.testing.assert_allclose(rows.priced(cost, y).values(), 1.0 - wide @ y, atol=1e-14)
    np.testing.assert_allclose(rows.total(some), wide[some].sum(axis=0), rtol=1e-12)
    assert np.array_equal(rows.take(some), wide[some])
    assert np.array_equal(rows.read(slice(37_000, 76_000)), array[37_000:76_000].astype(rows.read(slice(1)).dtype))
    assert np.array_equal(rows.largest_class(), wide.argmax(axis=1))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_are_taken_in_the_precision_and_the_order_asked_for(dtype: type, kind: type) -> None:
    array, rows = softmax_rows(30_000, 60, dtype), np.random.default_rng(1).permutation(30_000)[:20_000]
    for some in (rows, np.sort(rows), rows[:0]):
        taken = rows_in(array, 3).take_as(kind, some)
        assert taken.dtype == kind
        assert np.array_equal(taken, array[some].astype(kind))


@pytest.mark.parametrize("every", [1, 7, 31, 33, 500])
@pytest.mark.parametrize("shards", [1, 3])
def test_rows_of_a_file_are_the_same_whether_few_or_many_are_taken(shards: int, every: int, tmp_path: Path) -> None:
    array = softmax_rows(60_000, 30, np.float16)
    np.save(tmp_path / "p.npy", array)
    matrix, some = open_proba(tmp_path / "p.npy"), np.arange(3, 60_000, every)
    rows = Rows(backend=LocalBackend(matrix, shard_bounds(*matrix.shape, shards)))
    assert np.array_equal(rows.take(some), array[some].astype(np.float64))
    some = np.random.default_rng(0).permutation(np.repeat(some, 2))  # in any order, some of them twice
    assert np.array_equal(rows.take_as(np.float32, some), array[some].astype(np.float32))


LIMITS = {"nowhere": -np.inf, "low": -0.9, "high": 0.1, "everywhere": np.inf}


@pytest.mark.parametrize("drift", [0.0, 0.05, 3.0])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_priced_again_is_exact_up_to_the_limit_and_never_too_large(
    dtype: type, limit: float, drift: float
) -> None:
    rng = np.random.default_rng(2)
    array, cost = softmax_rows(40_000, 70, dtype), rng.normal(size=40_000)
    rows, first, second, third = rows_in(array, 2), *(drift * rng.normal(size=(3, 70)))
    costs = rows.hold(cost)
    known = rows.priced_again(costs, second, rows.priced(costs, first), limit)  # itself, too, holds bounds
    found = rows.priced_again(costs, third, known, limit).values()
    exact = cost - array.astype(np.float64) @ third
    below = exact <= limit
    np.testing.assert_allclose(found[below], exact[below], atol=1e-13)
    assert (found <= exact + 1e-13).all()
    assert (found[~below] > limit - 1e-13).all()


def test_rows_whose_known_column_is_enough_are_not_read_again() -> None:
    array = softmax_rows(20_000, 50)
    rows, y = rows_in(array, 1), np.linspace(-1.0, 1.0, 50)
    costs = rows.hold(np.zeros(20_000))
    known = rows.priced(costs, y)
    limit = float(np.median(known.values()))
    array[known.values() > limit + 0.02] = np.nan  # would be seen
    found = rows.priced_again(costs, y + 0.01, known, limit).values()
    assert not np.isnan(found).any()
    assert (found <= limit).sum() >= 10_000


@pytest.mark.parametrize(("shards", "threads"), [(2, 1), (3, 2), (8, None)])
def test_prices_made_from_others_are_bit_identical_for_any_number_of_threads_and_shards(
    shards: int, threads: int
) -> None:
    array, y = softmax_rows(150_000, 9, np.float16), np.linspace(-1, 1, 9)

    def priced(rows: Rows) -> np.ndarray:
        costs = rows.hold(np.zeros(150_000))
        return rows.priced_again(costs, y * 1.1, rows.priced(costs, y), -0.4).values()

    assert np.array_equal(priced(rows_in(array, 1, 1)), priced(rows_in(array, shards, threads)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("limit", [0.0, 0.1, 0.5])
def test_large_numbers_are_found_where_they_are(limit: float, dtype: type) -> None:
    block = np.random.default_rng(3).choice([-0.0, 0.0, 0.1, 0.25, 0.5, 0.75, 1.0], size=(300, 7)).astype(dtype)
    places, values = larger_than(block, limit)
    wide = block.astype(np.float64).ravel()
    assert places.tolist() == np.flatnonzero(wide > np.float64(dtype(limit))).tolist()
    assert values.tolist() == wide[places].tolist()


@pytest.mark.parametrize(("shards", "threads"), [(1, 2), (1, 8), (2, 1), (3, 2), (8, None)])
def test_products_and_sums_are_bit_identical_for_any_number_of_threads_and_shards(shards: int, threads: int) -> None:
    array, y = softmax_rows(150_000, 9, np.float32), np.linspace(-1, 1, 9)
    some = np.random.default_rng(1).permutation(150_000)[:50_000]
    one, other = rows_in(array, 1, 1), rows_in(array, shards, threads)
    here, there = (rows.priced(rows.hold(np.zeros(150_000)), y) for rows in (one, other))
    assert np.array_equal(here.values(), there.values())
    assert here.sum_of_smallest(4_000) == there.sum_of_smallest(4_000)
    assert np.array_equal(one.total(some), other.total(some))


def test_a_memory_mapped_matrix_is_read_like_one_in_memory(tmp_path: Path) -> None:
    array = softmax_rows(1_000, 4, np.float16)
    np.save(tmp_path / "p.npy", array)
    mapped = Rows(np.load(tmp_path / "p.npy", mmap_mode="r"))
    assert np.array_equal(mapped.total(np.arange(1_000)), Rows(array).total(np.arange(1_000)))


COLUMNS = {
    "random": np.random.default_rng(3).normal(size=9_000),
    "tied": np.random.default_rng(4).integers(-2, 3, size=9_000).astype(float),
    "all equal": np.full(9_000, -0.25),
    "both zeros": np.where(np.arange(9_000) % 2, 0.0, -0.0),
    "of all sizes": np.geomspace(1e-300, 1e300, 9_000) * np.random.default_rng(5).normal(size=9_000),
}


@pytest.mark.parametrize("gathered", [4, 1 << 18])
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_ranked_as_a_stable_sort_would(
    name: str, shards: int, gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailwise.matrix.shards.GATHERED", gathered)
    values = COLUMNS[name]
    column = rows_in(np.full((9_000, 200), 0.005), shards).hold(values)
    order = np.argsort(values, kind="stable")
    for count in (1, 2, 17, 4_500, 8_999, 9_000):
        assert column.smallest(count).tolist() == np.sort(order[:count]).tolist()
        total, last = column.sum_of_smallest(count)
        assert last == values[order[count - 1]]
        assert total == pytest.approx(values[order[:count]].sum(), rel=1e-9)
    assert column.smallest(0).tolist() == []
    assert column.extent() == (values.min(), values.max())
    assert column.count_up_to(0.0) == (values <= 0).sum()
    assert np.array_equal(column.distance_from(0.5).values(), np.abs(values - 0.5))
    some = np.random.default_rng(7).permutation(9_000)[:100]
    assert np.array_equal(column.at(some), values[some])


@pytest.mark.parametrize("shards", SHARDS)
def test_what_lies_inside_the_threshold_is_added_up_without_the_rows_left_out(shards: int) -> None:
    array, rng = softmax_rows(6_000, 100), np.random.default_rng(8)
    rows, cost, reduced = rows_in(array, shards), rng.normal(size=6_000), rng.normal(size=6_000)
    but = np.sort(rng.choice(6_000, 900, replace=False))
    found = rows.inside(rows.hold(reduced), 0.2, rows.hold(cost), but)
    meant = np.setdiff1d(np.flatnonzero(reduced < 0.2), but)
    assert found.count == len(meant)
    np.testing.assert_allclose(found.total, array[meant].sum(axis=0), rtol=1e-12)
    assert found.cost == pytest.approx(cost[meant].sum(), rel=1e-12)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_scan_scores_the_rows_and_names_the_bad_ones_by_their_number(shards: int) -> None:
    array = softmax_rows(6_000, 100)
    costs, problems = rows_in(array, shards).scan(entropy, 1e-3)
    assert problems == (0, [])
    np.testing.assert_allclose(costs.values(), -entropy(array), rtol=1e-12)
    array[[5, 5_999]] *= 2
    _, problems = rows_in(array, shards).scan(None, 1e-3)
    assert problems == (2, ["row 5 sums to 2", "row 5999 sums to 2"])
    array[2_000:] *= 2
    _, problems = rows_in(array, shards).scan(None, 1e-3)
    assert problems == (4_001, ["row 5 sums to 2", "row 2000 sums to 2", "row 2001 sums to 2"])


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_large_probabilities_of_some_classes_are_counted_and_added_up(dtype: type, shards: int) -> None:
    array = softmax_rows(6_000, 100, dtype)
    classes = np.array([3, 99, 0])
    counts, sums = rows_in(array, shards).above(classes, 0.1)
    columns = array[:, classes].astype(float)
    assert counts.tolist() == (columns > np.float64(dtype(0.1))).sum(axis=0).tolist()
    np.testing.assert_allclose(sums, np.where(columns > np.float64(dtype(0.1)), columns, 0).sum(axis=0), rtol=1e-12)


def test_probabilities_of_a_class_make_a_column() -> None:
    array = softmax_rows(4_000, 100, np.float16)
    first, second = rows_in(array, 2).minus_classes([7, 99])
    assert np.array_equal(first.values(), -array[:, 7].astype(float))
    assert np.array_equal(second.values(), -array[:, 99].astype(float))


def test_memory_of_dropped_columns_is_used_again_but_never_anybodys_array() -> None:
    array, own = softmax_rows(5_000, 30), np.random.default_rng(9).normal(size=5_000)
    kept, y = own.copy(), np.linspace(-1.0, 1.0, 30)
    rows = rows_in(array, 1)
    cost = rows.hold(own)
    for factor in (1.0, 2.0, 3.0):  # each drops the one before
        found = rows.priced(cost, factor * y).distance_from(0.25)
        np.testing.assert_allclose(found.values(), np.abs(kept - array @ (factor * y) - 0.25), atol=1e-13)
        read = found.values()
    read_before = read.copy()
    del cost, found
    rows.priced(rows.hold(np.zeros(5_000)), y).extent()
    rows.priced(rows.hold(np.ones(5_000)), y).extent()
    assert np.array_equal(own, kept)
    assert np.array_equal(read, read_before)


def test_columns_that_nobody_needs_are_dropped() -> None:
    backend = LocalBackend(softmax_rows(1_000, 5), np.array([0, 1_000]))
    rows = Rows(backend=backend)
    kept = rows.hold(np.zeros(1_000))
    for _ in range(5):
        rows.hold(np.zeros(1_000)).extent()
    gc.collect()
    kept.extent()
    assert list(backend.shards[0].columns) == [kept.key]
