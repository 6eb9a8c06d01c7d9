"""Algorithm 2's term for methods that pick one image at a time: what each image would add to λ·dist(Pᵀz, [low, high]).

Each class's part of the distance is convex in its expected count, and counts only rise, so what an image would add
never falls while others are picked: an outdated number is a lower bound.

Methods that draw images in proportion to weights w multiply these by exp(−λ·(what the image adds)). So λ = 0 is the
method as published, and a large λ leaves only images that bring the batch nearest to its target.
"""

from __future__ import annotations

import numpy as np

from ..matrix.blocks import map_blocks, rows_per_block
from ..matrix.shards import Rows
from ..targets import Ranges
from ..types import BoolArray, Float64Array, FloatArray, IntArray


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


def tilted(weights: Float64Array, open_: BoolArray, imbalance: Imbalance) -> Float64Array:
    """Weights (N,) times exp(−what each row adds to the imbalance), 0 for closed rows, the largest one 1.

    Where no open row has a weight, all have the same.
    """
    usable = np.where(open_, weights, 0.0)
    if not usable.any():
        usable = open_.astype(np.float64)
    if imbalance.lam == 0:
        return np.asarray(usable / usable.max())
    rows = imbalance.rows
    parts = map_blocks(rows.size, rows_per_block(rows.classes), lambda where: imbalance.added(rows.read(where)))
    with np.errstate(divide="ignore"):  # log 0 = −inf: never drawn
        logs = np.log(usable) - np.concatenate(parts)
    return np.asarray(np.exp(logs - logs.max()))


def draw(weights: Float64Array, rng: np.random.Generator) -> int:
    """A row in proportion to its weight, by one random number and the cumulative sum.

    >>> draw(np.array([0.0, 2.0, 0.0]), np.random.default_rng(0))
    1
    """
    reached = weights.cumsum()
    place = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
    return min(place, int(np.flatnonzero(weights)[-1]))  # rounding may reach beyond the last


def chance_scale(size: int) -> float:
    """The λ at which an image that adds one sample to the imbalance is drawn a pool's size less often: log N.

    >>> f"{chance_scale(1_000):.2f}"
    '6.91'
    """
    return max(1.0, float(np.log(max(size, 1))))
