"""Inputs as the heads read them: features (n, d) or pixels (n, height, width, 3) in, flat float32 rows out.

Long inputs are read in chunks, so that a big pool is never copied whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..pool.images import Inputs

Float32Array: TypeAlias = NDArray[np.float32]

CHUNK_NUMBERS = 2**22  # 16 MB of float32
BRIGHTEST = 255.0
SCALES = ("common", "feature", "none")


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A shift and a scale for every feature."""

    centre: Float32Array  # (d,)
    spread: Float32Array  # (d,), never 0

    @classmethod
    def fit(cls, features: Float32Array, scale: str) -> Scaling:
        """From labelled features: "feature" gives each a spread of 1, "common" divides all by their mean spread."""
        if scale not in SCALES:
            raise BadInput(f"scale is {scale!r}; it must be one of {', '.join(SCALES)}")
        width = features.shape[1]
        if scale == "none":
            return cls(np.zeros(width, np.float32), np.ones(width, np.float32))
        centre = features.mean(axis=0, dtype=np.float64)  # (d,)
        spread = features.std(axis=0, dtype=np.float64)
        if scale == "common":
            spread = np.full(width, spread.mean())
        spread = np.where(spread > 0, spread, 1.0)  # a constant feature says nothing, and divides nothing
        return cls(centre.astype(np.float32), spread.astype(np.float32))

    def scaled(self, features: Float32Array) -> Float32Array:
        """(x − centre) / spread, (n, d)."""
        result = features - self.centre
        result /= self.spread
        return result


def width_of(inputs: Inputs) -> int:
    """d: the numbers of one input.

    >>> width_of(np.zeros((5, 8, 8, 3), np.uint8))
    192
    """
    return int(np.prod(inputs.shape[1:]))


def chunks(inputs: Inputs) -> Iterator[tuple[slice, Float32Array]]:
    """Where a chunk stands, and its flat rows (m, d), from the first input to the last."""
    rows = max(1, CHUNK_NUMBERS // max(1, width_of(inputs)))
    for start in range(0, len(inputs), rows):
        stop = min(start + rows, len(inputs))
        yield slice(start, stop), _flat(inputs[np.arange(start, stop)], start)


def all_features(inputs: Inputs) -> Float32Array:
    """Every input as a flat row, (n, d).

    >>> all_features(np.array([[[[0, 255, 255]]]], np.uint8)).tolist()
    [[0.0, 1.0, 1.0]]
    """
    result = np.empty((len(inputs), width_of(inputs)), np.float32)
    for where, rows in chunks(inputs):
        result[where] = rows
    return result


def _flat(read: NDArray[np.generic], start: int) -> Float32Array:
    if read.ndim not in (2, 4) or not np.issubdtype(read.dtype, np.number):
        raise BadInput(
            f"inputs are {read.dtype} {read.shape}; they must be features (n, d) or pixels (n, height, width, 3)"
        )
    flat: Float32Array = read.reshape(len(read), -1).astype(np.float32)
    if read.dtype == np.uint8:
        flat /= BRIGHTEST
    bad = np.flatnonzero(~np.isfinite(flat).all(axis=1))
    if len(bad):
        raise BadInput(f"inputs hold NaN or infinity in row {start + int(bad[0])}; leave such rows out or mend them")
    return flat
