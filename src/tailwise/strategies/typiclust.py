"""TypiClust and TCM: the most typical image of each cluster of embeddings.

TypiClust (Hacohen, Dekel and Weinshall 2022) also works without any labels. TCM (Doucet et al. 2024) is TypiClust while
labels are few, then margin.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import BadInput
from ..inputs import MOST_CLASSES, real_array, real_number, whole_number
from ..matrix.shards import Column
from ..processes import one_blas_thread
from ..selection import Selection
from ..solver.path import scale_of, score_scale, score_spread
from ..targets import Ranges
from ..types import Float64Array, FloatArray, IntArray, Predictions
from .farthest_first import squares
from .strategy import Base, Task, both_embeddings, both_matrices, by_cost, draw, strategy

NEIGHBOURS = 20
SMALLEST = 5  # images of a cluster that may be picked from before the others are used up, as in the paper
REFERENCES = 4_000  # images of a large cluster among which neighbours are sought: density, to a common factor
EXACT_KMEANS = 2_000_000  # N·K up to which k-means reads the whole pool in each step
START_ROWS = 12_288  # points of a large pool among which the starts of clusters are drawn; 3·K if that is more
DUPLICATE = 1e-3  # of the mean distance: what the distance between equal images counts as


@strategy
@dataclass(frozen=True, kw_only=True)
class TypiClust(Base):
    """The most typical image of each large cluster without labels, for a start with few labels or none."""

    most_clusters: int = 500
    name: ClassVar[str] = "typiclust"
    title: ClassVar[str] = "TypiClust"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.most_clusters, "most_clusters", least=1)

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the typicalities; balance weighs within each cluster, as in Algorithm 2."""
        pool, labelled = both_embeddings(task, predictions)
        with one_blas_thread(), threadpool_limits(limits=1, user_api="openmp"):
            visits = self._visits(task, pool, labelled)

        known = visits.typicality[np.concatenate([np.empty(0, np.int64), *visits.members.values()])]
        scale, spread = scale_of(known, task.budget, task.rows.classes), score_spread(known, task.budget) or 1.0
        lam = task.find_lam(self.balance, lambda lam: visits.pick(task, lam), costs, scale=scale, spread=spread)
        picks = visits.pick(task, lam.value)
        total = float(visits.typicality[picks].sum())
        return task.selection(picks, informativeness=total, balance=self.balance, lam=lam, method=self.name)

    def _visits(self, task: Task, pool: FloatArray, labelled: FloatArray) -> Visits:
        """Cluster pool and labelled set together, and judge the images of the clusters that will be picked from."""
        if not task.budget:
            return Visits(np.empty(0, np.int64), np.zeros(len(pool)), {})
        number = min(len(labelled) + task.budget, self.most_clusters, len(pool) + len(labelled))  # K
        task.report(f"typiclust: {number} clusters of {len(pool)} images")
        places = cluster(np.concatenate([pool, labelled]) if len(labelled) else pool, number, task.seed)
        inside, covering = places[: len(pool)], places[len(pool) :]
        counts = np.bincount(inside, minlength=number)
        order = visiting_order(counts, np.bincount(covering, minlength=number), task.budget)
        rng, typical, members = np.random.default_rng(task.seed), np.zeros(len(pool)), {}
        by_cluster = np.split(np.argsort(inside, kind="stable"), np.cumsum(counts)[:-1])
        for place in np.unique(order).tolist():
            rows = by_cluster[place]
            typical[rows] = typicality(pool[rows], rng)
            members[place] = rows[np.argsort(-typical[rows], kind="stable")]
        return Visits(order, typical, members)


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The clusters to pick from, in their order, and what is in them."""

    order: IntArray  # (b,) clusters; one stands here as often as it is picked from
    typicality: Float64Array  # (N,), 0 in clusters that are not visited
    members: dict[int, IntArray]  # cluster → pool rows, the most typical first, equal ones by index

    def pick(self, task: Task, lam: float) -> IntArray:
        """The row of each visit with the least −typicality + λ·dist(Pᵀz + P_i, target), (b,); λ = 0 is TypiClust."""
        picks: list[int] = []
        open_ = np.ones(len(self.typicality), dtype=bool)
        expected, taken = np.zeros(task.rows.classes), dict.fromkeys(self.members, 0)
        for place in self.order.tolist():
            rows = self.members[place][taken[place] :] if lam == 0 else self.members[place][open_[self.members[place]]]
            best = 0
            if lam:
                proba = task.rows.take(rows)  # (m, C)
                best = int((lam * _distances(task.ranges, expected + proba) - self.typicality[rows]).argmin())
                expected += proba[best]
            picks.append(int(rows[best]))
            open_[rows[best]] = False
            taken[place] += 1
        return np.array(picks, dtype=np.int64)


def visiting_order(counts: IntArray, covered: IntArray, budget: int) -> IntArray:
    """Which cluster to pick from, (b,): fewest labels first, then the largest, then the first; a pick is a label.

    A cluster of fewer than five images waits until the others are used up, and one without images in the pool is left
    out. `counts` are the images of each cluster in the pool, `covered` those that are labelled. Where clusters have
    fewer than ten images in the mean, small is what has less than half of the mean: the paper's five would leave
    nearly all of a small pool to wait, and give all picks to the one cluster that is larger.

    >>> visiting_order(np.array([9, 30, 20, 3]), np.array([0, 0, 1, 0]), 4).tolist()
    [1, 0, 1, 2]
    """
    left, sizes = counts.copy(), counts + covered
    small = min(SMALLEST, sizes[sizes > 0].mean() / 2)
    labels = covered.copy()
    order = np.empty(budget, dtype=np.int64)
    for turn in range(budget):
        order[turn] = best = np.lexsort((-sizes, labels, sizes < small, left == 0))[0]  # the last key counts first
        left[best] -= 1
        labels[best] += 1
    return order


def cold_start(embeddings: FloatArray, *, classes: int) -> Predictions:
    """What a strategy is asked before anything is labelled: embeddings, equal probabilities, an empty labelled set.

    >>> cold_start(np.zeros((3, 2)), classes=4).proba.tolist()
    [[0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]]
    """
    points = real_array(embeddings, "embeddings")
    if points.ndim != 2:
        raise BadInput(f"embeddings must be a matrix (images × features), but have shape {points.shape}")
    count = whole_number(classes, "classes", least=1, most=MOST_CLASSES)
    proba = np.broadcast_to(1 / count, (len(points), count))  # takes no memory
    return Predictions(proba, embeddings=points, labelled_embeddings=points[:0])


def cluster(points: FloatArray, number: int, seed: int) -> IntArray:
    """The cluster of each point, (n,), by k-means: exact steps in a small pool, mini-batches in a large one."""
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    if not points.shape[1]:  # without features all points are equal
        return np.zeros(len(points), dtype=np.int64)
    wide: FloatArray = points.astype(np.float32 if points.dtype != np.float64 else np.float64, copy=False)
    if len(points) * number <= EXACT_KMEANS:
        search = KMeans(number, n_init=1, random_state=seed % 2**32)
    else:
        starts = wide[spread_rows(wide, number, np.random.default_rng(seed))]
        search = MiniBatchKMeans(
            number, init=starts, n_init=1, batch_size=4_096, max_iter=20, random_state=seed % 2**32
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: some stay empty
        fitted = search.fit(wide)
    labels: IntArray = fitted.labels_.astype(np.int64)
    return labels


def spread_rows(points: FloatArray, number: int, rng: np.random.Generator) -> IntArray:
    """Points to start k-means from, (number,): each drawn in proportion to its distance² from the nearest before it.

    This is k-means++ with one draw for each start. scikit-learn draws several and keeps the best, which takes three
    quarters of the time of k-means for clusters that are no better.
    """
    sample = max(START_ROWS, 3 * number)
    rows = np.arange(len(points))
    if len(rows) > sample:
        rows = np.sort(rng.choice(rows, sample, replace=False))
    centred = points[rows] - points[rows].mean(axis=0, dtype=np.float64).astype(points.dtype)
    norms = squares(centred)
    nearest, starts = np.ones(len(rows)), np.empty(number, dtype=np.int64)
    for turn in range(number):
        # Where each point is a start or its copy, any will do.
        starts[turn] = row = draw(nearest, rng) if nearest.any() else int(rng.integers(len(rows)))
        squared = np.maximum(norms - 2 * (centred @ centred[row]) + norms[row], 0.0)
        squared[row] = 0.0
        nearest = np.minimum(nearest, squared) if turn else squared
    return rows[starts]


def typicality(points: FloatArray, rng: np.random.Generator) -> Float64Array:
    """1 / mean distance to the 20 nearest of the other points, (m,); 0 for a point that is alone.

    >>> typicality(np.array([[0.0], [1.0], [3.0]]), np.random.default_rng(0)).round(2).tolist()
    [0.5, 0.67, 0.4]
    """
    from sklearn.neighbors import NearestNeighbors

    size = len(points)
    if size == 1:
        return np.zeros(1)
    chosen = np.arange(size) if size <= REFERENCES else np.sort(rng.choice(size, REFERENCES, replace=False))
    neighbours = min(NEIGHBOURS, len(chosen) - 1)
    centred = points.astype(np.float64) - points.mean(axis=0, dtype=np.float64)
    search = NearestNeighbors(n_neighbors=neighbours + 1, algorithm="brute").fit(centred[chosen])
    distances = search.kneighbors(centred)[0]  # (m, neighbours + 1), rising; a reference finds itself first
    itself = np.zeros(size, dtype=bool)
    itself[chosen] = True
    mean = np.where(itself, distances[:, 1:].mean(axis=1), distances[:, :-1].mean(axis=1))
    overall = mean.mean()
    # Where all points are equal, each is as typical as the others.
    return np.asarray(1 / np.maximum(mean, DUPLICATE * overall)) if overall > 0 else np.ones(size)


def _distances(ranges: Ranges, counts: Float64Array) -> Float64Array:
    """l1 distance of each row of counts (m, C) from the target, (m,)."""
    outside = np.maximum(ranges.low - counts, 0) + np.maximum(counts - ranges.high, 0)
    total: Float64Array = outside.sum(axis=1)
    return total


@strategy
@dataclass(frozen=True, kw_only=True)
class Tcm(Base):
    """Typical images of clusters without labels while labels are few, then images with a small margin.

    It costs what `typiclust` and `margin` cost. λ as a number weighs typicality at first, and margins later; "auto" and
    wishes suit both.
    """

    labels_per_class: float = 2.0
    """Labels per class, in the mean, from which on margin chooses. Labels are the sum of `counts` or the rows of
    `labelled_embeddings`, whichever is more."""

    name: ClassVar[str] = "tcm"
    title: ClassVar[str] = "TCM"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number(self.labels_per_class, "labels_per_class")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """One of the two, for the whole batch."""
        labels = max(float(task.counts.sum()), both_matrices(task, predictions)[1].shape[0])
        classes = task.rows.classes
        typical = labels < self.labels_per_class * classes
        task.report(f"tcm: {labels:g} labels for {classes} classes; {'typiclust' if typical else 'margin'} chooses")
        if typical:
            chosen = TypiClust(balance=self.balance).choose(task, predictions, costs)
        else:
            scale = score_scale(costs, task.budget)
            chosen = by_cost(task, costs, self.balance, scale=scale, method=self.name)
        return replace(chosen, method=self.name)
