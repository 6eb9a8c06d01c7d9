"""Kills of the server while people label: every answer that it called saved is there once, whatever was under way."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .nursery import PATIENCE, Silent, Victim
from .people import Book, Person, label_together
from .sound import Compared, Event, compare, events, faults, left_over
from .stage import Stage, truths
from .strikes import Struck

NAMES = ("ann", "ben")
EACH = 30  # answers of each person in an undisturbed run; four times as many take them beyond nearly every kill
AFTER = 2  # answers of each person when the server is back


@dataclass(slots=True)
class Labelling:
    """One campaign bears kill upon kill, until nearly all of its images are answered; then comes the next."""

    stage: Stage
    rng: np.random.Generator
    verb: str = "label"
    each: int = EACH
    folder: Path = Path()  # of a campaign that nobody has answered; without one, a fresh one is taken
    people: list[Person] = field(init=False)

    def __post_init__(self) -> None:
        self.begin(self.folder if self.folder.name else self.stage.copy("round"))

    def begin(self, folder: Path) -> None:
        """Begin to label a campaign, with empty books."""
        self.folder, truth = folder, truths(folder)
        self.people = [Person(Book(name), truth, self.rng) for name in NAMES]

    def undisturbed(self) -> float:
        """From the start of the server until all have said what they had to say."""
        with self.stage.nursery.start("serve", folder=str(self.folder)) as server:
            self._label(server, self.each)
            seconds = time.monotonic() - server.started
            server.end()
        return seconds

    def strike(self, moment: float) -> Struck:
        """Kill the server, compare, start it again, send what waits, label on, compare."""
        if self.left_to_answer() < 2 * len(self.people) * (self.each + AFTER):
            self.begin(self.stage.copy("round"))
        with self.stage.nursery.start("serve", folder=str(self.folder)) as server:
            up, threads = _up_in_time(server, moment), []
            if up:
                enough = self.left_to_answer() // len(self.people) - AFTER  # some must be left to go on with
                threads = label_together(self.people, up["url"], up["token"], min(4 * self.each, enough))
            hit = server.kill_at(moment)
            for thread in threads:
                thread.join(PATIENCE)
        after_kill, waiting = self.compared(), sum(len(person.book.waiting()) for person in self.people)
        at = f"{len(self.acknowledged())} saved, {waiting} under way"
        went_on = self.go_on()
        at_end = self.compared()
        missing = [key for person in self.people for key in person.book.waiting()]
        trouble = [*self.complaints(), *(f"{key} waits still" for key in missing), *faults(self.folder)]
        return Struck(
            acknowledged=len(self.acknowledged()),
            lost=len({*after_kill.lost, *at_end.lost}),
            doubled=len({*after_kill.doubled, *at_end.doubled}),
            went_on=went_on,
            faults=tuple(trouble),
            hit=hit,
            at=at,
            left=left_over(self.folder),
        )

    def go_on(self) -> bool:
        """Start the server again; true where everybody could send what waited, and more."""
        before = len(self.acknowledged())
        with self.stage.nursery.start("serve", folder=str(self.folder)) as server:
            self._label(server, AFTER)
            server.end()
        return len(self.acknowledged()) >= before + len(self.people) * AFTER

    def compared(self) -> Compared:
        """The ledger beside the books."""
        return compare(events(self.folder), self.sent(), self.acknowledged())

    def sent(self) -> Mapping[str, Event]:
        """All that anybody has sent."""
        return {key: event for person in self.people for key, event in person.book.sent.items()}

    def acknowledged(self) -> set[str]:
        """All keys that the server has called saved."""
        return {key for person in self.people for key in person.book.acknowledged}

    def complaints(self) -> Sequence[str]:
        """What the server should not have said."""
        refused = [str(person.trouble) for person in self.people if person.trouble]
        return [*refused, *(complaint for person in self.people for complaint in person.book.complaints)]

    def left_to_answer(self) -> int:
        """Images of the round that nobody has answered."""
        return self.stage.images - len({event[0] for event in self.sent().values()})

    def _label(self, server: Victim, most: int) -> None:
        up = server.hear()
        for thread in label_together(self.people, up["url"], up["token"], most):
            thread.join(PATIENCE)


def _up_in_time(server: Victim, moment: float) -> Mapping[str, str]:
    """Where the server is; nothing where it is not up before its time is over."""
    try:
        up: Mapping[str, str] = server.hear(max(0.0, server.started + moment - time.monotonic()))
    except Silent:
        return {}
    return up
