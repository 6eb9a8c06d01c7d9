"""Learner "mlp": a network with one hidden layer in plain numpy, features or pixels in, softmax (n, C) out.

A class without labels has the probability 0 in its own column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..pools.pool import Inputs
from ..processes import one_blas_thread
from ..types import IntArray, Progress, no_progress
from .learner import check_labels, learner
from .linear import Float32Array, Head, Scaling, all_features, check_settings, dropped, load_head, row_weights, softmax

DECAYS = (0.9, 0.999)  # Adam's memory of the gradient and of its square
TINY = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class MlpModel(Head):
    """Fitted weights; its embedding is the hidden layer."""

    kind: ClassVar[str] = "mlp"

    hidden_weights: Float32Array  # (d, h)
    hidden_offsets: Float32Array  # (h,)

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything that was learnt, by name."""
        hidden = {"hidden_weights": self.hidden_weights, "hidden_offsets": self.hidden_offsets}
        return {**Head.tensors(self), **hidden}

    def _hidden(self, inputs: Inputs) -> Iterator[tuple[slice, Float32Array]]:
        """The hidden layer, chunk by chunk, (m, h)."""
        for where, features in Head._hidden(self, inputs):
            yield where, rectified(features, self.hidden_weights, self.hidden_offsets)


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class MlpLearner:
    """One hidden ReLU layer with dropout before the last layer, trained by Adam with a cosine schedule.

    Attributes
    ----------
    width: units of the hidden layer.
    dropout: rate before the last layer, in training and in `mc_proba`; `predict_proba` has none.
    epochs: rounds through the labelled set; more where those are fewer than `least_steps` steps.
    least_steps: steps that a small labelled set gets at least.
    batch: rows per step.
    rate: learning rate at the start.
    weight_decay: share of the weights, times the rate, that each step takes away; offsets keep theirs.
    class_weight: "none", or "balanced": every class seen weighs the same in the loss.
    scale: how features are scaled, as in the linear learner.

    Examples
    --------
    >>> learner = MlpLearner(width=8, least_steps=100)
    >>> model = learner.fit(np.array([[0.0], [1.0]]), np.array([0, 2]), classes=3, seed=0)
    >>> model.predict_proba(np.array([[1.0]])).argmax()
    np.int64(2)
    """

    name: ClassVar[str] = "mlp"

    width: int = 256
    dropout: float = 0.5
    epochs: int = 20
    least_steps: int = 500
    batch: int = 128
    rate: float = 1e-3
    weight_decay: float = 1.0
    class_weight: str = "none"
    scale: str = "common"

    def __post_init__(self) -> None:
        check_settings(class_weight=self.class_weight, dropout=self.dropout)
        for setting in ("width", "epochs", "least_steps", "batch"):
            if getattr(self, setting) < 1:
                raise BadInput(f"{setting} is {getattr(self, setting)}; it must be a whole number above 0")
        if not 0 < self.rate < np.inf or not 0 <= self.weight_decay < np.inf:
            raise BadInput(f"rate is {self.rate} and weight_decay {self.weight_decay}; they must be > 0 and ≥ 0")

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int, report: Progress = no_progress,
        checkpoint: Path | None = None,  # noqa: ARG002 - a matter of seconds
    ) -> MlpModel:  # fmt: skip
        """Fit on a labelled set in which any class may be missing, or all but one."""
        check_labels(inputs, labels, classes)
        features = all_features(inputs)  # (n, d)
        scaling = Scaling.fit(features, self.scale)
        seen, places = np.unique(labels, return_inverse=True)
        rng = np.random.default_rng(seed)
        layers = Layers.random((features.shape[1], self.width, len(seen)), rng)
        with one_blas_thread():
            self._train(layers, scaling.scaled(features), places, row_weights(labels, self.class_weight), rng, report)
        first, first_offsets, last, offsets = layers.parts
        return MlpModel(classes, self.dropout, seen.astype(np.int64), scaling, last, offsets, first, first_offsets)

    def load(self, folder: Path) -> MlpModel:
        """A model that was saved."""
        last = {"seen": "S", "weights": "hS", "offsets": "S"}
        first = {"centre": "d", "spread": "d", "hidden_weights": "dh", "hidden_offsets": "h"}
        stored = load_head(folder, MlpModel.kind, last | first)
        classes, dropout, kept = stored.settings["classes"], stored.settings["dropout"], stored.tensors
        scaling = Scaling(kept["centre"], kept["spread"])
        layers = (kept[name] for name in ("weights", "offsets", "hidden_weights", "hidden_offsets"))
        return MlpModel(classes, dropout, kept["seen"], scaling, *layers)

    def _train(
        self, layers: Layers, features: Float32Array, places: IntArray, weights: Float32Array,
        rng: np.random.Generator, report: Progress,
    ) -> None:  # fmt: skip
        """Adam on shuffled batches; the layers are changed in place."""
        per_epoch = -(-len(places) // self.batch)
        epochs = max(self.epochs, -(-self.least_steps // per_epoch))
        adam = Adam(layers, self.rate, self.weight_decay, epochs * per_epoch)
        for epoch in range(epochs):
            order = rng.permutation(len(places))
            loss = 0.0
            for rows in np.array_split(order, per_epoch):  # of nearly equal sizes: no step rests on a few rows
                loss += layers.learn(features[rows], places[rows], weights[rows], self.dropout, rng)
                adam.step()
            report((epoch + 1) / epochs, f"epoch {epoch + 1} of {epochs}, loss {loss / per_epoch:.4f}")


class Layers:
    """Weights and gradients of both layers, each as one flat vector that the matrices are views of."""

    def __init__(self, sizes: tuple[int, int, int]) -> None:
        width, hidden, groups = sizes  # d, h, S
        shapes = ((width, hidden), (hidden,), (hidden, groups), (groups,))
        total = sum(int(np.prod(shape)) for shape in shapes)
        self.values, self.gradient = np.zeros(total, np.float32), np.zeros(total, np.float32)
        self.parts = _views(self.values, shapes)
        self.slopes = _views(self.gradient, shapes)

    @classmethod
    def random(cls, sizes: tuple[int, int, int], rng: np.random.Generator) -> Layers:
        """Weights that keep the size of what passes through them (He); offsets 0."""
        layers = cls(sizes)
        for part in layers.parts[::2]:
            part[:] = rng.standard_normal(part.shape, dtype=np.float32) * np.sqrt(2 / len(part))
        layers.parts[2][:] *= np.sqrt(0.5)  # no ReLU follows the last layer
        return layers

    def learn(
        self, features: Float32Array, places: IntArray, weights: Float32Array, rate: float, rng: np.random.Generator
    ) -> float:
        """Mean loss of a batch with dropout; its gradient is left in `gradient`."""
        first, first_offsets, last, offsets = self.parts
        hidden = rectified(features, first, first_offsets)  # (m, h)
        kept = dropped(hidden, rate, rng) if rate else hidden
        proba = softmax(kept @ last + offsets)  # (m, S)
        own = np.arange(len(places)), places
        loss = float(-(weights * np.log(np.maximum(proba[own], np.float32(1e-30)))).mean())
        proba[own] -= 1.0
        proba *= weights[:, None] / len(places)  # now the slope of the logits
        np.matmul(kept.T, proba, out=self.slopes[2])
        np.sum(proba, axis=0, out=self.slopes[3])
        back = proba @ last.T  # (m, h); a dropped or a negative unit passes nothing back
        back *= kept > 0
        back /= np.float32(1 - rate)
        np.matmul(features.T, back, out=self.slopes[0])
        np.sum(back, axis=0, out=self.slopes[1])
        return loss


class Adam:
    """Adam with decoupled weight decay on a cosine schedule from `rate` to 0."""

    def __init__(self, layers: Layers, rate: float, weight_decay: float, steps: int) -> None:
        self.layers, self.rate, self.weight_decay, self.steps = layers, rate, weight_decay, steps
        self.mean, self.square = np.zeros_like(layers.values), np.zeros_like(layers.values)
        self.done = 0

    def step(self) -> None:
        """Move the layers by the gradient that is in them."""
        gradient = self.layers.gradient
        rate = self.rate * (1 + np.cos(np.pi * self.done / self.steps)) / 2
        self.done += 1
        for memory, decay, new in ((self.mean, DECAYS[0], gradient), (self.square, DECAYS[1], gradient * gradient)):
            memory *= np.float32(decay)
            memory += np.float32(1 - decay) * new
        start, start_square = (1 - decay**self.done for decay in DECAYS)  # both memories began at 0
        for part in self.layers.parts[::2]:
            part *= np.float32(1 - rate * self.weight_decay)
        root = np.sqrt(self.square)
        root *= np.float32(1 / np.sqrt(start_square))
        root += np.float32(TINY)
        self.layers.values -= np.float32(rate / start) * (self.mean / root)


def rectified(features: Float32Array, weights: Float32Array, offsets: Float32Array) -> Float32Array:
    """max(x·W + offsets, 0), (n, d) → (n, h)."""
    hidden = features @ weights
    hidden += offsets
    np.maximum(hidden, 0, out=hidden)
    return hidden


def _views(flat: Float32Array, shapes: tuple[tuple[int, ...], ...]) -> list[Float32Array]:
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    pieces = np.split(flat, ends[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]
