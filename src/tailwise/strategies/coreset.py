"""CoreSet: robust k-center by mixed-integer feasibility problems and bisection on the radius."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import BadInput
from ..inputs import whole_number
from ..solve.coreset import robust_k_center
from ..solve.path import parse_balance
from ..solve.shards import Column
from ..types import Predictions, Selection, gap_between
from .base import Base, strategy
from .kcenter import both_embeddings
from .task import Task

MOST_STEPS = 1e15


@strategy
@dataclass(frozen=True, kw_only=True)
class CoreSet(Base):
    """The batch that leaves the smallest covering radius, some outliers aside; it has no balanced form."""

    outliers: int = 0
    max_steps: int | None = None
    """A limit on the search that, unlike `time_limit`, gives the same picks on every machine."""

    name: ClassVar[str] = "coreset"
    needs: ClassVar[tuple[str, ...]] = ("proba", "embeddings", "labelled_embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.outliers, "outliers")
        if self.max_steps is not None:
            whole_number(self.max_steps, "max_steps", but=", or None", most=MOST_STEPS)
        if parse_balance(self.balance) != 0.0:
            raise BadInput(
                "coreset has no balanced form: it chooses all centres at once by their radius alone; "
                "use kcenter with balance instead"
            )

    def choose(self, task: Task, predictions: Predictions, _costs: Column) -> Selection:
        """`objective` is the radius, `bound` the smallest radius not ruled out."""
        pool, labelled = both_embeddings(task, predictions)
        found = robust_k_center(
            pool, labelled, task.budget, outliers=self.outliers, time_limit=task.time_limit, max_steps=self.max_steps
        )
        return task.selection(
            found.indices, informativeness=-found.radius, balance=0.0, lam=0.0, method=self.name, status=found.status,
            objective=found.radius, bound=found.lower, gap=gap_between(found.radius, found.lower, found.radius),
        )  # fmt: skip
