"""Can the target be reached at all? Per class, the most that any batch of b rows can expect, in numbers."""

from __future__ import annotations

import numpy as np

from ..balance.target import Ranges
from ..types import Float64Array, IntArray, Shortfall
from .shards import Rows

COLUMNS_AT_ONCE = 4
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
        for cls, column in zip(classes.tolist(), rows.minus_classes(classes.tolist()), strict=True):
            most = -column.sum_of_smallest(budget)[0] if budget else 0.0
            if most < ranges.low[cls] * (1 - SHORT):
                found.append(Shortfall(cls, float(ranges.low[cls]), max(0.0, most)))
    return tuple(found)
