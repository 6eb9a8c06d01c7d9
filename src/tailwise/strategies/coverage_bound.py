"""How much a batch can cover at most: a bound from Lagrangian duality that holds for every batch of b rows.

For any levels t of the references, at least what labels cover, and for every batch S

    F(S) ≤ Σ_n w_n t_n + Σ_{j ∈ S} ρ_j(t),   ρ_j(t) = Σ_n w_n max(0, k(n, j) − t_n),

since the largest of some similarities is at most t_n plus all that exceed it. So no batch reaches more than the first
sum plus the b largest ρ. Levels that the picks reach give the usual bound of a submodular function, which counts a
reference once for each row that represents it better. Better levels rise where several of the b largest rows exceed
them, and fall where none does: a subgradient method finds them, on the few rows that matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..processes import one_blas_thread
from ..types import Float64Array, IntArray, Matrix
from .coverage import Candidates, Coverage, Float32Array, Herd, Kept

ROUNDS = 8  # how often all rows are looked at
STEPS = 60  # of the subgradient method in each round, on the rows that matter
ROWS_PER_PICK = 3  # rows with the largest ρ that join these in each round, for each pick, and 100 more
STALLED = 4  # steps without progress after which they become half as long
NEARLY = 0.5  # of a level: a search leaves out smaller similarities, which the bound itself counts
SHARES = 0.2, 0.5  # of what the batch covers, below which levels do not fall where too many similarities would matter
FLOOR = 1e-4  # nor below this
MOST_SEARCHED = 1_000_000  # similarities that each step looks at
TIED = 0.1  # of the distance between bound and batch, for each pick: ρ that differ by less count as equal
LEAST_PROGRESS = 0.02  # of the distance between bound and batch, in a round; less is not worth another


@dataclass(frozen=True, slots=True, eq=False)
class Ceiling:
    """No batch S has F(S) above `base` + Σ_{j ∈ S} `gains`_j; rounding in float32 is allowed for."""

    levels: Float32Array  # t (R,)
    base: float  # Σ w t
    gains: Float64Array  # ρ (N,)

    def of(self, budget: int) -> float:
        """No batch of so many rows has a larger F; F itself is never above 1."""
        largest = np.sort(self.gains)[max(0, len(self.gains) - budget) :]
        return self.base + float(largest.sum())


def ceiling_at(found: Herd, levels: Float32Array) -> Ceiling:
    """The bound of some levels, for all rows that the batch was picked from."""
    return Ceiling(levels, base_of(found.candidates.coverage, levels), found.candidates.most_at(levels))


def ceiling_of_pool(coverage: Coverage, levels: Float32Array, pool: Matrix, rows: IntArray) -> Ceiling:
    """The same for some rows of a pool of embeddings, wherever they are."""
    most = replace(coverage, covered=levels).gains_of(pool, excess=coverage.rounding)
    return Ceiling(levels, base_of(coverage, levels), most[rows])


def base_of(coverage: Coverage, levels: Float32Array) -> float:
    """Σ w t, and what rounding may have taken from what labels cover."""
    return (1 + coverage.rounding) * float(coverage.weights @ levels)


def lowest_ceilings(found: Herd, gap: float) -> tuple[Ceiling, ...]:
    """By the levels of the labels, of the batch, and by the best ones that a few rounds find, the lowest first.

    They end where the lowest is within `gap` of what the batch gains, or where too many similarities would matter.
    """
    coverage, budget = found.candidates.coverage, len(found.indices)
    known = (ceiling_at(found, found.start), ceiling_at(found, coverage.covered.copy()))
    best = last = known[1]
    with one_blas_thread():
        kept = kept_for(found) if budget else None
        if kept is None:
            return sorted_by_height(known, budget)
        found = replace(found, candidates=Candidates(coverage, found.candidates.rows, kept))
        rows = np.empty(0, dtype=np.int64)  # those that have had one of the largest ρ
        for _ in range(ROUNDS):
            distance = min(one.of(budget) for one in (*known, best)) - found.value
            joining = min(ROWS_PER_PICK * budget + 100, len(last.gains))
            rows = np.union1d(rows, np.argpartition(-last.gains, joining - 1)[:joining])
            if distance <= gap * (found.value - found.before) or kept.places(rows)[0].size > MOST_SEARCHED:
                break
            last = ceiling_at(found, LevelSearch.of(kept, rows, found, best.levels).run())
            progress = best.of(budget) - last.of(budget)
            best = last if progress > 0 else best
            if 0 <= progress < LEAST_PROGRESS * distance:
                break
    return sorted_by_height((*known, best), budget)


def kept_for(found: Herd) -> Kept | None:
    """Similarities that matter to a search; where too many exceed what labels cover, levels stay above a share."""
    known, covered = found.candidates.kept, found.candidates.coverage.covered
    if known is not None and (known.least <= found.start).all():
        return known
    for share in SHARES:
        least = np.maximum(found.start, np.maximum(share * covered, FLOOR))
        start = replace(found.candidates.coverage, covered=least)
        if (kept := Candidates(start, found.candidates.rows).keep()) is not None:
            return kept
    return None


def sorted_by_height(ceilings: tuple[Ceiling, ...], budget: int) -> tuple[Ceiling, ...]:
    """The lowest for a batch of this size first."""
    return tuple(sorted(ceilings, key=lambda one: one.of(budget)))


@dataclass(frozen=True, slots=True, eq=False)
class LevelSearch:
    """Similarities of some rows to the references whose levels they may exceed."""

    row: IntArray  # (n,) 0 to m − 1
    reference: IntArray  # (n,)
    similarity: Float64Array  # (n,)
    rows: int  # m, at least b
    budget: int
    value: float  # of the batch: no bound is below
    weights: Float64Array  # (R,)
    least: Float32Array  # (R,) levels do not fall below
    start: Float32Array  # (R,) levels that the search begins with

    @classmethod
    def of(cls, kept: Kept, rows: IntArray, found: Herd, start: Float32Array) -> LevelSearch:
        """Of those that are kept, for some rows."""
        at, row = kept.places(rows)
        high = kept.similarities[at] > np.maximum(kept.least, NEARLY * start)[kept.where[at]]
        at, row = at[high], row[high]
        return cls(
            row, kept.where[at].astype(np.int64), kept.similarities[at].astype(np.float64), len(rows),
            len(found.indices), found.value, found.candidates.coverage.weights, kept.least, start,
        )  # fmt: skip

    def run(self) -> Float32Array:
        """Subgradient steps of Polyak's length towards the value of the batch; the best levels."""
        at = best_levels = self.start.astype(np.float64)
        best, length, stalled = np.inf, 1.0, 0
        for _ in range(STEPS):
            bound, slope = self.bound(at)
            if bound < best:
                best, best_levels, stalled = bound, at, 0
            elif stalled + 1 < STALLED:
                stalled += 1
            else:
                length, stalled, at = length / 2, 0, best_levels
                continue
            size = float(self.weights @ (slope * slope))
            if size == 0 or bound <= self.value:
                break
            at = np.maximum(at - length * (bound - self.value) / size * slope, self.least)
        return best_levels.astype(np.float32)

    def bound(self, levels: Float64Array) -> tuple[float, Float64Array]:
        """The bound of these rows, and by how much it rises with each level, over its weight, (R,).

        Rows whose ρ are nearly equal, such as copies, share the places that are left for them.
        """
        over = self.similarity - levels[self.reference]
        above = np.flatnonzero(over > 0)
        row, reference = self.row[above], self.reference[above]
        worth = over[above] * self.weights[reference]
        gains: Float64Array = np.bincount(row, worth, self.rows).astype(np.float64, copy=False)
        largest = -np.partition(-gains, self.budget - 1)[: self.budget]  # of these rows, at least b
        bound = float(self.weights @ levels + largest.sum())
        least, near = float(largest.min()), TIED * max(0.0, bound - self.value) / self.budget
        sure, tied = gains > least + near, np.abs(gains - least) <= near
        left = self.budget - np.count_nonzero(sure)
        share: Float64Array = sure + tied * (left / np.count_nonzero(tied))
        times = np.bincount(reference, share[row], minlength=len(levels))  # how many of the largest exceed a level
        return bound, np.asarray(1.0 - times, dtype=np.float64)
