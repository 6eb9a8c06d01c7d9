"""What can be wrong with rows that should be probabilities, in words.

Matrices wherever they are: a path or URL in, rows to be read in blocks out.

.npy, a folder of .npy shards, .parquet or a folder of such, on this machine or in a store that pyarrow can reach.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ..errors import BadFile
from ..inputs import real_array
from ..types import Float64Array, FloatArray
from ..types import Matrix as Matrix
from .files import FileMatrix, SpooledMatrix
from .npy import NpyMatrix, mapped_rows, open_npy
from .parquet import open_parquet
from .stores import Disk, Found, Store, shown_place, store_at

SUM_TOLERANCE: dict[np.dtype[Any], float] = {
    np.dtype(np.float16): 5e-3, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-3,
}  # fmt: skip
BFLOAT16_TOLERANCE = 2e-2  # of rows before they are divided by their sums: ten times what rounding alone can do
NAMED_ROWS = 3


def row_problems(block: FloatArray, start: int, tolerance: float) -> tuple[int, list[str]]:
    """How many rows of a block are bad, and of the first of them what is wrong, in a sentence each."""
    sums = np.einsum("ij->i", block)  # (n,), NaN where any entry is; three times faster than block.sum
    good = np.abs(sums - 1.0) <= tolerance
    if good.all() and block.min(initial=0.0) >= 0:
        return 0, []
    lows = block.min(axis=1)
    bad = np.flatnonzero(~good | (lows < 0))
    first = bad[:NAMED_ROWS]
    return len(bad), [_problem(start + int(row), block[row], float(sums[row]), float(lows[row])) for row in first]


def added_problems(parts: Iterable[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """The bad rows of all parts, the first of them in words.

    >>> added_problems([(2, ["row 1 holds NaN", "row 4 holds NaN"]), (0, []), (1, ["row 9 sums to 2"])])
    (3, ['row 1 holds NaN', 'row 4 holds NaN', 'row 9 sums to 2'])
    """
    counted = list(parts)
    return sum(bad for bad, _ in counted), [problem for _, found in counted for problem in found][:NAMED_ROWS]


def largest_product(y: Float64Array, dtype: np.dtype[Any]) -> float:
    """No row that passes as probabilities has a larger p·y.

    >>> largest_product(np.array([-1.0, 2.0]), np.dtype(np.float32)), largest_product(np.array([-1.0]), np.dtype(float))
    (2.004, -0.998)
    """
    off = 2 * SUM_TOLERANCE[dtype]  # twice what was allowed: the sums were rounded when they were looked at
    return float(np.max(y) + off * np.abs(np.max(y)))


def _problem(row: int, values: FloatArray, total: float, low: float) -> str:
    if np.isnan(values).any():
        return f"row {row} holds NaN"
    if np.isinf(values).any():
        return f"row {row} holds an infinite number"
    if low < 0:
        return f"row {row} holds {low:.4g}"
    return f"row {row} sums to {total:.4g}"


MANIFEST = "manifest.json"


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
        _refuse_unfinished(store)
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


def natural(name: str) -> tuple[list[str | int], str]:
    """A key that sorts numbers in names by their size.

    >>> sorted(["shard-10", "shard-2", "shard-02"], key=natural)
    ['shard-02', 'shard-2', 'shard-10']
    """
    pieces = re.split(r"(\d+)", name)
    return [int(piece) if at % 2 else piece for at, piece in enumerate(pieces)], name


def _refuse_unfinished(store: Store) -> None:
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
    tables = sorted((file for file in found if _suffix(file) == ".parquet"), key=lambda file: file.path)
    arrays = sorted((file for file in found if _suffix(file) == ".npy" and "/" not in file.name), key=_natural)
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


def _suffix(file: Found) -> str:
    return PurePosixPath(file.name).suffix.lower()


def _natural(file: Found) -> tuple[list[str | int], str]:
    return natural(file.name)
