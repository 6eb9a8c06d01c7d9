"""Calibration of a learner: a labelled set in, a `Calibration` out, which makes the softmax of a pool fit to count on.

The temperature is fitted on images that the model has not learnt from: stratified folds of the labelled set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..balance.calibrate import estimate_prior, fit_temperature, shift_prior, with_temperature
from ..errors import BadInput
from ..pool.images import Inputs, Subset
from ..types import Float64Array, FloatArray, IntArray, Progress, unheard
from .base import Learner, check_labels

KINDS = ("none", "temperature", "prior", "both")
FOLDS = 5

Number = TypeVar("Number", bound=np.floating[Any])


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What to do to the softmax of a pool before its expected counts are balanced.

    The softmax itself stays: a score may use it as it is, or calibrated.

    Attributes
    ----------
    kind: "none", "temperature", "prior" or "both".
    temperature: 1 where it is not fitted.
    trained: (C,) class shares that the model learnt under; None where the prior is not corrected.
    prior: (C,) class shares of the pool; None: they are estimated from whatever `apply` is given.
    """

    kind: str = "none"
    temperature: float = 1.0
    trained: Float64Array | None = None
    prior: Float64Array | None = None

    def apply(self, pool_proba: NDArray[Number]) -> NDArray[Number]:
        """The softmax of a pool (N, C), calibrated, dtype kept; with `prior` set, dropout passes (T, N, C) too."""
        if self.kind == "none":
            return pool_proba
        tempered = with_temperature(pool_proba, self.temperature) if self.temperature != 1 else pool_proba
        if self.trained is None:
            return tempered
        prior = estimate_prior(tempered, self.trained) if self.prior is None else self.prior
        return shift_prior(tempered, self.trained, prior)

    def for_pool(self, pool_proba: FloatArray) -> Calibration:
        """The same with the class shares of this pool, found once and kept."""
        if self.trained is None:
            return self
        return replace(self, prior=estimate_prior(with_temperature(pool_proba, self.temperature), self.trained))


@dataclass(frozen=True, slots=True, eq=False)
class OutOfFold:
    """Softmax of labelled images by models that have not learnt from them."""

    rows: IntArray  # (m,) of the labelled set, ascending; an image that is alone in its class is not among them
    proba: FloatArray  # (m, C)


def fit_calibrated(
    learner: Learner, inputs: Inputs, labels: IntArray, *, classes: int, kind: str = "both", folds: int = FOLDS,
    seed: int = 0, report: Progress = unheard,
) -> Calibration:  # fmt: skip
    """Calibrate what the learner learns from this labelled set.

    A temperature costs `folds` fits on nearly the whole set; the prior costs none. What is too small to be held out
    leaves the temperature at 1.
    """
    if kind not in KINDS:
        raise BadInput(f"calibration is {kind!r}; it must be one of {', '.join(KINDS)}")
    check_labels(inputs, labels, classes)
    temperature = 1.0
    if kind in ("temperature", "both"):
        held = out_of_fold(learner, inputs, labels, classes=classes, folds=folds, seed=seed, report=report)
        temperature = fit_temperature(held.proba, labels[held.rows])
    trained = trained_shares(learner, labels, classes) if kind in ("prior", "both") else None
    return Calibration(kind, temperature, trained)


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
    return OutOfFold(rows, proba[rows])


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
