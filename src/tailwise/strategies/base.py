"""What a strategy is, and the table of them.

A strategy takes predictions and a budget and gives a `Selection`. It declares the arrays it needs (`needs`), so that a
learner makes those and no others. Every strategy has a balance setting; λ = 0 is the classical method.
A strategy that reads the labels of its picks while it still picks says so (`reads_labels`) and needs an oracle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol, TypeVar

from ..balance.target import PerClass, Target
from ..errors import BadInput
from ..inputs import class_names, real_number, shown
from ..registry import Registry, check_settings
from ..score.softmax import SCORES
from ..solve.engines import rows_on
from ..solve.path import Balance, parse_balance
from ..solve.score_scale import score_scale
from ..solve.shards import Column
from ..solve.source import open_proba
from ..types import Float64Array, Oracle, Predictions, Selection
from .select import by_cost
from .task import Task, checked_time_limit, make_task


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


STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
DEFAULT = "boundary"  # where there are embeddings; docs/results/leaderboard says why
WITHOUT_EMBEDDINGS = "base"
Kind = TypeVar("Kind", bound="type[Any]")


def strategy(cls: Kind) -> Kind:
    """Register a strategy under its name."""
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

    balance: Balance = 0.0
    gap: float = 1e-4
    time_limit: float | None = None
    engine: str = "local"
    shards: int | None = None

    name: ClassVar[str]
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
        oracle: Oracle | None = None,
    ) -> Selection:  # fmt: skip
        """Choose `budget` rows of the pool; `counts` and `target` are those of `tailwise.select`.

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
            return self.choose(replace(task, oracle=oracle), predictions, costs)

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
