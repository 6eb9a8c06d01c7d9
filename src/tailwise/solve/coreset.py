"""CoreSet (Sener & Savarese): the b pool rows that leave the smallest covering radius, Ξ outliers aside.

In: pool embeddings X (N, d), labelled embeddings Y (L, d), b and Ξ. Out: the picks, their radius δ and a proven bound.
Inside, distances are squared (names end in `sq`), and a "cover" is a 0/1 matrix: points to be covered × pool rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import highspy
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from ..errors import BadInput, PoolExhausted, SolverFailed
from ..types import BoolArray, Float64Array, FloatArray, IntArray

Sparse: TypeAlias = Any  # scipy.sparse.csr_array
Highs: TypeAlias = Any  # highspy.Highs, which ships without full types

BLOCK = 2**22  # entries of a block of distances: 32 MB
NEAR = 1e-4  # a square below this share of |x|² + |y|² has lost digits to cancellation: it is taken from x − y instead
SAME = 1e-9  # squares within this relative distance are one radius: they differ by rounding alone
SWAPS = 4_000  # steps of one local search
EDGES_PER_NODE = 100_000  # a larger integer program gets fewer nodes in proportion
MOST_UNDECIDED = 3  # integer programs that may end without an answer before the search ends


@dataclass(frozen=True, slots=True, eq=False)
class CoreSetResult:
    """The picks and their certificate.

    Attributes
    ----------
    indices: (b,) int64 distinct pool rows, in farthest-first order among themselves.
    radius: all but Ξ pool points lie within it of a labelled or picked point, computed from the embeddings.
    lower: no b rows have a smaller radius (up to 1e-9 of it); equal to `radius` when the status is "optimal".
    status: "optimal"; "time limit"; or "best found": the node limit or `max_edges` left radii undecided.
    """

    indices: IntArray
    radius: float
    lower: float
    status: str


def robust_k_center(
    pool: FloatArray,
    labelled: FloatArray,
    budget: int,
    *,
    outliers: int = 0,
    time_limit: float | None = None,
    max_edges: int = 20_000_000,
    max_nodes: int = 200,
) -> CoreSetResult:
    """Pick `budget` pool rows with the smallest radius at which all but `outliers` pool points are covered.

    Parameters
    ----------
    pool: (N, d) embeddings to pick from.
    labelled: (L, d) embeddings that are centres already. Without any (L = 0), farthest-first starts from the pool row
        nearest to the pool's mean.
    budget: b, the number of picks.
    outliers: Ξ, the number of pool points that may stay uncovered.
    time_limit: seconds. The farthest-first start always runs to its end, and HiGHS may overrun by some seconds.
        Without a limit the same input gives the same picks; wise only up to some 10,000 rows.
    max_edges: pairs of points that may be held in memory, 12 bytes each and about ten times that in HiGHS. Radii with
        more pairs within them are not tried.
    max_nodes: branch-and-bound nodes of one integer program.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> found = robust_k_center(line, np.empty((0, 1)), 2)
    >>> sorted(found.indices.tolist()), found.radius, found.status
    ([1, 4], 1.0, 'optimal')
    """
    deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
    with threadpool_limits(limits=1, user_api="blas"):
        search = _greedy_start(_Problem.checked(pool, labelled, budget, outliers), deadline)
        if search.lower_sq < search.upper_sq and not search.late():
            _refine(search, max_edges, max_nodes)
        return search.result()


def farthest_first(pool: FloatArray, labelled: FloatArray, count: int) -> IntArray:
    """Greedy k-center: `count` times the pool row farthest from all centres, the first such row on ties.

    Without a labelled point the first pick is the row nearest to the pool's mean. At most twice the smallest radius.

    >>> farthest_first(np.array([[0.0], [4.0], [9.0]]), np.array([[1.0]]), 2).tolist()
    [2, 1]
    """
    with threadpool_limits(limits=1, user_api="blas"):
        problem = _Problem.checked(pool, labelled, count, 0)
        return _farthest_first(problem.pool, problem.reached_sq, count)[0]


# Distances.


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    rows: Float64Array  # (n, d)
    sq: Float64Array  # (n,) squared lengths

    @classmethod
    def of(cls, rows: Float64Array) -> _Points:
        return cls(rows, np.einsum("nd,nd->n", rows, rows))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, index: IntArray | slice) -> _Points:
        return _Points(self.rows[index], self.sq[index])


def _squares(some: _Points, many: _Points) -> Float64Array:
    """|x − y|² for all pairs, (m, n), with a relative error of about 1e-10; 0 exactly for equal rows."""
    size = some.sq[:, None] + many.sq  # (m, n)
    squares = size - 2.0 * (some.rows @ many.rows.T)
    size *= NEAR
    lossy = squares < size  # every negative square is among them
    for i in np.flatnonzero(lossy.any(axis=1)):
        j = np.flatnonzero(lossy[i])
        apart = many.rows[j] - some.rows[i]  # (len(j), d)
        squares[i, j] = np.einsum("jd,jd->j", apart, apart)
    return squares


def _blocks(height: int, width: int) -> Iterator[slice]:
    """Slices of the rows of a (height, width) matrix that is too large to hold at once."""
    step = max(1, BLOCK // max(1, width))
    return (slice(at, at + step) for at in range(0, height, step))


def _nearest_sq(points: _Points, centres: _Points, start: Float64Array) -> Float64Array:
    """Squared distance from each point to its nearest centre, or `start` where that is smaller: (n,)."""
    nearest = start.copy()
    for part in _blocks(len(points), len(centres)):
        squares = _squares(points.take(part), centres)  # (block, centres)
        nearest[part] = np.minimum(start[part], squares.min(axis=1, initial=np.inf))
    return nearest


def _farthest_first(points: _Points, start: Float64Array, count: int) -> tuple[IntArray, Float64Array]:
    """The picks (count,), and each point's squared distance to its nearest centre, −inf for the picks: (n,)."""
    nearest = start.copy()
    picks = np.empty(count, dtype=np.int64)
    for turn in range(count):
        if np.isposinf(nearest).all():  # no centre yet
            mean = _Points.of(points.rows.mean(axis=0, keepdims=True))
            picks[turn] = _squares(mean, points)[0].argmin()
        else:
            picks[turn] = nearest.argmax()
        nearest = np.minimum(nearest, _squares(points.take(picks[turn : turn + 1]), points)[0])
        nearest[picks[turn]] = -np.inf  # never again, also when all that is left are copies of centres
    return picks, nearest


# The problem, and what picks are worth.


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    pool: _Points  # (N, d)
    reached_sq: Float64Array  # (N,) squared distance to the nearest labelled point; inf without any
    budget: int
    outliers: int

    @classmethod
    def checked(cls, pool: FloatArray, labelled: FloatArray, budget: int, outliers: int) -> _Problem:
        x, y = _matrix(pool, "pool"), _matrix(labelled, "labelled")
        if x.shape[1] != y.shape[1]:
            raise BadInput(f"pool has {x.shape[1]} features and labelled {y.shape[1]}; embed both with one model")
        if budget < 0 or outliers < 0:
            raise BadInput(f"budget is {budget} and outliers {outliers}; neither can be negative")
        if budget > len(x):
            raise PoolExhausted(f"asked for {budget} picks, but the pool has {len(x)} rows; lower the budget")
        origin = _origin(x)
        points, centres = _Points.of(x - origin), _Points.of(y - origin)
        return cls(points, _nearest_sq(points, centres, np.full(len(x), np.inf)), budget, outliers)

    def nearest_sq(self, picks: IntArray) -> Float64Array:
        return _nearest_sq(self.pool, self.pool.take(picks), self.reached_sq)  # (N,)

    def radius_sq(self, picks: IntArray) -> float:
        """The (Ξ+1)-th largest distance to a centre."""
        place = len(self.pool) - 1 - self.outliers
        return float(np.partition(self.nearest_sq(picks), place)[place])

    def padded(self, picks: IntArray) -> IntArray:
        """The picks, with farthest-first ones added until there are b."""
        nearest = self.nearest_sq(picks)
        nearest[picks] = -np.inf
        return np.concatenate([picks, _farthest_first(self.pool, nearest, self.budget - len(picks))[0]])

    def ordered(self, picks: IntArray) -> IntArray:
        """The same picks in farthest-first order; a whole pool stays as it is."""
        rows = np.sort(picks)
        if len(rows) == len(self.pool):
            return rows
        return rows[_farthest_first(self.pool.take(rows), self.reached_sq[rows], len(rows))[0]]


def _matrix(values: FloatArray, name: str) -> Float64Array:
    """A float64 (n, d) matrix of finite numbers, or an error that names the first bad row."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise BadInput(f"{name} has shape {matrix.shape}; give a matrix with one embedding per row")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise BadInput(f"{name} has {len(bad)} rows with NaN or infinity, the first is row {bad[0]}; mend or drop them")
    return matrix


def _origin(rows: Float64Array) -> Float64Array:
    """The mean, (d,), which as origin saves digits in |x|² + |y|² − 2xᵀy; rounded so that simple ties stay ties."""
    if not len(rows):
        return np.zeros(rows.shape[1])
    spread = rows.std(axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(spread > 0.0, spread, 1.0))))
    return np.asarray(np.round(rows.mean(axis=0) / unit) * unit)


# The search over radii.


@dataclass(slots=True, eq=False)
class _Search:
    """The best picks so far and what is proven of the optimum."""

    problem: _Problem
    picks: IntArray  # (b,)
    upper_sq: float
    lower_sq: float
    deadline: float

    def late(self) -> bool:
        return time.perf_counter() >= self.deadline

    def offer(self, picks: IntArray) -> None:
        """Take these picks over if they are not too many and leave a smaller radius."""
        if len(picks) <= self.problem.budget:
            full = self.problem.padded(picks)
            radius_sq = self.problem.radius_sq(full)
            if radius_sq < self.upper_sq:
                self.picks, self.upper_sq = full, radius_sq

    def result(self) -> CoreSetResult:
        optimal = self.lower_sq >= self.upper_sq
        status = "optimal" if optimal else "time limit" if self.late() else "best found"
        lower_sq = min(self.lower_sq, self.upper_sq)
        return CoreSetResult(
            self.problem.ordered(self.picks), float(np.sqrt(self.upper_sq)), float(np.sqrt(lower_sq)), status
        )


def _greedy_start(problem: _Problem, deadline: float) -> _Search:
    """Farthest-first picks, their radius, and a lower bound.

    The bound: let b + Ξ + 1 pool points lie pairwise ≥ w apart and ≥ w/2 from every labelled point, and let δ < w/2.
    Then a labelled centre covers none of them, and a picked one at most one (two would be ≤ 2δ < w apart), so b picks
    leave Ξ + 1 uncovered: the optimum is ≥ w/2. Two farthest-first runs of b + Ξ picks give such points, the last
    being the farthest that is left, with value w: it is ≥ w from all picks, and each pick was ≥ w from those before
    it, as the largest value never rises. A point's value is its distance to the nearest pick or label in the first
    run, which is more than needed; in the second the distances to labels count double. Without labels the first pick
    is far from nothing when it is made, but all later ones are far from it.
    """
    count, size = problem.budget + problem.outliers, len(problem.pool)
    if count >= size:  # all that is not picked may be an outlier
        return _Search(problem, np.arange(problem.budget, dtype=np.int64), 0.0, 0.0, deadline)
    picks, left = _farthest_first(problem.pool, problem.reached_sq, count)
    apart_sq = left.max()
    if np.isfinite(apart_sq):
        apart_sq = max(apart_sq, _farthest_first(problem.pool, 4.0 * problem.reached_sq, count)[1].max())
    greedy = picks[: problem.budget]
    upper_sq = problem.radius_sq(greedy)
    lower_sq = upper_sq if problem.budget == 0 else float(apart_sq) / 4.0
    return _Search(problem, greedy, upper_sq, lower_sq, deadline)


def _refine(search: _Search, max_edges: int, max_nodes: int) -> None:
    """Bisect the radii: by relaxation for the lower bound, by swaps for the upper, by branching for what is between."""
    graph = _Graph.between(search, max_edges)
    if graph is None:
        return
    floor = _bisect(search, graph, 0, partial(_relaxation_rules_out, search))
    _bisect(search, graph, floor, partial(_swaps_fail, search))  # what fails here is not proven: no new floor
    floor = _bisect(search, graph, floor, partial(_branching_rules_out, search, max_nodes), patience=MOST_UNDECIDED)
    ceiling, radii = graph.place(search.upper_sq), len(graph.first_sq)
    if floor >= ceiling and (ceiling < radii or graph.complete):
        search.lower_sq = search.upper_sq
    else:
        search.lower_sq = max(search.lower_sq, graph.first_sq[floor] if floor < radii else graph.limit_sq)


def _bisect(
    search: _Search, graph: _Graph, floor: int, ruled_out: Callable[[Sparse], bool], *, patience: int | None = None
) -> int:
    """The first radius, from `floor`, that is not ruled out; what `ruled_out` finds on the way it offers itself.

    A radius that is neither found nor ruled out sends the bisection down, at most `patience` times.
    """
    high = graph.place(search.upper_sq)
    while floor < high and patience != 0 and not search.late():
        middle = (floor + high) // 2
        out = ruled_out(graph.cover(graph.last_sq[middle]))
        high = min(high, graph.place(search.upper_sq))
        if high <= middle:
            continue
        if out:
            floor = middle + 1
        else:
            high = middle
            patience = None if patience is None else patience - 1
    return floor


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """All pairs (point to be covered, pool row) nearer than a limit, and the K radii at which covers change."""

    squares: Sparse  # (m, N) CSR; the zero of a point with itself is stored
    reached_sq: Float64Array  # (m,) of the points to be covered: those beyond the lower bound of every label
    limit_sq: float
    complete: bool  # the limit is the upper bound, not `max_edges`
    first_sq: Float64Array  # (K,) ascending radii; where rounding has split one, its smallest form
    last_sq: Float64Array  # (K,) and its largest

    @classmethod
    def between(cls, search: _Search, max_edges: int) -> _Graph | None:
        """The pairs below the upper bound; of too many, the nearest ones, between a half and all of `max_edges`.

        None when time runs out, or when not even each point with itself fits.
        """
        pool, reached_sq = search.problem.pool, search.problem.reached_sq
        rows = np.flatnonzero(reached_sq > search.lower_sq)
        limit_sq = upper_sq = search.upper_sq * (1.0 - SAME)
        parts: list[Sparse] = []
        for block in _blocks(len(rows), len(pool)):
            parts.append(_below(_squares(pool.take(rows[block]), pool), limit_sq))
            if sum(part.nnz for part in parts) > max_edges:
                limit_sq = float(
                    np.partition(np.concatenate([part.data for part in parts]), max_edges // 2)[max_edges // 2]
                )
                parts = [_kept(part, part.data < limit_sq) for part in parts]
            if limit_sq == 0.0 or search.late():
                return None
        squares = sparse.vstack(parts, format="csr")
        radii = _radii(np.concatenate([squares.data, reached_sq[reached_sq < limit_sq]]), search.lower_sq)
        return cls(squares, reached_sq[rows], limit_sq, limit_sq == upper_sq, *radii)

    def place(self, radius_sq: float) -> int:
        """Where a radius stands among the K; K when it is above all."""
        return int(np.searchsorted(self.last_sq, radius_sq * (1.0 - SAME)))

    def cover(self, radius_sq: float) -> Sparse:
        """Who covers whom at a radius: 0/1 CSR (points beyond the radius of every label, N)."""
        near = _kept(self.squares, self.squares.data <= radius_sq)
        near.data = np.ones(near.nnz)
        return near[np.flatnonzero(self.reached_sq > radius_sq)]


def _radii(values: Float64Array, lower_sq: float) -> tuple[Float64Array, Float64Array]:
    """The distinct squares from the lower bound on, as the smallest and the largest of each run of SAME ones."""
    ascending = np.unique(values[values >= lower_sq * (1.0 - SAME)])
    steps = ascending[1:] > ascending[:-1] * (1.0 + SAME)
    edge = np.ones(min(1, len(ascending)), dtype=np.bool_)
    return ascending[np.concatenate([edge, steps])], ascending[np.concatenate([steps, edge])]


def _below(squares: Float64Array, limit_sq: float) -> Sparse:
    """The entries below a limit as CSR, zeros included."""
    rows, columns = np.nonzero(squares < limit_sq)
    starts = np.searchsorted(rows, np.arange(len(squares) + 1))
    return sparse.csr_array((squares[rows, columns], columns.astype(np.int32), starts), shape=squares.shape)


def _kept(matrix: Sparse, keep: BoolArray) -> Sparse:
    """A CSR matrix reduced to some of its stored entries, zeros included."""
    starts = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return sparse.csr_array((matrix.data[keep], matrix.indices[keep], starts), shape=matrix.shape)


# Three ways to ask whether b centres can cover all but Ξ points.


def _relaxation_rules_out(search: _Search, cover: Sparse) -> bool:
    greedy = _greedy_cover(cover, np.ones(cover.shape[1]), search.problem.outliers)
    search.offer(greedy)
    return len(greedy) > search.problem.budget and _relax(search, cover)[0] > search.problem.budget


def _swaps_fail(search: _Search, cover: Sparse) -> bool:
    share = _relax(search, cover)[1]
    start = _greedy_cover(cover, share + 1e-4, search.problem.outliers)[: search.problem.budget]
    found = _swap(search, _Balance.of(cover, start))
    if found is not None:
        search.offer(found)
    return found is None


def _branching_rules_out(search: _Search, max_nodes: int, cover: Sparse) -> bool:
    budget = search.problem.budget
    solver = _load(search, cover, integer=True)
    solver.setOptionValue("mip_max_nodes", max(1, min(max_nodes, max_nodes * EDGES_PER_NODE // max(1, cover.nnz))))
    solver.setOptionValue("objective_target", float(budget))  # any cover will do
    state = _run(solver)
    if state == "solved":
        picks = np.flatnonzero(np.asarray(solver.getSolution().col_value)[: cover.shape[1]] > 0.5)
        if len(picks) > budget:
            raise SolverFailed(f"HiGHS picked {len(picks)} centres where {budget} were allowed; please report this")
        search.offer(picks)
    return state == "impossible"


def _greedy_cover(cover: Sparse, weight: Float64Array, outliers: int) -> IntArray:
    """Columns that cover all but Ξ rows, each the one with the largest weight × rows newly covered."""
    columns = cover.tocsc()
    gains = np.diff(columns.indptr).astype(np.int64)  # (N,) rows that a column would newly cover
    waiting = np.ones(cover.shape[0], dtype=np.bool_)
    picks: list[int] = []
    while waiting.sum() > outliers:
        picks.append(int((weight * gains).argmax()))
        rows = columns.indices[columns.indptr[picks[-1]] : columns.indptr[picks[-1] + 1]]
        fresh = rows[waiting[rows]]
        waiting[fresh] = False
        gains -= np.bincount(cover[fresh].indices, minlength=len(gains))
    return np.array(picks, dtype=np.int64)


@dataclass(slots=True, eq=False)
class _Balance:
    """A set of columns under change: what each row weighs, what a column would gain and what its loss would cost."""

    cover: Sparse  # (m, N) CSR
    columns: Sparse  # the same in CSC
    weight: Float64Array  # (m,)
    count: IntArray  # (m,) chosen columns that cover the row
    owners: IntArray  # (m,) the sum of their numbers: the number itself where there is one
    gain: Float64Array  # (N,) weight of the uncovered rows that the column covers
    loss: Float64Array  # (N,) weight of the rows that only this chosen column covers; inf where not chosen

    @classmethod
    def of(cls, cover: Sparse, picks: IntArray) -> _Balance:
        m, n = cover.shape
        none = np.zeros(m, dtype=np.int64)
        self = cls(cover, cover.tocsc(), np.ones(m), none, none.copy(), cover.sum(axis=0), np.full(n, np.inf))
        for pick in picks:
            self.move(int(pick), 1)
        return self

    def move(self, column: int, sign: int) -> None:
        """Choose a column (sign 1) or drop it (sign −1)."""
        rows = self.columns.indices[self.columns.indptr[column] : self.columns.indptr[column + 1]]
        others = self.count[rows] - (sign < 0)  # chosen columns beside this one
        turned, shared = rows[others == 0], rows[others == 1]
        partner = self.owners[shared] - (column if sign < 0 else 0)
        self.gain -= sign * (self.cover[turned].T @ self.weight[turned])
        np.subtract.at(self.loss, partner, sign * self.weight[shared])
        self.loss[column] = self.weight[turned].sum() if sign > 0 else np.inf
        self.count[rows] += sign
        self.owners[rows] += sign * column

    def uncovered(self) -> IntArray:
        return np.flatnonzero(self.count == 0)


def _swap(search: _Search, state: _Balance) -> IntArray | None:
    """Swap columns until all but Ξ rows are covered; None if that fails. Rows weigh more the longer they stay open.

    This is row-weighting local search (Gao et al. 2015): drop the chosen column that costs least, take the best one for
    the heaviest open row, add 1 to each open row; ties go to the column that has rested longest, then to the first.
    """
    moved = np.zeros(state.cover.shape[1], dtype=np.int64)  # (N,) step of the last move
    newest = -1
    for step in range(1, SWAPS + 1):
        waiting = state.uncovered()
        if len(waiting) <= search.problem.outliers:
            return np.flatnonzero(np.isfinite(state.loss))
        if search.late():
            return None
        state.weight[waiting] += 1.0
        state.gain += state.cover[waiting].sum(axis=0)
        chosen = np.flatnonzero(np.isfinite(state.loss))
        old = _best(chosen[chosen != newest] if len(chosen) > 1 else chosen, -state.loss, moved)
        state.move(old, -1)
        waiting = state.uncovered()
        row = waiting[state.weight[waiting].argmax()]
        able = state.cover.indices[state.cover.indptr[row] : state.cover.indptr[row + 1]]
        newest = _best(able[able != old] if len(able) > 1 else able, state.gain, moved)
        state.move(newest, 1)
        moved[[old, newest]] = step
    return None


def _best(columns: IntArray, worth: Float64Array, moved: IntArray) -> int:
    top = columns[worth[columns] == worth[columns].max()]
    return int(top[moved[top].argmin()])


# HiGHS.


def _relax(search: _Search, cover: Sparse) -> tuple[float, Float64Array]:
    """How many centres a cover needs at least, and the fractional picks (N,) of the linear relaxation.

    Any y ≥ 0 (m,) with coverᵀy ≤ 1 proves  Σs ≥ Σ_covered y ≥ Σy − (the Ξ largest y).  So the duals are scaled into
    place and the bound is computed from them: no tolerance of the solver enters the proof.
    """
    solver = _load(search, cover, integer=False)
    _run(solver)
    solution = solver.getSolution()
    share = np.asarray(solution.col_value)[: cover.shape[1]] if solution.value_valid else np.ones(cover.shape[1])
    if not solution.dual_valid:
        return 0.0, share
    y = np.maximum(np.asarray(solution.row_dual)[: cover.shape[0]], 0.0)  # (m,)
    y /= max(1.0, (cover.T @ y).max())
    bound = np.sort(y)[: len(y) - search.problem.outliers].sum() - SAME * y.sum()
    return float(bound), share


# What HiGHS's last word means. The programs are bounded, so "unbounded or infeasible" is infeasible.
MEANING = {
    highspy.HighsModelStatus.kOptimal: "solved",
    highspy.HighsModelStatus.kObjectiveTarget: "solved",
    highspy.HighsModelStatus.kInfeasible: "impossible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "impossible",
    highspy.HighsModelStatus.kTimeLimit: "stopped",
    highspy.HighsModelStatus.kIterationLimit: "stopped",
    highspy.HighsModelStatus.kSolutionLimit: "stopped",
}


def _run(solver: Highs) -> str:
    solver.run()
    status = solver.getModelStatus()
    if status not in MEANING:
        raise SolverFailed(
            f"HiGHS ended a covering program with {solver.modelStatusToString(status)!r}, which answers nothing; if this "
            "process has used HiGHS with more threads, call highspy.Highs.resetGlobalScheduler(True) first"
        )
    return MEANING[status]


def _load(search: _Search, cover: Sparse, *, integer: bool) -> Highs:
    """A solver with  min Σs,  cover·s + o ≥ 1,  Σo ≤ Ξ  (o only if Ξ > 0);  if integer also Σs ≤ b, s binary.

    With s binary an optimal o is binary by itself.
    """
    (m, n), outliers = cover.shape, search.problem.outliers
    spare = m if outliers else 0
    body = sparse.hstack([cover, sparse.eye_array(m)]) if spare else cover
    sums = [np.repeat([[0.0, 1.0]], [n, spare], axis=1)] if spare else []
    sums += [np.repeat([[1.0, 0.0]], [n, spare], axis=1)] if integer else []
    most = [float(outliers)] * bool(spare) + [float(search.problem.budget)] * integer
    matrix = sparse.vstack([body, *map(sparse.csr_array, sums)], format="csr")
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = np.repeat([1.0, 0.0], [n, spare])
    model.col_lower_ = np.zeros(n + spare)
    # In the relaxation s ≤ 1 would change nothing but the duals, which then need not obey coverᵀy ≤ 1.
    model.col_upper_ = np.repeat([1.0 if integer else highspy.kHighsInf, 1.0], [n, spare])
    model.row_lower_ = np.repeat([1.0, 0.0], [m, len(sums)])
    model.row_upper_ = np.concatenate([np.full(m, highspy.kHighsInf), most])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    model.a_matrix_.index_ = matrix.indices.astype(np.int32)
    model.a_matrix_.value_ = matrix.data
    if integer:
        model.integrality_ = [highspy.HighsVarType.kInteger] * n + [highspy.HighsVarType.kContinuous] * spare
    solver: Highs = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    # Presolve compares columns pair by pair, which takes minutes here and does not heed the time limit.
    solver.setOptionValue("presolve", "off")
    if np.isfinite(search.deadline):
        solver.setOptionValue("time_limit", max(search.deadline - time.perf_counter(), 0.01))
    solver.passModel(model)
    return solver
