"""Algorithm 2's term for methods that pick one image at a time: what each image would add to λ·dist(Pᵀz, [low, high]).

Each class's part of the distance is convex in its expected count, and counts only rise, so what an image would add
never falls while others are picked: a stale number is a lower bound. Rows and ranges in, one number per row out.
"""

from __future__ import annotations

import numpy as np

from ..balance.target import Ranges
from ..types import Float64Array, FloatArray, IntArray
from .shards import Rows


def added_distance(ranges: Ranges, expected: Float64Array, rows: FloatArray) -> Float64Array:
    """dist(expected + p, [low, high]) − dist(expected, [low, high]) for rows p (n, C), (n,).

    >>> point = Ranges(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    >>> added_distance(point, np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, -1.0]
    """
    from scipy.spatial.distance import cdist

    low, high = ranges.low - expected, ranges.high - expected
    total = cdist(low[None], rows, "cityblock")[0]
    if (low < high).any():  # dist = ½|s − low| + ½|s − high| − ½(high − low)
        total = (total + cdist(high[None], rows, "cityblock")[0] - (high - low).sum()) / 2
    added: Float64Array = total - ranges.distance(expected)
    return added


class Imbalance:
    """The distance of a growing batch from its target, times λ."""

    def __init__(self, rows: Rows, ranges: Ranges, lam: float) -> None:
        self.rows, self.ranges, self.lam = rows, ranges, lam
        self.expected = np.zeros(rows.classes)  # Pᵀz

    def added(self, rows: FloatArray) -> Float64Array:
        """What each row of probabilities (n, C) would add, (n,); zeros where λ = 0."""
        if self.lam == 0:
            return np.zeros(len(rows))
        return self.lam * added_distance(self.ranges, self.expected, rows)

    def added_by(self, indices: IntArray) -> Float64Array:
        """What each of some rows of the pool would add, (m,); no row is read where λ = 0."""
        return self.added(self.rows.take(indices)) if self.lam else np.zeros(len(indices))

    def add(self, row: int) -> None:
        """Count a row of the pool as picked."""
        if self.lam:
            self.expected += self.rows.take(np.array([row]))[0]
