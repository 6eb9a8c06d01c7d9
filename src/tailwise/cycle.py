"""One active-learning cycle (Algorithm 1): fit on what is labelled → ask the model about the pool → choose a batch.

Arrays and models in, a `Choice` out. Who gives the labels, an oracle or people, is the business of bench and campaign.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from .calibration import Calibration, with_trust
from .errors import BadInput
from .learners.learner import Learner, Model, fit_calibrated
from .learners.vaal import VaalSettings, labelledness
from .pools.pool import Inputs, LabelledImages
from .selection import Selection
from .softmax import shift_prior
from .strategies.strategy import Strategy
from .targets import Target
from .types import BoolArray, Float64Array, FloatArray, Oracle, Predictions, Progress, no_progress


@dataclass(frozen=True, slots=True)
class Asking:
    """How the model is asked."""

    calibration: str = "temperature"
    folds: int = 5
    passes: int = 10
    vaal: VaalSettings | None = None
    drawn: tuple[int, ...] | None = None  # labels per class but for those found by looking for it; None: all


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long the parts of choosing a batch took."""

    calibrate: float
    predict: float
    select: float


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A batch, the calibration that its expected counts rest on, and what the model says of the classes' shares."""

    selection: Selection
    calibration: Calibration
    shares: Float64Array  # (C,) of all images, see `class_shares`
    seconds: Seconds


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """How a model does on a test set."""

    accuracy: float
    adjusted_accuracy: float  # after `shift_prior` from the shares to equal ones; NaN where no shares were given
    balanced_accuracy: float
    adjusted_balanced_accuracy: float  # mean recall of the adjusted decisions; NaN where no shares were given
    recalls: Float64Array  # (C,); NaN where the test set has no image of a class


def fit(
    learner: Learner,
    labelled: LabelledImages,
    *,
    seed: int,
    report: Progress = no_progress,
    checkpoint: Path | None = None,
) -> Model:
    """Train from scratch on what is labelled."""
    return learner.fit(
        labelled.inputs, labelled.labels, classes=labelled.classes, seed=seed, report=report, checkpoint=checkpoint
    )


def choose(
    strategy: Strategy, learner: Learner, model: Model, labelled: LabelledImages, pool: Inputs, budget: int, *,
    asking: Asking = Asking(), seed: int = 0, report: Progress = no_progress,  # noqa: B008 - frozen
    oracle: Oracle | None = None, target: Target | None = None,
) -> Choice:  # fmt: skip
    """Ask the model what the strategy needs to know, calibrate it, and select.

    `oracle` knows the labels of the pool, for strategies that read those of their picks.
    """
    started = time.perf_counter()
    calibration = fit_calibrated(
        learner, labelled.inputs, labelled.labels, classes=labelled.classes, kind=asking.calibration,
        folds=asking.folds, seed=seed, report=report, drawn=None if asking.drawn is None else np.array(asking.drawn),
    )  # fmt: skip
    fitted = time.perf_counter()
    predictions = predict(strategy.needs, model, labelled, pool, asking=asking, seed=seed, report=report)
    predicted = time.perf_counter()
    calibrated = replace(predictions, proba=calibration.apply(np.asarray(predictions.proba)))
    if predictions.labelled_proba is not None:
        calibrated = replace(calibrated, labelled_proba=calibration.apply(np.asarray(predictions.labelled_proba)))
    report(0.0, f"choosing {budget} of {len(pool):,}")
    # A strategy from elsewhere may know of no oracle.
    reading: dict[str, Any] = {"oracle": oracle} if getattr(strategy, "reads_labels", False) else {}
    selection = strategy.select(
        calibrated, budget, counts=labelled.counts(), target=target, seed=seed,
        report=lambda line: report(0.0, line), **reading,
    )  # fmt: skip
    if calibration.trust is not None:
        selection = with_trust(selection, calibration.trust, labelled.counts())
    seconds = Seconds(fitted - started, predicted - fitted, time.perf_counter() - predicted)
    return Choice(selection, calibration, class_shares(labelled, np.asarray(predictions.proba)), seconds)


def class_shares(labelled: LabelledImages, pool_proba: FloatArray) -> Float64Array:
    """Shares of the classes among labelled and unlabelled images together, (C,): labels count, softmax does the rest.

    Picks depend on images alone, so where all labels were picked from the pool the softmax of a model that learnt from
    them is that of the present pool: nothing needs to be corrected for how the labelled set is made up.
    """
    counts = labelled.counts() + pool_proba.sum(axis=0, dtype=np.float64)
    shares: Float64Array = counts / counts.sum()
    return shares


def predict(
    needs: tuple[str, ...], model: Model, labelled: LabelledImages, pool: Inputs, *, asking: Asking, seed: int,
    report: Progress = no_progress,
) -> Predictions:  # fmt: skip
    """What a strategy needs, and nothing else."""
    report(0.0, f"asking the model about {len(pool):,} images")
    known = {field.name for field in fields(Predictions)}
    if unknown := sorted(set(needs) - known):
        raise BadInput(f"a strategy needs {unknown[0]!r}; a model can give {', '.join(sorted(known))}")
    embeddings = model.embed(pool) if "embeddings" in needs else None
    labelled_embeddings = model.embed(labelled.inputs) if embeddings is not None else None
    # A net that gives both reads each image once; other models may not know this way.
    last_layer = getattr(model, "proba_of", None)
    proba = model.predict_proba(pool) if embeddings is None or last_layer is None else last_layer(embeddings)
    mc_proba = model.mc_proba(pool, asking.passes, seed) if "mc_proba" in needs else None
    seems_labelled = None
    if "labelledness" in needs:
        seems_labelled = labelledness(labelled.inputs, pool, asking.vaal, seed=seed, report=report)
    return Predictions(
        proba, embeddings, labelled_embeddings, mc_proba, seems_labelled,
        labelled_proba=model.predict_proba(labelled.inputs) if "labelled_proba" in needs else None,
        labelled_labels=labelled.labels if "labelled_labels" in needs else None,
    )  # fmt: skip


def mark(model: Model, test: LabelledImages, shares: Float64Array | None = None) -> Marks:
    """Accuracy and recalls on a test set.

    With the class `shares` that the model learnt under, also the accuracy of decisions for a test set in which all
    classes are equally frequent: the softmax divided by them (logit adjustment, Menon et al. 2021).
    """
    proba = np.asarray(model.predict_proba(test.inputs))  # (n, C)
    right = proba.argmax(axis=1) == test.labels  # (n,)
    recalls = class_recalls(right, test)
    adjusted = adjusted_balanced = np.nan
    if shares is not None:
        then_right = shift_prior(proba, shares, np.ones(test.classes)).argmax(axis=1) == test.labels
        adjusted, adjusted_balanced = float(then_right.mean()), float(np.nanmean(class_recalls(then_right, test)))
    return Marks(float(right.mean()), adjusted, float(np.nanmean(recalls)), adjusted_balanced, recalls)


def class_recalls(right: BoolArray, test: LabelledImages) -> Float64Array:
    """Share of each class's images that are right, (C,); NaN where the test set has no image of a class."""
    counts = test.counts()
    hits = np.bincount(test.labels[right], minlength=test.classes)
    recalls: Float64Array = np.where(counts > 0, hits / np.maximum(counts, 1), np.nan)
    return recalls
