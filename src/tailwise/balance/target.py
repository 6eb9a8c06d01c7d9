"""The balance target: how many samples of each class the next batch should hold (PAPER §2).

A wish (`Target`) in, ranges [low, high] of expected counts out; a point target Ω is the range low = high = Ω.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from ..errors import BadInput
from ..inputs import LARGEST_COUNT, per_class, real_array, shown, whole_number
from ..types import Float64Array

PerClass: TypeAlias = "ArrayLike | Mapping[Any, float] | None"
"""Numbers by class: an array (C,), or a dict or pandas Series by class name or class number."""
KINDS = ("shares", "paper", "ranges")


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
    >>> Target.uniform().resolve(np.array([9.0, 1.0]), budget=4).low.tolist()
    [0.0, 4.0]
    >>> Target.paper().resolve(np.array([9.0, 1.0]), budget=4).low.tolist()
    [0.0, 6.0]
    """

    kind: str
    low: PerClass = None
    high: PerClass = None

    def __post_init__(self) -> None:
        kind: object = self.kind
        if not isinstance(kind, str) or kind not in KINDS:
            raise BadInput(
                f"a target of kind {shown(self.kind)} is unknown; make one with Target.shares or Target.ranges"
            )

    @classmethod
    def uniform(cls) -> Target:
        """Every class equally often in the labelled set: Eq. 4, lowered to the budget where it asks for more."""
        return cls("shares")

    @classmethod
    def shares(cls, shares: PerClass) -> Target:
        """The labelled set follows these shares (any non-negative weights; they are normalised)."""
        return cls("shares", shares)

    @classmethod
    def paper(cls, shares: PerClass = None) -> Target:
        """Eq. 4 as printed: classes that have too many labels already let it ask for more than the budget."""
        return cls("paper", shares)

    @classmethod
    def counts(cls, wanted: PerClass) -> Target:
        """This batch holds so many expected samples of each class: Ω itself."""
        return cls("ranges", wanted, wanted)

    @classmethod
    def ranges(cls, low: PerClass = None, high: PerClass = None) -> Target:
        """This batch holds at least `low` and at most `high` of each class.

        Each is an array (C,), one number for all classes, or {class: number}; classes left out are free. Classes are
        named by number, or by the columns of a DataFrame of probabilities.
        """
        return cls("ranges", low, high)

    def resolve(self, counts: ArrayLike, budget: int, names: tuple[Hashable, ...] | None = None) -> Ranges:
        """Turn the wish into ranges for a batch of `budget`, given the labelled samples per class so far (C,).

        `names` are the names of the classes, where they have some.
        """
        labelled = real_array(counts, "counts")
        classes, budget = labelled.size, whole_number(budget, "budget", most=LARGEST_COUNT)
        if not classes:
            raise BadInput("counts are empty; give one number for each class")
        labelled = per_class(labelled, "counts", classes)
        if self.kind != "ranges":
            wanted = share_target if self.kind == "shares" else paper_target
            omega = wanted(self._share_vector(classes, names), labelled, budget)
            return Ranges(omega, omega)
        low = np.zeros(classes) if self.low is None else per_class(self.low, "target low", classes, names, single=True)
        high = np.full(classes, np.inf)
        if self.high is not None:
            high = per_class(
                self.high, "target high", classes, names, missing=np.inf, single=True,
                infinite=self.high is not self.low,
            )  # fmt: skip
        if (low > high).any():
            bad = int(np.flatnonzero(low > high)[0])
            raise BadInput(f"target of class {bad} asks for at least {low[bad]:g} and at most {high[bad]:g} samples")
        # Expected counts never exceed the budget, so a higher high end says nothing more.
        return Ranges(low, np.minimum(high, np.maximum(low, float(budget))))

    def _share_vector(self, classes: int, names: tuple[Hashable, ...] | None) -> Float64Array:
        if self.low is None:
            return np.full(classes, 1.0 / classes)
        shares = per_class(self.low, "target shares", classes, names, single=True)
        if shares.sum() == 0:
            raise BadInput("target shares are all zero; give at least one class a positive share")
        normalised: Float64Array = shares / shares.sum()
        return normalised


def share_target(shares: Float64Array, counts: Float64Array, budget: int) -> Float64Array:
    """ω_i = max(share_i·t − n_i, 0), with the one t ≤ n + b for which Ω sums to b: water-filling.

    Where no class has more labels than its share of n + b, t = n + b: that is Eq. 4.

    >>> share_target(np.array([0.5, 0.5]), np.array([9.0, 1.0]), 4).tolist()
    [0.0, 4.0]
    """
    omega = paper_target(shares, counts, budget)
    if omega.sum() <= budget * (1 + 1e-12):
        return omega
    used = np.flatnonzero(shares)
    order = used[np.argsort(counts[used] / shares[used], kind="stable")]  # the class farthest below its share first
    # With the first k classes below the level, t = (b + Σ n) / Σ share over these; the last that t lifts is the k-th.
    levels = (budget + np.cumsum(counts[order])) / np.cumsum(shares[order])
    lifted = int(np.count_nonzero(levels * shares[order] > counts[order]))
    level = levels[max(lifted, 1) - 1]
    lowered: Float64Array = np.maximum(shares * level - counts, 0.0)
    return lowered


def paper_target(shares: Float64Array, counts: Float64Array, budget: int) -> Float64Array:
    """ω_i = max(share_i·(n + b) − n_i, 0) with n = Σ n_i; Eq. 4 where every share is 1/C, as n + b = c·b + b0.

    >>> paper_target(np.array([0.5, 0.5]), np.array([9.0, 1.0]), 4).tolist()
    [0.0, 6.0]
    """
    omega: Float64Array = np.maximum(shares * (counts.sum() + budget) - counts, 0.0)
    return omega
