"""KCenterGreedy (with λ > 0: KCenter-CB, Algorithm 2): samples far from all that is labelled or picked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..errors import BadInput
from ..inputs import LARGEST_SCORE, whole_number
from ..solve.blocks import map_blocks
from ..solve.farthest_coreset import Coreset, covering_radius, find_coreset
from ..solve.farthest_distances import Start, measure
from ..solve.greedy import GreedyPicks, k_center
from ..solve.matrices import Matrix, as_matrix
from ..solve.path import find_lam
from ..solve.shards import Column
from ..types import Predictions, Selection
from .base import Base, strategy
from .task import Task

CHECKED_BYTES = 4 << 20  # looked at a time for NaN and infinity


@strategy
@dataclass(frozen=True, kw_only=True)
class KCenter(Base):
    """Farthest-first in the embedding, each pick weighing distance against balance."""

    parts: int = 1
    """1: exact. More: two rounds, candidates from each of so many parts of the pool, then the picks among those."""

    name: ClassVar[str] = "kcenter"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.parts, "parts", least=1, but=", where 1 is exact")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """Algorithm 2; `informativeness` is the sum of the distances at which the picks were made."""
        start = measure(*both_matrices(task, predictions), task.report)
        coreset = self._coreset(task, start)
        known: dict[float, GreedyPicks] = {}

        def pick(lam: float) -> GreedyPicks:
            if lam not in known:
                known[lam] = _picks(task, start, coreset, lam)
            return known[lam]

        def l1_at(lam: float) -> float:
            return task.ranges.distance(task.rows.total(pick(lam).indices))

        # λ weighs samples against distances: a typical distance at which picks are made is its natural unit.
        wordy = isinstance(self.balance, str)
        scale = _typical(pick(0.0)) if wordy else 1.0
        lam = find_lam(self.balance, l1_at, task.program(costs), scale=scale)
        picks = pick(lam.value)
        if coreset:
            _tell(task, start, coreset, picks)
        reached = float(picks.distances[np.isfinite(picks.distances)].sum())
        method = f"{self.name} (coreset of {len(coreset.indices)})" if coreset else self.name
        return task.selection(picks.indices, informativeness=reached, balance=self.balance, lam=lam, method=method)

    def _coreset(self, task: Task, start: Start) -> Coreset | None:
        """Candidates where two rounds are asked for; None where the picks are made among all rows."""
        if self.parts == 1 or not 0 < self.parts * task.budget < task.rows.size:  # else every row is a candidate
            return None
        return find_coreset(start, task.rows, task.budget, self.parts, task.report)


def _picks(task: Task, start: Start, coreset: Coreset | None, lam: float) -> GreedyPicks:
    if coreset:
        return coreset.k_center(task.budget, lam, task.ranges, task.report)
    return k_center(start.pool, start.labelled, task.budget, task.rows, lam, task.ranges, task.report, start=start)


def _tell(task: Task, start: Start, coreset: Coreset, picks: GreedyPicks) -> None:
    radius = covering_radius(start, picks.indices)
    task.report(
        f"k-center: not exact, but among {len(coreset.indices)} candidates; every image is within {coreset.radius:.6g} "
        f"of a candidate or a labelled image, and within {radius:.6g} of a pick or a labelled image"
    )


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


def _typical(picks: GreedyPicks) -> float:
    finite = picks.distances[np.isfinite(picks.distances)]
    return float(finite.mean()) if len(finite) and finite.mean() > 0 else 1.0
