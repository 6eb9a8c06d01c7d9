from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tailwise.errors import BadInput
from tailwise.learn.linear import LinearLearner
from tailwise.pool.digits import load_digits


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_probabilities_are_those_of_scikit_learn_on_standardised_features(classes: int) -> None:
    digits = load_digits().take(np.arange(300))
    digits = digits.take(np.flatnonzero(digits.labels < classes))
    features = digits.inputs.astype(np.float64)
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    reference = LogisticRegression(max_iter=2000).fit(scaled, digits.labels).predict_proba(scaled)
    ours = LinearLearner(classes).fit(features, digits.labels).predict_proba(features)
    np.testing.assert_allclose(ours, reference, atol=1e-8)


def test_it_learns_digits_it_has_not_seen() -> None:
    digits = load_digits()
    model = LinearLearner(10, strength=0.1).fit(digits.inputs[:1000], digits.labels[:1000])
    right = model.predict_proba(digits.inputs[1000:]).argmax(axis=1) == digits.labels[1000:]
    assert right.mean() > 0.9


@pytest.mark.parametrize("seen", [[0, 2, 5], [1, 4], [3]])
def test_a_class_without_labels_has_probability_zero_and_no_column_shifts(seen: list[int]) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(seen, 20)
    features = np.eye(6)[labels] + 0.1 * rng.normal(size=(len(labels), 6))
    proba = LinearLearner(6).fit(features, labels).predict_proba(features)
    assert proba.shape == (len(labels), 6)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert proba[:, [cls for cls in range(6) if cls not in seen]].max() == 0
    assert (proba.argmax(axis=1) == labels).all()


def test_huge_features_do_not_overflow() -> None:
    model = LinearLearner(2).fit(np.array([[0.0], [1.0]]), np.array([0, 1]))
    assert model.predict_proba(np.array([[1e9], [-1e9]])).tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("features", "labels", "complaint"),
    [
        (np.zeros((0, 2)), np.zeros(0, dtype=int), "labelled set is empty"),
        (np.zeros((3, 2)), np.array([0, 1]), "do not belong together"),
        (np.zeros((2, 2)), np.array([0, 3]), "labels run from 0 to 3, but there are 3 classes"),
        (np.zeros((2, 2)), np.array([-1, 0]), "labels run from -1"),
    ],
)
def test_labels_that_cannot_be_learnt_from_are_refused(
    features: np.ndarray, labels: np.ndarray, complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        LinearLearner(3).fit(features, labels)
