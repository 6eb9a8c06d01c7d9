"""Long-tailed pools with exact counts (PAPER §7): the first labelled set, and which images each class keeps.

Labels in, sorted indices out. Everything depends on the seed alone: with "uniform" the labelled set is the same for
every tail, and a smaller factor keeps a subset of what a larger one keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from ..errors import BadInput, PoolExhausted
from ..types import IntArray

Profile: TypeAlias = Literal["step", "exponential", "none"]
Draw: TypeAlias = Literal["uniform", "pool"]
PROFILES = ("step", "exponential", "none")
DRAWS = ("uniform", "pool")


# How many images each class keeps, and which.


def step_profile(counts: IntArray, factor: float, tail: IntArray | None = None) -> IntArray:
    """Tail classes keep the fraction `factor`, the others all; the tail is classes C/2..C−1 unless given.

    >>> step_profile(np.array([4500, 4500, 4500, 4500]), 0.1).tolist()
    [4500, 4500, 450, 450]
    >>> step_profile(np.array([10, 10, 10]), 0.3, tail=np.array([0])).tolist()
    [3, 10, 10]
    """
    _check_factor(factor)
    classes = len(counts)
    fractions = np.ones(classes)
    fractions[np.arange(classes // 2, classes) if tail is None else tail] = factor
    return np.floor(counts * fractions + 0.5).astype(np.int64)  # 4500·0.1 is 450 whatever the last bit says


def exponential_profile(counts: IntArray, factor: float, order: IntArray | None = None) -> IntArray:
    """n_k = n·IF^(k/(C−1)) with k the place in `order`: the first class keeps all, the last the fraction `factor`.

    >>> exponential_profile(np.array([100, 100, 100]), 0.01).tolist()
    [100, 10, 1]
    >>> exponential_profile(np.array([100, 100, 100]), 0.01, order=np.array([2, 0, 1])).tolist()
    [10, 1, 100]
    """
    _check_factor(factor)
    places = np.empty(len(counts))  # (C,), 0 … 1
    places[slice(None) if order is None else order] = np.arange(len(counts)) / max(len(counts) - 1, 1)
    return np.floor(counts * factor**places + 0.5).astype(np.int64)


def keep_counts(labels: IntArray, wanted: IntArray, rng: np.random.Generator) -> IntArray:
    """Indices of exactly wanted[k] samples of each class k, chosen by chance; ascending.

    >>> keep_counts(np.array([0, 1, 0, 1, 1]), np.array([2, 0]), np.random.default_rng(0)).tolist()
    [0, 2]
    """
    kept = [np.empty(0, dtype=np.int64)]
    for cls, number in enumerate(wanted):
        members = np.flatnonzero(labels == cls)
        if number > len(members):
            raise PoolExhausted(
                f"asked for {number} samples of class {cls}, but there are {len(members)}; ask for fewer"
            )
        kept.append(rng.permutation(members)[:number])
    return np.sort(np.concatenate(kept)).astype(np.int64)


def initial_set(labels: IntArray, classes: int, per_class: int, rng: np.random.Generator) -> IntArray:
    """Indices of a class-uniform first labelled set: `per_class` samples of each class, ascending."""
    return keep_counts(labels, np.full(classes, per_class, dtype=np.int64), rng)


def _check_factor(factor: float) -> None:
    if not 0 < factor <= 1:
        raise BadInput(f"imbalance factor is {factor:g}; it must lie in (0, 1], where 1 is balanced")


# The start of an experiment.


@dataclass(frozen=True, slots=True)
class Tail:
    """Which classes are rare, and how rare.

    "step": the tail keeps the fraction `factor`, all others everything. "exponential": from everything down to
    `factor`, class by class. `classes` is the tail: "last" (the last half), "random" (a half by chance), or numbers,
    for "exponential" all classes, the most frequent first.

    >>> str(Tail("step", 0.1)), str(Tail())
    ('step 0.1', 'balanced')
    """

    profile: Profile = "none"
    factor: float = 1.0
    classes: Literal["last", "random"] | tuple[int, ...] = "last"

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise BadInput(f"the profile is {self.profile!r}; it must be one of {', '.join(PROFILES)}")
        if not 0 < self.factor <= 1:
            raise BadInput(f"imbalance factor is {self.factor:g}; it must lie in (0, 1], where 1 is balanced")
        if isinstance(self.classes, str) and self.classes not in ("last", "random"):
            raise BadInput(f"the tail's classes are {self.classes!r}; they must be 'last', 'random' or numbers")

    def __str__(self) -> str:
        if self.profile == "none" or self.factor == 1:
            return "balanced"
        which = {"last": "", "random": " random"}.get(str(self.classes), f" {self.classes}")
        return f"{self.profile} {exact_number(self.factor)}{which}"


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Where an experiment starts: indices into the training set, ascending, and the rare classes."""

    labelled: IntArray  # (b0,)
    unlabelled: IntArray  # (N,)
    tail: IntArray  # (T,) ascending; empty where balanced


def exact_number(value: float) -> str:
    """A number as short as possible without rounding it, the same for 1 and 1.0.

    >>> exact_number(1.0), exact_number(0.6), exact_number(0.1234567), exact_number(-0.0)
    ('1', '0.6', '0.1234567', '0')
    """
    return repr(float(value) + 0.0).removesuffix(".0")


def split(labels: IntArray, classes: int, *, tail: Tail, initial: int, draw: Draw, seed: int) -> Split:
    """Divide a training set into what is labelled at first, what may be labelled, and what is left out.

    "uniform": first `initial` images, equally many of each class (where C does not divide it, one more of as many
    classes as needed, by chance), then the tail is thinned, as in the paper. "pool": the tail is thinned, then the
    initial images are drawn from all that is left, as in practice: rare classes may be missing.

    >>> start = split(np.arange(1000) % 10, 10, tail=Tail("step", 0.1), initial=100, draw="uniform", seed=0)
    >>> len(start.labelled), len(start.unlabelled), start.tail.tolist()
    (100, 495, [5, 6, 7, 8, 9])
    """
    _check(labels, classes, initial, draw, seed)
    for_order, for_first, for_thinning = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    order = _order(tail, classes, for_order)
    balanced = tail.profile == "none" or tail.factor == 1
    rare = np.empty(0, np.int64) if balanced else np.sort(order[_tail_start(tail, classes) :])
    if draw == "uniform":
        first = keep_counts(labels, uniform_counts(classes, initial, for_first), for_first)
        rest = np.setdiff1d(np.arange(len(labels)), first)
        return Split(first, rest[_thinned(labels[rest], tail, order, rare, for_thinning)], rare)
    kept = _thinned(labels, tail, order, rare, for_thinning)
    if initial > len(kept):
        raise PoolExhausted(f"asked for {initial} initial images, but the pool has {len(kept)}; ask for fewer")
    first = np.sort(for_first.permutation(kept)[:initial])
    return Split(first, np.setdiff1d(kept, first), rare)


def uniform_counts(classes: int, total: int, rng: np.random.Generator) -> IntArray:
    """`total` over the classes, equal but for the remainder, which goes to classes drawn by chance.

    >>> sorted(uniform_counts(4, 10, np.random.default_rng(0)).tolist())
    [2, 2, 3, 3]
    """
    counts = np.full(classes, total // classes, dtype=np.int64)
    counts[rng.permutation(classes)[: total % classes]] += 1
    return counts


def _order(tail: Tail, classes: int, rng: np.random.Generator) -> IntArray:
    """Classes from the most frequent to the rarest, (C,)."""
    if tail.classes == "last":
        return np.arange(classes)
    if tail.classes == "random":
        return rng.permutation(classes).astype(np.int64)
    named = np.array(tail.classes, dtype=np.int64)
    if len(set(named.tolist())) != len(named) or ((named < 0) | (named >= classes)).any():
        raise BadInput(f"the tail's classes are {tail.classes}; they must be different numbers from 0 to {classes - 1}")
    if tail.profile == "exponential" and len(named) != classes:
        raise BadInput(f"an exponential tail needs all {classes} classes, the most frequent first, not {len(named)}")
    return np.concatenate([np.setdiff1d(np.arange(classes), named), named])


def _tail_start(tail: Tail, classes: int) -> int:
    """Where the tail starts in the order: it is the last half, or what was named."""
    named = tail.profile == "step" and not isinstance(tail.classes, str)
    return classes - len(tail.classes) if named else classes // 2


def _thinned(labels: IntArray, tail: Tail, order: IntArray, rare: IntArray, rng: np.random.Generator) -> IntArray:
    """Places of what the profile keeps, ascending."""
    counts = np.bincount(labels, minlength=len(order)).astype(np.int64)
    if tail.profile == "none" or tail.factor == 1:
        return np.arange(len(labels))
    if tail.profile == "step":
        return keep_counts(labels, step_profile(counts, tail.factor, rare), rng)
    return keep_counts(labels, exponential_profile(counts, tail.factor, order), rng)


def _check(labels: IntArray, classes: int, initial: int, draw: str, seed: int) -> None:
    if draw not in DRAWS:
        raise BadInput(f"draw is {draw!r}; it must be 'uniform' or 'pool'")
    if seed < 0 or initial < 0:
        raise BadInput(f"seed and initial must be 0 or more, but are {seed} and {initial}")
    if len(labels) and (labels.min() < 0 or labels.max() >= classes):
        raise BadInput(f"labels run from {labels.min()} to {labels.max()}, but there are {classes} classes")
