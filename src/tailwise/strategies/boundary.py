"""Boundary: exact quotas at the borders of the classes, filled with images that represent many others.

While labels are few (under two per class), it picks the images that cover the uncertain, class-balanced pool best.
After that every class gets a quota: candidates for its places are the images nearest to its border, and of these it
takes those that cover most. The batch is made in chunks; each is an exact transport problem, with prices that prove it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ..balance.quota import wanted_counts, whole_quotas
from ..errors import BadInput
from ..inputs import real_number, whole_number
from ..score.softmax import balanced_margin
from ..solve.coverage import (
    REFERENCES,
    Coverage,
    Float32Array,
    herd,
    kernel_width,
    sample_references,
    unit_rows,
)
from ..solve.matrices import Matrix
from ..solve.path import parse_balance
from ..solve.shards import Column
from ..solve.source import scan
from ..solve.transport import Transport, transport
from ..types import Float64Array, IntArray, Predictions, Selection
from .base import Base, strategy
from .kcenter import both_matrices
from .task import Task

CHUNKS = 10
KEPT = 0.5  # a pick whose gain falls below this share because of the others in its chunk is left to the next chunk
HERDED = 20_000  # rows that a cold start looks at again and again: those with the largest gains
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

    name: ClassVar[str] = "boundary"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.near, "near", least=1)
        real_number(self.cold, "cold")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:  # noqa: ARG002 - no score
        """Cover the pool while labels are few, else fill quotas."""
        if task.rows.sparse:
            raise BadInput(f"{self.name} needs every probability, but a TopK holds some; give the whole softmax")
        pool, labelled = both_matrices(task, predictions)
        if not task.budget:
            return task.selection(
                np.empty(0, np.int64), informativeness=0.0, balance=self.balance, lam=0.0, method=self.name
            )
        coverage = pool_coverage(task, pool, unit_rows(labelled[:]))
        labels = max(float(task.counts.sum()), labelled.shape[0])
        if labels < self.cold * task.rows.classes:
            return cover(task, pool, coverage, self.name)
        setting = parse_balance(self.balance)
        lam = setting if isinstance(setting, float) else np.inf
        filling = Filling(task, pool, coverage, class_quotas(task), self.near, lam)
        filling.run()
        gained, slack = filling.gained, max(0.0, filling.slack)
        return task.selection(
            np.array(filling.picks), informativeness=gained, balance=self.balance, lam=filling.used_lam,
            method=self.name, status="optimal chunks", objective=-gained, bound=-gained - slack,
            gap=slack / gained if gained else 0.0, places=np.bincount(filling.places, minlength=task.rows.classes),
        )  # fmt: skip


# -- what is to be covered --------------------------------------------------------------------------------------------


def pool_coverage(task: Task, pool: Matrix, labelled: Float32Array) -> Coverage:
    """How well the labelled images represent the uncertain, class-balanced pool.

    An image weighs as much as its margin is small and its likely classes are rare. A sample drawn by these weights
    stands for the pool.
    """
    rng = np.random.default_rng(task.seed)
    shares = (task.counts + task.rows.class_sums()) / (task.counts.sum() + task.rows.size)
    weights = -scan(task.rows, partial(balanced_margin, shares=shares)).values()
    count = int(np.clip(PER_LABEL * (len(labelled) + task.budget), REFERENCES, MOST_REFERENCES))
    references, stands_for = sample_references(weights, count, rng)
    spread = labelled
    if len(labelled) < 2:  # as far apart as the batch will be
        spread = unit_rows(
            pool[np.sort(rng.choice(task.rows.size, min(task.budget + 1, task.rows.size), replace=False))]
        )
    return Coverage.of(unit_rows(pool[references]), stands_for, labelled, kernel_width(spread))


def cover(task: Task, pool: Matrix, coverage: Coverage, method: str) -> Selection:
    """Herding: the images that raise the coverage most, one after the other.

    Gains only fall, so of a large pool only the rows with the largest ones are looked at again and again. The bound is
    that of all rows.
    """
    task.report(f"{method}: covering {task.rows.size:,} images while labels are few")
    before, gains = coverage.value, coverage.gains_of(pool)
    kept = np.sort(np.argsort(-gains, kind="stable")[: max(HERDED, 2 * task.budget)])
    found = herd(coverage, unit_rows(pool[kept]), task.budget)
    gained, most = found.value - before, float(np.sort(gains)[len(gains) - task.budget :].sum())
    bound = found.bound - before if len(kept) == len(gains) else most
    return task.selection(
        kept[found.indices], informativeness=gained, balance=0.0, lam=0.0, method=method, objective=-gained,
        bound=-bound, gap=max(0.0, bound - gained) / gained if gained > 0 else 0.0,
    )  # fmt: skip


# -- quotas and candidates --------------------------------------------------------------------------------------------


def class_quotas(task: Task) -> IntArray:
    """Places per class, (C,): the target, for classes that have labels, or without counts for those the model knows."""
    known = task.counts > 0 if task.counts.any() else task.rows.class_sums() > UNSEEN_BELOW
    return whole_quotas(wanted_counts(task.ranges, task.counts, task.budget, known), task.budget)


def border_candidates(task: Task, quota: IntArray, near: int) -> tuple[IntArray, Float64Array]:
    """Rows near the border of a class with places, ascending, (m,), and how near: 1 to ½ by rank, 0 for others, (m, C).

    `near` rows for each place of a class.
    """
    nearest, _ = task.rows.nearest_borders(min(near * int(quota.max()), task.rows.size))  # (≤ near·q, C)
    rank = np.arange(len(nearest))[:, None]
    among = rank < near * quota  # (≤ near·q, C)
    rows = np.unique(nearest[among])
    nearness = np.zeros((len(rows), len(quota)))
    place, cls = np.nonzero(among)
    nearness[np.searchsorted(rows, nearest[place, cls]), cls] = 1 - rank[place, 0] / (2 * near * quota[cls])
    return rows, nearness


# -- filling the quotas -----------------------------------------------------------------------------------------------


class Filling:
    """Fills quotas chunk by chunk; a chunk is the assignment whose values, nearness × coverage gain, sum to the most.

    Gains only fall as others are picked, so a gain from an earlier chunk is an upper bound. A chunk is solved with
    these until every image that it chooses has a fresh gain: then no other assignment can be better. Where the
    candidates have nothing left to add (copies of what is picked), there are twice as many from then on.
    """

    def __init__(self, task: Task, pool: Matrix, coverage: Coverage, quota: IntArray, near: int, lam: float) -> None:
        self.task, self.pool, self.coverage, self.quota, self.left = task, pool, coverage, quota, quota.copy()
        self.near, self.lam, self.start, self.slack, self.spread = near, lam, coverage.value, 0.0, 0.0
        self.picks: list[int] = []  # rows of the pool
        self.places: list[int] = []  # the class whose place each of them takes
        self._find_candidates()
        self.unit = float(self.gains.max(initial=0.0))  # the most that one image covers: what λ = 1 is worth

    @property
    def gained(self) -> float:
        """By how much the picks have raised the coverage."""
        return self.coverage.value - self.start

    @property
    def used_lam(self) -> float:
        """λ; for exact quotas the smallest that keeps them: half of what prices differ by, in units of λ = 1."""
        return self.lam if self.lam < np.inf else self.spread / (2 * self.unit) if self.unit else 0.0

    def run(self) -> None:
        """Fill all places."""
        budget = self.task.budget
        while missing := budget - len(self.picks):
            chunk = self._solve(share_of(np.maximum(self.left, 0), min(-(-budget // CHUNKS), missing)))
            self.slack += chunk.bound - chunk.value
            self.spread = max(self.spread, float(np.ptp(chunk.prices)))
            self._accept(chunk)
            self.task.report(f"boundary: {len(self.picks):,} of {budget:,} places filled")

    def _find_candidates(self) -> None:
        self.rows, self.nearness = border_candidates(self.task, self.quota, self.near)
        self.units = unit_rows(self.pool[self.rows])
        self.gains = self.coverage.gains(self.units)  # (m,)
        self.gains[np.isin(self.rows, self.picks)] = -1.0  # never again: the others have gains of at least 0
        self.fresh_at = np.full(len(self.rows), len(self.picks))  # after how many picks each was computed

    def _solve(self, quota: IntArray) -> Transport:
        """The best assignment for some places, by fresh gains."""
        penalty = 2 * self.lam * self.unit if self.lam < np.inf else np.inf
        while True:
            used_up = np.count_nonzero(self.gains > NOTHING * self.unit) < quota.sum()
            if used_up and self.near * self.quota.max() < self.task.rows.size:
                self.near *= 2
                self._find_candidates()
                continue
            values = np.where(self.gains[:, None] < 0, -1.0, self.nearness * self.gains[:, None])
            best = transport(values, quota, penalty)
            stale = self.fresh_at < len(self.picks)
            if not stale[best.rows].any():
                return best
            # All that look worth their price: copies of a pick are found out together, not one by one.
            stale &= (values >= best.prices).any(axis=1)
            self.gains[stale], self.fresh_at[stale] = self.coverage.gains(self.units[stale]), len(self.picks)

    def _accept(self, chunk: Transport) -> None:
        """Pick the images of a chunk, but not those that the ones before them have made nearly worthless."""
        order = np.argsort(-self.gains[chunk.rows], kind="stable")
        for at, cls in zip(chunk.rows[order].tolist(), chunk.classes[order].tolist(), strict=True):
            similarity = self.coverage.similarities(self.units[at : at + 1])
            if self.coverage.gain(similarity) >= KEPT * self.gains[at]:
                self.coverage.add(similarity)
                self.picks.append(int(self.rows[at]))
                self.places.append(cls)
                self.left[cls] -= 1
                self.gains[at] = -1.0


def share_of(quota: IntArray, size: int) -> IntArray:
    """A part of the quotas, `size` places in all, (C,)."""
    return whole_quotas(quota * (size / quota.sum()), size)
