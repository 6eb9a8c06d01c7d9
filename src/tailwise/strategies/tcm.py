"""TCM (Doucet et al. 2024): TypiClust while labels are few, then margin.

Probabilities and embeddings in, a `Selection` out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ..inputs import real_number
from ..solve.score_scale import score_scale
from ..solve.shards import Column
from ..types import Predictions, Selection
from .base import Base, strategy
from .kcenter import both_matrices
from .select import by_cost
from .task import Task
from .typiclust import TypiClust


@strategy
@dataclass(frozen=True, kw_only=True)
class Tcm(Base):
    """Typical images of clusters without labels while labels are few, then images with a small margin.

    It costs what `typiclust` and `margin` cost. λ as a number weighs typicality at first, and margins later; "auto" and
    wishes suit both.
    """

    labels_per_class: float = 2.0
    """Labels per class, in the mean, from which on margin chooses. Labels are the sum of `counts` or the rows of
    `labelled_embeddings`, whichever is more."""

    name: ClassVar[str] = "tcm"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")
    softmax_score: ClassVar[str | None] = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        real_number(self.labels_per_class, "labels_per_class")

    def choose(self, task: Task, predictions: Predictions, costs: Column) -> Selection:
        """One of the two, for the whole batch."""
        labels = max(float(task.counts.sum()), both_matrices(task, predictions)[1].shape[0])
        classes = task.rows.classes
        typical = labels < self.labels_per_class * classes
        task.report(f"tcm: {labels:g} labels for {classes} classes; {'typiclust' if typical else 'margin'} chooses")
        if typical:
            chosen = TypiClust(balance=self.balance).choose(task, predictions, costs)
        else:
            scale = score_scale(costs, task.budget)
            chosen = by_cost(task, costs, self.balance, scale=scale, method=self.name)
        return replace(chosen, method=self.name)
