"""Logistic regression over a fixed number of classes: features (n, d) and labels (n,) in, softmax (m, C) out.

Columns never shift: a class with no label yet has the probability 0 in its own column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import BadInput
from ..types import Float64Array, FloatArray, IntArray

MOST_STEPS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class LinearModel:
    """Fitted weights; classes that were never seen are not `seen` and have probability 0."""

    classes: int
    seen: IntArray  # (S,) ascending
    weights: Float64Array  # (d, S)
    offsets: Float64Array  # (S,)
    centre: Float64Array  # (d,)
    spread: Float64Array  # (d,)

    def predict_proba(self, features: FloatArray) -> Float64Array:
        """Softmax over the classes, (m, C); rows sum to 1."""
        logits = ((features - self.centre) / self.spread) @ self.weights + self.offsets  # (m, S)
        logits -= logits.max(axis=1, keepdims=True)
        np.exp(logits, out=logits)
        proba = np.zeros((len(logits), self.classes))
        proba[:, self.seen] = logits / logits.sum(axis=1, keepdims=True)
        return proba


@dataclass(frozen=True, slots=True)
class LinearLearner:
    """Fits a multinomial logistic regression on standardised features.

    >>> learner = LinearLearner(classes=3)
    >>> model = learner.fit(np.array([[0.0], [1.0]]), np.array([0, 2]))
    >>> model.predict_proba(np.array([[1.0]])).round(2).tolist()
    [[0.34, 0.0, 0.66]]
    """

    classes: int
    strength: float = 1.0
    """Inverse of the regularisation, scikit-learn's C."""

    def fit(self, features: FloatArray, labels: IntArray) -> LinearModel:
        """Fit on a labelled set in which any class may be missing, or all but one."""
        self._check(features, labels)
        centre = features.mean(axis=0, dtype=np.float64)  # (d,)
        spread = features.std(axis=0, dtype=np.float64)
        spread = np.where(spread > 0, spread, 1.0)  # a constant feature says nothing, and divides nothing
        seen = np.unique(labels).astype(np.int64)
        weights, offsets = np.zeros((features.shape[1], len(seen))), np.zeros(len(seen))
        if len(seen) > 1:
            weights, offsets = self._logistic((features - centre) / spread, labels)
        return LinearModel(self.classes, seen, weights, offsets, centre, spread)

    def _logistic(self, features: Float64Array, labels: IntArray) -> tuple[Float64Array, Float64Array]:
        """Weights (d, S) and offsets (S,) from scikit-learn, which gives two classes as one column."""
        from sklearn.linear_model import LogisticRegression

        fitted = LogisticRegression(C=self.strength, max_iter=MOST_STEPS).fit(features, labels)
        weights, offsets = fitted.coef_.T, fitted.intercept_
        if weights.shape[1] == 1:  # sigmoid(x) is the softmax of (0, x)
            return np.hstack([0 * weights, weights]), np.append(0.0, offsets)
        return weights, offsets

    def _check(self, features: FloatArray, labels: IntArray) -> None:
        if features.ndim != 2 or labels.shape != (len(features),):
            raise BadInput(f"features {features.shape} and labels {labels.shape} do not belong together")
        if not len(labels):
            raise BadInput("nothing to learn from: the labelled set is empty; label a first batch")
        if labels.min() < 0 or labels.max() >= self.classes:
            raise BadInput(f"labels run from {labels.min()} to {labels.max()}, but there are {self.classes} classes")
