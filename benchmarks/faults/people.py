"""People who label over HTTP until the server is gone, and who remember each answer with its key.

What was sent without an answer is sent again, with the same key, when the server is back.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

import numpy as np

from benchmarks.labeller import Line, SaidNo

from .sound import Event

UNDO, AGAIN = 0.1, 0.1  # how often an answer is taken back, and how often one that was saved is sent again
LEASED = 8
GONE = (OSError, HTTPException)  # nobody answers any more


@dataclass(slots=True)
class Book:
    """What one person has sent, and what the server has acknowledged."""

    name: str
    sent: dict[str, Event] = field(default_factory=dict)  # by key, in the order in which it was sent
    acknowledged: set[str] = field(default_factory=set)
    complaints: list[str] = field(default_factory=list)  # answers of the server that are wrong

    def new_key(self) -> str:
        """A key that was never used."""
        return f"{self.name}-{len(self.sent):08d}"

    def waiting(self) -> list[str]:
        """Keys that were sent and not acknowledged."""
        return [key for key in self.sent if key not in self.acknowledged]


@dataclass(slots=True)
class Person:
    """Labels with one connection."""

    book: Book
    truth: Mapping[str, int]
    rng: np.random.Generator
    trouble: SaidNo | None = None  # why the server refused, where it did

    def label(self, url: str, token: str, most: int) -> None:
        """Send again what waits, then answer up to so many images, while the server and the round last."""
        try:
            with Line(url, token) as line:
                self._resend(line)
                self._go_on(line, most)
        except GONE:
            return
        except SaidNo as error:
            self.trouble = error

    def _resend(self, line: Line) -> None:
        for key in self.book.waiting():
            if self.book.sent[key][2] == "undo":
                self._undo(line, key)
            else:
                self._answer(line, [key])

    def _go_on(self, line: Line, most: int) -> None:
        done = 0
        while done < most:
            told = line.post("/api/lease", annotator=self.book.name, count=min(LEASED, most - done))
            images = [image["key"] for image in told["images"]]
            if not images:
                return
            done += len(images)
            while images:
                part, images = images[: (size := int(self.rng.integers(1, 5)))], images[size:]
                self._answer(line, [self._new_answer(image) for image in part])
                self._sometimes(line)

    def _sometimes(self, line: Line) -> None:
        """Take the last answer back, or send an old one again, as one does whose network is poor."""
        chance = self.rng.random()
        if chance < UNDO:
            last = next(key for key in reversed(self.book.sent) if self.book.sent[key][2] == "label")
            if not any(event[4] == last for event in self.book.sent.values()):
                image, name, _, _, _ = self.book.sent[last]
                key = self.book.new_key()
                self.book.sent[key] = (image, name, "undo", None, last)
                self._undo(line, key)
        elif chance < UNDO + AGAIN:
            old = [key for key in self.book.acknowledged if self.book.sent[key][2] == "label"]
            self._answer(line, [old[int(self.rng.integers(len(old)))]])

    def _new_answer(self, image: str) -> str:
        key = self.book.new_key()
        self.book.sent[key] = (image, self.book.name, "label", self.truth[image], None)
        return key

    def _answer(self, line: Line, keys: Sequence[str]) -> None:
        said = [
            {"key": key, "image": image, "kind": kind, "class_id": class_id}
            for key, (image, _, kind, class_id, _) in ((key, self.book.sent[key]) for key in keys)
        ]
        told = line.post("/api/answers", annotator=self.book.name, answers=said)
        for one in told["results"]:
            self._take(one)

    def _take(self, told: Mapping[str, Any]) -> None:
        if not told["saved"]:
            self.book.complaints.append(f"{told['key']} was refused: {told['error']['message']}")
        elif told["fresh"] and told["key"] in self.book.acknowledged:
            self.book.complaints.append(f"{told['key']} was saved before, and is called fresh")
        else:
            self.book.acknowledged.add(told["key"])

    def _undo(self, line: Line, key: str) -> None:
        undoes = self.book.sent[key][4]
        told = line.post("/api/undo", annotator=self.book.name, key=key, undoes=undoes)
        if told["undone"] is None:
            self.book.complaints.append(f"{key} undid nothing")
        self.book.acknowledged.add(key)


def label_together(people: Sequence[Person], url: str, token: str, most: int) -> list[threading.Thread]:
    """Everybody at once, each in a thread of its own."""
    threads = [threading.Thread(target=person.label, args=(url, token, most), daemon=True) for person in people]
    for thread in threads:
        thread.start()
    return threads
