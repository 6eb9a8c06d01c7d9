from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadInput, PoolExhausted
from tailwise.pools.pool import Tail, split, uniform_counts

SEEDS = st.integers(0, 5)


def counts(labels: np.ndarray, indices: np.ndarray, classes: int) -> list[int]:
    return np.bincount(labels[indices], minlength=classes).tolist()


# PAPER §7: classes, images per class, initial set, factor → pool of the first half, of the second, total with initial.
PAPER = [
    (10, 5000, 5000, 1.0, 4500, 4500, 50_000),
    (10, 5000, 5000, 0.3, 4500, 1350, 34_250),
    (10, 5000, 5000, 0.1, 4500, 450, 29_750),
    (100, 500, 5000, 1.0, 450, 450, 50_000),
    (100, 500, 5000, 0.3, 450, 135, 34_250),
    (100, 500, 5000, 0.1, 450, 45, 29_750),
    (200, 500, 10_000, 1.0, 450, 450, 100_000),
    (200, 500, 10_000, 0.3, 450, 135, 68_500),
    (200, 500, 10_000, 0.1, 450, 45, 59_500),
]


@pytest.mark.parametrize(("classes", "each", "initial", "factor", "head", "rare", "total"), PAPER)
def test_the_counts_are_those_of_the_paper(
    classes: int, each: int, initial: int, factor: float, head: int, rare: int, total: int
) -> None:
    labels = np.random.default_rng(9).permutation(np.repeat(np.arange(classes), each))
    start = split(labels, classes, tail=Tail("step", factor), initial=initial, draw="uniform", seed=1)
    assert counts(labels, start.labelled, classes) == [initial // classes] * classes
    half = classes // 2
    assert counts(labels, start.unlabelled, classes) == [head] * half + [rare] * half
    assert len(start.labelled) + len(start.unlabelled) == total
    assert start.tail.tolist() == ([] if factor == 1 else list(range(half, classes)))


def test_drawn_from_the_pool_the_whole_set_is_thinned_first() -> None:
    labels = np.repeat(np.arange(10), 5000)
    start = split(labels, 10, tail=Tail("step", 0.1), initial=5000, draw="pool", seed=0)
    both = np.concatenate([start.labelled, start.unlabelled])
    assert counts(labels, both, 10) == [5000] * 5 + [500] * 5
    first = np.array(counts(labels, start.labelled, 10))
    assert first.sum() == 5000
    expected = 5000 * np.array([5000] * 5 + [500] * 5) / 27_500
    assert np.abs(first - expected).max() < 5 * np.sqrt(expected.max())  # five standard deviations of a fair draw
    assert len(set(first[:5].tolist())) > 1  # by chance, not class by class


def test_drawn_from_the_pool_rare_classes_may_be_missing() -> None:
    labels = np.repeat(np.arange(10), 1000)
    start = split(labels, 10, tail=Tail("exponential", 0.001), initial=20, draw="pool", seed=0)
    assert 0 in counts(labels, start.labelled, 10)
    assert start.tail.tolist() == [5, 6, 7, 8, 9]


labelled_sets = st.lists(st.integers(0, 4), min_size=20, max_size=80)
tails = st.builds(
    Tail,
    st.sampled_from(["step", "exponential", "none"]),
    st.sampled_from([1.0, 0.5, 0.1]),
    st.sampled_from(["last", "random"]),
)


@given(labelled_sets, tails, st.integers(0, 15), SEEDS, st.sampled_from(["uniform", "pool"]))
def test_the_parts_are_disjoint_sorted_and_depend_on_the_seed_alone(
    labels: list[int], tail: Tail, initial: int, seed: int, draw: str
) -> None:
    array = np.array(labels + [0, 1, 2, 3, 4] * 10)  # whichever classes are thinned, 15 images are left
    one, two = (split(array, 5, tail=tail, initial=initial, draw=draw, seed=seed) for _ in range(2))  # type: ignore[arg-type]
    for first, second in ((one.labelled, two.labelled), (one.unlabelled, two.unlabelled), (one.tail, two.tail)):
        assert first.tolist() == second.tolist() == sorted(set(first.tolist()))
        assert first.dtype == np.int64
    assert len(one.labelled) == initial
    assert not set(one.labelled.tolist()) & set(one.unlabelled.tolist())


@given(SEEDS)
def test_a_uniform_start_is_shared_by_all_tails_and_smaller_factors_keep_fewer_of_the_same(seed: int) -> None:
    labels = np.repeat(np.arange(6), 50)
    starts = [
        split(labels, 6, tail=Tail("step", factor, "random"), initial=15, draw="uniform", seed=seed)
        for factor in (1.0, 0.3, 0.1)
    ]
    assert len({start.labelled.tobytes() for start in starts}) == 1
    all_, some, few = (set(start.unlabelled.tolist()) for start in starts)
    assert few < some < all_
    assert starts[1].tail.tolist() == starts[2].tail.tolist()


def test_a_uniform_start_does_not_depend_on_which_classes_are_rare_or_on_the_profile() -> None:
    labels = np.repeat(np.arange(6), 50)
    tails = (Tail(), Tail("step", 0.5), Tail("step", 0.5, "random"), Tail("step", 0.5, (2,)), Tail("exponential", 0.1))
    starts = [split(labels, 6, tail=tail, initial=15, draw="uniform", seed=4) for tail in tails]
    assert len({start.labelled.tobytes() for start in starts}) == 1


def test_other_seeds_give_other_parts_and_other_random_tails() -> None:
    labels = np.repeat(np.arange(10), 50)
    starts = [split(labels, 10, tail=Tail("step", 0.1, "random"), initial=10, draw="uniform", seed=s) for s in range(8)]
    assert len({start.labelled.tobytes() for start in starts}) == 8
    assert len({start.tail.tobytes() for start in starts}) > 4


def test_explicit_classes_are_the_tail() -> None:
    labels = np.repeat(np.arange(5), 10)
    start = split(labels, 5, tail=Tail("step", 0.2, (3, 0)), initial=0, draw="uniform", seed=0)
    assert counts(labels, start.unlabelled, 5) == [2, 10, 10, 2, 10]
    assert start.tail.tolist() == [0, 3]


def test_an_exponential_tail_follows_the_given_order() -> None:
    labels = np.repeat(np.arange(3), 100)
    start = split(labels, 3, tail=Tail("exponential", 0.01, (2, 0, 1)), initial=0, draw="pool", seed=0)
    assert counts(labels, start.unlabelled, 3) == [10, 1, 100]
    assert start.tail.tolist() == [0, 1]


@given(st.integers(1, 12), st.integers(0, 100), SEEDS)
def test_a_remainder_goes_to_as_many_classes_as_it_has(classes: int, total: int, seed: int) -> None:
    wanted = uniform_counts(classes, total, np.random.default_rng(seed))
    assert wanted.sum() == total
    assert set(wanted.tolist()) <= {total // classes, total // classes + 1}


def test_a_remainder_favours_no_class() -> None:
    extra = sum(uniform_counts(4, 5, np.random.default_rng(seed)) - 1 for seed in range(400))
    assert np.asarray(extra).min() > 70


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"draw": "fair"}, "draw is 'fair'"),
        ({"seed": -1}, "seed and initial must be 0 or more"),
        ({"initial": -1}, "seed and initial must be 0 or more"),
        ({"classes": 2}, "labels run from 0 to 2, but there are 2 classes"),
        ({"tail": Tail("step", 0.5, (0, 0))}, "different numbers from 0 to 2"),
        ({"tail": Tail("step", 0.5, (3,))}, "different numbers from 0 to 2"),
        ({"tail": Tail("exponential", 0.5, (1,))}, "needs all 3 classes"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], says: str) -> None:
    asked: dict[str, object] = {"classes": 3, "tail": Tail(), "initial": 3, "draw": "uniform", "seed": 0} | changes
    classes = asked.pop("classes")
    with pytest.raises(BadInput, match=says):
        split(np.array([0, 1, 2] * 5), classes, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "says"),
    [(("linear", 0.5), "profile"), (("step", 0.0), "imbalance factor"), (("step", 0.5, "first"), "'last', 'random'")],
)
def test_an_impossible_tail_is_refused(settings: tuple[object, ...], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Tail(*settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("draw", ["uniform", "pool"])
def test_more_initial_images_than_there_are_is_refused(draw: str) -> None:
    with pytest.raises(PoolExhausted, match="ask for fewer"):
        split(np.array([0, 1, 1, 1]), 2, tail=Tail(), initial=5, draw=draw, seed=0)  # type: ignore[arg-type]


def test_a_tail_says_what_it_is() -> None:
    assert [str(tail) for tail in (Tail("step", 0.1, "random"), Tail("step", 0.1, (1, 2)), Tail("step", 1.0))] == [
        "step 0.1 random", "step 0.1 (1, 2)", "balanced",
    ]  # fmt: skip
