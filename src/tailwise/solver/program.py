"""The problem: min_z uᵀz + λ·dist(Pᵀz, [low, high])  s.t. 1ᵀz = b, z ∈ {0,1}^N  (PAPER §3).

A `Program` is the data of it, a `Solution` an integer z with a bound that proves how good it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from ..errors import PoolExhausted, SolverFailed
from ..matrix.shards import Column, Rows
from ..targets import Ranges
from ..types import BoolArray, Float64Array, IntArray, gap_between

Report: TypeAlias = Callable[[str], None]


def silent(_message: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Which group each row of the pool belongs to, and how many picks each group may have."""

    numbers: IntArray  # (N,) from 0
    most: IntArray  # (G,) picks of each group

    def survivors(self, prices: Float64Array) -> BoolArray:
        """The cheapest rows of every group, as many as it may give, (N,); equal prices go by row."""
        order = np.lexsort((prices, self.numbers))  # stable: equal prices stay in the order of the rows
        grouped = self.numbers[order]
        starts = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        kept = np.zeros(len(order), dtype=bool)
        kept[order[rank < self.most[grouped]]] = True
        return kept

    def check(self, budget: int) -> None:
        """Reject a budget that the groups cannot fill."""
        possible = int(np.minimum(np.bincount(self.numbers, minlength=len(self.most)), self.most).sum())
        if budget > possible:
            raise PoolExhausted(
                f"asked for {budget} picks, but the groups allow only {possible}; lower the budget or raise per_group"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """One selection problem."""

    rows: Rows  # P (N, C)
    cost: Column  # u, smaller = more wanted
    budget: int
    lam: float
    ranges: Ranges  # low, high (C,)
    groups: Groups | None = None  # which limit the picks further

    def at(self, lam: float) -> Program:
        """The same problem with another λ."""
        return replace(self, lam=lam)

    def measure(self, indices: IntArray, counts: Float64Array | None = None) -> Measured:
        """The objective of the rows chosen and how far it can be trusted; `counts` (C,) stand in for Pᵀz if given."""
        costs = self.cost.at(indices)
        expected = self.rows.total(indices) if counts is None else counts
        balance, size = self.lam * self.ranges.distance(expected), float(np.abs(costs).sum())
        terms = size + self.lam * float((self.ranges.low + self.ranges.high + expected).sum())
        return Measured(float(costs.sum()) + balance, size + balance, ROUNDINGS * EPSILON * terms)

    def hidden_cost(self, indices: IntArray) -> float:
        """The most by which uᵀz may be larger: 0 but for a sparse softmax. It is never smaller."""
        return float(self.cost.hidden.at(indices).sum()) if self.cost.hidden else 0.0

    def hidden_distance(self, indices: IntArray) -> float:
        """The most by which λ·dist(Pᵀz, ·) may be larger or smaller."""
        if not self.rows.sparse or self.lam == 0:
            return 0.0
        return self.lam * float(self.rows.hidden().at(indices).sum())

    @property
    def steerable(self) -> bool:
        """Whether λ can change the picks for the better: not where one batch exists, or one class."""
        return 0 < self.budget < self.rows.size and self.rows.classes > 1


EPSILON = 2.0**-53  # relative error of one rounding
ROUNDINGS = 128  # that a term of the objective goes through at most; sums are pairwise
PROVEN = 1e-6  # a gap below one in a million is called optimal


@dataclass(frozen=True, slots=True)
class Measured:
    """The objective of a batch in float64."""

    value: float
    magnitude: float  # Σ|u| of the picks + λ·dist: the terms of the value without their signs
    rounding: float  # by which the value may be wrong


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """An integer solution, its value, and a lower bound on every solution's value."""

    indices: IntArray  # (b,) best first
    objective: float
    bound: float
    gap: float
    status: str
    duals: Float64Array  # y (C,), for a warm start
    hidden: float = 0.0  # by how much the objective may be larger, where the softmax is sparse


def certify(
    indices: IntArray, measured: Measured, bound: float, duals: Float64Array, *,
    hidden: float = 0.0, margin: float = 0.0, effort: Effort | None = None,
) -> Solution:  # fmt: skip
    """A solution with its gap and status; `margin` is what was taken off the bound for rounding errors.

    A bound above the objective by more than rounding explains is wrong, and would be a false certificate.
    """
    slack = measured.rounding + margin
    if bound > measured.value + slack:
        raise SolverFailed(
            f"the solver computed a lower bound of {bound!r}, but found a batch with the objective {measured.value!r}; "
            "please report this with the input"
        )
    bound = min(bound, measured.value)  # the rest is rounding
    gap = gap_between(measured.value + hidden, bound, measured.magnitude, slack)
    return Solution(indices, measured.value, bound, gap, _status(gap, effort), duals, hidden)


def _status(gap: float, effort: Effort | None) -> str:
    if gap <= PROVEN:
        return "optimal"
    if effort is not None and gap <= effort.gap:
        return "within gap"
    return "time limit" if effort is not None and effort.expired else "best found"


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try: the gap wanted, a deadline, how often the search starts anew and is kicked.

    Work is counted in restarts and nodes, not in seconds, so that the same call gives the same picks on a slow and on
    a fast machine; only a `time_limit` that is hit can change them.
    """

    gap: float = 1e-4
    time_limit: float | None = None
    restarts: int = 6
    kicks: int = 100
    nodes: int = 2_000
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def for_gap(cls, gap: float, time_limit: float | None, started: float | None = None) -> Effort:
        """A gap below 1e-4 asks for the last digits: more of everything. The clock may have started earlier."""
        effort = cls(gap, time_limit) if gap >= 1e-4 else cls(gap, time_limit, kicks=1_100, nodes=20_000)
        return effort if started is None else replace(effort, started=started)

    @property
    def expired(self) -> bool:
        """True once the time limit is used up."""
        return self.time_limit is not None and self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline; inf without one."""
        if self.time_limit is None:
            return np.inf
        return self.time_limit - (time.perf_counter() - self.started)
