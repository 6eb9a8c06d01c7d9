"""GALAXY (Zhang, Katz-Samuels and Nowak 2022): bisect between differently labelled images in the order of each class.

It reads the label of each pick before it makes the next one, so it needs an oracle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..solve.path import parse_balance
from ..solve.shards import Column
from ..types import Predictions, Selection
from .base import Base, strategy
from .orders import ClassOrders
from .task import Task

NOWHERE = 1 << 40  # farther than any rank


@strategy
@dataclass(frozen=True, kw_only=True)
class Galaxy(Base):
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
    needs: ClassVar[tuple[str, ...]] = ("proba", "labelled_proba", "labelled_labels")
    reads_labels: ClassVar[bool] = True
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        reject_balance(self.name, self.balance)

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
    places, own = orders.places, orders.own  # (C, m)
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
    places, own = orders.places, orders.own
    before = np.pad(places, ((0, 0), (1, 0)), constant_values=-1)  # (C, m + 1) the label before each run
    after = np.pad(places, ((0, 0), (0, 1)), constant_values=orders.length)  # the label after it
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


def reject_balance(name: str, balance: float | str) -> None:
    """Reject λ > 0 for a method that goes by true labels."""
    if parse_balance(balance) != 0.0:
        raise BadInput(
            f"{name} has no balanced form: the labels that it reads, not expected counts, decide what it picks next; "
            "use base with balance instead"
        )
