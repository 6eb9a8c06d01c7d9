"""The trials of an experiment: one per imbalance, seed, strategy and balance, each with a name that is its content.

Two trials have one fingerprint only if they give the same results: the data counts by its content (`pool_content`), λ
by its exact value. So nothing collides, and a file that gains a seed or a strategy goes on with what is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..pool import Tail
from ..pool.split import exact_number
from ..types import IntArray
from .config import Experiment, Setting, StrategyPart

# What may be changed in a file without changing what a trial gives.
NOT_CONTENT = {"name", "about", "seeds", "strategies", "cycles", "vaal", "passes", "lam"}


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of Algorithm 1."""

    experiment: Experiment
    factor: float
    seed: int
    part: StrategyPart
    balance: float | str
    content: str = ""
    """Identity of the pool; empty where it is not known, as for results of versions that did not record it."""

    @property
    def setting(self) -> str:
        """The imbalance, as people say it."""
        return str(self.tail)

    @property
    def tail(self) -> Tail:
        """Which classes are rare."""
        return Tail(self.experiment.imbalance.profile, self.factor, self.experiment.imbalance.tail)

    @property
    def method(self) -> str:
        """Strategy, balance and settings, as people say it."""
        settings = f" ({self.settings})" if self.settings else ""
        return f"{self.part.name} λ={balance_name(self.balance)}{settings}"

    @property
    def settings(self) -> str:
        """The strategy's own settings as text; empty where all are the defaults."""
        return ", ".join(f"{name}={_setting_text(value)}" for name, value in sorted(self.part.settings.items()))

    @property
    def title(self) -> str:
        """A line for people."""
        return f"{self.setting}, seed {self.seed}, {self.method}"

    @property
    def fingerprint(self) -> str:
        """Equal for equal results, different otherwise."""
        return _digest({
            **self._world(),
            "strategy": {"name": self.part.name, "balance": balance_name(self.balance), **self.part.settings},
            "lam": self.experiment.lam, "passes": self.experiment.passes, "vaal": self.experiment.vaal,
        })  # fmt: skip

    @property
    def folder(self) -> str:
        """A name that sorts well and cannot collide."""
        words = (self.setting, f"seed-{self.seed}", self.part.name, balance_name(self.balance))
        return f"{'_'.join(_slug(word) for word in words)}_{self.fingerprint[:12]}"

    def model_key(self, labelled: IntArray) -> str:
        """Names the model that is trained on these images: shared by all trials that begin with them."""
        world = self._world()
        wanted = {name: world[name] for name in ("pool", "learner", "seed")}
        return f"model_{_digest(wanted | {'labelled': hashlib.sha256(labelled.tobytes()).hexdigest()})[:24]}"

    def _world(self) -> dict[str, Any]:
        content = self.experiment.model_dump(mode="json")
        content["imbalance"].pop("factors")
        if content["target"] == "paper":  # the only one that version 0.1.0 had
            content.pop("target")
        path = content["pool"].pop("path")  # a data set that was moved is the same
        content["pool"] |= {"content": self.content} if self.content else {"path": Path(path).name}
        kept = {name: value for name, value in content.items() if name not in NOT_CONTENT}
        return {**kept, "factor": self.factor, "seed": self.seed}


def trials_of(experiment: Experiment, content: str = "") -> Iterator[Trial]:
    """Every trial on data of this content, seed by seed, so that a run that is stopped early has whole seeds."""
    for seed in experiment.seeds:
        for factor in experiment.imbalance.factors:
            for part in experiment.strategies:
                for balance in part.balance:
                    yield Trial(experiment, factor, seed, part, balance, content)


def balance_name(balance: float | str) -> str:
    """A balance setting as text: exact, and the same for 0, 0.0 and "0".

    >>> balance_name(0.0), balance_name("auto"), balance_name(0.1234567)
    ('0', 'auto', '0.1234567')
    """
    try:
        return exact_number(float(balance))
    except ValueError:
        return str(balance).strip()


def _setting_text(value: Setting) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting_text, value))
    if isinstance(value, float):
        return exact_number(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in text).strip("-")
