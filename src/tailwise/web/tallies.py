"""Counts for all who ask: exact while counting is quick, else as of a moment ago.

With a million labels a count takes seconds, and eight pages ask every few seconds. Each count is a short read of its
own: without a log beside the ledger an answer cannot be committed while somebody reads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..campaign.answers import annotators, counts
from ..campaign.choosing import candidate_images
from ..campaign.images import count_usable
from ..campaign.ledger import Ledger
from ..campaign.rounds import RoundProgress, progress

QUICK = 0.005  # seconds of the processor that are no burden
SHARE = 20  # a slow count is used twenty times as long as it took

Result = TypeVar("Result")
Counted = TypeVar("Counted")


class Ask(Protocol):
    """Puts one question to the ledger, beside the writer, and lets the writer in afterwards."""

    def __call__(self, question: Callable[[Ledger], Result], /) -> Result:
        """The answer."""
        ...


@dataclass(frozen=True, slots=True)
class Tally:
    """Of the whole campaign."""

    usable: int  # images
    labelled: Mapping[int, int]  # by class id
    annotators: tuple[str, ...]
    conflicts: int


@dataclass(frozen=True, slots=True)
class RoundTally:
    """Of one round."""

    progress: RoundProgress
    mine: Mapping[str, int]  # images that each person has answered
    realised: Mapping[int, int]  # labels by class id
    skipped: int  # images that are done, and of which nobody has said what they are


@dataclass(frozen=True, slots=True)
class Left:
    """What the next round can be chosen from."""

    left: int  # images
    skipped: int  # more images, which people have skipped


class Remembered(Generic[Counted]):
    """Counts when it must, and remembers what that took."""

    def __init__(self, count: Callable[[Ask], Counted]) -> None:
        self._count = count
        self._turn = threading.Lock()
        self._kept: Counted | None = None
        self._cost = 0.0
        self._until = 0.0

    def get(self, ask: Ask) -> Counted:
        """The counts; those from before while they are fresh enough, or while somebody else is counting anew."""
        kept = self._kept
        if kept is not None and self._cost > QUICK and (time.monotonic() < self._until or self._turn.locked()):
            return kept
        with self._turn:
            started = time.thread_time()  # not the clock: on a busy machine everything takes long
            self._kept = fresh = self._count(ask)
            self._cost = time.thread_time() - started
            self._until = time.monotonic() + SHARE * self._cost
            return fresh


class Tallies:
    """Those of the campaign and of its newest round."""

    def __init__(self) -> None:
        self._campaign = Remembered(count)
        self._left = Remembered(count_left)
        self._round: tuple[int, Remembered[RoundTally]] = (0, Remembered(lambda ask: count_round(ask, 0)))

    def get(self, ask: Ask) -> Tally:
        """Of the campaign."""
        return self._campaign.get(ask)

    def left(self, ask: Ask) -> Left:
        """What the next round can be chosen from."""
        return self._left.get(ask)

    def of_round(self, ask: Ask, number: int) -> RoundTally:
        """Of a round; what is remembered of another one is forgotten."""
        known, remembered = self._round
        if known != number:
            remembered = Remembered(lambda ask: count_round(ask, number))
            self._round = (number, remembered)
        return remembered.get(ask)


def count(ask: Ask) -> Tally:
    """Count the campaign now."""
    conflicts: Any = ask(lambda ledger: ledger.read("SELECT count(*) FROM conflict")[0][0])
    return Tally(ask(count_usable), ask(counts), tuple(ask(annotators)), conflicts)


def count_left(ask: Ask) -> Left:
    """Count what is left now."""
    left, with_skipped = len(ask(candidate_images)), len(ask(lambda ledger: candidate_images(ledger, skipped=True)))
    return Left(left, with_skipped - left)


def count_round(ask: Ask, number: int) -> RoundTally:
    """Count a round now."""
    return RoundTally(
        ask(lambda ledger: progress(ledger, number)),
        ask(lambda ledger: answered(ledger, number)),
        ask(lambda ledger: realised(ledger, number)),
        ask(lambda ledger: skipped(ledger, number)),
    )


def answered(ledger: Ledger, number: int) -> dict[str, int]:
    """How many images of a round each person has answered; a skip is no answer."""
    rows = ledger.read(
        "SELECT a.annotator, count(*) FROM round_image AS r JOIN answer AS a ON a.image_id = r.image_id "
        "WHERE r.round_id = ? AND a.kind <> 'skip' GROUP BY a.annotator",
        (number,),
    )
    return {row[0]: row[1] for row in rows}


def realised(ledger: Ledger, number: int) -> dict[int, int]:
    """Decided images of a round by class id."""
    rows = ledger.read(
        "SELECT l.class_id, count(*) FROM current_label AS l "
        "JOIN round_image AS r ON r.image_id = l.image_id AND r.round_id = ? GROUP BY l.class_id",
        (number,),
    )
    return {row[0]: row[1] for row in rows}


def skipped(ledger: Ledger, number: int) -> int:
    """Images of a round that as many people as it wants have skipped in it, and nobody has answered or settled."""
    return int(ledger.read(_SKIPPED, (number,))[0][0])


_SKIPPED = """
SELECT count(*) FROM round_image AS r JOIN round AS o ON o.id = r.round_id
WHERE r.round_id = ? AND r.wanted <= (
        SELECT count(*) FROM answer AS a WHERE a.image_id = r.image_id AND a.kind = 'skip'
            AND (a.round_id >= r.round_id OR (a.round_id IS NULL AND a.at >= o.opened_at))
    )
    AND NOT EXISTS (SELECT 1 FROM answer AS a WHERE a.image_id = r.image_id AND a.kind <> 'skip')
    AND NOT EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = r.image_id)
"""
