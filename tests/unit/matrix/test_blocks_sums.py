"""Sums come out the same in any order and any grouping, and are right."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.matrix.blocks import exact_sum, fixed_point_sums, from_exact, from_fixed_point

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(finite, max_size=40))
def test_an_exact_sum_is_that_of_fractions(values: list[float]) -> None:
    assert Fraction(exact_sum(np.array(values, dtype=np.float64)), 1 << 1074) == sum(map(Fraction, values))


@given(st.lists(st.floats(-1e300, 1e300), max_size=40))
def test_an_exact_sum_is_rounded_once_as_fsum_does(values: list[float]) -> None:
    assert from_exact(exact_sum(np.array(values, dtype=np.float64))) == math.fsum(values)


def test_parts_of_an_exact_sum_add_up_wherever_they_are_cut() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=3_000) * 10.0 ** rng.integers(-30, 30, size=3_000)
    whole = exact_sum(values)
    assert all(exact_sum(values[:cut]) + exact_sum(values[cut:]) == whole for cut in range(0, 3_001, 250))
    assert exact_sum(values[::-1].copy()) == whole


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_fixed_point_sums_are_right_and_add_up_in_any_order(dtype: type) -> None:
    rng = np.random.default_rng(2)
    block = rng.dirichlet(np.full(6, 0.05), size=5_000).astype(dtype)  # with numbers down to 1e-30
    whole = fixed_point_sums(block)
    parts = [fixed_point_sums(part) for part in np.array_split(rng.permutation(block), 7)]
    assert np.array_equal(sum(parts), whole)
    truth = [math.fsum(column) for column in block.astype(np.float64).T]
    np.testing.assert_allclose(from_fixed_point([whole]), truth, rtol=0, atol=len(block) * 2.0**-61 + 1e-12)


def test_fixed_point_sums_hold_for_more_rows_than_are_added_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    block = np.random.default_rng(3).random((1_000, 3))
    whole = fixed_point_sums(block)
    monkeypatch.setattr("tailwise.matrix.blocks.MOST_ROWS", 64)
    assert np.array_equal(fixed_point_sums(block), whole)
    assert exact_sum(block[:, 0]) == sum(exact_sum(part) for part in np.array_split(block[:, 0], 5))


def test_sums_of_nothing_are_zero() -> None:
    assert exact_sum(np.empty(0)) == 0
    assert from_fixed_point([fixed_point_sums(np.empty((0, 3), dtype=np.float32))]).tolist() == [0, 0, 0]
