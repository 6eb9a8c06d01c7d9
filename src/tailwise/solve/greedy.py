"""Greedy class balancing (Algorithm 2) on k-center: one pick at a time, exactly as the paper's loop would pick.

    ψ = argmin_i  −d_i + λ·dist(Pᵀz + P_i, [low, high]),   d_i = distance to the nearest labelled or picked sample

Embeddings in, picks in order out. Both terms only rise while picks are made (d falls, the convex penalty grows), so a
stale price is a lower bound: only the cheapest rows are kept up to date, the others wait until they could win.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from ..balance.target import Ranges
from ..types import Float64Array, FloatArray, IntArray
from .program import Report, silent
from .shards import Rows, map_blocks, smallest

ACTIVE_ROWS = 1_024
BLOCK_ROWS = 1_024
ROUNDING = 1e-12  # of the largest squared norm: more than |x|² + |c|² − 2x·c loses in float64


@dataclass(frozen=True, slots=True, eq=False)
class GreedyPicks:
    """Rows in the order of picking, and how far each was from everything labelled or picked before."""

    indices: IntArray  # (b,)
    distances: Float64Array  # (b,)


def k_center(
    pool: FloatArray, labelled: FloatArray, budget: int, rows: Rows, lam: float, ranges: Ranges, report: Report = silent
) -> GreedyPicks:
    """Pick `budget` pool rows by Algorithm 2; λ = 0 is plain farthest-first.

    Equal prices go to the lower index. Where nothing is labelled, the first pick is the row nearest to the pool's mean.
    """
    with threadpool_limits(limits=1, user_api="blas"):
        race = _Race(pool, labelled, rows, lam, ranges)
        if budget and not len(labelled):
            race.pick(_most_central(pool))
        width = ACTIVE_ROWS
        while len(race.picks) < budget:
            before = len(race.picks)
            race.refresh(width)
            while len(race.picks) < budget and (best := race.winner()) is not None:
                race.pick(best)
            # Nothing could be decided among so many: near-equal prices reach beyond them.
            width = 4 * width if len(race.picks) == before else ACTIVE_ROWS
            report(f"k-center: {len(race.picks)} of {budget} picked")
        return GreedyPicks(np.array(race.picks, dtype=np.int64), np.array(race.distances))


class _Race:
    """Prices of all rows: exact for the active ones, stale lower bounds for the others."""

    def __init__(self, pool: FloatArray, labelled: FloatArray, rows: Rows, lam: float, ranges: Ranges) -> None:
        self.pool, self.rows, self.lam, self.ranges = pool, rows, lam, ranges
        self.picks: list[int] = []
        self.distances: list[float] = []
        self.norms = np.concatenate(map_blocks(len(pool), BLOCK_ROWS, lambda where: _squares(pool[where])))
        largest = max(self.norms.max(initial=0.0), _squares(labelled).max(initial=0.0))
        self.slack = ROUNDING * float(largest)  # of a squared distance
        self.squared = np.full(len(pool), np.inf)  # distance² to the nearest centre, give or take the slack
        self.nearest = np.zeros(len(pool), dtype=np.int64)  # which centre that is
        self.centres = np.asarray(labelled)  # (L + absorbed picks, d)
        self.labelled = len(labelled)
        self.expected = np.zeros(rows.classes)  # Pᵀz
        self.closed = np.zeros(len(pool), dtype=bool)
        self.active = np.empty(0, dtype=np.int64)
        self.threshold = -np.inf  # no inactive row is cheaper than this
        self._absorb(0)

    def refresh(self, width: int) -> None:
        """Bring every row up to date and make the `width` cheapest open ones active."""
        seen = len(self.centres)
        self.centres = np.concatenate([self.centres, self.pool[self.picks[seen - self.labelled :]]])
        self._absorb(seen)
        price = np.concatenate(map_blocks(len(self.pool), BLOCK_ROWS, self._optimistic_price))
        price[self.closed] = np.inf
        self.active = smallest(price, width)
        self.active = self.active[~self.closed[self.active]]
        price[self.active] = np.inf
        self.threshold = float(price.min())
        self.active_rows = self.rows.take(self.active)  # (m, C)
        self.active_points = self.pool[self.active].astype(np.float64)  # (m, d)

    def winner(self) -> int | None:
        """The place of the cheapest open row among the active ones; None where an inactive row might be cheaper."""
        penalty = self._penalty(self.active_rows)
        squared = self.squared[self.active]
        open_ = ~self.closed[self.active]
        worst = penalty - np.sqrt(np.maximum(squared - self.slack, 0.0))
        limit = worst[open_].min(initial=np.inf)
        if not limit < self.threshold:
            return None
        near = np.flatnonzero(open_ & (penalty - np.sqrt(squared + self.slack) <= limit))
        price = penalty[near] - self._distance(near)
        return int(self.active[near[price.argmin()]])

    def pick(self, row: int) -> None:
        """Take a row and tell the active ones."""
        place = np.flatnonzero(self.active == row)
        self.distances.append(float(self._distance(place)[0]) if len(place) else np.inf)
        self.picks.append(row)
        self.closed[row] = True
        self.expected += self.rows.take(np.array([row]))[0]
        if len(self.active):
            centre = self.pool[row].astype(np.float64)
            squared = self.norms[self.active] + self.norms[row] - 2.0 * (self.active_points @ centre)
            closer = squared < self.squared[self.active]
            self.squared[self.active[closer]] = np.maximum(squared[closer], 0.0)
            self.nearest[self.active[closer]] = self.labelled + len(self.picks) - 1

    def _absorb(self, seen: int) -> None:
        """Let every row know the centres from `seen` on: (rows of a block) × (centres of a block) at a time."""

        def update(where: slice) -> None:
            points = self.pool[where].astype(np.float64)
            for start in range(seen, len(self.centres), BLOCK_ROWS):
                centres = self.centres[start : start + BLOCK_ROWS].astype(np.float64)
                squared = points @ (-2.0 * centres.T)
                squared += _squares(centres)
                at = squared.argmin(axis=1)
                least = np.maximum(squared[np.arange(len(at)), at] + self.norms[where], 0.0)
                closer = least < self.squared[where]
                self.squared[where][closer] = least[closer]
                self.nearest[where][closer] = at[closer] + start

        map_blocks(len(self.pool), BLOCK_ROWS, update)

    def _optimistic_price(self, where: slice) -> Float64Array:
        price = self._penalty(self.rows.read(where))
        price -= np.sqrt(self.squared[where] + self.slack)
        return price

    def _penalty(self, rows: FloatArray) -> Float64Array:
        """What each row would add to λ·dist(Pᵀz, [low, high]): never less after another pick. (n, C) → (n,)."""
        low, high = self.ranges.low - self.expected, self.ranges.high - self.expected
        if self.lam == 0:
            return np.zeros(len(rows))
        total = cdist(low[None], rows, "cityblock")[0]
        if (low < high).any():  # dist = ½|s − low| + ½|s − high| − ½(high − low)
            total = (total + cdist(high[None], rows, "cityblock")[0] - (high - low).sum()) / 2
        added: Float64Array = self.lam * (total - self.ranges.distance(self.expected))
        return added

    def _distance(self, places: IntArray) -> Float64Array:
        """Exact distance of active rows to their nearest centres, from the difference of the points."""
        nearest = self.nearest[self.active[places]]
        picked = nearest >= self.labelled
        centres = np.empty((len(places), self.pool.shape[1]))
        centres[~picked] = self.centres[nearest[~picked]]
        centres[picked] = self.pool[np.array(self.picks, dtype=np.int64)[nearest[picked] - self.labelled]]
        return np.sqrt(_squares(self.active_points[places] - centres))


def _most_central(pool: FloatArray) -> int:
    """The row nearest to the mean of the pool."""
    mean = pool.mean(axis=0, dtype=np.float64)
    return int(np.concatenate(map_blocks(len(pool), BLOCK_ROWS, lambda where: _squares(pool[where] - mean))).argmin())


def _squares(points: FloatArray) -> Float64Array:
    """|x|² of every row, in float64."""
    wide = points.astype(np.float64, copy=False)
    result: Float64Array = np.einsum("ij,ij->i", wide, wide)
    return result
