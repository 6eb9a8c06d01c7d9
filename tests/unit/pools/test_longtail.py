from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadInput, PoolExhausted
from tailwise.pools.datasets import load_digits
from tailwise.pools.pool import exponential_profile, initial_set, keep_counts, step_profile


@pytest.mark.parametrize(
    ("classes", "per_class", "factor", "pool"),
    [(10, 4500, 0.1, 24_750), (10, 4500, 0.3, 29_250), (100, 450, 0.1, 24_750), (100, 450, 0.3, 29_250)],
)
def test_the_step_profile_has_the_totals_of_the_paper(classes: int, per_class: int, factor: float, pool: int) -> None:
    counts = step_profile(np.full(classes, per_class), factor)
    assert counts.sum() == pool
    assert set(counts[: classes // 2]) == {per_class}
    assert set(counts[classes // 2 :]) == {round(per_class * factor)}


def test_a_factor_of_one_changes_nothing() -> None:
    counts = np.array([7, 3, 9])
    assert step_profile(counts, 1.0).tolist() == exponential_profile(counts, 1.0).tolist() == [7, 3, 9]


def test_the_exponential_profile_is_geometric_from_all_to_the_fraction() -> None:
    assert exponential_profile(np.full(5, 10_000), 1e-4).tolist() == [10_000, 1_000, 100, 10, 1]
    assert exponential_profile(np.array([50]), 0.1).tolist() == [50]


@pytest.mark.parametrize("factor", [0.0, -0.1, 1.5, float("nan")])
def test_an_impossible_factor_is_refused(factor: float) -> None:
    for profile in (step_profile, exponential_profile):
        with pytest.raises(BadInput, match="imbalance factor"):
            profile(np.array([5, 5]), factor)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 10))
def test_kept_indices_have_exactly_the_wanted_counts(labels: list[int], seed: int) -> None:
    array = np.array(labels)
    wanted = np.bincount(array, minlength=5) // 2
    kept = keep_counts(array, wanted, np.random.default_rng(seed))
    assert np.bincount(array[kept], minlength=5).tolist() == wanted.tolist()
    assert (np.diff(kept) > 0).all()


def test_the_same_generator_keeps_the_same_and_another_keeps_others() -> None:
    labels = np.arange(1000) % 10
    wanted = np.full(10, 20)
    first, again, other = (keep_counts(labels, wanted, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_asking_for_more_than_a_class_has_names_the_class() -> None:
    with pytest.raises(PoolExhausted, match="3 samples of class 1, but there are 2"):
        keep_counts(np.array([0, 1, 1]), np.array([1, 3]), np.random.default_rng(0))


def test_the_initial_set_is_class_uniform_also_where_the_pool_is_not() -> None:
    labels = np.repeat([0, 1, 2], [100, 10, 5])
    first = initial_set(labels, 3, 4, np.random.default_rng(0))
    assert np.bincount(labels[first]).tolist() == [4, 4, 4]


def test_the_step_profile_cuts_the_classes_of_a_given_tail() -> None:
    tail = np.array([1, 2, 5, 6, 8])
    cut = step_profile(np.full(9, 100), 0.1, tail)
    assert np.flatnonzero(cut == 10).tolist() == tail.tolist()


def test_digits_are_whole_and_scaled() -> None:
    digits = load_digits()
    assert len(digits) == 1797
    assert (digits.inputs.min(), digits.inputs.max()) == (0.0, 1.0)
    few = digits.take(np.flatnonzero(digits.labels == 3))
    assert few.counts().tolist() == [0, 0, 0, 183, 0, 0, 0, 0, 0, 0]


def test_digits_are_those_of_scikit_learn_wherever_it_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits as bundled

    features, labels = bundled(return_X_y=True)
    read = load_digits()
    monkeypatch.setattr("tailwise.pools.datasets.find_spec", lambda _: None)
    imported = load_digits()
    for digits in (read, imported):
        assert np.array_equal(digits.inputs, (features / 16).astype(np.float32))
        assert np.array_equal(digits.labels, labels)
