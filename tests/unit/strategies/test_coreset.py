"""CoreSet as a strategy: its own settings reach the solver."""

from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make


def predictions() -> tailwise.Predictions:
    rng = np.random.default_rng(0)
    labelled = rng.normal(size=(5, 3))
    return tailwise.Predictions(
        np.full((60, 2), 0.5), embeddings=rng.normal(size=(60, 3)), labelled_embeddings=labelled
    )


def test_no_steps_leave_the_greedy_picks_and_enough_of_them_the_best() -> None:
    given = predictions()
    none, all_ = (make("coreset", balance=0, max_steps=steps).select(given, 6) for steps in (0, 10_000))
    assert none.indices.tolist() == make("kcenter", balance=0.0).select(given, 6).indices.tolist()
    assert (none.status, all_.status) == ("best found", "optimal")
    assert all_.objective < none.objective
    assert none.bound <= all_.objective


def test_outliers_are_given_up() -> None:
    strict, robust = (make("coreset", balance=0, outliers=outliers).select(predictions(), 6) for outliers in (0, 5))
    assert robust.objective < strict.objective


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(BadInput, match="max_steps is -3"):
        make("coreset", balance=0, max_steps=-3).select(predictions(), 6)
