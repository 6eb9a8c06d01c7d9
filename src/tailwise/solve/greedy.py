"""Greedy class balancing (Algorithm 2) on k-center: one pick at a time, exactly as the paper's loop would pick.

    ψ = argmin_i  −d_i + λ·dist(Pᵀz + P_i, [low, high]),   d_i = distance to the nearest labelled or picked sample

Embeddings in, picks in order out. Both terms only rise while picks are made (d falls, the convex penalty grows), so a
stale price is a lower bound: a row is brought up to date when it could win, and most never could.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..balance.target import Ranges
from ..blas import one_blas_thread
from ..types import Float64Array, FloatArray, IntArray
from .blocks import map_blocks, rows_per_block, smallest
from .farthest_distances import UNIT, Nearest, Start, measure, most_central
from .imbalance import added_distance
from .program import Report, silent
from .shards import Rows

if TYPE_CHECKING:
    from .matrices import Matrix

HOT_ROWS = 256  # told of every pick at once
WARM_BYTES = 32 << 20  # of points and probabilities held in memory: the hot rows are chosen among these
READ_ROWS = 2_048  # points read at a time when rows are brought up to date


@dataclass(frozen=True, slots=True, eq=False)
class GreedyPicks:
    """Rows in the order of picking, and how far each was from everything labelled or picked before."""

    indices: IntArray  # (b,)
    distances: Float64Array  # (b,)


def k_center(
    pool: Matrix, labelled: Matrix, budget: int, rows: Rows, lam: float, ranges: Ranges, report: Report = silent,
    *, start: Start | None = None,
) -> GreedyPicks:  # fmt: skip
    """Pick `budget` pool rows by Algorithm 2; λ = 0 is plain farthest-first.

    Equal prices go to the lower index. Where nothing is labelled, the first pick is the row nearest to the pool's mean.
    `start` is what `measure` found for this pool and labelled set, if that is known already.
    """
    with one_blas_thread():
        race = _Race(start or measure(pool, labelled, report), budget, rows, lam, ranges, report)
        if budget and not labelled.shape[0]:
            race.pick(most_central(pool))
        while race.left:
            race.advance()
        return GreedyPicks(np.array(race.picks, dtype=np.int64), race.near.pick_distances())


@dataclass(slots=True, eq=False)
class _Held:
    """Rows whose points and probabilities are at hand."""

    rows: IntArray  # (m,) ascending
    points: FloatArray  # (m, d)
    proba: FloatArray  # (m, C)


class _Race:
    """Prices of all rows: cold rows have stale lower bounds, warm ones are held in memory, hot ones know every pick."""

    def __init__(
        self, start: Start, budget: int, rows: Rows, lam: float, ranges: Ranges, report: Report = silent
    ) -> None:
        self.near, self.report = Nearest(start, budget), report
        self.budget, self.rows, self.lam, self.ranges = budget, rows, lam, ranges
        self.picks: list[int] = []
        self.expected = np.zeros(rows.classes)  # Pᵀz
        self.closed = np.zeros(self.near.size, dtype=bool)
        self.penalty = np.zeros(self.near.size)  # what balance charged each row when last asked
        self.lower = np.zeros(self.near.size)  # no row's price is below this; inf where it is taken
        none = np.empty((0, start.pool.shape[1]))
        self.warm = self.hot = _Held(np.empty(0, dtype=np.int64), none, np.empty((0, rows.classes)))
        self.threshold = self.limit = np.inf  # no other row is cheaper than the one, the best hot row than the other
        row_bytes = start.pool.shape[1] * start.pool.dtype.itemsize + 8 * rows.classes
        self.warm_rows = max(HOT_ROWS, WARM_BYTES // row_bytes)
        # What the price formulas may lose beside the distance: C + 8 roundings of their largest terms.
        terms = np.abs(ranges.low).sum() + np.abs(ranges.high).sum() + 2.0 * budget + 2.0
        self.margin = float(4 * UNIT * (rows.classes + 8) * lam * terms + 8 * np.sqrt(UNIT * self.near.slack))

    @property
    def left(self) -> bool:
        """True while picks are missing."""
        return len(self.picks) < self.budget

    def advance(self) -> None:
        """Warm the cheapest rows and pick among them until a cold row could win; at least one pick."""
        before = len(self.picks)
        self._warm_up()
        while self.left and self._heat_and_pick():
            self.report(f"k-center: {len(self.picks)} of {self.budget} picked")
        if len(self.picks) == before:  # more rows than are hot may be the cheapest: compare them all
            self.pick(self._by_the_letter(self._contenders()))

    def pick(self, row: int) -> None:
        """Take a row and tell the hot ones."""
        held = self.hot if (self.hot.rows == row).any() else self._hold(np.array([row]))
        place = int(np.searchsorted(held.rows, row))
        self.expected += held.proba[place]
        self.near.add(row, held.points[place].astype(np.float64))
        self.near.learn(self.hot.rows, self.hot.points)
        self.picks.append(row)
        self.closed[row], self.lower[row] = True, np.inf

    def _warm_up(self) -> None:
        """Hold the cheapest rows of all, each up to date; the penalties, which cost little, of every row."""

        def charge(where: slice) -> None:
            self.penalty[where] = self._penalty(self.rows.read(where))
            self._price(where)

        map_blocks(self.near.size, rows_per_block(self.rows.classes), charge)
        while len(stale := self._stale(rows := smallest(self.lower, self.warm_rows))):
            self._update(rows[stale])
        self.warm = self._hold(rows[~self.closed[rows]])

    def _heat_and_pick(self) -> bool:
        """Heat the cheapest warm rows and pick among them; False where nothing could be decided."""
        warm, before = self.warm, len(self.picks)
        self.penalty[warm.rows] = self._penalty(warm.proba)
        self._price(warm.rows)
        while len(stale := self._stale(warm.rows[places := smallest(self.lower[warm.rows], HOT_ROWS)])):
            self._update(warm.rows[places[stale]], warm.points[places[stale]])
        self.hot = _Held(warm.rows[places], warm.points[places].astype(np.float64), warm.proba[places])
        others = self.lower.copy()
        others[self.hot.rows] = np.inf
        self.threshold = float(others.min())
        while self.left and (best := self._winner()) is not None:
            self.pick(best)
        return len(self.picks) > before

    def _winner(self) -> int | None:
        """The cheapest hot row; None where another might be cheaper."""
        hot, slack = self.hot.rows, self.near.slack
        self.penalty[hot] = penalty = self._penalty(self.hot.proba)
        self._price(hot)
        worst = penalty - np.sqrt(np.maximum(self.near.squared[hot] - slack, 0.0)) + self.margin
        self.limit = float(worst[~self.closed[hot]].min(initial=np.inf))
        if not self.limit < self.threshold:
            return None
        places = np.flatnonzero(self.lower[hot] <= self.limit)
        return int(hot[places[0]]) if _equal(self.hot, places) else self._by_the_letter(hot[places])

    def _contenders(self) -> IntArray:
        """Every row that may cost no more than the cheapest hot one, up to date."""
        while len(stale := self._stale(rows := np.flatnonzero(self.lower <= self.limit))):
            self._update(rows[stale])
        return rows

    def _by_the_letter(self, rows: IntArray) -> int:
        """The cheapest of ascending rows as Algorithm 2 in float64 finds it; of equals the first."""
        distance = self.near.exact_distances(rows)

        def price(where: slice) -> Float64Array:
            after = self.expected + self.rows.take(rows[where])
            outside = np.maximum(self.ranges.low - after, 0) + np.maximum(after - self.ranges.high, 0)
            return np.asarray(-distance[where] + self.lam * outside.sum(axis=1))

        prices = map_blocks(len(rows), rows_per_block(self.rows.classes), price)
        return int(rows[np.concatenate(prices).argmin()])

    def _stale(self, rows: IntArray) -> IntArray:
        """Places of the open rows that do not know every pick."""
        return np.flatnonzero(~self.closed[rows] & self.near.stale(rows))

    def _hold(self, rows: IntArray) -> _Held:
        return _Held(rows, self.near.read(rows), self.rows.take(rows))

    def _update(self, rows: IntArray, points: FloatArray | None = None) -> None:
        """Bring the distances of rows up to date, on all cores; their points are read where they are not at hand."""

        def one(where: slice) -> None:
            part = rows[where]
            self.near.learn(part, self.near.read(part) if points is None else points[where])
            self._price(part)

        map_blocks(len(rows), READ_ROWS, one)

    def _price(self, where: slice | IntArray) -> None:
        """Lower bounds from what is known of the rows."""
        self.lower[where] = self.penalty[where] - np.sqrt(self.near.squared[where] + self.near.slack) - self.margin
        self.lower[where] = np.where(self.closed[where], np.inf, self.lower[where])

    def _penalty(self, rows: FloatArray) -> Float64Array:
        """What each row would add to λ·dist(Pᵀz, [low, high]): never less after another pick. (n, C) → (n,)."""
        if self.lam == 0:
            return np.zeros(len(rows))
        return self.lam * added_distance(self.ranges, self.expected, rows)


def _equal(held: _Held, places: IntArray) -> bool:
    """True where these rows are one, or copies of one: nothing is left to compare."""
    first = places[0]
    return all(bool((part[places] == part[first]).all()) for part in (held.points, held.proba))
