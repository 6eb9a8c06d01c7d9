"""Features computed elsewhere, from .npz, a folder of .npy or .parquet: float32 (N, d) with labels.

Arrays are named x_train, y_train, x_test, y_test and optionally class_names; nothing is unpickled.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile, BadInput, MissingExtra
from ..files import open_regular, read_npy
from ..types import FloatArray, IntArray
from .pool import POOLS, LabelledImages, Pool, pool_content

if TYPE_CHECKING:
    import pyarrow


ARRAYS = ("x_train", "y_train", "x_test", "y_test")
NAMES = "class_names"
FEATURE_COLUMN = re.compile(r"f(\d+)")

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    features: FloatArray  # (n, d) float32
    labels: IntArray  # (n,)


@POOLS.register("features")
def features(path: Path | None = None, *, scale: bool = True, classes: int | None = None) -> Pool:
    """Features in a file; `classes` keeps the first ones, `scale` divides by one number, the mean spread of x_train."""
    if path is None:
        raise BadInput("the pool 'features' needs a path: an .npz, a folder of .npy, or a .parquet")
    arrays = read_arrays(path)
    train, test = (_half(arrays, part, path) for part in ("train", "test"))
    if train.features.shape[1] != test.features.shape[1]:
        raise BadFile(f"{path}: x_train has {train.features.shape[1]} columns, but x_test {test.features.shape[1]}")
    names = _class_names(arrays, train, test, path)
    all_train, all_test = (LabelledImages(half.features, half.labels, names) for half in (train, test))
    content = pool_content(Pool(path.stem, all_train, all_test))  # of all classes, and before numbers are scaled
    if classes is not None:
        if not 1 <= classes <= len(names):
            raise BadInput(f"asked for the first {classes} classes of {path}, but it has {len(names)}")
        train, test = (
            _Half(half.features[half.labels < classes], half.labels[half.labels < classes]) for half in (train, test)
        )
    divisor = common_scale(train.features) if scale else 1.0
    x_train, x_test = (half.features / np.float32(divisor) for half in (train, test))
    name = path.stem if classes is None else f"{path.stem} (first {classes})"
    kept = names[:classes]
    halves = LabelledImages(x_train, train.labels, kept), LabelledImages(x_test, test.labels, kept)
    return Pool(name, *halves, content=content)


def common_scale(features: FloatArray) -> float:
    """The mean over the columns of their standard deviation; 1 where nothing varies.

    >>> common_scale(np.array([[0.0, 0.0], [2.0, 6.0]], dtype=np.float32))
    2.0
    """
    spread = float(features.std(axis=0, dtype=np.float64).mean()) if features.size else 0.0
    return spread or 1.0


def read_arrays(path: Path) -> Arrays:
    """The named arrays of an .npz, a folder of .npy or a .parquet."""
    if path.is_dir():
        files = [path / f"{name}.npy" for name in (*ARRAYS, NAMES)]
        arrays: Arrays = ChainMap(*(_read_numpy(file) for file in files if file.exists()))
    elif not path.is_file():
        raise BadFile(f"no features at {path}; name an .npz, a folder of .npy, or a .parquet")
    elif path.suffix.lower() == ".npz":
        arrays = _read_numpy(path)
    elif path.suffix.lower() == ".parquet":
        arrays = _read_parquet(path)
    else:
        raise BadFile(f"{path} is neither .npz nor .parquet nor a folder of .npy")
    missing = [name for name in ARRAYS if name not in arrays]
    if missing:
        raise BadFile(f"{path} has no {missing[0]}; it must hold {', '.join(ARRAYS)}")
    return arrays


def _read_numpy(path: Path) -> dict[str, NDArray[Any]]:
    """The known arrays of an .npz, or the one array of an .npy under the file's name."""
    from tokenize import TokenError
    from zipfile import BadZipFile
    from zlib import error as zlib_error

    # numpy reads the header of an array as Python, so that a damaged one may raise what Python's parser raises.
    damaged = (OSError, EOFError, ValueError, TokenError, RecursionError, MemoryError, BadZipFile, zlib_error)
    try:
        if path.suffix.lower() == ".npy":
            return {path.stem: read_npy(path)}
        with open_regular(path) as file:
            loaded = np.load(file, allow_pickle=False)
            return {name: loaded[name] for name in (*ARRAYS, NAMES) if name in loaded}
    except damaged as error:
        raise BadFile(f"{path} cannot be read as plain numpy arrays: {error}") from error


def _half(arrays: Arrays, part: str, path: Path) -> _Half:
    values, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise BadFile(f"{path}: x_{part} must be numbers (images × features), but is {values.dtype} {values.shape}")
    if labels.dtype.kind not in "iu" or labels.shape != (len(values),):
        raise BadFile(
            f"{path}: y_{part} must be {len(values)} whole numbers, one per row of x_{part}, "
            f"but is {labels.dtype} {labels.shape}"
        )
    if len(labels) and labels.min() < 0:
        raise BadFile(f"{path}: y_{part} holds {labels.min()}; classes are numbered from 0")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is named
        single = values.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(single.sum(axis=1)))
    bad = bad[~np.isfinite(single[bad]).all(axis=1)]  # a sum may overflow where no number does
    if len(bad):
        raise BadFile(f"{path}: x_{part} has {len(bad)} rows with NaN or infinite numbers, the first is row {bad[0]}")
    return _Half(single, labels.astype(np.int64))


def _class_names(arrays: Arrays, train: _Half, test: _Half, path: Path) -> tuple[str, ...]:
    """The names that the file gives; else the numbers of the classes."""
    classes = 1 + max(int(half.labels.max(initial=-1)) for half in (train, test))
    if NAMES not in arrays:
        return tuple(str(number) for number in range(classes))
    names = arrays[NAMES]
    if names.ndim != 1 or names.dtype.kind != "U" or len(names) < classes:
        raise BadFile(f"{path}: class_names must be {classes} texts or more, but is {names.dtype} {names.shape}")
    return tuple(names.tolist())


def _read_parquet(path: Path) -> Arrays:
    """Columns label and split, and f0, f1, … or one column of lists."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra.named("reading .parquet", "pyarrow", "tables") from error
    try:
        with open_regular(path):  # not a pipe, on which Arrow would wait
            table = parquet.read_table(path)
        missing = [name for name in ("label", "split") if name not in table.column_names]
        if missing:
            raise BadFile(f"{path} has no column {missing[0]!r}; it must have label, split and the features")
        for name in table.column_names:
            if table.column(name).null_count:
                raise BadFile(f"{path}: the column {name!r} has {table.column(name).null_count} missing values")
        values = _feature_matrix(table, path)
        labels, named = _numbered(table.column("label"))
        split = table.column("split").to_numpy()
    except (pyarrow.ArrowException, OSError) as error:
        raise BadFile(f"{path} cannot be read as Parquet: {error}") from error
    unknown = sorted({str(part) for part in set(split.tolist()) - {"train", "test"}})
    if unknown:
        raise BadFile(f"{path}: the column 'split' holds {unknown[0]!r}; it must be train or test")
    train, test = split == "train", split == "test"
    return {"x_train": values[train], "y_train": labels[train], "x_test": values[test], "y_test": labels[test], **named}


def _feature_matrix(table: pyarrow.Table, path: Path) -> FloatArray:
    from pyarrow import types

    numbered = {int(match[1]): match[0] for name in table.column_names if (match := FEATURE_COLUMN.fullmatch(name))}
    if numbered:
        if sorted(numbered) != list(range(len(numbered))):
            raise BadFile(f"{path}: feature columns must be f0 … f{len(numbered) - 1}, but {max(numbered)} is the last")
        columns = [table.column(numbered[at]).to_numpy() for at in range(len(numbered))]
        return np.stack(columns, axis=1).astype(np.float32)
    lists = [
        field.name for field in table.schema
        if types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
    ]  # fmt: skip
    if len(lists) != 1:
        raise BadFile(f"{path} must have feature columns f0, f1, … or one column of lists, but has {len(lists)}")
    column = table.column(lists[0]).combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    lengths = set(column.value_lengths().to_pylist())
    if len(lengths) > 1:
        raise BadFile(f"{path}: the lists in {lists[0]!r} have from {min(lengths)} to {max(lengths)} numbers")
    matrix: FloatArray = flat.reshape(len(column), -1).astype(np.float32)
    return matrix


def _numbered(column: pyarrow.ChunkedArray) -> tuple[NDArray[Any], Arrays]:
    """Labels as numbers; where they are texts, in the order of the texts, which become the names."""
    from pyarrow import types

    values = column.to_numpy()
    if types.is_integer(column.type):
        return values, {}
    names, labels = np.unique(values.astype(np.str_), return_inverse=True)
    return labels, {NAMES: names}
