"""Boundary: exact quotas at the borders of the classes, filled with images that represent many others.

While labels are few (under two per class) or the model is unsure of most images, it picks the images that cover the
uncertain, class-balanced pool best. After that every class gets a quota: candidates for its places are the images
nearest to its border, and of these it takes those that cover most. The batch is made in chunks; each is an exact
transport problem, with prices that prove it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import real_number, whole_number
from ..matrix.open import Matrix
from ..matrix.shards import Column, Rows, scan
from ..score import balanced_margin, least_confidence
from ..selection import Selection
from ..solver.path import parse_balance
from ..solver.transport import SparseValues, Transport, sparse_transport
from ..targets import wanted_counts, whole_quotas
from ..types import Float64Array, IntArray, Predictions
from .coverage import (
    REFERENCES,
    Candidates,
    Coverage,
    Float32Array,
    first_copies,
    herd,
    kernel_width,
    sample_references,
    unit_rows,
)
from .coverage_bound import ceiling_of_pool, lowest_ceilings
from .strategy import Base, Task, both_matrices, strategy

CHUNKS = 10
KEPT = 0.5  # a pick whose gain falls below this share because of the others in its chunk is left to the next chunk
HERDED = 20_000  # candidates of a cold start, or four times the budget, next to those that stand for the pool
MOST_SCANNED = 4_000_000_000  # similarities that are computed to bound what candidates may lose
PER_LABEL = 4  # references for each labelled and each new image, so that none stands for nothing
MOST_REFERENCES = 20_000
NOTHING = 1e-6  # of the largest gain: less than that adds nothing
UNSEEN_BELOW = 1e-12  # a class with less expected images than this in the whole pool is not known to the model


@strategy
@dataclass(frozen=True, kw_only=True)
class Boundary(Base):
    """Class quotas at the borders, filled by coverage.

    `balance`: "auto" keeps the quotas exactly; a number λ lets the batch leave them at a cost of λ for each image by
    which a class differs, where 1 is what the best single image covers; 0 ignores them.
    """

    near: int = 20
    """Candidates for each place: so many times the quota of a class, nearest to its border."""
    cold: float = 2.0
    """Labels per class below which the pool is covered without quotas."""
    sure: float = 0.5
    """Mean confidence below which it is, too: a model that is mostly wrong does not know where its borders are."""

    name: ClassVar[str] = "boundary"
    title: ClassVar[str] = "Boundary"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.near, "near", least=1)
        real_number(self.cold, "cold")
        real_number(self.sure, "sure")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:  # noqa: ARG002 - no score
        """Cover the pool while labels are few, else fill quotas."""
        if task.rows.sparse:
            raise BadInput(f"{self.name} needs every probability, but a TopK holds some; give the whole softmax")
        pool, labelled = both_matrices(task, predictions)
        if not task.budget:
            return task.selection(
                np.empty(0, np.int64), informativeness=0.0, balance=self.balance, lam=0.0, method=self.name
            )
        weights = pool_weights(task)
        coverage, references = pool_coverage(task, pool, unit_rows(labelled[:]), weights)
        labels = max(float(task.counts.sum()), labelled.shape[0])
        confidence = 1 + float(scan(task.rows, least_confidence).values().mean())
        if labels < self.cold * task.rows.classes or confidence < self.sure:
            others, _ = sample_references(weights, max(HERDED, 4 * task.budget), np.random.default_rng([task.seed, 1]))
            return cover(task, pool, coverage, np.concatenate([references, others]), self.name)
        setting = parse_balance(self.balance)
        lam = setting if isinstance(setting, float) else np.inf
        before, filling = coverage.value, Filling(task, pool, coverage, class_quotas(task), self.near, lam)
        filling.run()
        gained, slack = coverage.value - before, max(0.0, filling.slack)
        if lam == np.inf:  # the smallest λ that keeps the quotas: half of what prices differ by, in units of λ = 1
            lam = filling.spread / (2 * filling.unit) if filling.unit else 0.0
        return task.selection(
            np.array(filling.picks), informativeness=gained, balance=self.balance, lam=lam,
            method=self.name, status="optimal chunks", objective=-gained, bound=-gained - slack,
            gap=slack / gained if gained else 0.0, places=np.bincount(filling.places, minlength=task.rows.classes),
        )  # fmt: skip


# -- what is to be covered --------------------------------------------------------------------------------------------


def pool_weights(task: Task) -> Float64Array:
    """How much each image counts, (N,): as much as its margin is small and its likely classes are rare."""
    shares = (task.counts + task.rows.class_sums()) / (task.counts.sum() + task.rows.size)
    return -scan(task.rows, partial(balanced_margin, shares=shares)).values()


def pool_coverage(task: Task, pool: Matrix, labelled: Float32Array, weights: Float64Array) -> tuple[Coverage, IntArray]:
    """How well the labelled images represent the pool, and the rows that stand for it, drawn by the weights."""
    rng = np.random.default_rng(task.seed)
    count = int(np.clip(PER_LABEL * (len(labelled) + task.budget), REFERENCES, MOST_REFERENCES))
    references, stands_for = sample_references(weights, count, rng)
    spread = labelled
    if len(labelled) < 2:  # as far apart as the batch will be
        spread = unit_rows(
            pool[np.sort(rng.choice(task.rows.size, min(task.budget + 1, task.rows.size), replace=False))]
        )
    return Coverage.of(unit_rows(pool[references]), stands_for, labelled, kernel_width(spread)), references


def cover(task: Task, pool: Matrix, coverage: Coverage, spread: IntArray, method: str) -> Selection:
    """Herding: the images that raise the coverage most, one after the other; copies only when all images are picked.

    Candidates in a large pool are rows that are `spread` like it. The bound is that of all rows.
    """
    task.report(f"{method}: covering {task.rows.size:,} images while labels are few")
    before, first = coverage.value, first_copies(pool)
    rows = np.unique(first)
    if len(rows) < task.budget:
        rows = np.arange(task.rows.size)
    kept = rows
    if len(rows) > max(HERDED, 4 * task.budget):
        kept = np.unique(first[spread])
        kept = np.union1d(kept, np.setdiff1d(rows, kept)[: max(0, task.budget - len(kept))])
        task.report(f"{method}: candidates are {len(kept):,} images that are spread like the pool")
    found = herd(coverage, unit_rows(pool[kept]), task.budget)
    gained = found.value - before
    best, most = lowest_ceilings(found, task.gap)[0], 1.0
    if len(kept) == len(rows):
        most = best.of(task.budget)
    elif pool.shape[0] * len(best.levels) <= MOST_SCANNED:  # of all rows, not only of the candidates
        most = ceiling_of_pool(coverage, best.levels, pool, rows).of(task.budget)
    bound = min(1.0, most) - before
    return task.selection(
        kept[found.indices], informativeness=gained, balance=0.0, lam=0.0, method=method, objective=-gained,
        bound=-bound, gap=max(0.0, bound - gained) / gained if gained > 0 else 0.0,
    )  # fmt: skip


# -- quotas and candidates --------------------------------------------------------------------------------------------


def class_quotas(task: Task) -> IntArray:
    """Places per class, (C,): the target, for classes that have labels, or without counts for those the model knows."""
    known = task.counts > 0 if task.counts.any() else task.rows.class_sums() > UNSEEN_BELOW
    return whole_quotas(wanted_counts(task.ranges, task.counts, task.budget, known), task.budget)


@dataclass(frozen=True, slots=True, eq=False)
class Borders:
    """Images near the borders of classes with places."""

    rows: IntArray  # (m,) of the pool, ascending
    place: IntArray  # (n,) of pairs of an image and a class: the number of the image in `rows`, ascending in a class
    classes: IntArray  # (n,) and the class, ascending
    nearness: Float64Array  # (n,) 1 for the image that is nearest to the border of the class, to ½ by rank


def border_candidates(rows: Rows, quota: IntArray, near: int, first: IntArray) -> Borders:
    """For each class the `near` images per place that are nearest to its border; copies count as one image.

    `first` has the number of the first copy of each row, (N,).
    """
    wanted = np.minimum(near * quota, len(first))  # (C,)
    count = int(wanted.max())
    while True:
        nearest, _ = rows.nearest_borders(count)  # (≤ count, C)
        found = [_distinct(first[nearest[:, cls]], most) for cls, most in enumerate(wanted.tolist())]
        share = min((len(one) / most for one, most in zip(found, wanted.tolist(), strict=True) if most), default=1.0)
        if share == 1 or count >= len(first):
            break
        count = min(len(first), max(2 * count, int(count / share)))
    classes = np.repeat(np.arange(len(quota)), [len(one) for one in found])
    rank = np.concatenate([np.arange(len(one)) for one in found])
    chosen, place = np.unique(np.concatenate(found), return_inverse=True)
    order = np.lexsort((place, classes))
    nearness = 1 - rank / (2 * near * quota[classes])
    return Borders(chosen, place[order], classes[order], nearness[order])


def _distinct(rows: IntArray, most: int) -> IntArray:
    """The first `most` different numbers, in their order."""
    _, at = np.unique(rows, return_index=True)
    return rows[np.sort(at)[:most]]


# -- filling the quotas -----------------------------------------------------------------------------------------------


class Filling:
    """Fills quotas chunk by chunk; a chunk is the assignment whose values, nearness × coverage gain, sum to the most.

    Gains only fall as others are picked, so a gain from an earlier chunk is an upper bound. A chunk is solved with
    these until every image that it chooses has a fresh gain: then no other assignment can be better. Where the
    candidates have nothing left to add (copies of what is picked), there are twice as many from then on.
    """

    def __init__(self, task: Task, pool: Matrix, coverage: Coverage, quota: IntArray, near: int, lam: float) -> None:
        self.task, self.pool, self.coverage, self.quota, self.left = task, pool, coverage, quota, quota.copy()
        self.near, self.lam, self.slack, self.spread = near, lam, 0.0, 0.0
        self.first = first_copies(pool)
        self.picks: list[int] = []  # rows of the pool
        self.places: list[int] = []  # the class whose place each of them takes
        self._find_candidates()
        self.unit = float(self.gains.max(initial=0.0))  # the most that one image covers: what λ = 1 is worth

    def run(self) -> None:
        """Fill all places."""
        budget = self.task.budget
        while missing := budget - len(self.picks):
            left, size = np.maximum(self.left, 0), min(-(-budget // CHUNKS), missing)
            chunk = self._solve(whole_quotas(left * (size / left.sum()), size))  # a part of the places that are left
            self.slack += chunk.bound - chunk.value
            self.spread = max(self.spread, float(np.ptp(chunk.prices)))
            self._accept(chunk)
            self.task.report(f"boundary: {len(self.picks):,} of {budget:,} places filled")

    def _find_candidates(self) -> None:
        self.borders = border_candidates(self.task.rows, self.quota, self.near, self.first)
        self.candidates = Candidates(self.coverage, unit_rows(self.pool[self.borders.rows]))
        self.gains = self.candidates.gains(np.arange(len(self.borders.rows)))  # (m,)
        self.picked = np.isin(self.borders.rows, self.picks)  # (m,)
        self.fresh_at = np.full(len(self.borders.rows), len(self.picks))  # after how many picks each was computed

    def _solve(self, quota: IntArray) -> Transport:
        """The best assignment for some places, by fresh gains."""
        penalty = 2 * self.lam * self.unit if self.lam < np.inf else np.inf
        while True:
            useful = np.count_nonzero((self.gains > NOTHING * self.unit) & ~self.picked)
            if useful < quota.sum() and self.near * self.quota.max() < self.task.rows.size:
                self.near *= 2
                self._find_candidates()
                continue
            if len(self.picked) - self.picked.sum() < quota.sum():  # every image that is left is a copy
                self.first = np.arange(len(self.first))
                self._find_candidates()
            at, classes = self.borders.place, self.borders.classes
            values = SparseValues(at, classes, self.borders.nearness * self.gains[at], self.picked)
            best = sparse_transport(values, quota, penalty)
            stale = self.fresh_at < len(self.picks)
            if not stale[best.rows].any():
                return best
            # All that look worth their price: copies of a pick are found out together, not one by one.
            again = np.flatnonzero(stale & (values.above(best.prices) >= 0))
            self.gains[again], self.fresh_at[again] = self.candidates.gains(again), len(self.picks)

    def _accept(self, chunk: Transport) -> None:
        """Pick the images of a chunk, but not those that the ones before them have made nearly worthless."""
        order = np.argsort(-self.gains[chunk.rows], kind="stable")
        for at, cls in zip(chunk.rows[order].tolist(), chunk.classes[order].tolist(), strict=True):
            if self.candidates.add_if(at, KEPT * self.gains[at]):
                self.picks.append(int(self.borders.rows[at]))
                self.places.append(cls)
                self.left[cls] -= 1
                self.picked[at] = True
