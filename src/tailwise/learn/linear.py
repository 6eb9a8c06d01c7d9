"""Logistic regression over a fixed number of classes: features or pixels and labels in, softmax (n, C) out.

Columns never shift: a class with no label yet has the probability 0 in its own column.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..blas import one_blas_thread
from ..errors import BadInput
from ..pool.images import Inputs
from ..types import Float64Array, IntArray, Progress, unheard
from .base import check_labels, learner
from .features import Float32Array, Scaling, all_features
from .head import Head, check_settings, load_head, row_weights

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
        report: Progress = unheard, checkpoint: Path | None = None,  # noqa: ARG002 - a matter of seconds
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
