"""The oracle of an experiment: it knows every label, and notes which ones a strategy has read."""

from __future__ import annotations

from ..errors import BadInput
from ..inputs import shown
from ..types import IntArray


class RecordingOracle:
    """Rows of the pool in, their true classes out; `asked` holds the rows in the order in which they were asked for.

    >>> import numpy as np
    >>> oracle = RecordingOracle(np.array([2, 0, 1]))
    >>> oracle(np.array([2, 0])).tolist(), oracle.asked
    ([1, 2], [2, 0])
    """

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels  # (N,)
        self.asked: list[int] = []

    def __call__(self, rows: IntArray) -> IntArray:
        """The classes of some rows, (m,)."""
        if not ((rows >= 0) & (rows < len(self._labels))).all():
            raise BadInput(f"asked for the labels of {shown(rows.tolist())}; rows go from 0 to {len(self._labels) - 1}")
        self.asked += rows.tolist()
        answers: IntArray = self._labels[rows]
        return answers

    def check(self, batch: IntArray, strategy: str) -> None:
        """Reject a batch whose strategy has read labels of other rows: it would have had them for nothing."""
        outside = sorted(set(self.asked) - set(batch.tolist()))
        if outside:
            raise BadInput(
                f"strategy {strategy!r} has read the labels of {len(outside)} images that are not in its batch, "
                f"the first of them row {outside[0]}; it may read only the labels of its picks"
            )
