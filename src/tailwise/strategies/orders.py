"""For strategies that read labels while they pick: all images in the order of each class, and the labels known so far.

Class k orders the pool and the labelled set by p_k − max over the others of p, from the image most like k to the one
least like it; equal ones go by row, those of the pool before the labelled ones. Takes 12 bytes per image and class
while they are sorted, then 8.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..inputs import class_labels, softmax_rows
from ..score.borders import one_against_rest
from ..solve.blocks import rows_per_block
from ..types import BoolArray, IntArray, Predictions
from .task import Task

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

    @property
    def length(self) -> int:
        """How many images there are in all."""
        return int(self.images.shape[1])

    @property
    def places(self) -> IntArray:
        """Ranks of the labelled images in each class's order, ascending, (C, m)."""
        return self._keys >> 1

    @property
    def own(self) -> BoolArray:
        """Whether those images are of the class, (C, m)."""
        return (self._keys & 1).astype(bool)

    def labelled(self, cls: int) -> tuple[IntArray, BoolArray]:
        """`places` and `own` of one class, (m,) each."""
        return self._keys[cls] >> 1, (self._keys[cls] & 1).astype(bool)

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
