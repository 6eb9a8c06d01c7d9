"""The border: whatever the user gives as probabilities in, checked `Rows` and costs out, from one read of the data.

Everything behind this module trusts its arrays.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import BadFile, BadInput, BadProbabilities, MissingExtra
from ..score.softmax import Score
from ..types import Float64Array, FloatArray, Proba
from .shards import Column, Rows

if TYPE_CHECKING:
    import pyarrow

    from .matrices import Matrix

SUM_TOLERANCE = {np.dtype(np.float16): 5e-3, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-3}
NAMED_ROWS = 3


def open_proba(proba: Proba) -> Matrix:
    """Open probabilities, wherever they are; only their form is looked at."""
    array = _load(Path(proba)) if isinstance(proba, str | Path) else np.asanyarray(proba)
    if array.ndim != 2:
        raise BadInput(f"probabilities must be a matrix (images × classes), but have shape {array.shape}")
    if array.dtype not in SUM_TOLERANCE:
        raise BadInput(f"probabilities must be float16, float32 or float64, but are {array.dtype}")
    if array.shape[1] == 0:
        raise BadInput("probabilities have no class columns")
    return array


def scan(rows: Rows, score: Score | None = None) -> Column:
    """Check every row and score it, in one pass; returns the costs 0 − score, zeros without a score."""
    costs, problems = rows.scan(score, SUM_TOLERANCE[rows.dtype])
    if problems:
        shown = "; ".join(problems[:NAMED_ROWS])
        more = f" (and {len(problems) - NAMED_ROWS} more)" if len(problems) > NAMED_ROWS else ""
        raise BadProbabilities(f"{shown}{more}. Each row must be a softmax output: non-negative, summing to 1")
    return costs


def read_numbers(values: object, name: str, size: int) -> Float64Array:
    """One finite number per image or class, (size,), in float64."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{name} must be numbers: {error}") from error
    if numbers.shape != (size,):
        raise BadInput(f"{name} must have {size} entries, but has shape {numbers.shape}")
    if not np.isfinite(numbers).all():
        bad = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise BadInput(f"{name} must be finite, but entry {bad} is {numbers[bad]}")
    return numbers


def read_counts(counts: object, classes: int) -> Float64Array:
    """Labelled samples per class so far, (C,); None means none."""
    if counts is None:
        return np.zeros(classes)
    numbers = read_numbers(counts, "counts (one per class)", classes)
    if (numbers < 0).any():
        bad = int(np.flatnonzero(numbers < 0)[0])
        raise BadInput(f"counts must be ≥ 0, but class {bad} has {numbers[bad]:g}")
    return numbers


def _load(path: Path) -> FloatArray:
    if not path.exists():
        raise BadFile(f"no file at {path}")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _load_npy(path)
    if suffix == ".parquet":
        return _load_parquet(path)
    raise BadFile(f"{path} is neither .npy nor .parquet; save the probabilities with numpy.save")


def _load_npy(path: Path) -> FloatArray:
    try:
        array: FloatArray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BadFile(f"{path} cannot be read as a plain .npy array: {error}") from error
    return array


def _load_parquet(path: Path) -> FloatArray:
    """All numeric columns, in order, as one float32 matrix (float64 where any column is), row group by row group."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra.named("reading .parquet", "pyarrow", "tables") from error
    try:
        with parquet.ParquetFile(path) as file:
            columns = _probability_columns(file.schema_arrow, path)
            wide = any(pyarrow.types.is_float64(file.schema_arrow.field(name).type) for name in columns)
            result = np.empty((file.metadata.num_rows, len(columns)), dtype=np.float64 if wide else np.float32)
            start = 0
            for batch in file.iter_batches(columns=columns):
                for at, name in enumerate(columns):
                    result[start : start + batch.num_rows, at] = batch.column(name).to_numpy(zero_copy_only=False)
                start += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise BadFile(f"{path} cannot be read as Parquet: {error}") from error
    return result


def _probability_columns(schema: pyarrow.Schema, path: Path) -> list[str]:
    """Columns named prob_*; where there are none, every floating column."""
    from pyarrow import types

    floating = [field.name for field in schema if types.is_floating(field.type)]
    named = [name for name in floating if name.startswith("prob_")]
    if not floating:
        raise BadFile(f"{path} has no floating-point columns")
    return named or floating
