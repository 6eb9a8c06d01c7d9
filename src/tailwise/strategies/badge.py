"""BADGE and Falcun: images that are uncertain and unlike each other, drawn one after the other.

BADGE (Ash et al. 2020) is k-means++ on the gradients that the last layer would get if the model's guess were right:

    g_i = e_i ⊗ h_i,   e_i = onehot(ŷ_i) − p_i,   ‖g_i − g_j‖² = ‖e_i‖²‖h_i‖² + ‖e_j‖²‖h_j‖² − 2 (e_i·e_j)(h_i·h_j)

The C·d numbers of a gradient are never stored. Falcun (Gilhuber, Beer, Ma and Seidl 2024) draws by the softmax alone:

    chance of i ∝ (u_i + d_i)^γ,   u = 1 − margin,   d_i = distance of p_i to the nearest pick
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..inputs import real_number
from ..matrix.blocks import map_blocks, rows_per_block
from ..matrix.shards import Column, Rows
from ..processes import one_blas_thread
from ..selection import Selection
from ..types import Float64Array, FloatArray, IntArray, Predictions
from .strategy import Base, Imbalance, Task, chance_scale, checked_matrix, draw, strategy, tilted

SAME = 1e-5  # of ‖g_i‖² + ‖g_j‖²: less is rounding in float32, and the two are copies
SCALED_ROWS = 4_096  # embeddings that are scaled at a time


@strategy
@dataclass(frozen=True, kw_only=True)
class Badge(Base):
    """Images whose gradients would be long and unlike each other, drawn by k-means++.

    The first pick is the image with the longest gradient, as in the authors' code; each later one is drawn in
    proportion to its squared distance from the nearest pick. With balance, chances are multiplied by exp(−λ·what the
    image adds to the imbalance). Costs N·(C + d) products for each pick, and N·(C + d) numbers in float32.
    """

    name: ClassVar[str] = "badge"
    title: ClassVar[str] = "BADGE"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the distances at which the picks were made."""
        embedded = np.asarray(checked_matrix(predictions.embeddings, "embeddings", task.rows.size))
        with one_blas_thread():
            pick = cache(partial(_k_means_plus_plus, task, Gradients.of(task.rows, embedded)))
            lam = task.find_lam(self.balance, lambda lam: pick(lam)[0], costs, scale=chance_scale(task.rows.size))
            picks, reached = pick(lam.value)
        return task.selection(picks, informativeness=reached, balance=self.balance, lam=lam, method=self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Gradients in their two factors; embeddings are scaled so that no product overflows."""

    errors: NDArray[np.float32]  # e (N, C)
    hidden: NDArray[np.float32]  # h (N, d), the largest number ±1
    scale: float  # by which h was divided
    lengths: Float64Array  # ‖g‖² (N,)

    @classmethod
    def of(cls, rows: Rows, embedded: FloatArray) -> Gradients:
        """From probabilities and embeddings (N, d)."""

        def error(where: slice) -> NDArray[np.float32]:
            proba = rows.read(where).astype(np.float64)
            guess = proba.argmax(axis=1)
            proba *= -1
            proba[np.arange(len(proba)), guess] += 1.0
            return proba.astype(np.float32)

        parts = map_blocks(rows.size, rows_per_block(rows.classes), error)
        errors = np.concatenate([np.empty((0, rows.classes), np.float32), *parts])
        scale = float(np.abs(embedded).max(initial=0.0)) or 1.0
        hidden = np.empty(embedded.shape, np.float32)
        for start in range(0, len(embedded), SCALED_ROWS):
            where = slice(start, start + SCALED_ROWS)
            hidden[where] = embedded[where].astype(np.float64) / scale
        lengths = _squares(errors) * _squares(hidden)
        return cls(errors, hidden, scale, lengths)

    def distances(self, row: int) -> Float64Array:
        """‖g_i − g_row‖² of all rows, (N,); 0 for copies."""
        product = (self.errors @ self.errors[row]).astype(np.float64) * (self.hidden @ self.hidden[row])
        both = self.lengths + self.lengths[row]
        squared = both - 2 * product
        return np.where(squared > SAME * both, squared, 0.0)


def _k_means_plus_plus(task: Task, gradients: Gradients, lam: float) -> tuple[IntArray, float]:
    """Rows in the order of picking, and the sum of the distances at which they were picked."""
    rng, imbalance = np.random.default_rng(task.seed), Imbalance(task.rows, task.ranges, lam)
    open_ = np.ones(task.rows.size, dtype=bool)
    nearest = gradients.lengths.copy()  # squared distance to the nearest pick; before there is one, to 0
    picks, reached = np.empty(task.budget, dtype=np.int64), 0.0
    for turn in range(task.budget):
        chances = tilted(nearest, open_, imbalance)
        picks[turn] = row = draw(chances, rng) if turn else int(chances.argmax())
        reached += gradients.scale * float(np.sqrt(nearest[row]))
        open_[row] = False
        imbalance.add(row)
        squared = gradients.distances(row)
        nearest = np.minimum(nearest, squared) if turn else squared
    return picks, reached


def _squares(rows: NDArray[np.float32]) -> Float64Array:
    """Squared length of each row in float64, (n,)."""
    lengths: Float64Array = np.einsum("ij,ij->i", rows, rows, dtype=np.float64)
    return lengths


# -- Falcun ---------------------------------------------------------------------------------------------------------


@strategy
@dataclass(frozen=True, kw_only=True)
class Falcun(Base):
    """Images with a small margin and a softmax unlike those of the other picks, drawn one at a time.

    d starts as u. After each pick it is the smaller of itself and the l1 distance to the pick's softmax, divided by its
    largest value, so that it stays within 0 and 1 as u does. Where all relevances are 0, any image may be drawn. With
    balance, chances are multiplied by exp(−λ·what the image adds to the imbalance). Costs N·C for each pick.
    """

    gamma: float = 10.0
    """γ: 0 draws at random; the larger, the more surely the most relevant image is drawn."""

    name: ClassVar[str] = "falcun"
    title: ClassVar[str] = "Falcun"
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number(self.gamma, "gamma")

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the relevances u + d at which the picks were made."""
        uncertain = np.maximum(-costs.values(), 0.0)
        pick = cache(partial(self._picks, task, uncertain))
        lam = task.find_lam(self.balance, lambda lam: pick(lam)[0], costs, scale=chance_scale(task.rows.size))
        picks, relevance = pick(lam.value)
        return task.selection(picks, informativeness=relevance, balance=self.balance, lam=lam, method=self.name)

    def _picks(self, task: Task, uncertain: Float64Array, lam: float) -> tuple[IntArray, float]:
        rng, imbalance = np.random.default_rng(task.seed), Imbalance(task.rows, task.ranges, lam)
        open_, distance = np.ones(task.rows.size, dtype=bool), uncertain
        picks, total = np.empty(task.budget, dtype=np.int64), 0.0
        for turn in range(task.budget):
            relevance = uncertain + distance  # (N,)
            most = relevance[open_].max()
            weights = np.minimum(relevance / most, 1.0) ** self.gamma if most > 0 else relevance
            picks[turn] = row = draw(tilted(weights, open_, imbalance), rng)
            total += float(relevance[row])
            open_[row] = False
            imbalance.add(row)
            distance = np.minimum(distance, l1_distances(task.rows, row))
            distance /= distance.max() or 1.0  # the smallest one is 0, that of the pick
        return picks, total


def l1_distances(rows: Rows, row: int) -> Float64Array:
    """‖p_i − p_row‖₁ of all rows, (N,)."""
    from scipy.spatial.distance import cdist

    picked = rows.take(np.array([row]))  # (1, C)

    def work(where: slice) -> Float64Array:
        distances: Float64Array = cdist(picked, rows.read(where), "cityblock")[0]
        return distances

    return np.concatenate(map_blocks(rows.size, rows_per_block(rows.classes), work))
