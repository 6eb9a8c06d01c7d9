"""Loops over rows, compiled by numba: every number is read once, widened in a register, and nothing is made on the way.

Rows (n, C) as they are stored in, numbers per row or per class out; numba has no halves, and reads them by their bits.
Imported by `blocks.compiled_loops` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar, cast

import numba
import numpy as np
from llvmlite import binding, ir
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..types import Float64Array, FloatArray, IntArray
from .blocks import HALF_MAX

LEAST_NORMAL = np.float32(2.0**-14)  # of the halves
Loop = TypeVar("Loop", bound=Callable[..., Any])

_settings: Any = numba.config  # made from the environment, which no type checker sees
if _settings.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")


def price(block: FloatArray, y: Float64Array, cost: Float64Array, out: Float64Array) -> None:
    """u − P·y of some rows, in float64."""
    _price(block.view(np.uint16) if block.dtype == np.float16 else block, y, cost, out)


def minus_entropy(block: NDArray[np.float16], tolerance: float, out: Float64Array) -> bool:
    """Σ_k p_k log p_k of some rows in half precision; whether all of them are probabilities."""
    return bool(_minus_entropy(block.view(np.uint16), _P_LOG_P, tolerance, out))


def above(block: FloatArray, limit: float) -> tuple[IntArray, Float64Array]:
    """For each class, how many rows give it more than `limit`, and the sum of these probabilities."""
    counts, sums = np.zeros(block.shape[1], dtype=np.int64), np.zeros(block.shape[1])
    _above(block.view(np.uint16) if block.dtype == np.float16 else block, limit, counts, sums)
    return counts, sums


def _p_log_p() -> Float64Array:
    """p log p of every half by its bits; 0 where they are not a probability, which the loop checks."""
    table = np.zeros(1 << 16)
    halves = np.arange(HALF_MAX + 1, dtype=np.uint16).view(np.float16).astype(np.float64)
    table[1 : len(halves)] = halves[1:] * np.log(halves[1:])
    return table


_P_LOG_P = _p_log_p()  # 0.5 MB, of which probabilities use an eighth


# -- reading a number ------------------------------------------------------------------------------------------------


def _reading(_context: object, stored: Any) -> tuple[Any, Callable[..., Any]]:  # noqa: ANN401 - a type of numba's
    """What numba is to make of `_number(x)`: floats are what they are, other numbers are the bits of a half ≥ 0."""
    halves = stored == numba.types.uint16

    def generate(target: Any, builder: Any, signature: object, given: Any) -> Any:  # noqa: ANN401 - of llvmlite
        if not halves:
            return given[0]
        if _has_instruction():
            return builder.fpext(builder.bitcast(given[0], ir.HalfType()), ir.FloatType())
        return target.compile_internal(builder, from_bits, signature, given)

    return (numba.types.float32 if halves else stored)(stored), generate


def _has_instruction() -> bool:
    """Whether the processor widens halves, and numba compiles for this very processor: elsewhere it would crash."""
    as_it_is = _settings.CPU_NAME is None and _settings.CPU_FEATURES is None
    return as_it_is and bool(binding.get_host_cpu_features().get("f16c", False))


def from_bits(bits: np.uint16) -> np.float32:
    """A half ≥ 0 as float32, without subnormal numbers on the way, on which some processors are slow.

    13 bits higher and with the exponent of a float32, x is right from 2^-14 on; below that 2x − 2^-14 is, and smaller.

    >>> float(from_bits(np.float16(0.125).view(np.uint16))), float(from_bits(np.uint16(3))) == 3 * 2.0**-24
    (0.125, True)
    """
    without_sign = np.uint32(bits & np.uint16(0x7FFF))  # −0.0 is 0.0
    x = np.uint32((without_sign << np.uint32(13)) + np.uint32(112 << 23)).view(np.float32)
    return min(x, x + x - LEAST_NORMAL)


_number: Callable[[Any], Any] = cast(Any, intrinsic(_reading))


# -- loops -----------------------------------------------------------------------------------------------------------


def _compiled(loop: Loop) -> Loop:
    """Compile a loop when it is first used, and keep the result on the disk where there is a place to write."""
    # A row's sum may be taken in another order, the same for every row: so it becomes one of vectors.
    made: Any = numba.njit(nogil=True, fastmath={"reassoc", "contract"})(loop)
    with suppress(RuntimeError):  # neither the package's folder nor the user's cache can be written to
        made.enable_caching()
    result: Loop = made
    return result


@_compiled
def _price(block: NDArray[Any], y: Float64Array, cost: Float64Array, out: Float64Array) -> None:
    for i in range(block.shape[0]):
        product = 0.0
        for k in range(block.shape[1]):
            product += np.float64(_number(block[i, k])) * y[k]
        out[i] = cost[i] - product


@_compiled
def _minus_entropy(block: NDArray[np.uint16], p_log_p: Float64Array, tolerance: float, out: Float64Array) -> bool:
    good = True
    for i in range(block.shape[0]):
        largest, total, value = np.uint16(0), np.float32(0.0), 0.0
        for k in range(block.shape[1]):
            bits = block[i, k]
            largest = max(largest, bits)
            total += _number(bits)
            value += p_log_p[bits]
        good &= bool(largest <= HALF_MAX and abs(total - 1.0) <= tolerance)
        out[i] = value
    return good


@_compiled
def _above(block: NDArray[Any], limit: float, counts: IntArray, sums: Float64Array) -> None:
    for i in range(block.shape[0]):
        for k in range(block.shape[1]):
            p = _number(block[i, k])
            if p > limit:
                counts[k] += 1
                sums[k] += p
