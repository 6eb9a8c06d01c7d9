"""Falcun (Gilhuber, Beer, Ma and Seidl 2024): uncertain images unlike each other, drawn by their softmax.

    chance of i ∝ (u_i + d_i)^γ,   u = 1 − margin,   d_i = distance of p_i to the nearest pick

It reads no embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np

from ..inputs import real_number
from ..matrix.blocks import map_blocks, rows_per_block
from ..matrix.shards import Column, Rows
from ..selection import Selection
from ..types import Float64Array, IntArray, Predictions
from .strategy import Base, Imbalance, Task, chance_scale, draw, strategy, tilted


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
