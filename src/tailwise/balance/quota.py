"""Whole places per class: wanted counts (C,) in, quotas that sum to the budget out."""

from __future__ import annotations

import numpy as np

from ..types import BoolArray, Float64Array, IntArray
from .target import Ranges


def water_fill(start: Float64Array, limit: Float64Array, amount: float) -> Float64Array:
    """Raise the lowest of `start` to one level, none above its limit, until `amount` is added; what each gets, (C,).

    All of the limits are used up where they hold less than the amount.

    >>> water_fill(np.array([5.0, 1.0, 0.0]), np.full(3, np.inf), 3.0).tolist()
    [0.0, 1.0, 2.0]
    """
    room = np.maximum(limit - start, 0.0)
    if room.sum() <= amount:
        return room
    # The amount below a level is piecewise linear in it, and bends where a class starts or is full.
    bends = np.unique(np.concatenate([start, np.minimum(limit, start.max() + amount)]))
    held = np.clip(bends[:, None] - start, 0.0, room).sum(axis=1)
    at = max(int(np.searchsorted(held, amount, side="right")) - 1, 0)
    rising = int(((start <= bends[at]) & (limit > bends[at])).sum())
    level = bends[at] + (amount - held[at]) / max(rising, 1)
    added: Float64Array = np.clip(level - start, 0.0, room)
    return added


def wanted_counts(ranges: Ranges, labelled: Float64Array, budget: int, possible: BoolArray) -> Float64Array:
    """Counts of a batch that sum to the budget and are near the target; 0 for classes that are not possible, (C,).

    A target that asks for more than the budget is lowered by the same number in every class, as long as it is above 0
    (for the paper's Eq. 4 that is water-filling of the labelled counts). One that asks for less is filled up to its
    high end, and beyond it where even that is less than the budget, so that the labelled set becomes as even as
    possible.

    >>> target, everywhere = np.array([4.0, 1.0]), np.array([True, True])
    >>> wanted_counts(Ranges(target, target), np.zeros(2), 3, everywhere).tolist()
    [3.0, 0.0]
    """
    low, high = np.where(possible, ranges.low, 0.0), np.where(possible, ranges.high, 0.0)
    if low.sum() >= budget:
        # Lowering to max(low − t, 0) adds up to raising −low from its lowest, up to 0.
        return water_fill(-low, np.zeros_like(low), budget)
    filled = low + water_fill(labelled + low, labelled + high, budget - low.sum())
    start = labelled + filled
    return filled + water_fill(start, np.where(possible, np.inf, start), budget - filled.sum())


def whole_quotas(wanted: Float64Array, budget: int) -> IntArray:
    """Whole numbers that sum to the budget, each the one below or above what is wanted; largest remainders first.

    >>> whole_quotas(np.array([1.5, 1.2, 0.3]), 3).tolist()
    [2, 1, 0]
    """
    whole = np.floor(wanted + 1e-9).astype(np.int64)
    rest = budget - int(whole.sum())
    order = np.argsort(-(wanted - whole).round(9), kind="stable")
    whole[order[:rest]] += 1
    return whole
