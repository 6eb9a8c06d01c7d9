"""Can the target be reached at all? Per class, the most that any batch of b rows can expect, in numbers."""

from __future__ import annotations

import numpy as np

from ..balance.target import Ranges
from ..types import BoolArray, Float64Array, IntArray, Shortfall
from .shards import Rows

COLUMNS_AT_ONCE = 4
MOST_CLASSES = 48
SURE = 0.5  # a probability that is enough to call a row one of the class
SHORT = 1e-3  # relative; smaller shortfalls are the noise of rounding to whole picks


def shortfalls(
    rows: Rows, budget: int, ranges: Ranges, expected: Float64Array, candidates: IntArray
) -> tuple[Shortfall, ...]:
    """Candidate classes whose target exceeds the sum of their b largest probabilities, worst first.

    Only classes that fell short are looked at, and of those the 48 that are shortest. One read finds most that can be
    reached after all; of the others the probabilities are ranked, which takes a read for every four.
    """
    missing = ranges.low - expected  # (C,)
    short = candidates[missing[candidates] > SHORT * np.maximum(1.0, ranges.low[candidates])]
    short = short[np.argsort(-missing[short], kind="stable")][:MOST_CLASSES]
    short = short[~_surely_reached(rows, budget, ranges.low[short], short)]
    found = []
    for start in range(0, len(short), COLUMNS_AT_ONCE):
        classes = short[start : start + COLUMNS_AT_ONCE]
        for cls, column in zip(classes.tolist(), rows.minus_classes(classes.tolist()), strict=True):
            most = -column.sum_of_smallest(budget)[0] if budget else 0.0
            if most < ranges.low[cls] * (1 - SHORT):
                found.append(Shortfall(cls, float(ranges.low[cls]), max(0.0, most)))
    return tuple(found)


def _surely_reached(rows: Rows, budget: int, low: Float64Array, classes: IntArray) -> BoolArray:
    """Whether rows with more than one half for a class reach its target: all of them, or b that have at least that."""
    if not len(classes):
        return np.zeros(0, dtype=bool)
    counts, sums = rows.above(classes, SURE)
    reached: BoolArray = np.where(counts <= budget, sums, SURE * budget) >= low
    return reached
