"""The gains that the paper prints in its tables 1 to 3, and which of our results stand beside them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

from .names import Condition, Method

PAPER_NETS = {"cifar10": "resnet18", "cifar100": "resnet18", "tinyimagenet": "resnet101"}
FIRST_SHARE, SHARE_PER_CYCLE = 0.10, 0.05  # of the original training set
NOT_THE_PAPERS = "not the paper's setting"


@dataclass(frozen=True, slots=True)
class Published:
    """A printed gain, in points, and whether our setting is the one it was measured in."""

    points: float
    same_setting: bool


def published_gain(condition: Condition, method: Method, cycle: int, share: float) -> Published | None:
    """What the paper prints for this data set, imbalance, method and cycle; None where it prints nothing.

    Features, another net or other budgets are compared all the same, and marked.
    """
    if not method.balanced or not is_step(condition):
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


def is_step(condition: Condition) -> bool:
    """Whether the pool is balanced or thinned out by a step, as in the paper."""
    return condition.imbalance == 1 or condition.setting.startswith("step")


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
