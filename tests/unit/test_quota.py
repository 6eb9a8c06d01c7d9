from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from tailwise.targets import Ranges, Target, wanted_counts, water_fill, whole_quotas


@given(st.integers(1, 8), st.integers(0, 10_000))
def test_water_rises_to_one_level_and_no_higher_than_the_limits(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 5, classes).astype(float)
    limit = start + rng.integers(0, 6, classes) * rng.random()
    amount = float(rng.random() * limit.sum())
    added = water_fill(start, limit, amount)
    room = limit - start
    if room.sum() <= amount:
        np.testing.assert_allclose(added, room)
        return
    level = brentq(lambda t: np.clip(t - start, 0, room).sum() - amount, start.min(), limit.max() + 1)
    np.testing.assert_allclose(added, np.clip(level - start, 0, room), atol=1e-8)
    assert added.sum() == pytest.approx(amount)


def test_an_equal_target_beyond_the_budget_becomes_water_filling_of_the_labels() -> None:
    labels = np.array([40.0, 3.0, 1.0, 0.0])
    ranges = Target.paper().resolve(labels, 6)
    assert ranges.low.sum() > 6  # the paper's form asks for more than there is
    wanted = wanted_counts(ranges, labels, 6, np.ones(4, dtype=bool))
    assert wanted.sum() == pytest.approx(6)
    np.testing.assert_allclose(wanted + labels, [40, 10 / 3, 10 / 3, 10 / 3])


def test_classes_that_are_not_possible_get_nothing_and_the_others_their_places() -> None:
    ranges = Ranges(np.array([2.0, 2.0, 2.0]), np.array([2.0, 2.0, 2.0]))
    wanted = wanted_counts(ranges, np.zeros(3), 6, np.array([True, False, True]))
    assert wanted.tolist() == [3.0, 0.0, 3.0]


def test_ranges_are_filled_from_low_to_high_and_beyond_where_they_must() -> None:
    ranges = Ranges(np.array([1.0, 0.0]), np.array([2.0, 3.0]))
    everywhere, labels = np.ones(2, dtype=bool), np.array([3.0, 3.0])
    assert wanted_counts(ranges, labels, 4, everywhere).tolist() == [2.0, 2.0]
    assert wanted_counts(ranges, labels, 5, everywhere).tolist() == [2.0, 3.0]
    assert wanted_counts(ranges, labels, 9, everywhere).tolist() == [4.5, 4.5]
    assert wanted_counts(ranges, np.array([5.0, 0.0]), 9, everywhere).tolist() == [2.0, 7.0]


def test_places_that_no_class_may_take_go_to_those_with_the_fewest_labels() -> None:
    labels = np.array([18.0, 6.0, 4.0, 2.0, 0.0])
    wanted = wanted_counts(Target.uniform().resolve(labels, 25), labels, 25, labels > 0)
    np.testing.assert_allclose(wanted + labels, [18, 37 / 3, 37 / 3, 37 / 3, 0])


@given(st.integers(1, 9), st.integers(0, 30), st.integers(0, 10_000))
def test_whole_quotas_sum_to_the_budget_and_differ_by_less_than_one(classes: int, budget: int, seed: int) -> None:
    wanted = np.random.default_rng(seed).dirichlet(np.ones(classes)) * budget
    quota = whole_quotas(wanted, budget)
    assert quota.sum() == budget
    assert (np.abs(quota - wanted) < 1 + 1e-6).all()
