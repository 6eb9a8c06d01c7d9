"""BASE, balanced boundary (Emam et al. 2021): for every class equally many of the images nearest to its border."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import shown
from ..matrix.nearest import border_distances, copy_keys, earlier
from ..matrix.shards import Column, Rows
from ..selection import Selection
from ..solver.path import ChosenLambda, parse_balance
from ..solver.program import PROVEN, Groups
from ..solver.transport import transport
from ..targets import wanted_counts, whole_quotas
from ..types import BoolArray, Float64Array, IntArray, Predictions
from .strategy import Base, Task, strategy

CONFLICTS = ("exact", "class-order")
FAR = 750.0  # what an infinite distance counts as: float64 allows finite ones up to 745
SPARE = 50  # rows of each class beyond twice its quota that are looked at first
ROUNDING = 1e-9  # of distances and of their sum
REACH = 1.1  # and all rows whose distance is at most so many times that of the b-th nearest row


@strategy
@dataclass(frozen=True, kw_only=True)
class BalancedBoundary(Base):
    """The images nearest to the border of each class, equally many per class; with balance, as many as its target asks.

    Distances are differences of logits, see `matrix.nearest`. Classes that have no probability anywhere get no images;
    what b/S leaves over goes to the classes with the fewest labels, then to the lowest number. With balance λ quotas
    are (b/S + λ·target) / (1 + λ), rounded by largest remainders: 0 is the published method, large λ the target itself
    (Eq. 4 lowered to the budget: water-filling of the labelled counts). "auto" is 0 where no target is given, as equal
    quotas chose better images on 20 pools; a target that is given it keeps exactly, and reports the smallest λ that
    would, to one image per class.

    An image near several borders counts for one class: "exact" finds the assignment with the least total distance and
    proves it; "class-order" is the published way, in which each class in turn takes its nearest images that are left.
    It reads the pool once or a few times, and costs O(m·C) memory with m candidates, about 2·b + 50·C.

    Copies of an image do not fill a batch: of rows with the same probabilities (to about one part in a thousand, see
    `matrix.nearest.copy_keys`) one is picked, the first, as long as there are others, and `bound` holds for all batches
    without copies. Where the pool has fewer different rows than places, each is picked equally often, as far as it has
    copies. `copies=True` is the published method, which takes rows as they come.
    """

    conflicts: str = "exact"
    copies: bool = False
    name: ClassVar[str] = "base"
    title: ClassVar[str] = "BASE"

    def __post_init__(self) -> None:
        super().__post_init__()
        conflicts: object = self.conflicts
        if not isinstance(conflicts, str) or conflicts not in CONFLICTS:
            raise BadInput(f"conflicts is {shown(conflicts)}; it must be one of {', '.join(map(repr, CONFLICTS))}")
        if not isinstance(self.copies, bool):
            raise BadInput(f"copies is {shown(self.copies)}; it must be True or False")

    def keeps_groups(self, groups: Groups) -> bool:
        """One pick of each group is a transport problem, as one of each set of copies is; more are not."""
        return self.conflicts == "exact" and bool((groups.most <= 1).all())

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """`objective` is the sum of the distances, `bound` the least that is possible with the same quotas."""
        everywhere = np.ones(task.rows.classes, dtype=bool)
        balance = parse_balance(self.balance)
        if balance == "auto" and not task.own_target:
            balance = 0.0
        likely = [quotas(task, everywhere, lam).max() for lam in (0.0, np.inf) if not lam or balance != 0]
        groups = None if task.groups is None else task.groups.numbers
        nearest = Nearest(task.rows, 2 * int(max(likely)) + SPARE, copies=self.copies, groups=groups)
        known = nearest.known()
        fill = nearest.fill_exactly if self.conflicts == "exact" else nearest.fill_in_class_order

        @cache
        def filled(lam: float) -> Filled:
            return fill(quotas(task, known, lam))

        if balance == "auto":
            lam, used = ChosenLambda(exact_lam(task, known)), np.inf
        else:
            lam = task.find_lam(balance, lambda lam: filled(lam).rows, costs, scale=1.0)
            used = lam.value
        best = filled(used)
        total = float(best.distances.sum())
        bound = min(best.bound, total)
        proven = total - bound <= ROUNDING * (1 + total)
        gap = 0.0 if proven else (total - bound) / total if total else np.inf
        return task.selection(
            best.rows, informativeness=0.0 - total, balance=self.balance, lam=lam, method=self.name,
            status="greedy" if bound == -np.inf else "optimal" if gap <= PROVEN else "best found", objective=total,
            bound=bound, gap=gap, places=quotas(task, known, used), scores=0.0 - best.distances,
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
    """The rows nearest to each border: as many as were needed so far, of copies only as many as are needed."""

    def __init__(self, rows: Rows, count: int, *, copies: bool, groups: IntArray | None = None) -> None:
        self._rows, self._copies = rows, copies
        self._groups = groups  # (N,) of which one pick each is allowed; else copies are such groups
        self._each = 0  # how many copies of a row there may be in a list; 0: any number
        self._read(count)

    def known(self) -> BoolArray:
        """The classes that have a probability above 0 anywhere, (C,)."""
        known = np.asarray((self._distances < np.inf).any(axis=0))
        doubtful = np.flatnonzero(~known)  # all rows that have a probability there may have no other
        if len(doubtful):
            known[doubtful] = self._rows.above(doubtful, 0.0)[0] > 0
        return known

    def fill_exactly(self, quota: IntArray) -> Filled:
        """The least total distance, proved by prices: no row beyond those looked at is worth the price of a class."""
        budget, used = int(quota.sum()), np.flatnonzero(quota)
        if not budget:
            return Filled(np.empty(0, dtype=np.int64), np.empty(0), 0.0)
        depth = 2 * quota[used] + SPARE  # rows of each class that are looked at, (S,)
        while True:
            self._deepen(int(depth.max()))
            found, values = self._found[:, used], -np.minimum(self._distances[:, used], FAR)
            depth = np.maximum(depth, (values >= -REACH * within(found, -values, budget)).sum(axis=0))
            near = np.arange(len(found))[:, None] < depth
            candidates = self._candidates(np.unique(found[near]), used)
            copied = candidates.distinct < len(candidates.rows)
            if candidates.distinct < budget:
                if self._complete and near.all():
                    if len(candidates.rows) >= budget:
                        return candidates.fill_evenly(quota[used])
                    self._allow(max(2 * self._each, -(-budget // candidates.distinct)), budget)
                elif copied and not self._each and self._groups is None:
                    self._allow(1)
                depth = 2 * depth
                continue
            filled, prices = candidates.fill(quota[used])
            worth = (values > prices).sum(axis=0)
            enough = budget if self._each or not copied else self._rows.size  # rows of a class, always
            seen = self._complete | (worth < len(found)) | (depth >= enough)
            if (seen & (worth <= depth)).all():
                return filled
            if copied and not self._each and self._groups is None:
                self._allow(1)
            depth = np.where(seen, np.maximum(depth, worth), 2 * depth)

    def fill_in_class_order(self, quota: IntArray) -> Filled:
        """Class by class, its nearest rows that are left; of copies those first of which the fewest are taken."""
        taken: Counter[int] = Counter()  # by key
        rows, far = [np.empty(0, dtype=np.int64)], [np.empty(0)]
        count = 2 * int(quota.max(initial=0)) + SPARE
        for cls in np.flatnonzero(quota).tolist():
            while True:
                self._deepen(count)
                left = np.flatnonzero(~np.isin(self._found[:, cls], np.concatenate(rows)))
                keys = self._found[left, cls]  # the same for copies
                if not self._copies:
                    keys = copy_keys(self._rows.take(keys)).view(np.int64)
                level = np.array([taken[key] for key in keys.tolist()], dtype=np.int64) + times_before(keys)
                first = np.argsort(level, kind="stable")[: quota[cls]]
                most = int(level[first].max(initial=0))
                # Whether the lists hold all rows of which at most so many copies come before them.
                shown_all = self._complete and (most < self._each or len(self._found) == self._rows.size)
                if len(first) == quota[cls] and (most == 0 or shown_all):
                    break
                if level.max(initial=0) and not self._each:
                    self._allow(1)
                elif self._complete:
                    self._allow(2 * self._each)
                count *= 2
            rows.append(self._found[left[first], cls])
            far.append(np.minimum(self._distances[left[first], cls], FAR))
            taken.update(keys[first].tolist())
        return Filled(np.concatenate(rows), np.concatenate(far))

    def _candidates(self, rows: IntArray, classes: IntArray) -> Candidates:
        proba = self._rows.take(rows)
        values = border_distances(proba)
        values = values if len(classes) == values.shape[1] else values[:, classes]
        np.negative(np.minimum(values, FAR, out=values), out=values)
        if self._copies and self._groups is None:
            return Candidates(rows, values, np.arange(len(rows)), len(rows))
        keys = copy_keys(proba) if self._groups is None else self._groups[rows]
        _, first, group = np.unique(keys, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))  # groups in the order of their first rows
        return Candidates(rows, values, place[group.reshape(-1)], len(first))

    def _allow(self, each: int, count: int = 0) -> None:
        """Look again, with so many copies of a row in each list, at `count` rows or more."""
        self._each = each
        self._read(max(count, len(self._found)))

    def _deepen(self, count: int) -> None:
        """Have at least `count` rows for each class, or all."""
        if len(self._found) < count and not self._complete:
            self._read(count)

    def _read(self, count: int) -> None:
        """Twice as many as are needed now, as reading costs more than keeping them."""
        asked = min(2 * count, self._rows.size)
        self._found, self._distances = self._rows.nearest_borders(asked, self._each)  # (m, C), the nearest first
        self._complete = len(self._found) < asked or asked == self._rows.size


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows that may be picked, and which of them are copies of one another."""

    rows: IntArray  # (m,) ascending
    values: Float64Array  # (m, S) minus the distance to each border
    group: IntArray  # (m,) copies have the same number; in the order of their first rows
    distinct: int  # how many rows there are without copies

    def fill(self, quota: IntArray) -> tuple[Filled, Float64Array]:
        """At most one of each group, and the prices of the classes: a group is worth what its best row is."""
        if self.distinct == len(self.rows):
            best = transport(self.values, quota)
            return self._filled(best.rows, best.classes, best.bound), best.prices
        order = np.argsort(self.group, kind="stable")
        starts = np.flatnonzero(times_before(self.group[order]) == 0)
        best = transport(np.maximum.reduceat(self.values[order], starts, axis=0), quota)
        members = np.split(order, starts[1:])
        chosen = [
            members[group][self.values[members[group], cls].argmax()]
            for group, cls in zip(best.rows.tolist(), best.classes.tolist(), strict=True)
        ]
        return self._filled(np.array(chosen), best.classes, best.bound), best.prices

    def fill_evenly(self, quota: IntArray) -> Filled:
        """Equally many of each group, as far as it has so many rows, where there are fewer groups than places.

        What must be in the batch gets a bonus that no sum of moves between classes outweighs.
        """
        level, budget = times_before(self.group), int(quota.sum())
        full = int(np.searchsorted(np.cumsum(np.bincount(level)), budget, side="right"))  # levels with all rows in
        kept = np.flatnonzero(level <= full)
        bonus = (len(quota) + 2) * (1.0 + float(np.ptp(self.values)))
        sure = level[kept] < full
        best = transport(self.values[kept] + bonus * sure[:, None], quota)
        return self._filled(kept[best.rows], best.classes, best.bound - bonus * int(sure.sum()))

    def _filled(self, chosen: IntArray, classes: IntArray, most: float) -> Filled:
        far = -self.values[chosen, classes]
        order = np.lexsort((self.rows[chosen], far))
        return Filled(self.rows[chosen][order], far[order], -most)


def within(found: IntArray, distances: Float64Array, budget: int) -> float:
    """How far from some border the budget-th of the nearest rows is; inf where lists (m, S) have fewer."""
    order = np.argsort(distances, axis=None, kind="stable")
    _, first = np.unique(found.reshape(-1)[order], return_index=True)
    if len(first) < budget:
        return np.inf
    return float(distances.reshape(-1)[order[np.partition(first, budget - 1)[budget - 1]]])


def times_before(numbers: IntArray) -> IntArray:
    """How often each number occurs before, (n,).

    >>> times_before(np.array([4, 2, 4, 4])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(numbers, kind="stable")
    times = np.empty(len(numbers), dtype=np.int64)
    times[order] = earlier(numbers[order])
    return times
