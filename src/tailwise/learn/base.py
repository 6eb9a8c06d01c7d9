"""What a learner is: labelled inputs in, a model out, which says everything a strategy may ask for.

A `Learner` is settings and one method; a `Model` is what it has learnt and never changes: asking it leaves no trace.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from ..errors import BadInput
from ..pool.images import Inputs
from ..registry import Registry, check_settings
from ..types import FloatArray, IntArray, Progress, unheard


class Model(Protocol):
    """A fitted classifier over a fixed number of classes: a class without labels has a column all the same."""

    @property
    def classes(self) -> int:
        """C."""
        ...

    def predict_proba(self, inputs: Inputs) -> FloatArray:
        """Softmax of clean inputs, dropout off, (n, C); rows sum to 1."""
        ...

    def embed(self, inputs: Inputs) -> FloatArray:
        """What goes into the last layer, (n, d)."""
        ...

    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> FloatArray:
        """Softmax of `passes` passes with dropout on, everything else as in `predict_proba`, (T, n, C)."""
        ...

    def save(self, folder: Path) -> None:
        """Write safetensors and JSON into a folder, whole or not at all."""
        ...


class Learner(Protocol):
    """Settings of a way to learn."""

    name: ClassVar[str]

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = unheard, checkpoint: Path | None = None,
    ) -> Model:  # fmt: skip
        """Learn from scratch; any class may be missing. With a `checkpoint` folder, long work goes on where it was."""
        ...

    def load(self, folder: Path) -> Model:
        """A model that was saved."""
        ...


LEARNERS: Registry[type[Learner]] = Registry("learner")
Kind = TypeVar("Kind", bound="type[Any]")


def learner(cls: Kind) -> Kind:
    """Register a learner under its name."""
    LEARNERS.register(cls.name)(cls)
    return cls


def make_learner(name: str, **settings: Any) -> Learner:  # noqa: ANN401 - each learner names and types its own settings
    """Make a learner by name."""
    kind: Any = LEARNERS[name]
    check_settings(f"learner {name!r}", settings, (field.name for field in fields(kind)))
    made: Learner = kind(**settings)
    return made


def check_labels(inputs: Inputs, labels: IntArray, classes: int) -> None:
    """Refuse a labelled set that nothing can be learnt from."""
    if labels.shape != (len(inputs),):
        raise BadInput(f"inputs {inputs.shape} and labels {labels.shape} do not belong together")
    if not len(labels):
        raise BadInput("nothing to learn from: the labelled set is empty; label a first batch")
    if labels.min() < 0 or labels.max() >= classes:
        raise BadInput(f"labels run from {labels.min()} to {labels.max()}, but there are {classes} classes")
