"""Long-tailed softmax matrices with realistic confusion: (N, C, seed) in, the same probabilities and labels every time.

Similar classes are confused with each other, hard images are spread over many classes, rare classes are rare.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 65_536
IMBALANCE = 0.01  # the rarest class is so often as common as the commonest
BUDGET_SHARE = 18  # one row in so many is picked: 2,500 of 45,000, as in the paper

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Instance:
    """The name of a pool; `generate` makes it."""

    size: int  # N
    classes: int  # C
    seed: int

    @property
    def name(self) -> str:
        """Its size, as shown in tables."""
        return f"{self.size:,} × {self.classes:,}"

    @property
    def budget(self) -> int:
        """b."""
        return self.size // BUDGET_SHARE

    @property
    def omega(self) -> Array:
        """Ω with nothing labelled, (C,)."""
        return np.full(self.classes, self.budget / self.classes)


def generate(instance: Instance) -> tuple[Array, Array]:
    """Probabilities (N, C) float32 and true labels (N,)."""
    proba = np.empty((instance.size, instance.classes), dtype=np.float32)
    labels = np.empty(instance.size, dtype=np.int64)
    for where, block, drawn in blocks(instance):
        proba[where], labels[where] = block, drawn
    return proba, labels


def write(instance: Instance, path: Path, dtype: str) -> None:
    """The probabilities as a .npy file, block by block, so that no more than a block is ever in memory."""
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=(instance.size, instance.classes))
    for where, block, _ in blocks(instance):
        file[where] = block
    file.flush()


def blocks(instance: Instance) -> Iterator[tuple[slice, Array, Array]]:
    """Slices of the pool, each with its probabilities (n, C) and true labels (n,)."""
    rng = np.random.default_rng(instance.seed)
    centres = rng.standard_normal((instance.classes, int(np.clip(instance.classes // 2, 8, 64))))  # e (C, dim)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    prior = long_tail(instance.classes)
    for start in range(0, instance.size, BLOCK_ROWS):
        count = min(BLOCK_ROWS, instance.size - start)
        labels = rng.choice(instance.classes, size=count, p=prior)
        noise = rng.gamma(2.0, 0.25, size=(count, 1)) * rng.standard_normal((count, centres.shape[1]))
        features = (centres[labels] + noise).astype(np.float32)  # (n, dim)
        logits = 6.0 * (features @ centres.T.astype(np.float32)) + 0.3 * np.log(prior).astype(np.float32)
        yield slice(start, start + count), softmax(logits), labels


def long_tail(classes: int) -> Array:
    """Class shares that fall exponentially to a hundredth, (C,)."""
    shares: Array = IMBALANCE ** (np.arange(classes) / (classes - 1))
    shares /= shares.sum()
    return shares


def softmax(logits: Array) -> Array:
    """Rows that sum to one, in place."""
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def costs(proba: Array) -> Array:
    """u (N,): the very numbers that `tailwise.select` minimises, so that every solver is given the same program."""
    from tailwise.score import entropy

    return -np.asarray(entropy(proba), dtype=np.float64)


def objective(instance: Instance, proba: Array, picks: Array) -> float:
    """uᵀz + ‖Ω − Pᵀz‖₁ (λ = 1) in float64, from the picks alone; inf where they are no batch of b rows."""
    picks = np.asarray(picks, dtype=np.int64)
    if len(np.unique(picks)) != instance.budget or len(picks) != instance.budget:
        return np.inf
    rows = proba[picks]
    distance = np.abs(instance.omega - rows.sum(axis=0, dtype=np.float64)).sum()
    return float(costs(rows).sum() + distance)
