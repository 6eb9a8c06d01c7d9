"""Fitted calibrations of a softmax, and how far the expected counts of calibrated probabilities can be trusted.

`calibrate` fits one to the softmax of a user's own model, from labelled images that the model has not learnt from.
The formulas are in `softmax`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import BadInput, CalibrationWarning
from .inputs import class_labels, class_names, in_row_order, per_class, real_array
from .selection import Selection, Trust
from .softmax import (
    estimate_prior,
    expected_calibration_error,
    fit_temperature,
    share_with_unseen,
    shift_prior,
    unseen_share,
    with_temperature,
)
from .types import Float64Array, FloatArray, IntArray

# Of log T around 0. Heads on features of eight pools with 2 to 10 labels per class had temperatures from 0.4 to 2.
USUAL_SPREAD = 0.5
OWN_SPREAD = 2.0  # of a user's own model, of which nothing is known
ADVICE = "Calibrate them first: proba = tailwise.calibrate(labelled_proba, labels).apply(proba)"
SUM_TOLERANCE = 2e-2  # how far a row of probabilities may be from 1, bfloat16 included

Number = TypeVar("Number", bound=np.floating[Any])


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What to do to the softmax of a pool before its expected counts are balanced.

    Attributes
    ----------
    kind: "none", "temperature", "prior" or "both".
    temperature: 1 where it is not fitted.
    trained: (C,) class shares that the model learnt under: the temperature leaves them as they are, the prior is
        corrected from them, and classes with share 0 are unseen. None: equal shares, all classes seen.
    unseen: how much of a row's doubt goes to unseen classes, 0 to 1.
    shown_unseen: the same for probabilities that people see; None: as `unseen`. See `shown`.
    trust: how the calibrated probabilities did on held-out labels; None where none were held out.
    """

    kind: str = "none"
    temperature: float = 1.0
    trained: Float64Array | None = None
    unseen: float = 0.0
    shown_unseen: float | None = None
    trust: Trust | None = None

    def shown(self) -> Calibration:
        """What to do to probabilities that people see.

        Batches are chosen as if classes without labels could be common. What people see assumes that they are not
        commoner than other classes, which is nearer to the truth after a first batch of typical images.
        """
        return self if self.shown_unseen is None else replace(self, unseen=self.shown_unseen, shown_unseen=None)

    def apply(self, pool_proba: NDArray[Number]) -> NDArray[Number]:
        """The softmax of a pool (N, C), calibrated, dtype kept; class shares of the pool are estimated from it."""
        if self.kind == "none":
            return pool_proba
        tempered = self.temperature != 1
        ready = with_temperature(pool_proba, self.temperature, self.trained) if tempered else pool_proba
        if self.kind in ("prior", "both") and self.trained is not None:
            ready = shift_prior(ready, self.trained, estimate_prior(ready, self.trained))
        return ready if self.trained is None else share_with_unseen(ready, self.trained == 0, self.unseen)


def unseen_weight(
    counts: ArrayLike, held_out: FloatArray, drawn: ArrayLike | None = None, *, most: float = 1.0
) -> float:  # fmt: skip
    """How much of a row's doubt goes to classes without labels, so that their share is `unseen_share` of the pool.

    Doubt is 1 − the largest probability; its mean is that of held-out rows (m, C), and 1 without any. `drawn` are the
    counts (C,) without labels that were found by looking for their class, which say nothing of the pool; a class that
    has such labels alone is not unseen. `most` is the largest share that they may have in all.
    """
    doubt = 1 - float(held_out.max(axis=1).mean()) if len(held_out) else 1.0
    share = unseen_share(counts)
    if drawn is not None and share > 0:
        missing = np.count_nonzero(np.asarray(counts) == 0) / np.count_nonzero(np.asarray(drawn) == 0)
        share = unseen_share(drawn) * missing
    share = min(share, most)
    return min(share / doubt, 1.0) if doubt > 0 else float(share > 0)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FittedCalibration:
    """A calibration of a user's own softmax; `before` and `after` say what it does on the labels it was fitted to."""

    calibration: Calibration
    logits: bool
    before: Trust
    after: Trust

    def apply(self, proba: Any) -> Any:  # noqa: ANN401 - arrays, tensors and tables of any library
        """Calibrated probabilities: a DataFrame with the same rows and columns for a DataFrame, else an array."""
        return named_like(proba, self.calibration.apply(probabilities_of(proba, "proba", logits=self.logits)))

    @property
    def temperature(self) -> float:
        """Below 1 the model was not sure enough, above 1 too sure."""
        return self.calibration.temperature

    def __repr__(self) -> str:
        return (
            f"FittedCalibration(temperature {self.temperature:.3g}: {self.after.labels:,} labels, "
            f"right {self.after.accuracy:.0%}, confidence {self.before.confidence:.0%} → {self.after.confidence:.0%})"
        )


def calibrate(
    labelled_proba: object, labels: object, *, logits: bool = False, counts: object = None, unseen: bool = False
) -> FittedCalibration:
    """Fit a calibration to the softmax of your own model.

    Parameters
    ----------
    labelled_proba: (n, C) what the model says of labelled images that it has not learnt from: an array, a tensor or a
        DataFrame. A validation set is right, or the folds of a cross-validation; training images are not.
    labels: (n,) class numbers, or names of the columns where `labelled_proba` is a DataFrame.
    logits: whether `labelled_proba`, and what `apply` will be given, are logits instead of probabilities.
    counts: (C,) labelled images per class that the model has learnt from; default those of `labels`.
    unseen: give classes that have no labels in `counts` a share of the probabilities (`unseen_share`).

    Examples
    --------
    >>> sure = np.array([[0.95, 0.05]] * 40 + [[0.05, 0.95]] * 40)  # says 95 %, and is right in three of four
    >>> fitted = calibrate(sure, np.array([0, 0, 0, 1] * 10 + [1, 1, 1, 0] * 10))
    >>> fitted.apply(np.array([[0.95, 0.05]])).round(2).tolist()
    [[0.75, 0.25]]
    """
    proba = probabilities_of(labelled_proba, "labelled_proba", logits=logits)
    truth = _labels_of(labelled_proba, labels, proba)
    if not len(truth):
        raise BadInput("labelled_proba has no rows; give probabilities of at least one labelled image")
    classes, names = proba.shape[1], class_names(labelled_proba)
    learnt = np.bincount(truth, minlength=classes).astype(np.float64)
    if counts is not None:
        learnt = per_class(counts, "counts", classes, names)
        if not learnt.any():
            raise BadInput("counts are all 0; give labelled images per class, or leave counts out")
    found = _best(proba, truth, learnt)
    if unseen:
        weight = unseen_weight(learnt, found.apply(proba))
        found = replace(found, trained=learnt / learnt.sum() if found.trained is None else found.trained, unseen=weight)
    return FittedCalibration(found, logits, measure_trust(proba, truth), measure_trust(found.apply(proba), truth))


def trust_in(
    labelled_proba: object, labels: object, classes: int, names: tuple[Hashable, ...] | None = None
) -> tuple[Trust, Float64Array]:
    """How a user's probabilities do on labelled rows, and labels per class (C,).

    Warns where confidence and accuracy disagree. `classes` and `names` are those of the pool.
    """
    if labelled_proba is None or labels is None:
        missing = "labels" if labels is None else "labelled_proba"
        raise BadInput(f"{missing} is missing; give labelled_proba and labels together, or neither")
    proba = probabilities_of(labelled_proba, "labelled_proba", logits=False)
    if proba.shape[1] != classes:
        raise BadInput(f"labelled_proba has {proba.shape[1]} columns, but the pool has {classes} classes")
    columns = class_names(labelled_proba)
    if names and columns and names != columns:
        raise BadInput("labelled_proba and proba have different columns; give both the same, in the same order")
    truth = _labels_of(labelled_proba, labels, proba)
    return warned(measure_trust(proba, truth), ADVICE), np.bincount(truth, minlength=classes).astype(np.float64)


def named_like(given: Any, rows: FloatArray) -> Any:  # noqa: ANN401 - a DataFrame of any library
    """The rows as a DataFrame with the names of a given one; unchanged for anything else."""
    if class_names(given) is None or not hasattr(given, "iloc"):
        return rows
    return type(given)(rows, index=given.index, columns=given.columns)


def _labels_of(labelled_proba: object, labels: object, proba: FloatArray) -> IntArray:
    """The class of each labelled row, (n,), by number or by the name of a column."""
    given = in_row_order(labels, labelled_proba, "labels")
    return class_labels(given, "labels", len(proba), proba.shape[1], class_names(labelled_proba))


def _best(proba: FloatArray, labels: IntArray, counts: Float64Array) -> Calibration:
    """The better of two temperatures: one that keeps the class shares of the labels, and a plain one."""
    fits: list[tuple[float, int, Calibration]] = []
    for shares in (None, (counts + 1) / (counts + 1).sum()):
        heat = fit_temperature(proba, labels, shares=shares, spread=OWN_SPREAD)
        found = Calibration("temperature", heat, shares)
        own = found.apply(proba)[np.arange(len(labels)), labels].astype(np.float64)
        fits.append((-float(np.log(np.maximum(own, 1e-30)).mean()), len(fits), found))
    return min(fits)[2]


def probabilities_of(values: object, name: str, *, logits: bool) -> FloatArray:
    """Rows that sum to 1, (n, C), from probabilities or logits."""
    rows: FloatArray = real_array(values, name)
    rows = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise BadInput(f"{name} must be a matrix (images × classes), but has shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise BadInput(f"{name} holds NaN or infinity; leave such rows out")
    if logits:
        exponents = rows.astype(np.float64 if rows.dtype == np.float64 else np.float32)
        powers = np.exp(exponents - exponents.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))
    sums = rows.sum(axis=1, dtype=np.float64)
    if (rows < 0).any() or (np.abs(sums - 1) > SUM_TOLERANCE).any():
        bad = int(np.flatnonzero((rows < 0).any(axis=1) | (np.abs(sums - 1) > SUM_TOLERANCE))[0])
        raise BadInput(
            f"row {bad} of {name} does not hold probabilities that sum to 1; if these are logits, apply softmax first, "
            "or call tailwise.calibrate(…, logits=True)"
        )
    return rows


DISAGREE = 0.10  # between confidence and accuracy, from which on a user is warned
FEWEST_LABELS = 20  # below, chance alone makes them differ
MEAN_DEVIATION = np.sqrt(2 / np.pi)  # E|X| of a normal X with standard deviation 1


def measure_trust(proba: FloatArray, labels: IntArray) -> Trust:
    """Accuracy, confidence and calibration error on labelled rows, (n, C) and (n,).

    >>> measure_trust(np.array([[0.9, 0.1]] * 4), np.array([0, 0, 0, 1])).accuracy
    0.75
    """
    error = expected_calibration_error(proba, labels)  # checks both
    if not len(labels):
        return Trust(0)
    rows = real_array(proba, "proba").astype(np.float64)
    right = rows.argmax(axis=1) == real_array(labels, "labels")
    return Trust(len(rows), float(right.mean()), float(rows.max(axis=1).mean()), error)


def disagrees(trust: Trust) -> bool:
    """Whether confidence and accuracy differ by more than 10 points, and by more than chance explains.

    >>> disagrees(Trust(50, 0.5, 0.8)), disagrees(Trust(10, 0.5, 0.8)), disagrees(Trust(50, 0.75, 0.8))
    (True, False, False)
    """
    if trust.labels < FEWEST_LABELS:
        return False
    distance = abs(trust.confidence - trust.accuracy)
    variance = max(share * (1 - share) for share in (trust.confidence, trust.accuracy))
    return bool(distance > DISAGREE and distance > 2 * np.sqrt(variance / trust.labels))


def misplaced(expected: Float64Array, std: Float64Array, counts: Float64Array, trust: Trust) -> float:
    """An estimate of Σ|true − expected| / 2 over the classes: how many picks are of other classes than counted.

    Three errors, taken as independent: each pick is one draw (`std`, (C,)); a class's share was learnt from `counts`
    (C,) labels, which leaves a relative error of about 1/√(counts + 1); and confidence is off by as much as on labels.
    """
    deviation = np.sqrt(std**2 + expected**2 / (counts + 1))  # (C,)
    scattered = MEAN_DEVIATION * float(deviation.sum()) / 2
    biased = float(expected.sum()) * abs(trust.confidence - trust.accuracy) if trust.labels else 0.0
    return min(float(np.hypot(scattered, biased)), float(expected.sum()))


def with_trust(selection: Selection, trust: Trust, counts: ArrayLike) -> Selection:
    """The selection with its trust; `counts` (C,) are labelled images per class."""
    labelled = real_array(counts, "counts").astype(np.float64)
    error = misplaced(selection.expected_counts, selection.counts_std, labelled, trust)
    return replace(selection, trust=replace(trust, picks=len(selection), misplaced=error))


def warned(trust: Trust, advice: str) -> Trust:
    """The same; with advice, and a warning, where confidence and accuracy disagree."""
    if not disagrees(trust):
        return trust
    trust = replace(trust, advice=advice)
    warnings.warn(str(trust), CalibrationWarning, stacklevel=4)  # the line that called `select`
    return trust
