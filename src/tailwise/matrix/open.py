"""Matrices wherever they are: a path or URL in, rows to be read in blocks out.

.npy, a folder of .npy shards, .parquet or a folder of such, on this machine or in a store that pyarrow can reach.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from ..errors import BadFile
from ..inputs import real_array
from ..types import Matrix as Matrix
from .files import FileMatrix, SpooledMatrix
from .npy import NpyMatrix, mapped_rows, open_npy
from .parquet import open_parquet
from .stores import Disk, Found, Store, shown_place, store_at

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
