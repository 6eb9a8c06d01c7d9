"""CoreSet (Sener & Savarese): the b pool rows that leave the smallest covering radius, Ξ outliers aside.

Robust k-center by mixed-integer feasibility problems and bisection on the radius. In: pool embeddings X (N, d),
labelled embeddings Y (L, d), b and Ξ. Out: the picks, their radius δ and a proven bound. Inside, distances are squared
(names end in `sq`), and a "cover" is a 0/1 matrix: points to be covered × pool rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
from scipy import sparse

from ..errors import BadInput, PoolExhausted, SolverFailed
from ..inputs import whole_number
from ..matrix.shards import Column
from ..processes import one_blas_thread
from ..selection import Selection
from ..solver.highs import ChosenColumns, CoverSearch, Sparse, load_cover, relax_cover, run_cover
from ..solver.path import parse_balance
from ..types import BoolArray, Float64Array, FloatArray, IntArray, Predictions, gap_between
from .strategy import Base, Task, both_embeddings, strategy

BLOCK = 2**22  # entries of a block of distances: 32 MB
NEAR = 1e-4  # a square below this share of |x|² + |y|² has lost digits to cancellation: it is taken from x − y instead
SAME = 1e-9  # squares within this relative distance are one radius: they differ by rounding alone
EDGES_AT_FULL_NODES = 100_000  # larger integer programs get fewer nodes, by the square
MOST_UNDECIDED = 2  # integer programs that may end without an answer before the search ends


@dataclass(frozen=True, slots=True, eq=False)
class CoreSetResult:
    """The picks and their certificate.

    Attributes
    ----------
    indices: (b,) int64 distinct pool rows, in farthest-first order among themselves; ascending if b = N.
    radius: all but Ξ pool points lie within it of a labelled or picked point, computed from the embeddings.
    lower: no b rows have a smaller radius (up to 1e-9 of it); equal to `radius` when the status is "optimal".
    status: "optimal"; "time limit"; or "best found": `max_nodes`, `max_steps` or `max_edges` left radii undecided.
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
    max_steps: int | None = None,
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
        A limit that is reached makes the picks depend on the machine's speed; all other limits do not.
    max_edges: pairs to hold in memory, 12 bytes each, and more in HiGHS; radii with more pairs within are not tried.
    max_nodes: branch-and-bound nodes of one integer program.
    max_steps: simplex iterations and swaps in all; an integer program that was begun below the limit is ended. Without
        this and a time limit, wise only up to some 10,000 rows. 0 leaves the farthest-first picks.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> found = robust_k_center(line, np.empty((0, 1)), 2)
    >>> sorted(found.indices.tolist()), found.radius, found.status
    ([1, 4], 1.0, 'optimal')
    """
    if max_steps is not None and max_steps < 0:
        raise BadInput(f"max_steps is {max_steps}; give 0 or more, or None for no limit")
    deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
    with one_blas_thread():
        search = _greedy_start(pool, labelled, budget, outliers, deadline)
        search.steps = np.inf if max_steps is None else max_steps
        if search.lower_sq < search.upper_sq and not search.spent():
            _refine(search, max_edges, max_nodes)
        return search.result()


@dataclass(frozen=True, slots=True, eq=False)
class _Points:
    rows: Float64Array  # (n, d)
    sq: Float64Array  # (n,) squared lengths

    @classmethod
    def of(cls, rows: Float64Array) -> _Points:
        return cls(rows, np.einsum("nd,nd->n", rows, rows))

    def take(self, index: IntArray | slice) -> _Points:
        return _Points(self.rows[index], self.sq[index])


def _squares(some: _Points, many: _Points) -> Float64Array:
    """|x − y|² for all pairs, (m, n), with a relative error of about 1e-10; 0 exactly for equal rows."""
    size = some.sq[:, None] + many.sq  # (m, n)
    squares = size - 2.0 * (some.rows @ many.rows.T)
    lossy = squares < NEAR * size  # every negative square is among them
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
    nearest = np.empty_like(start)
    for part in _blocks(len(points.rows), len(centres.rows)):
        nearest[part] = _squares(points.take(part), centres).min(axis=1, initial=np.inf)
    return np.minimum(nearest, start)


def _farthest_first(points: _Points, start: Float64Array, count: int) -> tuple[IntArray, Float64Array]:
    """The picks (count,), and each point's squared distance to its nearest centre, −inf for the picks: (n,)."""
    nearest = start.copy()
    picks = np.empty(count, dtype=np.int64)
    for turn in range(count):
        if np.isposinf(nearest).all():  # no centre yet
            picks[turn] = _squares(_Points.of(points.rows.mean(axis=0, keepdims=True)), points)[0].argmin()
        else:
            picks[turn] = nearest.argmax()
        nearest = np.minimum(nearest, _squares(points.take(picks[turn : turn + 1]), points)[0])
        nearest[picks[turn]] = -np.inf  # never again, also when all that is left are copies of centres
    return picks, nearest


def _matrix(values: FloatArray, name: str) -> Float64Array:
    """A float64 (n, d) matrix of finite numbers, or an error that names the first bad row."""
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2:
        raise BadInput(f"{name} has shape {matrix.shape}; give a matrix with one embedding per row")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise BadInput(f"{name} has {len(bad)} rows with NaN or infinity, the first is row {bad[0]}; fix or drop them")
    return matrix


@dataclass(slots=True, eq=False)
class _Search(CoverSearch):
    """The problem, the best picks so far, and what the search may still cost."""

    pool: _Points  # (N, d)
    reached_sq: Float64Array  # (N,) squared distance to the nearest labelled point; inf without any
    picks: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # (b,) the best so far
    upper_sq: float = np.inf  # their radius
    lower_sq: float = 0.0  # proven: no picks have a smaller one

    def radius_sq(self, picks: IntArray) -> float:
        nearest = _nearest_sq(self.pool, self.pool.take(picks), self.reached_sq)  # (N,)
        return float(np.sort(nearest)[-1 - self.outliers])

    def offer(self, picks: IntArray) -> None:
        """Take these picks over, with farthest-first ones added up to b, if that leaves a smaller radius."""
        if len(picks) <= self.budget:
            nearest = _nearest_sq(self.pool, self.pool.take(picks), self.reached_sq)
            nearest[picks] = -np.inf
            full = np.concatenate([picks, _farthest_first(self.pool, nearest, self.budget - len(picks))[0]])
            radius_sq = self.radius_sq(full)
            if radius_sq < self.upper_sq:
                self.picks, self.upper_sq = full, radius_sq

    def result(self) -> CoreSetResult:
        status = "time limit" if time.perf_counter() >= self.deadline else "best found"
        if self.lower_sq >= self.upper_sq:
            status = "optimal"
        lower, radius = np.sqrt([min(self.lower_sq, self.upper_sq), self.upper_sq]).tolist()
        rows = np.sort(self.picks)
        if len(rows) < len(self.reached_sq):
            rows = rows[_farthest_first(self.pool.take(rows), self.reached_sq[rows], len(rows))[0]]
        return CoreSetResult(rows, radius, lower, status)


def _greedy_start(pool: FloatArray, labelled: FloatArray, budget: int, outliers: int, deadline: float) -> _Search:
    """Check the problem; farthest-first picks, their radius, and a lower bound.

    The bound: let b + Ξ + 1 pool points lie pairwise ≥ w apart and ≥ w/2 from every labelled point, and let δ < w/2.
    Then a labelled centre covers none of them, and a picked one at most one (two would be ≤ 2δ < w apart), so b picks
    leave Ξ + 1 uncovered: the optimum is ≥ w/2. Two farthest-first runs of b + Ξ picks give such points: the picks
    and the farthest point left, at distance w. It is ≥ w from every pick, and each pick was ≥ w from those before it,
    as the largest distance never rises. Labels are ≥ w away too, more than needed: run two counts their distances
    double. Without labels the first pick is far from nothing when it is made, but all later ones are far from it.
    """
    x, y = _matrix(pool, "pool"), _matrix(labelled, "labelled")
    if x.shape[1] != y.shape[1]:
        raise BadInput(f"pool has {x.shape[1]} features and labelled {y.shape[1]}; embed both with one model")
    if budget < 0 or outliers < 0:
        raise BadInput(f"budget is {budget} and outliers {outliers}; neither can be negative")
    if budget > len(x):
        raise PoolExhausted(f"asked for {budget} picks, but the pool has {len(x)} rows; lower the budget")
    origin = x[:1].sum(axis=0)  # row 0: a near origin saves digits in |x|² + |y|² − 2xᵀy, and keeps integers exact
    points, centres = _Points.of(x - origin), _Points.of(y - origin)
    reached_sq = _nearest_sq(points, centres, np.full(len(x), np.inf))
    search = _Search(points, reached_sq, budget=budget, outliers=outliers, deadline=deadline)
    count = budget + outliers
    if count >= len(search.reached_sq):  # all that is not picked may be an outlier
        search.picks, search.upper_sq = np.arange(budget, dtype=np.int64), 0.0
        return search
    picks, left = _farthest_first(search.pool, search.reached_sq, count)
    apart_sq = left.max()
    if np.isfinite(search.reached_sq[0]):
        apart_sq = max(apart_sq, _farthest_first(search.pool, 4.0 * search.reached_sq, count)[1].max())
    search.picks = picks[:budget]
    search.upper_sq = search.radius_sq(search.picks)
    search.lower_sq = search.upper_sq if budget == 0 else float(apart_sq) / 4.0
    return search


def _refine(search: _Search, max_edges: int, max_nodes: int) -> None:
    """Bisect the radii: by relaxation for the lower bound, by swaps for the upper, by branching for what is between."""
    graph = _Graph.between(search, max_edges)
    if graph is None:
        return
    radii = len(graph.first_sq)
    floor = _bisect(search, graph, 0, partial(_relaxation_rules_out, search), radii)
    _bisect(search, graph, floor, partial(_swaps_fail, search), radii)  # a failure proves nothing: the floor stays
    floor = _bisect(search, graph, floor, partial(_branching_rules_out, search, max_nodes), MOST_UNDECIDED)
    ceiling = graph.place(search.upper_sq)
    if floor >= ceiling and (ceiling < radii or graph.complete):
        search.lower_sq = search.upper_sq
    else:
        search.lower_sq = max(search.lower_sq, graph.first_sq[floor] if floor < radii else graph.limit_sq)


def _bisect(search: _Search, graph: _Graph, floor: int, ruled_out: Callable[[Sparse], bool], patience: int) -> int:
    """The first radius, from `floor` on, that is not ruled out; one that is not found either uses up patience."""
    high = graph.place(search.upper_sq)
    while floor < high and patience > 0 and not search.spent():
        middle = (floor + high) // 2
        out = ruled_out(graph.cover(graph.last_sq[middle]))
        high = min(high, graph.place(search.upper_sq))
        if high > middle and out:
            floor = middle + 1
        elif high > middle:
            high, patience = middle, patience - 1
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
        """The pairs below the upper bound, or about max_edges/2 to max_edges nearest ones; None if time is short."""
        pool, reached_sq = search.pool, search.reached_sq
        rows = np.flatnonzero(reached_sq > search.lower_sq)
        limit_sq = upper_sq = search.upper_sq * (1.0 - SAME)
        parts: list[Sparse] = []
        for block in _blocks(len(rows), len(pool.rows)):
            parts.append(_below(_squares(pool.take(rows[block]), pool), limit_sq))
            if sum(part.nnz for part in parts) > max_edges:
                nearest = np.partition(np.concatenate([part.data for part in parts]), max_edges // 2)
                limit_sq = float(nearest[max_edges // 2])
                parts = [_kept(part, part.data < limit_sq) for part in parts]
            if limit_sq == 0.0 or search.spent():
                return None
        squares = sparse.vstack(parts, format="csr")
        radii = _radii(np.concatenate([squares.data, reached_sq[reached_sq < limit_sq]]), search.lower_sq)
        return cls(squares, reached_sq[rows], limit_sq, limit_sq == upper_sq, *radii)

    def place(self, radius_sq: float) -> int:
        return int(np.searchsorted(self.last_sq, radius_sq * (1.0 - SAME)))  # among the K radii; K if above all

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


def _relaxation_rules_out(search: _Search, cover: Sparse) -> bool:
    greedy = ChosenColumns(cover).choose(np.ones(cover.shape[1]), search.outliers)
    search.offer(greedy)
    return len(greedy) > search.budget and relax_cover(search, cover)[0] > search.budget


def _swaps_fail(search: _Search, cover: Sparse) -> bool:
    columns = ChosenColumns(cover)
    chosen = columns.choose(relax_cover(search, cover)[1] + 1e-4, search.outliers)
    for surplus in chosen[search.budget :]:
        columns.move(surplus, -1)
    found = columns.swap(search)
    if found is not None:
        search.offer(found)
    return found is None


def _branching_rules_out(search: _Search, max_nodes: int, cover: Sparse) -> bool:
    budget = search.budget
    solver = load_cover(search, cover, integer=True)
    solver.setOptionValue("mip_max_nodes", max(1, int(max_nodes * min(1.0, EDGES_AT_FULL_NODES / cover.nnz) ** 2)))
    solver.setOptionValue("objective_target", float(budget))  # any cover will do
    state = run_cover(solver)
    search.steps -= max(0, solver.getInfo().simplex_iteration_count)
    if state == "solved":
        picks = np.flatnonzero(np.asarray(solver.getSolution().col_value)[: cover.shape[1]] > 0.5)
        if len(picks) > budget:
            raise SolverFailed(f"HiGHS picked {len(picks)} centres where {budget} were allowed; please report this")
        search.offer(picks)
    return state == "impossible"


MOST_STEPS = 1e15


@strategy
@dataclass(frozen=True, kw_only=True)
class CoreSet(Base):
    """The batch that leaves the smallest covering radius, some outliers aside; it has no balanced form."""

    outliers: int = 0
    max_steps: int | None = None
    """A limit on the search that, unlike `time_limit`, gives the same picks on every machine."""

    name: ClassVar[str] = "coreset"
    title: ClassVar[str] = "CoreSet"
    rank: ClassVar[int] = 6
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.outliers, "outliers")
        if self.max_steps is not None:
            whole_number(self.max_steps, "max_steps", but=", or None", most=MOST_STEPS)
        if parse_balance(self.balance) not in (0.0, "auto"):
            raise BadInput(
                "coreset has no balanced form: it chooses all centres at once by their radius alone; "
                "use kcenter with balance instead"
            )

    def choose(self, task: Task, predictions: Predictions, _costs: Column) -> Selection:
        """`objective` is the radius, `bound` the smallest radius not ruled out."""
        pool, labelled = both_embeddings(task, predictions)
        found = robust_k_center(
            pool, labelled, task.budget, outliers=self.outliers, time_limit=task.time_limit, max_steps=self.max_steps
        )
        return task.selection(
            found.indices, informativeness=-found.radius, balance=0.0, lam=0.0, method=self.name, status=found.status,
            objective=found.radius, bound=found.lower, gap=gap_between(found.radius, found.lower, found.radius),
        )  # fmt: skip
