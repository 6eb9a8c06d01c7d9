"""How far expected counts can be trusted: probabilities of labelled images and their labels in, a `Trust` out."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from ..errors import CalibrationWarning
from ..inputs import real_array
from ..types import Float64Array, FloatArray, IntArray, Selection, Trust
from .calibrate import expected_calibration_error

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
