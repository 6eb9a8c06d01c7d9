"""DropQuery (Gupte et al. 2024): images whose prediction changes under feature dropout, one from each of b clusters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import BadInput
from ..inputs import real_number
from ..matrix.shards import Column
from ..processes import one_blas_thread
from ..selection import Selection
from ..types import Float64Array, FloatArray, IntArray, Predictions
from .strategy import Base, Imbalance, Task, checked_matrix, strategy
from .typiclust import cluster
from .uncertainty import checked_passes


@strategy
@dataclass(frozen=True, kw_only=True)
class DropQuery(Base):
    """Images whose prediction changes under dropout, the nearest to the centre of each of as many clusters as picks.

    Where fewer images qualify than are asked for, all of them are picked, and the rest comes in the same way from those
    on which at least one pass disagrees, then from all others. Centres choose in turn, that of the largest cluster
    first; a cluster that stays empty, as with copies, gives its turn to the largest ones. With balance, a centre weighs
    distance against Algorithm 2's term. Costs T·N·C, a k-means of the M images that qualify, and M·d for each pick.
    """

    threshold: float = 0.5
    """The share of passes that must disagree with the prediction without dropout."""

    name: ClassVar[str] = "dropquery"
    title: ClassVar[str] = "DropQuery"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "mc_proba")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < real_number(self.threshold, "threshold", "a share above 0, at most 1") <= 1:
            raise BadInput(f"threshold is {self.threshold}; it must be a share above 0, at most 1")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is minus the sum of the distances of the picks from the centres that chose them."""
        points = np.asarray(checked_matrix(predictions.embeddings, "embeddings", task.rows.size))
        disagreeing = disagreement(checked_passes(task, predictions), task.rows.largest_class())
        with one_blas_thread(), threadpool_limits(limits=1, user_api="openmp"):
            levels = self._levels(task, points, disagreeing)
        pick = cache(partial(_picks, task, levels))
        # λ weighs samples against distances: the mean distance of a pick from its centre is the natural unit.
        scale = pick(0.0)[1] / max(task.budget, 1) if isinstance(self.balance, str) else 1.0
        lam = task.find_lam(self.balance, lambda lam: pick(lam)[0], costs, scale=scale or 1.0)
        picks, distance = pick(lam.value)
        return task.selection(picks, informativeness=0.0 - distance, balance=self.balance, lam=lam, method=self.name)

    def _levels(self, task: Task, points: FloatArray, disagreeing: Float64Array) -> list[Level]:
        """The images that qualify, then those on which some pass disagrees, then the others, until picks are enough."""
        qualify, some = disagreeing >= self.threshold, disagreeing > 0
        levels, left = [], task.budget
        for level in (qualify, some & ~qualify, ~some):
            rows = np.flatnonzero(level)
            wanted = min(left, len(rows))
            if wanted:
                task.report(f"dropquery: {wanted} of {len(rows)} images; up to {disagreeing[rows].max():.0%} disagree")
                levels.append(Level.of(rows, points[rows].astype(np.float64), wanted, task.seed))
                left -= wanted
        return levels


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """Images to pick from, and the centres that choose among them, in their order."""

    rows: IntArray  # (m,) ascending
    points: Float64Array  # (m, d)
    centres: Float64Array  # (k, d), one for each pick; where k = m all images are picked, each its own centre

    @classmethod
    def of(cls, rows: IntArray, points: Float64Array, wanted: int, seed: int) -> Level:
        """As many centres as are wanted, by k-means."""
        if wanted == len(rows):
            return cls(rows, points, points)
        places = cluster(points, wanted, seed)
        sizes = np.bincount(places, minlength=wanted)
        groups = np.split(np.argsort(places, kind="stable"), np.cumsum(sizes)[:-1])
        centres = np.stack([points[group].mean(axis=0) if len(group) else points[0] for group in groups])
        return cls(rows, points, centres[in_turns(sizes, wanted)])


def _picks(task: Task, levels: list[Level], lam: float) -> tuple[IntArray, float]:
    """For each centre the open image with the least distance + λ·(what it adds to the imbalance); ties by index."""
    from scipy.spatial.distance import cdist

    imbalance = Imbalance(task.rows, task.ranges, lam)
    picks, total = [], 0.0
    for level in levels:
        whole = len(level.centres) == len(level.rows)  # each image is its own centre, and balance has no say
        proba = task.rows.take(level.rows) if lam and not whole else np.empty((len(level.rows), 0))
        closed = np.zeros(len(level.rows), dtype=bool)
        for turn, centre in enumerate(level.centres):
            if whole:
                best = turn
            else:
                distance = cdist(centre[None], level.points)[0]
                price = distance + (imbalance.added(proba) if lam else 0.0)
                best = int(np.where(closed, np.inf, price).argmin())
                total += float(distance[best])
            closed[best] = True
            picks.append(int(level.rows[best]))
            imbalance.add(picks[-1])
    return np.array(picks, dtype=np.int64), total


def disagreement(passes: FloatArray, guesses: IntArray) -> Float64Array:
    """The share of passes (T, N, C) whose most probable class is not the one without dropout (N,), (N,).

    >>> disagreement(np.array([[[0.9, 0.1]], [[0.2, 0.8]]]), np.array([0])).tolist()
    [0.5]
    """
    differs = np.zeros(len(guesses))
    for one in passes:
        differs += one.argmax(axis=1) != guesses
    return differs / len(passes)


def in_turns(sizes: IntArray, count: int) -> IntArray:
    """`count` visits to groups of these sizes: each once, the largest first, then again those that have images left.

    >>> in_turns(np.array([1, 3, 2]), 5).tolist()
    [1, 2, 0, 1, 2]
    """
    largest_first = np.argsort(-sizes, kind="stable")
    turns = [largest_first[sizes[largest_first] > turn] for turn in range(int(sizes.max()))]
    return np.concatenate(turns)[:count]
