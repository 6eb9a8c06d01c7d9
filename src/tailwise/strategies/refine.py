"""Refine (Huseljic et al. 2026): several strategies propose batches, their union is the new pool, UHerding picks there.

Probabilities and embeddings in, a `Selection` out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..balance.target import Target
from ..errors import BadInput
from ..inputs import real_number, shown, whole_number
from ..solve.shards import Column
from ..types import FloatArray, IntArray, Predictions, Selection
from .base import STRATEGIES, Base, make, strategy
from .kcenter import both_embeddings
from .task import Task
from .uherding import UHerding

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
                batch = make(name).select(
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
