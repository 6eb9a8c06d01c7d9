"""MaxHerding (Bae, Noh and Sutherland 2024): images that represent the pool best, picked greedily, with a certificate.

    F(S) = Σ_n w_n · max over j in L ∪ S of k(n, j),   k(n, j) = exp(−‖x_n − x_j‖² / s²),   Σ w = 1,  rows x of length 1

Embeddings in, a `Selection` out. `UHerding` (uherding.py) is the same with weights that are the model's uncertainty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import real_number, shown, whole_number
from ..solve.coverage import Coverage, Float32Array, Herd, herd, kernel_width, sample_references, unit_rows
from ..solve.imbalance import Imbalance
from ..solve.path import Lam, find_lam, quick_effort, unavoidable_l1
from ..solve.shards import Column
from ..solve.solver import lower_bound
from ..types import Float64Array, Predictions, Selection, gap_between
from .base import Base, strategy
from .kcenter import both_embeddings
from .task import Task

WIDTHS = ("median", "smallest")
LEAST_WIDTH = 0.001  # distances between rows of length 1 in float32 are no more exact than that
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
        first = start.gains(embedded)
        known: dict[float, Herd] = {}

        def pick(lam: float) -> Herd:
            if lam not in known:
                coverage = replace(start, covered=start.covered.copy())
                imbalance = Imbalance(task.rows, task.ranges, lam) if lam else None
                known[lam] = herd(coverage, embedded, task.budget, imbalance, first=first)
            return known[lam]

        def l1_at(lam: float) -> float:
            return task.ranges.distance(task.rows.total(pick(lam).indices))

        # λ weighs samples against gains: the mean gain of a pick is its natural unit.
        scale = _typical(pick(0.0)) if isinstance(self.balance, str) else 1.0
        lam = find_lam(self.balance, l1_at, task.program(costs), scale=scale)
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

    def _certified(self, task: Task, found: Herd, chosen: Lam) -> Selection:
        lam = chosen.value
        objective = lam * task.ranges.distance(task.rows.total(found.indices)) - found.value
        bound = min(-found.bound if lam == 0 else balanced_bound(task, found, lam), objective)
        hidden = task.program(task.rows.hold(-found.first), lam).hidden_distance(found.indices)
        gap = gap_between(objective + hidden, bound, objective + 2 * found.value)  # F + λ·l1
        return task.selection(
            found.indices, informativeness=found.value, balance=self.balance, lam=chosen, method=self.name,
            objective=objective, bound=bound, gap=gap, hidden=hidden,
        )  # fmt: skip


def balanced_bound(task: Task, found: Herd, lam: float) -> float:
    """No batch S has a smaller −F(S) + λ·‖Ω − Pᵀz‖₁.

    F is monotone and submodular, so F(S) ≤ F(S ∪ S₀) ≤ F(S₀) + Σ_{j ∈ S} gain_j(S₀) for any set S₀ of images. So every
    batch costs at least −F(S₀) + min_z uᵀz + λ·‖Ω − Pᵀz‖₁ with u = −gain(S₀): the paper's program, bounded by its dual.

    S₀ is empty, or the batch itself; F ≤ 1, with the distance that the budget forces, is a third bound.
    """
    effort = quick_effort(task.time_limit)
    bounds = [lam * unavoidable_l1(task.program(task.rows.hold(-found.first))) - 1.0]
    for reached, gains in ((found.before, found.first), (found.value, found.last())):
        program = task.program(task.rows.hold(0.0 - gains), lam)
        bounds.append(lower_bound(program, effort, seed=task.seed) - reached - found.rounding)
    return max(bounds)


def _typical(found: Herd) -> float:
    mean = float(found.gains.mean()) if len(found.gains) else 0.0
    return mean if mean > 0 else 1.0
