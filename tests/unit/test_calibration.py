from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import tailwise
from tailwise.calibration import Calibration, unseen_weight
from tailwise.errors import BadInput
from tailwise.softmax import (
    expected_calibration_error,
    fit_temperature,
    share_with_unseen,
    unseen_share,
    with_temperature,
)

SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def too_unsure(size: int = 400, sharpness: float = 4.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Softmax (n, 4) whose logits are `sharpness` times too small, and labels drawn from what it should have said."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(size, 4)) * 3
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (rng.random((size, 1)) > true.cumsum(axis=1)).sum(axis=1)
    shrunk = np.exp(logits / sharpness)
    return shrunk / shrunk.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_a_temperature_with_shares_is_the_formula(temperature: float) -> None:
    proba = np.random.default_rng(0).dirichlet(np.ones(4), size=20)
    literal = np.array([[s * (p / s) ** (1 / temperature) for p, s in zip(row, SHARES, strict=True)] for row in proba])
    literal /= literal.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(with_temperature(proba, temperature, SHARES), literal, rtol=1e-12)
    np.testing.assert_allclose(with_temperature(proba, temperature, SHARES * 7), literal, rtol=1e-12)  # counts will do


def test_a_row_that_says_no_more_than_the_shares_stays() -> None:
    np.testing.assert_allclose(with_temperature(SHARES[None], 0.2, SHARES), SHARES[None])


def test_a_class_without_labels_keeps_its_zero_and_does_no_harm() -> None:
    ready = with_temperature(np.array([[0.6, 0.4, 0.0]]), 0.5, [3, 1, 0])
    assert ready[0, 2] == 0
    np.testing.assert_allclose(ready.sum(), 1)


@pytest.mark.parametrize(("shares", "spread"), [(None, 0.5), (SHARES, None), (SHARES, 0.5)])
def test_the_temperature_is_the_best_of_a_fine_grid(shares: np.ndarray | None, spread: float | None) -> None:
    proba, labels = too_unsure(40)
    rows = np.arange(len(labels))

    def loss(log_heat: float) -> float:
        own = with_temperature(proba, float(np.exp(log_heat)), shares)[rows, labels]
        drawn = 0.0 if spread is None else log_heat**2 / (2 * spread**2)
        return drawn - float(np.log(own).sum())

    grid = np.linspace(np.log(0.1), np.log(10), 4001)
    best = np.exp(grid[np.argmin([loss(point) for point in grid])])
    found = fit_temperature(proba, labels, shares=shares, spread=spread)
    assert found == pytest.approx(best, rel=2e-3)


def test_few_labels_move_the_temperature_less_than_many() -> None:
    heats = []
    for size in (3, 30, 3000):
        proba, labels = too_unsure(size)
        heats.append(fit_temperature(proba, labels, spread=0.5))
    assert 1 > heats[0] > heats[2]
    assert heats[2] == pytest.approx(0.25, abs=0.02)


def test_doubt_is_shared_with_unseen_classes_row_by_row() -> None:
    proba = np.random.default_rng(0).dirichlet(np.ones(3), size=30)
    proba = np.hstack([proba, np.zeros((30, 2))])
    ready = share_with_unseen(proba, [False, False, False, True, True], 0.4)
    for row, given in zip(ready, proba, strict=True):
        moved = 0.4 * (1 - given.max())
        np.testing.assert_allclose(row, [*(given[:3] * (1 - moved)), moved / 2, moved / 2])


def test_a_sure_row_shares_nothing_and_dtype_stays() -> None:
    proba = np.array([[1.0, 0.0, 0.0]], dtype=np.float32)
    ready = share_with_unseen(proba, [False, False, True], 1.0)
    assert ready.tolist() == proba.tolist()
    assert ready.dtype == np.float32


@pytest.mark.parametrize(
    ("counts", "share"),
    [([5, 5, 0], 0.5 / 11), ([5, 1, 0], 1.5 / 7), ([1, 1, 1], 0.0), ([2, 2, 2], 0.0), ([1, 1, 0], 0.5), ([0, 0], 0.5)],
)
def test_the_unseen_share_is_that_of_good_and_turing(counts: list[int], share: float) -> None:
    assert unseen_share(counts) == pytest.approx(share)


def test_unseen_classes_get_their_share_of_rows_like_those_held_out() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([30, 10, 1, 0, 0])
    proba = np.hstack([rng.dirichlet(np.ones(3), size=2000), np.zeros((2000, 2))])
    held, pool = proba[:1000], proba[1000:]
    calibration = Calibration("temperature", 1.0, counts / counts.sum(), unseen=unseen_weight(counts, held))
    expected = calibration.apply(pool).mean(axis=0)
    assert expected[3:].sum() == pytest.approx(unseen_share(counts), rel=0.05)
    assert expected[3] == pytest.approx(expected[4])


def test_one_line_calibrates_any_softmax() -> None:
    proba, labels = too_unsure()
    held, truth, pool, answers = proba[:200], labels[:200], proba[200:], labels[200:]
    ready = tailwise.calibrate(held, truth).apply(pool)
    assert expected_calibration_error(ready, answers) < 0.4 * expected_calibration_error(pool, answers)
    np.testing.assert_allclose(ready.sum(axis=1), 1)


def test_logits_give_the_same_as_their_softmax() -> None:
    proba, labels = too_unsure()
    fitted, from_logits = tailwise.calibrate(proba, labels), tailwise.calibrate(np.log(proba) + 5, labels, logits=True)
    assert from_logits.temperature == pytest.approx(fitted.temperature, rel=1e-6)
    np.testing.assert_allclose(from_logits.apply(np.log(proba) - 3), fitted.apply(proba), rtol=1e-5)


def test_tables_go_by_name_and_stay_tables() -> None:
    proba, labels = too_unsure()
    names = np.array(["oak", "elm", "ash", "yew"])
    table = pd.DataFrame(proba, columns=names, index=[f"image {number}" for number in range(len(proba))])
    fitted = tailwise.calibrate(table, pd.Series(names[labels], index=table.index).sample(frac=1, random_state=0))
    ready = fitted.apply(table)
    assert list(ready.columns) == names.tolist()
    assert (ready.index == table.index).all()
    np.testing.assert_array_equal(ready.to_numpy(), tailwise.calibrate(proba, labels).apply(proba))
    with pytest.raises(BadInput, match="labels names class 'fir', but the columns of the probabilities are 'oak'"):
        tailwise.calibrate(table, np.where(labels == 0, "fir", names[labels]))


def test_tensors_are_read() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    proba, labels = too_unsure()
    fitted = tailwise.calibrate(torch.tensor(proba, requires_grad=True), torch.tensor(labels))
    np.testing.assert_array_equal(fitted.apply(torch.tensor(proba)), tailwise.calibrate(proba, labels).apply(proba))


def test_rare_classes_keep_their_images_where_labels_say_so() -> None:
    """A head that is not sure enough, on classes of which one is rare: a plain temperature would empty it."""
    rng = np.random.default_rng(0)
    shares = np.array([0.9, 0.1])
    labels = (rng.random(4000) < shares[1]).astype(int)
    evidence = rng.normal(size=4000) + 3.0 * labels - 1.5  # log-odds 3·evidence, of which the head uses a third
    odds = shares[1] / shares[0] * np.exp(evidence)
    proba = np.column_stack([1 / (1 + odds), odds / (1 + odds)])
    ready = tailwise.calibrate(proba[:2000], labels[:2000]).apply(proba[2000:])
    plain = with_temperature(proba[2000:], fit_temperature(proba[:2000], labels[:2000]))
    wrong, right = (abs(each[:, 1].sum() - labels[2000:].sum()) for each in (plain, ready))
    assert right < 0.5 * wrong


def test_unseen_classes_are_left_alone_unless_asked_for() -> None:
    proba, labels = too_unsure()
    wide = np.hstack([proba, np.zeros((len(proba), 1))])
    assert (tailwise.calibrate(wide, labels).apply(wide)[:, 4] == 0).all()
    asked = tailwise.calibrate(wide, labels, unseen=True).apply(wide)
    assert asked[:, 4].mean() == pytest.approx(unseen_share(np.bincount(labels, minlength=5)), rel=0.05)
    np.testing.assert_allclose(asked.sum(axis=1), 1)


def test_what_was_fitted_says_what_it_does() -> None:
    proba, labels = too_unsure()
    fitted = tailwise.calibrate(proba, labels)
    assert fitted.before.accuracy == pytest.approx((proba.argmax(axis=1) == labels).mean())
    assert abs(fitted.after.confidence - fitted.after.accuracy) < 0.05
    assert repr(fitted).startswith("FittedCalibration(temperature 0.2")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"labelled_proba": [[2.0, -1.0]], "labels": [0]}, "row 0 of labelled_proba does not hold probabilities"),
        ({"labelled_proba": [[0.5, 0.5]], "labels": [2]}, "labels must be classes from 0 to 1"),
        ({"labelled_proba": [[0.5, 0.5]], "labels": [0, 1]}, "labels must be 1 whole numbers"),
        ({"labelled_proba": [0.5, 0.5], "labels": [0]}, "labelled_proba must be a matrix"),
        ({"labelled_proba": np.zeros((0, 2)), "labels": []}, "labelled_proba has no rows"),
        ({"labelled_proba": [[np.nan, 0.5]], "labels": [0]}, "labelled_proba holds NaN or infinity"),
        ({"labelled_proba": [[0.5, 0.5]], "labels": [0], "counts": [0, 0]}, "counts are all 0"),
        ({"labelled_proba": [[0.5, 0.5]], "labels": [0], "counts": [1]}, "counts must have 2 entries"),
    ],
)
def test_what_cannot_be_fitted_is_rejected(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tailwise.calibrate(**asked)
