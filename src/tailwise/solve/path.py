"""Choosing λ: solve along a sweep, and apply a rule to how the l1 loss falls (PAPER §6).

In exact solutions the l1 loss never rises with λ, so the smallest λ that meets a rule is found by bisection.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from ..errors import TargetUnreachable
from ..inputs import real_number
from ..types import Float64Array
from .program import Effort, Program, Report, Solution, silent
from .solver import solve

Balance: TypeAlias = "float | str"
"""λ ≥ 0, "auto" (the paper's rule), or a wish such as "within 5%"."""

GRID_STEPS = 30
GRID_END = 3.0  # the paper sweeps λ over (0, 3] with entropy scores
WISH_END = 30.0
WISH_STEPS = 12
RULE_SHARE = 0.01
WISH = re.compile(r"^\s*within\s+(\d+(?:\.\d+)?)\s*%\s*$")


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Solves one program at many λ, each once, starting from the duals of the nearest λ solved before."""

    program: Program
    effort: Effort
    seed: int
    report: Report = silent
    found: dict[float, Solution] = field(default_factory=dict)

    def at(self, lam: float) -> Solution:
        """The solution at one λ."""
        if lam not in self.found:
            program, warm = self.program.at(lam), self.nearest_duals(lam)
            self.found[lam] = solve(program, self.effort, seed=self.seed, warm=warm)
            self.report(f"λ = {lam:.4g}: l1 {self.l1_at(lam):.4g}")
        return self.found[lam]

    def l1_at(self, lam: float) -> float:
        """Distance of the expected counts from the target at one λ."""
        return self.program.ranges.distance(self.program.rows.total(self.at(lam).indices))

    def nearest_duals(self, lam: float) -> Float64Array | None:
        """Duals of the nearest λ > 0 that is solved; None where there is none."""
        solved = [other for other in self.found if other > 0]
        return self.found[min(solved, key=lambda other: abs(other - lam))].duals if solved else None


def quick_effort(time_limit: float | None = None) -> Effort:
    """Enough for a rule: a gap of 1e-3, and a short search where swaps alone do not reach it."""
    return Effort(gap=1e-3, time_limit=time_limit, restarts=2, kicks=0, nodes=0)


def paper_grid(scale: float) -> Float64Array:
    """λ over (0, 3], times the scale of the scores."""
    return scale * GRID_END * np.arange(1, GRID_STEPS + 1) / GRID_STEPS


def rule_threshold(loss_at_zero: float, least_loss: float) -> float:
    """L1_min + 1 %·(L1(0) − L1_min): at or below it the l1 loss counts as having stopped falling."""
    return least_loss + RULE_SHARE * max(0.0, loss_at_zero - least_loss)


def auto_lam(l1_at: Callable[[float], float], grid: Float64Array, program: Program) -> float:
    """The λ of "auto" on an ascending grid, λ > 0; 0 where there is nothing to balance.

    This is the one place that decides: `select`, `balance_path` and the strategies all ask here.
    """
    return settled_lam(l1_at, grid) if len(grid) and program.steerable else 0.0


def settled_lam(l1_at: Callable[[float], float], grid: Float64Array) -> float:
    """The paper's rule: the smallest λ on the grid after which the l1 loss no longer falls, to 1 %; by bisection.

    Solved to a gap, l1 can rise a little from one λ to the next. Bisection then ends at a λ that meets the limit, while
    the last one below it that was looked at does not.

    >>> settled_lam(lambda lam: max(0.0, 1.0 - lam), paper_grid(1.0))
    1.0
    """
    limit = rule_threshold(l1_at(0.0), l1_at(float(grid[-1])))
    low, high = -1, len(grid) - 1  # the loss at grid[high] meets the limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if l1_at(float(grid[middle])) <= limit else (middle, high)
    return float(grid[high])


def wished_lam(
    l1_at: Callable[[float], float], scale: float, allowed: float, describe: Callable[[float], str]
) -> float:
    """The smallest λ (to 2 %) whose l1 loss is at most `allowed`; an error with numbers where none is.

    >>> f"{wished_lam(lambda lam: 1.0 / (1.0 + lam), 1.0, 0.5, str):.1f}"
    '1.0'
    """
    if l1_at(0.0) <= allowed:
        return 0.0
    low, high = 0.0, WISH_END * scale
    least = l1_at(high)
    if least > allowed:
        raise TargetUnreachable(describe(least))
    for _ in range(WISH_STEPS):
        middle = (low + high) / 2 if low else high / 4
        low, high = (low, middle) if l1_at(middle) <= allowed else (middle, high)
        if low and high / low < 1.02:
            break
    return high


def parse_balance(balance: Balance) -> float | str:
    """λ as a number, or the words of a rule or a wish, checked."""
    if isinstance(balance, str):
        text = balance.strip()
        if text == "auto" or WISH.match(text):
            return text
        with suppress(ValueError):  # it is rejected below, as it was given
            balance = float(text)
    return real_number(balance, "balance", "a number ≥ 0, 'auto', or a wish such as 'within 5%'")


def find_lam(balance: Balance, l1_at: Callable[[float], float], scale: float, program: Program) -> float:
    """Turn a balance setting into λ."""
    setting = parse_balance(balance)
    if isinstance(setting, float):
        return setting
    if setting == "auto":
        return auto_lam(l1_at, paper_grid(scale), program)
    if not program.steerable:
        return 0.0
    wish = WISH.match(setting)
    assert wish is not None  # parse_balance let it through
    share = float(wish[1]) / 100
    forced = unavoidable_l1(program)

    def describe(least: float) -> str:
        closest = 100 * (least - forced) / program.budget
        return (
            f"asked for expected counts {setting} of the target, but the closest batch is {closest:.1f} % away; "
            f"wish for 'within {np.ceil(closest):.0f}%' or change the target"
        )

    return wished_lam(l1_at, scale, forced + share * program.budget, describe)


def unavoidable_l1(program: Program) -> float:
    """The l1 distance that the budget alone forces: the target may ask for more, or for less, than b in all."""
    low, high = float(program.ranges.low.sum()), float(program.ranges.high.sum())
    return max(0.0, low - program.budget, program.budget - high)
