"""The border: whatever the user gives as probabilities in, checked `Rows` and costs out, from one read of the data.

Everything behind this module trusts its arrays.
"""

from __future__ import annotations

import os

import numpy as np

from ..errors import BadInput, BadProbabilities
from ..files import is_file, with_home
from ..inputs import is_bfloat16
from ..score.softmax import Score
from ..types import FloatArray, Proba
from .checks import BFLOAT16_TOLERANCE, SUM_TOLERANCE
from .matrices import Matrix, as_matrix
from .shards import Column, Rows
from .top_k import DESCRIPTION, TopK


def open_proba(proba: Proba) -> Matrix:
    """Open probabilities, wherever they are; only their form is looked at."""
    sparse = _sparse(proba)
    array = as_matrix(proba, "proba") if sparse is None else sparse
    if array.ndim != 2:
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
    """A sparse softmax, given or in a folder; None where it is none."""
    if isinstance(proba, str | os.PathLike):
        folder = with_home(proba)
        return TopK.open(folder) if is_file(folder / DESCRIPTION) else None
    return proba if isinstance(proba, TopK) else None


def scan(rows: Rows, score: Score | None = None) -> Column:
    """Check every row and score it, in one pass; returns the costs 0 − score, zeros without a score."""
    costs, (bad, problems) = rows.scan(score, SUM_TOLERANCE[rows.dtype])
    if bad:
        shown = "; ".join(problems)
        more = f" (and {bad - len(problems):,} more)" if bad > len(problems) else ""
        hint = "; if these are logits, give logits=True, or apply softmax first" if 2 * bad > rows.size else ""
        raise BadProbabilities(f"{shown}{more}. Each row must hold probabilities, ≥ 0 and summing to 1{hint}")
    return costs
