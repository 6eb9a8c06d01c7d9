"""Two-round k-center: farthest-first in each part of the pool, then Algorithm 2 among the candidates found there.

An approximation, for pools beyond exact evaluation; with OPT the smallest radius within which b picks and the labelled
set can cover the pool, each round leaves at most 2·OPT, so that plain farthest-first covers the pool within 4·OPT.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..balance.target import Ranges
from ..blas import one_blas_thread
from ..types import IntArray
from .farthest_distances import Nearest, Start
from .greedy import GreedyPicks, k_center
from .program import Report, silent
from .shards import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Coreset:
    """Candidates that stand for the pool.

    Why 4·OPT: farthest-first in a part makes b picks. Were a row of the part then farther than 2·OPT from all picks and
    labelled samples, that row and the picks would be b + 1 rows, each farther than 2·OPT from the others and from the
    labelled set; but each lies within OPT of a labelled sample (none does) or of one of the b optimal picks, so two of
    them share one and lie within 2·OPT of each other. Hence `radius` ≤ 2·OPT. The same words hold for farthest-first
    among the candidates, which are rows of the pool too. A row is within `radius` of a candidate or a labelled sample,
    and that candidate within 2·OPT of a pick or a labelled sample: 4·OPT in all. (In the whole pool at once: 2·OPT.)

    With λ > 0 picks trade distance for balance, and neither way has such a factor. Then this much holds: a row is no
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
    """The largest distance of a pool row to the labelled samples and the picks; inf where there are none of either."""
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
