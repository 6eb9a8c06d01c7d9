"""The border: whatever the user gives as probabilities in, checked `Rows` and costs out, from one read of the data.

Everything behind this module trusts its arrays.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import BadInput, BadProbabilities
from ..score.softmax import Score
from ..types import Float64Array, Proba
from .checks import SUM_TOLERANCE
from .matrices import Matrix, as_matrix
from .shards import Column, Rows
from .top_k import DESCRIPTION, TopK


def open_proba(proba: Proba) -> Matrix:
    """Open probabilities, wherever they are; only their form is looked at."""
    sparse = _sparse(proba)
    array = as_matrix(proba) if sparse is None else sparse
    if array.ndim != 2:
        raise BadInput(f"probabilities must be a matrix (images × classes), but have shape {array.shape}")
    if array.dtype not in SUM_TOLERANCE:
        raise BadInput(f"probabilities must be float16, float32 or float64, but are {array.dtype}")
    if array.shape[1] == 0:
        raise BadInput("probabilities have no class columns")
    return array


def _sparse(proba: object) -> TopK | None:
    """A sparse softmax, given or in a folder; None where it is none."""
    if isinstance(proba, str | Path) and (Path(proba).expanduser() / DESCRIPTION).is_file():
        return TopK.open(Path(proba).expanduser())
    return proba if isinstance(proba, TopK) else None


def scan(rows: Rows, score: Score | None = None) -> Column:
    """Check every row and score it, in one pass; returns the costs 0 − score, zeros without a score."""
    costs, (bad, problems) = rows.scan(score, SUM_TOLERANCE[rows.dtype])
    if bad:
        shown = "; ".join(problems)
        more = f" (and {bad - len(problems):,} more)" if bad > len(problems) else ""
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
