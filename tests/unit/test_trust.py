from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import tailwise
from tailwise.calibration import disagrees, measure_trust, misplaced
from tailwise.errors import BadInput, CalibrationWarning
from tailwise.selection import Trust


def pool(size: int = 300, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right, and labels drawn from them."""
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(classes, 0.5), size=size)
    return proba, (rng.random((size, 1)) > proba.cumsum(axis=1)).sum(axis=1)


def test_the_standard_deviation_of_counts_is_that_of_independent_draws() -> None:
    proba, _ = pool()
    batch = tailwise.select(proba, 40, counts=[9, 1, 4, 2], score="entropy")
    literal = [np.sqrt(sum(proba[row, cls] * (1 - proba[row, cls]) for row in batch.indices)) for cls in range(4)]
    np.testing.assert_allclose(batch.counts_std, literal)
    rng = np.random.default_rng(1)
    draws = [np.bincount([rng.choice(4, p=proba[row]) for row in batch.indices], minlength=4) for _ in range(400)]
    np.testing.assert_allclose(np.std(draws, axis=0), batch.counts_std, rtol=0.15)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_standard_deviation_is_the_same_on_shards(dtype: type[np.floating]) -> None:
    proba, _ = pool()
    one, many = (
        tailwise.select(proba.astype(dtype), 40, balance=1.0, shards=shards, score="entropy") for shards in (1, 7)
    )
    assert one.counts_std.tolist() == many.counts_std.tolist()


def test_every_strategy_says_it_and_an_empty_batch_has_none() -> None:
    proba, _ = pool(20)
    for name in ("random", "margin", "least-confidence"):
        batch = tailwise.strategies.make(name, balance=0).select(tailwise.Predictions(proba), 5)
        own = proba[batch.indices]
        np.testing.assert_allclose(batch.counts_std, np.sqrt((own * (1 - own)).sum(axis=0)))
    assert tailwise.select(proba, 0, score="entropy").counts_std.tolist() == [0, 0, 0, 0]


def test_trust_counts_what_was_right() -> None:
    trust = measure_trust(np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1]))
    assert (trust.labels, trust.accuracy) == (3, pytest.approx(2 / 3))
    assert trust.confidence == pytest.approx((0.9 + 0.6 + 0.8) / 3)
    assert trust.calibration_error == pytest.approx((0.1 + 0.6 + 0.2) / 3)


def test_the_estimate_of_misplaced_picks_is_near_what_is_drawn() -> None:
    """Right probabilities and very many labels: only the draws are left."""
    proba, _ = pool()
    batch = tailwise.select(proba, 60, balance=0.0, score="entropy")
    rng = np.random.default_rng(1)
    found = [
        np.abs(np.bincount([rng.choice(4, p=proba[row]) for row in batch.indices], minlength=4) - batch.expected_counts)
        for _ in range(300)
    ]
    estimate = misplaced(batch.expected_counts, batch.counts_std, np.full(4, 1e9), Trust(1000, 0.6, 0.6))
    assert estimate == pytest.approx(np.sum(found, axis=1).mean() / 2, rel=0.1)


def test_few_labels_and_wrong_confidence_misplace_more() -> None:
    expected, std = np.full(4, 10.0), np.full(4, 2.0)
    sure = misplaced(expected, std, np.full(4, 1e9), Trust(100, 0.6, 0.6))
    assert misplaced(expected, std, np.full(4, 3.0), Trust(100, 0.6, 0.6)) > 2 * sure
    assert misplaced(expected, std, np.full(4, 1e9), Trust(100, 0.2, 0.9)) == pytest.approx(np.hypot(sure, 28))
    assert misplaced(expected, std, np.zeros(4), Trust(100, 0.0, 1.0)) <= 40


def test_a_batch_says_how_far_its_counts_can_be_trusted() -> None:
    proba, labels = pool()
    batch = tailwise.select(proba[100:], 20, labelled_proba=proba[:100], labels=labels[:100], score="entropy")
    assert batch.trust is not None
    assert batch.trust.accuracy == (proba[:100].argmax(axis=1) == labels[:100]).mean()
    said = f"On 100 held-out labels the model was right {batch.trust.accuracy:.0%} of the time and said"
    assert str(batch.trust).startswith(said)
    assert f"about {batch.trust.misplaced:.0f} of 20 picks will be of other classes than counted" in repr(batch)
    plain = json.loads(batch.to_json())
    assert plain["trust"]["text"] == str(batch.trust)
    assert plain["trust"]["labels"] == 100
    np.testing.assert_allclose(plain["counts_std"], batch.counts_std)
    assert tailwise.select(proba[100:], 20, score="entropy").trust is None
    assert json.loads(tailwise.select(proba[100:], 20, score="entropy").to_json())["trust"] is None


def test_wrong_confidence_is_warned_of_with_the_line_that_fixes_it() -> None:
    proba, labels = pool()
    unsure = proba**0.1 / (proba**0.1).sum(axis=1, keepdims=True)
    with pytest.warns(CalibrationWarning, match="right .* of the time and said .*tailwise.calibrate") as caught:
        batch = tailwise.select(unsure, 20, labelled_proba=unsure[:100], labels=labels[:100], score="entropy")
    assert caught[0].filename == __file__
    assert batch.trust is not None
    assert "proba = tailwise.calibrate(labelled_proba, labels).apply(proba)" in batch.trust.advice
    ready = tailwise.calibrate(unsure[:100], labels[:100]).apply(unsure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tailwise.select(ready, 20, labelled_proba=ready[100:], labels=labels[100:], score="entropy")


def test_few_labels_are_no_reason_to_warn() -> None:
    proba, labels = pool()
    unsure = proba**0.1 / (proba**0.1).sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tailwise.select(unsure, 20, labelled_proba=unsure[:10], labels=labels[:10], score="entropy")


def test_chance_alone_warns_rarely() -> None:
    warned = [disagrees(measure_trust(*pool(40, seed=seed))) for seed in range(200)]
    assert np.mean(warned) < 0.06


def test_no_held_out_label_says_so() -> None:
    assert "nothing is known" in str(measure_trust(np.zeros((0, 3)), np.zeros(0, dtype=int)))


def test_labels_may_go_by_the_names_of_a_table() -> None:
    proba, labels = pool()
    names = np.array(["oak", "elm", "ash", "yew"])
    table = pd.DataFrame(proba, columns=names)
    named = tailwise.select(table, 9, labelled_proba=table.iloc[:50], labels=names[labels[:50]], score="entropy")
    assert (
        named.trust == tailwise.select(proba, 9, labelled_proba=proba[:50], labels=labels[:50], score="entropy").trust
    )
    with pytest.raises(BadInput, match="different columns"):
        tailwise.select(table, 9, labelled_proba=table[names[::-1]], labels=labels, score="entropy")


def test_half_of_the_question_is_rejected() -> None:
    proba, labels = pool()
    with pytest.raises(BadInput, match="labels is missing; give labelled_proba and labels together, or neither"):
        tailwise.select(proba, 9, labelled_proba=proba, score="entropy")
    with pytest.raises(BadInput, match="labelled_proba is missing"):
        tailwise.select(proba, 9, labels=labels, score="entropy")
    with pytest.raises(BadInput, match="labelled_proba has 3 columns, but the pool has 4 classes"):
        tailwise.select(proba, 9, labelled_proba=np.full((5, 3), 1 / 3), labels=labels[:5], score="entropy")
