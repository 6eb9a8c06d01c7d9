"""One measured number, the limit it must keep, and whether it does.

Rows of the benchmark yield these; the report and the CSV are made of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

FIRST_SEED = 1_000  # pools below played a part in choosing the solver's constants; these did not


@dataclass(frozen=True, slots=True)
class Measured:
    """A number, or a word, with its verdict."""

    row: str
    instance: str
    seed: int | None
    quantity: str
    value: float | str
    limit: str = ""  # "<= 1", ">= 100" or "" where the number is only told
    met: bool | None = None  # None: nothing was promised, or it could not be decided
    note: str = ""

    @property
    def verdict(self) -> str:
        """In words."""
        if self.met is None:
            return "undecided" if self.limit else ""
        return "met" if self.met else "NOT met"


@dataclass(frozen=True, slots=True)
class Sheet:
    """Writes measurements of one row on one instance."""

    row: str
    instance: str
    seed: int | None = None

    def tell(self, quantity: str, value: float | str, note: str = "") -> Measured:
        """A number without a limit."""
        return Measured(self.row, self.instance, self.seed, quantity, value, note=note)

    def at_most(self, quantity: str, value: float, limit: float, note: str = "") -> Measured:
        """A number that must not exceed a limit; NaN exceeds it."""
        return Measured(
            self.row, self.instance, self.seed, quantity, value, f"<= {limit:g}", bool(value <= limit), note
        )

    def at_least(self, quantity: str, value: float, limit: float, note: str = "", *, decided: bool = True) -> Measured:
        """A number that must reach a limit; `decided=False` where a number below it proves nothing."""
        met = bool(value >= limit)
        verdict = met if met or decided else None
        return Measured(self.row, self.instance, self.seed, quantity, value, f">= {limit:g}", verdict, note)

    def undecided(self, quantity: str, limit: str, why: str) -> Measured:
        """A comparison for which the peer gave nothing to compare with."""
        return Measured(self.row, self.instance, self.seed, quantity, np.nan, limit, None, why)

    def failed(self, quantity: str, limit: str, why: str) -> Measured:
        """A measurement that could not be made: a miss, never a gap in the table."""
        return Measured(self.row, self.instance, self.seed, quantity, np.nan, limit, False, why)


@dataclass(frozen=True, slots=True)
class Run:
    """How much is to be measured."""

    quick: bool = False
    peers: bool = True

    @property
    def mode(self) -> str:
        """As stored with the results."""
        return ("quick" if self.quick else "full") + ("" if self.peers else ", no peers")

    def seeds(self, full: int, quick: int = 1) -> range:
        """The seeds to go through."""
        return range(FIRST_SEED, FIRST_SEED + (quick if self.quick else full))


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table."""

    name: str
    must_show: str
    measure: Callable[[Run], Iterator[Measured]]
