"""Exact class quotas: each image takes a place in at most one class, each class fills its quota, values are maximised.

    max Σ_ik v_ik z_ik − penalty·Σ_k max(Σ_i z_ik − q_k, 0)   s.t.  Σ_k z_ik ≤ 1,  Σ_ik z_ik = Σ_k q_k,  z ∈ {0, 1}

This is the paper's program with assignments in place of P: where Σ_k n_k = Σ_k q_k, ‖q − n‖₁ is twice the images above
their quota, so the penalty is 2λ. An infinite penalty makes quotas exact. It is a transport problem, so its relaxation
is integral, and prices (one per class) prove a batch optimal. Values in, assignments and prices out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ..types import BoolArray, Float64Array, IntArray

AT_FIRST = 4  # times its quota are the rows of a class that are put in order; more only where they are used up
PASSED = 2  # times the budget are the rows that the falling price may pass
SPARE = 32  # rows of a class that are looked at, next to twice its quota, where most values are 0
ROUNDING = 1e-12  # of the largest value: a path must gain more than sums of so many values can be wrong by


@dataclass(frozen=True, slots=True, eq=False)
class Transport:
    """An optimal assignment of rows to classes, and the prices that prove it."""

    rows: IntArray  # (b,) chosen rows, ascending
    classes: IntArray  # (b,) the class whose place each of them takes
    value: float
    prices: Float64Array  # (C,)
    bound: float  # no assignment of these rows has a larger value


def transport(values: Float64Array, quota: IntArray, penalty: float = np.inf) -> Transport:
    """The best assignment for values (m, C) and quotas (C,), at most m in all; equal ones go to the lower row.

    >>> best = transport(np.array([[3.0, 2.9], [2.0, 0.0], [1.0, 0.0]]), np.array([1, 1]))
    >>> best.rows.tolist(), best.classes.tolist(), best.value
    ([0, 1], [1, 0], 4.9)
    """
    paths = AugmentingPaths(values, quota, penalty)
    paths.run()
    rows = np.flatnonzero(paths.place >= 0)
    classes = paths.place[rows]
    over = int(np.maximum(np.bincount(classes, minlength=len(quota)) - quota, 0).sum())
    value = float(values[rows, classes].sum()) - (penalty * over if over else 0.0)
    prices = paths.prices()
    return Transport(rows, classes, value, prices, dual_bound(values, quota, prices, penalty))


@dataclass(frozen=True, slots=True, eq=False)
class SparseValues:
    """Values of m rows for C classes that are 0 but for some pairs; a row that is barred is worth −1 everywhere."""

    rows: IntArray  # (n,) of the pairs; ascending within a class
    classes: IntArray  # (n,) ascending
    values: Float64Array  # (n,) at least 0
    barred: BoolArray  # (m,)

    def dense(self, rows: IntArray, classes: int) -> Float64Array:
        """Values of some rows, (len(rows), C); they must ascend."""
        place = np.searchsorted(rows, self.rows)
        there = np.flatnonzero(rows[np.minimum(place, len(rows) - 1)] == self.rows) if len(rows) else place[:0]
        result = np.zeros((len(rows), classes))
        result[place[there], self.classes[there]] = self.values[there]
        result[self.barred[rows]] = -1.0
        return result

    def best(self, cls: int, count: int) -> IntArray:
        """The `count` best rows of a class, the best first, equal ones by index."""
        start, stop = np.searchsorted(self.classes, [cls, cls + 1])
        rows, values = self.rows[start:stop], self.values[start:stop]
        worth = np.flatnonzero((values > 0) & ~self.barred[rows])
        if len(worth) >= count:
            return rows[worth[np.argsort(-values[worth], kind="stable")[:count]]]
        column = np.where(self.barred, -1.0, 0.0)
        column[rows[worth]] = values[worth]
        return np.argsort(-column, kind="stable")[:count]

    def above(self, prices: Float64Array) -> Float64Array:
        """By how much each row exceeds the price of a class at most, (m,); −inf for barred rows."""
        surplus = np.full(len(self.barred), 0.0 - prices.min())
        np.maximum.at(surplus, self.rows, self.values - prices[self.classes])
        surplus[self.barred] = -np.inf
        return surplus


def sparse_transport(values: SparseValues, quota: IntArray, penalty: float = np.inf) -> Transport:
    """The same as `transport` of the dense values (of equally good assignments maybe another), from a few rows.

    The best of each class suffice if one of them is left without a place: those behind it are worth no more. Else
    twice as many are taken. The bound is that of all rows.
    """
    count = 2 * int(quota.max(initial=0)) + SPARE
    while True:
        lists = [values.best(cls, count) for cls in range(len(quota))]
        kept = np.unique(np.concatenate(lists))
        best = transport(values.dense(kept, len(quota)), quota, penalty)
        rows = kept[best.rows]
        placed = np.zeros(len(values.barred), dtype=bool)
        placed[rows] = True
        if count > min(int(quota.sum()), len(placed) - 1) or not any(placed[each].all() for each in lists):
            break
        count *= 2
    capped = np.minimum(best.prices, best.prices.min() + penalty)
    surplus = np.maximum(values.above(capped), 0.0)
    surplus[values.barred] = max(0.0, -1.0 - capped.min())
    return replace(best, rows=rows, bound=float(quota @ capped + surplus.sum()))


def best_rows(values: Float64Array, count: int) -> IntArray:
    """The `count` best rows of every class, the best first, (count, C); equal ones by index.

    An optimal batch of b needs no others: if it uses a row for class k that is not among the b best of k, one of those
    is free and no worse.
    """
    size, classes = values.shape
    count = min(count, size)
    order = np.empty((count, classes), dtype=np.int64)
    for cls, column in enumerate(np.ascontiguousarray(values.T)):
        limit = np.partition(column, size - count)[size - count] if count else np.inf
        near = np.flatnonzero(column >= limit)
        order[:, cls] = near[np.argsort(-column[near], kind="stable")][:count]
    return order


def dual_bound(values: Float64Array, quota: IntArray, prices: Float64Array, penalty: float = np.inf) -> float:
    """An upper bound on every assignment, from any prices: Σ_k q_k·p_k + Σ_i max(0, max_k v_ik − p_k).

    With a penalty, prices that differ by more than it prove nothing: those above the lowest + penalty are lowered.
    """
    capped = np.minimum(prices, prices.min() + penalty)
    surplus = (values - capped).max(axis=1, initial=0.0)  # (m,), at least 0
    return float(quota @ capped + surplus.sum())


def falling_price(values: Float64Array, quota: IntArray) -> tuple[IntArray, IntArray]:
    """A first assignment that is optimal for the counts that it has: rows and their classes.

    One price for all classes falls from the top, and takes in rows as it passes their values. A row worth the same to
    several classes, as the images at a border are to both of its sides, goes where a place is free, or others of that
    kind move on. Where none can, the classes that were tried are full: their price stays, and that of the others falls
    on. It ends where a row in one of these would rather be in one of those.

    >>> rows, classes = falling_price(np.array([[3.0, 3.0], [2.0, 0.0], [1.0, 1.0]]), np.array([1, 2]))
    >>> rows.tolist(), classes.tolist()
    ([0, 1, 2], [1, 0, 1])
    """
    price = FallingPrice(values, quota)
    price.run(*_descending(values, PASSED * int(quota.sum())))
    rows = [(row, cls) for cls, members in enumerate(price.members) for row in members]
    found = np.array(sorted(rows), dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _descending(values: Float64Array, count: int) -> tuple[list[int], list[int], list[float]]:
    """Rows, classes and values, the largest first; from a value on that `count` rows have at least."""
    most, count = values.max(axis=1, initial=-np.inf), min(count, len(values))
    floor = np.partition(most, len(most) - count)[len(most) - count] if count else np.inf
    rows, classes = np.divmod(np.flatnonzero(values >= floor), values.shape[1])
    each = values[rows, classes]
    order = np.lexsort((rows, -each))  # stable, so the classes of a row stay in order
    return rows[order].tolist(), classes[order].tolist(), each[order].tolist()


class FallingPrice:
    """Fills classes while their common price falls; see `falling_price`."""

    def __init__(self, values: Float64Array, quota: IntArray) -> None:
        self.values, self.left = values, int(quota.sum())
        self.free: list[int] = quota.tolist()
        self.open = [True] * len(quota)  # whether the price of a class still falls
        self.place: dict[int, int] = {}
        self.members: list[set[int]] = [set() for _ in self.free]
        # Rows of class k that are worth the same to class l, [k][l]; they may have moved since.
        self.same: list[dict[int, list[int]]] = [{} for _ in self.free]
        self.end = -np.inf  # the price at which a row of a full class would rather be in another

    def run(self, rows: list[int], classes: list[int], values: list[float]) -> None:
        """Take in rows in descending order of their values."""
        at = 0
        while at < len(rows) and self.left and values[at] > self.end:
            row, value, tied = rows[at], values[at], []
            while at < len(rows) and rows[at] == row and values[at] == value:
                if self.open[classes[at]]:
                    tied.append(classes[at])
                at += 1
            if tied and row not in self.place:
                self._take(row, tied, value)

    def _take(self, row: int, tied: list[int], value: float) -> None:
        """Place a row in one of the classes that it is worth the same to, or close these."""
        came, cls = self._find_free(tied)
        if cls < 0:
            self._close(came, value)
            return
        self.free[cls] -= 1
        self.left -= 1
        while (step := came[cls]) is not None:  # backwards: the last row moves first
            source, mover = step
            self.members[source].discard(mover)
            self._put(mover, cls, [source])
            cls = source
        self._put(row, cls, tied)

    def _put(self, row: int, cls: int, tied: list[int]) -> None:
        self.place[row] = cls
        self.members[cls].add(row)
        for other in tied:
            if other != cls:
                self.same[cls].setdefault(other, []).append(row)

    def _find_free(self, tied: list[int]) -> tuple[dict[int, tuple[int, int] | None], int]:
        """How each class was reached (from which, by which row), and the first with a free place; −1: all are full."""
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(tied)
        queue = list(tied)
        for cls in queue:
            if self.free[cls]:
                return came, cls
        for cls in queue:
            for other, rows in self.same[cls].items():
                while rows and self.place[rows[-1]] != cls:
                    rows.pop()
                if rows and other not in came and self.open[other]:
                    came[other] = cls, rows[-1]
                    if self.free[other]:
                        return came, other
                    queue.append(other)
        return came, -1

    def _close(self, classes: Iterable[int], price: float) -> None:
        """Keep the price of full classes."""
        for cls in classes:
            self.open[cls] = False
        others = np.flatnonzero(self.open)
        for cls in classes:
            rows = np.array(list(self.members[cls]), dtype=np.int64)
            if len(rows) and len(others):
                moves = self.values[np.ix_(rows, others)] - self.values[rows, cls][:, None]
                self.end = max(self.end, price + float(moves.max()))


class AugmentingPaths:
    """Successive best paths: one more row is placed at a time, moving others between classes where that pays.

    Row i in class k may move to class l at a gain of v_il − v_ik. Moves between the same two classes differ only in the
    row, so paths run over the C classes: from an unplaced row to the first class, and on by the best move of each pair.
    """

    def __init__(self, values: Float64Array, quota: IntArray, penalty: float) -> None:
        self.values, self.quota, self.penalty = values, quota, penalty
        size, classes = values.shape
        self.order = best_rows(values, min(int(quota.sum()), AT_FIRST * int(quota.max(initial=0))) + 1)
        self.place = np.full(size, -1, dtype=np.int64)  # the class of each row; −1: not placed
        self.counts = np.zeros(classes, dtype=np.int64)
        self.gain = np.full((classes, classes), -np.inf)  # of the best move k → l
        self.mover = np.zeros((classes, classes), dtype=np.int64)  # the row that makes it
        self.next = np.zeros(classes, dtype=np.int64)  # where the first unplaced row of each class may be
        self.first = self.order[0].copy() if size else np.full(classes, -1)  # that row; −1: all are placed
        self.tolerance = ROUNDING * float(np.abs(values).max(initial=0.0))
        self.floor = self._too_little()

    def _too_little(self) -> float:
        """What one more row would be worth where every row is placed: less than any path, so that prices exist."""
        low, high = float(self.values.min(initial=0.0)), float(self.values.max(initial=0.0))
        return low - (len(self.quota) + 1) * (high - low) - (self.penalty if self.penalty < np.inf else 0.0)

    def run(self) -> None:
        """Place as many rows as there are places."""
        self._start()
        for _ in range(int(self.quota.sum() - self.counts.sum())):
            self._augment()

    def prices(self) -> Float64Array:
        """What a place in each class is worth, (C,): the most that one more row could bring there.

        With a penalty the next row brings θ wherever it goes: a place is worth at least θ, and θ + penalty in a class
        that is overfilled; what rows gain by moving there follows.
        """
        best, _ = self._longest_paths()
        if self.penalty == np.inf:
            return best
        theta = (best - np.where(self.counts < self.quota, 0.0, self.penalty)).max()
        return self._extend(np.maximum(best, np.where(self.counts > self.quota, theta + self.penalty, theta)))[0]

    def _start(self) -> None:
        """Place most rows at once, such that no row would move: then the paths that follow keep it so."""
        placed, wished = self._undisputed()
        if self.penalty == np.inf and len(placed) < self.quota.sum():
            falling = falling_price(self.values, self.quota)
            if len(falling[0]) > len(placed):
                placed, wished = falling
        self.place[placed] = wished
        self.counts = np.bincount(wished, minlength=len(self.quota))
        for cls in np.flatnonzero(self.counts).tolist():
            self._refresh(cls)

    def _undisputed(self) -> tuple[IntArray, IntArray]:
        """Rows and their classes at prices at which no class gets more than its quota: what its next row is worth.

        Every row goes where its value exceeds the price by most. At these prices no row would move, so the assignment
        is optimal for the counts that it has. With a penalty, counts themselves must be optimal, too: then all classes
        have one price.
        """
        columns = np.arange(len(self.quota))
        prices = self.values[self.order[np.minimum(self.quota, len(self.order) - 1), columns], columns]
        if self.penalty < np.inf:
            prices = np.full_like(prices, prices.max())
        surplus = self.values - prices
        wished = surplus.argmax(axis=1)
        placed = np.flatnonzero(surplus[np.arange(len(wished)), wished] > 0)
        return placed, wished[placed]

    def _augment(self) -> None:
        best, before = self._longest_paths()
        cls = int(
            (best - np.where(self.counts < self.quota, 0.0, self.penalty)).argmax()
        )  # less what a row costs there
        self.counts[cls] += 1
        changed = []
        while cls >= 0:
            source = int(before[cls])
            row = int(self.mover[source, cls]) if source >= 0 else int(self.first[cls])
            self.place[row] = cls
            changed.append(cls)
            cls = source
        for cls in changed:
            self._refresh(cls)

    def _longest_paths(self) -> tuple[Float64Array, IntArray]:
        """The most that a path from an unplaced row to each class brings, and the class before it (−1: the row)."""
        stale = (self.first >= 0) & (self.place[self.first] >= 0)
        for cls in np.flatnonzero(stale).tolist():
            self.first[cls] = self._unplaced(cls)
        rows = self.first
        return self._extend(np.where(rows >= 0, self.values[rows, np.arange(len(rows))], self.floor))

    def _extend(self, best: Float64Array) -> tuple[Float64Array, IntArray]:
        """Go on from what is reached, class by class, by moves that gain; ends, since no circle of moves gains."""
        columns = np.arange(len(best))
        before, sources = np.full(len(best), -1, dtype=np.int64), columns
        while len(sources):
            through = best[sources, None] + self.gain[sources]
            step = through.argmax(axis=0)
            found = through[step, columns]
            better = found > best + self.tolerance
            best, before = np.where(better, found, best), np.where(better, sources[step], before)
            sources = np.flatnonzero(better)
        return best, before

    def _unplaced(self, cls: int) -> int:
        """The best row for a class that is not placed yet; −1 where all are. Rows that are placed stay so."""
        at = int(self.next[cls])
        while at < min(len(self.values), int(self.quota.sum()) + 1):
            if at == len(self.order):
                self.order = best_rows(self.values, AT_FIRST * at)
            if self.place[self.order[at, cls]] < 0:
                self.next[cls] = at
                return int(self.order[at, cls])
            at += 1
        self.next[cls] = at
        return -1

    def _refresh(self, cls: int) -> None:
        """Find the best moves out of a class anew."""
        members = np.flatnonzero(self.place == cls)
        moves = self.values[members] - self.values[members, cls][:, None]  # (n_k, C)
        best = moves.argmax(axis=0)
        self.gain[cls], self.mover[cls] = moves[best, np.arange(len(best))], members[best]
        self.gain[cls, cls] = -np.inf
