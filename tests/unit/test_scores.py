"""Scores against their definitions, entry by entry."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import UnknownName
from tailwise.inputs import Registry
from tailwise.score import SCORES, bald, entropy, least_confidence, margin


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_scores_follow_their_definitions(seed: int, classes: int) -> None:
    proba = np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), size=4)
    for row, h, m, c in zip(proba, entropy(proba), margin(proba), least_confidence(proba), strict=True):
        best, second = sorted(row, reverse=True)[:2]
        assert h == pytest.approx(-sum(p * math.log(p) for p in row if p > 0), abs=1e-12)
        assert m == pytest.approx(1 - (best - second))
        assert c == pytest.approx(1 - best)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_certain_row_scores_zero_and_never_nan(dtype: type) -> None:
    certain = np.eye(3, dtype=dtype)
    for score in (entropy, margin, least_confidence):
        assert score(certain).tolist() == [0.0, 0.0, 0.0]


def test_one_class_has_no_margin() -> None:
    assert margin(np.ones((3, 1))).tolist() == [0.0, 0.0, 0.0]


@given(st.integers(0, 10_000))
def test_bald_is_the_mutual_information_and_never_negative(seed: int) -> None:
    passes = np.random.default_rng(seed).dirichlet(np.ones(4), size=(5, 3))
    expected = entropy(passes.mean(axis=0)) - np.mean([entropy(one) for one in passes], axis=0)
    np.testing.assert_allclose(bald(passes), np.maximum(expected, 0), atol=1e-12)
    assert (bald(passes[:1]) < 1e-12).all()


def test_a_name_cannot_be_taken_twice_and_an_unknown_one_lists_the_known() -> None:
    registry: Registry[int] = Registry("thing")
    registry.register("a")(1)
    with pytest.raises(ValueError, match="registered already"):
        registry.register("a")(2)
    with pytest.raises(UnknownName, match="Known: a"):
        registry["zzz"]
    assert "entropy" in SCORES
    assert list(registry) == ["a"]
    assert len(registry) == 1
