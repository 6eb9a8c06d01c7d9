"""The experiments behind docs/results: presets as they are, and variants of them that compare one choice at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.quality import from_scratch
from tailwise.experiments.experiment import Experiment, Row, read_experiment

FEATURES = "cifar10_features.npz"


@dataclass(frozen=True, slots=True)
class Study:
    """An experiment, and where its data is below the data folder."""

    name: str
    data: str
    make: Callable[[], Experiment]
    compares: str = ""
    """What is different in a variant, in words; empty for an experiment of its own."""
    page: Callable[[Experiment, Sequence[Row]], str] | None = None
    """Writes the README.md of its results, also while there are none."""


def preset(name: str) -> Callable[[], Experiment]:
    """A preset as it is."""
    return lambda: read_experiment(name)


def variant(base: str, name: str, **changes: Any) -> Callable[[], Experiment]:  # noqa: ANN401 - parts of an experiment
    """A preset with another name and some of its parts changed, checked like a file."""

    def make() -> Experiment:
        content = read_experiment(base).model_dump(mode="json")
        return Experiment.model_validate({**content, "name": name, **changes})

    return make


ENTROPY_AND_MARGIN = [
    {"name": "random"},
    {"name": "entropy", "balance": [0, 0.3, "auto"]},
    {"name": "margin", "balance": [0, 0.3, "auto"]},
]
WEIGHTED = {"name": "linear", "settings": {"class_weight": "balanced"}}
STEEPEST = {"profile": "step", "factors": [0.1]}  # the paper's factor with the longest tail: where balance should tell


def defaults_of(base: str, short: str, **common: Any) -> list[Study]:  # noqa: ANN401 - parts of an experiment
    """What calibration, the weighted loss and the λ rule do to the gain of balance, one at a time."""
    variants: dict[str, tuple[str, dict[str, Any]]] = {
        f"calibration-{kind}": (f"plain loss, calibration {kind}", {"calibration": {"kind": kind}})
        for kind in ("none", "temperature", "prior", "both")
    }
    for kind in ("none", "both"):
        changes = {"calibration": {"kind": kind}, "learner": WEIGHTED}
        variants[f"weighted-{kind}"] = (f"class-weighted loss, calibration {kind}", changes)
    return [
        Study(
            f"{short}-{name}",
            FEATURES,
            variant(base, f"{short}-{name}", strategies=ENTROPY_AND_MARGIN, **common, **changes),
            compares,
        )
        for name, (compares, changes) in variants.items()
    ]


STUDIES = [
    Study("cifar10-realistic", FEATURES, preset("cifar10-realistic")),
    Study("cifar10-features", FEATURES, preset("cifar10-features")),
    *defaults_of("cifar10-realistic", "realistic"),
    *defaults_of("cifar10-features", "paper", imbalance=STEEPEST),
    Study("tinyimagenet-features", "tinyimagenet_features.npz", preset("tinyimagenet-features")),
    Study("cifar10-small", "cifar-10-batches-bin", preset("cifar10-small"), page=from_scratch.page),
]
