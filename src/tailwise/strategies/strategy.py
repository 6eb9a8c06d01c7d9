"""What a strategy is: the registry, the checked `Task`, the base classes, and the two ways to balance a batch.

A strategy takes predictions and a budget, and declares the arrays it needs (`needs`), so that a learner computes only
those. With balance, a strategy that is a score solves the paper's program (`by_cost`), and one that picks images one
at a time adds Algorithm 2's term to its own (`Imbalance`); λ = 0 is the classical method.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from ..errors import BadInput, PoolExhausted
from ..inputs import (
    LARGEST_SCORE,
    Registry,
    check_settings,
    class_names,
    per_class,
    real_number,
    shown,
    whole_number,
)
from ..matrix.blocks import map_blocks, rows_per_block
from ..matrix.open import Matrix, as_matrix, open_proba
from ..matrix.shards import Column, Rows, rows_on, scan
from ..score import SCORES, Score
from ..selection import Selection
from ..solver.constraints import solve_within
from ..solver.path import (
    Balance,
    ChosenLambda,
    Sweep,
    find_lam,
    forced_l1,
    parse_balance,
    quick_effort,
    score_scale,
    shortfalls,
    spread_of,
)
from ..solver.program import Effort, Groups, Program, Report, Solution, silent
from ..targets import PerClass, Ranges, Target
from ..types import BoolArray, Float64Array, FloatArray, IntArray, Oracle, Predictions

CHECKED_BYTES = 4 << 20  # of embeddings looked at together for NaN and infinity


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
    groups: Groups | None = None  # of the rows, for strategies that are a score
    started: float = field(default_factory=time.perf_counter)

    def program(self, cost: Column, lam: float = 0.0) -> Program:
        """The selection problem for costs u."""
        return Program(self.rows, cost, self.budget, lam, self.ranges, self.groups)

    def find_lam(
        self, balance: Balance, picks_at: Callable[[float], IntArray], costs: Column, *, scale: float,
        spread: float | None = None,
    ) -> ChosenLambda:  # fmt: skip
        """Turn a balance setting into λ for a method whose picks at λ are `picks_at(λ)`; see `solver.path.find_lam`."""
        return find_lam(
            balance, lambda lam: self.ranges.distance(self.rows.total(picks_at(lam))), self.program(costs),
            scale=scale, spread=spread,
        )  # fmt: skip

    def selection(
        self, indices: IntArray, *, informativeness: float, balance: Balance, lam: ChosenLambda | float, method: str,
        status: str = "greedy", objective: float | None = None, bound: float = -np.inf, gap: float = np.inf,
        hidden: float = 0.0, places: IntArray | None = None, scores: Float64Array | None = None,
    ) -> Selection:  # fmt: skip
        """Assemble the answer; classes out of reach are looked for if balance was asked for, even if λ is then 0."""
        found = lam if isinstance(lam, ChosenLambda) else ChosenLambda(lam)
        expected = self.rows.total(indices)
        l1 = self.ranges.distance(expected)
        value = found.value * l1 - informativeness if objective is None else objective
        asked = parse_balance(balance) != 0
        unreachable = shortfalls(self.rows, self.budget, self.ranges, expected) if asked else ()
        likeliest, probabilities = likeliest_two(self.rows, indices)
        note = found.note(l1 - forced_l1(self.ranges, self.budget, unreachable), self.budget)
        return Selection(
            indices=indices, objective=value, bound=bound, hidden=hidden,
            gap=gap, status=status, lam=found.value,
            target=self.ranges.low, target_high=self.ranges.high, expected_counts=expected,
            counts_std=np.sqrt(self.rows.variance(indices)),
            informativeness=informativeness, l1=l1, seconds=time.perf_counter() - self.started,
            unreachable=unreachable, method=method, notes=(note,) if note else (),
            places=places, likeliest=likeliest, probabilities=probabilities, scores=scores,
        )  # fmt: skip

    def certified(
        self, solution: Solution, costs: Column, *, balance: Balance, lam: ChosenLambda | float, method: str
    ) -> Selection:
        """The answer from a solution of the program."""
        scores = 0.0 - costs.at(solution.indices)
        return self.selection(
            solution.indices, informativeness=float(scores.sum()), balance=balance, lam=lam,
            method=method, status=solution.status, objective=solution.objective, bound=solution.bound, gap=solution.gap,
            hidden=solution.hidden, scores=scores,
        )  # fmt: skip


def likeliest_two(rows: Rows, indices: IntArray) -> tuple[IntArray, Float64Array]:
    """The two most probable classes of some rows, the likelier first, and their probabilities, (b, 2) each."""
    classes, values = [np.empty((0, 2), np.int64)], [np.empty((0, 2))]
    for start in range(0, len(indices), LIKELIEST_ROWS):
        proba = rows.take(indices[start : start + LIKELIEST_ROWS])
        first = proba.argmax(axis=1)[:, None]
        largest = np.take_along_axis(proba, first, axis=1)
        np.put_along_axis(proba, first, -1.0, axis=1)
        second = proba.argmax(axis=1)[:, None]
        classes.append(np.hstack([first, second]))
        values.append(np.hstack([largest, np.take_along_axis(proba, second, axis=1)]))
    width = min(2, rows.classes)
    return np.concatenate(classes)[:, :width], np.concatenate(values)[:, :width]


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
    ranges = Target.of(target).resolve(labelled, size, names)
    task = Task(
        rows, size, labelled, ranges, target is not None, gap, time_limit, whole_number(seed, "seed"), report or silent
    )
    return task, scan(rows, score)


def checked_time_limit(limit: object) -> float | None:
    """Seconds, or None where there is no limit."""
    return None if limit is None else real_number(limit, "time_limit", "a number of seconds ≥ 0, or None", np.inf)


class Strategy(Protocol):
    """Picks a batch from predictions."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    reads_labels: ClassVar[bool]

    def select(
        self, predictions: Predictions, budget: int, *, counts: PerClass = None,
        target: Target | PerClass = None, seed: int = 0, report: Callable[[str], None] | None = None,
        oracle: Oracle | None = None,
    ) -> Selection:  # fmt: skip
        """Choose `budget` rows of the pool."""
        ...


LIKELIEST_ROWS = 4_096  # read at a time
STRATEGIES: Registry[type[Strategy]] = Registry("strategy", "tailwise.strategies")
DEFAULT = "boundary"  # where there are embeddings; docs/results/leaderboard says why
WITHOUT_EMBEDDINGS = "base"
Kind = TypeVar("Kind", bound="type[Any]")


def strategy(cls: Kind) -> Kind:
    """Register a strategy under its name."""
    if not hasattr(cls, "__dataclass_fields__"):
        raise BadInput(f"strategy {cls.name!r} must be a dataclass, whose fields are its settings")
    STRATEGIES.register(cls.name)(cls)
    return cls


def make(name: str, **settings: Any) -> Strategy:  # noqa: ANN401 - each strategy names and types its own settings
    """Make a strategy by name.

    >>> make("entropy", balance=0.6)
    Entropy(balance=0.6, gap=0.0001, time_limit=None, engine='local', shards=None)
    """
    kind: Any = STRATEGIES[name]
    check_settings(f"strategy {name!r}", settings, (field.name for field in fields(kind)))
    made: Strategy = kind(**settings)
    return made


def check_reads_no_labels(name: str) -> None:
    """Reject a strategy that reads labels while it picks, where people label a batch once it is complete."""
    if getattr(STRATEGIES[name], "reads_labels", False):  # a strategy from elsewhere may not say
        raise BadInput(
            f"strategy {name!r} reads the label of each pick before it makes the next one, but here a batch is "
            f"labelled only when it is complete; use {name!r} in `tailwise bench`, or take another strategy"
        )


@dataclass(frozen=True, kw_only=True)
class Base(ABC):
    """Settings and checks that every strategy shares."""

    balance: Balance = "auto"
    gap: float = 1e-4
    time_limit: float | None = None
    engine: str = "local"
    shards: int | None = None

    name: ClassVar[str]
    title: ClassVar[str]
    """The display name in reports."""
    rank: ClassVar[int] = 100
    """The position in reports; strategies of equal rank follow each other by name."""
    classical: ClassVar[str] = ""
    """The name of the strategy that this one is at λ = 0; "": itself."""
    needs: ClassVar[tuple[str, ...]] = ("proba",)
    reads_labels: ClassVar[bool] = False
    """Whether it asks an oracle for the labels of picks before the batch is complete."""
    softmax_score: ClassVar[str | None] = None
    """The name of a score, computed in the one read that checks the probabilities."""

    def __post_init__(self) -> None:
        parse_balance(self.balance)
        real_number(self.gap, "gap")
        checked_time_limit(self.time_limit)

    def select(
        self, predictions: Predictions, budget: int, *, counts: PerClass = None,
        target: Target | PerClass = None, seed: int = 0, report: Callable[[str], None] | None = None,
        oracle: Oracle | None = None, groups: Groups | None = None,
    ) -> Selection:  # fmt: skip
        """Choose `budget` rows of the pool; `counts` and `target` are those of `tailwise.select`.

        `groups` limit the picks further, where the strategy is a score (`tailwise.select` does it for any other).
        `oracle` gives the true classes of rows; only a strategy with `reads_labels` calls it, for its picks alone.
        """
        self._check_needs(predictions)
        self._check_oracle(oracle)
        score = SCORES[self.softmax_score] if self.softmax_score else None
        with rows_on(open_proba(predictions.proba), self.engine, self.shards) as rows:
            task, costs = make_task(
                rows, budget, counts=counts, target=target, score=score,
                gap=self.gap, time_limit=self.time_limit, seed=seed, report=report,
                names=class_names(predictions.proba),
            )  # fmt: skip
            return self.choose(replace(task, oracle=oracle, groups=groups), predictions, costs)

    @abstractmethod
    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """The method itself, on checked input; `costs` are 0 − `softmax_score`, zeros without one."""

    def _check_needs(self, predictions: Predictions) -> None:
        if not isinstance(predictions, Predictions):
            raise BadInput(f"predictions is {shown(predictions)}; give tailwise.Predictions(proba, …)")
        for need in self.needs:
            if getattr(predictions, need) is None:
                raise BadInput(f"strategy {self.name!r} needs predictions.{need}, which is missing")

    def _check_oracle(self, oracle: object) -> None:
        if self.reads_labels and not callable(oracle):
            raise BadInput(
                f"strategy {self.name!r} reads the label of each pick before it makes the next one, but oracle is "
                f"{shown(oracle)}; give oracle=, a function from pool rows to their classes, or run `tailwise bench`"
            )


@dataclass(frozen=True, kw_only=True)
class ScoreStrategy(Base):
    """A strategy that is a score: the program of the paper with u = −score."""

    scale: ClassVar[float | None] = None
    """What λ = 1 means relative to entropy; None: judged by the spread of the scores."""

    def keeps_groups(self, _groups: Groups) -> bool:
        """`choose` keeps to any groups, with a bound on all batches that do: they are part of the program."""
        return True

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """Score, then solve."""
        scores = self.scores(task, predictions)
        if scores is not None:
            costs = task.rows.hold(0.0 - scores)  # no −0.0
        scale = self.scale or score_scale(costs, task.budget)
        return by_cost(task, costs, self.balance, scale=scale, method=self.name)

    def scores(self, _task: Task, _predictions: Predictions) -> Float64Array | None:
        """One number per row, larger = more wanted, (N,); None where `softmax_score` has said it all."""
        return None


def by_cost(task: Task, costs: Column, balance: Balance, *, scale: float, method: str) -> Selection:
    """The program of the paper with u = −score; λ = 0 is the classical top-b.

    `scale` is what λ = 1 means relative to entropy.
    """
    program, setting = task.program(costs), parse_balance(balance)
    effort = Effort.for_gap(task.gap, task.time_limit, task.started)  # the clock started with the task
    # A wish is judged by the very solves that make the batch, so that it holds; the paper's rule needs no such care.
    by_rule = setting == "paper"
    sweep = Sweep(program, quick_effort(task.time_limit) if by_rule else effort, task.seed, task.report)
    spread = spread_of(costs, task.budget) if setting == "auto" else None
    lam = find_lam(balance, sweep.l1_at, program, scale=scale, spread=spread)
    solution = sweep.found.get(lam.value) if not by_rule else None
    if solution is None:
        warm = sweep.nearest_duals(lam.value)
        solution = solve_within(program.at(lam.value), effort, seed=task.seed, warm=warm, report=task.report)
    return task.certified(solution, costs, balance=balance, lam=lam, method=method)


# -- strategies that pick one image at a time -------------------------------------------------------------------------


def added_distance(ranges: Ranges, expected: Float64Array, rows: FloatArray) -> Float64Array:
    """dist(expected + p, [low, high]) − dist(expected, [low, high]) for rows p (n, C), (n,).

    >>> point = Ranges(np.array([1.0, 1.0]), np.array([1.0, 1.0]))
    >>> added_distance(point, np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, -1.0]
    """
    from scipy.spatial.distance import cdist

    low, high = ranges.low - expected, ranges.high - expected
    total = cdist(low[None], rows, "cityblock")[0]
    if (low < high).any():  # dist = ½|s − low| + ½|s − high| − ½(high − low)
        total = (total + cdist(high[None], rows, "cityblock")[0] - (high - low).sum()) / 2
    added: Float64Array = total - ranges.distance(expected)
    return added


class Imbalance:
    """λ·dist(Pᵀz, [low, high]) of a batch that grows, Algorithm 2's term.

    Each class's part of the distance is convex in its expected count, and counts only rise, so what an image would add
    never falls while others are picked: an outdated number is a lower bound.
    """

    def __init__(self, rows: Rows, ranges: Ranges, lam: float) -> None:
        self.rows, self.ranges, self.lam = rows, ranges, lam
        self.expected = np.zeros(rows.classes)  # Pᵀz

    def added(self, rows: FloatArray) -> Float64Array:
        """What each row of probabilities (n, C) would add, (n,); zeros where λ = 0."""
        if self.lam == 0:
            return np.zeros(len(rows))
        return self.lam * added_distance(self.ranges, self.expected, rows)

    def add(self, row: int) -> None:
        """Count a row of the pool as picked."""
        if self.lam:
            self.expected += self.rows.take(np.array([row]))[0]


def tilted(weights: Float64Array, open_: BoolArray, imbalance: Imbalance) -> Float64Array:
    """Weights (N,) times exp(−what each row adds to the imbalance), 0 for closed rows, the largest one 1.

    For methods that draw images: λ = 0 is the method as published, and a large λ leaves only images that bring the
    batch nearest to its target. Where no open row has a weight, all have the same.
    """
    usable = np.where(open_, weights, 0.0)
    if not usable.any():
        usable = open_.astype(np.float64)
    if imbalance.lam == 0:
        return np.asarray(usable / usable.max())
    rows = imbalance.rows
    parts = map_blocks(rows.size, rows_per_block(rows.classes), lambda where: imbalance.added(rows.read(where)))
    with np.errstate(divide="ignore"):  # log 0 = −inf: never drawn
        logs = np.log(usable) - np.concatenate(parts)
    return np.asarray(np.exp(logs - logs.max()))


def draw(weights: Float64Array, rng: np.random.Generator) -> int:
    """A row in proportion to its weight, by one random number and the cumulative sum.

    >>> draw(np.array([0.0, 2.0, 0.0]), np.random.default_rng(0))
    1
    """
    reached = weights.cumsum()
    place = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
    return min(place, int(np.flatnonzero(weights)[-1]))  # rounding may reach beyond the last


def chance_scale(size: int) -> float:
    """The λ at which an image that adds one sample to the imbalance is drawn a pool's size less often: log N.

    >>> f"{chance_scale(1_000):.2f}"
    '6.91'
    """
    return max(1.0, float(np.log(max(size, 1))))


# -- embeddings -------------------------------------------------------------------------------------------------------


def both_embeddings(task: Task, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Pool (N, d) and labelled (L, d) embeddings, in memory, checked."""
    pool, labelled = both_matrices(task, predictions)
    return np.asarray(pool), np.asarray(labelled)


def both_matrices(task: Task, predictions: Predictions) -> tuple[Matrix, Matrix]:
    """Pool (N, d) and labelled (L, d) embeddings where they are, in memory or in files, checked block by block."""
    pool = checked_matrix(predictions.embeddings, "embeddings", task.rows.size)
    labelled = checked_matrix(predictions.labelled_embeddings, "labelled_embeddings", None)
    if pool.shape[1] != labelled.shape[1]:
        raise BadInput(f"embeddings have {pool.shape[1]} features, but labelled_embeddings have {labelled.shape[1]}")
    return pool, labelled


def checked_matrix(given: object, name: str, rows: int | None) -> Matrix:
    """A finite float matrix with one row per image; no more than a block per core is read at a time."""
    matrix = as_matrix(given, name)
    shape, dtype = tuple(matrix.shape), np.dtype(matrix.dtype)
    if len(shape) != 2 or not np.issubdtype(dtype, np.floating):
        raise BadInput(f"{name} must be a float matrix (images × features), but is {dtype} {shape}")
    if rows is not None and shape[0] != rows:
        raise BadInput(f"{name} has {shape[0]} rows, but the probabilities have {rows}")

    def first_bad(where: slice) -> int | None:
        block = matrix[where]
        good = np.isfinite(block)
        if dtype == np.float64:  # others cannot hold more
            good &= np.abs(block) <= LARGEST_SCORE
        bad = ~good.all(axis=1)
        return where.start + int(bad.argmax()) if bad.any() else None

    found = map_blocks(shape[0], max(1, CHECKED_BYTES // max(1, shape[1] * dtype.itemsize)), first_bad)
    if (bad := next((row for row in found if row is not None), None)) is not None:
        finite = np.isfinite(matrix[bad : bad + 1]).all()
        held = f"a number beyond ±{LARGEST_SCORE:g}" if finite else "NaN or infinity"
        raise BadInput(f"{name} holds {held} in row {bad}")
    return matrix
