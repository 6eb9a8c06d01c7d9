"""What a pool is: inputs (features or pixels, in memory or read when needed) with their true labels, and a registry.

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
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

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

POOLS: Registry[PoolLoader] = Registry("pool")


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
