"""The experiments behind docs/results: presets as they are, and variants of them that compare one choice at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tailwise.bench.config import Experiment, read_experiment

FEATURES = "cifar10_features.npz"


@dataclass(frozen=True, slots=True)
class Study:
    """An experiment, and where its data is below the data folder."""

    name: str
    data: str
    make: Callable[[], Experiment]


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
    {"name": "random"}, {"name": "entropy", "balance": [0, "auto", 1.0]}, {"name": "margin", "balance": [0, "auto"]},
]  # fmt: skip
WEIGHTED = {"name": "linear", "settings": {"class_weight": "balanced"}}


def defaults_of(base: str, short: str) -> list[Study]:
    """What calibration, the weighted loss and the λ rule do to the gain of balance, one at a time."""
    variants: dict[str, dict[str, Any]] = {
        f"calibration-{kind}": {"calibration": {"kind": kind}} for kind in ("none", "temperature", "prior", "both")
    }
    variants["weighted-none"] = {"calibration": {"kind": "none"}, "learner": WEIGHTED}
    variants["weighted-both"] = {"calibration": {"kind": "both"}, "learner": WEIGHTED}
    return [
        Study(f"{short}-{name}", FEATURES, variant(base, f"{short}-{name}", strategies=ENTROPY_AND_MARGIN, **changes))
        for name, changes in variants.items()
    ]


STUDIES = [
    Study("cifar10-realistic", FEATURES, preset("cifar10-realistic")),
    Study("cifar10-features", FEATURES, preset("cifar10-features")),
    *defaults_of("cifar10-realistic", "realistic"),
    *defaults_of("cifar10-features", "paper"),
    Study("tinyimagenet-features", "tinyimagenet_features.npz", preset("tinyimagenet-features")),
    Study("cifar10-small", "cifar-10-batches-bin", preset("cifar10-small")),
]
