"""Sums that do not depend on the order of their terms, so that shards may be cut anywhere and added up in any order.

Probabilities are summed in fixed point, costs (of any scale) without any rounding at all.
"""

from __future__ import annotations

import numpy as np

from ..types import Float64Array, FloatArray, IntArray

COARSE, FINE = 2.0**-30, 2.0**-60  # the two grids of fixed point
ROUND_COARSE, ROUND_FINE = 1.5 * 2.0**22, 1.5 * 2.0**-8  # x + r − r rounds x to the grid, as 2^-52 of r is its step
MOST_ROWS = 1 << 20  # so many terms below 1 add up within the 53 bits of a float64
HALF_BITS = 26
LOWEST = 1074  # 2^-1074 is the smallest float64, and the unit of `exact_sum`


def fixed_point_sums(block: FloatArray) -> IntArray:
    """Column sums of numbers in [0, 1], to 2^-61 each: (n, C) → (2, C), multiples of 2^-30 and of 2^-60.

    >>> from_fixed_point(fixed_point_sums(np.array([[0.5, 0.1], [0.25, 0.2]]))).tolist()
    [0.75, 0.30000000000000004]
    """
    sums = np.zeros((2, block.shape[1]), dtype=np.int64)
    for start in range(0, len(block), MOST_ROWS):
        part = block[start : start + MOST_ROWS].astype(np.float64)
        coarse = part + ROUND_COARSE
        coarse -= ROUND_COARSE
        part -= coarse  # exact
        part += ROUND_FINE
        part -= ROUND_FINE
        sums[0] += (coarse.sum(axis=0) / COARSE).astype(np.int64)
        sums[1] += (part.sum(axis=0) / FINE).astype(np.int64)
    return sums


def from_fixed_point(sums: IntArray) -> Float64Array:
    """(2, C) fixed-point sums as float64, (C,)."""
    result: Float64Array = sums[0] * COARSE + sums[1] * FINE
    return result


def exact_sum(values: Float64Array) -> int:
    """The sum of finite numbers as a whole number of 2^-1074, without rounding.

    >>> from_exact(exact_sum(np.array([1e100, 1.0, -1e100])))
    1.0
    """
    total = 0
    for start in range(0, len(values), MOST_ROWS):
        mantissa, exponent = np.frexp(values[start : start + MOST_ROWS])
        whole = (mantissa * 2.0**53).astype(np.int64)
        lowest = int(exponent.min())
        place = exponent - lowest
        highs = np.bincount(place, weights=(whole >> HALF_BITS).astype(np.float64))  # below 2^53, so exact
        lows = np.bincount(place, weights=(whole & ((1 << HALF_BITS) - 1)).astype(np.float64))
        for at in np.flatnonzero((highs != 0) | (lows != 0)).tolist():
            total += _shifted((int(highs[at]) << HALF_BITS) + int(lows[at]), at + lowest - 53 + LOWEST)
    return total


def from_exact(total: int) -> float:
    """An exact sum, rounded once."""
    return total / (1 << LOWEST)


def _shifted(value: int, places: int) -> int:
    """value·2^places; a negative shift (numbers below 2^-1022) drops zeros only."""
    return value << places if places >= 0 else value >> -places
