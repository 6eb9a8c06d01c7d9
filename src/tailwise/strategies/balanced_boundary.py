"""BASE, balanced boundary (Emam et al. 2021): for every class equally many of the images nearest to its border."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..balance.quota import wanted_counts, whole_quotas
from ..errors import BadInput
from ..inputs import shown
from ..score.borders import border_distances
from ..solve.path import Lam, find_lam, parse_balance
from ..solve.shards import Column, Rows
from ..solve.transport import transport
from ..types import BoolArray, Float64Array, IntArray, Predictions, Selection, gap_between
from .base import Base, strategy
from .task import Task

CONFLICTS = ("exact", "class-order")
FAR = 750.0  # what an infinite distance counts as: float64 allows finite ones up to 745
SPARE = 50  # rows of each class beyond twice its quota that are looked at first


@strategy
@dataclass(frozen=True, kw_only=True)
class BalancedBoundary(Base):
    """The images nearest to the border of each class, equally many per class; with balance, as many as its target asks.

    Distances are differences of logits, see `score.borders`. Classes that have no probability anywhere get no images;
    what b/S leaves over goes to the classes with the fewest labels, then to the lowest number. With balance λ quotas
    are (b/S + λ·target) / (1 + λ), rounded by largest remainders: 0 is the published method, large λ the target itself
    (Eq. 4 lowered to the budget: water-filling of the labelled counts). "auto" keeps the target exactly, and reports
    the smallest λ that would, to one image per class.

    An image near several borders counts for one class: "exact" finds the assignment with the least total distance and
    proves it; "class-order" is the published way, in which each class in turn takes its nearest images that are left.
    It reads the pool once or a few times, and costs O(m·C) memory with m candidates, about 2·b + 50·C.
    """

    conflicts: str = "exact"
    name: ClassVar[str] = "base"

    def __post_init__(self) -> None:
        super().__post_init__()
        conflicts: object = self.conflicts
        if not isinstance(conflicts, str) or conflicts not in CONFLICTS:
            raise BadInput(f"conflicts is {shown(conflicts)}; it must be one of {', '.join(map(repr, CONFLICTS))}")

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """`objective` is the sum of the distances, `bound` the least that is possible with the same quotas."""
        nearest = Nearest(task.rows)
        known = task.rows.above(np.arange(task.rows.classes), 0.0)[0] > 0
        fill = nearest.fill_exactly if self.conflicts == "exact" else nearest.fill_in_class_order
        found: dict[float, Filled] = {}

        def filled(lam: float) -> Filled:
            if lam not in found:
                found[lam] = fill(quotas(task, known, lam))
            return found[lam]

        def l1_at(lam: float) -> float:
            return task.ranges.distance(task.rows.total(filled(lam).rows))

        exactly = parse_balance(self.balance) == "auto"
        program = task.program(costs)
        lam = Lam(exact_lam(task, known)) if exactly else find_lam(self.balance, l1_at, program, scale=1.0)
        best = filled(np.inf if exactly else lam.value)
        total = float(best.distances.sum())
        bound = min(best.bound, total)
        return task.selection(
            best.rows, informativeness=0.0 - total, balance=self.balance, lam=lam, method=self.name,
            status="greedy" if bound == -np.inf else "optimal", objective=total, bound=bound,
            gap=gap_between(total, bound, total, rounding=1e-9 * (1 + total)),
        )  # fmt: skip


def quotas(task: Task, known: BoolArray, lam: float) -> IntArray:
    """Images for each class, (C,): b/S, or nearer to the target with λ; equal remainders to the fewest labels first."""
    wanted = np.where(known, task.budget / max(1, known.sum()), 0.0)
    if lam == np.inf:
        wanted = wanted_counts(task.ranges, task.counts, task.budget, known)
    elif lam:
        wanted += lam / (1 + lam) * (wanted_counts(task.ranges, task.counts, task.budget, known) - wanted)
    order = np.argsort(task.counts, kind="stable")
    places = np.empty(len(wanted), dtype=np.int64)
    places[order] = whole_quotas(wanted[order], task.budget)
    return places


def exact_lam(task: Task, known: BoolArray) -> float:
    """The smallest λ (to 1 %) whose quotas are those of λ = ∞ to one image per class: the rest is rounding."""
    exact = quotas(task, known, np.inf)

    def close(lam: float) -> bool:
        return int(np.abs(quotas(task, known, lam) - exact).max(initial=0)) <= 1

    low, high = 0.0, 0.0
    while not close(high):
        low, high = high, max(1.0, 2 * high)
    while high > 1.01 * low + 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if close(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """Rows in the places of the classes."""

    rows: IntArray  # (b,) the nearest first, or in the order in which they were taken
    distances: Float64Array  # (b,) to the border of the class that each is for
    bound: float = -np.inf  # no other choice has a smaller total distance


class Nearest:
    """The rows nearest to each border: as many as were needed so far."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._found, self._distances = rows.nearest_borders(0)  # (m, C), the nearest first

    def fill_exactly(self, quota: IntArray) -> Filled:
        """The least total distance, proved by prices: no row beyond those looked at is worth the price of a class."""
        budget, used = int(quota.sum()), np.flatnonzero(quota)
        if not budget:
            return Filled(np.empty(0, dtype=np.int64), np.empty(0), 0.0)
        count = 2 * int(quota.max()) + SPARE
        while True:
            found, distances = self._first(count)
            rows = np.unique(found[:, used])
            enough = len(found) >= min(budget, self._rows.size)  # the b nearest rows of each class always are
            if len(rows) >= budget:
                values = -np.minimum(border_distances(self._rows.take(rows))[:, used], FAR)
                best = transport(values, quota[used])
                if enough or (-np.minimum(distances[-1, used], FAR) <= best.prices).all():
                    far = -values[best.rows, best.classes]
                    order = np.lexsort((best.rows, far))
                    return Filled(rows[best.rows][order], far[order], -best.bound)
            count *= 2

    def fill_in_class_order(self, quota: IntArray) -> Filled:
        """Class by class, its nearest rows that are left."""
        open_ = np.ones(self._rows.size, dtype=bool)
        rows, far = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        count = 2 * int(quota.max(initial=0)) + SPARE
        for cls in np.flatnonzero(quota).tolist():
            while True:
                found, distances = self._first(count)
                places = np.flatnonzero(open_[found[:, cls]])[: quota[cls]]
                if len(places) == quota[cls]:
                    break
                count *= 2
            rows.append(found[places, cls])
            far.append(np.minimum(distances[places, cls], FAR))
            open_[rows[-1]] = False
        return Filled(np.concatenate(rows), np.concatenate(far))

    def _first(self, count: int) -> tuple[IntArray, Float64Array]:
        """At least `count` rows for each class, or all."""
        if len(self._found) < min(count, self._rows.size):
            self._found, self._distances = self._rows.nearest_borders(count)
        return self._found, self._distances
