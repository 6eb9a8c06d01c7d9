"""The program with hard pseudo-labels, solved exactly, class by class (Entropy-L1-Pseudo-Label).

With P one-hot, n_k rows of class k cost their n_k cheapest u plus λ·dist(n_k, [low_k, high_k]): both are convex in n_k,
so a row's marginal price rises with its rank in its class, and the b smallest marginal prices are an optimum.

Entropy-L1-Pseudo-Label: Eq. 8 with P replaced by the one-hot of its argmax, solved exactly class by class.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..matrix.blocks import smallest
from ..matrix.shards import Column
from ..solver.path import find_lam, spread_of
from ..solver.program import Program, Solution, certify
from ..types import Float64Array, IntArray, Predictions, Selection
from .strategy import Base, Task, strategy


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

    def distance(count: Float64Array) -> Float64Array:
        return np.maximum(low - count, 0.0) + np.maximum(count - high, 0.0)

    marginal = cost + program.lam * (distance(rank) - distance(rank - 1))
    return _never_falling(marginal[order], sorted_labels)[np.argsort(order, kind="stable")]


def _never_falling(prices: Float64Array, labels: IntArray) -> Float64Array:
    """Running maximum within each class: rounding must not let a later row overtake an earlier one."""
    result = prices.copy()
    for start, stop in _runs(labels):
        np.maximum.accumulate(result[start:stop], out=result[start:stop])
    return result


def _runs(labels: IntArray) -> list[tuple[int, int]]:
    """Start and stop of each run of equal labels."""
    edges = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), len(labels)]
    return list(pairwise(edges)) if len(labels) else []


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
