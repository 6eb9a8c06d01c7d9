"""The scale of λ follows the scores that matter, not a few huge ones."""

from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.matrix.shards import Rows
from tailwise.score import entropy
from tailwise.solver import path as module
from tailwise.solver.path import scale_of, score_scale, score_spread

from .test_path import pool


def half_left_out(share: float, value: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A pool, scores with `value` for a share of the rows, and which rows these are."""
    proba = pool(seed, 1_200, 5)
    scores = entropy(proba).astype(np.float64)
    left_out = np.random.default_rng(seed).random(1_200) < share
    scores[left_out] = value
    return proba, scores, left_out


@pytest.mark.parametrize("value", [-1e9, -1e15, -200.0])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
@pytest.mark.parametrize("balance", ["auto", "within 30%"])
def test_rows_to_leave_out_are_not_picked(balance: str, share: float, value: float) -> None:
    proba, scores, left_out = half_left_out(share, value)
    batch = tailwise.select(proba, 60, score=scores, balance=balance)
    assert not left_out[batch.indices].any()
    assert batch.lam <= 30.0
    without = tailwise.select(proba, 60, score=scores, balance=0).l1
    assert batch.l1 < (without if balance == "auto" else 0.3 * 60)
    assert batch.gap < 0.02


@pytest.mark.parametrize("others", [0.0, 1.0, -3.0])
def test_rows_to_leave_out_are_not_picked_where_all_others_are_alike(others: float) -> None:
    proba, scores, left_out = half_left_out(0.4, -1e9)
    scores[~left_out] = others
    batch = tailwise.select(proba, 60, score=scores)
    assert not left_out[batch.indices].any()


def test_rows_to_leave_out_do_not_change_the_scale() -> None:
    for share in (0.0, 0.5, 0.9):
        _, scores, left_out = half_left_out(share, -1e9)
        seen = scores[~left_out]
        assert scale_of(scores, 60, 5) == scale_of(seen, 60, 5)
        assert scale_of(scores, 60, 5) == pytest.approx((seen.max() - seen.min()) / np.log(5), rel=0.1)


def test_rows_to_take_in_any_case_do_not_stretch_the_scale() -> None:
    scores = np.random.default_rng(0).random(2_000)
    plain = score_spread(scores, 100)
    scores[:20] = 1e9
    assert score_spread(scores, 100) == pytest.approx(plain, rel=0.02)


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e6])
def test_the_scale_follows_the_unit_of_the_scores(factor: float) -> None:
    rng = np.random.default_rng(1)
    for scores in (rng.random(500), rng.normal(size=500), rng.exponential(size=500), rng.integers(0, 2, size=500)):
        assert score_spread(factor * scores, 50) == pytest.approx(factor * score_spread(scores * 1.0, 50))


def test_scores_of_two_or_few_values_keep_their_range() -> None:
    assert score_spread(np.array([0.0] * 90 + [1.0] * 10), 30) == 1.0
    assert score_spread(np.array([0.0] * 99 + [1.0]), 30) == 1.0
    assert score_spread(np.array([0.0, 1.0, 2.0]), 1) == pytest.approx(2.0, rel=0.02)
    assert score_spread(np.full(9, 7.0), 3) == 0.0


def test_a_long_tail_of_scores_is_not_cut_off() -> None:
    scores = np.random.default_rng(2).lognormal(sigma=2.0, size=5_000)
    assert score_spread(scores, 50) > 0.3 * np.sort(scores)[-25]


def test_a_sample_says_what_all_rows_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLED_ROWS", 4_000)
    rows = Rows(pool(3, 20_000, 5))
    scores = np.random.default_rng(3).random(20_000)
    scores[::2] = -1e9  # every second row
    assert score_scale(rows.hold(-scores), 500) == pytest.approx(scale_of(scores, 500, 5), rel=0.03)
