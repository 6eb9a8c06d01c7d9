"""What every head on features shares: a last layer over the classes seen, asked in chunks, with and without dropout.

Inputs in; softmax (n, C), embeddings (n, h) and dropout passes (T, n, C) out, all float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ..blas import one_blas_thread
from ..errors import BadInput
from ..pool.images import Inputs
from ..types import IntArray
from .features import Float32Array, Scaling, chunks, width_of
from .store import StoredModel, damaged, load_model, save_model

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

    def last_inputs(self, features: Float32Array) -> Float32Array:
        """What goes into the last layer, of scaled features (n, d) → (n, h)."""
        return features

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
        width = len(self.scaling.centre)
        if width_of(inputs) != width:
            raise BadInput(f"inputs {inputs.shape} have {width_of(inputs)} numbers each; the model learnt from {width}")
        for where, rows in chunks(inputs):
            yield where, self.last_inputs(self.scaling.scaled(rows))


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
