"""What every strategy is asked: budget, labelled counts, target; checked once, here, and carried in one value."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from ..balance.target import Ranges, Target
from ..errors import BadInput, PoolExhausted
from ..inputs import per_class, real_number, shown, whole_number
from ..score.softmax import Score
from ..solve.path import Balance, Lam, forced_l1, parse_balance
from ..solve.program import Effort, Program, Report, Solution, silent
from ..solve.reach import shortfalls
from ..solve.shards import Column, Rows
from ..solve.source import scan
from ..types import Float64Array, IntArray, Oracle, Selection


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A checked request for a batch."""

    rows: Rows
    budget: int
    counts: Float64Array  # (C,)
    ranges: Ranges
    own_target: bool = False  # whether the target was given, not the usual one
    gap: float = 1e-4
    time_limit: float | None = None
    seed: int = 0
    report: Report = silent
    oracle: Oracle | None = None  # for strategies that read labels while they pick
    started: float = field(default_factory=time.perf_counter)

    @property
    def effort(self) -> Effort:
        """How hard to try, the clock having started with the task."""
        return Effort.for_gap(self.gap, self.time_limit).since(self.started)

    def program(self, cost: Column, lam: float = 0.0) -> Program:
        """The selection problem for costs u."""
        return Program(self.rows, cost, self.budget, lam, self.ranges)

    def selection(
        self, indices: IntArray, *, informativeness: float, balance: Balance, lam: Lam | float, method: str,
        status: str = "greedy", objective: float | None = None, bound: float = -np.inf, gap: float = np.inf,
        hidden: float = 0.0, places: IntArray | None = None,
    ) -> Selection:  # fmt: skip
        """Assemble the answer; classes out of reach are looked for if balance was asked for, even if λ is then 0."""
        found = lam if isinstance(lam, Lam) else Lam(lam)
        expected = self.rows.total(indices)
        l1 = self.ranges.distance(expected)
        value = found.value * l1 - informativeness if objective is None else objective
        asked = parse_balance(balance) != 0
        unreachable = shortfalls(self.rows, self.budget, self.ranges, expected) if asked else ()
        note = found.note(l1 - forced_l1(self.ranges, self.budget, unreachable), self.budget)
        return Selection(
            indices=indices, objective=value, bound=bound, hidden=hidden,
            gap=gap, status=status, lam=found.value,
            target=self.ranges.low, target_high=self.ranges.high, expected_counts=expected,
            counts_std=np.sqrt(self.rows.variance(indices)),
            informativeness=informativeness, l1=l1, seconds=time.perf_counter() - self.started,
            unreachable=unreachable, method=method, notes=(note,) if note else (),
            places=places,
        )  # fmt: skip

    def certified(
        self, solution: Solution, costs: Column, *, balance: Balance, lam: Lam | float, method: str
    ) -> Selection:
        """The answer from a solution of the program."""
        return self.selection(
            solution.indices, informativeness=-float(costs.at(solution.indices).sum()), balance=balance, lam=lam,
            method=method, status=solution.status, objective=solution.objective, bound=solution.bound, gap=solution.gap,
            hidden=solution.hidden,
        )  # fmt: skip


def make_task(
    rows: Rows, budget: int, *, counts: object = None, target: object = None, score: Score | None = None,
    gap: float = 1e-4, time_limit: float | None = None, seed: int = 0, report: Report | None = None,
    names: tuple[Hashable, ...] | None = None,
) -> tuple[Task, Column]:  # fmt: skip
    """Check a request and price its rows (0 − score, or zeros), in one read of the probabilities.

    `names` are those of the classes, by which counts and target may go.
    """
    size = whole_number(budget, "budget")
    if size > rows.size:
        raise PoolExhausted(
            f"asked for {shown(size)} picks, but only {rows.size} images are unlabelled; lower the budget or add images"
        )
    gap, time_limit = real_number(gap, "gap"), checked_time_limit(time_limit)
    if report is not None and not callable(report):
        raise BadInput(f"report is {shown(report)}; it must be a function that takes a line of text, or None")
    labelled = np.zeros(rows.classes) if counts is None else per_class(counts, "counts", rows.classes, names)
    ranges = _as_target(target).resolve(labelled, size, names)
    task = Task(
        rows, size, labelled, ranges, target is not None, gap, time_limit, whole_number(seed, "seed"), report or silent
    )
    return task, scan(rows, score)


def checked_time_limit(limit: object) -> float | None:
    """Seconds, or None where there is no limit."""
    return None if limit is None else real_number(limit, "time_limit", "a number of seconds ≥ 0, or None", np.inf)


def _as_target(target: object) -> Target:
    if target is None:
        return Target.uniform()
    return target if isinstance(target, Target) else Target.counts(target)  # type: ignore[arg-type] # checked there
