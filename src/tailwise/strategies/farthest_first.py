"""The distance of every pool row to its nearest centre: labelled images first, then picks, one by one.

A row may be out of date: its distance² to the picks that it knows is an upper bound, and it is compared with the others
when needed. Products |x|² + |c|² − 2x·c are in float64, within a proven slack; differences x − c decide near-ties.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..matrix.blocks import map_blocks, smallest
from ..processes import one_blas_thread
from ..solver.program import Report, silent
from ..types import Float64Array, FloatArray, IntArray

if TYPE_CHECKING:
    from ..matrix.open import Matrix


BATCH_ROWS = 512  # of rows and of centres in one product: 2 MB, which stays in cache until its least is found
READ_BYTES = 4 << 20  # of pool points read at a time
LABELLED_BYTES = 64 << 20  # of labelled samples, in float64, held at a time
FAR_ROWS = 1 << 13  # brought up to date at a time when the farthest row is sought
STRIDE_ROWS = 1 << 16  # between two reports
UNIT = 2.0**-53  # half the distance of 1 to the next float64


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Distances of the pool to the labelled set: what every λ starts from."""

    pool: Matrix  # (N, d)
    labelled: Matrix  # (L, d)
    norms: Float64Array  # (N,) |x|²
    squared: Float64Array  # (N,) distance² to the nearest labelled sample, give or take the slack; inf without any
    nearest: IntArray  # (N,) which one that is
    slack: float


@dataclass(frozen=True, slots=True, eq=False)
class Centres:
    """Some centres, prepared for products."""

    points: Float64Array  # c (k, d)
    folded: Float64Array  # −2c (k, d)
    norms: Float64Array  # |c|² (k,)

    @classmethod
    def of(cls, points: FloatArray) -> Centres:
        """Widen and fold."""
        wide = points.astype(np.float64, copy=False)
        return cls(wide, -2.0 * wide, squares(wide))

    def squared(self, points: Float64Array) -> Float64Array:
        """|c|² − 2x·c of every point and centre, (m, k)."""
        product: Float64Array = points @ self.folded.T
        product += self.norms
        return product


def measure(pool: Matrix, labelled: Matrix, report: Report = silent) -> Start:
    """Compare every pool row with every labelled sample, a block with a block, on all cores."""
    size, others = pool.shape[0], labelled.shape[0]
    squared, nearest = np.full(size, np.inf), np.zeros(size, dtype=np.int64)
    parts = map_blocks(size, _rows_read(pool), lambda where: squares(pool[where]))
    norms = np.concatenate([np.empty(0), *parts])
    largest = norms.max(initial=0.0)
    with one_blas_thread():
        for first, held in _in_parts(labelled):
            largest = max(largest, held.norms.max())
            for stride in range(0, size, STRIDE_ROWS):
                ahead = slice(stride, min(stride + STRIDE_ROWS, size))
                _compare_all(pool, ahead, norms, _batches(held, first), squared, nearest)
                known = first + len(held.norms)
                report(f"k-center: {ahead.stop} of {size} images compared with {known} of {others} labelled ones")
    return Start(pool, labelled, norms, squared, nearest, _slack(pool.shape[1], float(largest)))


def _compare_all(
    pool: Matrix, ahead: slice, norms: Float64Array, batches: list[tuple[int, Centres]],
    squared: Float64Array, nearest: IntArray,
) -> None:  # fmt: skip
    """Let the rows of a stretch of the pool know some centres."""

    def compare(where: slice) -> None:
        first = ahead.start + where.start
        read = np.asarray(pool[first : ahead.start + where.stop])
        for at in range(0, len(read), BATCH_ROWS):
            points = read[at : at + BATCH_ROWS].astype(np.float64, copy=False)
            mine = slice(first + at, first + at + len(points))
            for number, centres in batches:
                _approach(points, norms[mine], centres, number, squared[mine], nearest[mine])

    map_blocks(ahead.stop - ahead.start, _rows_read(pool), compare)


def _rows_read(pool: Matrix) -> int:
    return max(BATCH_ROWS, READ_BYTES // max(1, pool.shape[1] * pool.dtype.itemsize))


def _slack(features: int, largest: float) -> float:
    """How far a distance² may be from the one that differences give, by either's rounding.

    A sum of d products, in any order, errs by at most d·u·Σ|terms|: (d + 3)·u·(|x| + |c|)² for the three together, and
    the sum of squared differences by (d + 3)·u·|x − c|²; both (|x| + |c|)² and |x − c|² are at most 4·max|·|².
    """
    return 2 * 4 * (features + 4) * UNIT * largest


def _in_parts(labelled: Matrix) -> Iterator[tuple[int, Centres]]:
    step = max(BATCH_ROWS, LABELLED_BYTES // (8 * max(1, labelled.shape[1])))
    for first in range(0, labelled.shape[0], step):
        yield first, Centres.of(np.asarray(labelled[first : first + step]))


def _batches(held: Centres, first: int = 0) -> list[tuple[int, Centres]]:
    """Centres in batches, each with the number of its first, where the first of all is `first`."""
    cuts = [slice(at, at + BATCH_ROWS) for at in range(0, len(held.norms), BATCH_ROWS)]
    return [(first + cut.start, Centres(held.points[cut], held.folded[cut], held.norms[cut])) for cut in cuts]


def _approach(
    points: Float64Array, norms: Float64Array, centres: Centres, first: int, squared: Float64Array, nearest: IntArray
) -> None:
    """Lower `squared` (m,) in place where one of the centres, numbered from `first`, is nearer."""
    product = centres.squared(points)
    at = product.argmin(axis=1)
    least = np.maximum(product[np.arange(len(at)), at] + norms, 0.0)
    closer = least < squared
    squared[closer] = least[closer]
    nearest[closer] = at[closer] + first


class Nearest:
    """Distance² of each pool row to the nearest of the labelled samples and of the picks that it knows."""

    def __init__(self, start: Start, budget: int) -> None:
        self.start, self.slack = start, start.slack
        self.size, features = start.pool.shape
        self.labelled = start.labelled.shape[0]
        self.squared, self.nearest = start.squared.copy(), start.nearest.copy()
        self.picks = Centres(np.empty((budget, features)), np.empty((budget, features)), np.empty(budget))
        self.origins = np.empty(budget, dtype=np.int64)  # the centre nearest to each pick when it was made; −1 for none
        self.count = 0  # picks so far
        self.seen = np.zeros(self.size, dtype=np.int64)  # how many of them each row knows
        self.exact = np.full(self.size, np.inf)  # distance by differences, to the centres compared
        self.compared = np.full(self.size, -1, dtype=np.int64)  # −1: none; else the labelled and so many picks

    def add(self, row: int, point: Float64Array) -> None:
        """Make a pool row that is up to date a centre."""
        self.origins[self.count] = self.nearest[row] if self.labelled + self.count else -1
        self.picks.points[self.count], self.picks.folded[self.count] = point, -2.0 * point
        self.picks.norms[self.count] = self.start.norms[row]
        self.count += 1

    def learn(self, rows: IntArray, points: FloatArray | None = None) -> None:
        """Bring ascending rows up to date, those together that miss the same picks; points not at hand are read."""
        points = np.asarray(self.start.pool[rows]) if points is None else points
        order = np.argsort(self.seen[rows], kind="stable")
        for at in range(0, len(order), BATCH_ROWS):
            part = order[at : at + BATCH_ROWS]
            some, wide = rows[part], points[part].astype(np.float64, copy=False)
            norms, squared, nearest = self.start.norms[some], self.squared[some], self.nearest[some]
            for first, centres in self._picks_from(int(self.seen[some].min(initial=self.count))):
                _approach(wide, norms, centres, self.labelled + first, squared, nearest)
            self.squared[some], self.nearest[some], self.seen[some] = squared, nearest, self.count

    def _picks_from(self, known: int) -> Iterator[tuple[int, Centres]]:
        for first in range(known, self.count, BATCH_ROWS):
            cut = slice(first, min(first + BATCH_ROWS, self.count))
            yield first, Centres(self.picks.points[cut], self.picks.folded[cut], self.picks.norms[cut])

    def pick_distances(self) -> Float64Array:
        """How far each pick was from all centres before it, by the difference to the nearest; inf where none was."""
        mine = self.origins[: self.count]
        old, new = np.flatnonzero((mine >= 0) & (mine < self.labelled)), np.flatnonzero(mine >= self.labelled)
        centres = np.full((self.count, self.picks.points.shape[1]), np.inf)
        if len(old):
            wanted, back = np.unique(mine[old], return_inverse=True)
            centres[old] = np.asarray(self.start.labelled[wanted])[back]
        centres[new] = self.picks.points[mine[new] - self.labelled]
        return np.sqrt(squares(self.picks.points[: self.count] - centres)) if self.count else np.empty(0)

    def radius(self) -> float:
        """The largest distance of any row to its nearest centre, 0 where there are no rows.

        A row whose distance to the centres that it knows is below the largest cannot be the farthest, and stays behind.
        """
        while self.size:
            far = smallest(-self.squared, FAR_ROWS)
            behind = far[self.seen[far] < self.count]
            if not len(behind):
                return float(self.exact_distances(far[[self.squared[far].argmax()]])[0])
            self._learn_all(behind)
        return 0.0

    def _learn_all(self, rows: IntArray) -> None:
        map_blocks(len(rows), 4 * BATCH_ROWS, lambda where: self.learn(rows[where]))

    def exact_distances(self, rows: IntArray) -> Float64Array:
        """Least distance by differences, as a loop over all centres finds it, of ascending rows that are up to date.

        A centre whose product lies more than twice the slack above the least cannot be the nearest. What has been
        compared is remembered, so that each row meets each centre once.
        """
        behind = rows[(self.compared[rows] < self.count) & (self.exact[rows] > 0)]
        map_blocks(len(behind), BATCH_ROWS, lambda where: self._compare(behind[where]))
        return self.exact[rows]

    def _compare(self, rows: IntArray) -> None:
        points = np.asarray(self.start.pool[rows]).astype(np.float64, copy=False)
        new = self.compared[rows] < 0
        if new.any():
            for _, held in _in_parts(self.start.labelled):
                for _, centres in _batches(held):
                    self._differences(rows[new], points[new], centres)
        known = int(self.compared[rows].min())
        for _, centres in self._picks_from(max(known, 0)):
            self._differences(rows, points, centres)
        self.compared[rows] = self.count

    def _differences(self, rows: IntArray, points: Float64Array, centres: Centres) -> None:
        product = centres.squared(points) + self.start.norms[rows][:, None]
        mine, theirs = np.nonzero(product <= (self.squared[rows] + 2 * self.slack)[:, None])
        for at in range(0, len(mine), BATCH_ROWS):
            one, other = mine[at : at + BATCH_ROWS], theirs[at : at + BATCH_ROWS]
            found = np.sqrt(((points[one] - centres.points[other]) ** 2).sum(axis=1))
            np.minimum.at(self.exact, rows[one], found)


def most_central(pool: Matrix) -> int:
    """The row nearest to the mean of the pool."""
    size = pool.shape[0]
    step = _rows_read(pool)
    sums = map_blocks(size, step, lambda where: np.sum(pool[where], axis=0, dtype=np.float64))
    mean = np.sum(sums, axis=0) / size
    away = map_blocks(size, step, lambda where: squares(np.asarray(pool[where], dtype=np.float64) - mean))
    return int(np.concatenate(away).argmin())


def squares(points: FloatArray) -> Float64Array:
    """|x|² of every row, in float64."""
    wide = np.asarray(points, dtype=np.float64)
    result: Float64Array = np.einsum("ij,ij->i", wide, wide)
    return result
