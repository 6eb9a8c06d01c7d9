"""Rows are read exactly, and the same whatever the number of threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.solve.shards import Rows, smallest, widen_half


def test_every_finite_non_negative_half_is_widened_exactly() -> None:
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16)
    assert np.array_equal(widen_half(every), every.astype(np.float32))


def test_negative_and_non_finite_halves_are_widened_by_the_slow_way() -> None:
    odd = np.array([-1.5, np.inf, np.nan], dtype=np.float16)
    assert np.array_equal(widen_half(odd), odd.astype(np.float32), equal_nan=True)


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 31))
def test_smallest_is_a_stable_sort_cut_off(values: list[int], count: int) -> None:
    array = np.array(values, dtype=float)
    expected = np.sort(np.argsort(array, kind="stable")[:count])
    assert smallest(array, count).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_products_and_sums_equal_those_in_float64(dtype: type) -> None:
    rng = np.random.default_rng(0)
    array = rng.dirichlet(np.ones(7), size=100_000).astype(dtype)
    rows, y, some = Rows(array), rng.normal(size=7), rng.permutation(100_000)[:70_000]
    wide = array.astype(np.float64)
    np.testing.assert_allclose(rows.times(y), wide @ y, atol=1e-14)
    np.testing.assert_allclose(rows.total(some), wide[some].sum(axis=0), rtol=1e-12)
    assert np.array_equal(rows.take(some), wide[some])


def test_products_are_bit_identical_for_any_number_of_threads() -> None:
    array = np.random.default_rng(1).dirichlet(np.ones(9), size=150_000).astype(np.float32)
    y = np.linspace(-1, 1, 9)
    one = Rows(array, threads=1).times(y)
    assert all(np.array_equal(one, Rows(array, threads=count).times(y)) for count in (2, 3, 8))


def test_a_memory_mapped_matrix_is_read_like_one_in_memory(tmp_path: Path) -> None:
    array = np.random.default_rng(2).dirichlet(np.ones(4), size=1_000).astype(np.float16)
    np.save(tmp_path / "p.npy", array)
    mapped = Rows(np.load(tmp_path / "p.npy", mmap_mode="r"))
    assert np.array_equal(mapped.times(np.arange(4.0)), Rows(array).times(np.arange(4.0)))
