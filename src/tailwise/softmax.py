"""Corrections of a softmax, so that sums of probabilities are right: temperature, class shares, unseen classes.

Softmax (n, C) in, softmax out. The program balances expected counts, so these must be right. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import BadInput
from .inputs import LARGEST_COUNT, class_labels, per_class, real_array, real_number, shown, softmax_rows, whole_number
from .types import Float64Array, FloatArray, IntArray

FLOOR = 1e-30  # a probability of 0 is read as this: wrong and sure, but not infinitely so
BOUNDS = (0.1, 10.0)
CHUNK_NUMBERS = 2**20
BINS = 15
MOST_BINS = 1_000_000
MOST_STEPS = 1_000
CHANGE = 1e-6
MOST_UNSEEN = 0.5
GRID = 33  # temperatures from 0.1 to 10 at which a loss with two parts is looked at first

Number = TypeVar("Number", bound=np.floating[Any])


def with_temperature(
    proba: NDArray[Number], temperature: float, shares: ArrayLike | None = None
) -> NDArray[Number]:  # fmt: skip
    """p^(1/T), with rows that sum to 1 again: T > 1 makes a model less sure. Any shape (…, C).

    With the class `shares` s that the model learnt under, s·(p/s)^(1/T): what the image says becomes stronger or
    weaker, and what was known before it stays. Otherwise a T below 1 takes images from rare classes and gives them to
    frequent ones. A share of 0 counts as the smallest above 0.

    >>> with_temperature(np.array([[0.8, 0.2]]), 2.0).round(3).tolist()
    [[0.667, 0.333]]
    >>> with_temperature(np.array([[0.8, 0.2]]), 2.0, shares=[4, 1]).round(3).tolist()
    [[0.8, 0.2]]
    """
    if real_number(temperature, "temperature", "a number above 0") == 0:
        raise BadInput(f"temperature is {temperature}; it must be a number above 0")
    proba = softmax_rows(proba, "proba")
    known = _positive_shares(proba, shares)  # (C,)
    flat = proba.reshape(-1, proba.shape[-1])
    result = np.empty_like(flat)
    for where in _blocks(flat):
        rows = flat[where].astype(np.float64) / known
        # Divided by the largest first: a small temperature must not turn a whole row into zeros.
        rows = (rows / np.maximum(rows.max(axis=1, keepdims=True), FLOOR)) ** (1 / temperature) * known
        result[where] = rows / rows.sum(axis=1, keepdims=True)
    return result.reshape(proba.shape)


def fit_temperature(
    proba: FloatArray, labels: IntArray, bounds: tuple[float, float] = BOUNDS, *, shares: ArrayLike | None = None,
    spread: float | None = None,
) -> float:  # fmt: skip
    """The temperature with the least negative log-likelihood of the labels, between the bounds.

    Give probabilities of images that the model has not learnt from. 1 where there is no label to learn from. `shares`
    are those of `with_temperature`. With a `spread`, log T is expected to lie around 0 with this standard deviation, so
    that a handful of labels cannot move it far.

    >>> proba = np.array([[0.9, 0.1]] * 4)  # says 90 %, and is right in three of four
    >>> f"{fit_temperature(proba, np.array([0, 0, 0, 1])):.3f}"
    '2.000'
    """
    from scipy.optimize import minimize_scalar

    proba, labels = _labelled(proba, labels)
    if not len(labels):
        return 1.0
    low, high = _sharpness(bounds)
    before = np.log(_positive_shares(proba, shares))[None, :] - np.zeros((len(labels), 1))  # (n, C)
    logs = np.log(np.maximum(proba.astype(np.float64), FLOOR)) - before
    for part in (logs, before):
        part -= part[np.arange(len(labels)), labels][:, None]  # 0 at the true class
    doubt = 0.0 if spread is None else 1 / (2 * real_number(spread, "spread") ** 2 * len(labels))

    def loss(log_sharpness: float) -> float:
        scaled = np.exp(log_sharpness) * logs + before
        most = scaled.max(axis=1)
        fit = float((most + np.log(np.exp(scaled - most[:, None]).sum(axis=1))).mean())
        return fit + doubt * log_sharpness**2

    if spread is not None:  # each part has one minimum, but the sum may have two: start near the lower one
        grid = np.linspace(low, high, GRID)
        at = int(np.argmin([loss(point) for point in grid]))
        low, high = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, GRID - 1)])
    best = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(-best.x)) if best.fun < loss(0.0) else 1.0


def share_with_unseen(proba: NDArray[Number], unseen: ArrayLike, weight: float) -> NDArray[Number]:
    """Give some of each row's doubt to classes without labels: (1 − r)·p + r·(equal shares of these classes).

    r = weight · (1 − the row's largest probability): an image that the model is sure of stays, one that it cannot place
    is more likely to be of a class that it does not know. `unseen` is (C,), true for classes without labels. Any shape.

    >>> share_with_unseen(np.array([[0.6, 0.4, 0.0, 0.0]]), [False, False, True, True], 0.5).round(2).tolist()
    [[0.48, 0.32, 0.1, 0.1]]
    """
    proba = softmax_rows(proba, "proba")
    if real_number(weight, "weight", "a number from 0 to 1", most=1.0) == 0:
        return proba
    hidden = per_class(np.asarray(unseen, dtype=np.float64), "unseen", proba.shape[-1]) > 0
    if hidden.all() or not hidden.any():
        return proba
    given = weight * (1 - np.minimum(proba.max(axis=-1, keepdims=True), 1))  # (…, 1)
    shared = proba * (1 - given)
    shared[..., hidden] += given / hidden.sum()
    result: NDArray[Number] = shared.astype(proba.dtype, copy=False)
    return result


def unseen_share(counts: ArrayLike) -> float:
    """The share of the pool that is of classes without labels, by Good and Turing: (classes seen once + ½) / (n + 1).

    0 where every class has a label; at most ½. Labels should be a random sample; picked ones see more classes once, so
    the share is rather too large than too small.

    >>> unseen_share([4, 1, 1, 0]), unseen_share([1, 1, 1, 1])
    (0.35714285714285715, 0.0)
    """
    labelled = real_array(counts, "counts")
    if not len(labelled) or labelled.all():
        return 0.0
    return float(min((np.count_nonzero(labelled == 1) + 0.5) / (labelled.sum() + 1), MOST_UNSEEN))


def shift_prior(proba: NDArray[Number], trained: ArrayLike, wanted: ArrayLike) -> NDArray[Number]:
    """Bayes' rule for other class shares: p_k · wanted_k / trained_k, rows summing to 1 again. Any shape (…, C).

    A class that was not trained (share 0) keeps its probabilities, since nothing is known of it; the others share the
    rest. Shares need not sum to 1: labelled counts will do.

    >>> shift_prior(np.array([[0.5, 0.5]]), [1, 1], [3, 1]).tolist()
    [[0.75, 0.25]]
    """
    proba = softmax_rows(proba, "proba")
    learnt, asked = _shares(proba, trained=trained, wanted=wanted)
    known = learnt > 0
    ratio = np.divide(asked, learnt, out=np.zeros_like(learnt), where=known)
    flat = proba.reshape(-1, proba.shape[-1])
    result = np.empty_like(flat)
    for where in _blocks(flat):
        rows = flat[where].astype(np.float64)
        rest = rows[:, known].sum(axis=1, keepdims=True)  # what the trained classes share, (m, 1)
        rows[:, known] *= ratio[known]
        total = rows[:, known].sum(axis=1, keepdims=True)
        # No wanted class is possible here: such a row is left as it is.
        rows[:, known] = np.where(total > 0, rows[:, known] * rest / np.maximum(total, FLOOR**2), flat[where][:, known])
        result[where] = rows
    return result.reshape(proba.shape)


def estimate_prior(
    proba: FloatArray, trained: ArrayLike, *, pseudo_count: float = 1.0, most_steps: int = MOST_STEPS,
    tolerance: float = CHANGE,
) -> Float64Array:  # fmt: skip
    """The class shares of a pool, (C,), from the softmax of a model trained under other shares.

    The EM of Saerens, Latinne and Decaestecker (2002), with `pseudo_count` images of each class added to the pool, so
    that no class ends at 0. A class that was not trained takes no part in it: its share is what the model says of it
    plus its pseudo-count; of a model that says 0, pseudo_count / (N + C·pseudo_count). Ends when a step changes the
    shares by less than `tolerance` in all, or after `most_steps`.

    >>> proba = np.array([[0.9, 0.1, 0.0]] * 8 + [[0.1, 0.9, 0.0]] * 2)
    >>> estimate_prior(proba, [0.5, 0.5, 0.0], pseudo_count=0).round(3).tolist()
    [0.875, 0.125, 0.0]
    """
    proba = _matrix(proba)
    (start,) = _shares(proba, trained=trained)
    pseudo_count = real_number(pseudo_count, "pseudo_count", most=LARGEST_COUNT)
    tolerance = real_number(tolerance, "tolerance")
    whole_number(most_steps, "most_steps")
    known = start > 0
    unknown_mass = proba[:, ~known].sum(axis=0, dtype=np.float64)  # (C − known,), stays as it is
    total = len(proba) + pseudo_count * len(start)
    if not total:
        return start
    prior = start.copy()
    prior[~known] = (unknown_mass + pseudo_count) / total
    prior[known] *= 1 - prior[~known].sum()
    for _ in range(most_steps):
        ratio = np.where(known, prior / np.where(known, start, 1.0), 0.0)
        before, prior = prior, np.where(known, (_expected_images(proba, ratio, known) + pseudo_count) / total, prior)
        if float(np.abs(prior - before).sum()) < tolerance:
            break
    return np.asarray(prior / prior.sum())


def _expected_images(proba: FloatArray, ratio: Float64Array, known: NDArray[np.bool_]) -> Float64Array:
    """Expected images of each class, (C,), where its share is `ratio` times the one that the model learnt under."""
    mass = np.zeros(len(ratio))
    for where in _blocks(proba):
        rows = proba[where].astype(np.float64)
        weight = rows @ known.astype(np.float64)  # how much of a row the trained classes share, (m,)
        evidence = rows @ ratio  # (m,)
        scale = np.divide(weight, evidence, out=np.zeros_like(evidence), where=evidence > 0)
        mass += (scale @ rows) * ratio
    return mass


def expected_calibration_error(proba: FloatArray, labels: IntArray, bins: int = BINS) -> float:
    """How far the largest probability is from how often it is right: mean distance over equal bins, by their rows.

    >>> expected_calibration_error(np.array([[0.9, 0.1]] * 10), np.array([0] * 6 + [1] * 4)).__round__(3)
    0.3
    """
    proba, labels = _labelled(proba, labels)
    whole_number(bins, "bins", least=1, most=MOST_BINS)
    if not len(labels):
        return 0.0
    sure = proba.max(axis=1).astype(np.float64)
    right = proba.argmax(axis=1) == labels
    # A bin is (low, high], as it is usually defined.
    places = np.clip(np.ceil(sure * bins).astype(np.int64) - 1, 0, bins - 1)
    distance = np.bincount(places, weights=sure - right, minlength=bins)
    return float(np.abs(distance).sum() / len(labels))


def _sharpness(bounds: object) -> tuple[float, float]:
    """log 1/T at both ends of a range of temperatures, the smaller first."""
    ends = real_array(bounds, "bounds").astype(np.float64)
    if ends.shape != (2,) or not 0 < ends[0] < ends[1] < np.inf:
        raise BadInput(f"bounds are {shown(bounds)}; they must be two temperatures above 0, the lower one first")
    return float(-np.log(ends[1])), float(-np.log(ends[0]))


def _matrix(proba: object) -> FloatArray:
    """Probabilities (n, C), checked."""
    rows = softmax_rows(proba, "proba")
    if rows.ndim != 2:
        raise BadInput(f"proba must be a matrix (images × classes), but has shape {rows.shape}")
    return rows


def _labelled(proba: object, labels: object) -> tuple[FloatArray, IntArray]:
    """Probabilities (n, C) and as many labels, checked."""
    rows = _matrix(proba)
    return rows, class_labels(labels, "labels", len(rows), rows.shape[1])


def _positive_shares(proba: FloatArray, shares: ArrayLike | None) -> Float64Array:
    """Class shares above 0, (C,); equal ones where none are given."""
    if shares is None:
        return np.ones(proba.shape[-1])
    (known,) = _shares(proba, given=shares)
    positive: Float64Array = np.maximum(known, known[known > 0].min())
    return positive


def _shares(proba: FloatArray, **given: ArrayLike) -> list[Float64Array]:
    """Class shares that sum to 1, checked."""
    found = []
    for name, values in given.items():
        shares = per_class(values, f"{name} shares", proba.shape[-1])
        if not shares.sum() > 0:
            raise BadInput(f"{name} shares are all 0; give at least one class a share above 0")
        found.append(shares / shares.sum())
    return found


def _blocks(rows: NDArray[Any]) -> Iterator[slice]:
    """Slices of so many rows that their float64 copies stay small."""
    step = max(1, CHUNK_NUMBERS // max(1, rows.shape[1]))
    return (slice(start, start + step) for start in range(0, len(rows), step))
