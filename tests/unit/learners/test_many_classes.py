"""Probabilities of the linear head with 44 and more classes and a handful of labels each: worth counting on or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality.calibration import SOURCES, load, measure
from tailwise.calibration import Calibration
from tailwise.learners import LinearLearner
from tailwise.learners.learner import fit_calibrated, out_of_fold
from tailwise.strategies import make
from tailwise.types import Predictions

CLASSES = 44
DATA = Path(__file__).parents[3].parent / "shared" / "data"
SEEDS = range(3)


def clusters(seed: int, apart: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """A long-tailed pool of 44 clusters in 64 dimensions, the commonest five times as frequent as the rarest."""
    rng = np.random.default_rng(seed)
    shares = rng.permutation(0.2 ** (np.arange(CLASSES) / (CLASSES - 1)))
    labels = rng.choice(CLASSES, 3000, p=shares / shares.sum())
    centres = apart * rng.normal(size=(CLASSES, 64))
    return (centres[labels] + rng.normal(size=(3000, 64))).astype(np.float32), labels, rng


def labelled_rows(kind: str, labels: np.ndarray, per_class: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "random":
        return rng.choice(len(labels), per_class * CLASSES, replace=False)
    return np.concatenate([np.flatnonzero(labels == cls)[:per_class] for cls in range(CLASSES)])


def misplaced(expected: np.ndarray, labels: np.ndarray) -> float:
    return float(np.abs(expected - np.bincount(labels, minlength=CLASSES)).sum() / 2)


@pytest.mark.parametrize("per_class", [2, 5, 10])
@pytest.mark.parametrize("kind", ["random", "equal"])
def test_confidence_meets_accuracy_and_counts_are_twice_as_right(kind: str, per_class: int) -> None:
    gaps, pool_ratio, batch_ratio, raw_gaps = [], [], [], []
    for seed in SEEDS:
        features, labels, rng = clusters(seed)
        chosen = labelled_rows(kind, labels, per_class, rng)
        rest = np.setdiff1d(np.arange(len(labels)), chosen)
        learner, truth = LinearLearner(), labels[rest]
        model = learner.fit(features[chosen], labels[chosen], classes=CLASSES, seed=0)
        raw = model.predict_proba(features[rest])
        ready = fit_calibrated(
            learner, features[chosen], labels[chosen], classes=CLASSES, kind="temperature", seed=seed
        ).apply(raw)
        counts = np.bincount(labels[chosen], minlength=CLASSES)
        pools, batches = [], []
        for proba in (raw, ready):
            batch = make("entropy", balance="auto").select(Predictions(proba), 200, counts=counts)
            pools.append(misplaced(proba.sum(axis=0), truth))
            batches.append(misplaced(batch.expected_counts, truth[batch.indices]))
        pool_ratio.append(pools[1] / pools[0])
        batch_ratio.append(batches[1] / batches[0])
        for proba, into in ((raw, raw_gaps), (ready, gaps)):
            into.append(proba.max(axis=1).mean() - (proba.argmax(axis=1) == truth).mean())
    assert abs(np.mean(raw_gaps)) > 0.2  # what was wrong
    assert abs(np.mean(gaps)) < 0.05
    assert max(map(abs, gaps)) < 0.07
    assert np.mean(pool_ratio) < 0.5
    assert np.mean(batch_ratio) < 0.5


def test_two_labels_per_class_do_not_look_like_a_model_that_is_always_wrong() -> None:
    """A fold leaves one of two labels, and a plain temperature of what it then says ends far too high."""
    features, labels, rng = clusters(0, apart=0.7)
    chosen = labelled_rows("equal", labels, 2, rng)
    made = fit_calibrated(LinearLearner(), features[chosen], labels[chosen], classes=CLASSES, kind="temperature")
    held = out_of_fold(LinearLearner(), features[chosen], labels[chosen], classes=CLASSES)
    assert made.trust is not None
    assert (held.proba.argmax(axis=1) == labels[chosen]).mean() < 0.4 < made.trust.accuracy
    assert made.temperature < 0.3


def test_unseen_classes_are_expected_about_as_often_as_they_are_there() -> None:
    expected, true = [], []
    for seed in range(6):
        features, labels, rng = clusters(seed)
        chosen = labelled_rows("random", labels, 2, rng)
        rest = np.setdiff1d(np.arange(len(labels)), chosen)
        learner = LinearLearner()
        model = learner.fit(features[chosen], labels[chosen], classes=CLASSES, seed=0)
        made = fit_calibrated(learner, features[chosen], labels[chosen], classes=CLASSES, kind="temperature")
        unseen = np.bincount(labels[chosen], minlength=CLASSES) == 0
        assert unseen.any()
        proba = made.apply(model.predict_proba(features[rest]))
        expected.append(proba[:, unseen].sum() / len(rest))
        true.append(unseen[labels[rest]].mean())
        known = ~unseen[labels[rest]]
        assert proba[~known][:, unseen].sum(axis=1).mean() > 1.5 * proba[known][:, unseen].sum(axis=1).mean()
    assert np.mean(expected) == pytest.approx(np.mean(true), rel=0.4)


def test_no_calibration_leaves_probabilities_as_they_are() -> None:
    features, labels, rng = clusters(0)
    chosen = labelled_rows("random", labels, 2, rng)
    proba = np.full((3, CLASSES), 1 / CLASSES)
    made = fit_calibrated(LinearLearner(), features[chosen], labels[chosen], classes=CLASSES, kind="none")
    assert made.apply(proba) is proba
    assert (made.unseen, made.trust) == (0, None)
    assert Calibration().apply(proba) is proba


@pytest.mark.long
@pytest.mark.parametrize("pool", ["flowers", "signs"])
@pytest.mark.parametrize("per_class", [2, 10])
def test_confidence_is_within_seven_points_of_accuracy_on_real_features(pool: str, per_class: int) -> None:
    if not (DATA / SOURCES[pool].file).is_file():
        pytest.skip(f"{SOURCES[pool].file} is not in {DATA}")
    features, labels = load(DATA, pool, np.random.default_rng(0))
    for kind in ("random", "picked", "equal"):
        rows = []
        for seed in SEEDS:
            rows += measure(
                pool, features, labels, SOURCES[pool].classes, kind=kind, per_class=per_class, seed=seed
            )  # fmt: skip
        before, after = ([row for row in rows if (row.calibration == "none") == plain] for plain in (True, False))
        assert abs(np.mean([row.confidence - row.accuracy for row in after])) < 0.07
        assert np.mean([row.log_loss for row in after]) < np.mean([row.log_loss for row in before])
        assert np.mean([row.pool_misplaced for row in after]) < 1.02 * np.mean([row.pool_misplaced for row in before])
