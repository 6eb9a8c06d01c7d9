"""A long array is worked on in blocks, on all cores, with the same result every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..types import FloatArray, IntArray

BLOCK_ELEMENTS = 1 << 18  # 2 MB in float64: stays in cache between cast and product
HALF_MAX = 0x7BFF  # largest finite positive float16, as bits
Result = TypeVar("Result")


def rows_per_block(classes: int) -> int:
    """How many rows of a matrix are worked on at once: it depends on their width alone.

    >>> rows_per_block(100), rows_per_block(100_000)
    (2621, 64)
    """
    return max(64, BLOCK_ELEMENTS // classes)


def map_blocks(size: int, step: int, work: Callable[[slice], Result], threads: int | None = None) -> list[Result]:
    """Apply `work` to slices of `step` rows, on all cores unless told otherwise; results in the order of the slices.

    >>> map_blocks(5, 2, lambda where: (where.start, where.stop))
    [(0, 2), (2, 4), (4, 5)]
    """
    blocks = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    workers = min(threads or len(os.sched_getaffinity(0)), len(blocks))
    if workers < 2:
        return [work(block) for block in blocks]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, blocks))


def widen(block: FloatArray) -> FloatArray:
    """A block as float32 or float64; float16 is widened, exactly."""
    return widen_half(block) if block.dtype == np.float16 else np.asarray(block)


def widen_half(half: NDArray[np.float16]) -> NDArray[np.float32]:
    """float16 → float32, exactly, 14 times faster than a cast for finite non-negative numbers.

    Shifted by 13 bits, a half's exponent and fraction are those of a float32 that is 2^112 times too small.

    >>> widen_half(np.array([0.0, 6e-8, 0.1, 1.0], dtype=np.float16)).tolist() == \
            np.array([0.0, 6e-8, 0.1, 1.0], dtype=np.float16).astype(np.float32).tolist()
    True
    """
    bits: NDArray[Any] = half.view(np.uint16)
    if bits.size and bits.max() > HALF_MAX:  # negative, infinite or NaN: rare, and about to be refused
        return half.astype(np.float32)
    wide = bits.astype(np.uint32)
    wide <<= 13
    result = wide.view(np.float32)
    result *= np.float32(2.0**112)
    return result


def smallest(values: FloatArray, count: int) -> IntArray:
    """Indices of the `count` smallest values, ascending by index; ties go to the lower index.

    >>> smallest(np.array([3.0, 1.0, 2.0, 1.0, 1.0]), 2).tolist()
    [1, 3]
    """
    if count <= 0:
        return np.empty(0, dtype=np.int64)
    if count >= len(values):
        return np.arange(len(values), dtype=np.int64)
    limit = np.partition(values, count - 1)[count - 1]
    chosen = values < limit
    chosen[np.flatnonzero(values == limit)[: count - int(chosen.sum())]] = True
    return np.flatnonzero(chosen).astype(np.int64, copy=False)
