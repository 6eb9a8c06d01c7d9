"""Open what the user gives as a matrix: an array, a path or URL, or a sparse softmax (`TopK`).

Files are .npy, a folder of .npy shards, .parquet or a folder of these, on this machine or in a store that pyarrow can
reach. Only form and headers are checked here; `shards.scan` checks the rows when it reads them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput, BadProbabilities
from ..files import is_file, read_npy, shown_path, with_home, write_whole
from ..inputs import MOST_CLASSES, is_bfloat16, real_array, shown, whole_number
from ..processes import Scratch
from ..score import Score, entropy, least_confidence, margin
from ..types import AnyMatrix, Float64Array, FloatArray, IntArray, Proba
from ..types import Matrix as Matrix
from .blocks import BFLOAT16_TOLERANCE, SUM_TOLERANCE, map_blocks, widen
from .npy import FileMatrix, NpyMatrix, mapped_rows, open_npy
from .parquet import SpooledMatrix, open_parquet
from .stores import Disk, Found, Store, shown_place, store_at

MANIFEST = "manifest.json"
DESCRIPTION, VALUES, CLASSES = "top_k.json", "values.npy", "classes.npy"
SAVED_ROWS = 65_536


def open_proba(proba: Proba) -> Matrix:
    """Open probabilities, wherever they are; only their form is looked at."""
    if type(proba) is np.ndarray:  # the usual case
        array: Matrix = real_array(proba, "proba")
    else:
        sparse = _sparse(proba)
        array = as_matrix(proba, "proba") if sparse is None else sparse
    if len(array.shape) != 2:
        raise BadInput(f"probabilities must be a matrix (images × classes), but have shape {array.shape}")
    if array.dtype not in SUM_TOLERANCE:
        raise BadInput(f"probabilities must be float16, float32 or float64, but are {array.dtype}; convert them")
    if array.shape[1] == 0:
        raise BadInput("probabilities have no class columns")
    return _summing_to_1(np.asarray(array)) if is_bfloat16(proba) else array


def _summing_to_1(rounded: FloatArray) -> FloatArray:
    """Rows that bfloat16 has rounded, divided by their sums, as bounds hold for sums near 1; others are left to `scan`.

    Each entry is off by up to 2^-9 of itself, and so is a sum: five times what rows in float16 may be off by.
    """
    sums = rounded.sum(axis=1, dtype=np.float64, keepdims=True)  # (N, 1)
    return rounded / np.where(np.abs(sums - 1) <= BFLOAT16_TOLERANCE, sums, 1.0).astype(rounded.dtype)


def _sparse(proba: object) -> TopK | None:
    """A sparse softmax, given or in a folder; None for anything else."""
    if isinstance(proba, str | os.PathLike):
        folder = with_home(proba)
        return TopK.open(folder) if is_file(folder / DESCRIPTION) else None
    return proba if isinstance(proba, TopK) else None


def open_matrix(where: str | os.PathLike[str]) -> FileMatrix:
    """Open a matrix; only headers and footers are read now.

    Shards follow each other by name, numbers in names counting as numbers; files of a Parquet dataset by their path,
    as pyarrow and pandas have them.
    """
    store = store_at(where)
    found = store.find()
    if isinstance(found, Found):
        files, suffix = [found], PurePosixPath(found.name).suffix.lower()
    else:
        _reject_unfinished(store)
        files, suffix = _shards(store, found)
    if suffix == ".npy":
        opened = open_npy(store, files)
        return opened if isinstance(opened, NpyMatrix) else SpooledMatrix(opened)
    if suffix == ".parquet":
        return SpooledMatrix(open_parquet(store, files))
    raise BadFile(f"{store.shown(files[0].path)} is neither .npy nor .parquet; save the matrix with numpy.save")


def as_matrix(values: object, name: str = "the matrix") -> Matrix:
    """A path or URL opened; a memory-mapped array by its file; an array, or what is open already, as it is."""
    if isinstance(values, str | os.PathLike):
        return open_matrix(values)
    if isinstance(values, np.memmap):
        mapped = mapped_rows(values) if values.dtype.kind == "f" else None
        return real_array(values, name) if mapped is None else mapped
    return values if isinstance(values, FileMatrix) else real_array(values, name)


class Subset(FileMatrix):
    """Some rows of a matrix in files, ascending; nothing is read before it is asked for."""

    def __init__(self, whole: FileMatrix, rows: IntArray) -> None:
        super().__init__(whole.location, np.array([0, len(rows)]), whole.shape[1], whole.dtype)
        self.whole, self.rows, self.made_with = whole, rows, (whole, rows)

    def run(self, start: int, stop: int, scratch: Scratch | None = None) -> FloatArray:
        """Rows in a run are read as such, others are picked."""
        first, last = int(self.rows[start]), int(self.rows[stop - 1])
        together = last - first == stop - start - 1
        return self.whole.run(first, last + 1, scratch) if together else self.whole.pick(self.rows[start:stop])

    def pick(self, rows: IntArray) -> FloatArray:
        """Rows of the subset by ascending number."""
        return self.whole.pick(self.rows[rows])


def natural(name: str) -> tuple[list[str | int], str]:
    """A key that sorts numbers in names by their size.

    >>> sorted(["shard-10", "shard-2", "shard-02"], key=natural)
    ['shard-02', 'shard-2', 'shard-10']
    """
    pieces = re.split(r"(\d+)", name)
    return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name


def _reject_unfinished(store: Store) -> None:
    """A folder of this machine that `tailwise predict` has not finished holds whole shards, but not all of them."""
    manifest = Path(store.location) / MANIFEST
    if not isinstance(store, Disk) or not manifest.is_file():
        return
    try:
        complete = json.loads(manifest.read_bytes()).get("complete", True)
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # somebody else's
    if complete is False:
        raise BadFile(f"{store.location} is not finished, as its {MANIFEST} says; run the same tailwise predict again")


def _shards(store: Store, found: Sequence[Found]) -> tuple[list[Found], str]:
    """The files of a folder that make up its matrix, in order, and their kind."""
    shown = shown_place(store.location)
    suffixes = [(file, PurePosixPath(file.name).suffix.lower()) for file in found]
    tables = sorted((file for file, suffix in suffixes if suffix == ".parquet"), key=lambda file: file.path)
    arrays = [file for file, suffix in suffixes if suffix == ".npy" and "/" not in file.name]
    arrays.sort(key=lambda file: natural(file.name))
    if tables and arrays:
        raise BadFile(
            f"{shown} holds both .npy ({arrays[0].name}) and .parquet ({tables[0].name}); "
            "move one kind into a folder of its own and name that"
        )
    if not tables and not arrays:
        below = sorted({file.name.rpartition("/")[0] for file in found})
        hint = f"; there are some in {below[0]}: name that folder" if below else ""
        raise BadFile(f"{shown} is a folder without .npy or .parquet files{hint}")
    return (arrays, ".npy") if arrays else (tables, ".parquet")


# -- sparse softmax --------------------------------------------------------------------------------------------------


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
        self.shape = (int(values.shape[0]), count)
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
            raise BadFile(
                f"{shown_path(folder)} cannot be read as a sparse softmax: {getattr(error, 'strerror', None) or error}"
            ) from error
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
