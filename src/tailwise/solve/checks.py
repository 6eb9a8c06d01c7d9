"""What can be wrong with rows that should be probabilities, in words."""

from __future__ import annotations

import numpy as np

from ..types import FloatArray


def row_problems(block: FloatArray, start: int, tolerance: float) -> list[str]:
    """What is wrong with the rows of a block, one sentence per bad row."""
    sums = block.sum(axis=1)  # (n,), NaN where any entry is
    good = np.abs(sums - 1.0) <= tolerance
    if good.all() and block.min(initial=0.0) >= 0:
        return []
    lows = block.min(axis=1)
    bad = np.flatnonzero(~good | (lows < 0))
    return [_problem(start + int(row), block[row], float(sums[row]), float(lows[row])) for row in bad]


def _problem(row: int, values: FloatArray, total: float, low: float) -> str:
    if np.isnan(values).any():
        return f"row {row} holds NaN"
    if np.isinf(values).any():
        return f"row {row} holds an infinite number"
    if low < 0:
        return f"row {row} holds {low:.4g}"
    return f"row {row} sums to {total:.4g}"
