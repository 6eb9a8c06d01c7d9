"""Targets and measures, by hand-computed examples and invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tailwise.errors import BadInput
from tailwise.targets import Target, l1_score


def test_uniform_is_equation_four() -> None:
    # b0 = 10, c = 2, b = 5, C = 3: (2·5 + 10)/3 − n_i, clipped; n includes the first cycle's five picks
    counts = np.array([9.0, 5.0, 1.0])
    omega = Target.paper().resolve(counts, budget=5).low
    np.testing.assert_allclose(omega, np.maximum((2 * 5 + 10) / 3 - counts, 0))
    even = np.array([7.0, 5.0, 3.0])  # nothing is clipped
    for target in (Target.paper(), Target.uniform()):
        np.testing.assert_allclose(target.resolve(even, budget=10).low, (15 + 10) / 3 - even)


def test_clipping_makes_the_paper_ask_for_more_than_the_budget_and_the_default_not() -> None:
    counts = np.array([100.0, 0.0, 2.0])
    assert Target.paper().resolve(counts, budget=8).low.sum() > 8
    assert Target.uniform().resolve(counts, budget=8).low.tolist() == [0.0, 5.0, 3.0]
    assert Target.shares([1, 1, 3]).resolve(counts, budget=8).low.tolist() == [0.0, 2.5, 5.5]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1.0, 3.0])), min_size=2, max_size=8),
    st.integers(0, 60),
)
def test_shares_are_filled_up_to_one_level(classes: list[tuple[int, float]], budget: int) -> None:
    counts, weights = (np.array(column, dtype=float) for column in zip(*classes, strict=True))
    assume(weights.any())
    shares = weights / weights.sum()
    omega = Target.shares(weights).resolve(counts, budget).low
    low, high = 0.0, counts.sum() + budget  # the level by bisection
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(shares * middle - counts, 0).sum() <= budget else (low, middle)
    np.testing.assert_allclose(omega, np.maximum(shares * low - counts, 0), atol=1e-9)
    assert omega.sum() <= budget + 1e-9


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(0, 40))
def test_shares_are_scale_free_and_never_negative(counts: list[int], budget: int) -> None:
    labelled = np.array(counts, dtype=float)
    weights = np.arange(1.0, len(counts) + 1)
    once = Target.shares(weights).resolve(labelled, budget).low
    thrice = Target.shares(3 * weights).resolve(labelled, budget).low
    np.testing.assert_allclose(once, thrice)
    assert (once >= 0).all()


def test_ranges_take_arrays_numbers_and_mappings() -> None:
    ranges = Target.ranges(low={1: 2.0}, high=7).resolve(np.zeros(3), budget=10)
    assert ranges.low.tolist() == [0, 2, 0]
    assert ranges.high.tolist() == [7, 7, 7]
    open_end = Target.ranges(low=[1, 2, 30]).resolve(np.zeros(3), budget=10)
    assert open_end.high.tolist() == [10, 10, 30]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (Target.shares([0, 0, 0]), "all zero"),
        (Target.shares([1, 2]), "3 classes"),
        (Target.shares([1, np.nan, 1]), "class 1 is nan"),
        (Target.counts([1, np.inf, 1]), "class 1 is inf; it must be a number ≥ 0 and at most"),
        (Target.ranges(low=5, high=3), "at least 5 and at most 3"),
        (Target.ranges(low={3: 1.0}), "names class 3"),
        (Target.ranges(low="many"), "must be numbers"),
    ],
)
def test_targets_that_make_no_sense_are_refused(target: Target, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        target.resolve(np.zeros(3), budget=4)


def test_l1_score_at_its_ends_and_in_between() -> None:
    assert l1_score([4, 4, 4]) == 0.0
    assert l1_score([12, 0, 0]) == pytest.approx(1.0)
    assert l1_score([6, 4, 2]) == pytest.approx((2 + 0 + 2) * 3 / (2 * 12 * 2))
    assert l1_score([0, 0]) == 0.0
    assert l1_score([7]) == 0.0
