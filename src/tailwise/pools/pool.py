"""What a pool is: inputs with true labels, its identity, the registry; and long tails with exact counts (PAPER §7).

Its identity is a digest of images and labels, the same on every machine. Arrays are hashed whole. Image files are
hashed whole up to `MOST_HASHED` bytes in total; above that, their names and sizes and the bytes of `SAMPLE` files.
Other inputs may have a method `digest(rows)`, which must be the same in every process and on every machine; of those
without one, `SAMPLE` rows are hashed.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, PoolExhausted
from ..inputs import Registry, check_settings
from ..types import IntArray

InputArray: TypeAlias = NDArray[Any]
"""Features (n, d) as floats, or pixels (n, height, width, 3) as uint8."""


MOST_HASHED = 1 << 30  # bytes of image files: about a second
SAMPLE = 1_024  # files or rows, evenly spaced
BLOCK = 1 << 26  # bytes of an array that are hashed at a time
DIGEST_BYTES = 16


class Inputs(Protocol):
    """One input per image, read by index; a numpy array is one."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, d) or (N, height, width, 3)."""
        ...

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        """The inputs at these indices, in their order."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Subset(Inputs):
    """Some of the inputs, read only when asked for."""

    inputs: Inputs
    indices: IntArray  # (n,)

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the inputs, with n in front."""
        return (len(self.indices), *self.inputs.shape[1:])

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        return self.inputs[self.indices[indices]]


def read_all(inputs: Inputs) -> InputArray:
    """Every input, in memory."""
    return inputs if isinstance(inputs, np.ndarray) else inputs[np.arange(len(inputs))]


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Inputs with their true labels."""

    inputs: Inputs  # (N, …)
    labels: IntArray  # (N,) in 0..classes-1
    class_names: tuple[str, ...]  # (C,)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> int:
        """C, also where some classes have no image."""
        return len(self.class_names)

    def take(self, indices: IntArray) -> LabelledImages:
        """Some of the images, in the order of the indices; those that are not in memory stay on the disk."""
        in_memory = isinstance(self.inputs, np.ndarray)
        inputs = self.inputs[indices] if in_memory else Subset(self.inputs, indices)
        return LabelledImages(inputs, self.labels[indices], self.class_names)

    def counts(self) -> IntArray:
        """Images per class, (C,); a class without images counts 0, it is not missing."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64)


@dataclass(frozen=True, slots=True)
class BadImage:
    """A file that could not be used, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A data set: what may be labelled, what is tested on, and what could not be read."""

    name: str
    train: LabelledImages
    test: LabelledImages
    bad: tuple[BadImage, ...] = ()
    content: str = ""
    """Its identity where the loader knows it better than `pool_content`, say before rounding; else empty."""


# The identity of a pool.


def pool_content(pool: Pool) -> str:
    """The identity of a pool: that which its loader gives, else a digest of inputs, labels and the number of classes.

    The names of classes do not count.

    >>> from tailwise.pools import load_pool
    >>> pool_content(load_pool("digits")) == pool_content(load_pool("digits"))
    True
    """
    if pool.content:
        return pool.content
    parts = [str(pool.train.classes).encode()]
    for half in (pool.train, pool.test):
        parts += [inputs_digest(half.inputs, np.arange(len(half))), array_digest(half.labels)]
    return f"blake2b:{joined_digest(parts).hex()}"


def inputs_digest(inputs: Inputs, rows: IntArray) -> bytes:
    """A digest of some of the inputs."""
    if isinstance(inputs, Subset):
        return inputs_digest(inputs.inputs, inputs.indices[rows])
    digest: Callable[[IntArray], bytes] | None = getattr(inputs, "digest", None)
    if digest is not None:
        return digest(rows)
    if isinstance(inputs, np.ndarray):
        whole = len(rows) == len(inputs) and bool((rows == np.arange(len(inputs))).all())
        return array_digest(inputs if whole else inputs[rows])
    shape = (len(rows), *inputs.shape[1:])
    return joined_digest([repr(shape).encode(), array_digest(np.asarray(inputs[sample_of(rows)]))])


def array_digest(array: NDArray[Any]) -> bytes:
    """A digest of an array's type, shape and numbers, whatever its layout and byte order."""
    kind = array.dtype.newbyteorder("<")
    digest = hashlib.blake2b(f"{kind.str} {array.shape}".encode(), digest_size=DIGEST_BYTES)
    rows = max(1, BLOCK // max(1, array.nbytes // max(1, len(array))))
    for start in range(0, len(array), rows):
        block = np.ascontiguousarray(array[start : start + rows].astype(kind, copy=False))
        digest.update(block.tobytes() if block.dtype.hasobject else block.reshape(-1).view(np.uint8).data)
    return digest.digest()


def joined_digest(parts: Iterable[bytes]) -> bytes:
    """One digest of several parts; where one ends and the next begins counts."""
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def sample_of(rows: IntArray) -> IntArray:
    """At most `SAMPLE` of some rows, evenly spaced, the first and the last among them.

    >>> len(sample_of(np.arange(5000))), sample_of(np.arange(3)).tolist()
    (1024, [0, 1, 2])
    """
    if len(rows) <= SAMPLE:
        return rows
    return rows[np.linspace(0, len(rows) - 1, SAMPLE).astype(np.int64)]


PoolLoader: TypeAlias = Callable[..., Pool]
"""loader(path: Path | None = None, *, settings of its own) → Pool; `path` is where the files are."""

POOLS: Registry[PoolLoader] = Registry("pool", "tailwise.pools")


def load_pool(name: str, path: str | Path | None = None, **settings: Any) -> Pool:  # noqa: ANN401 - each types its own
    """Read a pool by name; `path` is where its files are, None for its usual place or where it needs none.

    >>> from tailwise.pools import load_pool
    >>> load_pool("digits").train.classes
    10
    """
    loader = POOLS[name]
    known = [setting for setting in inspect.signature(loader).parameters if setting != "path"]
    check_settings(f"pool {name!r}", settings, known)
    return loader(None if path is None else Path(path).expanduser(), **settings)


# -- long tails: labels in, sorted indices out, by the seed alone ----------------------------------------------------


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
