"""KCenterGreedy (with λ > 0: KCenter-CB, Algorithm 2): samples far from all that is labelled or picked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..solve.greedy import GreedyPicks, k_center
from ..solve.path import find_lam
from ..solve.shards import Column
from ..types import Predictions, Selection
from .base import Base, pool_matrix, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class KCenter(Base):
    """Farthest-first in the embedding, each pick weighing distance against balance."""

    name: ClassVar[str] = "kcenter"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """Algorithm 2; `informativeness` is the sum of the distances at which the picks were made."""
        pool, labelled = both_embeddings(task, predictions)

        def pick(lam: float) -> GreedyPicks:
            return k_center(pool, labelled, task.budget, task.rows, lam, task.ranges, task.report)

        def l1_at(lam: float) -> float:
            return task.ranges.distance(task.rows.total(pick(lam).indices))

        # λ weighs samples against distances: a typical distance at which picks are made is its natural unit.
        wordy = isinstance(self.balance, str)
        scale = _typical(pick(0.0)) if wordy else 1.0
        lam = find_lam(self.balance, l1_at, scale, task.program(costs))
        picks = pick(lam)
        reached = float(picks.distances[np.isfinite(picks.distances)].sum())
        return task.selection(picks.indices, informativeness=reached, lam=lam, method=self.name)


def both_embeddings(task: Task, predictions: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Pool (N, d) and labelled (L, d) embeddings, checked."""
    pool = pool_matrix(predictions.embeddings, "embeddings", task.rows.size)
    labelled = pool_matrix(predictions.labelled_embeddings, "labelled_embeddings", None)
    if pool.shape[1] != labelled.shape[1]:
        raise BadInput(f"embeddings have {pool.shape[1]} features, but labelled_embeddings have {labelled.shape[1]}")
    return pool, labelled


def _typical(picks: GreedyPicks) -> float:
    finite = picks.distances[np.isfinite(picks.distances)]
    return float(finite.mean()) if len(finite) and finite.mean() > 0 else 1.0
