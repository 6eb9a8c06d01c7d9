from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tailwise.errors import BadInput
from tailwise.learners.linear import LinearLearner, LinearModel, SoftmaxLoss, whitening
from tailwise.pools.datasets import load_digits


def fitted(features: np.ndarray, labels: np.ndarray, classes: int, **settings: object) -> LinearModel:
    return LinearLearner(**settings).fit(features, labels, classes=classes, seed=0)


@pytest.mark.parametrize("class_weight", ["none", "balanced"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_probabilities_are_those_of_scikit_learn_on_standardised_features(classes: int, class_weight: str) -> None:
    digits = load_digits().take(np.arange(300))
    digits = digits.take(np.flatnonzero((digits.labels < classes) & (np.arange(300) % (digits.labels + 1) == 0)))
    features = np.asarray(digits.inputs).astype(np.float64)
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    # For two classes scikit-learn has one column of weights, which is regularised twice as much as our two.
    strength = 0.2 if classes == 2 else 0.1
    weight = None if class_weight == "none" else "balanced"
    reference = LogisticRegression(C=strength, max_iter=5000, tol=1e-8, class_weight=weight).fit(scaled, digits.labels)
    ours = fitted(features, digits.labels, classes, strength=0.1, scale="feature", class_weight=class_weight)
    np.testing.assert_allclose(ours.predict_proba(features), reference.predict_proba(scaled), atol=2e-3)


def test_the_loss_is_as_low_as_that_of_scikit_learn() -> None:
    digits = load_digits()
    inputs = np.asarray(digits.inputs)
    model = fitted(inputs, digits.labels, 10, strength=1.0)
    scaled = model.embed(inputs).astype(np.float64)
    reference = LogisticRegression(C=1.0, max_iter=5000, tol=1e-6).fit(scaled, digits.labels)

    def loss(weights: np.ndarray, proba: np.ndarray) -> float:
        own = proba[np.arange(len(proba)), digits.labels].astype(np.float64)
        return float(-np.log(own).mean() + (weights.astype(np.float64) ** 2).sum() / (2 * len(proba)))

    least = loss(reference.coef_, reference.predict_proba(scaled))
    assert loss(model.weights, model.predict_proba(inputs)) == pytest.approx(least, rel=1e-3)


@pytest.mark.parametrize("whitened", [False, True])
def test_the_gradient_is_that_of_the_loss(whitened: bool) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 3)).astype(np.float32)
    places, weights = rng.integers(0, 4, 40), rng.uniform(0.5, 2, 40).astype(np.float32)
    back = whitening(features, 0.1) if whitened else None
    loss = SoftmaxLoss(features, places, weights, 0.1, back)
    at = rng.normal(size=16)
    slopes = [(loss(at + step)[0] - loss(at - step)[0]) / 2e-3 for step in 1e-3 * np.eye(16)]
    np.testing.assert_allclose(loss(at)[1], slopes, atol=2e-3)


def test_whitening_makes_the_features_white() -> None:
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(500, 5)) @ rng.normal(size=(5, 5))).astype(np.float32)
    back = whitening(features, 0.0)
    assert back is not None
    white = features @ back
    np.testing.assert_allclose(white.T @ white / 500, np.eye(5), atol=1e-3)


def test_whitening_does_not_move_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    digits = load_digits().take(np.arange(400))
    features = np.asarray(digits.inputs)
    white = fitted(features, digits.labels, 10).predict_proba(features)
    monkeypatch.setattr("tailwise.learners.linear.WIDEST_WHITENED", 0)
    np.testing.assert_allclose(white, fitted(features, digits.labels, 10).predict_proba(features), atol=3e-3)


def test_it_learns_digits_it_has_not_seen() -> None:
    digits = load_digits()
    model = fitted(digits.inputs[:1000], digits.labels[:1000], 10)
    right = model.predict_proba(digits.inputs[1000:]).argmax(axis=1) == digits.labels[1000:]
    assert right.mean() > 0.9


@pytest.mark.parametrize("seen", [[0, 2, 5], [1, 4], [3]])
def test_a_class_without_labels_has_probability_zero_and_no_column_shifts(seen: list[int]) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(seen, 20)
    features = np.eye(6)[labels] + 0.1 * rng.normal(size=(len(labels), 6))
    proba = fitted(features, labels, 6).predict_proba(features)
    assert proba.shape == (len(labels), 6)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-6)
    assert proba[:, [cls for cls in range(6) if cls not in seen]].max() == 0
    assert (proba.argmax(axis=1) == labels).all()


def test_the_embedding_is_the_scaled_features() -> None:
    features = np.array([[0.0, 10.0, 5.0], [2.0, 30.0, 5.0]])
    labels = np.array([0, 1])
    assert fitted(features, labels, 2, scale="feature").embed(features).tolist() == [[-1, -1, 0], [1, 1, 0]]
    common = fitted(features, labels, 2, scale="common").embed(features)  # spreads 1, 10 and 0: 11/3 on average
    np.testing.assert_allclose(common, [[-3 / 11, -30 / 11, 0], [3 / 11, 30 / 11, 0]], rtol=1e-6)
    assert fitted(features, labels, 2, scale="none").embed(features).tolist() == features.tolist()


def test_a_balanced_loss_favours_the_rare_class() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [190, 10])
    features = labels[:, None] + rng.normal(size=(200, 1))
    plain, balanced = (
        fitted(features, labels, 2, class_weight=weight).predict_proba(features) for weight in ("none", "balanced")
    )
    assert plain[:, 1].mean() == pytest.approx(0.05, abs=0.01)
    assert balanced[:, 1].mean() > 0.3


def test_huge_features_do_not_overflow() -> None:
    model = fitted(np.array([[0.0], [1.0]]), np.array([0, 1]), 2)
    assert model.predict_proba(np.array([[1e9], [-1e9]])).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("features", "labels", "complaint"),
    [
        (np.zeros((0, 2)), np.zeros(0, dtype=int), "labelled set is empty"),
        (np.zeros((3, 2)), np.array([0, 1]), "differ in length"),
        (np.zeros((2, 2)), np.array([0, 3]), "labels run from 0 to 3, but there are 3 classes"),
        (np.zeros((2, 2)), np.array([-1, 0]), "labels run from -1"),
        (np.array([[0.0], [np.nan]]), np.array([0, 1]), "NaN or infinity in row 1"),
        (np.zeros((2, 2, 2)), np.array([0, 1]), r"features \(n, d\) or pixels"),
    ],
)
def test_labels_that_cannot_be_learnt_from_are_refused(
    features: np.ndarray, labels: np.ndarray, complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        fitted(features, labels, 3)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"strength": 0.0}, "strength is 0.0"),
        ({"class_weight": "even"}, "class_weight is 'even'; it must be one of none, balanced"),
        ({"dropout": 1.0}, r"dropout is 1.0; it must lie in \[0, 1\)"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        LinearLearner(**settings)


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(BadInput, match="scale is 'each'; it must be one of common, feature, none"):
        fitted(np.zeros((2, 2)), np.array([0, 1]), 2, scale="each")
