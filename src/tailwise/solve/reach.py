"""Can the target be reached at all? Per class, the most that any batch of b rows can expect, in numbers."""

from __future__ import annotations

import numpy as np

from ..balance.target import Ranges
from ..types import Float64Array, IntArray, Shortfall
from .shards import Rows

COLUMNS_AT_ONCE = 8
MOST_CLASSES = 48
SHORT = 1e-3  # relative; smaller shortfalls are the noise of rounding to whole picks


def shortfalls(
    rows: Rows, budget: int, ranges: Ranges, expected: Float64Array, candidates: IntArray
) -> tuple[Shortfall, ...]:
    """Candidate classes whose target exceeds the sum of their b largest probabilities, worst first.

    Only classes that fell short are looked at, and of those the 48 that are shortest: each look is a read of columns.
    """
    missing = ranges.low - expected  # (C,)
    short = candidates[missing[candidates] > SHORT * np.maximum(1.0, ranges.low[candidates])]
    short = short[np.argsort(-missing[short], kind="stable")][:MOST_CLASSES]
    found = []
    for start in range(0, len(short), COLUMNS_AT_ONCE):
        classes = short[start : start + COLUMNS_AT_ONCE]
        for cls, most in zip(classes, _most_expected(rows, budget, classes), strict=True):
            if most < ranges.low[cls] * (1 - SHORT):
                found.append(Shortfall(int(cls), float(ranges.low[cls]), float(most)))
    return tuple(found)


def _most_expected(rows: Rows, budget: int, classes: IntArray) -> Float64Array:
    """Sum of the b largest entries of some columns, (k,)."""
    columns = np.concatenate(rows.map(lambda where: rows.read(where)[:, classes]))  # (N, k)
    if 0 < budget < len(columns):
        columns = np.partition(columns, len(columns) - budget, axis=0)[len(columns) - budget :]
    result: Float64Array = columns[:budget].sum(axis=0, dtype=np.float64) if budget else np.zeros(len(classes))
    return result
