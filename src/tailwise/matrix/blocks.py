"""What is done with a block of rows: checked, widened, multiplied and summed, on all cores, with the same result.

Sums do not depend on the order of their terms, so shards may be cut anywhere: probabilities are summed in fixed point,
costs (of any scale) without rounding.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..processes import Scratch, cores
from ..types import Float64Array, FloatArray, IntArray

BLOCK_ELEMENTS = 1 << 19  # 4 MB in float64; smaller blocks let two threads wait for each other too often
RUNS_PER_THREAD = 16  # of neighbouring blocks: one task each, so that few tasks are made and none is late for long
Result = TypeVar("Result")
Real = TypeVar("Real", bound=np.floating[Any])


def rows_per_block(classes: int) -> int:
    """How many rows of a matrix are worked on at once: it depends on their width alone.

    >>> rows_per_block(100), rows_per_block(100_000)
    (5242, 64)
    """
    return max(64, BLOCK_ELEMENTS // classes)


def map_blocks(size: int, step: int, work: Callable[[slice], Result], threads: int | None = None) -> list[Result]:
    """Apply `work` to slices of `step` rows, by default on all cores; results in the order of the slices.

    >>> map_blocks(5, 2, lambda where: (where.start, where.stop))
    [(0, 2), (2, 4), (4, 5)]
    """
    blocks = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    workers = min(threads or cores(), len(blocks)) if len(blocks) > 1 else 1
    if workers < 2:
        return [work(block) for block in blocks]
    per_run = -(-len(blocks) // (workers * RUNS_PER_THREAD))
    runs = [blocks[start : start + per_run] for start in range(0, len(blocks), per_run)]
    with ThreadPoolExecutor(workers) as pool:
        return [result for part in pool.map(lambda run: [work(block) for block in run], runs) for result in part]


# -- checks ----------------------------------------------------------------------------------------------------------

SUM_TOLERANCE: dict[np.dtype[Any], float] = {
    np.dtype(np.float16): 5e-3, np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-3,
}  # fmt: skip
BFLOAT16_TOLERANCE = 2e-2  # of rows before they are divided by their sums: ten times what rounding alone can do
NAMED_ROWS = 3


def row_problems(block: FloatArray, start: int, tolerance: float) -> tuple[int, list[str]]:
    """How many rows of a block are bad, and of the first of them what is wrong, in a sentence each."""
    sums = np.einsum("ij->i", block)  # (n,), NaN where any entry is; three times faster than block.sum
    good = np.abs(sums - 1.0) <= tolerance
    if good.all() and block.min(initial=0.0) >= 0:
        return 0, []
    lows = block.min(axis=1)
    bad = np.flatnonzero(~good | (lows < 0))
    first = bad[:NAMED_ROWS]
    return len(bad), [_problem(start + int(row), block[row], float(sums[row]), float(lows[row])) for row in first]


def _problem(row: int, values: FloatArray, total: float, low: float) -> str:
    if np.isnan(values).any():
        return f"row {row} holds NaN"
    if np.isinf(values).any():
        return f"row {row} holds an infinite number"
    if low < 0:
        return f"row {row} holds {low:.4g}"
    return f"row {row} sums to {total:.4g}"


def added_problems(parts: Iterable[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """The bad rows of all parts, the first of them in words.

    >>> added_problems([(2, ["row 1 holds NaN", "row 4 holds NaN"]), (0, []), (1, ["row 9 sums to 2"])])
    (3, ['row 1 holds NaN', 'row 4 holds NaN', 'row 9 sums to 2'])
    """
    counted = list(parts)
    return sum(bad for bad, _ in counted), [problem for _, found in counted for problem in found][:NAMED_ROWS]


def largest_product(y: Float64Array, dtype: np.dtype[Any]) -> float:
    """No row that passes as probabilities has a larger p·y.

    >>> largest_product(np.array([-1.0, 2.0]), np.dtype(np.float32)), largest_product(np.array([-1.0]), np.dtype(float))
    (2.004, -0.998)
    """
    off = 2 * SUM_TOLERANCE[dtype]  # twice what was allowed: the sums were rounded when they were looked at
    return float(np.max(y) + off * np.abs(np.max(y)))


# -- rows as they are stored -----------------------------------------------------------------------------------------

TOO_SMALL = 2.0**112  # by which a half's bits, read as a float32, fall short
HALF_MAX = 0x7BFF  # largest finite positive float16, as bits
LEAST_NORMAL_HALF = np.float32(2.0**-14)
EXPONENT_SHIFT = np.uint32(112 << 23)  # from the exponent of a float16 to that of a float32
_SUBNORMAL = np.ones(1, np.uint32).view(np.float32)  # by its bits: arithmetic could not make it where they are flushed
_PICKED, _WORDS = Scratch(), Scratch()


def widen(block: FloatArray, *, reuse: bool = False, plain: bool = False) -> FloatArray:
    """A block as float32 or float64. Halves are widened exactly, 14 times faster than by a cast.

    With `reuse` the result is valid until the thread widens the next block. `plain` halves need not be looked at.

    >>> half = np.array([0.0, 6e-8, 0.1, 1.0], dtype=np.float16)
    >>> widen(half).tolist() == half.astype(np.float32).tolist()
    True
    """
    if block.dtype != np.float16:
        return np.asarray(block)
    if not (plain or is_plain(block)):
        return block.astype(np.float32)
    words = _WORDS.array(block.shape, np.uint32) if reuse else np.empty(block.shape, np.uint32)
    result = _shifted(block, words)
    if flushes_subnormals():
        words += EXPONENT_SHIFT  # x is right from 2^-14 on; below that 2x − 2^-14 is right, and smaller
        np.minimum(result, result + result - LEAST_NORMAL_HALF, out=result)
    else:
        result *= np.float32(TOO_SMALL)
    return result


def _shifted(half: FloatArray, words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Plain halves as float32 that are 2^112 times too small: by 13 bits higher, exponent and fraction are in place."""
    np.copyto(words, half.view(np.uint16))  # two steps: a shift that also casts takes half as long again
    words <<= 13
    return words.view(np.float32)


def is_plain(block: FloatArray) -> bool:
    """Whether no half is negative, infinite or NaN: so it is in all but pools that are about to be rejected.

    >>> is_plain(np.array([0.0, 1.0], dtype=np.float16)), is_plain(np.array([0.5, -0.0], dtype=np.float16))
    (True, False)
    """
    if block.dtype != np.float16 or not block.size:
        return True
    bits: NDArray[Any] = block.view(np.uint16)
    return bool(bits.max() <= HALF_MAX)


def flushes_subnormals() -> bool:
    """Whether this thread counts subnormal numbers as 0, as torch.set_flush_denormal(True) makes it do.

    It is asked again for each block, as the setting belongs to a thread and may change at any time.
    """
    return not (_SUBNORMAL * np.float32(TOO_SMALL))[0]


def take_rows(block: FloatArray, rows: IntArray) -> FloatArray:
    """Some rows of a block, valid until the thread takes others."""
    picked: FloatArray = _PICKED.array((len(rows), block.shape[1]), block.dtype)
    return np.take(block, rows, axis=0, out=picked, mode="clip")  # "raise" would take a copy of `out`


def larger_than(block: FloatArray, limit: float) -> tuple[IntArray, Float64Array]:
    """Places, counted through row after row, of the numbers above a limit, and these numbers.

    >>> places, values = larger_than(np.array([[0.0, 0.75], [-0.0, 0.5], [0.625, 0.5]], dtype=np.float16), 0.5)
    >>> places.tolist(), values.tolist()
    ([1, 4], [0.75, 0.625])
    """
    flat = block.reshape(-1)
    if block.dtype == np.float16 and limit >= 0:  # as whole numbers, halves that are not below 0 sort the same way
        places = np.flatnonzero(flat.view(np.int16) > np.float16(limit).view(np.int16))
    else:
        places = np.flatnonzero(flat > limit)
    return places, flat[places].astype(np.float64)


# -- products --------------------------------------------------------------------------------------------------------

SINGLE_EPS = 2.0**-23  # twice what rounding to float32 may change
_DOUBLES = Scratch()


def product(block: FloatArray, y: Float64Array, borders: Sequence[int] = (), *, plain: bool = False) -> Float64Array:
    """A block times y, in float64: (n, C) @ (C,) → (n,).

    Between two borders at a time, as a row's last bits depend on the rows that it is multiplied with. `plain` halves
    need not be looked at.

    >>> product(np.array([[0.5, 0.25], [1.0, 0.0]], dtype=np.float16), np.array([2.0, 4.0])).tolist()
    [2.0, 2.0]
    """
    wide, factor = _wide(block, plain=plain)
    doubles: Float64Array = _DOUBLES.array(block.shape, np.float64)
    np.copyto(doubles, wide)
    return _by_pieces(doubles, y * factor, borders)


def rough_product(
    block: FloatArray, y: Float64Array, borders: Sequence[int] = (), *, plain: bool = False
) -> Float64Array:
    """No less than a block times y and hardly more: in float32, with all that C roundings can have lost added.

    >>> rough = rough_product(np.array([[0.5, 0.25], [1.0, 0.0]], dtype=np.float16), np.array([2.0, 4.0]))
    >>> bool((rough >= 2.0).all()), bool((rough < 2.0001).all())
    (True, True)
    """
    wide, factor = _wide(block, plain=plain)
    if wide.dtype == np.float64:
        return product(block, y, borders)
    largest = float(np.abs(y).max())
    result = _by_pieces(wide, (y / (largest or 1.0) * factor).astype(np.float32), borders).astype(np.float64)
    result += (len(y) + 8) * SINGLE_EPS
    result *= largest
    return result


def _wide(block: FloatArray, *, plain: bool) -> tuple[FloatArray, float]:
    """A block as float32 or float64, valid until the thread widens the next, and the factor its numbers still need."""
    if block.dtype == np.float16 and (plain or is_plain(block)) and not flushes_subnormals():
        return _shifted(block, _WORDS.array(block.shape, np.uint32)), TOO_SMALL
    return widen(block, reuse=True, plain=plain), 1.0


def _by_pieces(block: NDArray[Real], y: NDArray[Real], borders: Sequence[int]) -> NDArray[Real]:
    result = np.empty(len(block), y.dtype)
    for start, stop in pairwise((0, *borders, len(block))):
        np.dot(block[start:stop], y, out=result[start:stop])
    return result


# -- compiled loops --------------------------------------------------------------------------------------------------

# With fewer elements numba takes longer to load than its loops save in one selection. The whole pool counts, not a
# shard of it: numpy's sums differ in their last bits.
LEAST_ELEMENTS = 600_000_000


@dataclass(frozen=True, slots=True)
class Loops:
    """Loops over rows of a dense pool, compiled by numba; they are those of `compiled`."""

    price: Callable[[FloatArray, Float64Array, Float64Array, Float64Array], None]
    minus_entropy: Callable[[NDArray[np.float16], float, Float64Array], bool]
    above: Callable[[FloatArray, float], tuple[IntArray, Float64Array]]


@cache
def compiled_loops() -> Loops | None:
    """The compiled loops; None where numba is missing, or does not fit this numpy."""
    try:
        from . import compiled
    except ImportError as error:
        if error.name != "numba" or not isinstance(error, ModuleNotFoundError):  # say, for a numpy newer than itself
            warnings.warn(f"numba is installed but cannot be used, so large pools take longer: {error}", stacklevel=2)
        return None
    return Loops(compiled.price, compiled.minus_entropy, compiled.above)


# -- sums and ranks --------------------------------------------------------------------------------------------------

COARSE, FINE = 2.0**-30, 2.0**-60  # the two grids of fixed point
ROUND_COARSE, ROUND_FINE = 1.5 * 2.0**22, 1.5 * 2.0**-8  # x + r − r rounds x to the grid, as 2^-52 of r is its step
MOST_ROWS = 1 << 20  # so many terms below 1 add up within the 53 bits of a float64
HALF_BITS = 26
LOWEST = 1074  # 2^-1074 is the smallest float64, and the unit of `exact_sum`


def fixed_point_sums(block: FloatArray) -> IntArray:
    """Column sums of numbers in [0, 1], to 2^-61 each: (n, C) → (2, C), multiples of 2^-30 and of 2^-60.

    >>> from_fixed_point([fixed_point_sums(np.array([[0.5, 0.1], [0.25, 0.2]]))]).tolist()
    [0.75, 0.30000000000000004]
    """
    sums = np.zeros((2, block.shape[1]), dtype=np.int64)
    for start in range(0, len(block), MOST_ROWS):
        part = block[start : start + MOST_ROWS].astype(np.float64)
        coarse = part + ROUND_COARSE
        coarse -= ROUND_COARSE
        part -= coarse  # exact
        part += ROUND_FINE
        part -= ROUND_FINE
        sums[0] += (coarse.sum(axis=0) / COARSE).astype(np.int64)
        sums[1] += (part.sum(axis=0) / FINE).astype(np.int64)
    return sums


def from_fixed_point(parts: Sequence[IntArray]) -> Float64Array:
    """The sum of one or more fixed-point sums, (2, C) each, as float64, (C,)."""
    coarse, fine = np.sum(parts, axis=0)
    result: Float64Array = coarse * COARSE + fine * FINE
    return result


def exact_sum(values: Float64Array) -> int:
    """The sum of finite numbers as a whole number of 2^-1074, without rounding.

    >>> from_exact(exact_sum(np.array([1e100, 1.0, -1e100])))
    1.0
    """
    total = 0
    for start in range(0, len(values), MOST_ROWS):
        mantissa, exponent = np.frexp(values[start : start + MOST_ROWS])
        whole = (mantissa * 2.0**53).astype(np.int64)
        lowest = int(exponent.min())
        place = exponent - lowest
        highs = np.bincount(place, weights=(whole >> HALF_BITS).astype(np.float64))  # below 2^53, so exact
        lows = np.bincount(place, weights=(whole & ((1 << HALF_BITS) - 1)).astype(np.float64))
        for at in np.flatnonzero((highs != 0) | (lows != 0)).tolist():
            value, places = (int(highs[at]) << HALF_BITS) + int(lows[at]), at + lowest - 53 + LOWEST
            total += value << places if places >= 0 else value >> -places  # a shift to the right drops zeros only
    return total


def from_exact(total: int) -> float:
    """An exact sum, rounded once."""
    return total / (1 << LOWEST)


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
