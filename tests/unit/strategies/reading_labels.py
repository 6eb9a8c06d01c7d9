"""Pools whose labels can be read, for the tests of strategies that do so; and the order of each class, spelt out."""

from __future__ import annotations

import numpy as np

import tailwise
from tailwise.experiments.trial_run import RecordingOracle


class Case:
    """Softmax of a pool and of a labelled set, with true labels that the model often gets wrong."""

    def __init__(self, seed: int, size: int, labelled: int, classes: int, *, ties: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(classes, size=size + labelled)
        logits = rng.normal(size=(size + labelled, classes)) + 2.0 * np.eye(classes)[self.labels]
        proba = np.exp(1.5 * logits)
        proba = proba.round(1) + 0.1 if ties else proba
        self.proba = proba / proba.sum(axis=1, keepdims=True)
        self.size, self.classes = size, classes
        self.oracle = RecordingOracle(self.labels[:size])

    @property
    def predictions(self) -> tailwise.Predictions:
        return tailwise.Predictions(
            self.proba[: self.size],
            labelled_proba=self.proba[self.size :],
            labelled_labels=self.labels[self.size :],
        )

    def select(self, name: str, budget: int, seed: int = 0) -> list[int]:
        made = tailwise.strategies.make(name, balance=0)
        return made.select(self.predictions, budget, seed=seed, oracle=self.oracle).indices.tolist()

    def order(self, cls: int) -> list[int]:
        """Images by p_k − the largest other p, the largest first, then by number; the pool before the labelled set."""

        def key(image: int) -> tuple[float, int]:
            others = [p for k, p in enumerate(self.proba[image]) if k != cls]
            return -(self.proba[image, cls] - max(others, default=0.0)), image

        return sorted(range(len(self.labels)), key=key)
