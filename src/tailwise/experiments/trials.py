"""The oracle of an experiment: it knows every label, and notes which ones a strategy has read.

The trials of an experiment: one per imbalance, seed, strategy and balance, each with a name that is its content.

Two trials have one fingerprint only if they give the same results: the data counts by its content (`pool_content`), λ
by its exact value. So nothing collides, and a file that gains a seed or a strategy goes on with what is there.

The results of an experiment as tidy rows: one per trial and cycle, with all that a figure needs.

A cycle's row describes the model trained on what was labelled then, and the batch that was chosen with it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..inputs import shown
from ..pools import Tail
from ..pools.longtail import exact_number
from ..types import IntArray
from .config import Experiment, Setting, StrategyPart


class RecordingOracle:
    """Rows of the pool in, their true classes out; `asked` holds the rows in the order in which they were asked for.

    >>> import numpy as np
    >>> oracle = RecordingOracle(np.array([2, 0, 1]))
    >>> oracle(np.array([2, 0])).tolist(), oracle.asked
    ([1, 2], [2, 0])
    """

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels  # (N,)
        self.asked: list[int] = []

    def __call__(self, rows: IntArray) -> IntArray:
        """The classes of some rows, (m,)."""
        if not ((rows >= 0) & (rows < len(self._labels))).all():
            raise BadInput(f"asked for the labels of {shown(rows.tolist())}; rows go from 0 to {len(self._labels) - 1}")
        self.asked += rows.tolist()
        answers: IntArray = self._labels[rows]
        return answers

    def check(self, batch: IntArray, strategy: str) -> None:
        """Reject a batch whose strategy has read labels of other rows: it would have had them for nothing."""
        outside = sorted(set(self.asked) - set(batch.tolist()))
        if outside:
            raise BadInput(
                f"strategy {strategy!r} has read the labels of {len(outside)} images that are not in its batch, "
                f"the first of them row {outside[0]}; it may read only the labels of its picks"
            )


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


@dataclass(frozen=True, slots=True)
class Row:
    """One cycle of one trial. Cycle 0 is the model on the initial set, shared by all strategies of a seed."""

    experiment: str
    pool: str
    setting: str  # such as "step 0.1", "exponential 0.01", "balanced"
    imbalance: float
    learner: str
    strategy: str  # such as "entropy"
    balance: str  # "0", "auto", "paper", "0.6", "within 5%"
    seed: int
    cycle: int
    labelled: int  # M
    share: float  # M over the size of the original training set
    accuracy: float  # on the test set, 0 to 1
    adjusted_accuracy: float  # the same after dividing the softmax by the classes' shares among all images
    balanced_accuracy: float
    tail_accuracy: float  # on the classes of the tail; NaN where there is no tail
    l1_score: float  # of the labelled set
    recalls: tuple[float, ...]  # (C,)
    counts: tuple[int, ...]  # (C,) labelled so far
    pool_counts: tuple[int, ...]  # (C,) true classes of what is not labelled yet
    # the batch chosen with this model; empty and NaN in the last cycle
    picks: int
    lam: float
    gap: float
    informativeness: float
    l1: float  # distance of the expected counts from the target
    batch_l1_score: float  # L1 score of the batch, by true classes
    expected: tuple[float, ...]  # (C,) expected counts of the batch
    realised: tuple[int, ...]  # (C,) true counts of the batch
    temperature: float  # 1 where not calibrated
    seconds_fit: float
    seconds_predict: float  # what the strategy asks about the pool: softmax, embeddings, passes, VAAL's nets
    seconds_select: float  # from there to the batch
    version: str
    status: str = ""  # of the batch's certificate; only after "time limit" do the picks depend on the machine's speed
    settings: str = ""  # of the strategy, such as "parts=4"; empty where all are the defaults
    seconds_calibrate: float = math.nan  # fitting the calibration on folds of the labelled set
    seconds_test: float = math.nan  # scoring the test set
    adjusted_balanced_accuracy: float = math.nan  # mean recall of the adjusted decisions; NaN in older results

    @property
    def method(self) -> str:
        """The strategy's name, "-cb" behind it where it is balanced."""
        return self.strategy if self.balance == "0" else f"{self.strategy}-cb"
