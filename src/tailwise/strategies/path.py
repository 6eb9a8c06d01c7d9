"""`tailwise.balance_path`: what balance costs, λ by λ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..balance.measure import l1_score
from ..balance.target import PerClass, Target
from ..errors import BadInput, MissingExtra
from ..inputs import LARGEST_SCORE, class_names, in_row_order, real_array, shown
from ..solve.engines import rows_on
from ..solve.path import Sweep, paper_grid, paper_lam, quick_effort
from ..solve.shards import Column
from ..solve.source import open_proba
from ..types import Float64Array, Proba
from .select import scored_task
from .task import Task

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, eq=False)
class BalancePath:
    """A sweep over λ; every array is (n,), in the order of λ.

    Attributes
    ----------
    lam: the values of λ, ascending, 0 first.
    informativeness: sum of the scores of the picks.
    l1: distance of the expected counts from the target.
    l1_score: L1 score of the labelled set with the expected counts added: 0 = uniform, 1 = one class.
    gap: certified gap of each batch.
    chosen: the λ that the paper's rule takes of these; with the default `lams` that of `select(balance="paper")`.
    """

    lam: Float64Array
    informativeness: Float64Array
    l1: Float64Array
    l1_score: Float64Array
    gap: Float64Array
    chosen: float

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, ready for JSON."""
        columns = {name: getattr(self, name).tolist() for name in PATH_COLUMNS}
        return {**columns, "chosen": self.chosen}

    def to_frame(self) -> pandas.DataFrame:
        """One row per λ."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra.named("to_frame()", "pandas", "tables") from error
        return pandas.DataFrame({name: getattr(self, name) for name in PATH_COLUMNS})


PATH_COLUMNS = ("lam", "informativeness", "l1", "l1_score", "gap")


def balance_path(
    proba: Proba,
    budget: int,
    *,
    score: str | ArrayLike = "entropy",
    counts: PerClass = None,
    target: Target | PerClass = None,
    lams: Sequence[float] | None = None,
    seed: int = 0,
    engine: str = "local",
    shards: int | None = None,
    report: Callable[[str], None] | None = None,
) -> BalancePath:
    """Sweep λ and measure what each batch gains in balance and pays in informativeness.

    `lams` defaults to 30 steps over (0, 3] for entropy, scaled for other scores; λ = 0 is always added. The other
    parameters are those of `select`.

    Examples
    --------
    >>> proba = np.array([[0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [0.1, 0.9]])
    >>> path = balance_path(proba, 2, lams=[1.0])
    >>> path.lam.tolist(), path.l1.round(2).tolist()
    ([0.0, 1.0], [0.3, 0.3])
    """
    with rows_on(open_proba(proba), engine, shards) as rows:
        task, costs, scale = scored_task(
            rows, budget, in_row_order(score, proba, "score"), counts=counts, target=target, seed=seed, report=report,
            names=class_names(proba),
        )  # fmt: skip
        return _swept(task, costs, _checked(paper_grid(scale) if lams is None else lams))


def _swept(task: Task, costs: Column, values: Float64Array) -> BalancePath:
    """Solve at every λ, and measure."""
    program = task.program(costs)
    sweep = Sweep(program, quick_effort(), task.seed, task.report)
    chosen = paper_lam(sweep.l1_at, values[values > 0], program)  # first, as each solve starts from those before it
    solutions = [sweep.at(lam) for lam in values.tolist()]
    expected = [task.rows.total(solution.indices) for solution in solutions]
    l1 = np.array([task.ranges.distance(one) for one in expected])
    return BalancePath(
        lam=values,
        informativeness=np.array([-costs.at(solution.indices).sum() for solution in solutions]),
        l1=l1,
        l1_score=np.array([l1_score(task.counts + one) for one in expected]),
        gap=np.array([solution.gap for solution in solutions]),
        chosen=chosen,
    )


def _checked(lams: object) -> Float64Array:
    given = real_array(lams, "lams")
    if given.ndim > 1:
        raise BadInput(f"lams must be a list of numbers, but has shape {given.shape}")
    values = given.astype(np.float64).ravel()
    if not ((values >= 0) & (values <= LARGEST_SCORE)).all():
        raise BadInput(f"lams must be numbers from 0 to {LARGEST_SCORE:g}, but are {shown(values.tolist())}")
    return np.unique(np.append(0.0, values))
