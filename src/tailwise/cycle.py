"""One active-learning cycle (Algorithm 1): fit on what is labelled → ask the model about the pool → choose a batch.

Arrays and models in, a `Choice` out. Who gives the labels, an oracle or people, is the business of bench and campaign.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .errors import BadInput
from .learn.base import Learner, Model
from .learn.calibrated import Calibration, fit_calibrated
from .learn.vaal import VaalSettings, labelledness
from .pool.images import Inputs, LabelledImages
from .strategies.base import Strategy
from .types import Float64Array, Predictions, Progress, Selection, unheard


@dataclass(frozen=True, slots=True)
class Asking:
    """How the model is asked."""

    calibration: str = "none"
    folds: int = 5
    passes: int = 10
    vaal: VaalSettings | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A batch, and the calibration that its expected counts rest on."""

    selection: Selection
    calibration: Calibration


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """How a model does on a test set."""

    accuracy: float
    balanced_accuracy: float
    recalls: Float64Array  # (C,); NaN where the test set has no image of a class


def fit(
    learner: Learner, labelled: LabelledImages, *, seed: int, report: Progress = unheard, checkpoint: Path | None = None
) -> Model:
    """Train from scratch on what is labelled."""
    return learner.fit(
        labelled.inputs, labelled.labels, classes=labelled.classes, seed=seed, report=report, checkpoint=checkpoint
    )


def choose(
    strategy: Strategy, learner: Learner, model: Model, labelled: LabelledImages, pool: Inputs, budget: int, *,
    asking: Asking = Asking(), seed: int = 0, report: Progress = unheard,  # noqa: B008 - frozen
) -> Choice:  # fmt: skip
    """Ask the model what the strategy needs to know, calibrate it, and select."""
    calibration = fit_calibrated(
        learner, labelled.inputs, labelled.labels, classes=labelled.classes, kind=asking.calibration,
        folds=asking.folds, seed=seed, report=report,
    )  # fmt: skip
    predictions = predict(strategy.needs, model, labelled, pool, asking=asking, seed=seed, report=report)
    calibrated = calibration.apply(np.asarray(predictions.proba))
    report(0.0, f"choosing {budget} of {len(pool):,}")
    selection = strategy.select(
        replace(predictions, proba=calibrated), budget, counts=labelled.counts(), seed=seed,
        report=lambda line: report(0.0, line),
    )  # fmt: skip
    return Choice(selection, calibration)


def predict(
    needs: tuple[str, ...], model: Model, labelled: LabelledImages, pool: Inputs, *, asking: Asking, seed: int,
    report: Progress = unheard,
) -> Predictions:  # fmt: skip
    """What a strategy needs, and nothing else."""
    report(0.0, f"asking the model about {len(pool):,} images")
    known = {"proba", "embeddings", "labelled_embeddings", "mc_proba", "labelledness"}
    if unknown := sorted(set(needs) - known):
        raise BadInput(f"a strategy needs {unknown[0]!r}; a model can give {', '.join(sorted(known))}")
    embeddings = model.embed(pool) if "embeddings" in needs else None
    labelled_embeddings = model.embed(labelled.inputs) if embeddings is not None else None
    mc_proba = model.mc_proba(pool, asking.passes, seed) if "mc_proba" in needs else None
    seems_labelled = None
    if "labelledness" in needs:
        seems_labelled = labelledness(labelled.inputs, pool, asking.vaal, seed=seed, report=report)
    return Predictions(model.predict_proba(pool), embeddings, labelled_embeddings, mc_proba, seems_labelled)


def mark(model: Model, test: LabelledImages) -> Marks:
    """Accuracy and recalls on a test set."""
    right = np.asarray(model.predict_proba(test.inputs)).argmax(axis=1) == test.labels  # (n,)
    counts = test.counts()
    hits = np.bincount(test.labels[right], minlength=test.classes)
    recalls = np.where(counts > 0, hits / np.maximum(counts, 1), np.nan)
    return Marks(float(right.mean()), float(np.nanmean(recalls)), recalls)
