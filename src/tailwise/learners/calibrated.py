"""Calibration of a learner: a labelled set in, a `Calibration` out, which makes the softmax of a pool fit to count on.

The temperature is fitted on images that the model has not learnt from: stratified folds of the labelled set. Three
things make that work with two labels per class: the temperature leaves class shares alone, a fold's probabilities
are shifted from its own class shares to those of the whole set, and log T is drawn towards 0 where labels are few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..calibration import USUAL_SPREAD, Calibration, measure_trust, unseen_weight
from ..errors import BadInput
from ..pools.pool import Inputs, Subset
from ..softmax import fit_temperature, shift_prior
from ..types import Float64Array, FloatArray, IntArray, Progress, unheard
from .learner import Learner, check_labels

KINDS = ("none", "temperature", "prior", "both")
FOLDS = 5

__all__ = ["Calibration", "OutOfFold", "fit_calibrated", "out_of_fold", "stratified_folds", "trained_shares"]


@dataclass(frozen=True, slots=True, eq=False)
class OutOfFold:
    """Softmax of labelled images by models that have not learnt from them."""

    rows: IntArray  # (m,) of the labelled set, ascending; an image that is alone in its class is not among them
    proba: FloatArray  # (m, C)
    folds: IntArray  # (m,) the fold that each was held out in


def fit_calibrated(
    learner: Learner, inputs: Inputs, labels: IntArray, *, classes: int, kind: str = "both", folds: int = FOLDS,
    seed: int = 0, report: Progress = unheard,
) -> Calibration:  # fmt: skip
    """Calibrate what the learner learns from this labelled set.

    A temperature costs `folds` fits on nearly the whole set; the prior costs none. What is too small to be held out
    leaves the temperature at 1. With a temperature, classes without labels get a share of the probabilities.
    """
    if kind not in KINDS:
        raise BadInput(f"calibration is {kind!r}; it must be one of {', '.join(KINDS)}")
    check_labels(inputs, labels, classes)
    if kind == "none":
        return Calibration()
    trained = trained_shares(learner, labels, classes)
    if kind == "prior":
        return Calibration(kind, trained=trained)
    held = out_of_fold(learner, inputs, labels, classes=classes, folds=folds, seed=seed, report=report)
    proba, truth = _as_of_the_whole_set(held, learner, labels, trained), labels[held.rows]
    temperature = fit_temperature(proba, truth, shares=trained, spread=USUAL_SPREAD)
    plain = Calibration("temperature", temperature, trained)
    weight = unseen_weight(np.bincount(labels, minlength=classes), plain.apply(proba))
    trust = measure_trust(replace(plain, unseen=weight).apply(proba), truth)
    return Calibration(kind, temperature, trained, unseen=weight, trust=trust)


def _as_of_the_whole_set(held: OutOfFold, learner: Learner, labels: IntArray, trained: Float64Array) -> FloatArray:
    """What held-out rows would get from a model with the class shares of the whole set, (m, C).

    A fold takes an image from the very class that it is then asked about: of two labels of a class one is left, and the
    model expects the class half as often. Without this, two labels per class look like a model that is always wrong.
    Where labels were drawn at random, though, a class that has two may well be rarer than that: the shift is made whole
    where all classes have equally many labels, and half where counts vary as much as random ones (variance ≥ mean).
    """
    counts = np.bincount(labels, minlength=len(trained))
    whole = 1 - min(float(counts.var() / counts.mean()), 1.0) / 2
    proba = held.proba.copy()
    for fold in np.unique(held.folds):
        mine = held.folds == fold
        rest = trained_shares(learner, np.delete(labels, held.rows[mine]), len(trained))
        proba[mine] = shift_prior(proba[mine], rest, trained**whole * rest ** (1 - whole))
    return proba


def out_of_fold(
    learner: Learner, inputs: Inputs, labels: IntArray, *, classes: int, folds: int = FOLDS, seed: int = 0,
    report: Progress = unheard,
) -> OutOfFold:  # fmt: skip
    """Fit once per fold on the others, and ask about it."""
    check_labels(inputs, labels, classes)
    places = stratified_folds(labels, folds, np.random.default_rng(seed))
    used = np.unique(places[places >= 0])
    proba = np.zeros((len(labels), classes), np.float32)
    for number, fold in enumerate(used):
        told = partial(_told, report, number, len(used))
        rest, held = np.flatnonzero(places != fold), np.flatnonzero(places == fold)
        model = learner.fit(_some(inputs, rest), labels[rest], classes=classes, seed=seed, report=told)
        proba[held] = model.predict_proba(_some(inputs, held))
    rows = np.flatnonzero(places >= 0).astype(np.int64)
    return OutOfFold(rows, proba[rows], places[rows])


def stratified_folds(labels: IntArray, folds: int, rng: np.random.Generator) -> IntArray:
    """The fold of each image, (n,): every class spread as evenly as can be, and so are the folds themselves.

    A class never loses its last image to a fold: one with fewer images than folds is spread over so many folds, and an
    image that is alone in its class is in none (−1).

    >>> sorted(stratified_folds(np.array([0, 0, 0, 0, 1]), 2, np.random.default_rng(0)).tolist())
    [-1, 0, 0, 1, 1]
    """
    if folds < 2:
        raise BadInput(f"folds is {folds}; it must be a whole number above 1")
    places = np.full(len(labels), -1, dtype=np.int64)
    placed = 0
    for cls in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == cls))
        if len(members) > 1:
            places[members] = (placed + np.arange(len(members))) % folds  # goes on where the last class ended
            placed += len(members)
    return places


def trained_shares(learner: Learner, labels: IntArray, classes: int) -> Float64Array:
    """The class shares that a model learns under, (C,): those of its labels, or equal ones where the loss is balanced.

    A class without a label has the share 0.
    """
    counts = np.bincount(labels, minlength=classes).astype(np.float64)
    own = getattr(learner, "class_weight", None) or getattr(learner, "head_settings", {}).get("class_weight")
    weighed = (counts > 0).astype(np.float64) if own == "balanced" else counts
    shares: Float64Array = weighed / weighed.sum()
    return shares


def _some(inputs: Inputs, indices: IntArray) -> Inputs:
    return inputs[indices] if isinstance(inputs, np.ndarray) else Subset(inputs, indices)


def _told(report: Progress, number: int, folds: int, done: float, what: str) -> None:
    report((number + done) / folds, f"calibrating, fold {number + 1} of {folds}: {what}")
