"""What can be wrong with rows that should be probabilities, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..types import Float64Array, FloatArray

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
