"""What things are called in a report, and in which order they stand: conditions, methods, measures, file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..bench.results import Row

SHOWN = {
    "random": "Random",
    "entropy": "Entropy",
    "kcenter": "KCenter",
    "vaal": "VAAL",
    "bald": "BALD",
    "coreset": "CoreSet",
    "entropy-l1-pseudo-label": "Entropy-L1-Pseudo-Label",
    "margin": "Margin",
    "least-confidence": "Least confidence",
    "typiclust": "TypiClust",
}
PLACES = {name: place for place, name in enumerate(SHOWN)}
PSEUDO = "entropy-l1-pseudo-label"
BASE_OF = {PSEUDO: "entropy"}  # what a strategy is at λ = 0, where that has a name of its own


@dataclass(frozen=True, slots=True)
class Condition:
    """One pool in one state of imbalance, with one learner."""

    pool: str
    learner: str
    setting: str
    imbalance: float

    def order(self) -> tuple[str, str, float, str]:
        """By pool and learner, then from balanced to most imbalanced, as in the paper."""
        return (self.pool, self.learner, -self.imbalance, self.setting)


@dataclass(frozen=True, slots=True)
class Study:
    """One pool with one learner: a figure, with a panel for each condition."""

    pool: str
    learner: str
    conditions: tuple[Condition, ...]

    @property
    def name(self) -> str:
        """For headings."""
        return f"{self.pool}, {self.learner}"

    @property
    def stem(self) -> str:
        """For file names."""
        return file_stem(f"{self.pool}-{self.learner}")


@dataclass(frozen=True, slots=True)
class Method:
    """A strategy with its balance setting, under a label that is unique in its study."""

    strategy: str
    balance: str
    label: str = field(compare=False)  # such as "entropy-cb"

    @property
    def balanced(self) -> bool:
        """Whether λ is above 0."""
        return self.balance != "0"

    @property
    def base_strategy(self) -> str:
        """The strategy whose classical form this one is measured against."""
        return BASE_OF.get(self.strategy, self.strategy)

    @property
    def shown(self) -> str:
        """As people write it: "Entropy-CB"."""
        name = strategy_shown(self.strategy)
        return name + self.label.removeprefix(self.strategy).replace("-cb", "-CB")


def strategy_shown(strategy: str) -> str:
    """A strategy as people write it.

    >>> strategy_shown("kcenter"), strategy_shown("mine")
    ('KCenter', 'mine')
    """
    return SHOWN.get(strategy, strategy)


def method_order(method: Method) -> tuple[int, str, bool, bool, str]:
    """The paper's strategies in its order, others by name; classical, then balanced by the rule, then otherwise."""
    place = PLACES.get(method.strategy, len(PLACES))
    return (place, method.strategy, method.balanced, method.balance != "auto", method.balance)


def study_labels(rows: Iterable[Row]) -> dict[tuple[str, str, str, str], str]:
    """Labels by pool, learner, strategy and balance; balances are told apart only where a study has several."""
    variants: dict[tuple[str, str, str], set[str]] = {}
    for row in rows:
        variants.setdefault((row.pool, row.learner, row.strategy), set()).add(row.balance)
    return {
        (*key, balance): method_label(key[2], balance, several=len(balances - {"0"}) > 1)
        for key, balances in variants.items()
        for balance in balances
    }


def method_label(strategy: str, balance: str, *, several: bool = False) -> str:
    """The name of a method in tables and files.

    Entropy with pseudo-labels is balanced by its nature: it goes without "-cb", and λ = 0 is the exception.

    >>> method_label("entropy", "0"), method_label("entropy", "auto"), method_label("entropy", "0.6", several=True)
    ('entropy', 'entropy-cb', 'entropy-cb (0.6)')
    """
    if strategy in BASE_OF and balance == "0":
        return f"{strategy} (0)"
    behind = "" if balance == "0" or strategy in BASE_OF else "-cb"
    told_apart = f" ({balance})" if several and balance != "0" else ""
    return strategy + behind + told_apart


def file_stem(text: str) -> str:
    """A name that is safe as a file's on every system.

    >>> file_stem("Step 0.1 / ../x")
    'step-0.1-x'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower().replace("..", " ")).strip("-.") or "unnamed"
