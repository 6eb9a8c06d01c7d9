"""Entropy-L1-Pseudo-Label: Eq. 8 with P replaced by the one-hot of its argmax, solved exactly class by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..solve.path import find_lam
from ..solve.pseudo import solve_one_hot
from ..solve.score_scale import spread_of
from ..solve.shards import Column
from ..types import Predictions, Selection
from .base import Base, strategy
from .task import Task


@strategy
@dataclass(frozen=True, kw_only=True)
class PseudoLabel(Base):
    """Entropy, balanced by counting each sample for its most probable class alone."""

    name: ClassVar[str] = "entropy-l1-pseudo-label"
    softmax_score: ClassVar[str | None] = "entropy"

    def choose(self, task: Task, _predictions: Predictions, costs: Column) -> Selection:
        """Solve on the one-hot argmax; expected counts and l1 are reported for the softmax, as everywhere."""
        labels = task.rows.largest_class()
        program = task.program(costs)

        def l1_at(lam: float) -> float:
            picked = labels[solve_one_hot(program.at(lam), labels).indices]
            return task.ranges.distance(np.bincount(picked, minlength=task.rows.classes).astype(np.float64))

        lam = find_lam(self.balance, l1_at, program, scale=1.0, spread=spread_of(costs, task.budget))
        solution = solve_one_hot(program.at(lam.value), labels)
        return task.certified(solution, costs, balance=self.balance, lam=lam, method=self.name)
