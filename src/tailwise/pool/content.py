"""The identity of a pool: a digest of its images and labels, the same wherever the files are and on every machine.

Arrays in memory are hashed whole. Image files are hashed whole up to `MOST_HASHED` bytes in total; beyond that their
names and sizes count, and the bytes of `SAMPLE` files. Inputs of another kind may have a method `digest(rows)`; of
those that have none, `SAMPLE` rows are read and hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..types import IntArray
from .images import Inputs, LabelledImages, Pool, Subset

MOST_HASHED = 1 << 30  # bytes of image files: about a second
SAMPLE = 1_024  # files or rows, evenly spaced
BLOCK = 1 << 26  # bytes of an array that are hashed at a time
DIGEST_BYTES = 16


@runtime_checkable
class Digestible(Protocol):
    """Inputs that know how to identify themselves."""

    def digest(self, rows: IntArray) -> bytes:
        """A digest of what these rows hold, in their order; the same in every process and on every machine."""
        ...


def pool_content(pool: Pool) -> str:
    """The identity of a pool: that which its loader gives, else a digest of its training and test set.

    >>> from .registry import load_pool
    >>> pool_content(load_pool("digits")) == pool_content(load_pool("digits"))
    True
    """
    return pool.content or content_of(pool.train, pool.test)


def content_of(train: LabelledImages, test: LabelledImages) -> str:
    """A digest of inputs, labels and the number of classes; the names of classes do not count."""
    parts = [str(train.classes).encode()]
    for half in (train, test):
        parts += [inputs_digest(half.inputs, np.arange(len(half))), array_digest(half.labels)]
    return f"blake2b:{joined_digest(parts).hex()}"


def inputs_digest(inputs: Inputs, rows: IntArray) -> bytes:
    """A digest of some of the inputs."""
    if isinstance(inputs, Subset):
        return inputs_digest(inputs.inputs, inputs.indices[rows])
    if isinstance(inputs, Digestible):
        return inputs.digest(rows)
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
