"""Memory that a thread uses again: fresh pages for every block cost more than the work on them."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

MOST_BYTES = 64 << 20  # that a thread keeps for one use; what is larger is made anew each time


class Scratch(threading.local):
    """Room for one array at a time in each thread.

    >>> room = Scratch()
    >>> first = room.array((2, 3), np.float32)
    >>> second = room.array((3,), np.float64)  # in the place of the first
    >>> np.shares_memory(first, second)
    True
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._memory = np.empty(0, dtype=np.uint8)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array whose numbers are yet to be written; it is good until the thread asks for the next."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size > self._most:
            return np.empty(shape, dtype)
        if len(self._memory) < size:
            self._memory = np.empty(size, dtype=np.uint8)
        return self._memory[:size].view(dtype).reshape(shape)
