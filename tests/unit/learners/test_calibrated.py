from __future__ import annotations

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.learners import LinearLearner, make_learner
from tailwise.learners.learner import KINDS, fit_calibrated, out_of_fold, stratified_folds, trained_shares
from tailwise.pools.datasets import load_digits
from tailwise.pools.pool import LabelledImages, Subset, initial_set, keep_counts, step_profile
from tailwise.softmax import estimate_prior, expected_calibration_error, shift_prior, with_temperature


def long_tailed(per_class: int = 15) -> tuple[LabelledImages, LabelledImages]:
    """A balanced labelled set of noisy digits and a long-tailed pool of them."""
    rng = np.random.default_rng(0)
    digits = load_digits()
    noisy = np.asarray(digits.inputs) + rng.normal(scale=0.35, size=digits.inputs.shape)
    digits = LabelledImages(noisy.astype(np.float32), digits.labels, digits.class_names)
    first = initial_set(digits.labels, 10, per_class, rng)
    rest = digits.take(np.setdiff1d(np.arange(len(digits)), first))
    return digits.take(first), rest.take(keep_counts(rest.labels, step_profile(rest.counts(), 0.1), rng))


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_are_even_over_classes_and_in_size(folds: int) -> None:
    labels = np.repeat([0, 1, 4], [31, 17, 9])
    places = stratified_folds(labels, folds, np.random.default_rng(0))
    for cls in (0, 1, 4):
        assert np.ptp(np.bincount(places[labels == cls], minlength=folds)) <= 1
    assert np.ptp(np.bincount(places, minlength=folds)) <= 1


def test_a_small_class_is_never_wholly_held_out_and_a_single_image_not_at_all() -> None:
    labels = np.array([0] * 10 + [1] * 3 + [2] * 2 + [3])
    places = stratified_folds(labels, 5, np.random.default_rng(0))
    assert places[-1] == -1
    for fold in range(5):
        assert set(labels[places != fold]) == {0, 1, 2, 3}
    assert len(set(places[labels == 1])) == 3


def test_folds_are_shuffled_by_the_seed_alone() -> None:
    labels = np.repeat([0, 1], 20)
    first, again, other = (stratified_folds(labels, 4, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_out_of_fold_probabilities_come_from_models_that_have_not_seen_the_image() -> None:
    labelled, _ = long_tailed(4)
    inputs, learner = np.asarray(labelled.inputs), LinearLearner()
    held = out_of_fold(learner, inputs, labelled.labels, classes=10, folds=2, seed=3)
    places = stratified_folds(labelled.labels, 2, np.random.default_rng(3))
    for fold in range(2):
        model = learner.fit(inputs[places != fold], labelled.labels[places != fold], classes=10, seed=3)
        np.testing.assert_array_equal(held.proba[places == fold], model.predict_proba(inputs[places == fold]))
    assert held.rows.tolist() == list(range(40))


def test_single_images_are_left_out_and_the_rest_is_asked() -> None:
    labelled, _ = long_tailed(4)
    labels = labelled.labels.copy()
    labels[7] = 11
    held = out_of_fold(LinearLearner(), labelled.inputs, labels, classes=12, folds=5)
    assert held.rows.tolist() == [row for row in range(40) if row != 7]
    np.testing.assert_allclose(held.proba.sum(axis=1), 1, rtol=1e-6)


def test_inputs_that_stay_on_the_disk_give_the_same() -> None:
    labelled, _ = long_tailed(4)
    lazy = Subset(labelled.inputs, np.arange(40))
    one, other = (
        out_of_fold(LinearLearner(), inputs, labelled.labels, classes=10) for inputs in (labelled.inputs, lazy)
    )
    assert (one.proba == other.proba).all()


@pytest.mark.parametrize("strength", [0.002, 5.0])
def test_calibration_makes_expected_counts_and_confidence_truer(strength: float) -> None:
    labelled, pool = long_tailed()
    learner = LinearLearner(strength=strength)
    model = learner.fit(labelled.inputs, labelled.labels, classes=10, seed=0)
    raw = model.predict_proba(pool.inputs)
    calibration = fit_calibrated(learner, labelled.inputs, labelled.labels, classes=10, kind="both")
    ready = calibration.apply(raw)
    assert (calibration.temperature > 1) == (strength > 1)

    def miscount(proba: np.ndarray) -> float:
        return float(np.abs(proba.sum(axis=0) - pool.counts()).sum() / len(pool))

    assert miscount(ready) < 0.7 * miscount(raw)
    errors = [expected_calibration_error(proba, pool.labels) for proba in (raw, ready)]
    assert errors[1] < 0.7 * errors[0]


def test_apply_is_temperature_then_prior() -> None:
    labelled, pool = long_tailed()
    learner = LinearLearner()
    raw = learner.fit(labelled.inputs, labelled.labels, classes=10, seed=0).predict_proba(pool.inputs)
    made = {kind: fit_calibrated(learner, labelled.inputs, labelled.labels, classes=10, kind=kind) for kind in KINDS}
    heat, shares = made["both"].temperature, np.full(10, 0.1)
    assert heat != 1
    assert (made["none"].temperature, made["prior"].temperature, made["temperature"].temperature) == (1, 1, heat)
    tempered = with_temperature(raw, heat)
    assert made["none"].apply(raw) is raw
    np.testing.assert_array_equal(made["temperature"].apply(raw), tempered)
    for kind, proba in (("prior", raw), ("both", tempered)):
        expected = shift_prior(proba, shares, estimate_prior(proba, shares))
        np.testing.assert_allclose(made[kind].apply(raw), expected, atol=1e-6)
        assert made[kind].apply(raw).dtype == raw.dtype


def test_a_balanced_loss_is_trained_on_equal_shares() -> None:
    labels = np.array([0, 0, 0, 2])
    plain, balanced = (LinearLearner(class_weight=weight) for weight in ("none", "balanced"))
    frozen = make_learner("frozen", head_settings={"class_weight": "balanced"})
    assert trained_shares(plain, labels, 4).tolist() == [0.75, 0, 0.25, 0]
    assert trained_shares(balanced, labels, 4).tolist() == [0.5, 0, 0.5, 0]
    assert trained_shares(frozen, labels, 4).tolist() == [0.5, 0, 0.5, 0]


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [3]])
def test_a_set_too_small_to_hold_anything_out_leaves_the_temperature_at_one(labels: list[int]) -> None:
    features = np.eye(len(labels))
    made = fit_calibrated(LinearLearner(), features, np.array(labels), classes=5, kind="both")
    assert made.temperature == 1
    proba = made.apply(np.full((6, 5), 0.2))
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)


def test_the_folds_are_reported() -> None:
    heard: list[tuple[float, str]] = []
    labelled, _ = long_tailed(4)
    fit_calibrated(
        LinearLearner(), labelled.inputs, labelled.labels, classes=10, folds=2,
        report=lambda done, what: heard.append((done, what)),
    )  # fmt: skip
    shares = [done for done, _ in heard]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert heard[-1][1].startswith("calibrating, fold 2 of 2")


def test_what_cannot_be_calibrated_is_refused() -> None:
    with pytest.raises(BadInput, match="calibration is 'platt'; it must be one of none, temperature, prior, both"):
        fit_calibrated(LinearLearner(), np.eye(2), np.array([0, 1]), classes=2, kind="platt")
    with pytest.raises(BadInput, match="folds is 1"):
        fit_calibrated(LinearLearner(), np.eye(2), np.array([0, 1]), classes=2, folds=1)
    with pytest.raises(BadInput, match="labelled set is empty"):
        fit_calibrated(LinearLearner(), np.zeros((0, 2)), np.zeros(0, dtype=int), classes=2)
