"""Whether rows are worked on by compiled loops, and which: numba is an extra, and takes half a second to load."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..types import Float64Array, FloatArray, IntArray

LEAST_ELEMENTS = 600_000_000  # for fewer, numba takes longer to load than its loops save in one selection


class Loops(Protocol):
    """What `compiled` has."""

    def price(self, block: FloatArray, y: Float64Array, cost: Float64Array, out: Float64Array, /) -> None:
        """u − P·y of some rows, in float64."""
        ...

    def minus_entropy(self, block: NDArray[np.float16], tolerance: float, out: Float64Array, /) -> bool:
        """Σ_k p_k log p_k of some rows in half precision; whether all of them are probabilities."""
        ...

    def above(self, block: FloatArray, limit: float, /) -> tuple[IntArray, Float64Array]:
        """For each class, how many rows give it more than `limit`, and the sum of these probabilities."""
        ...


def worth_loading(rows: int, classes: int) -> bool:
    """Whether a dense pool is large enough: the whole, not a shard of it, as numpy's sums differ in their last bits.

    >>> worth_loading(45_000, 100), worth_loading(10_000_000, 100)
    (False, True)
    """
    return rows * classes >= LEAST_ELEMENTS


@cache
def loaded() -> Loops | None:
    """The loops; None where numba is not installed, or not for this numpy."""
    try:
        from . import compiled
    except ImportError as error:
        if error.name != "numba" or not isinstance(error, ModuleNotFoundError):  # say, for a numpy newer than itself
            warnings.warn(f"numba is installed but cannot be used, so large pools take longer: {error}", stacklevel=2)
        return None
    return compiled
