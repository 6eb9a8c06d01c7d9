"""Exact class quotas: each image takes a place in at most one class, each class fills its quota, values are maximised.

    max Σ_ik v_ik z_ik − penalty·Σ_k max(Σ_i z_ik − q_k, 0)   s.t.  Σ_k z_ik ≤ 1,  Σ_ik z_ik = Σ_k q_k,  z ∈ {0, 1}

This is the paper's program with assignments in place of P: where Σ_k n_k = Σ_k q_k, ‖q − n‖₁ is twice the images above
their quota, so the penalty is 2λ. An infinite penalty makes quotas exact. It is a transport problem, so its relaxation
is integral, and prices (one per class) prove a batch optimal. Values in, assignments and prices out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import Float64Array, IntArray

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
    order = best_rows(values, int(quota.sum()) + 1)
    kept = np.unique(order)
    paths = AugmentingPaths(values[kept], np.searchsorted(kept, order), quota, penalty)
    paths.run()
    rows = np.flatnonzero(paths.place >= 0)
    classes = paths.place[rows]
    over = int(np.maximum(np.bincount(classes, minlength=len(quota)) - quota, 0).sum())
    value = float(paths.values[rows, classes].sum()) - (penalty * over if over else 0.0)
    prices = paths.prices()
    return Transport(kept[rows], classes, value, prices, dual_bound(values, quota, prices, penalty))


def best_rows(values: Float64Array, count: int) -> IntArray:
    """The `count` best rows of every class, the best first, (count, C); equal ones by index.

    An optimal batch of b needs no others: if it uses a row for class k that is not among the b best of k, one of those
    is free and no worse.
    """
    size, classes = values.shape
    count = min(count, size)
    order = np.empty((count, classes), dtype=np.int64)
    for cls, column in enumerate(values.T):
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


class AugmentingPaths:
    """Successive best paths: one more row is placed at a time, moving others between classes where that pays.

    Row i in class k may move to class l at a gain of v_il − v_ik. Moves between the same two classes differ only in the
    row, so paths run over the C classes: from an unplaced row to the first class, and on by the best move of each pair.
    """

    def __init__(self, values: Float64Array, order: IntArray, quota: IntArray, penalty: float) -> None:
        self.values, self.order, self.quota, self.penalty = values, order, quota, penalty
        size, classes = values.shape
        self.place = np.full(size, -1, dtype=np.int64)  # the class of each row; −1: not placed
        self.counts = np.zeros(classes, dtype=np.int64)
        self.gain = np.full((classes, classes), -np.inf)  # of the best move k → l
        self.mover = np.zeros((classes, classes), dtype=np.int64)  # the row that makes it
        self.next = np.zeros(classes, dtype=np.int64)  # where the first unplaced row of each class may be
        self.tolerance = ROUNDING * float(np.abs(values).max(initial=0.0))
        self.floor = self._too_little()

    def _too_little(self) -> float:
        """What one more row would be worth where every row is placed: less than any path, so that prices exist."""
        low, high = float(self.values.min(initial=0.0)), float(self.values.max(initial=0.0))
        return low - (len(self.quota) + 1) * (high - low) - (self.penalty if self.penalty < np.inf else 0.0)

    def run(self) -> None:
        """Place as many rows as there are places."""
        self._place_the_undisputed()
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
        theta = (best - self._fees()).max()
        return self._extend(np.maximum(best, np.where(self.counts > self.quota, theta + self.penalty, theta)))[0]

    def _place_the_undisputed(self) -> None:
        """Start from prices at which no class gets more than its quota: what its next best row is worth to it.

        Every row goes where its value exceeds the price by most. At these prices no row would move, so the assignment
        is optimal for the counts that it has, and the paths that follow keep it so. With a penalty, counts themselves
        must be optimal, too: then all classes have one price.
        """
        columns = np.arange(len(self.quota))
        prices = self.values[self.order[np.minimum(self.quota, len(self.order) - 1), columns], columns]
        if self.penalty < np.inf:
            prices = np.full_like(prices, prices.max())
        surplus = self.values - prices
        wished = surplus.argmax(axis=1)
        placed = np.flatnonzero(surplus[np.arange(len(wished)), wished] > 0)
        self.place[placed] = wished[placed]
        self.counts = np.bincount(self.place[placed], minlength=len(self.quota))
        for cls in np.flatnonzero(self.counts).tolist():
            self._refresh(cls)

    def _fees(self) -> Float64Array:
        """What one more row costs in each class, (C,)."""
        return np.where(self.counts < self.quota, 0.0, self.penalty)

    def _augment(self) -> None:
        best, before = self._longest_paths()
        cls = int((best - self._fees()).argmax())
        self.counts[cls] += 1
        changed = []
        while cls >= 0:
            source = int(before[cls])
            row = int(self.mover[source, cls]) if source >= 0 else int(self._unplaced(cls))
            self.place[row] = cls
            changed.append(cls)
            cls = source
        for cls in changed:
            self._refresh(cls)

    def _longest_paths(self) -> tuple[Float64Array, IntArray]:
        """The most that a path from an unplaced row to each class brings, and the class before it (−1: the row)."""
        columns = np.arange(len(self.quota))
        rows = np.array([self._unplaced(cls) for cls in columns.tolist()])
        return self._extend(np.where(rows >= 0, self.values[rows, columns], self.floor))

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
        order, at = self.order[:, cls], int(self.next[cls])
        while at < len(order) and self.place[order[at]] >= 0:
            at += 1
        self.next[cls] = at
        return int(order[at]) if at < len(order) else -1

    def _refresh(self, cls: int) -> None:
        """Find the best moves out of a class anew."""
        members = np.flatnonzero(self.place == cls)
        moves = self.values[members] - self.values[members, cls][:, None]  # (n_k, C)
        best = moves.argmax(axis=0)
        self.gain[cls], self.mover[cls] = moves[best, np.arange(len(best))], members[best]
        self.gain[cls, cls] = -np.inf
