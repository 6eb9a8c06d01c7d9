"""The dual bound: any y ∈ [−λ, λ]^C gives  g(y) = h(y) + (sum of the b smallest entries of u − P·y)  ≤ every objective.

`evaluate` computes g in float64 over all rows; `maximise` looks for a y that makes it as large as possible: first on
samples of the rows, then on the rows near the threshold, with a full pass after each round. On such a part of the rows
`minimise` takes Newton steps on the smoothed dual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import entr, expit

from ..matrix.blocks import map_blocks
from ..matrix.shards import Column
from ..targets import Ranges
from ..types import BoolArray, Float64Array, FloatArray, IntArray, gap_between
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


def evaluate(
    program: Program, y: Float64Array, *, roughly: bool = False, known: DualPoint | None = None, limit: float = np.inf
) -> DualPoint:
    """g(y) from one pass over all rows, in float64, less a margin for its rounding errors; roughly, a little less.

    From a `known` point it is faster: reduced costs above `limit` may then be too small, which never makes g too large.
    """
    if known is None:
        reduced = program.rows.priced(program.cost, y, roughly=roughly)
    else:
        reduced = program.rows.priced_again(program.cost, y, known.reduced, limit)
    cheapest, theta = reduced.sum_of_smallest(program.budget)
    if known is not None and theta >= limit:
        return evaluate(program, y)
    margin = rounding_margin(program, y, reduced.extent()[0], theta)
    return DualPoint(y, reduced, theta, target_value(program.ranges, y) + cheapest - margin, margin)


def target_value(ranges: Ranges, y: Float64Array) -> float:
    """h(y): yᵀΩ for point targets; the end of the range that y presses against otherwise.

    >>> target_value(Ranges(np.array([1.0, 1.0]), np.array([3.0, 3.0])), np.array([2.0, -2.0]))
    -4.0
    """
    return float((np.where(y > 0, ranges.low, ranges.high) * y).sum())


def rounding_margin(program: Program, y: Float64Array, lowest: float, theta: float) -> float:
    """More than float64 can lose in P·y and in the sums, so that the bound stays one.

    Only the b smallest reduced costs are summed, so those above θ, however large, lose nothing.
    """
    products = program.budget * program.rows.classes * float(np.abs(y).max(initial=0.0))
    prices = program.budget * max(abs(lowest), abs(theta))
    sums = 64 * float(np.abs(program.ranges.high * y).sum())
    return 2.3e-16 * (products + 4 * prices + sums)


def sparse_bound(program: Program, point: DualPoint) -> float:
    """g(y) for every softmax whose largest probabilities are those that a sparse one has kept.

    Where the true P·y is larger by h, a reduced cost is smaller by h: the b smallest of u − P·y − h bound them all.
    """
    cheapest, _ = program.rows.subtract_hidden(point.reduced).sum_of_smallest(program.budget)
    return target_value(program.ranges, point.y) + cheapest - point.margin


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
        point = evaluate(program, duals.y, known=point, limit=limit)
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
        part = Part(_taken(program, chosen, rough=True), program.cost.at(chosen), budget, none, 0.0, ranges, lam)
        if theta is None:
            theta = float(np.quantile(part.cost, program.budget / rows.size))
        for near in (1.0, 0.25, 0.08) if size == sizes[0] else (0.08, 0.03):
            mu = _width_holding(part.excess(y, theta), int(near * budget), lam, TIED_WIDTH)
            duals = minimise(part, y, theta, mu, tolerance=1e-2 * budget, trust=np.inf)
            y, theta = duals.y, duals.theta
    return y


def _most_open(program: Program) -> int:
    size, classes = program.rows.size, program.rows.classes
    elements = min(max(OPEN_ELEMENTS, size * classes // OPEN_SHARE), 40 * OPEN_ELEMENTS)
    return min(size, max(elements // classes, 10 * classes, 1_000))


def _open_part(program: Program, point: DualPoint, size: int, *, rough: bool = False) -> tuple[Part, float]:
    """The `size` rows nearest to the threshold, and the distance of the farthest of them."""
    distance = point.reduced.distance_from(point.theta)
    chosen = distance.smallest(size)
    width = float(distance.at(chosen).max()) if size < program.rows.size else np.inf
    inside = program.rows.inside(point.reduced, point.theta, program.cost, but=chosen)
    part = Part(
        _taken(program, chosen, rough=rough), program.cost.at(chosen), program.budget - inside.count, inside.total,
        inside.cost, program.ranges, program.lam,
    )  # fmt: skip
    return part, width


def _taken(program: Program, chosen: IntArray, *, rough: bool) -> FloatArray:
    """Rows in float64; in float32 if they are many and rough duals will do: a third of the time and half the memory."""
    many = len(chosen) * program.rows.classes > ROUGH_ELEMENTS
    return program.rows.take_as(np.float32, chosen) if rough and many else program.rows.take(chosen)


def _descend(part: Part, point: DualPoint, near: int, width: float) -> tuple[Duals, int]:
    """Newton with ever less smoothing: μ is the distance of the `near`-th row from the threshold."""
    y, theta = point.y, point.theta
    tolerance = 1e-4 * max(1.0, part.budget / len(y))
    stage = 0
    while True:
        mu = _width_holding(part.excess(y, theta), near, part.lam, TIED_WIDTH / 4**stage)
        duals = minimise(part, y, theta, mu, tolerance=tolerance, trust=0.8 * width)
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


# -- Newton steps on a part of the rows ------------------------------------------------------------------------------

# The dual of the relaxed program is  max_{y ∈ [−λ, λ]^C, θ}  h(y) + bθ − Σ_i max(0, x_i)  with x_i = p_i·y + θ − u_i.
# Here max(0, x) becomes μ·log(1 + e^(x/μ)), which has a Hessian; the rest of the pool is folded into sums.

GRAM_ROWS = 4096
PRODUCT_ROWS = 1 << 13
HESSIAN_ROWS = 40  # per dual
MOST_STEPS = 25
MOST_HALVINGS = 15
ROUGHLY = 1e-3  # of the budget: a larger gradient means that no minimum was reached
LONGEST = 30.0  # in units of μ
SINGLE_NOISE = 1e-9  # of the value: what is lost where rows are in float32


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Open rows, and what the rows fixed inside the batch add up to."""

    rows: FloatArray  # (m, C), in float32 where rough duals will do
    cost: Float64Array  # (m,)
    budget: float  # picks left for the open rows
    inside: Float64Array  # (C,) sum of the rows fixed inside
    inside_cost: float
    ranges: Ranges
    lam: float

    def excess(self, y: Float64Array, theta: float) -> Float64Array:
        """x = P·y + θ − u, (m,): positive = wanted at these duals."""
        rows, factors = self.rows, y.astype(self.rows.dtype)
        # float32 is added up over few rows at a time, on all cores, and then in float64
        step = PRODUCT_ROWS if rows.dtype == np.float32 else len(rows)
        x = np.concatenate(map_blocks(len(rows), step, lambda where: rows[where] @ factors), dtype=np.float64)
        x += theta
        x -= self.cost
        return x

    def expected(self, z: Float64Array) -> Float64Array:
        """Pᵀz with what is fixed inside, (C,): what the batch expects of every class."""
        rows, shares = self.rows, z.astype(self.rows.dtype)
        step = PRODUCT_ROWS if rows.dtype == np.float32 else len(rows)  # as above
        sums = map_blocks(len(rows), step, lambda where: rows[where].T @ shares[where])
        total: Float64Array = np.sum(sums, axis=0, dtype=np.float64) + self.inside
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Duals:
    """A dual point of a part, and what the relaxed program can be worth at most, judged from there."""

    y: Float64Array  # (C,)
    theta: float
    relaxed: float
    magnitude: float  # the terms of `relaxed` without their signs, as far as the part knows them
    converged: bool  # near enough to a minimum for `relaxed` to mean something
    at_trust_limit: bool


def minimise(part: Part, y: Float64Array, theta: float, mu: float, *, tolerance: float, trust: float) -> Duals:
    """Minimise F(y, θ) = Σ μ·softplus(x_i/μ) + insideᵀy − bθ − h(y) over the box by projected Newton steps.

    Stops when the projected gradient is below `tolerance`, when a step promises less than rounding would hide, or once
    some x_i has moved by `trust`: beyond that the rows left out of the part may matter.
    """
    x, value = _value(part, y, theta, mu)
    origin, noise = x, SINGLE_NOISE * abs(value) if part.rows.dtype == np.float32 else 0.0
    for _ in range(MOST_STEPS):
        z = expit(x / mu)
        gradient, lower, upper, free = _face(part, y, part.expected(z))
        theta_gradient = float(z.sum()) - part.budget
        if np.abs(gradient[free]).sum() + abs(theta_gradient) < tolerance:
            break
        slope = np.append(gradient[free], theta_gradient)
        hessian = _hessian(part.rows, z * (1 - z), free, mu)
        # Where no row near the threshold fixes a dual the Hessian is flat; this keeps such a dual within a few μ.
        hessian[np.diag_indices_from(hessian)] += np.abs(slope).max() / (LONGEST * mu)
        step = -np.linalg.solve(hessian, slope)
        if -(slope @ step) < noise:
            break
        length, limited = 1.0, False
        for _ in range(MOST_HALVINGS):
            new_y = y.copy()
            new_y[free] = np.clip(y[free] + length * step[:-1], lower[free], upper[free])
            new_theta = theta + length * float(step[-1])
            new_x, new_value = _value(part, new_y, new_theta, mu)
            too_far = bool(np.abs(new_x - origin).max() > trust)
            descent = slope[:-1] @ (new_y - y)[free] + theta_gradient * (new_theta - theta)
            if not too_far and new_value <= value + 1e-4 * descent + max(noise, 1e-13 * abs(value)):
                break
            limited |= too_far
            length *= 0.5
        else:
            return _duals(part, y, theta, mu, at_trust_limit=limited)
        y, theta, x, value = new_y, new_theta, new_x, new_value
        if limited:
            return _duals(part, y, theta, mu, at_trust_limit=True)
    return _duals(part, y, theta, mu)


def _duals(part: Part, y: Float64Array, theta: float, mu: float, *, at_trust_limit: bool = False) -> Duals:
    """At a minimum, −F + μ·ΣH(z_i) is the objective of the fractional z = σ(x/μ), and so above the relaxed optimum."""
    x, value = _value(part, y, theta, mu)
    z = expit(x / mu)
    relaxed = part.inside_cost - value + mu * float((entr(z) + entr(1 - z)).sum())
    expected = part.expected(z)
    magnitude = abs(part.inside_cost) + float(np.abs(part.cost) @ z) + part.lam * part.ranges.distance(expected)
    gradient, _, _, free = _face(part, y, expected)
    left = np.abs(gradient[free]).sum() + abs(float(z.sum()) - part.budget)
    return Duals(y, theta, relaxed, magnitude, bool(left <= ROUGHLY * max(1.0, part.budget)), at_trust_limit)


def _value(part: Part, y: Float64Array, theta: float, mu: float) -> tuple[Float64Array, float]:
    x = part.excess(y, theta)
    softplus = np.abs(x)
    softplus *= -1.0 / mu
    np.exp(softplus, out=softplus)
    np.log1p(softplus, out=softplus)
    wanted = mu * float(softplus.sum()) + float(np.maximum(x, 0.0).sum())
    return x, wanted + float(part.inside @ y) - part.budget * theta - target_value(part.ranges, y)


def _face(
    part: Part, y: Float64Array, expected: Float64Array
) -> tuple[Float64Array, Float64Array, Float64Array, BoolArray]:
    """Gradient in y, the box [lower, upper] on which h is linear, and which y may move: a range has a kink at y = 0.

    Where y_k sits on the kink and neither side descends, the box shrinks to {0}.
    """
    low, high = part.ranges.low, part.ranges.high
    if_up, if_down = expected - low, expected - high  # ∂F/∂y for y > 0 and for y < 0
    up = (y > 0) | ((y == 0) & (if_up < 0))
    down = ~up & ((y < 0) | (if_down > 0))
    gradient = np.where(up, if_up, np.where(down, if_down, 0.0))
    kink = low < high
    lower = np.where(kink & ~down, 0.0, -part.lam)
    upper = np.where(kink & ~up, 0.0, part.lam)
    free = (lower < upper) & ~((y <= lower) & (gradient > 0)) & ~((y >= upper) & (gradient < 0))
    return gradient, lower, upper, free


def _hessian(rows: FloatArray, weights: Float64Array, free: BoolArray, mu: float) -> Float64Array:
    """(1/μ)·Σ w_i [p_i, 1][p_i, 1]ᵀ over the free classes and θ, (k+1, k+1), lifted a little off singularity."""
    near = np.flatnonzero(weights > 1e-6)
    size = int(free.sum()) + 1
    stride = max(1, len(near) // (HESSIAN_ROWS * size))  # enough rows for a good direction; the gradient has all
    near = near[::stride]
    hessian = np.zeros((size, size))
    for start in range(0, len(near), GRAM_ROWS):
        part = near[start : start + GRAM_ROWS]
        block = np.ones((len(part), size))
        block[:, :-1] = rows[part][:, free]
        hessian += block.T @ (block * weights[part, None])
    hessian *= stride / mu
    hessian[np.diag_indices(size)] += 1e-7 * np.trace(hessian) / size + 1e-12 / mu
    return hessian
