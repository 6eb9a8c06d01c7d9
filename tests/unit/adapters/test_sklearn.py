"""Estimators of scikit-learn and skorch as they are; scikit-activeml both ways."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline

import tailwise
from tailwise.adapters import sklearn as adapter
from tailwise.adapters.sklearn import balanced_query, predict
from tailwise.errors import BadInput

NAMES = ["heron", "kite", "owl", "wren"]


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    """Points (200, 5), most of them of class 0."""
    rng = np.random.default_rng(0)
    labels = rng.choice(4, size=200, p=[0.7, 0.2, 0.05, 0.05])
    return rng.normal(size=(200, 5)) + 2 * np.eye(4, 5)[labels], labels


def test_unseen_classes_get_their_own_column_of_zeros(data: tuple[np.ndarray, np.ndarray]) -> None:
    points, labels = data
    seen = (labels == 1) | (labels == 3)
    names = np.array(NAMES)[labels]
    fitted = LogisticRegression().fit(points[seen], names[seen])
    proba = np.asarray(predict(fitted, points, classes=NAMES).proba)
    np.testing.assert_array_equal(proba[:, [1, 3]], fitted.predict_proba(points))
    assert not proba[:, [0, 2]].any()
    by_number = np.asarray(predict(LogisticRegression().fit(points[seen], labels[seen]), points, classes=4).proba)
    np.testing.assert_allclose(by_number, proba)
    assert np.asarray(predict(fitted, points).proba).shape == (200, 2)


def test_a_class_that_is_not_listed_is_rejected(data: tuple[np.ndarray, np.ndarray]) -> None:
    points, labels = data
    with pytest.raises(BadInput, match=r"the class 3 is not among classes, which are \[0, 1, 2\]"):
        predict(LogisticRegression().fit(points, labels), points, classes=3)


def test_an_estimator_without_probabilities_says_how_to_get_them(data: tuple[np.ndarray, np.ndarray]) -> None:
    points, labels = data
    with pytest.raises(BadInput, match=r"'RidgeClassifier' has no predict_proba; .* CalibratedClassifierCV"):
        predict(RidgeClassifier().fit(points, labels), points)
    with pytest.raises(BadInput, match="fit it first"):
        predict(LogisticRegression(), points)


def test_several_outputs_are_rejected(data: tuple[np.ndarray, np.ndarray]) -> None:
    points, labels = data
    forest = RandomForestClassifier(2).fit(points, np.stack([labels, labels], axis=1))
    with pytest.raises(BadInput, match="predict_proba gives 2 arrays, one per output"):
        predict(forest, points, classes=4)


def test_embeddings_are_what_goes_into_the_last_step(data: tuple[np.ndarray, np.ndarray]) -> None:
    points, labels = data
    pipeline = make_pipeline(PCA(2), LogisticRegression()).fit(points, labels)
    found = predict(pipeline, points[50:], embeddings=True, labelled=(points[:50], labels[:50]))
    np.testing.assert_allclose(np.asarray(found.embeddings), pipeline[0].transform(points[50:]), atol=1e-5)
    np.testing.assert_allclose(np.asarray(found.labelled_embeddings), pipeline[0].transform(points[:50]), atol=1e-5)
    assert found.labelled_labels is not None
    np.testing.assert_array_equal(found.labelled_labels, labels[:50])
    plain = predict(LogisticRegression().fit(points, labels), points, embeddings=True)
    np.testing.assert_allclose(np.asarray(plain.embeddings), points, atol=1e-6)


def test_skorch_nets_are_estimators(data: tuple[np.ndarray, np.ndarray]) -> None:
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    points, labels = data
    net = skorch.NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(5, 4)), criterion=torch.nn.CrossEntropyLoss, max_epochs=1, verbose=0
    )
    net.fit(points.astype(np.float32), labels)
    proba = np.asarray(predict(net, points.astype(np.float32), classes=5).proba)
    assert proba.shape == (200, 5)
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)
    assert not proba[:, 4].any()


# -- scikit-activeml


@pytest.fixture(scope="module")
def partly(data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Labels, of which all but 40 are missing."""
    pytest.importorskip("skactiveml")
    known = data[1].astype(float)
    known[40:] = np.nan
    return known


@pytest.fixture(scope="module")
def classifier() -> object:
    skactiveml = pytest.importorskip("skactiveml.classifier")
    return skactiveml.SklearnClassifier(LogisticRegression(), classes=range(4))


def test_without_balance_its_own_picks_are_made(
    data: tuple[np.ndarray, np.ndarray], partly: np.ndarray, classifier: object
) -> None:
    from skactiveml.pool import UncertaintySampling

    strategy = UncertaintySampling(method="margin_sampling", random_state=0)
    own = strategy.query(data[0], partly, clf=classifier, batch_size=10)
    batch = balanced_query(strategy, data[0], partly, clf=classifier, batch_size=10, balance=0)
    assert set(batch.indices.tolist()) == set(own.tolist())
    assert batch.method == "UncertaintySampling"


def test_balance_brings_the_expected_counts_nearer_to_the_target(
    data: tuple[np.ndarray, np.ndarray], partly: np.ndarray, classifier: object
) -> None:
    from skactiveml.pool import RandomSampling, UncertaintySampling

    for strategy in (UncertaintySampling(random_state=0), RandomSampling(random_state=0)):
        plain, balanced = (
            balanced_query(strategy, data[0], partly, clf=classifier, batch_size=20, balance=balance)
            for balance in (0, 10.0)
        )
        assert balanced.l1 < plain.l1
        assert np.isnan(partly[balanced.indices]).all()


def test_ours_is_one_of_its_strategies(
    data: tuple[np.ndarray, np.ndarray], partly: np.ndarray, classifier: object
) -> None:
    from skactiveml.base import SingleAnnotatorPoolQueryStrategy
    from sklearn.base import clone

    ours = adapter.BalancedSampling("entropy", balance=0.0, random_state=0)
    assert isinstance(ours, SingleAnnotatorPoolQueryStrategy)
    assert clone(ours).get_params() == ours.get_params()
    assert repr(pickle.loads(pickle.dumps(ours)).get_params()) == repr(ours.get_params())
    picks, utilities = ours.query(data[0], partly, classifier, batch_size=8, return_utilities=True)
    fitted = classifier.fit(data[0], partly)  # type: ignore[attr-defined]
    expected = 40 + tailwise.select(fitted.predict_proba(data[0][40:]), 8, strategy="entropy", balance=0).indices
    np.testing.assert_array_equal(picks, expected)
    assert utilities.shape == (8, 200)
    np.testing.assert_array_equal(np.nanargmax(utilities, axis=1), picks)
    assert np.isnan(utilities[:, :40]).all()


def test_ours_takes_candidates_of_both_kinds_and_runs_in_its_wrappers(
    data: tuple[np.ndarray, np.ndarray], partly: np.ndarray, classifier: object
) -> None:
    from skactiveml.pool import SubSamplingWrapper

    ours = adapter.BalancedSampling(random_state=0)
    rows = np.arange(100, 150)
    by_row = ours.query(data[0], partly, classifier, candidates=rows, batch_size=5)
    by_value, utilities = ours.query(
        data[0], partly, classifier, candidates=data[0][rows], batch_size=5, return_utilities=True
    )
    assert set(by_row.tolist()) <= set(rows.tolist())
    assert by_value.max() < 50
    assert utilities.shape == (5, 50)
    wrapped = SubSamplingWrapper(ours, max_candidates=30, random_state=0)
    picks = wrapped.query(data[0], partly, clf=classifier, batch_size=4)
    assert len(set(picks.tolist())) == 4
    assert np.isnan(partly[picks]).all()


def test_an_unknown_name_of_the_module_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Balanced'"):
        _ = adapter.Balanced
