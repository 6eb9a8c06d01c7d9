"""Long-tailed pools with exact counts (PAPER §7): how many images each class keeps, and which.

Counts and labels in, counts and sorted indices out. Reserve the initial set first, then make the rest long-tailed.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput, PoolExhausted
from ..types import Float64Array, IntArray


def step_profile(counts: IntArray, factor: float, tail: IntArray | None = None) -> IntArray:
    """Tail classes keep the fraction `factor`, the others all; the tail is classes C/2..C−1 unless given.

    >>> step_profile(np.array([4500, 4500, 4500, 4500]), 0.1).tolist()
    [4500, 4500, 450, 450]
    >>> step_profile(np.array([10, 10, 10]), 0.3, tail=np.array([0])).tolist()
    [3, 10, 10]
    """
    _check_factor(factor)
    classes = len(counts)
    fractions = np.ones(classes)
    fractions[np.arange(classes // 2, classes) if tail is None else tail] = factor
    return _whole(counts * fractions)


def exponential_profile(counts: IntArray, factor: float, order: IntArray | None = None) -> IntArray:
    """n_k = n·IF^(k/(C−1)) with k the place in `order`: the first class keeps all, the last the fraction `factor`.

    >>> exponential_profile(np.array([100, 100, 100]), 0.01).tolist()
    [100, 10, 1]
    >>> exponential_profile(np.array([100, 100, 100]), 0.01, order=np.array([2, 0, 1])).tolist()
    [10, 1, 100]
    """
    _check_factor(factor)
    places = np.empty(len(counts))  # (C,), 0 … 1
    places[slice(None) if order is None else order] = np.arange(len(counts)) / max(len(counts) - 1, 1)
    return _whole(counts * factor**places)


def keep_counts(labels: IntArray, wanted: IntArray, rng: np.random.Generator) -> IntArray:
    """Indices of exactly wanted[k] samples of each class k, chosen by chance; ascending.

    >>> keep_counts(np.array([0, 1, 0, 1, 1]), np.array([2, 0]), np.random.default_rng(0)).tolist()
    [0, 2]
    """
    kept = [np.empty(0, dtype=np.int64)]
    for cls, number in enumerate(wanted):
        members = np.flatnonzero(labels == cls)
        if number > len(members):
            raise PoolExhausted(
                f"asked for {number} samples of class {cls}, but there are {len(members)}; ask for fewer"
            )
        kept.append(rng.permutation(members)[:number])
    return np.sort(np.concatenate(kept)).astype(np.int64)


def initial_set(labels: IntArray, classes: int, per_class: int, rng: np.random.Generator) -> IntArray:
    """Indices of a class-uniform first labelled set: `per_class` samples of each class, ascending."""
    return keep_counts(labels, np.full(classes, per_class, dtype=np.int64), rng)


def _whole(numbers: Float64Array) -> IntArray:
    """The nearest whole numbers, halves up: 4500·0.1 is 450 whatever the last bit says."""
    return np.floor(numbers + 0.5).astype(np.int64)


def _check_factor(factor: float) -> None:
    if not 0 < factor <= 1:
        raise BadInput(f"imbalance factor is {factor:g}; it must lie in (0, 1], where 1 is balanced")
