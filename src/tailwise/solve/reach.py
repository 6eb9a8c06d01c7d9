"""Can the target be reached at all? Per class, the most that any batch of b rows can expect, in numbers."""

from __future__ import annotations

import numpy as np

from ..balance.target import Ranges
from ..types import BoolArray, Float64Array, IntArray, Shortfall
from .shards import Rows

COLUMNS_AT_ONCE = 4
SURE = 0.5  # a probability that is enough to call a row one of the class
SHORT = 1e-3  # relative; smaller shortfalls are the noise of rounding to whole picks
FEW_BLOCKS = 16  # one in so many blocks of rows is looked at first
SAMPLED_ROWS, SAMPLED_ELEMENTS = 8_192, 1 << 22
DEVIATIONS = 5.0  # of a rank in the sample, within which the rank in the pool almost surely lies


def shortfalls(rows: Rows, budget: int, ranges: Ranges, expected: Float64Array) -> tuple[Shortfall, ...]:
    """Classes whose target exceeds the sum of their b largest probabilities, the farthest from it first.

    `expected` (C,) is what a batch of this size has: classes that got enough can be reached. A part of the rows shows
    that most others can be reached as well, one read of all rows shows it of more, and one more what the rest can have.
    """
    missing = ranges.low - expected  # (C,)
    short = np.flatnonzero(missing > SHORT * np.maximum(1.0, ranges.low))
    short = short[np.argsort(-missing[short], kind="stable")]
    if 0 < budget < rows.size and len(short):
        for every in (FEW_BLOCKS, 1):
            short = short[~_surely_reached(rows, budget, ranges.low[short], short, every)]
        most = sums_of_largest(rows, budget, short)
    else:
        most = expected[short]  # there is one batch
    return tuple(
        Shortfall(int(cls), float(ranges.low[cls]), max(0.0, float(reachable)))
        for cls, reachable in zip(short, most, strict=True)
        if reachable < ranges.low[cls] * (1 - SHORT)
    )


def _surely_reached(rows: Rows, budget: int, low: Float64Array, classes: IntArray, every: int) -> BoolArray:
    """Whether rows with more than one half for a class reach its target: all of them, or b that have at least that.

    One in `every` blocks of rows is looked at.
    """
    if not len(classes):
        return np.zeros(0, dtype=bool)
    counts, sums = rows.above(classes, SURE, every)
    reached: BoolArray = np.where(counts <= budget, sums, SURE * budget) >= low
    return reached


def sums_of_largest(rows: Rows, budget: int, classes: IntArray) -> Float64Array:
    """The sum of the b largest probabilities of each class, (k,), from one read; 0 < b < N.

    A sample says between which two probabilities the b-th largest lies. What is larger than both is summed, and only
    what lies between them is ranked. If the sample was wrong the whole column is ranked: a read for every four columns.
    """
    if not len(classes):
        return np.empty(0)
    result, floor, ceiling = np.full(len(classes), np.nan), *_brackets(rows, budget, classes)
    known = np.flatnonzero(floor >= 0)
    if len(known):
        parts = rows.between(classes[known], floor[known], ceiling[known])
        for place, part in zip(known.tolist(), parts, strict=True):
            result[place] = part.sum_of_largest(budget)
    for start in range(0, len(left := np.flatnonzero(np.isnan(result))), COLUMNS_AT_ONCE):
        places = left[start : start + COLUMNS_AT_ONCE]
        columns = rows.minus_classes(classes[places].tolist())
        result[places] = [-column.sum_of_smallest(budget)[0] for column in columns]
    return result


def _brackets(rows: Rows, budget: int, classes: IntArray) -> tuple[Float64Array, Float64Array]:
    """A floor and a ceiling of the b-th largest probability of each class, (k,) each, almost surely.

    Both are probabilities that occur. The ceiling is inf where few rows are picked, the floor −1 where almost all are.
    """
    size = min(rows.size, max(1_000, min(SAMPLED_ROWS, SAMPLED_ELEMENTS // rows.classes)))
    sample = rows.take(np.linspace(0, rows.size - 1, size, dtype=np.int64))[:, classes]  # (m, k)
    rank = budget * size / rows.size
    slack = DEVIATIONS * np.sqrt(rank * (1 - rank / size)) + 2 if size < rows.size else 0.0
    above, below = size - int(np.floor(rank - slack)), size - int(np.ceil(rank + slack))  # ranks in ascending order
    sample = np.partition(sample, [max(0, below), min(size - 1, above)], axis=0)
    floor = sample[below] if below >= 0 else np.full(len(classes), -1.0)
    return floor, sample[above] if above < size else np.full(len(classes), np.inf)
