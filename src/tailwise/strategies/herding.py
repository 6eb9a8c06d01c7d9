"""MaxHerding, UHerding and Refine: images that represent the pool best, picked greedily, with a certificate.

    F(S) = Σ_n w_n · max over j in L ∪ S of k(n, j),   k(n, j) = exp(−‖x_n − x_j‖² / s²),   Σ w = 1,  rows x of length 1

MaxHerding (Bae, Noh and Sutherland 2024) weighs all images equally. UHerding (Bae, Oliveira and Sutherland 2025) weighs
them by u = 1 − margin of the softmax, tempered if asked for; without labels u = 1. Refine (Huseljic et al. 2026) lets
several strategies propose batches, and UHerding pick from their union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import real_number, shown, whole_number
from ..matrix.blocks import map_blocks, rows_per_block
from ..matrix.shards import Column
from ..score import margin
from ..selection import Selection
from ..softmax import with_temperature
from ..solver.path import ChosenLambda, forced_l1, quick_effort
from ..solver.solver import lower_bound
from ..targets import Target
from ..types import Float64Array, FloatArray, IntArray, Predictions, gap_between
from .coverage import Candidates, Coverage, Float32Array, Herd, herd, kernel_width, sample_references, unit_rows
from .coverage_bound import Ceiling, lowest_ceilings
from .strategy import STRATEGIES, Base, Imbalance, Task, both_embeddings, make, strategy

WIDTHS = ("median", "smallest")
LEAST_WIDTH = 0.001  # distances between rows of length 1 in float32 are not more exact than that
WIDTH_ROWS = 20_000  # labelled images whose distances set the width; of more, so many that are spread evenly


@strategy
@dataclass(frozen=True, kw_only=True)
class MaxHerding(Base):
    """Images that represent the pool best, next to those that are labelled; with a bound on what any batch can reach.

    Costs two passes of N·references·d products, and a small part of one for each pick; no N × N matrix is made.
    """

    width: str | float = "median"
    """Width s of the kernel: "median" of the distances between a labelled image and its nearest one, the "smallest" of
    them as published, or a distance between rows of length 1. With fewer than two labels, pool images stand in."""
    references: int = 4_000
    """Images that stand for the pool. A pool of up to so many is represented whole, as published; of a larger one, so
    many are drawn in proportion to their weights."""

    name: ClassVar[str] = "maxherding"
    title: ClassVar[str] = "MaxHerding"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.references, "references", least=1)
        wanted = f"'median', 'smallest' or a number ≥ {LEAST_WIDTH}"
        known = (
            self.width in WIDTHS
            if isinstance(self.width, str)
            else real_number(self.width, "width", wanted) >= LEAST_WIDTH
        )
        if not known:
            raise BadInput(f"width is {shown(self.width)}; it must be {wanted}")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """Greedy picks, each weighing its gain against Algorithm 2's term; `informativeness` is F of the batch."""
        embedded, labelled = (unit_rows(rows) for rows in both_embeddings(task, predictions))
        start = self._coverage(task, embedded, labelled, self.weights(task, costs, labelled=len(labelled)))
        kept = Candidates(start, embedded).keep()

        @cache
        def pick(lam: float) -> Herd:
            coverage = replace(start, covered=start.covered.copy())
            imbalance = Imbalance(task.rows, task.ranges, lam) if lam else None
            return herd(coverage, embedded, task.budget, imbalance, kept=kept)

        # λ weighs samples against gains: the mean gain of a pick is its natural unit.
        scale = _typical(pick(0.0)) if isinstance(self.balance, str) else 1.0
        lam = task.find_lam(self.balance, lambda lam: pick(lam).indices, costs, scale=scale)
        return self._certified(task, pick(lam.value), lam)

    def weights(self, task: Task, _costs: Column, *, labelled: int) -> Float64Array:  # noqa: ARG002 - UHerding reads it
        """How much each image of the pool counts, (N,)."""
        return np.ones(task.rows.size)

    def _coverage(self, task: Task, pool: Float32Array, labelled: Float32Array, weights: Float64Array) -> Coverage:
        if not len(pool):
            return Coverage.of(pool, np.empty(0), labelled, 1.0)
        rows, shares = sample_references(weights, self.references, np.random.default_rng(task.seed))
        references = pool[rows]
        task.report(f"{self.name}: {len(rows)} of {len(pool)} images stand for the pool")
        return Coverage.of(references, shares, labelled, self._squared_width(labelled, references))

    def _squared_width(self, labelled: Float32Array, references: Float32Array) -> float:
        if not isinstance(self.width, str):
            return float(self.width) ** 2
        rows = labelled if len(labelled) > 1 else references
        if len(rows) > WIDTH_ROWS:
            rows = rows[np.linspace(0, len(rows) - 1, WIDTH_ROWS).astype(np.int64)]
        return kernel_width(rows, smallest=self.width == "smallest")

    def _certified(self, task: Task, found: Herd, chosen: ChosenLambda) -> Selection:
        lam = chosen.value
        objective = lam * task.ranges.distance(task.rows.total(found.indices)) - found.value
        ceilings = lowest_ceilings(found, task.gap)
        lowest = min(1.0, ceilings[0].of(task.budget))
        bound = min(-lowest if lam == 0 else balanced_bound(task, ceilings, lam), objective)
        hidden = task.program(task.rows.hold(-ceilings[0].gains), lam).hidden_distance(found.indices)
        gap = gap_between(objective + hidden, bound, objective + 2 * found.value)  # F + λ·l1
        return task.selection(
            found.indices, informativeness=found.value, balance=self.balance, lam=chosen, method=self.name,
            objective=objective, bound=bound, gap=gap, hidden=hidden,
        )  # fmt: skip


def balanced_bound(task: Task, ceilings: Sequence[Ceiling], lam: float) -> float:
    """No batch S has a smaller −F(S) + λ·‖Ω − Pᵀz‖₁.

    F(S) ≤ base + Σ_{j ∈ S} gains_j (see `coverage_bound`), so every batch costs at least
    −base + min_z uᵀz + λ·‖Ω − Pᵀz‖₁ with u = −gains: the paper's program, bounded by its dual. F ≤ 1, with the distance
    that the budget forces, is another bound.
    """
    effort = quick_effort(task.time_limit)
    bounds = [lam * forced_l1(task.ranges, task.budget) - 1.0]
    for one in ceilings:
        program = task.program(task.rows.hold(0.0 - one.gains), lam)
        bounds.append(lower_bound(program, effort, seed=task.seed) - one.base)
    return max(bounds)


def _typical(found: Herd) -> float:
    mean = float(found.gains.mean()) if len(found.gains) else 0.0
    return mean if mean > 0 else 1.0


@strategy
@dataclass(frozen=True, kw_only=True)
class UHerding(MaxHerding):
    """Images that represent best what the model is uncertain of; with a bound on what any batch can reach."""

    temperature: float = 1.0
    """T of the softmax p^(1/T) whose margin is the uncertainty. 1 leaves probabilities as they are, for a calibrated
    model; balance always counts the probabilities as given."""

    name: ClassVar[str] = "uherding"
    title: ClassVar[str] = "UHerding"
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        if real_number(self.temperature, "temperature", "a number above 0") == 0:
            raise BadInput(f"temperature is {self.temperature}; it must be a number above 0")

    def weights(self, task: Task, costs: Column, *, labelled: int) -> Float64Array:
        """u = 1 − (largest − second largest probability), (N,); 1 without labels."""
        if not labelled:
            return np.ones(task.rows.size)
        values = -costs.values() if self.temperature == 1 else self._tempered(task)
        weights: Float64Array = np.maximum(values, 0.0)
        return weights

    def _tempered(self, task: Task) -> Float64Array:
        def uncertainty(where: slice) -> Float64Array:
            scores: Float64Array = margin(with_temperature(task.rows.read(where), self.temperature)).astype(np.float64)
            return scores

        parts = map_blocks(task.rows.size, rows_per_block(task.rows.classes), uncertainty)
        return np.concatenate([np.empty(0), *parts])


MOST_ROUNDS, MOST_BATCHES = 100, 1_000  # beyond that a batch would take days


@strategy
@dataclass(frozen=True, kw_only=True)
class Refine(Base):
    """What several strategies propose on random parts of the pool, filtered again and again; UHerding picks the batch.

    In each round every proposer chooses `batches` batches of b, each from another random part of the pool (`share` of
    it, at least b), without balance; the next pool is the union. UHerding then picks b of what is left, and alone
    weighs balance. It costs rounds · batches times what its proposers cost on a part; there is no bound, since images
    that were filtered out are not compared.
    """

    proposers: Sequence[str] = ("margin", "badge", "typiclust")
    rounds: int = 2
    batches: int = 4
    share: float = 0.5

    name: ClassVar[str] = "refine"
    title: ClassVar[str] = "Refine"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.rounds, "rounds", most=MOST_ROUNDS)
        whole_number(self.batches, "batches", least=1, most=MOST_BATCHES)
        if not 0 < real_number(self.share, "share", "a share above 0, at most 1") <= 1:
            raise BadInput(f"share is {self.share}; it must be a share above 0, at most 1")
        names: object = self.proposers
        if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) for name in names):
            raise BadInput(f"proposers is {shown(names)}; it must be a list of names of strategies")
        for name in names:
            reads_labels = getattr(STRATEGIES[name], "reads_labels", False)  # a strategy from elsewhere may not say
            if name == self.name or reads_labels or not set(STRATEGIES[name].needs) <= set(self.needs):
                raise BadInput(
                    f"refine cannot take {name!r} as a proposer; take strategies that read no labels and need no more "
                    f"than {', '.join(self.needs)}"
                )

    def choose(self, task: Task, predictions: Predictions, _costs: Column) -> Selection:
        """`informativeness` is F of the batch in the refined pool (see `uherding`)."""
        embedded, labelled = both_embeddings(task, predictions)
        pool, rng = np.arange(task.rows.size), np.random.default_rng(task.seed)
        for turn in range(self.rounds):
            if not 0 < task.budget < len(pool):
                break
            pool = self._filtered(task, embedded, labelled, pool, rng)
            task.report(f"refine: {len(pool)} of {task.rows.size} images after round {turn + 1}")
        last = UHerding(balance=self.balance, gap=self.gap, time_limit=self.time_limit)
        target = Target.ranges(task.ranges.low, task.ranges.high)
        found = last.select(part(task, embedded, labelled, pool), task.budget, target=target, seed=task.seed)
        return task.selection(
            pool[found.indices],
            informativeness=found.informativeness,
            balance=self.balance,
            lam=found.lam,
            method=self.name,
        )

    def _filtered(
        self, task: Task, embedded: FloatArray, labelled: FloatArray, pool: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """The union of what the proposers choose in random parts of the pool, ascending."""
        size = max(task.budget, int(np.ceil(self.share * len(pool))))
        kept = np.zeros(task.rows.size, dtype=bool)
        for name in self.proposers:
            for _ in range(self.batches):
                rows = np.sort(rng.choice(pool, size, replace=False))
                seed = int(rng.integers(2**32))
                batch = make(name, balance=0.0).select(
                    part(task, embedded, labelled, rows), task.budget, counts=task.counts, seed=seed
                )
                kept[rows[batch.indices]] = True
        return np.flatnonzero(kept)


def part(task: Task, embedded: FloatArray, labelled: FloatArray, rows: IntArray) -> Predictions:
    """What is known of some rows of the pool."""
    proba: FloatArray = task.rows.take(rows)
    proba /= proba.sum(axis=1, keepdims=True)  # narrow floats and a sparse softmax sum to 1 less exactly
    if task.rows.dtype != np.float64:
        proba = proba.astype(np.float32)
    return Predictions(proba, embedded[rows], labelled)
