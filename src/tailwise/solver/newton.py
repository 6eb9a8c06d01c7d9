"""Smoothed dual Newton: good duals y for a part of the rows, the rest of the pool being folded into sums.

The dual of the relaxed program is  max_{y ∈ [−λ, λ]^C, θ}  h(y) + bθ − Σ_i max(0, x_i)  with x_i = p_i·y + θ − u_i and
h(y) = Σ_k (low_k if y_k > 0 else high_k)·y_k. Here max(0, x) becomes μ·log(1 + e^(x/μ)), which has a Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import entr, expit

from ..matrix.blocks import map_blocks
from ..targets import Ranges
from ..types import BoolArray, Float64Array, FloatArray

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
        x = np.concatenate(self._by_blocks(lambda where: rows[where] @ factors), dtype=np.float64)
        x += theta
        x -= self.cost
        return x

    def expected(self, z: Float64Array) -> Float64Array:
        """Pᵀz with what is fixed inside, (C,): what the batch expects of every class."""
        rows, shares = self.rows, z.astype(self.rows.dtype)
        sums = self._by_blocks(lambda where: rows[where].T @ shares[where])
        total: Float64Array = np.sum(sums, axis=0, dtype=np.float64) + self.inside
        return total

    def _by_blocks(self, work: Callable[[slice], FloatArray]) -> list[FloatArray]:
        """On all cores where there is much to do; float32 is added up over few rows at a time, then in float64."""
        return map_blocks(len(self.rows), PRODUCT_ROWS if self.rows.dtype == np.float32 else len(self.rows), work)


@dataclass(frozen=True, slots=True, eq=False)
class Duals:
    """A dual point of a part, and what the relaxed program can be worth at most, judged from there."""

    y: Float64Array  # (C,)
    theta: float
    relaxed: float
    magnitude: float  # the terms of `relaxed` without their signs, as far as the part knows them
    converged: bool  # near enough to a minimum for `relaxed` to mean something
    at_trust_limit: bool


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


def target_value(ranges: Ranges, y: Float64Array) -> float:
    """h(y): yᵀΩ for point targets; the end of the range that y presses against otherwise.

    >>> target_value(Ranges(np.array([1.0, 1.0]), np.array([3.0, 3.0])), np.array([2.0, -2.0]))
    -4.0
    """
    return float((np.where(y > 0, ranges.low, ranges.high) * y).sum())


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
