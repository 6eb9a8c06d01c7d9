"""Strategies that cluster embeddings and pick from each cluster: TypiClust, TCM and DropQuery.

TypiClust (Hacohen, Dekel and Weinshall 2022) picks the most typical image of each cluster, also without any labels.
TCM (Doucet et al. 2024) is TypiClust while labels are few, then margin. DropQuery (Gupte et al. 2024) picks images
whose prediction changes under feature dropout, one from each of b clusters.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np
from threadpoolctl import threadpool_limits

from ..errors import BadInput
from ..inputs import MOST_CLASSES, real_array, real_number, whole_number
from ..matrix.shards import Column
from ..processes import one_blas_thread
from ..solver.path import scale_of, score_scale, score_spread
from ..targets import Ranges
from ..types import Float64Array, FloatArray, IntArray, Predictions, Selection
from .greedy import Imbalance
from .kcenter import both_embeddings, both_matrices, checked_matrix
from .strategy import Base, Task, by_cost, strategy
from .uncertainty import checked_passes

NEIGHBOURS = 20
SMALLEST = 5  # images of a cluster that may be picked from before the others are used up, as in the paper
REFERENCES = 4_000  # images of a large cluster among which neighbours are sought: density, to a common factor
EXACT_KMEANS = 2_000_000  # N·K up to which k-means reads the whole pool in each step
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
    kind = KMeans if len(points) * number <= EXACT_KMEANS else MiniBatchKMeans
    more = {} if kind is KMeans else {"batch_size": 4_096, "max_iter": 20}
    wide = points.astype(np.float32 if points.dtype != np.float64 else np.float64, copy=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than clusters: some stay empty
        fitted = kind(number, n_init=1, random_state=seed % 2**32, **more).fit(wide)
    labels: IntArray = fitted.labels_.astype(np.int64)
    return labels


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

        @cache
        def pick(lam: float) -> tuple[IntArray, float]:
            return _picks(task, levels, lam)

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
