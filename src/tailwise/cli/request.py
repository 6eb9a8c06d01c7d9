"""What a command was asked for: option texts in, the arguments of `tailwise.select` or `balance_path` out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outcome import WrongUsage

if TYPE_CHECKING:
    from ..solve.matrices import Matrix
    from ..types import Float64Array

PAPER = "paper"  # as a target


@dataclass(frozen=True, slots=True)
class Request:
    """The options that `select` and `path` share, as typed by the user."""

    proba: str  # a path or a URL, which a Path would mangle
    budget: int
    counts: str | None
    score: str | None
    target: str | None
    shares: str | None
    at_least: str | None
    at_most: str | None
    seed: int
    engine: str
    shards: int | None
    strategy: str | None = None
    embeddings: str | None = None
    labelled_embeddings: str | None = None
    logits: bool = False

    @property
    def uniform(self) -> bool:
        """True where every class is wanted equally often."""
        return self.target in {None, PAPER} and (self.shares, self.at_least, self.at_most) == (None,) * 3

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is read."""
        kinds = {"--target": self.target, "--shares": self.shares}
        kinds["--at-least/--at-most"] = self.at_least or self.at_most
        given = [option for option, value in kinds.items() if value is not None]
        if len(given) > 1:
            raise WrongUsage(f"{' and '.join(given)} say the same thing in different ways; give one of them")
        if self.strategy is not None:
            from ..strategies import STRATEGIES

            STRATEGIES[self.strategy]  # an unknown name lists the known ones
            if self.score is not None:
                raise WrongUsage("--strategy and --score exclude each other; give one of them")
        if self.score is not None and not _is_npy(self.score):
            from ..strategies.select import named_score

            named_score(self.score)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The files of a request, read."""

    proba: Matrix  # (N, C)
    counts: Float64Array | None  # (C,)
    arguments: dict[str, Any]  # what select and balance_path take beside proba and budget


def read(request: Request) -> Inputs:
    """Open the probabilities, then read what is given per class."""
    from ..solve.source import open_proba
    from .numbers import per_class

    proba = open_proba(request.proba)
    classes = proba.shape[1]
    counts = None if request.counts is None else per_class(request.counts, "--counts", classes)
    arguments = {
        "score": _score(request.score),
        "counts": counts,
        "target": _target(request, classes),
        "seed": request.seed,
        "engine": request.engine,
        "shards": request.shards,
    }
    return Inputs(proba, counts, arguments)


def choices(request: Request) -> dict[str, Any]:
    """What `select` takes beside what it shares with `balance_path`."""
    return {
        "strategy": request.strategy, "embeddings": request.embeddings,
        "labelled_embeddings": request.labelled_embeddings, "logits": request.logits,
    }  # fmt: skip


def _is_npy(score: str) -> bool:
    return Path(score).suffix.lower() == ".npy"


def _score(score: str | None) -> object:
    from .numbers import read_scores

    return read_scores(Path(score)) if score is not None and _is_npy(score) else score


def _target(request: Request, classes: int) -> object:
    import numpy as np

    from ..balance.target import Target
    from .numbers import limit_per_class, per_class

    if request.target == PAPER:
        return Target.paper()
    if request.target is not None:
        return Target.counts(per_class(request.target, "--target", classes))
    if request.shares is not None:
        return Target.shares(per_class(request.shares, "--shares", classes))
    if request.at_least is None and request.at_most is None:
        return None
    low, high = request.at_least, request.at_most
    return Target.ranges(
        None if low is None else limit_per_class(low, "--at-least", classes, missing=0.0),
        None if high is None else limit_per_class(high, "--at-most", classes, missing=np.inf),
    )
