"""One kill and what came of it; when to kill so that all of the work is hit; and the sums that the table shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class Struck:
    """What one fault did to a campaign."""

    acknowledged: int  # labels that somebody was told are saved
    lost: int
    doubled: int
    went_on: bool  # the same verb again did its work
    faults: tuple[str, ...] = ()  # all else that is not as it should be
    hit: bool = True  # False where nothing was killed, or the work was done before the kill came
    at: str = ""  # how far the work was
    left: tuple[int, int] = (0, 0)  # files of no use that were left, and their bytes
    after: float = math.nan  # seconds to the kill, where it was not at the moment that was asked for

    @property
    def sound(self) -> bool:
        """Nothing lost, nothing doubled, nothing broken, and the work goes on."""
        return self.lost == self.doubled == 0 and self.went_on and not self.faults


class Attack(Protocol):
    """A verb that is to be killed."""

    @property
    def verb(self) -> str:
        """Its name in the table."""
        ...

    def undisturbed(self) -> float:
        """Seconds of a run that nobody kills."""
        ...

    def strike(self, moment: float) -> Struck:
        """Kill it so many seconds after its start, look at what is left, and go on."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the results: a strike, when it fell, and how long an undisturbed run takes."""

    verb: str
    moment: float
    seconds: float
    struck: Struck


def moments(kills: int, seconds: float, rng: np.random.Generator) -> list[float]:
    """Chance moments, one in each of equal parts of the time, in a chance order.

    >>> spread = moments(4, 8.0, np.random.default_rng(0))
    >>> [2 * part <= moment < 2 * part + 2 for part, moment in enumerate(sorted(spread))]
    [True, True, True, True]
    """
    parts = (np.arange(kills) + rng.random(kills)) / kills
    return [float(seconds * part) for part in rng.permutation(parts)]


def attack(one: Attack, kills: int, rng: np.random.Generator) -> list[Line]:
    """Kill so often; a run that came to its end before the kill is struck again, a little earlier."""
    seconds = one.undisturbed()
    lines: list[Line] = []
    for moment in moments(kills, seconds, rng):
        struck, earlier = one.strike(moment), moment
        while not struck.hit:
            if not struck.sound:
                break
            earlier *= 0.7
            struck = one.strike(earlier)
        lines.append(Line(one.verb, earlier if math.isnan(struck.after) else struck.after, seconds, struck))
    return lines


@dataclass(frozen=True, slots=True)
class Sum:
    """A line of the table."""

    verb: str
    kills: int
    acknowledged: int
    lost: int
    doubled: int
    went_on: int
    faults: tuple[str, ...]
    left: tuple[int, int]

    @classmethod
    def of(cls, verb: str, struck: Sequence[Struck]) -> Sum:
        """Of all strikes on one verb."""
        return cls(
            verb, sum(one.hit for one in struck), sum(one.acknowledged for one in struck),
            sum(one.lost for one in struck), sum(one.doubled for one in struck), sum(one.went_on for one in struck),
            tuple(fault for one in struck for fault in one.faults),
            (sum(one.left[0] for one in struck), sum(one.left[1] for one in struck)),
        )  # fmt: skip


def sums(lines: Iterable[Line]) -> list[Sum]:
    """One line per verb, in the order in which they came."""
    by_verb: dict[str, list[Struck]] = {}
    for line in lines:
        by_verb.setdefault(line.verb, []).append(line.struck)
    return [Sum.of(verb, struck) for verb, struck in by_verb.items()]
