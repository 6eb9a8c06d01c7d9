"""Balance by the predicted class: each image counts for its most probable class alone.

`entropy-l1-pseudo-label` is Eq. 8 with P replaced by the one-hot of its argmax. Then n_k rows of class k cost their n_k
cheapest u plus λ·dist(n_k, [low_k, high_k]): both are convex in n_k, so a row's marginal price rises with its rank in
its class, and the b smallest marginal prices are an optimum. `pcb`, also known as TFS, takes the rarest class first,
each time an image that is predicted as it: λ → ∞, counts of predicted classes go before everything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import shown
from ..matrix.blocks import smallest
from ..matrix.shards import Column
from ..selection import Selection
from ..solver.path import find_lam, scale_of, score_spread, spread_of
from ..solver.program import Program, Solution, certify
from ..targets import Ranges
from ..types import Float64Array, IntArray, Predictions
from .strategy import Base, Task, strategy
from .typiclust import Visits

PICKS = ("random", "uncertain")


def solve_one_hot(program: Program, labels: IntArray) -> Solution:
    """The optimum of the program whose P is the one-hot of `labels` (N,)."""
    price = marginal_prices(program, labels)
    picks = smallest(price, program.budget)
    counts = np.bincount(labels[picks], minlength=program.rows.classes).astype(np.float64)
    measured = program.measure(picks, counts)
    ordered = picks[np.argsort(price[picks], kind="stable")]
    hidden = program.hidden_cost(picks)  # of a sparse softmax the labels are known, and costs can only be larger
    return certify(ordered, measured, measured.value, np.zeros(program.rows.classes), hidden=hidden)


def marginal_prices(program: Program, labels: IntArray) -> Float64Array:
    """u_i + λ·(dist(m, ·) − dist(m − 1, ·)), m = rank of row i in its class, from 1; ties by index. (N,)."""
    cost = program.cost.values()
    order = np.lexsort((np.arange(len(labels)), cost, labels))  # by class, then cost, then index
    sorted_labels = labels[order]
    starts = np.searchsorted(sorted_labels, np.arange(program.rows.classes))
    rank = np.empty(len(labels), dtype=np.float64)
    rank[order] = np.arange(len(labels)) - starts[sorted_labels] + 1
    low, high = program.ranges.low[labels], program.ranges.high[labels]
    with_row, without = (np.maximum(low - m, 0.0) + np.maximum(m - high, 0.0) for m in (rank, rank - 1))
    prices: Float64Array = (cost + program.lam * (with_row - without))[order]
    for start, stop in pairwise([*starts.tolist(), len(labels)]):
        # The running maximum of a class: rounding must not let a later row overtake an earlier one.
        np.maximum.accumulate(prices[start:stop], out=prices[start:stop])
    return prices[np.argsort(order, kind="stable")]


@strategy
@dataclass(frozen=True, kw_only=True)
class PseudoLabel(Base):
    """Entropy, balanced by counting each sample for its most probable class alone."""

    name: ClassVar[str] = "entropy-l1-pseudo-label"
    title: ClassVar[str] = "Entropy-L1-Pseudo-Label"
    rank: ClassVar[int] = 7
    classical: ClassVar[str] = "entropy"
    softmax_score: ClassVar[str | None] = "entropy"

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """Solve on the one-hot argmax; expected counts and l1 are reported for the softmax, as everywhere."""
        labels = task.rows.largest_class()
        program = task.program(costs)

        def l1_at(lam: float) -> float:
            picked = labels[solve_one_hot(program.at(lam), labels).indices]
            return task.ranges.distance(np.bincount(picked, minlength=task.rows.classes).astype(np.float64))

        lam = find_lam(self.balance, l1_at, program, scale=1.0, spread=spread_of(costs, task.budget))
        solution = solve_one_hot(program.at(lam.value), labels)
        return task.certified(solution, costs, balance=self.balance, lam=lam, method=self.name)


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

        scale, spread = scale_of(scores, task.budget, task.rows.classes), score_spread(scores, task.budget) or 1.0
        lam = task.find_lam(self.balance, lambda lam: visits.pick(task, lam), costs, scale=scale, spread=spread)
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
