"""Where rows live: an (N, C) matrix cut into shards, with columns of float64 numbers, one per row.

`Rows` and `Column` are what the solver works with: they call every shard and combine the answers. A `ShardBackend`
holds the shards: in this process, or in another engine (`rows_on`), such as the actors of a Ray cluster.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, BadProbabilities, UnknownName
from ..inputs import shown, whole_number
from ..types import Float64Array, FloatArray, IntArray
from . import blocks
from .blocks import (
    SUM_TOLERANCE,
    added_problems,
    compiled_loops,
    exact_sum,
    from_exact,
    from_fixed_point,
    rows_per_block,
    widen,
)
from .nearest import as_distances, merged
from .open import TopK
from .shard import DIGIT_BITS, Shard

if TYPE_CHECKING:
    from ..score import Score
    from .open import Matrix


GATHERED = 1 << 18  # numbers that may be looked at in one place
Engine: TypeAlias = "Callable[[Matrix, str, int | None], AbstractContextManager[Rows]]"
ENGINES = {"ray": "tailwise.ray.rows:ray_rows"}  # where each function is; it is imported when it is asked for
LOCAL = "local"
ADDRESS, ADDRESS_OF = re.compile(r"auto|[^\s/=]+:\d+"), "ray"  # an address alone is one of Ray's
_KEYS = itertools.count()
Number = TypeVar("Number", np.float32, np.float64)


@contextmanager
def rows_on(matrix: Matrix, engine: str = LOCAL, shards: int | None = None) -> Iterator[Rows]:
    """Rows on an engine: "local", or "ray", which may have an address ("ray=host:6379")."""
    if shards is not None:
        shards = min(whole_number(shards, "shards", least=1, but=", or None"), max(1, matrix.shape[0]))
    named: object = engine
    if isinstance(named, str) and named == LOCAL:
        yield Rows(backend=LocalBackend(matrix, shard_bounds(*matrix.shape, shards or 1)))
        return
    with _engine_named(engine)(matrix, engine, shards) as rows:
        yield rows


def _engine_named(engine: str) -> Engine:
    """The engine that a name, a name with an address, or an address alone belongs to."""
    if not isinstance(engine, str):
        raise BadInput(f"the engine is {shown(engine)}; it must be a name such as {LOCAL!r} or 'ray'")
    name = ADDRESS_OF if ADDRESS.fullmatch(engine) else re.split(r"\W", engine, maxsplit=1)[0]
    if name not in ENGINES:
        forms = [LOCAL, *(f"{one}, {one}=HOST:PORT" for one in sorted(ENGINES))]
        raise UnknownName(f"no engine is called {shown(engine)}; known: {', '.join(forms)}")
    module, function = ENGINES[name].split(":")
    found: Engine = getattr(import_module(module), function)
    return found


def scan(rows: Rows, score: Score | None = None) -> Column:
    """Check every row and score it, in one pass; returns the costs 0 − score, zeros without a score."""
    costs, (bad, problems) = rows.scan(score, SUM_TOLERANCE[rows.dtype])
    if bad:
        shown = "; ".join(problems)
        more = f" (and {bad - len(problems):,} more)" if bad > len(problems) else ""
        hint = "; did you forget softmax? If these are logits, give logits=True" if 2 * bad > rows.size else ""
        raise BadProbabilities(f"{shown}{more}. Each row must hold probabilities, ≥ 0 and summing to 1{hint}")
    return costs


class Rows:
    """Probabilities (N, C), by default in one shard of this process."""

    def __init__(
        self, matrix: Matrix | None = None, threads: int | None = None, *, backend: ShardBackend | None = None
    ) -> None:
        if backend is None:
            assert matrix is not None
            backend = LocalBackend(matrix, shard_bounds(*matrix.shape, 1), threads)
        self.backend, self.bounds = backend, backend.bounds
        self.size, self.classes, self.dtype = int(backend.bounds[-1]), backend.classes, backend.dtype
        self.shards, self.sparse = len(backend.bounds) - 1, backend.sparse
        self._dropped: list[int] = []

    # -- rows ---------------------------------------------------------------------------------------------------------

    def read(self, where: slice) -> FloatArray:
        """Contiguous rows as float32 or float64."""
        start, stop, _ = where.indices(self.size)
        stops = np.clip(self.bounds, start, max(start, stop)).tolist()
        parts = self.call("read", [(slice(*ends),) for ends in pairwise(stops)])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def take(self, indices: IntArray) -> Float64Array:
        """Chosen rows (m, C) in float64."""
        return self.take_as(np.float64, indices)

    def take_as(self, kind: type[Number], indices: IntArray) -> NDArray[Number]:
        """Chosen rows (m, C) in float64 or, rounded where they were that, in float32."""
        order, parts = self.ordered(indices)
        ascending = bool((order[1:] > order[:-1]).all())
        result, start, step = np.empty((len(indices), self.classes), kind), 0, rows_per_block(self.classes)
        for part in self.call("take", [(cut,) for cut in parts]):
            for at in range(0, len(part), step):
                block = widen(part[at : at + step])
                where = slice(start + at, start + at + len(block))
                result[where if ascending else order[where]] = block
            start += len(part)
        return result

    def total(self, indices: IntArray) -> Float64Array:
        """Sum of chosen rows, (C,), in float64."""
        _, parts = self.ordered(indices)
        return from_fixed_point(self.call("total", [(cut,) for cut in parts]))

    def class_sums(self) -> Float64Array:
        """Sum of all rows, (C,): how many images of each class the model expects."""
        return from_fixed_point(self.call_all("class_sums"))

    def variance(self, indices: IntArray) -> Float64Array:
        """Sum of p·(1 − p) over chosen rows, (C,): the variance of class counts if each row is drawn independently."""
        _, parts = self.ordered(indices)
        return from_fixed_point(self.call("total", [(cut, True) for cut in parts]))

    def largest_class(self) -> IntArray:
        """The most probable class of every row, (N,)."""
        return np.concatenate(self.call_all("largest_class"))

    def above(self, classes: IntArray, limit: float, every: int = 1) -> tuple[IntArray, Float64Array]:
        """For each of some classes, how many rows give it more than `limit`, and the sum of these.

        From one pass, or from one in `every` blocks of rows.
        """
        counts, sums = zip(*self.call_all("above", classes, limit, every), strict=True)
        return np.sum(counts, axis=0), np.sum(sums, axis=0)

    def between(self, classes: IntArray, floor: Float64Array, ceiling: Float64Array) -> list[Between]:
        """For each of some classes, its probabilities above a ceiling and down to a floor, from one pass."""
        parts = self.call_all("between", classes, floor, ceiling)
        counts, sums, values, which = zip(*parts, strict=True)
        above, at_ceiling, at_floor = np.sum(counts, axis=0)
        total = np.concatenate(sums).sum(axis=0)  # of all blocks in their order, wherever the shards are cut
        listed, places = np.concatenate(values), np.concatenate(which)
        ends = np.cumsum(np.bincount(places, minlength=len(classes)))
        by_class = np.split(listed[np.argsort(places, kind="stable")], ends[:-1])
        return [
            Between(
                ceiling=float(ceiling[k]), floor=float(floor[k]), above=int(above[k]), total=float(total[k]),
                at_ceiling=int(at_ceiling[k]), at_floor=int(at_floor[k]), values=by_class[k],
            )
            for k in range(len(classes))
        ]  # fmt: skip

    def nearest_borders(self, count: int, each: int = 0) -> tuple[IntArray, Float64Array]:
        """For each class the `count` rows nearest to its border, and how far they are, (m, C) each, nearest first.

        Distances are those of `border_distances`; equally near rows go by number; m < count where there are fewer rows.
        With `each` above 0 a class has at most so many copies of a row (`copy_keys`).
        """
        if self.sparse:
            raise BadInput(
                "distances to class borders need every probability, but a TopK holds only the largest of each row; "
                "give the whole softmax, or use strategy 'margin' with balance"
            )
        rows, closeness, _ = merged(self.call_all("nearest_borders", count, each), count, each)
        return rows, as_distances(closeness)

    def inside(self, reduced: Column, theta: float, cost: Column, but: IntArray) -> Inside:
        """What the rows with a reduced cost below θ add up to, leaving some out (ascending)."""
        cuts = np.split(but, np.searchsorted(but, self.bounds[1:-1]))
        parts = self.call("inside", [(reduced.key, theta, cost.key, cut) for cut in cuts])
        counts, proba, costs = zip(*parts, strict=True)
        return Inside(sum(counts), from_fixed_point(proba), from_exact(sum(costs)))

    # -- columns ------------------------------------------------------------------------------------------------------

    def hold(self, values: Float64Array) -> Column:
        """A column of one's own numbers, one per row."""
        return self.new_column("hold", [(values[start:stop],) for start, stop in pairwise(self.bounds.tolist())])[0]

    def scan(self, score: Score | None, tolerance: float) -> tuple[Column, tuple[int, list[str]]]:
        """0 − score of every row (zeros without a score), how many rows are bad and why some are, from one pass."""
        column, found = self.new_column("scan", [(score, tolerance)] * self.shards)
        bad, problems = added_problems(found)
        if self.sparse and score is not None and not bad:
            column.hidden = self.hidden(score)
        return column, (bad, problems)

    def priced(self, cost: Column, y: Float64Array, *, roughly: bool = False) -> Column:
        """u − P·y in float64, or, roughly, a little less, from one pass."""
        method = "price_roughly" if roughly and not self.sparse else "price"
        column, _ = self.new_column(method, [(cost.key, y)] * self.shards)
        column.y = y
        return column

    def priced_again(self, cost: Column, y: Float64Array, known: Column, limit: float) -> Column:
        """u − P·y up to a limit, and above it that or less; from a column that was priced at duals near y."""
        if limit == np.inf or self.sparse:
            return self.priced(cost, y)
        column, _ = self.new_column("price_again", [(cost.key, y, known.key, known.y, limit)] * self.shards)
        column.y = y
        return column

    def subtract_hidden(self, reduced: Column) -> Column:
        """u − P·y less what a sparse softmax may hide of P·y."""
        return self.new_column("subtract_hidden", [(reduced.key, reduced.y)] * self.shards)[0]

    def hidden(self, score: Score | None = None) -> Column:
        """What a sparse softmax may hide of a score; without one, how far a row may be from the true one in ‖·‖₁."""
        return self.new_column("hidden", [(score,)] * self.shards)[0]

    def minus_classes(self, classes: Sequence[int]) -> list[Column]:
        """−p of some classes, from one pass."""
        columns = [self._column_of(next(_KEYS)) for _ in classes]
        self.call_all("minus_classes", tuple(column.key for column in columns), classes)
        return columns

    # -- asking -------------------------------------------------------------------------------------------------------

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Put a question to every shard, each with its own arguments; columns that nobody needs are dropped first."""
        if self._dropped:
            keys, self._dropped[:] = list(self._dropped), []
            self.backend.call("drop", [(keys,)] * self.shards)
        return self.backend.call(method, arguments)

    def call_all(self, method: str, *arguments: object) -> list[Any]:
        """Put the same question to every shard."""
        return self.call(method, [arguments] * self.shards)

    def new_column(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> tuple[Column, list[Any]]:
        """Have every shard make its part of a new column."""
        key = next(_KEYS)
        answers = self.call(method, [(key, *given) for given in arguments])
        return self._column_of(key), answers

    def _column_of(self, key: int) -> Column:
        column = Column(self, key)
        weakref.finalize(column, self._dropped.append, key)
        return column

    def ordered(self, indices: IntArray) -> tuple[IntArray, list[IntArray]]:
        """The order that sorts some row numbers, and the sorted numbers cut at the borders of the shards."""
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        return order, np.split(ascending, np.searchsorted(ascending, self.bounds[1:-1]))


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """What some rows add up to."""

    count: int
    total: Float64Array  # (C,)
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """What is known of the probabilities of a class down to a floor."""

    ceiling: float
    floor: float
    above: int  # how many are larger than the ceiling
    total: float  # the sum of these
    at_ceiling: int
    at_floor: int  # 0 where floor and ceiling are the same
    values: Float64Array  # between the two

    def sum_of_largest(self, count: int) -> float:
        """The sum of the `count` largest; NaN where more, or fewer, lie above the floor than it takes to know."""
        left = count - self.above
        if left < 0:
            return np.nan
        tied = min(left, self.at_ceiling)
        total, left = self.total + (tied * self.ceiling if tied else 0.0), left - tied
        if left == 0:
            return total
        if left < len(self.values):
            return total + float(np.partition(self.values, len(self.values) - left)[len(self.values) - left :].sum())
        total, left = total + float(self.values.sum()), left - len(self.values)
        return total + left * self.floor if self.floor == 0 or left <= self.at_floor else np.nan


class Column:
    """One float64 number per row, kept where the rows are."""

    def __init__(self, rows: Rows, key: int) -> None:
        self.rows, self.key = rows, key
        self.hidden: Column | None = None  # by how much the true numbers may be larger, where the softmax is sparse
        self.y: Float64Array | None = None  # the duals at which it was priced

    def at(self, indices: IntArray) -> Float64Array:
        """The numbers of some rows, (m,)."""
        order, parts = self.rows.ordered(indices)
        result = np.empty(len(indices))
        result[order] = np.concatenate(self.rows.call("at", [(self.key, cut) for cut in parts]))
        return result

    def values(self) -> Float64Array:
        """All numbers, in this process, (N,)."""
        return np.concatenate(self.rows.call_all("at", self.key))

    def extent(self) -> tuple[float, float]:
        """The smallest and the largest number; (inf, −inf) without rows."""
        lows, highs = zip(*self.rows.call_all("extent", self.key), strict=True)
        return min(lows), max(highs)

    def distance_from(self, theta: float) -> Column:
        """|x − θ| of every number x."""
        return self.rows.new_column("distance", [(self.key, theta)] * self.rows.shards)[0]

    def count_up_to(self, limit: float) -> int:
        """How many numbers are at most `limit`."""
        return sum(self.rows.call_all("count_up_to", self.key, limit))

    def smallest(self, count: int) -> IntArray:
        """Rows of the `count` smallest numbers, ascending; ties go to the lower row."""
        if count <= 0:
            return np.empty(0, dtype=np.int64)
        if count >= self.rows.size:
            return np.arange(self.rows.size)
        parts = self.rows.call_all("below", self.key, self.kth_smallest(count - 1), count)
        below = np.concatenate([part[0] for part in parts])
        tied = np.concatenate([part[1] for part in parts])[: count - len(below)]
        return np.sort(np.concatenate([below, tied]))

    def sum_of_smallest(self, count: int) -> tuple[float, float]:
        """The sum of the `count` ≥ 1 smallest numbers, rounded once, and the largest of them."""
        limit = self.kth_smallest(count - 1)
        counts, sums = zip(*self.rows.call_all("sum_below", self.key, limit), strict=True)
        return from_exact(sum(sums) + (count - sum(counts)) * exact_sum(np.array([limit]))), limit

    def kth_smallest(self, rank: int) -> float:
        """The number of a rank, 0 being the smallest: digit by digit of the ordered bits, from the top.

        Each shard counts how often each digit occurs; once few numbers begin with the digits that are known, they are
        looked at in one place.
        """
        prefix, shift = 0, 64
        while True:
            shift -= DIGIT_BITS
            digits = np.zeros(1 << DIGIT_BITS, dtype=np.int64)
            for occurring, counts in self.rows.call_all("histogram", self.key, prefix, shift):
                digits[occurring] += counts
            digits = digits.cumsum()
            digit = int(np.searchsorted(digits, rank, side="right"))
            smaller = int(digits[digit - 1]) if digit else 0
            rank, prefix = rank - smaller, prefix << DIGIT_BITS | digit
            if shift == 0 or digits[digit] - smaller <= GATHERED:
                break
        near = np.concatenate(self.rows.call_all("with_prefix", self.key, prefix, shift))
        return float(np.partition(near, rank)[rank])


class ShardBackend(Protocol):
    """Holds the shards; shard s has the rows bounds[s] … bounds[s + 1]."""

    bounds: IntArray
    classes: int
    dtype: np.dtype[Any]
    sparse: bool  # whether the rows are those of a `TopK`

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every shard, each with its own arguments; answers in the order of the shards."""
        ...


class LocalBackend:
    """Shards in this process, each using all cores in its turn."""

    def __init__(self, matrix: Matrix, bounds: IntArray, threads: int | None = None) -> None:
        self.bounds, self.classes, self.dtype = bounds, int(matrix.shape[1]), matrix.dtype
        self.sparse = isinstance(matrix, TopK)
        compiled = not self.sparse and bounds[-1] * self.classes >= blocks.LEAST_ELEMENTS
        loops = compiled_loops() if compiled else None
        self.shards = [Shard(matrix, start, stop, threads, loops=loops) for start, stop in pairwise(bounds.tolist())]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every shard, one after the other."""
        return [getattr(shard, method)(*given) for shard, given in zip(self.shards, arguments, strict=True)]


def shard_bounds(size: int, classes: int, count: int) -> IntArray:
    """Borders of `count` shards of about equal size, at the borders of blocks, (count + 1,).

    >>> shard_bounds(10_000, 100, 2).tolist()
    [0, 5242, 10000]
    """
    step = rows_per_block(classes)
    blocks = -(-size // step)
    return np.minimum(np.arange(count + 1) * blocks // count * step, size)
