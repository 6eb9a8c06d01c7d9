"""DIRECT (Nuggehalli, Zhang, Jain and Nowak 2025): find each class's best threshold, then label on both sides of it.

It reads the labels of half of its picks while it still picks, so it needs an oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..solve.shards import Column
from ..types import IntArray, Predictions, Selection
from .base import Base, strategy
from .galaxy import read_batch, reject_balance
from .orders import ClassOrders, Int32Array
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class Direct(Base):
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
    needs: ClassVar[tuple[str, ...]] = ("proba", "labelled_proba", "labelled_labels")
    reads_labels: ClassVar[bool] = True
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_balance(self.name, self.balance)

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
    return int(np.append(0, places + 1)[best[0]]), int(np.append(places, orders.length)[best[-1]])


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
