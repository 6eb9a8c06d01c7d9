"""Temperatures and class shares that are known, found again; every loss compared with a grid or a literal reference."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.softmax import (
    estimate_prior,
    expected_calibration_error,
    fit_temperature,
    shift_prior,
    with_temperature,
)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def calibrated(prior: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points of Gaussian classes drawn with these shares, and their true classes, (n, d) and (n,)."""
    labels = rng.choice(len(prior), size=size, p=prior)
    return 1.5 * np.eye(len(prior))[labels] + rng.normal(size=(size, len(prior))), labels


def posterior(points: np.ndarray, prior: np.ndarray) -> np.ndarray:
    """Bayes' rule for those Gaussian classes: a perfectly calibrated model."""
    return softmax(1.5 * points + np.log(np.maximum(prior, 1e-300)))


def nll(proba: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(np.maximum(proba[np.arange(len(labels)), labels], 1e-300)).mean())


# Temperature


def test_a_temperature_divides_the_logits() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 4)) * 3
    np.testing.assert_allclose(with_temperature(softmax(logits), 2.5), softmax(logits / 2.5))
    np.testing.assert_allclose(with_temperature(softmax(logits), 1.0), softmax(logits))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shape_and_dtype_stay_and_zeros_stay_zeros(dtype: type) -> None:
    proba = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]], dtype=dtype)
    for changed in (with_temperature(proba, 0.02), shift_prior(proba, [1, 1, 1], [2, 2, 1])):
        assert changed.dtype == dtype
        np.testing.assert_allclose(changed, proba, rtol=1e-3)


def test_a_small_temperature_does_not_turn_a_row_into_zeros() -> None:
    sharp = with_temperature(np.full((1, 1000), 1e-3), 0.005)
    np.testing.assert_allclose(sharp, 1e-3)


@pytest.mark.parametrize("true", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_found(true: float) -> None:
    rng = np.random.default_rng(1)
    shares = np.full(5, 0.2)
    points, labels = calibrated(shares, 20_000, rng)
    spoilt = with_temperature(posterior(points, shares), 1 / true)  # too sure by this factor
    assert fit_temperature(spoilt, labels) == pytest.approx(true, rel=0.05)


def test_no_temperature_on_a_grid_is_better() -> None:
    rng = np.random.default_rng(2)
    proba = rng.dirichlet([0.3] * 4, size=300)
    labels = np.array([rng.choice(4, p=row) for row in with_temperature(proba, 2.0)])
    found = fit_temperature(proba, labels)
    grid = np.geomspace(0.1, 10, 2_000)
    losses = [nll(with_temperature(proba, temperature), labels) for temperature in grid]
    assert nll(with_temperature(proba, found), labels) <= min(losses) + 1e-9
    assert found == pytest.approx(grid[int(np.argmin(losses))], rel=0.01)


def test_certain_and_wrong_rows_raise_the_temperature_and_break_nothing() -> None:
    proba = np.array([[1.0, 0.0]] * 10, dtype=np.float32)
    assert fit_temperature(proba, np.array([0] * 8 + [1] * 2)) == pytest.approx(10.0, rel=1e-3)


def test_where_nothing_can_be_learnt_the_temperature_is_one() -> None:
    assert fit_temperature(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)) == 1.0
    assert fit_temperature(np.full((5, 2), 0.5), np.array([0, 1, 0, 1, 0])) == 1.0
    assert fit_temperature(np.ones((5, 1)), np.zeros(5, dtype=np.int64)) == 1.0


def test_the_temperature_stays_between_its_bounds() -> None:
    proba = np.array([[0.6, 0.4]] * 10)
    assert fit_temperature(proba, np.zeros(10, dtype=np.int64), bounds=(0.5, 2.0)) == pytest.approx(0.5, rel=1e-3)


# Prior


def test_shifting_the_prior_is_bayes_rule() -> None:
    rng = np.random.default_rng(3)
    old, new = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.1, 0.8])
    points, _ = calibrated(old, 100, rng)
    np.testing.assert_allclose(shift_prior(posterior(points, old), old, new), posterior(points, new))
    np.testing.assert_allclose(shift_prior(posterior(points, old), 30 * old, 7 * new), posterior(points, new))


def test_a_class_that_was_not_trained_keeps_its_probability() -> None:
    proba = np.array([[0.4, 0.4, 0.2], [0.0, 0.0, 1.0]])
    shifted = shift_prior(proba, [1, 1, 0], [3, 1, 5])
    np.testing.assert_allclose(shifted, [[0.6, 0.2, 0.2], [0.0, 0.0, 1.0]])


def test_a_row_whose_classes_are_all_unwanted_stays_as_it_is() -> None:
    assert shift_prior(np.array([[1.0, 0.0]]), [1, 1], [0, 1]).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_em_finds_known_shares(dtype: type) -> None:
    rng = np.random.default_rng(4)
    trained, true = np.full(4, 0.25), np.array([0.7, 0.2, 0.08, 0.02])
    points, _ = calibrated(true, 40_000, rng)
    proba = posterior(points, trained).astype(dtype)
    assert np.abs(proba.mean(axis=0) - true).sum() > 0.3  # counting the softmax as it is would be far off
    np.testing.assert_allclose(estimate_prior(proba, trained), true, atol=0.015)


def test_em_finds_known_shares_from_a_skewed_training_set() -> None:
    rng = np.random.default_rng(5)
    trained, true = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.2, 0.6])
    points, _ = calibrated(true, 40_000, rng)
    np.testing.assert_allclose(estimate_prior(posterior(points, trained), trained), true, atol=0.015)


def test_em_is_the_literal_em_of_the_paper() -> None:
    rng = np.random.default_rng(6)
    proba, trained = rng.dirichlet([1.0, 2.0, 3.0], size=200), np.array([0.2, 0.3, 0.5])
    prior = trained.copy()
    for _ in range(7):
        shifted = proba * prior / trained
        prior = (shifted / shifted.sum(axis=1, keepdims=True)).mean(axis=0)
    found = estimate_prior(proba, trained, pseudo_count=0, most_steps=7, tolerance=0)
    np.testing.assert_allclose(found, prior)
    further = estimate_prior(proba, trained, pseudo_count=0, most_steps=8, tolerance=0)
    assert np.abs(further - found).sum() > 1e-6  # it has not converged yet


@pytest.mark.parametrize("pseudo_count", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("trained", [[0.25] * 4, [0.7, 0.1, 0.1, 0.1], [0.5, 0.5, 0.0, 0.0]])
def test_the_likelihood_never_falls_and_em_ends(trained: list[float], pseudo_count: float) -> None:
    proba = np.random.default_rng(7).dirichlet([0.5, 1.0, 0.2, 0.1], size=500)
    start, known = np.array(trained), np.array(trained) > 0
    weight = proba[:, known].sum(axis=1)

    def likelihood(prior: np.ndarray) -> float:
        evidence = (proba[:, known] * prior[known] / start[known]).sum(axis=1)
        return float(weight @ np.log(evidence / weight) + pseudo_count * np.log(prior[known]).sum())

    found, path, moved = estimate_prior(proba, trained, pseudo_count=pseudo_count, most_steps=0), [], np.inf
    while moved >= 1e-6:
        path.append(likelihood(found))
        further = estimate_prior(proba, trained, pseudo_count=pseudo_count, most_steps=len(path), tolerance=0)
        found, moved = further, np.abs(further - found).sum()
    steps = np.diff(path)
    assert len(steps) > 3
    assert steps.min() >= -1e-9 * abs(path[0])
    assert estimate_prior(proba, trained, pseudo_count=pseudo_count).tolist() == found.tolist()
    assert found.sum() == pytest.approx(1.0)


def test_no_shares_on_a_grid_are_likelier() -> None:
    rng = np.random.default_rng(8)
    proba, trained = rng.dirichlet([1.0, 2.0], size=60), np.array([0.3, 0.7])
    first = np.linspace(0.001, 0.999, 999)
    likelihoods = [np.log(proba @ (np.array([share, 1 - share]) / trained)).sum() for share in first]
    found = estimate_prior(proba, trained, pseudo_count=0, tolerance=1e-9)
    assert found[0] == pytest.approx(first[int(np.argmax(likelihoods))], abs=2e-3)


def test_a_class_without_labels_gets_the_share_of_its_pseudo_count() -> None:
    proba = np.array([[0.9, 0.1, 0.0]] * 50 + [[0.2, 0.8, 0.0]] * 46)
    prior = estimate_prior(proba, [10, 10, 0], pseudo_count=1.0)
    assert prior[2] == pytest.approx(1 / 99)  # N = 96, C = 3
    assert prior.sum() == pytest.approx(1.0)
    assert estimate_prior(proba, [10, 10, 0], pseudo_count=0)[2] == 0


def test_a_net_that_believes_in_a_class_without_labels_is_believed() -> None:
    proba = np.array([[0.6, 0.2, 0.2], [0.1, 0.7, 0.2]] * 50)
    assert estimate_prior(proba, [5, 5, 0], pseudo_count=0)[2] == pytest.approx(0.2)
    assert np.isfinite(estimate_prior(np.array([[0.0, 0.0, 1.0]]), [5, 5, 0])).all()


def test_no_class_ends_at_zero() -> None:
    proba = np.array([[1.0, 0.0]] * 98)
    assert estimate_prior(proba, [1, 1]).tolist() == pytest.approx([0.99, 0.01])


def test_an_empty_pool_has_the_shares_of_the_pseudo_counts() -> None:
    assert estimate_prior(np.zeros((0, 4)), [1, 1, 2, 4]).tolist() == [0.25] * 4
    assert estimate_prior(np.zeros((0, 4)), [1, 1, 2, 4], pseudo_count=0).tolist() == [0.125, 0.125, 0.25, 0.5]


# Calibration error


def test_the_calibration_error_is_that_of_a_loop_over_the_bins() -> None:
    rng = np.random.default_rng(9)
    proba, labels = rng.dirichlet([1.0, 1.0, 1.0], size=400), rng.integers(0, 3, 400)
    total = 0.0
    for bin_ in range(10):
        inside = (proba.max(axis=1) > bin_ / 10) & (proba.max(axis=1) <= (bin_ + 1) / 10)
        if inside.any():
            right = (proba[inside].argmax(axis=1) == labels[inside]).mean()
            total += inside.mean() * abs(proba[inside].max(axis=1).mean() - right)
    assert expected_calibration_error(proba, labels, bins=10) == pytest.approx(total)


def test_a_calibrated_model_has_a_small_error_and_a_boastful_one_a_large_one() -> None:
    shares = np.full(4, 0.25)
    points, labels = calibrated(shares, 20_000, np.random.default_rng(10))
    proba = posterior(points, shares)
    assert expected_calibration_error(proba, labels) < 0.015
    assert expected_calibration_error(with_temperature(proba, 0.3), labels) > 0.1
    assert expected_calibration_error(proba[:0], labels[:0]) == 0


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda proba: with_temperature(proba, 0.0), "temperature is 0.0"),
        (lambda proba: shift_prior(proba, [1, 1], [1, 1, 1]), "trained shares must have 3 entries"),
        (lambda proba: shift_prior(proba, [1, 1, 1], [1, -1, 1]), "wanted shares"),
        (lambda proba: estimate_prior(proba, [0, 0, 0]), "trained shares are all 0"),
        (lambda proba: estimate_prior(proba, [1, 1, np.nan]), "trained shares"),
        (lambda proba: estimate_prior(proba, [1, 1, 1], pseudo_count=-1), "pseudo_count is -1"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(call: object, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        call(np.full((2, 3), 1 / 3))  # type: ignore[operator]
