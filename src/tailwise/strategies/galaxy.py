"""GALAXY and DIRECT: strategies that read labels while they pick, and so need an oracle.

GALAXY (Zhang, Katz-Samuels and Nowak 2022) bisects between differently labelled images in the order of each class.
DIRECT (Nuggehalli, Zhang, Jain and Nowak 2025) finds each class's best threshold, then labels on both sides of it.

Class k orders the pool and the labelled set by p_k − max over the others of p, from the image most like k to the one
least like it; equal ones go by row, those of the pool before the labelled ones. Takes 12 bytes per image and class
while they are sorted, then 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..inputs import class_labels, softmax_rows
from ..matrix.blocks import rows_per_block
from ..matrix.nearest import one_against_rest
from ..matrix.shards import Column
from ..selection import Selection
from ..solver.path import parse_balance
from ..types import BoolArray, IntArray, Predictions
from .strategy import Base, Task, strategy

Int32Array = NDArray[np.int32]


class ClassOrders:
    """The order of every class, in which images of the pool are picked and labelled one by one.

    Images 0 … N − 1 are the pool, N … N + L − 1 the labelled set; n = N + L.
    """

    def __init__(self, task: Task, predictions: Predictions) -> None:
        if task.rows.sparse:
            raise BadInput(
                "the order of a class needs every probability, but a TopK holds only the largest of each row; "
                "give the whole softmax"
            )
        self.task = task
        self.classes, self.size = task.rows.classes, task.rows.size
        known = softmax_rows(predictions.labelled_proba, "labelled_proba")
        if known.ndim != 2 or known.shape[1] != self.classes:
            raise BadInput(f"labelled_proba must be (labelled images, {self.classes}), but has shape {known.shape}")
        labels = class_labels(predictions.labelled_labels, "labelled_labels", len(known), self.classes)
        self.images = self._sorted(known)  # (C, n) the image at each rank
        self.ranks = np.empty_like(self.images)  # (C, n) the rank of each image
        for order, rank in zip(self.images, self.ranks, strict=True):
            rank[order] = np.arange(len(order), dtype=np.int32)
        self.picks: list[int] = []
        self.open = np.ones(self.size + len(known), dtype=bool)  # (n,) whether an image may still be picked
        self.open[self.size :] = False
        self.labels = np.bincount(labels, minlength=self.classes)  # (C,) labels known so far
        # Ranks of the labelled images, ascending, (C, m): 2·rank, and 1 more where the image is of the class.
        of_class = labels[None, :] == np.arange(self.classes)[:, None]  # (C, L)
        self._keys = np.sort(2 * self.ranks[:, self.size :].astype(np.int64) + of_class, axis=1)

    def labelled(self, cls: int | slice = slice(None)) -> tuple[IntArray, BoolArray]:
        """Ranks of the labelled images in the order of a class, ascending, and whether each is of the class, (m,).

        Of all classes, (C, m), where none is named.
        """
        keys = self._keys[cls]
        return keys >> 1, (keys & 1).astype(bool)

    def pick(self, image: int) -> None:
        """Pick an image of the pool without a look at its label."""
        self.open[image] = False
        self.picks.append(image)

    def pick_and_read(self, image: int) -> None:
        """Pick an image of the pool, and ask the oracle for its label."""
        self.pick(image)
        assert self.task.oracle is not None  # checked by `select`
        label = class_labels(self.task.oracle(np.array([image], dtype=np.int64)), "oracle", 1, self.classes)[0]
        self.labels[label] += 1
        keys = 2 * self.ranks[:, image].astype(np.int64) + (np.arange(self.classes) == label)
        self._keys = np.sort(np.concatenate([self._keys, keys[:, None]], axis=1), axis=1)

    def _sorted(self, labelled: NDArray[np.floating]) -> Int32Array:
        """Images from the most to the least like each class, (C, n)."""
        rows, step = self.task.rows, rows_per_block(self.classes)
        margins = np.empty((self.classes, self.size + len(labelled)))  # (C, n)
        for start in range(0, self.size, step):
            block = one_against_rest(rows.read(slice(start, start + step)))
            margins[:, start : start + len(block)] = block.T
        margins[:, self.size :] = one_against_rest(labelled).T
        order = np.empty(margins.shape, dtype=np.int32)
        for cls, margin in enumerate(margins):
            order[cls] = np.argsort(-margin, kind="stable")
        return order


@dataclass(frozen=True, kw_only=True)
class LabelReader(Base):
    """What both have in common: they read labels inside a batch, and have no balanced form."""

    needs: ClassVar[tuple[str, ...]] = ("proba", "labelled_proba", "labelled_labels")
    reads_labels: ClassVar[bool] = True
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if parse_balance(self.balance) not in (0.0, "auto"):
            raise BadInput(
                f"{self.name} has no balanced form: the labels that it reads, not expected counts, decide what it "
                "picks next; use base with balance instead"
            )


NOWHERE = 1 << 40  # farther than any rank


@strategy
@dataclass(frozen=True, kw_only=True)
class Galaxy(LabelReader):
    """Bisects between labelled images of a class and others in its order, reading each label; no balanced form.

    1. Two labelled images that follow each other in the order of class k, one of class k and the other not, have a
       border of the class between them. Of all classes and all such pairs with images of the pool between them, take
       the pair whose ranks differ least (then the lower class, then the lower rank), and pick the image in the middle:
       rank left + ⌊difference / 2⌋.
    2. Where no such pair is left, every known border lies between two neighbours. Pick around the borders: the image
       whose farther one of (nearest labelled image of class k, nearest labelled image of another class) is nearest in
       rank; again the lower class, then the lower rank. What its label shows may call for step 1 again.
    3. While all labels are of one class there is no border: pick at random.

    The paper joins images that are 2, 3, … ranks apart to find more paths between labels that differ; step 2 picks what
    these paths pass through. A pick costs O(C·m) with m labels, so a batch O(C·b·(L + b)) after sorting N images C
    times.
    """

    name: ClassVar[str] = "galaxy"
    title: ClassVar[str] = "GALAXY"

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the margin scores of the picks."""
        orders, rng = ClassOrders(task, predictions), np.random.default_rng(task.seed)
        for _ in range(task.budget):
            found = in_the_middle(orders)
            if found is None:
                found = next_to_a_border(orders)
            orders.pick_and_read(int(rng.choice(np.flatnonzero(orders.open))) if found is None else found)
        return read_batch(task, orders, costs, self.name)


def in_the_middle(orders: ClassOrders) -> int | None:
    """Step 1: the image halfway between the closest neighbouring labels that differ; None where none is between."""
    places, own = orders.labelled()  # (C, m)
    apart = places[:, 1:] - places[:, :-1]  # (C, m − 1)
    apart[(own[:, 1:] == own[:, :-1]) | (apart < 2)] = NOWHERE
    best = int(apart.argmin()) if apart.size else 0
    if not apart.size or apart.flat[best] == NOWHERE:
        return None
    cls, at = divmod(best, apart.shape[1])
    return int(orders.images[cls, places[cls, at] + apart[cls, at] // 2])


def next_to_a_border(orders: ClassOrders) -> int | None:
    """Step 2: the image nearest to labels of both kinds; None where no class has both.

    Between two labels of the same kind the distance to the other kind falls towards both ends, so only the first and
    the last image of each run without labels can be the nearest.
    """
    places, own = orders.labelled()
    before = np.pad(places, ((0, 0), (1, 0)), constant_values=-1)  # (C, m + 1) the label before each run
    after = np.pad(places, ((0, 0), (0, 1)), constant_values=orders.images.shape[1])  # the label after it
    ends = np.stack([before + 1, after - 1], axis=2)  # (C, m + 1, 2) first and last image of each run
    farther = np.zeros_like(ends)
    for kind in (own, ~own):
        last = np.maximum.accumulate(np.where(kind, places, -NOWHERE), axis=1)
        coming = np.minimum.accumulate(np.where(kind, places, NOWHERE)[:, ::-1], axis=1)[:, ::-1]
        last = np.pad(last, ((0, 0), (1, 0)), constant_values=-NOWHERE)[:, :, None]
        coming = np.pad(coming, ((0, 0), (0, 1)), constant_values=NOWHERE)[:, :, None]
        farther = np.maximum(farther, np.minimum(ends - last, coming - ends))
    farther[after - before < 2] = NOWHERE  # nothing in the run
    best = int(farther.argmin())
    if farther.flat[best] >= NOWHERE // 2:
        return None
    return int(orders.images[best // farther[0].size, ends.flat[best]])


def read_batch(task: Task, orders: ClassOrders, costs: Column, method: str) -> Selection:
    """The answer of a strategy that has picked in the orders of the classes."""
    picks = np.array(orders.picks, dtype=np.int64)
    total = -float(costs.at(picks).sum())
    return task.selection(picks, informativeness=total, balance=0.0, lam=0.0, method=method)


@strategy
@dataclass(frozen=True, kw_only=True)
class Direct(LabelReader):
    """Narrows down each class's threshold in its order, rarest class first, reading labels; no balanced form.

    A threshold j of class k calls the first j images of its order "k"; it is worth the labelled images of class k among
    them minus the others among them. The uncertain interval goes from the first to the last of the best thresholds.

    1. For half of the budget (rounded down): the class that has had the fewest turns (then the fewest labels, then the
       lowest number) and has images of the pool in its uncertain interval; pick the middle one of these (the earlier of
       two) and read its label.
    2. For the rest: thresholds stay in the middle of the intervals that are left, rounded down. Class by class, the one
       with the fewest labels first, pick the nearest image before its threshold, in the next turn the nearest one after
       it, and so on; where one side is used up, from the other. These labels are not read.

    Classes to which the model gives no image any probability are left out. A batch costs O(b·N) after sorting N images
    C times.
    """

    name: ClassVar[str] = "direct"
    title: ClassVar[str] = "DIRECT"

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """`informativeness` is the sum of the margin scores of the picks."""
        orders = ClassOrders(task, predictions)
        known = np.flatnonzero(task.rows.above(np.arange(task.rows.classes), 0.0)[0])
        narrow(orders, known, task.budget // 2)
        pick_around(orders, known, task.budget)
        return read_batch(task, orders, costs, self.name)


def narrow(orders: ClassOrders, classes: IntArray, budget: int) -> None:
    """Step 1: read labels in the middle of the uncertain intervals."""
    turns = dict.fromkeys(classes.tolist(), 0)
    while len(orders.picks) < budget:
        for cls in sorted(turns, key=lambda one: (turns[one], orders.labels[one], one)):
            first, last = uncertain_interval(orders, cls)
            images = orders.images[cls, first:last]
            inside = images[orders.open[images]]
            if len(inside):
                turns[cls] += 1
                orders.pick_and_read(int(inside[(len(inside) - 1) // 2]))
                break
        else:
            return


def uncertain_interval(orders: ClassOrders, cls: int) -> tuple[int, int]:
    """The first and the last of the best thresholds of a class."""
    places, own = orders.labelled(cls)  # (m,)
    worth = np.append(0, np.cumsum(np.where(own, 1, -1)))  # (m + 1,) of the thresholds between two labels
    best = np.flatnonzero(worth == worth.max())
    return int(np.append(0, places + 1)[best[0]]), int(np.append(places, orders.images.shape[1])[best[-1]])


def pick_around(orders: ClassOrders, classes: IntArray, budget: int) -> None:
    """Step 2: alternately before and after the threshold of each class."""
    by_rarity = classes[np.argsort(orders.labels[classes], kind="stable")].tolist()
    middles = {cls: sum(uncertain_interval(orders, cls)) // 2 for cls in by_rarity}
    nearest = {cls: {-1: middle - 1, 1: middle} for cls, middle in middles.items()}  # rank by side: before, after
    side = -1
    while len(orders.picks) < budget:
        for cls in by_rarity[: budget - len(orders.picks)]:
            _pick_nearest(orders, orders.images[cls], nearest[cls], side)
        side = -side


def _pick_nearest(orders: ClassOrders, images: Int32Array, nearest: dict[int, int], side: int) -> None:
    """Pick the nearest open image on one side, or else on the other."""
    for step in (side, -side):
        while 0 <= nearest[step] < len(images):
            image = int(images[nearest[step]])
            nearest[step] += step
            if orders.open[image]:
                orders.pick(image)
                return
