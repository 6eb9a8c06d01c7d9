"""A sparse softmax: the k largest probabilities of each row and their classes, the remainder known only in sum.

To the solver the remainder is spread evenly over the other classes. A certificate must hold for every softmax that is
kept like this, so here is also how far such a softmax can be from the even one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput, BadProbabilities
from ..files import read_npy, reason, shown_path, with_home, write_whole
from ..inputs import MOST_CLASSES, real_array, shown, whole_number
from ..score import Score, entropy, least_confidence, margin
from ..types import AnyMatrix, Float64Array, FloatArray, IntArray, Matrix
from .blocks import SUM_TOLERANCE, map_blocks, widen
from .open import as_matrix

DESCRIPTION, VALUES, CLASSES = "top_k.json", "values.npy", "classes.npy"
SAVED_ROWS = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What is known of the probabilities of some rows that were not kept."""

    mass: Float64Array  # (n,) their sum
    largest: Float64Array  # (n,) none exceeds the smallest one that was kept
    others: int  # how many classes they belong to


class TopK:
    """Probabilities (N, C) of which each row has kept its k largest: `values` and `classes`, both (N, k).

    >>> sparse = TopK.of(np.array([[0.7, 0.2, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7]]), 2)
    >>> sparse[:].round(3).tolist()
    [[0.7, 0.2, 0.05, 0.05], [0.1, 0.1, 0.1, 0.7]]
    """

    ndim = 2

    def __init__(self, values: FloatArray, classes: Any, count: int, folder: Path | None = None) -> None:  # noqa: ANN401 - integers of any kind
        values, classes = real_array(values, "values"), real_array(classes, "classes")
        count = whole_number(count, "the number of classes", least=1, most=MOST_CLASSES)
        if values.ndim != 2 or values.shape != classes.shape or not np.issubdtype(classes.dtype, np.integer):
            raise BadInput(
                f"values and classes must be two matrices (images × k), classes of integers, "
                f"but are {values.dtype} {values.shape} and {classes.dtype} {classes.shape}"
            )
        if values.dtype not in SUM_TOLERANCE:
            raise BadInput(f"values must be float16, float32 or float64, but are {values.dtype}; convert them")
        if not 1 <= values.shape[1] <= count:
            raise BadInput(f"{values.shape[1]} probabilities are kept of each row, but there are {count} classes")
        self._hold(values, classes, count, folder)

    def _hold(self, values: FloatArray, classes: Any, count: int, folder: Path | None) -> None:  # noqa: ANN401 - as above
        self.values, self.classes, self.folder = values, classes, folder
        self.shape = (len(values), count)
        self.dtype: np.dtype[Any] = values.dtype

    @classmethod
    def of_parts(cls, values: Matrix, classes: Matrix, count: int) -> TopK:
        """From parts of another one: they are checked already, and read like arrays without being some."""
        made = cls.__new__(cls)
        made._hold(values, classes, count, None)  # type: ignore[arg-type] # read like an array
        return made

    @classmethod
    def of(cls, proba: AnyMatrix, kept: int) -> TopK:
        """Keep the largest probabilities of every row, as they are stored; `proba` may be a path or URL."""
        proba = as_matrix(proba, "proba")
        if len(proba.shape) != 2:
            raise BadInput(f"probabilities must be a matrix (images × classes), but have shape {proba.shape}")
        if whole_number(kept, "kept", least=1) > proba.shape[1]:
            raise BadInput(f"asked to keep {shown(kept)} of {proba.shape[1]} classes")
        parts = map_blocks(proba.shape[0], SAVED_ROWS, lambda where: _largest(np.asarray(proba[where]), kept))
        values, classes = zip(*parts, strict=True) if parts else ([proba[:0, :kept]], [np.empty((0, kept), np.uint16)])
        return cls(np.concatenate(values), np.concatenate(classes), int(proba.shape[1]))

    @classmethod
    def open(cls, folder: str | Path) -> TopK:
        """Map a folder that `save` wrote."""
        folder = with_home(folder)
        try:
            count = int(json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))["classes"])
            values, classes = (read_npy(folder / name, mapped=True) for name in (VALUES, CLASSES))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadFile(f"{shown_path(folder)} cannot be read as a sparse softmax: {reason(error)}") from error
        return cls(values, classes, count, folder.absolute())

    def save(self, folder: str | Path) -> None:
        """Write values.npy, classes.npy and, last, the description that makes them a whole."""
        folder = with_home(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / VALUES, self.values)
        np.save(folder / CLASSES, self.classes)
        write_whole(folder / DESCRIPTION, json.dumps({"classes": self.shape[1]}).encode())

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is not None:
            return TopK.open, (self.folder,)
        return TopK.of_parts, (self.values, self.classes, self.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, where: slice | IntArray) -> FloatArray:
        """Whole rows, the remainder spread evenly."""
        values, classes = widen(self.values[where]), self.classes[where]
        if classes.size and not 0 <= int(classes.min()) <= int(classes.max()) < self.shape[1]:
            raise BadProbabilities(
                f"classes run from {classes.min()} to {classes.max()}, but there are {self.shape[1]} (the first is 0)"
            )
        rest = self._rest(values)
        rows = np.empty((len(values), self.shape[1]), dtype=values.dtype)
        rows[:] = (rest.mass / max(1, rest.others))[:, None]
        np.put_along_axis(rows, classes.astype(np.intp), values, axis=1)
        return rows

    def times(self, where: slice, y: Float64Array) -> Float64Array:
        """P·y from the kept probabilities alone, (n,)."""
        values, near = widen(self.values[where]).astype(np.float64), y[self.classes[where]]  # (n, k)
        rest = self._rest(values)
        product: Float64Array = (values * near).sum(axis=1) + _even(rest, y, near)
        return product

    def most_hidden(self, where: slice, y: Float64Array) -> Float64Array:
        """The most that p·y may exceed the even p̂·y by, (n,): the remainder on the classes with the largest y."""
        values, near = widen(self.values[where]).astype(np.float64), y[self.classes[where]]
        rest = self._rest(values)
        whole, left = _concentrated(rest)
        ordered = np.sort(y)[::-1]
        sums = np.append(0.0, np.cumsum(ordered))
        most = rest.largest * sums[whole] + left * ordered[np.minimum(whole, len(y) - 1)]
        beyond: Float64Array = np.maximum(most - _even(rest, y, near), 0.0)
        return beyond

    def hidden_l1(self, where: slice) -> Float64Array:
        """The most that ‖p − p̂‖₁ can be, (n,): twice what the largest allowed entries hold beyond the even share."""
        rest = self._rest(widen(self.values[where]).astype(np.float64))
        whole, left = _concentrated(rest)
        even = rest.mass / max(1, rest.others)
        beyond = whole * (rest.largest - even) + np.maximum(left - even, 0.0)
        return 2.0 * np.maximum(beyond, 0.0)

    def hidden_score(self, where: slice, score: Score) -> Float64Array:
        """The most by which a score of the even row may exceed that of the true one, (n,)."""
        if score is least_confidence or (score is margin and self.values.shape[1] > 1):
            return np.zeros(len(self.values[where]))
        if score is not entropy:
            raise BadInput(
                "of a sparse softmax this score is not known; "
                "keep 2 probabilities of each row for margins, or give scores of your own"
            )
        rest = self._rest(widen(self.values[where]).astype(np.float64))
        whole, left = _concentrated(rest)
        even = rest.mass / max(1, rest.others)
        spread = -rest.mass * _log(even)
        return np.maximum(spread + whole * rest.largest * _log(rest.largest) + left * _log(left), 0.0)

    def _rest(self, values: FloatArray) -> Rest:
        others = self.shape[1] - values.shape[1]
        with np.errstate(over="ignore"):  # rows that are not probabilities are found when they are looked at
            mass = np.maximum(1.0 - values.sum(axis=1, dtype=np.float64), 0.0)
        if others == 0:
            return Rest(np.zeros(len(values)), np.zeros(len(values)), 0)
        # Rounding of what was kept may leave more than the others can hold: their even share then sets the limit.
        return Rest(mass, np.maximum(values.min(axis=1).astype(np.float64), mass / others), others)


def _even(rest: Rest, y: Float64Array, near: Float64Array) -> Float64Array:
    """What the remainder adds to P·y where it is spread evenly; `near` (n, k) is y at the classes that were kept."""
    share: Float64Array = rest.mass * ((y.sum() - near.sum(axis=1)) / max(1, rest.others))
    return share


def _concentrated(rest: Rest) -> tuple[IntArray, Float64Array]:
    """The remainder on as few classes as can hold it: how many full ones, and what is left for one more."""
    whole = np.minimum(rest.mass / np.maximum(rest.largest, np.finfo(np.float64).tiny), rest.others).astype(np.int64)
    return whole, np.maximum(rest.mass - whole * rest.largest, 0.0)


def _log(p: Float64Array) -> Float64Array:
    """log p, and 0 where p is 0: it is multiplied by p."""
    return np.log(np.where(p > 0, p, 1.0))


def _largest(block: FloatArray, kept: int) -> tuple[FloatArray, Any]:
    """The largest entries of every row, largest first, and where they are."""
    wide = widen(block)
    top = np.argpartition(wide, block.shape[1] - kept, axis=1)[:, block.shape[1] - kept :]
    order = np.argsort(-np.take_along_axis(wide, top, axis=1), axis=1, kind="stable")
    classes = np.take_along_axis(top, order, axis=1)
    kind = np.uint16 if block.shape[1] <= 1 << 16 else np.uint32
    return np.take_along_axis(block, classes, axis=1), classes.astype(kind)
