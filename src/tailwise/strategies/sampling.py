"""Batches that are drawn one image at a time: weights in, a row out, with Algorithm 2's term for balance.

Drawing in proportion to weights w is argmax_i log w_i + noise, with Gumbel noise. Balance subtracts
λ·(dist(Pᵀz + P_i, target) − dist(Pᵀz, target)) from that criterion: it draws in proportion to w·exp(−λ·…). So λ = 0 is
the method as published, and a large λ leaves only images that bring the batch nearest to its target.
"""

from __future__ import annotations

import numpy as np

from ..solve.blocks import map_blocks, rows_per_block
from ..solve.imbalance import Imbalance
from ..types import BoolArray, Float64Array


def tilted(weights: Float64Array, open_: BoolArray, imbalance: Imbalance) -> Float64Array:
    """Weights (N,) times exp(−what each row adds to the imbalance), 0 for closed rows, the largest one 1.

    Where no open row has a weight, all have the same.
    """
    usable = np.where(open_, weights, 0.0)
    if not usable.any():
        usable = open_.astype(np.float64)
    if imbalance.lam == 0:
        return np.asarray(usable / usable.max())
    rows = imbalance.rows
    parts = map_blocks(rows.size, rows_per_block(rows.classes), lambda where: imbalance.added(rows.read(where)))
    with np.errstate(divide="ignore"):  # log 0 = −inf: never drawn
        logs = np.log(usable) - np.concatenate(parts)
    return np.asarray(np.exp(logs - logs.max()))


def draw(weights: Float64Array, rng: np.random.Generator) -> int:
    """A row in proportion to its weight, by one random number and the cumulative sum.

    >>> draw(np.array([0.0, 2.0, 0.0]), np.random.default_rng(0))
    1
    """
    reached = weights.cumsum()
    place = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
    return min(place, int(np.flatnonzero(weights)[-1]))  # rounding may reach beyond the last


def chance_scale(size: int) -> float:
    """The λ at which an image that adds one sample to the imbalance is drawn a pool's size less often: log N.

    >>> f"{chance_scale(1_000):.2f}"
    '6.91'
    """
    return max(1.0, float(np.log(max(size, 1))))
