"""The dual bound: any y ∈ [−λ, λ]^C gives  g(y) = h(y) + (sum of the b smallest entries of u − P·y)  ≤ every objective.

`evaluate` computes g in float64 over all rows; `maximise` looks for a y that makes it as large as possible: first on
samples of the rows, then on the rows near the threshold, with a full pass after each round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..matrix.shards import Column
from ..targets import Ranges
from ..types import Float64Array, FloatArray, IntArray, gap_between
from . import newton
from .highs import exact_duals
from .program import Effort, Program, Report, silent

OPEN_ELEMENTS = 1_000_000  # size of the part in memory: 8 MB in float64, more for larger matrices
SAMPLE_ELEMENTS = 10_000_000  # from which the first duals are found
ROUGH_ELEMENTS = 4_000_000  # more are taken in float32, where rough duals will do
OPEN_SHARE = 25  # of a large matrix, a twenty-fifth, up to 320 MB
POLISH_ELEMENTS = 400_000  # HiGHS takes about a second for so many
MOST_ROUNDS = 20
STAGES_PER_ROUND = 2
SHRINK = 3.0  # each stage leaves a third of the rows within μ of the threshold
TIED_WIDTH = 0.05  # of λ
TIED = 1e-7  # relative; rows that are nearer to each other lie on the same place
SURVEY_ELEMENTS = 1_000_000
LEAST_POOL = 20  # surveys; smaller pools are soon read
AROUND = 2  # times as many rows as will be opened are priced exactly beyond the threshold
LP_SHARE = 0.1  # share of the gap that the relaxation may use up


@dataclass(frozen=True, slots=True, eq=False)
class DualPoint:
    """Duals with all that follows from them."""

    y: Float64Array  # (C,)
    reduced: Column  # u − P·y
    theta: float  # the b-th smallest reduced cost
    bound: float  # g(y), less a margin
    margin: float  # for the rounding errors of g(y)


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """Rows spread evenly over the pool: what the reduced costs will be, before all rows are looked at."""

    rows: Float64Array  # (m, C)
    cost: Float64Array  # (m,)
    size: int  # N

    @classmethod
    def of(cls, program: Program) -> Survey:
        """Look at some rows; at none where the pool is so small that looking at all is as good."""
        size, count = program.rows.size, SURVEY_ELEMENTS // program.rows.classes
        where = np.linspace(0, size - 1, count if count * LEAST_POOL <= size else 0, dtype=np.int64)
        return cls(program.rows.take(where), program.cost.at(where), size)

    def limit(self, y: Float64Array, count: int) -> float:
        """A reduced cost below which there are about `count` rows, or more."""
        rank = count * len(self.cost) // self.size
        if rank >= len(self.cost):
            return np.inf
        return float(np.partition(self.cost - self.rows @ y, rank)[rank])


def evaluate(program: Program, y: Float64Array, *, roughly: bool = False) -> DualPoint:
    """g(y) from one pass over all rows, in float64, less a margin for its rounding errors; roughly, a little less."""
    return _point(program, y, program.rows.priced(program.cost, y, roughly=roughly))


def evaluate_again(program: Program, y: Float64Array, known: DualPoint, limit: float) -> DualPoint:
    """The same from another point: reduced costs above `limit` may be too small, which never makes g too large."""
    point = _point(program, y, program.rows.priced_again(program.cost, y, known.reduced, limit))
    return point if point.theta < limit else evaluate(program, y)


def _point(program: Program, y: Float64Array, reduced: Column) -> DualPoint:
    cheapest, theta = reduced.sum_of_smallest(program.budget)
    bound = newton.target_value(program.ranges, y) + cheapest
    margin = _rounding_margin(program, y, reduced.extent()[0], theta)
    return DualPoint(y, reduced, theta, bound - margin, margin)


def sparse_bound(program: Program, point: DualPoint) -> float:
    """g(y) for every softmax whose largest probabilities are those that a sparse one has kept.

    Where the true P·y is larger by h, a reduced cost is smaller by h: the b smallest of u − P·y − h bound them all.
    """
    cheapest, _ = program.rows.subtract_hidden(point.reduced).sum_of_smallest(program.budget)
    return newton.target_value(program.ranges, point.y) + cheapest - point.margin


def maximise(
    program: Program, effort: Effort, rng: np.random.Generator, warm: Float64Array | None, report: Report = silent
) -> DualPoint:
    """Good duals for the whole pool."""
    y = np.clip(warm, -program.lam, program.lam) if warm is not None else _sampled_duals(program, rng)
    survey, most = Survey.of(program), _most_open(program)
    best = point = evaluate(program, y, roughly=bool(len(survey.cost)))  # for direction only, if it is much work
    size, rough, magnitude = most, True, 0.0
    near = max(2, min(program.rows.size // 4, max(program.budget // 12, program.rows.classes)))
    for turn in range(MOST_ROUNDS):
        part, width = _open_part(program, point, size, rough=rough)
        duals, near = _descend(part, point, near, width)
        rough = duals.at_trust_limit  # far from the optimum yet
        size = most if rough else min(most, max(4_000, 100 * program.rows.classes))
        limit = survey.limit(duals.y, program.budget + AROUND * size)
        point = evaluate_again(program, duals.y, point, limit)
        best = max(best, point, key=lambda p: p.bound)
        magnitude = duals.magnitude
        missing = gap_between(duals.relaxed, best.bound, magnitude, best.margin)
        report(f"dual round {turn + 1}: bound {best.bound:.6g}, relaxation within {missing:.1e}")
        if duals.converged and missing <= LP_SHARE * effort.gap:
            return best
        if effort.expired or near < 2:
            break
    return _polish(program, best, effort, magnitude)


def _sampled_duals(program: Program, rng: np.random.Generator) -> Float64Array:
    """Duals of a small sample of the rows, then of a larger one, budget and target scaled down alike."""
    rows, classes, lam = program.rows, program.rows.classes, program.lam
    most = _most_open(program)
    largest = min(most, max(SAMPLE_ELEMENTS // classes, 10 * classes))
    sizes = sorted({min(largest, max(2_000, 20 * classes)), largest})
    sample = rng.choice(rows.size, largest, replace=False) if most < rows.size else np.arange(rows.size)
    y, theta = np.zeros(classes), None
    for size in sizes[: 1 if most == rows.size else 2]:
        if size == rows.size:  # the part will hold the whole pool: begin there
            break
        chosen, share = np.sort(sample[:size]), size / rows.size
        ranges = Ranges(program.ranges.low * share, program.ranges.high * share)
        budget, none = program.budget * share, np.zeros(classes)
        part = newton.Part(_taken(program, chosen, rough=True), program.cost.at(chosen), budget, none, 0.0, ranges, lam)
        if theta is None:
            theta = float(np.quantile(part.cost, program.budget / rows.size))
        for near in (1.0, 0.25, 0.08) if size == sizes[0] else (0.08, 0.03):
            mu = _width_holding(part.excess(y, theta), int(near * budget), lam, TIED_WIDTH)
            duals = newton.minimise(part, y, theta, mu, tolerance=1e-2 * budget, trust=np.inf)
            y, theta = duals.y, duals.theta
    return y


def _most_open(program: Program) -> int:
    size, classes = program.rows.size, program.rows.classes
    elements = min(max(OPEN_ELEMENTS, size * classes // OPEN_SHARE), 40 * OPEN_ELEMENTS)
    return min(size, max(elements // classes, 10 * classes, 1_000))


def _open_part(program: Program, point: DualPoint, size: int, *, rough: bool = False) -> tuple[newton.Part, float]:
    """The `size` rows nearest to the threshold, and the distance of the farthest of them."""
    distance = point.reduced.distance_from(point.theta)
    chosen = distance.smallest(size)
    width = float(distance.at(chosen).max()) if size < program.rows.size else np.inf
    inside = program.rows.inside(point.reduced, point.theta, program.cost, but=chosen)
    part = newton.Part(
        _taken(program, chosen, rough=rough), program.cost.at(chosen), program.budget - inside.count, inside.total,
        inside.cost, program.ranges, program.lam,
    )  # fmt: skip
    return part, width


def _taken(program: Program, chosen: IntArray, *, rough: bool) -> FloatArray:
    """Rows in float64; in float32 if they are many and rough duals will do: a third of the time and half the memory."""
    many = len(chosen) * program.rows.classes > ROUGH_ELEMENTS
    return program.rows.take_as(np.float32, chosen) if rough and many else program.rows.take(chosen)


def _descend(part: newton.Part, point: DualPoint, near: int, width: float) -> tuple[newton.Duals, int]:
    """Newton with ever less smoothing: μ is the distance of the `near`-th row from the threshold."""
    y, theta = point.y, point.theta
    tolerance = 1e-4 * max(1.0, part.budget / len(y))
    stage = 0
    while True:
        mu = _width_holding(part.excess(y, theta), near, part.lam, TIED_WIDTH / 4**stage)
        duals = newton.minimise(part, y, theta, mu, tolerance=tolerance, trust=0.8 * width)
        if duals.at_trust_limit or near < 2:
            return duals, near
        near, stage = int(near / SHRINK), stage + 1
        if stage == STAGES_PER_ROUND:
            return duals, near
        y, theta = duals.y, duals.theta


def _width_holding(excess: Float64Array, count: int, lam: float, if_tied: float) -> float:
    """Distance from the threshold within which `count` rows lie: the smoothing that suits the scale of the costs.

    Where so many rows lie on the threshold itself their distances say nothing of the scale; then it is a share of λ,
    `if_tied`. A few rows with huge costs must not make all others look tied, so λ limits what "far" means.
    """
    distance = np.abs(excess)
    count = min(max(count, 1), len(distance) - 1)
    width = float(np.partition(distance, count)[count])
    return width if width > TIED * min(float(distance.max()), lam) else if_tied * lam


def _polish(program: Program, point: DualPoint, effort: Effort, magnitude: float) -> DualPoint:
    """Exact duals of the rows near the threshold by HiGHS, where that is small enough to be quick."""
    classes = program.rows.classes
    size = min(program.rows.size, max(500, 10 * classes))
    if size * classes > POLISH_ELEMENTS or effort.expired:
        return point
    for _ in range(4):
        part, _ = _open_part(program, point, size)
        y = exact_duals(part)
        if y is None:
            break
        better = evaluate(program, np.clip(y, -program.lam, program.lam))
        gain = better.bound - point.bound
        if gain > 0:
            point = better
        if gain <= 1e-9 * magnitude:
            break
    return point


def _rounding_margin(program: Program, y: Float64Array, lowest: float, theta: float) -> float:
    """More than float64 can lose in P·y and in the sums, so that the bound stays one.

    Only the b smallest reduced costs are summed, so those above θ, however large, lose nothing.
    """
    products = program.budget * program.rows.classes * float(np.abs(y).max(initial=0.0))
    prices = program.budget * max(abs(lowest), abs(theta))
    sums = 64 * float(np.abs(program.ranges.high * y).sum())
    return 2.3e-16 * (products + 4 * prices + sums)
