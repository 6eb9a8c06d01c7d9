"""PCB, also known as TFS: rarest class first, each time an image that the model takes for one of it.

This is the paper's program with hard labels and λ → ∞: counts of predicted classes go before everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import shown
from ..matrix.shards import Column
from ..solver.path import find_lam, scale_of, score_spread
from ..targets import Ranges
from ..types import Float64Array, IntArray, Predictions, Selection
from .strategy import Base, Task, strategy
from .typiclust import Visits

PICKS = ("random", "uncertain")


@strategy
@dataclass(frozen=True, kw_only=True)
class Pcb(Base):
    """Rarest class first: a random or the most uncertain image predicted as it, which then counts as one of it.

    The rarest class is the one farthest below its target, then the one with the fewest labels, then the lowest number;
    without a target of one's own that is the class with the fewest labels. Classes without images that are predicted as
    them are passed over. With balance, the image is chosen by its score less λ·‖Ω − Pᵀz‖₁, as in Algorithm 2; then a
    pick reads the probabilities of all images that are predicted as its class.
    """

    pick: str = "random"
    """Which image of a class: "random", or "uncertain", the one with the smallest margin."""

    name: ClassVar[str] = "pcb"
    title: ClassVar[str] = "PCB"
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        pick: object = self.pick
        if not isinstance(pick, str) or pick not in PICKS:
            raise BadInput(f"pick is {shown(pick)}; it must be one of {', '.join(map(repr, PICKS))}")

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the scores: those of margin, or random numbers in [0, 1)."""
        predicted = task.rows.largest_class()
        scores = (
            -costs.values() if self.pick == "uncertain" else np.random.default_rng(task.seed).random(len(predicted))
        )
        sizes = np.bincount(predicted, minlength=task.rows.classes)
        order = rarest_first(task.counts, task.ranges, sizes, task.budget)
        members = {}
        for cls in np.unique(order).tolist():
            rows = np.flatnonzero(predicted == cls)
            members[cls] = rows[np.argsort(-scores[rows], kind="stable")]
        visits = Visits(order, scores, members)

        def l1_at(lam: float) -> float:
            return task.ranges.distance(task.rows.total(visits.pick(task, lam)))

        scale, spread = scale_of(scores, task.budget, task.rows.classes), score_spread(scores, task.budget) or 1.0
        lam = find_lam(self.balance, l1_at, task.program(costs), scale=scale, spread=spread)
        picks = visits.pick(task, lam.value)
        total = float(scores[picks].sum())
        return task.selection(picks, informativeness=total, balance=self.balance, lam=lam, method=self.name)


def rarest_first(counts: Float64Array, ranges: Ranges, sizes: IntArray, budget: int) -> IntArray:
    """The predicted class of each pick, (b,): the one farthest below its target, then the one with the fewest labels.

    `sizes` are the images predicted as each class, (C,), at least `budget` in all.

    >>> target = Ranges(np.array([0.0, 2.0, 3.0]), np.array([0.0, 2.0, 3.0]))
    >>> rarest_first(np.array([4.0, 1.0, 0.0]), target, np.array([9, 9, 2]), 5).tolist()
    [2, 1, 2, 1, 1]
    """
    labels, left = counts.astype(np.float64), sizes.copy()
    missing = ranges.low.copy()
    order = np.empty(budget, dtype=np.int64)
    for turn in range(budget):
        need = np.maximum(missing, 0.0).round(9)  # equal needs that rounding has made different are equal
        order[turn] = cls = np.lexsort((labels, -need, left == 0))[0]  # the last key counts first; ties by number
        left[cls] -= 1
        labels[cls] += 1
        missing[cls] -= 1
    return order
