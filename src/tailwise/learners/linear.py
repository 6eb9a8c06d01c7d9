"""Learner "linear": logistic regression over a fixed number of classes; and what all heads on features share.

Features (n, d) or pixels (n, height, width, 3) are read in chunks as float32. A class without labels has the
probability 0 in its own column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..pools.pool import Inputs
from ..processes import one_blas_thread
from ..types import Float64Array, IntArray, Progress, no_progress
from .learner import StoredModel, check_labels, damaged, learner, load_model, save_model

Float32Array: TypeAlias = NDArray[np.float32]

CHUNK_NUMBERS = 2**22  # 16 MB of float32
BRIGHTEST = 255.0
SCALES = ("common", "feature", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A shift and a scale for every feature."""

    centre: Float32Array  # (d,)
    spread: Float32Array  # (d,), never 0

    @classmethod
    def fit(cls, features: Float32Array, scale: str) -> Scaling:
        """From labelled features: "feature" gives each a spread of 1, "common" divides all by their mean spread."""
        if scale not in SCALES:
            raise BadInput(f"scale is {scale!r}; it must be one of {', '.join(SCALES)}")
        width = features.shape[1]
        if scale == "none":
            return cls(np.zeros(width, np.float32), np.ones(width, np.float32))
        centre = features.mean(axis=0, dtype=np.float64)  # (d,)
        spread = features.std(axis=0, dtype=np.float64)
        if scale == "common":
            spread = np.full(width, spread.mean())
        spread = np.where(spread > 0, spread, 1.0)  # a constant feature says nothing, and divides nothing
        return cls(centre.astype(np.float32), spread.astype(np.float32))

    def scaled(self, features: Float32Array) -> Float32Array:
        """(x − centre) / spread, (n, d)."""
        result = features - self.centre
        result /= self.spread
        return result


def chunks(inputs: Inputs) -> Iterator[tuple[slice, Float32Array]]:
    """Where a chunk stands, and its flat rows (m, d), from the first input to the last."""
    width = int(np.prod(inputs.shape[1:]))  # d, the numbers of one input
    rows = max(1, CHUNK_NUMBERS // max(1, width))
    for start in range(0, len(inputs), rows):
        stop = min(start + rows, len(inputs))
        yield slice(start, stop), _flat(inputs[np.arange(start, stop)], start)


def all_features(inputs: Inputs) -> Float32Array:
    """Every input as a flat row, (n, d).

    >>> all_features(np.array([[[[0, 255, 255]]]], np.uint8)).tolist()
    [[0.0, 1.0, 1.0]]
    """
    result = np.empty((len(inputs), int(np.prod(inputs.shape[1:]))), np.float32)
    for where, rows in chunks(inputs):
        result[where] = rows
    return result


def _flat(read: NDArray[np.generic], start: int) -> Float32Array:
    if read.ndim not in (2, 4) or not np.issubdtype(read.dtype, np.number):
        raise BadInput(
            f"inputs are {read.dtype} {read.shape}; they must be features (n, d) or pixels (n, height, width, 3)"
        )
    flat: Float32Array = read.reshape(len(read), -1).astype(np.float32)
    if read.dtype == np.uint8:
        flat /= BRIGHTEST
    bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if len(bad):
        raise BadInput(f"inputs hold NaN or infinity in row {start + int(bad[0])}; fix or remove such rows")
    return flat


CLASS_WEIGHTS = ("none", "balanced")


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """A fitted head; a class that was never seen is not in `seen` and has probability 0 in its own column."""

    kind: ClassVar[str]

    classes: int
    dropout: float
    seen: IntArray  # (S,) ascending
    scaling: Scaling  # (d,)
    weights: Float32Array  # (h, S)
    offsets: Float32Array  # (S,)

    def predict_proba(self, inputs: Inputs) -> Float32Array:
        """Softmax over the classes, dropout off, (n, C); rows sum to 1."""
        proba = np.zeros((len(inputs), self.classes), np.float32)
        with one_blas_thread():
            for where, hidden in self._hidden(inputs):
                proba[where, self.seen] = softmax(hidden @ self.weights + self.offsets)
        return proba

    def embed(self, inputs: Inputs) -> Float32Array:
        """What goes into the last layer, (n, h)."""
        result = np.empty((len(inputs), len(self.weights)), np.float32)
        with one_blas_thread():
            for where, hidden in self._hidden(inputs):
                result[where] = hidden
        return result

    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> Float32Array:
        """Softmax of passes with dropout before the last layer, (T, n, C); each pass has a random stream of its own."""
        if self.dropout == 0:
            raise BadInput("dropout is 0: every pass would be the same; give the learner a dropout above 0")
        proba = np.zeros((passes, len(inputs), self.classes), np.float32)
        streams = [np.random.default_rng([seed, number]) for number in range(passes)]
        with one_blas_thread():
            for where, hidden in self._hidden(inputs):
                for number, stream in enumerate(streams):
                    logits = dropped(hidden, self.dropout, stream) @ self.weights + self.offsets
                    proba[number][where, self.seen] = softmax(logits)
        return proba

    def save(self, folder: Path) -> None:
        """Write safetensors and JSON into a folder, whole or not at all."""
        settings = {"classes": self.classes, "dropout": self.dropout}
        save_model(folder, StoredModel(self.kind, settings, self.tensors()))

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything that was learnt, by name."""
        scaling = {"centre": self.scaling.centre, "spread": self.scaling.spread}
        return {"seen": self.seen, "weights": self.weights, "offsets": self.offsets, **scaling}

    def _hidden(self, inputs: Inputs) -> Iterator[tuple[slice, Float32Array]]:
        """What goes into the last layer, chunk by chunk, (m, h): here the scaled features."""
        width, learnt = int(np.prod(inputs.shape[1:])), len(self.scaling.centre)
        if width != learnt:
            raise BadInput(f"inputs {inputs.shape} have {width} numbers each; the model learnt from {learnt}")
        for where, rows in chunks(inputs):
            yield where, self.scaling.scaled(rows)


def softmax(logits: Float32Array) -> Float32Array:
    """Softmax of each row, in place.

    >>> softmax(np.zeros((1, 4), np.float32)).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def dropped(hidden: Float32Array, rate: float, rng: np.random.Generator) -> Float32Array:
    """Inverted dropout: each number is 0 with probability `rate`, and 1/(1 − rate) times as large otherwise."""
    result = hidden * (rng.random(hidden.shape, dtype=np.float32) >= rate)
    result *= np.float32(1 / (1 - rate))
    return result


def row_weights(labels: IntArray, class_weight: str) -> Float32Array:
    """Weight of each labelled row, mean 1: all alike, or such that every class seen weighs the same in all.

    >>> row_weights(np.array([0, 0, 0, 2]), "balanced").astype(float).round(2).tolist()
    [0.67, 0.67, 0.67, 2.0]
    """
    if class_weight == "none":
        return np.ones(len(labels), np.float32)
    counts = np.bincount(labels)
    return (len(labels) / (np.count_nonzero(counts) * counts[labels])).astype(np.float32)


def check_settings(*, class_weight: str, dropout: float) -> None:
    """Refuse settings that mean nothing."""
    if class_weight not in CLASS_WEIGHTS:
        raise BadInput(f"class_weight is {class_weight!r}; it must be one of {', '.join(CLASS_WEIGHTS)}")
    if not 0 <= dropout < 1:
        raise BadInput(f"dropout is {dropout}; it must lie in [0, 1)")


def load_head(folder: Path, kind: str, shapes: dict[str, str]) -> StoredModel:
    """Read a head and check that its tensors are there and fit together; a shape such as "dS" names the axes."""
    stored = load_model(folder, kind)
    axes: dict[str, int] = {}
    for name, wanted in shapes.items():
        tensor = stored.tensors.get(name)
        if tensor is None or tensor.ndim != len(wanted):
            raise damaged(folder, f"it has no fitting tensor {name!r}")
        if any(axes.setdefault(axis, size) != size for axis, size in zip(wanted, tensor.shape, strict=True)):
            raise damaged(folder, f"tensor {name!r} is {tensor.shape}, which does not fit the others")
        if tensor.dtype != (np.int64 if name == "seen" else np.float32):
            raise damaged(folder, f"tensor {name!r} is {tensor.dtype}")
    _check_classes(folder, stored)
    return stored


def _check_classes(folder: Path, stored: StoredModel) -> None:
    classes, dropout, seen = stored.settings.get("classes"), stored.settings.get("dropout"), stored.tensors["seen"]
    if not isinstance(classes, int) or not isinstance(dropout, float | int) or not 0 <= dropout < 1:
        raise damaged(folder, f"it says classes {classes!r} and dropout {dropout!r}")
    if not len(seen) or seen[0] < 0 or seen[-1] >= classes or (np.diff(seen) <= 0).any():
        raise damaged(folder, f"the classes it has seen are not among 0 to {classes - 1}")


MOST_STEPS = 1_000
SLOPE = 3e-5  # of the mean loss, at which the fit counts as done: float32 sums cannot be trusted far below
WIDEST_WHITENED = 1_024  # beyond, whitening (n·d²) costs more than the steps it saves
# Over d. Of 0.25 to 250 the one with the least mean log loss on held-out training images, never on a test set:
# CIFAR-10 features with 100, 1,000 and 5,000 labels, digits with 100 and 1,000.
AUTO_STRENGTH = 8.0


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel(Head):
    """Fitted weights; its embedding is the scaled features."""

    kind: ClassVar[str] = "linear"


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLearner:
    """Multinomial logistic regression on scaled features, fitted by L-BFGS.

    Attributes
    ----------
    strength: inverse of the regularisation, scikit-learn's C; None: 8 over the number of features.
    class_weight: "none", or "balanced": every class seen weighs the same in the loss.
    scale: "common" divides all features by one number (right for features of a network, whose sizes mean something),
        "feature" each by its own spread, "none" leaves them as they are.
    dropout: the rate of `mc_proba`, on the scaled features; fitting and `predict_proba` have none.

    Examples
    --------
    >>> learner = LinearLearner(strength=1.0)
    >>> model = learner.fit(np.array([[0.0], [1.0]]), np.array([0, 2]), classes=3, seed=0)
    >>> model.predict_proba(np.array([[1.0]])).astype(float).round(2).tolist()
    [[0.26, 0.0, 0.74]]
    """

    name: ClassVar[str] = "linear"

    strength: float | None = None
    class_weight: str = "none"
    scale: str = "common"
    dropout: float = 0.5

    def __post_init__(self) -> None:
        check_settings(class_weight=self.class_weight, dropout=self.dropout)
        if self.strength is not None and not 0 < self.strength < np.inf:
            raise BadInput(f"strength is {self.strength}; it must be a number above 0")

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,  # noqa: ARG002 - the optimum has no chance in it
        report: Progress = no_progress, checkpoint: Path | None = None,  # noqa: ARG002 - a matter of seconds
    ) -> LinearModel:  # fmt: skip
        """Fit on a labelled set in which any class may be missing, or all but one."""
        check_labels(inputs, labels, classes)
        report(0.0, f"fitting a linear head on {len(labels):,} labels")
        features = all_features(inputs)  # (n, d)
        scaling = Scaling.fit(features, self.scale)
        seen, places = np.unique(labels, return_inverse=True)
        with one_blas_thread():
            weights, offsets = self._logistic(scaling.scaled(features), places, row_weights(labels, self.class_weight))
        report(1.0, "linear head fitted")
        return LinearModel(classes, self.dropout, seen.astype(np.int64), scaling, weights, offsets)

    def load(self, folder: Path) -> LinearModel:
        """A model that was saved."""
        shapes = {"seen": "S", "weights": "dS", "offsets": "S", "centre": "d", "spread": "d"}
        stored = load_head(folder, LinearModel.kind, shapes)
        classes, dropout, kept = stored.settings["classes"], stored.settings["dropout"], stored.tensors
        scaling = Scaling(kept["centre"], kept["spread"])
        return LinearModel(classes, dropout, kept["seen"], scaling, kept["weights"], kept["offsets"])

    def _logistic(
        self, features: Float32Array, places: IntArray, weights: Float32Array
    ) -> tuple[Float32Array, Float32Array]:
        """Minimise the mean loss + ‖W‖²/(2·strength·n) over W (d, S) and offsets (S,), which are not regularised."""
        from scipy.optimize import minimize

        size, width = features.shape
        groups = int(places.max()) + 1  # S
        if groups == 1:
            return np.zeros((width, 1), np.float32), np.zeros(1, np.float32)
        ridge = 1 / ((self.strength or AUTO_STRENGTH / width) * size)
        back = whitening(features, ridge * groups**2 / (groups - 1))  # the loss is curved (S − 1)/S² times as much
        loss = SoftmaxLoss(
            features if back is None else features @ back.astype(np.float32), places, weights, ridge, back
        )
        found = minimize(
            loss, np.zeros((width + 1) * groups), jac=True, method="L-BFGS-B",
            options={"maxiter": MOST_STEPS, "maxfun": 4 * MOST_STEPS, "gtol": SLOPE, "ftol": 1e-10},
        )  # fmt: skip
        best = found.x.reshape(width + 1, groups)
        fitted = best[:-1] if back is None else back @ best[:-1]
        return fitted.astype(np.float32), best[-1].astype(np.float32)


def whitening(features: Float32Array, ridge: float) -> Float64Array | None:
    """A (d, d) with Aᵀ·(XᵀX/n + ridge·1)·A = 1: in W = A·V the loss is about equally curved in all directions.

    L-BFGS then needs two to three times fewer steps. None where features are too many for it to pay.
    """
    from scipy.linalg import cholesky, solve_triangular

    size, width = features.shape
    if width > WIDEST_WHITENED:
        return None
    gram = (features.T @ features).astype(np.float64) / size
    gram[np.diag_indices(width)] += ridge + 1e-6 * gram.trace() / width  # more than float32 sums can be wrong by
    inverse: Float64Array = solve_triangular(cholesky(gram, lower=True), np.eye(width), lower=True)
    return inverse.T


class SoftmaxLoss:
    """Mean softmax loss and its gradient at V and the offsets, flat: float32 inside, summed and given in float64."""

    def __init__(
        self, features: Float32Array, places: IntArray, weights: Float32Array, ridge: float, back: Float64Array | None
    ) -> None:
        self.features, self.places, self.weights, self.ridge = features, places, weights / len(places), ridge
        self.metric = None if back is None else back.T @ back  # ‖A·V‖² = Σ V·(AᵀA)V
        self.rows = np.arange(len(places))

    def __call__(self, flat: Float64Array) -> tuple[float, Float64Array]:
        """The loss, and its gradient in the shape of the argument."""
        both = flat.reshape(self.features.shape[1] + 1, -1)  # (d + 1, S)
        inner = both[:-1]
        logits = self.features @ inner.astype(np.float32) + both[-1].astype(np.float32)  # (n, S)
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[self.rows, self.places].astype(np.float64)
        np.exp(logits, out=logits)
        sums = logits.sum(axis=1)
        loss = float(self.weights.astype(np.float64) @ (np.log(sums.astype(np.float64)) - own))
        logits *= (self.weights / sums)[:, None]
        logits[self.rows, self.places] -= self.weights
        shrunk = self.ridge * (inner if self.metric is None else self.metric @ inner)
        gradient = np.vstack([self.features.T @ logits + shrunk, logits.sum(axis=0, dtype=np.float64)])
        return loss + float((inner * shrunk).sum()) / 2, gradient.ravel()
