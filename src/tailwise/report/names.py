"""Names and order of what a report shows: conditions, methods, λ sweeps, and the gains that the paper prints.

A strategy says its display name, its rank and its classical form where it is defined.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ..experiments.experiment import Row
from ..strategies import STRATEGIES
from ..strategies.select import PATH_COLUMNS, BalancePath

PAPER_NETS = {"cifar10": "resnet18", "cifar100": "resnet18", "tinyimagenet": "resnet101"}
FIRST_SHARE, SHARE_PER_CYCLE = 0.10, 0.05  # of the original training set
NOT_THE_PAPERS = "not the paper's setting"


@cache
def report_order() -> tuple[str, ...]:
    """Every registered strategy, in the order of reports: the paper's in its order, then the others by name.

    >>> report_order()[:4]
    ('random', 'entropy', 'kcenter', 'vaal')
    """
    return tuple(sorted(STRATEGIES, key=lambda name: (getattr(STRATEGIES[name], "rank", 100), name)))


def strategy_title(strategy: str) -> str:
    """The display name of a strategy; one that is not registered here keeps its name.

    >>> strategy_title("kcenter"), strategy_title("mine")
    ('KCenter', 'mine')
    """
    return getattr(STRATEGIES[strategy], "title", strategy) if strategy in STRATEGIES else strategy


def classical_form(strategy: str) -> str:
    """The strategy that this one is at λ = 0, where that has a name of its own; otherwise itself.

    >>> classical_form("entropy-l1-pseudo-label"), classical_form("kcenter"), classical_form("mine")
    ('entropy', 'kcenter', 'mine')
    """
    return (getattr(STRATEGIES[strategy], "classical", "") if strategy in STRATEGIES else "") or strategy


@dataclass(frozen=True, slots=True)
class Condition:
    """One pool in one state of imbalance, with one learner."""

    pool: str
    learner: str
    setting: str
    imbalance: float


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
    """A strategy with its balance and its settings, under a label that is unique in its study."""

    strategy: str
    balance: str
    label: str = field(compare=False)  # such as "entropy-cb", or "kcenter-cb (0.6, parts=4)" where there are several
    settings: str = ""

    @property
    def balanced(self) -> bool:
        """Whether λ is above 0."""
        return self.balance != "0"

    @property
    def shown(self) -> str:
        """As people write it: "Entropy-CB", or "KCenter-CB (λ = 0.6, parts 4)" where there are several."""
        behind, bracket, details = self.label.removeprefix(self.strategy).partition(" (")
        name = strategy_title(self.strategy) + behind.replace("-cb", "-CB")
        if not bracket:
            return name
        words = details.removesuffix(")").replace("=", " ")
        return f"{name} ({'λ = ' if words[:1].isdigit() else ''}{words})"


def method_order(method: Method) -> tuple[int, str, bool, bool, str, str]:
    """The paper's strategies in its order, others by name; classical, then balanced by the rule, then otherwise."""
    order = report_order()
    return (
        order.index(method.strategy) if method.strategy in order else len(order),
        method.strategy,
        method.balanced,
        method.balance not in {"auto", "paper"},
        method.balance,
        method.settings,
    )


def study_methods(rows: Iterable[Row]) -> dict[tuple[str, str, str, str, str], Method]:
    """Methods by pool, learner, strategy, balance and settings.

    Balances and settings appear only where a study has several of a strategy.
    """
    variants: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for row in rows:
        variants.setdefault((row.pool, row.learner, row.strategy), set()).add((row.balance, row.settings))
    found = {}
    for key, pairs in variants.items():
        several = len({balance for balance, _ in pairs} - {"0"}) > 1
        settings_differ = len({settings for _, settings in pairs}) > 1
        for balance, settings in pairs:
            label = method_label(key[2], balance, several=several, settings=settings if settings_differ else "")
            found[*key, balance, settings] = Method(key[2], balance, label, settings)
    return found


def method_label(strategy: str, balance: str, *, several: bool = False, settings: str = "") -> str:
    """The name of a method in tables and files.

    Entropy with pseudo-labels is balanced by its nature: it goes without "-cb", and λ = 0 is the exception.

    >>> method_label("entropy", "0"), method_label("entropy", "auto"), method_label("entropy", "0.6", several=True)
    ('entropy', 'entropy-cb', 'entropy-cb (0.6)')
    >>> method_label("kcenter", "0", settings="parts=4")
    'kcenter (parts=4)'
    >>> method_label("kcenter", "0.6", several=True, settings="parts=4")
    'kcenter-cb (0.6, parts=4)'
    """
    always_balanced = classical_form(strategy) != strategy
    shows_balance = always_balanced if balance == "0" else several
    behind = "" if balance == "0" or always_balanced else "-cb"
    details = ", ".join([*([balance] if shows_balance else []), *([settings] if settings else [])])
    return strategy + behind + (f" ({details})" if details else "")


def file_stem(text: str) -> str:
    """A name that is safe as a file's on every system.

    >>> file_stem("Step 0.1 / ../x")
    'step-0.1-x'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower().replace("..", " ")).strip("-.") or "unnamed"


# What the paper prints.


@dataclass(frozen=True, slots=True)
class Published:
    """A printed gain, in points, and whether our setting is the one it was measured in."""

    points: float
    same_setting: bool


def published_gain(condition: Condition, method: Method, cycle: int, share: float) -> Published | None:
    """What the paper prints for this data set, imbalance, method and cycle; None where it prints nothing.

    Features, another net or other budgets are compared all the same, and marked.
    """
    step = condition.imbalance == 1 or condition.setting.startswith("step")  # as all pools of the paper
    if not method.balanced or not step:
        return None
    points = published_gains().get((data_set(condition.pool), condition.imbalance, f"{method.strategy}-cb", cycle))
    return None if points is None else Published(points, same_setting(condition, cycle, share))


def data_set(pool: str) -> str:
    """The data set of a pool, as the paper's tables are keyed; features belong to the images they were made of.

    >>> data_set("tiny-imagenet"), data_set("cifar10_features"), data_set("tinyimagenet_features (first 100)")
    ('tinyimagenet', 'cifar10', 'tinyimagenetfeatures(first100)')
    """
    return re.sub(r"[-_ ]", "", re.sub(r"[-_ ]?features$", "", pool.lower()))


def same_setting(condition: Condition, cycle: int, share: float) -> bool:
    """Whether images, net and the share labelled are those of the paper.

    >>> same_setting(Condition("cifar10", "resnet18", "step 0.1", 0.1), 1, 0.15)
    True
    >>> same_setting(Condition("cifar10-features", "linear", "step 0.1", 0.1), 1, 0.15)
    False
    """
    images = "features" not in condition.pool.lower()
    net = re.sub(r"[-_ ]", "", condition.learner.lower())
    budget = abs(share - FIRST_SHARE - SHARE_PER_CYCLE * cycle) < SHARE_PER_CYCLE / 10
    return images and budget and net == PAPER_NETS.get(data_set(condition.pool))


@cache
def published_gains() -> dict[tuple[str, float, str, int], float]:
    """Points by data set, imbalance factor, method and cycle.

    >>> published_gains()["cifar10", 0.1, "entropy-cb", 2]
    0.86
    """
    text = resources.files(__package__).joinpath("published_gains.csv").read_text(encoding="utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        for cycle in range(1, 5):
            key = (line["dataset"], float(line["imbalance_factor"]), line["method"], cycle)
            found[key] = float(line[f"cycle_{cycle}"])
    return found


# λ sweeps.


@dataclass(frozen=True, slots=True)
class Reference:
    """A method without a λ to sweep: a line across each panel."""

    name: str
    informativeness: float
    l1: float
    l1_score: float


@dataclass(frozen=True, slots=True, eq=False)
class PoolSweep:
    """The sweep on the first model of a pool."""

    pool: str
    setting: str
    path: BalancePath
    references: tuple[Reference, ...] = ()


def sweep_of(content: Mapping[str, Any]) -> PoolSweep:
    """A sweep from plain values: those of `BalancePath.to_dict`, with pool, setting and references.

    >>> numbers = {"lam": [0.0, 1.0], "informativeness": [3.0, 2.0], "l1": [9.0, 1.0], "l1_score": [0.5, 0.1],
    ...            "gap": [0.0, 0.0], "chosen": 1.0, "pool": "digits", "setting": "step 0.1",
    ...            "references": {"entropy": {"informativeness": 3.0, "l1": 9.0, "l1_score": 0.5}}}
    >>> sweep_of(numbers).references
    (Reference(name='Entropy', informativeness=3.0, l1=9.0, l1_score=0.5),)
    """
    columns = {name: np.asarray(content[name], dtype=np.float64) for name in PATH_COLUMNS}
    compared = content.get("references", {})
    return PoolSweep(
        content["pool"], content["setting"], BalancePath(**columns, chosen=float(content["chosen"])),
        tuple(Reference(strategy_title(name), **numbers) for name, numbers in compared.items()),
    )  # fmt: skip
