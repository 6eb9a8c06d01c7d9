"""Learners of which only `fit` and `predict_proba` are known: in a campaign, in an experiment, and by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from tailwise import Campaign
from tailwise.adapters.sklearn import as_learner
from tailwise.campaign import models
from tailwise.campaign.features import embed
from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.experiments.experiment import Row, parse_experiment
from tailwise.experiments.runner import collect, run_experiment
from tailwise.experiments.store import Store
from tailwise.inference.storage import find_learner
from tailwise.learners import LEARNERS, fit_calibrated, make_learner


class Means:
    """A model with nothing but `predict_proba`."""

    def __init__(self, means: np.ndarray) -> None:
        self.means = means

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        near = np.exp(-((np.asarray(inputs)[:, None] - self.means) ** 2).mean(axis=2))
        return near / near.sum(axis=1, keepdims=True)


class NearestMean:
    """A learner with nothing but `fit`, which takes no report and no checkpoint."""

    def fit(self, inputs: np.ndarray, labels: np.ndarray, *, classes: int) -> Means:
        rows = np.asarray(inputs)
        means = [
            rows[labels == k].mean(axis=0) if (labels == k).any() else np.full(rows.shape[1], 1e3)
            for k in range(classes)
        ]
        return Means(np.array(means))


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    return (rng.normal(size=(60, 5)) + 3 * np.eye(4, 5)[labels]).astype(np.float32), labels


@pytest.mark.parametrize(
    "given", [RandomForestClassifier(10), make_pipeline(PCA(2), LogisticRegression()), NearestMean()]
)
def test_fit_and_predict_proba_are_enough(given: object, points: tuple[np.ndarray, np.ndarray]) -> None:
    learner = as_learner(given)
    model = learner.fit(*points, classes=4, seed=0)
    proba = model.predict_proba(points[0])
    assert model.classes == 4
    assert proba.shape == (60, 4)
    assert (proba.argmax(axis=1) == points[1]).mean() > 0.9
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-5)
    assert proba[:, 3].max() < 1e-6
    np.testing.assert_array_equal(model.embed(points[0]), points[0])
    with pytest.raises(BadInput, match=r"the strategy needs dropout passes, but \w+ has no mc_proba"):
        model.mc_proba(points[0], 3, 0)
    again = learner.fit(*points, classes=4, seed=0).predict_proba(points[0])
    np.testing.assert_array_equal(again, proba)
    assert not hasattr(given, "classes_")  # a copy was fitted
    assert fit_calibrated(learner, *points, classes=4, folds=2).temperature > 0


def test_the_seed_reaches_every_step_that_has_none(points: tuple[np.ndarray, np.ndarray]) -> None:
    forest = as_learner(make_pipeline(PCA(4), RandomForestClassifier(3)))
    one, other = (forest.fit(*points, classes=3, seed=seed).predict_proba(points[0]) for seed in (0, 1))
    assert np.abs(one - other).max() > 0
    fixed = as_learner(RandomForestClassifier(3, random_state=7))
    one, other = (fixed.fit(*points, classes=3, seed=seed).predict_proba(points[0]) for seed in (0, 1))
    np.testing.assert_array_equal(one, other)


def test_one_class_alone_and_pixels_are_learnt_from() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3)).astype(np.uint8)
    learner = as_learner(LogisticRegression())
    alone = learner.fit(pixels, np.full(6, 2), classes=4, seed=0).predict_proba(pixels)
    np.testing.assert_array_equal(alone, np.eye(4)[[2] * 6])
    model = learner.fit(pixels, np.arange(6) % 2, classes=4, seed=0)
    expected = LogisticRegression(random_state=0).fit(pixels.reshape(6, -1) / 255, np.arange(6) % 2)
    np.testing.assert_allclose(
        model.predict_proba(pixels)[:, :2], expected.predict_proba(pixels.reshape(6, -1) / 255), atol=1e-4
    )
    with pytest.raises(BadInput, match="needs embeddings, but LogisticRegression has no embed"):
        model.embed(pixels)


def test_what_a_model_can_do_is_used() -> None:
    class Full(Means):
        def embed(self, inputs: np.ndarray) -> np.ndarray:
            return np.asarray(inputs) * 2

        def mc_proba(self, inputs: np.ndarray, passes: int, seed: int) -> np.ndarray:
            return np.repeat(self.predict_proba(inputs)[None], passes, axis=0) + seed

    class Learner:
        def fit(self, inputs: np.ndarray, labels: np.ndarray, *, classes: int, seed: int) -> Full:
            assert (len(inputs), len(labels), seed) == (4, 4, 5)
            return Full(np.zeros((classes, 2)))

    model = as_learner(Learner()).fit(np.ones((4, 2)), np.arange(4) % 2, classes=2, seed=5)
    np.testing.assert_array_equal(model.embed(np.ones((1, 2))), [[2, 2]])
    assert model.mc_proba(np.ones((1, 2)), 3, 0).shape == (3, 1, 2)


def test_a_wrong_number_of_columns_is_rejected() -> None:
    class Short(NearestMean):
        def fit(self, inputs: np.ndarray, labels: np.ndarray, *, classes: int) -> Means:
            return super().fit(inputs, labels, classes=classes - 1)

    model = as_learner(Short()).fit(np.ones((4, 2)), np.arange(4) % 2, classes=3, seed=0)
    with pytest.raises(BadInput, match=r"predict_proba gives \(1, 2\) for 3 classes"):
        model.predict_proba(np.ones((1, 2)))


def test_names_of_classes_are_imported_and_wrong_ones_are_named() -> None:
    forest = as_learner(make_learner("sklearn.ensemble:RandomForestClassifier", n_estimators=3), "forest")
    assert forest.name == "forest"
    for name, complaint in {
        "sklearn.ensemble:Forest": "cannot import the learner",
        "nowhere:Forest": "cannot import the learner",
        "sklearn.base:clone": "is not a learner",
        "pathlib:Path": "is not a learner",
    }.items():
        with pytest.raises(BadInput, match=complaint):
            make_learner(name)
    with pytest.raises(BadInput, match="cannot make the learner"):
        make_learner("sklearn.ensemble:RandomForestClassifier", trees=3)
    with pytest.raises(BadInput, match="give a name, or an object with fit"):
        as_learner(RandomForestClassifier)
    with pytest.raises(UnknownName):
        as_learner("forest")
    with pytest.raises(BadFile, match="is not stored"):
        as_learner(RandomForestClassifier()).load(Path("nowhere"))


EXPERIMENT = """
name = "own"
budget = 20
cycles = 1
seeds = [0]
pool = {name = "digits"}
start = {initial = 40}
learner = {name = "NAME", settings = SETTINGS}
calibration = {kind = "none"}
strategies = [{name = "margin"}, {name = "kcenter"}]
"""


def rows_of(text: str, folder: Path) -> list[Row]:
    experiment, store = parse_experiment(text, "own.toml"), Store(folder)
    assert run_experiment(experiment, store, processes=1) == {}
    return collect(experiment, store)


def test_an_experiment_takes_an_estimator_by_the_name_of_its_class(tmp_path: Path) -> None:
    text = EXPERIMENT.replace("NAME", "sklearn.neighbors:KNeighborsClassifier").replace("SETTINGS", "{n_neighbors = 3}")
    rows = rows_of(text, tmp_path)
    assert {row.learner for row in rows} == {"sklearn.neighbors:KNeighborsClassifier"}
    assert all(row.accuracy > 0.6 for row in rows)
    with pytest.raises(BadInput, match=r"own\.toml: cannot make the learner"):
        parse_experiment(text.replace("n_neighbors", "neighbours"), "own.toml")


def test_an_experiment_takes_a_registered_learner_with_fit_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Registered(NearestMean):
        name = "nearest-mean"

    monkeypatch.setitem(LEARNERS, "nearest-mean", Registered)
    text = EXPERIMENT.replace("NAME", "nearest-mean").replace("SETTINGS", "{}")
    rows = rows_of(text, tmp_path)
    assert all(row.accuracy > 0.6 for row in rows)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """Twenty pictures, dark and light, eight of them labelled."""
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(20):
        pixels = rng.integers(0, 120, (16, 16, 3)) + 120 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / f"photos/{number:02d}.png")
    made = Campaign.create(tmp_path / "shades", tmp_path / "photos", ["dark", "light"], backbone="simple")
    for number in range(8):
        made.label(f"{number:02d}.png", ["dark", "light"][number % 2])
    return made


def test_a_round_is_chosen_by_a_learner_of_ones_own(campaign: Campaign) -> None:
    with campaign:
        forest = RandomForestClassifier(20, max_depth=3)
        proposal = campaign.next(4, learner=forest, calibration="none", seed=3)
        embedding, labelled = embed(campaign.ledger), models.labelled_set(campaign.ledger)
        known, asked = (
            embedding.features[embedding.rows(ids)[0]]
            for ids in (labelled.images, np.array([pick.image for pick in proposal.picks]))
        )
        literal = (
            RandomForestClassifier(20, max_depth=3, random_state=3).fit(known, labelled.labels).predict_proba(asked)
        )
        assert [pick.predicted for pick in proposal.picks] == [labelled.class_ids[at] for at in literal.argmax(axis=1)]
        np.testing.assert_allclose([pick.confidence for pick in proposal.picks], literal.max(axis=1), atol=1e-6)
        assert not [finding for finding in campaign.doctor() if finding.name == "models"]
        with pytest.raises(BadInput, match="was made by RandomForestClassifier, a learner that was given to"):
            models.load(campaign.ledger)
        again = campaign.next(4, learner=NearestMean(), dry_run=True, allow_unfinished=True)
        assert again.model_version is None
        with pytest.raises(BadInput, match="needs dropout passes"):
            campaign.next(4, learner=NearestMean(), strategy="bald", allow_unfinished=True)
        with pytest.raises(BadInput, match="learner is 3; give a name"):
            campaign.next(4, learner=3, allow_unfinished=True)


def test_a_named_estimator_is_fitted_again_when_its_model_is_asked(campaign: Campaign) -> None:
    with campaign:
        campaign.configure(learner="sklearn.neighbors:KNeighborsClassifier")
        proposal = campaign.next(4)
        assert not [finding for finding in campaign.doctor() if finding.name == "models"]
        found = models.predict(campaign, np.array([pick.image for pick in proposal.picks]))
        sure = {pick.image: pick.confidence for pick in proposal.picks}
        with pytest.raises(BadInput, match="KNeighborsClassifier, whose models are not stored"):
            find_learner(campaign.folder)
        np.testing.assert_allclose(found.best()[1], [sure[image] for image in found.images.tolist()], atol=1e-6)
        with pytest.raises(BadInput, match=r"one of linear, mlp, not 'resnet18'; or name one of your own"):
            campaign.configure(learner="resnet18")
        with pytest.raises(BadInput, match="one of linear, mlp, not 'lineal'"):
            campaign.configure(learner="lineal")
