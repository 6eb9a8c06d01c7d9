"""Kills of an import: what it had reported is there, and importing again completes it without doubling anything."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tailwise.campaign.ledger import Ledger

from .sound import Event, events, faults, left_over
from .stage import Stage
from .strikes import Struck

Claim = tuple[str, str, str]

_IMPORTED = """
SELECT i.path, c.name, e.annotator FROM event AS e JOIN image AS i ON i.id = e.image_id
JOIN class AS c ON c.id = e.class_id WHERE e.source = 'import'
"""


@dataclass(slots=True)
class Importing:
    """A fresh campaign for each kill."""

    stage: Stage
    verb: str = "import"

    def undisturbed(self) -> float:
        """A whole import."""
        started = time.monotonic()
        self._import(self.stage.copy("labelled"))
        return time.monotonic() - started

    def strike(self, moment: float) -> Struck:
        """Kill it, compare, import again, and once more, which must change nothing."""
        folder = self.stage.copy("labelled")
        before = events(folder)
        with self.stage.nursery.start("import", folder=str(folder), table=str(self.stage.table())) as victim:
            hit = victim.kill_at(moment)
            shares = [word["share"] for word in victim.words if "share" in word]
        reported = round(len(self.stage.claims()) * max(shares, default=0.0))
        return replace(self.judged(folder, before, reported), hit=hit)

    def judged(self, folder: Path, before: Sequence[tuple[str, Event]], reported: int) -> Struck:
        """What an import has left that had reported so many answers, and what comes of importing again."""
        claims, half = self.stage.claims(), imported(folder)
        missing = missing_claims(half, claims[:reported]) + _gone(before, folder)
        added, again = self._import(folder), self._import(folder)
        whole = imported(folder)
        return Struck(
            acknowledged=len(before) + reported,
            lost=missing + missing_claims(whole, claims) + _gone(before, folder),
            doubled=doubled_claims(half) + doubled_claims(whole) + again,
            went_on=added == len(claims) - len(half),
            faults=tuple(faults(folder)),
            at=f"{reported} of {len(claims)} reported, {len(half)} there",
            left=left_over(folder),
        )

    def _import(self, folder: Path) -> int:
        """How many answers are new."""
        word = self.stage.nursery.run("import", folder=str(folder), table=str(self.stage.table()))
        return int(word.get("done", -1))


def imported(folder: Path) -> list[Claim]:
    """Path, class and author of each imported answer."""
    with Ledger.open(folder, read_only=True) as ledger:
        return [(row[0], row[1], row[2]) for row in ledger.read(_IMPORTED)]


def missing_claims(there: Sequence[Claim], wanted: Sequence[Claim]) -> int:
    """How many are not there.

    >>> missing_claims([("a.png", "oak", "ann")], [("a.png", "oak", "ann"), ("a.png", "oak", "ben")])
    1
    """
    return len(set(wanted) - set(there))


def doubled_claims(there: Sequence[Claim]) -> int:
    """How many answers of one person to one image there are beyond the first.

    >>> doubled_claims([("a.png", "oak", "ann"), ("a.png", "ash", "ann"), ("b.png", "oak", "ann")])
    1
    """
    return sum(count - 1 for count in Counter((path, author) for path, _, author in there).values())


def _gone(before: Sequence[object], folder: Path) -> int:
    """How many of the events that were there are not there any more, as they were."""
    now = set(events(folder))
    return sum(event not in now for event in before)
