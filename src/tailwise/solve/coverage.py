"""How well labelled and picked images represent a pool, and picking those that represent it best (herding).

    F(S) = Σ_n w_n · max over j in L ∪ S of k(n, j),   k(n, j) = exp(−‖x_n − x_j‖² / s²),   Σ w = 1,  rows x of length 1

F is monotone and submodular: what an image adds only falls as others are picked. So a stale gain is an upper bound
(lazy evaluation is exact), and F(S) plus the b largest gains at S bounds what any batch of b can reach. Embeddings in,
picks out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..blas import one_blas_thread
from ..types import Float64Array, FloatArray, IntArray
from .blocks import map_blocks

REFERENCES = 1_500  # images that stand for the pool; more did not change what was learnt from the picks
BLOCK_ROWS = 512  # rows whose similarities are computed together: the same sums, whatever the number of threads
CHECKED_AT_ONCE = 32  # stale gains that are computed anew together
Float32Array = NDArray[np.float32]


def unit_rows(rows: FloatArray) -> Float32Array:
    """Rows of length 1, in float32; a row of zeros stays so.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    wide = np.asarray(rows, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", wide, wide))[:, None]
    units: Float64Array = np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)
    return units.astype(np.float32)


def squared_distances(rows: Float32Array, others: Float32Array) -> Float32Array:
    """‖x_i − y_j‖² of rows of length 1 (or 0), (m, n), never below 0."""
    result: Float32Array = rows @ others.T
    result *= -2
    result += np.einsum("ij,ij->i", rows, rows)[:, None]
    result += np.einsum("ij,ij->i", others, others)
    return np.maximum(result, 0, out=result)


def kernel_width(rows: Float32Array, least: float = 1e-4) -> float:
    """s²: the median squared distance of images to the nearest other one; 1 where there are fewer than two.

    >>> kernel_width(unit_rows(np.array([[1.0, 0.0], [0.0, 1.0]])))
    2.0
    """
    if len(rows) < 2:
        return 1.0

    def nearest(where: slice) -> Float32Array:
        distances = squared_distances(rows[where], rows)
        distances[np.arange(len(distances)), np.arange(where.start, where.stop)] = np.inf
        closest: Float32Array = distances.min(axis=1)
        return closest

    with one_blas_thread():
        return max(float(np.median(np.concatenate(map_blocks(len(rows), BLOCK_ROWS, nearest)))), least)


def sample_references(weights: Float64Array, count: int, rng: np.random.Generator) -> tuple[IntArray, Float64Array]:
    """Images drawn in proportion to their weights, and the weights that they stand for, summing to 1.

    Systematic sampling: an image that weighs more than 1/count of the whole is always drawn, and keeps its own weight.

    >>> rows, shares = sample_references(np.array([1.0, 0.0, 3.0]), 2, np.random.default_rng(0))
    >>> rows.tolist(), shares.tolist()
    ([0, 2], [0.25, 0.75])
    """
    total = float(weights.sum())
    weights = weights / total if total > 0 else np.full(len(weights), 1 / len(weights))
    positive = np.flatnonzero(weights)
    if len(positive) <= count:
        return positive, weights[positive]
    chance = inclusion_chances(weights, count)
    steps = rng.random() + np.arange(count)
    drawn = np.unique(np.minimum(np.searchsorted(np.cumsum(chance), steps, side="right"), len(weights) - 1))
    shares = weights[drawn] / chance[drawn]
    return drawn, shares / shares.sum()


def inclusion_chances(weights: Float64Array, count: int) -> Float64Array:
    """min(1, c·w) with c such that they sum to `count`, (n,): how likely each image is drawn."""
    heaviest = np.sort(weights)[::-1]
    rest = weights.sum() - np.concatenate([[0.0], np.cumsum(heaviest)[:-1]])  # without the i heaviest
    factors = (count - np.arange(len(weights))) / np.maximum(rest, 1e-300)
    certain = int(np.argmax(factors * heaviest <= 1))  # the fewest that must be drawn, so that no other exceeds 1
    chances: Float64Array = np.minimum(weights * factors[certain], 1.0)
    return chances


@dataclass(slots=True, eq=False)
class Coverage:
    """How well each reference is represented by what is labelled or picked; `add` changes it."""

    references: Float32Array  # (R, d) rows of length 1
    weights: Float64Array  # (R,), summing to 1
    width: float  # s²
    covered: Float32Array  # (R,) the largest k so far; 0 where nothing is labelled

    @classmethod
    def of(cls, references: Float32Array, weights: Float64Array, labelled: Float32Array, width: float) -> Coverage:
        """Coverage by what is labelled, (L, d), rows of length 1."""
        coverage = cls(references, weights, width, np.zeros(len(references), np.float32))
        with one_blas_thread():
            for start in range(0, len(labelled), BLOCK_ROWS):
                coverage.add(coverage.similarities(labelled[start : start + BLOCK_ROWS]))
        return coverage

    @property
    def value(self) -> float:
        """F of what is labelled and picked."""
        return float(self.weights @ self.covered)

    def similarities(self, rows: Float32Array) -> Float32Array:
        """k(n, j) of rows (m, d) and references, (m, R)."""
        distances = squared_distances(rows, self.references)
        distances *= np.float32(-1 / self.width)
        return np.exp(distances, out=distances)

    def gains(self, rows: Float32Array) -> Float64Array:
        """By how much each row, alone, would raise F, (m,)."""

        def work(where: slice) -> Float64Array:
            more = self.similarities(rows[where])
            more -= self.covered
            return np.maximum(more, 0, out=more) @ self.weights

        with one_blas_thread():
            return np.concatenate([np.empty(0), *map_blocks(len(rows), BLOCK_ROWS, work)])

    def add(self, similarities: Float32Array) -> None:
        """Count rows as labelled, by their similarities (m, R)."""
        np.maximum(self.covered, similarities.max(axis=0, initial=0.0), out=self.covered)


@dataclass(frozen=True, slots=True, eq=False)
class Herd:
    """A batch that was picked greedily, and what it reaches."""

    indices: IntArray  # (b,) in the order of picking
    gains: Float64Array  # (b,) by how much each raised F; they never rise
    value: float  # F with the batch
    bound: float  # no batch of this size has a larger F


def herd(coverage: Coverage, rows: Float32Array, budget: int) -> Herd:
    """Pick the row with the largest gain, again and again; equal gains go to the lower row.

    >>> rows = unit_rows(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))  # the first two are copies
    >>> herd(Coverage.of(rows, np.full(3, 1 / 3), rows[:0], width=1.0), rows, 2).indices.tolist()
    [0, 2]
    """
    start, gains = coverage.value, coverage.gains(rows)
    bound = start + float(np.sort(gains)[len(gains) - budget :].sum())
    picks, raised = np.empty(budget, dtype=np.int64), np.empty(budget)
    known_at = np.zeros(len(rows), dtype=np.int64)  # after how many picks each gain was computed
    for turn in range(budget):
        best = int(gains.argmax())
        while known_at[best] < turn:
            stale = np.argpartition(-gains, min(CHECKED_AT_ONCE, len(gains)) - 1)[:CHECKED_AT_ONCE]
            stale = np.append(stale[known_at[stale] < turn], best)
            gains[stale], known_at[stale] = coverage.gains(rows[stale]), turn
            best = int(gains.argmax())
        picks[turn], raised[turn] = best, gains[best]
        coverage.add(coverage.similarities(rows[best : best + 1]))
        gains[best] = -np.inf
    left = np.setdiff1d(np.arange(len(rows)), picks)
    after = np.sort(coverage.gains(rows[left]))
    bound = min(bound, coverage.value + float(after[max(0, len(after) - budget) :].sum()))
    return Herd(picks, raised, coverage.value, bound)
