"""Which classes are short of labels: one definition, for the dashboard, the gallery and `tailwise find` alike.

The target of class c, in labels at the end of the newest round:
    t_c = labels before the round + its share of the round, where a model chose the round;
    t_c = all labels / number of classes, where none did, and for a class that came later.
It wants w_c = t_c rounded to whole labels, but at least 1 where t_c > 0, and is max(0, w_c − labels now) short.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import answers
from .classes import list_classes
from .ledger import Ledger
from .rounds import Round, current_round, list_rounds


@dataclass(frozen=True, slots=True)
class ClassNeed:
    """How far a class is from its target.

    Attributes
    ----------
    labelled: decided images now.
    target: t_c, labels at the end of the newest round.
    wanted: w_c, the target in whole labels.
    short: labels that are missing.
    """

    class_id: int
    name: str
    labelled: int
    target: float
    wanted: int
    short: int


def class_needs(ledger: Ledger, rounds: Sequence[Round] | None = None) -> tuple[ClassNeed, ...]:
    """The classes in use, the one that lacks most labels first; then the one with fewest, then in their order."""
    opened = list_rounds(ledger) if rounds is None else rounds
    used, counts = list_classes(ledger), answers.counts(ledger)
    equal = sum(counts[one.id] for one in used) / len(used) if used else 0.0
    targets = round_targets(opened[-1].why) if opened else {}
    needs = []
    for one in used:
        target, labelled = targets.get(one.id, equal), counts[one.id]
        wanted = whole_labels(target)
        needs.append(ClassNeed(one.id, one.name, labelled, target, wanted, max(0, wanted - labelled)))
    return tuple(sorted(needs, key=lambda one: (-one.short, one.labelled)))


def short_classes(ledger: Ledger) -> list[ClassNeed]:
    """The classes that are short, the shortest first."""
    return [one for one in class_needs(ledger) if one.short]


def whole_labels(target: float) -> int:
    """A target in whole labels: rounded, halves down; at least 1 of a class that is to have any.

    >>> [whole_labels(target) for target in (0.0, 0.2, 1.4, 1.5, 1.6)]
    [0, 1, 1, 1, 2]
    """
    return max(1, math.ceil(target - 0.5)) if target > 0 else 0


def round_targets(why: Mapping[str, Any]) -> dict[int, float]:
    """Labels that each class was to have after a round, by its reasons; empty where no model chose it."""
    numbers, before, wanted = (why.get(name) or [] for name in ("class_ids", "counts", "target"))
    if not len(numbers) == len(before) == len(wanted):
        return {}
    return {int(n): float(b) + float(w) for n, b, w in zip(numbers, before, wanted, strict=True)}


def nothing_short_text(ledger: Ledger) -> str:
    """What to say where no class is short; where nothing is labelled, what to do first."""
    if any(one.labelled for one in class_needs(ledger)):
        return "No class is short of labels."
    first = "Open a round and label" if current_round(ledger) is None else "Label"
    return f"Nothing is labelled yet. {first} some images first: then the classes that are short are listed here."
