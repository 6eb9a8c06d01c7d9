"""CoreSet (Sener & Savarese): the b pool rows that leave the smallest covering radius, Ξ outliers aside.

In: pool embeddings X (N, d), labelled embeddings Y (L, d), b and Ξ. Out: the picks, their radius δ and a proven bound.
Inside, distances are squared (names end in `sq`), and "cover" is a 0/1 matrix: points to be covered × pool rows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import highspy
import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from ..errors import BadInput, PoolExhausted, SolverFailed
from ..types import BoolArray, Float64Array, FloatArray, IntArray

Sparse: TypeAlias = Any  # a scipy.sparse.csr_array: its stubs follow scipy's releases too closely to be named here

BLOCK = 2**22  # entries of a block of distances: 32 MB
NEAR = 1e-4  # a square below this share of |x|² + |y|² has lost digits to cancellation: it is taken from x − y instead
SAME = 1e-9  # squares within this relative distance are one radius: they differ by rounding alone
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

    A farthest-first start bounds the optimum from both sides; then radii are bisected over the distances that occur.
    A radius falls when the linear relaxation needs more than b centres (its duals are the proof) or when HiGHS proves
    the integer program infeasible; it stands when a greedy cover, a rounded relaxation or HiGHS gives b centres.

    Parameters
    ----------
    pool: (N, d) embeddings to pick from.
    labelled: (L, d) embeddings that are centres already; L may be 0. Then the first farthest-first pick is the point
        nearest to the pool's mean.
    budget: b, the number of picks.
    outliers: Ξ, the number of pool points that may stay uncovered.
    time_limit: seconds. The farthest-first start always runs to its end; HiGHS may overrun by some seconds. Without
        it the effort is limited by `max_nodes` alone, and the same input gives the same picks.
    max_edges: pairs within a radius that may be held in memory (12 bytes each, and about ten times that in HiGHS).
        Radii with more pairs are not tried: the radius then stays above them unless a smaller one is found.
    max_nodes: branch-and-bound nodes for each integer program.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> found = robust_k_center(line, np.empty((0, 1)), 2)
    >>> sorted(found.indices.tolist()), found.radius, found.status
    ([1, 4], 1.0, 'optimal')
    """
    clock = _Clock.start(time_limit)
    with threadpool_limits(limits=1, user_api="blas"):
        problem = _Problem.checked(pool, labelled, budget, outliers)
        search = _greedy_start(problem)
        if search.lower_sq < search.upper_sq and clock.left() > 0:
            _refine(search, clock, max_edges, max_nodes)
        return search.result(clock)


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
    """Embeddings in float64 with their squared lengths."""

    rows: Float64Array  # (n, d)
    sq: Float64Array  # (n,)

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
        pick = _most_central(points) if np.isposinf(nearest).all() else int(nearest.argmax())
        picks[turn] = pick
        nearest = np.minimum(nearest, _squares(points.take(picks[turn : turn + 1]), points)[0])
        nearest[pick] = -np.inf  # never again, also when all that is left are copies of centres
    return picks, nearest


def _most_central(points: _Points) -> int:
    mean = _Points.of(points.rows.mean(axis=0, keepdims=True))
    return int(_squares(mean, points)[0].argmin())


# The problem, and what a set of picks is worth.


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """What is asked, validated."""

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

    def radius_sq(self, picks: IntArray) -> float:
        """The square of the radius of a set of picks: the (Ξ+1)-th largest distance to a centre."""
        if self.outliers >= len(self.pool):
            return 0.0
        nearest = _nearest_sq(self.pool, self.pool.take(picks), self.reached_sq)
        place = len(nearest) - 1 - self.outliers
        return float(np.partition(nearest, place)[place])

    def padded(self, picks: IntArray) -> IntArray:
        """The picks, with farthest-first ones added until there are b."""
        nearest = _nearest_sq(self.pool, self.pool.take(picks), self.reached_sq)
        nearest[picks] = -np.inf
        return np.concatenate([picks, _farthest_first(self.pool, nearest, self.budget - len(picks))[0]])

    def ordered(self, picks: IntArray) -> IntArray:
        """The same picks in farthest-first order; all rows of the pool stay as they are."""
        if len(picks) == len(self.pool):
            return np.arange(len(picks))
        rows = np.sort(picks)
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
    """The mean, rounded to a power of two near the spread: (d,).

    Moving the origin there saves digits in |x|² + |y|² − 2xᵀy, and the rounding keeps coordinates of few digits
    exact, so that ties between them stay ties.
    """
    if not len(rows):
        return np.zeros(rows.shape[1])
    spread = rows.std(axis=0)
    unit = np.exp2(np.floor(np.log2(np.where(spread > 0, spread, 1.0))))
    return np.asarray(np.round(rows.mean(axis=0) / unit) * unit)


# The search over radii.


@dataclass(frozen=True, slots=True)
class _Clock:
    deadline: float

    @classmethod
    def start(cls, seconds: float | None) -> _Clock:
        return cls(np.inf if seconds is None else time.perf_counter() + seconds)

    def left(self) -> float:
        return self.deadline - time.perf_counter()


@dataclass(slots=True, eq=False)
class _Search:
    """The best picks so far and what is proven; the one value here that changes."""

    problem: _Problem
    picks: IntArray  # (b,)
    upper_sq: float
    lower_sq: float
    solved: bool = field(default=False)

    def offer(self, picks: IntArray) -> None:
        """Take over these picks, at most b, if their radius is smaller."""
        full = self.problem.padded(picks)
        radius_sq = self.problem.radius_sq(full)
        if radius_sq < self.upper_sq:
            self.picks, self.upper_sq = full, radius_sq

    def result(self, clock: _Clock) -> CoreSetResult:
        optimal = self.solved or self.upper_sq <= self.lower_sq
        radius = float(np.sqrt(self.upper_sq))
        lower = radius if optimal else min(radius, float(np.sqrt(self.lower_sq)))
        status = "optimal" if optimal else "time limit" if clock.left() <= 0 else "best found"
        return CoreSetResult(self.problem.ordered(self.picks), radius, lower, status)


def _greedy_start(problem: _Problem) -> _Search:
    """Farthest-first picks, their radius, and a lower bound.

    The bound: let b + Ξ + 1 pool points lie pairwise ≥ w apart and ≥ w/2 from every labelled point, and let δ < w/2.
    Then a labelled centre covers none of them, and a picked centre at most one (two would be ≤ 2δ < w apart), so b
    picks leave Ξ + 1 uncovered: the optimum is ≥ w/2. Two farthest-first runs give such points. Run one, from the
    labelled points, after b + Ξ picks: the picks and the farthest point that is left are pairwise and from the
    labelled ones ≥ w apart, w that point's distance, since the farthest distance only falls from pick to pick. Run
    two does the same with the distances to labelled points doubled: min(2·d_Y, distance to picks) ≥ w. Without
    labelled points the first pick is far from nothing, but the later ones are far from it, which is all that is used.
    """
    count = problem.budget + problem.outliers
    if count >= len(problem.pool):  # all that is not picked may be an outlier
        everything = np.arange(len(problem.pool), dtype=np.int64)
        return _Search(problem, everything[: problem.budget], 0.0, 0.0)
    picks, left = _farthest_first(problem.pool, problem.reached_sq, count)
    apart_sq = float(left.max())
    if np.isfinite(problem.reached_sq[0]):
        apart_sq = max(apart_sq, float(_farthest_first(problem.pool, 4.0 * problem.reached_sq, count)[1].max()))
    greedy = picks[: problem.budget]
    upper_sq = problem.radius_sq(greedy)
    # Without a pick to choose there is nothing to prove.
    lower_sq = upper_sq if problem.budget == 0 else min(apart_sq / 4.0, upper_sq)
    return _Search(problem, greedy, upper_sq, lower_sq)


def _refine(search: _Search, clock: _Clock, max_edges: int, max_nodes: int) -> None:
    """Bisect the radii between the bounds, first with the relaxation, then with integer programs."""
    graph = _Graph.between(search, clock, max_edges)
    if graph is None:
        return
    radii = _Radii.of(graph, search)
    floor = _raise_floor(search, graph, radii, clock)
    floor = _close(search, graph, radii, floor, clock, max_nodes)
    search.lower_sq = max(search.lower_sq, radii.first_sq[floor] if floor < len(radii) else graph.limit_sq)
    ceiling = radii.place(search.upper_sq)
    search.solved = floor >= ceiling and (ceiling < len(radii) or graph.complete)


def _raise_floor(search: _Search, graph: _Graph, radii: _Radii, clock: _Clock) -> int:
    """The first radius that the relaxation does not rule out; covers found on the way are offered."""
    problem = search.problem
    floor, high = 0, radii.place(search.upper_sq)
    while floor < high and clock.left() > 0:
        middle = (floor + high) // 2
        cover = graph.cover(radii.last_sq[middle])
        picks = _greedy_cover(cover, problem, np.ones(cover.shape[1]))
        if picks is None:
            relaxed = _relax(cover, problem, clock)
            if relaxed.centres > problem.budget:
                floor = middle + 1
                continue
            picks = _greedy_cover(cover, problem, relaxed.share)
        if picks is not None:
            search.offer(picks)
        high = min(middle, radii.place(search.upper_sq))
    return floor


def _close(search: _Search, graph: _Graph, radii: _Radii, floor: int, clock: _Clock, max_nodes: int) -> int:
    """The first radius that no integer program rules out; solutions found on the way are offered."""
    low, undecided = floor, 0  # radii in [floor, low) are neither proven nor found
    while undecided < MOST_UNDECIDED and clock.left() > 0:
        high = radii.place(search.upper_sq)
        if low >= high:
            break
        middle = (low + high) // 2
        possible, picks = _branch(graph.cover(radii.last_sq[middle]), search.problem, clock, max_nodes)
        if picks is not None:
            search.offer(picks)
        if radii.place(search.upper_sq) <= middle:
            continue
        low = middle + 1
        if possible:
            undecided += 1
        else:
            floor = low
    return floor


@dataclass(frozen=True, slots=True, eq=False)
class _Radii:
    """The radii at which covers change, ascending; one that rounding has split counts once."""

    first_sq: Float64Array  # (K,) the smallest square of each
    last_sq: Float64Array  # (K,) the largest

    @classmethod
    def of(cls, graph: _Graph, search: _Search) -> _Radii:
        """All distances between the bounds, to pool points and to labelled ones: the optimum is among them."""
        reached_sq = search.problem.reached_sq
        values = np.concatenate([graph.squares.data, reached_sq[reached_sq < graph.limit_sq]])
        values = np.unique(values[values >= search.lower_sq * (1.0 - SAME)])
        breaks = values[1:] > values[:-1] * (1.0 + SAME)
        ends = np.ones(min(1, len(values)), dtype=np.bool_)
        return cls(values[np.concatenate([ends, breaks])], values[np.concatenate([breaks, ends])])

    def __len__(self) -> int:
        return len(self.last_sq)

    def place(self, radius_sq: float) -> int:
        """Where a radius stands among them; K when it is above all."""
        return int(np.searchsorted(self.last_sq, radius_sq * (1.0 - SAME)))


@dataclass(frozen=True, slots=True, eq=False)
class _Graph:
    """Every pair (point to be covered, pool row) closer than a limit."""

    squares: Sparse  # (m, N) CSR; the zero of a point with itself is stored
    reached_sq: Float64Array  # (m,) of the points to be covered; those within the lower bound of a label are left out
    limit_sq: float
    complete: bool  # the limit is the search's upper bound

    @classmethod
    def between(cls, search: _Search, clock: _Clock, max_edges: int) -> _Graph | None:
        """The pairs below the upper bound; of too many, between a half and all of `max_edges` nearest ones.

        None when time runs out, or when not even each point with itself fits.
        """
        pool, reached_sq = search.problem.pool, search.problem.reached_sq
        rows = np.flatnonzero(reached_sq > search.lower_sq)
        limit_sq = upper_sq = search.upper_sq * (1.0 - SAME)
        parts: list[Sparse] = []
        for part in _blocks(len(rows), len(pool)):
            if clock.left() <= 0:
                return None
            parts.append(_below(_squares(pool.take(rows[part]), pool), limit_sq))
            if sum(part.nnz for part in parts) > max_edges:
                squares = np.concatenate([part.data for part in parts])
                limit_sq = float(np.partition(squares, max_edges // 2)[max_edges // 2])
                parts = [_kept(part, part.data < limit_sq) for part in parts]
                if limit_sq == 0.0:
                    return None
        return cls(sparse.vstack(parts, format="csr"), reached_sq[rows], limit_sq, limit_sq == upper_sq)

    def cover(self, radius_sq: float) -> Sparse:
        """The 0/1 matrix (points beyond the radius of every label, N) of who covers whom at a radius."""
        near = _kept(self.squares, self.squares.data <= radius_sq)
        near.data = np.ones(len(near.data))
        return near[np.flatnonzero(self.reached_sq > radius_sq)]


def _below(squares: Float64Array, limit_sq: float) -> Sparse:
    """The entries below a limit as CSR, zeros included."""
    rows, columns = np.nonzero(squares < limit_sq)
    starts = np.searchsorted(rows, np.arange(len(squares) + 1))
    return sparse.csr_array((squares[rows, columns], columns.astype(np.int32), starts), shape=squares.shape)


def _kept(matrix: Sparse, keep: BoolArray) -> Sparse:
    """The CSR matrix with some of its stored entries alone; `eliminate_zeros` would lose the zero distances."""
    starts = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr]
    return sparse.csr_array((matrix.data[keep], matrix.indices[keep], starts), shape=matrix.shape)


# Can b centres cover all but Ξ points? A greedy answer, a relaxed one, and the exact one.


def _greedy_cover(cover: Sparse, problem: _Problem, weight: Float64Array) -> IntArray | None:
    """At most b columns that cover all but Ξ rows, each the one with most weight × new rows; None if that fails."""
    columns = cover.tocsc()
    gains = np.diff(columns.indptr).astype(np.int64)  # (N,) rows that a column would newly cover
    waiting = np.ones(cover.shape[0], dtype=np.bool_)
    picks: list[int] = []
    while waiting.sum() > problem.outliers:
        if len(picks) == problem.budget:
            return None
        pick = int((weight * gains).argmax())
        rows = columns.indices[columns.indptr[pick] : columns.indptr[pick + 1]]
        fresh = rows[waiting[rows]]
        waiting[fresh] = False
        gains -= np.bincount(cover[fresh].indices, minlength=len(gains))
        picks.append(pick)
    return np.array(picks, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class _Relaxed:
    centres: float  # no cover has fewer
    share: Float64Array  # (N,) fractional picks


def _relax(cover: Sparse, problem: _Problem, clock: _Clock) -> _Relaxed:
    """The least number of centres when they may be fractions, as proven by the duals.

    Any y ≥ 0 (m,) with coverᵀy ≤ 1 counts: centres s ≥ Σ_i y_i over the covered rows ≥ Σy − (the Ξ largest y). So
    HiGHS's y is scaled into place and its bound recomputed: no tolerance of the solver enters the proof.
    """
    solver = _load(cover, problem, clock, integer=False)
    state = _run(solver)
    if state == "impossible":
        raise SolverFailed("HiGHS calls a covering program infeasible that every pool row together solves; report this")
    solution = solver.getSolution()
    share = np.asarray(solution.col_value)[: cover.shape[1]] if solution.value_valid else np.ones(cover.shape[1])
    if not solution.dual_valid:
        return _Relaxed(0.0, share)
    y = np.maximum(np.asarray(solution.row_dual)[: cover.shape[0]], 0.0)  # (m,)
    y /= max(1.0, float((cover.T @ y).max(initial=0.0)))
    spared = np.partition(y, len(y) - problem.outliers)[len(y) - problem.outliers :] if problem.outliers else y[:0]
    return _Relaxed(float(y.sum() * (1.0 - SAME) - spared.sum()), share)


def _branch(cover: Sparse, problem: _Problem, clock: _Clock, max_nodes: int) -> tuple[bool, IntArray | None]:
    """Whether a cover by b centres may exist, and one if HiGHS found one."""
    solver = _load(cover, problem, clock, integer=True)
    solver.setOptionValue("mip_max_nodes", max_nodes)
    solver.setOptionValue("objective_target", float(problem.budget))  # any cover will do
    state = _run(solver)
    if state != "solved":
        return state == "stopped", None
    picks = np.flatnonzero(np.asarray(solver.getSolution().col_value)[: cover.shape[1]] > 0.5)
    if len(picks) > problem.budget:
        raise SolverFailed(f"HiGHS picked {len(picks)} centres where {problem.budget} were allowed; report this")
    return True, picks


# What HiGHS's last word means. Both programs are bounded, so "unbounded or infeasible" is infeasible.
MEANING = {
    highspy.HighsModelStatus.kOptimal: "solved",
    highspy.HighsModelStatus.kObjectiveTarget: "solved",
    highspy.HighsModelStatus.kInfeasible: "impossible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "impossible",
    highspy.HighsModelStatus.kTimeLimit: "stopped",
    highspy.HighsModelStatus.kIterationLimit: "stopped",
    highspy.HighsModelStatus.kSolutionLimit: "stopped",
}


def _run(solver: Any) -> str:
    solver.run()
    status = solver.getModelStatus()
    if status not in MEANING:
        said = solver.modelStatusToString(status)
        raise SolverFailed(f"a covering program ended with {said!r}, which answers nothing; try a time limit")
    return MEANING[status]


def _load(cover: Sparse, problem: _Problem, clock: _Clock, *, integer: bool) -> Any:
    """A solver holding:  min Σs,  cover·s + o ≥ 1,  Σo ≤ Ξ  (o only if Ξ > 0);  Σs ≤ b and s binary if integer.

    With s binary, o_i = 1 − (covered or not) is binary by itself.
    """
    m, n = cover.shape
    spare = m if problem.outliers else 0
    limits = [(0.0, 1.0, problem.outliers)] if spare else []  # coefficient of each s, of each o, right-hand side
    limits += [(1.0, 0.0, problem.budget)] if integer else []
    edge = np.array([[of_s] * n + [of_o] * spare for of_s, of_o, _ in limits]).reshape(len(limits), n + spare)
    body = sparse.hstack([cover, sparse.eye_array(m)]) if spare else cover
    matrix = sparse.vstack([body, sparse.csr_array(edge)], format="csr")
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = matrix.shape
    model.col_cost_ = np.concatenate([np.ones(n), np.zeros(spare)])
    model.col_lower_ = np.zeros(n + spare)
    # Without s ≤ 1 in the relaxation its duals obey coverᵀy ≤ 1, and its optimum is the same.
    model.col_upper_ = np.concatenate([np.full(n, 1.0 if integer else highspy.kHighsInf), np.ones(spare)])
    model.row_lower_ = np.concatenate([np.ones(m), np.zeros(len(limits))])
    model.row_upper_ = np.concatenate([np.full(m, highspy.kHighsInf), [float(most) for *_, most in limits]])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    model.a_matrix_.index_ = matrix.indices.astype(np.int32)
    model.a_matrix_.value_ = matrix.data
    if integer:
        model.integrality_ = [highspy.HighsVarType.kInteger] * n + [highspy.HighsVarType.kContinuous] * spare
    return _solver(model, clock)


def _solver(model: Any, clock: _Clock) -> Any:
    solver: Any = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    # Presolve looks for dominated columns pair by pair, which takes minutes here and does not heed the time limit.
    solver.setOptionValue("presolve", "off")
    if np.isfinite(clock.deadline):
        solver.setOptionValue("time_limit", max(clock.left(), 0.01))
    solver.passModel(model)
    return solver
