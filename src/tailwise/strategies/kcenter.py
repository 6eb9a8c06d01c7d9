"""KCenterGreedy and its balanced form (Algorithm 2): images far from all that is labelled or picked, one at a time.

    ψ = argmin_i  −d_i + λ·dist(Pᵀz + P_i, [low, high]),   d_i = distance to the nearest labelled or picked image

The picks are exactly those of the paper's loop. Both terms only rise while picks are made (d falls, the convex penalty
grows), so an outdated price is a lower bound: a row is brought up to date when it could win, and most never could.

`parts=` is an approximation for very large pools: farthest-first in each part, then Algorithm 2 among the candidates
found there. With OPT the smallest radius within which b picks and the labelled set can cover the pool, each round
leaves at most 2·OPT, so plain farthest-first covers the pool within 4·OPT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import ClassVar

import numpy as np

from ..inputs import whole_number
from ..matrix.blocks import map_blocks, rows_per_block, smallest
from ..matrix.open import Matrix
from ..matrix.shards import Column, Rows
from ..processes import one_blas_thread
from ..selection import Selection
from ..solver.program import Report, silent
from ..targets import Ranges
from ..types import Float64Array, FloatArray, IntArray, Predictions
from .farthest_first import UNIT, Nearest, Start, measure, most_central
from .strategy import Base, Task, added_distance, both_matrices, strategy

HOT_ROWS = 256  # updated after every pick
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
        while len(race.picks) < budget:
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
        # What the price formulas may lose next to the distance: C + 8 roundings of their largest terms.
        terms = np.abs(ranges.low).sum() + np.abs(ranges.high).sum() + 2.0 * budget + 2.0
        self.margin = float(4 * UNIT * (rows.classes + 8) * lam * terms + 8 * np.sqrt(UNIT * self.near.slack))

    def advance(self) -> None:
        """Warm the cheapest rows and pick among them until a cold row could win; at least one pick."""
        before = len(self.picks)
        self._warm_up()
        while len(self.picks) < self.budget and self._heat_and_pick():
            self.report(f"k-center: {len(self.picks)} of {self.budget} picked")
        if len(self.picks) == before:  # more rows than are hot may be the cheapest: compare them all
            self.pick(self._by_the_letter(self._contenders()))

    def pick(self, row: int) -> None:
        """Take a row and update the hot ones."""
        held = self.hot if row in self.hot.rows else self._hold(np.array([row]))
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
        while len(self.picks) < self.budget and (best := self._winner()) is not None:
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
        behind = (self.near.seen[rows] < self.near.count) & (self.near.exact[rows] > 0)  # at distance 0 nothing changes
        return np.flatnonzero(~self.closed[rows] & behind)

    def _hold(self, rows: IntArray) -> _Held:
        return _Held(rows, np.asarray(self.near.start.pool[rows]), self.rows.take(rows))

    def _update(self, rows: IntArray, points: FloatArray | None = None) -> None:
        """Bring the distances of rows up to date, on all cores; their points are read where they are not at hand."""

        def one(where: slice) -> None:
            part = rows[where]
            self.near.learn(part, None if points is None else points[where])
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


@dataclass(frozen=True, slots=True, eq=False)
class Coreset:
    """Candidates that stand for the pool.

    Why 4·OPT: farthest-first in a part makes b picks. Were a row of the part then farther than 2·OPT from all picks and
    labelled samples, that row and the picks would be b + 1 rows, each farther than 2·OPT from the others and from the
    labelled set; but each lies within OPT of a labelled sample (none does) or of one of the b optimal picks, so two of
    them share one and lie within 2·OPT of each other. Hence `radius` ≤ 2·OPT. The same words hold for farthest-first
    among the candidates, which are rows of the pool too. A row is within `radius` of a candidate or a labelled sample,
    and that candidate within 2·OPT of a pick or a labelled sample: 4·OPT in all. (In the whole pool at once: 2·OPT.)

    With λ > 0 picks trade distance for balance, and neither way has such a factor. Then this much holds: a row is not
    farther from the picks than `radius` plus the farthest candidate. What the expected counts could reach with the
    whole pool is not promised, since the probabilities of a candidate are not those of the rows it stands for.
    """

    start: Start  # of the candidates, in memory
    rows: Rows  # P of the candidates
    indices: IntArray  # (K,) which pool rows they are, ascending
    radius: float  # no pool row is farther than this from a candidate or a labelled sample

    def k_center(self, budget: int, lam: float, ranges: Ranges, report: Report = silent) -> GreedyPicks:
        """Algorithm 2 among the candidates; indices are those of the pool."""
        start = self.start
        found = k_center(start.pool, start.labelled, budget, self.rows, lam, ranges, report, start=start)
        return replace(found, indices=self.indices[found.indices])


def find_coreset(start: Start, rows: Rows, budget: int, parts: int, report: Report = silent) -> Coreset:
    """The first round: `budget` candidates of each of `parts` equal stretches of the pool, or all that it has."""
    borders = np.linspace(0, len(start.norms), parts + 1).astype(np.int64).tolist()
    chosen, radii = [], [0.0]
    for number, (first, end) in enumerate(pairwise(borders), start=1):
        part = _cut(start, slice(first, end))
        found = _farthest_first(part, min(budget, end - first))
        chosen.append(first + np.sort(found))
        radii.append(covering_radius(part, found))
        report(f"k-center: candidates of part {number} of {parts}; its images lie within {radii[-1]:.4g} of them")
    indices = np.concatenate(chosen)
    return Coreset(_cut(start, indices), Rows(rows.take(indices)), indices, max(radii))


def covering_radius(start: Start, picks: IntArray) -> float:
    """The largest distance of a pool row to the labelled samples and the picks; inf without any of either."""
    near = Nearest(start, len(picks))
    with one_blas_thread():
        for row in picks.tolist():
            near.add(row, np.asarray(start.pool[row : row + 1], dtype=np.float64)[0])
        return near.radius()


def _farthest_first(start: Start, budget: int) -> IntArray:
    """Plain k-center, for which no probabilities are needed."""
    size = len(start.norms)
    one_class, nothing = Rows(np.broadcast_to(1.0, (size, 1))), np.zeros(1)
    picks = k_center(start.pool, start.labelled, budget, one_class, 0.0, Ranges(nothing, nothing), start=start)
    return picks.indices


def _cut(start: Start, where: slice | IntArray) -> Start:
    """Some rows of the pool, in memory."""
    return replace(
        start, pool=np.asarray(start.pool[where]),
        norms=start.norms[where], squared=start.squared[where], nearest=start.nearest[where],
    )  # fmt: skip


@strategy
@dataclass(frozen=True, kw_only=True)
class KCenter(Base):
    """Farthest-first in the embedding, each pick weighing distance against balance."""

    parts: int = 1
    """1: exact. More: two rounds, candidates from each of so many parts of the pool, then the picks among those."""

    name: ClassVar[str] = "kcenter"
    title: ClassVar[str] = "KCenter"
    rank: ClassVar[int] = 3
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.parts, "parts", least=1, but=", where 1 is exact")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """Algorithm 2; `informativeness` is the sum of the distances at which the picks were made."""
        start = measure(*both_matrices(task, predictions), task.report)
        coreset = self._coreset(task, start)
        pick = cache(partial(_picks, task, start, coreset))
        # λ weighs samples against distances: a typical distance at which picks are made is its natural unit.
        scale = _typical(pick(0.0)) if isinstance(self.balance, str) else 1.0
        lam = task.find_lam(self.balance, lambda lam: pick(lam).indices, costs, scale=scale)
        picks = pick(lam.value)
        if coreset:
            radius = covering_radius(start, picks.indices)
            task.report(
                f"k-center: not exact, but among {len(coreset.indices)} candidates; every image is within "
                f"{coreset.radius:.6g} of a candidate or a labelled image, and within {radius:.6g} of a pick or a "
                "labelled image"
            )
        reached = float(picks.distances[np.isfinite(picks.distances)].sum())
        method = f"{self.name} (coreset of {len(coreset.indices)})" if coreset else self.name
        return task.selection(picks.indices, informativeness=reached, balance=self.balance, lam=lam, method=method)

    def _coreset(self, task: Task, start: Start) -> Coreset | None:
        """Candidates where two rounds are asked for; None where the picks are made among all rows."""
        if self.parts == 1 or not 0 < self.parts * task.budget < task.rows.size:  # else every row is a candidate
            return None
        return find_coreset(start, task.rows, task.budget, self.parts, task.report)


def _picks(task: Task, start: Start, coreset: Coreset | None, lam: float) -> GreedyPicks:
    if coreset:
        return coreset.k_center(task.budget, lam, task.ranges, task.report)
    return k_center(start.pool, start.labelled, task.budget, task.rows, lam, task.ranges, task.report, start=start)


def _typical(picks: GreedyPicks) -> float:
    finite = picks.distances[np.isfinite(picks.distances)]
    return float(finite.mean()) if len(finite) and finite.mean() > 0 else 1.0
