"""The balance target: how many samples of each class the next batch should hold (PAPER §2).

A wish (`Target`) in, ranges [low, high] of expected counts out; a point target Ω is the range low = high = Ω.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadInput
from ..types import Float64Array

PerClass: TypeAlias = "ArrayLike | Mapping[int, float] | None"


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Wanted expected counts of one batch: no cost inside [low, high], λ per sample outside."""

    low: Float64Array  # (C,)
    high: Float64Array  # (C,)

    def distance(self, expected: Float64Array) -> float:
        """l1 distance of expected counts from the ranges: ‖Ω − Pᵀz‖₁ where low = high = Ω.

        >>> Ranges(np.array([1.0, 2.0]), np.array([1.0, 4.0])).distance(np.array([3.0, 3.0]))
        2.0
        """
        below = np.maximum(self.low - expected, 0.0)
        above = np.maximum(expected - self.high, 0.0)
        return float((below + above).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What the labelled set, or this batch, should look like. Make one with the class methods.

    >>> Target.uniform().resolve(np.array([8.0, 2.0]), budget=10).low.tolist()
    [2.0, 8.0]
    >>> Target.shares([3, 1]).resolve(np.array([0.0, 0.0]), budget=8).low.tolist()
    [6.0, 2.0]
    """

    kind: str
    low: PerClass = None
    high: PerClass = None

    @classmethod
    def uniform(cls) -> Target:
        """Every class equally often in the labelled set (Eq. 4)."""
        return cls("shares")

    @classmethod
    def shares(cls, shares: ArrayLike) -> Target:
        """The labelled set follows these shares (any non-negative weights; they are normalised)."""
        return cls("shares", shares)

    @classmethod
    def counts(cls, wanted: ArrayLike) -> Target:
        """This batch holds so many expected samples of each class: Ω itself."""
        return cls("ranges", wanted, wanted)

    @classmethod
    def ranges(cls, low: PerClass = None, high: PerClass = None) -> Target:
        """This batch holds at least `low` and at most `high` of each class.

        Each is an array (C,), one number for all classes, or {class: number}; classes left out are free.
        """
        return cls("ranges", low, high)

    def resolve(self, counts: Float64Array, budget: int) -> Ranges:
        """Turn the wish into ranges for a batch of `budget`, given the labelled samples per class so far (C,)."""
        if self.kind == "shares":
            omega = share_target(self._share_vector(len(counts)), counts, budget)
            return Ranges(omega, omega)
        low = _per_class(self.low, len(counts), 0.0, "low")
        high = _per_class(self.high, len(counts), np.inf, "high")
        if (low > high).any():
            bad = int(np.flatnonzero(low > high)[0])
            raise BadInput(f"target of class {bad} asks for at least {low[bad]:g} and at most {high[bad]:g} samples")
        # Expected counts never exceed the budget, so a higher high end says nothing more.
        return Ranges(low, np.minimum(high, np.maximum(low, float(budget))))

    def _share_vector(self, classes: int) -> Float64Array:
        if self.low is None:
            return np.full(classes, 1.0 / classes)
        shares = _per_class(self.low, classes, 0.0, "shares")
        if shares.sum() == 0:
            raise BadInput("target shares are all zero; give at least one class a positive share")
        normalised: Float64Array = shares / shares.sum()
        return normalised


def share_target(shares: Float64Array, counts: Float64Array, budget: int) -> Float64Array:
    """ω_i = max(share_i·(n + b) − n_i, 0) with n = Σ n_i; Eq. 4 where every share is 1/C, as n + b = c·b + b0.

    >>> share_target(np.array([0.5, 0.5]), np.array([9.0, 1.0]), 4).tolist()
    [0.0, 6.0]
    """
    omega: Float64Array = np.maximum(shares * (counts.sum() + budget) - counts, 0.0)
    return omega


def _per_class(values: PerClass, classes: int, missing: float, name: str) -> Float64Array:
    """An array (C,) of finite non-negative numbers from whatever the user gave (`missing` may be inf)."""
    if values is None:
        return np.full(classes, missing)
    if isinstance(values, Mapping):
        result = np.full(classes, missing)
        for cls, value in values.items():
            if not 0 <= cls < classes:
                raise BadInput(f"target {name} names class {cls}, but classes run from 0 to {classes - 1}")
            result[cls] = value
    else:
        try:
            result = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BadInput(f"target {name} must be numbers, one per class: {error}") from error
        if result.ndim == 0:
            result = np.full(classes, float(result))
    if result.shape != (classes,):
        raise BadInput(f"target {name} has shape {result.shape}, but there are {classes} classes")
    if np.isnan(result).any() or (result < 0).any():
        bad = int(np.flatnonzero(np.isnan(result) | (result < 0))[0])
        raise BadInput(f"target {name} of class {bad} is {result[bad]:g}; it must be a number ≥ 0")
    if name != "high" and np.isinf(result).any():
        raise BadInput(f"target {name} is infinite for class {int(np.flatnonzero(np.isinf(result))[0])}")
    return result
