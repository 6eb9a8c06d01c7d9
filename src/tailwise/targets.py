"""Class counts: what the next batch should hold (PAPER §2), in whole images, and how balanced a set is (PAPER §9).

A wish (`Target`) in, ranges [low, high] of expected counts out; a point target Ω is the range low = high = Ω.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .errors import BadInput
from .inputs import LARGEST_COUNT, per_class, real_array, shown, whole_number
from .types import BoolArray, Float64Array, IntArray

PerClass: TypeAlias = "ArrayLike | Mapping[Any, float] | None"
"""Numbers by class: an array (C,), or a dict or pandas Series by class name or class number."""
Names: TypeAlias = "tuple[Hashable, ...] | None"
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

    @classmethod
    def of(cls, wanted: object) -> Target:
        """A target as it is; anything else is the counts wanted of this batch, None every class equally often."""
        if wanted is None:
            return cls.uniform()
        return wanted if isinstance(wanted, Target) else cls.counts(wanted)  # type: ignore[arg-type] # checked later

    def numbered(self, classes: int, names: Names) -> Target:
        """The same with arrays (C,) in place of class names."""
        what = "target low" if self.kind == "ranges" else "target shares"
        low = None if self.low is None else per_class(self.low, what, classes, names, single=True)
        if self.high is None or self.high is self.low:
            return Target(self.kind, low, None if self.high is None else low)
        high = per_class(self.high, "target high", classes, names, missing=np.inf, single=True, infinite=True)
        return Target(self.kind, low, high)

    def less(self, included: Float64Array) -> Target:
        """What is still wanted once a part of the batch is fixed that holds so many expected samples, (C,).

        Shares go by the labelled set, to which that part will belong; counts and ranges of the batch are lowered.
        """
        if self.kind != "ranges":
            return self
        low, high = (
            None if one is None else np.maximum(real_array(one, "target") - included, 0.0)
            for one in (self.low, self.high)
        )
        return Target("ranges", low, high)

    def resolve(self, counts: ArrayLike, budget: int, names: Names = None) -> Ranges:
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

    def _share_vector(self, classes: int, names: Names) -> Float64Array:
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


def water_fill(start: Float64Array, limit: Float64Array, amount: float) -> Float64Array:
    """Raise the lowest of `start` to one level, none above its limit, until `amount` is added; what each gets, (C,).

    All of the limits are used up where they hold less than the amount.

    >>> water_fill(np.array([5.0, 1.0, 0.0]), np.full(3, np.inf), 3.0).tolist()
    [0.0, 1.0, 2.0]
    """
    space = np.maximum(limit - start, 0.0)
    if space.sum() <= amount:
        return space
    # The amount below a level is piecewise linear in it, and bends where a class starts or is full.
    bends = np.unique(np.concatenate([start, np.minimum(limit, start.max() + amount)]))
    held = np.clip(bends[:, None] - start, 0.0, space).sum(axis=1)
    at = max(int(np.searchsorted(held, amount, side="right")) - 1, 0)
    rising = int(((start <= bends[at]) & (limit > bends[at])).sum())
    level = bends[at] + (amount - held[at]) / max(rising, 1)
    added: Float64Array = np.clip(level - start, 0.0, space)
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


def l1_score(counts: ArrayLike) -> float:
    """Distance from uniform: Σ|n_i − M/C| · C / (2M(C−1)); 0 = uniform, 1 = all in one class.

    >>> l1_score([5, 5]), l1_score([10, 0])
    (0.0, 1.0)
    """
    n = real_array(counts, "counts")
    n = per_class(n, "counts", n.size)  # (C,)
    total, classes = n.sum(), len(n)
    if total == 0 or classes < 2:
        return 0.0
    return float(np.abs(n - total / classes).sum() * classes / (2 * total * (classes - 1)))
