"""A first batch without a model: main axes keep distances, and every group of images is represented."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.campaign.choosing import choose_cold
from tailwise.campaign.features import main_axes


def groups(count: int, size: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    places = np.repeat(np.arange(count), size)
    centres = rng.normal(size=(count, width)) * 6
    return (centres[places] + rng.normal(size=(count * size, width))).astype(np.float32), places


def test_main_axes_are_those_of_an_exact_decomposition() -> None:
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(500, 6)) @ rng.normal(size=(6, 200)) * 5).astype(np.float32)
    short, others = main_axes(features, features[:7], axes=6)
    assert short.shape == (500, 6)
    centred = features - features.mean(axis=0)
    exact = np.linalg.norm(centred[:50, None] - centred[None, :50], axis=2)
    found = np.linalg.norm(short[:50, None] - short[None, :50], axis=2)
    np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-2)  # all that there is lies along six axes
    # seven rows and five hundred may be multiplied in different orders, which differ in the last bits
    np.testing.assert_allclose(others, short[:7], rtol=1e-4, atol=1e-4)
    spreads = short.std(axis=0)
    assert (np.diff(spreads) <= 1e-3).all()


def test_narrow_features_and_small_pools_stay_as_they_are() -> None:
    for shape in ((500, 64), (64, 500)):
        features = np.ones(shape, np.float32)
        assert main_axes(features, features[:0])[0] is features


@pytest.mark.parametrize("strategy", ["typiclust", "entropy", "kcenter", "maxherding", "uherding", "tcm"])
def test_every_group_is_represented(strategy: str) -> None:
    features, places = groups(8, 60, 100)
    batch = choose_cold(features, features[:0], 8, strategy=strategy, classes=3, seed=0)
    assert sorted(places[batch.indices].tolist()) == list(range(8))
    assert batch.method == ("typiclust" if strategy in {"entropy", "tcm"} else strategy)


def test_groups_that_are_labelled_are_left_to_the_others() -> None:
    features, places = groups(8, 60, 100)
    labelled = np.concatenate([features[places == 0][:5], features[places == 3][:5]])
    batch = choose_cold(features, labelled, 6, strategy="entropy", classes=3, seed=0)
    assert not {0, 3} & set(places[batch.indices].tolist())


def test_random_is_taken_at_its_word() -> None:
    features, _ = groups(2, 60, 100)
    batch = choose_cold(features, features[:0], 6, strategy="random", classes=3, seed=4)
    again = choose_cold(features, features[:0], 6, strategy="random", classes=3, seed=4)
    assert batch.method == "random"
    assert batch.indices.tolist() == again.indices.tolist()
