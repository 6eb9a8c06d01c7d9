"""The clock of the server jumps, back and ahead, while people hold images and answer them.

Leases neither end nor last longer for it, no answer is lost, and what was said later counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.labeller import Line
from tailwise.campaign.ledger import Ledger

from .people import Book
from .sound import compare, events, faults
from .stage import Stage, truths
from .strikes import Struck

HOUR, DAY = 3_600, 86_400
ALL, SOME = 64, 8  # images that one asks for at once
MOST_RELEASED = 1000  # images of one request


@dataclass(slots=True)
class Office:
    """A server whose clock can be set, and two people who ask it for images."""

    line: Line
    clock: Path
    truth: Mapping[str, int]
    books: dict[str, Book] = field(default_factory=lambda: {name: Book(name) for name in ("ann", "ben")})
    problems: list[str] = field(default_factory=list)

    def set_clock(self, seconds: float) -> None:
        """So far from the true time."""
        self.clock.write_text(json.dumps(seconds), encoding="ascii")

    def lease(self, name: str, count: int = ALL) -> set[str]:
        """The images that somebody is given."""
        told = self.line.post("/api/lease", annotator=name, count=count)
        return {image["key"] for image in told["images"]}

    def answer(self, name: str, images: Iterable[str], classes: Mapping[str, int] | None = None) -> None:
        """Somebody answers, truly unless told otherwise, and must be told that it is saved."""
        book, said = self.books[name], []
        for image in images:
            key, class_id = book.new_key(), (classes or self.truth)[image]
            book.sent[key] = (image, name, "label", class_id, None)
            said.append({"key": key, "image": image, "kind": "label", "class_id": class_id})
        told = self.line.post("/api/answers", annotator=name, answers=said)["results"]
        self.expect("all answers are saved", all(one["saved"] for one in told))
        book.acknowledged.update(one["key"] for one in told if one["saved"])

    def release_all(self) -> None:
        """Everybody gives back what is held."""
        for name in self.books:
            self.line.post("/api/release", annotator=name, images=sorted(self.truth)[:MOST_RELEASED])

    def expect(self, what: str, is_so: object) -> None:
        """Note what is not as it must be."""
        if not is_so:
            self.problems.append(f"not so: {what}")


def clock_jump(stage: Stage) -> tuple[str, Struck]:
    """The name for the table, and what came of it."""
    folder = stage.copy("round")
    with _office(stage, folder) as office:
        for trial in (_far_back, _ahead, _a_little_back, _later_counts):
            office.set_clock(0)
            trial(office)
    sent = {key: event for book in office.books.values() for key, event in book.sent.items()}
    acknowledged = [key for book in office.books.values() for key in book.acknowledged]
    compared = compare(events(folder), sent, acknowledged)
    problems = (*office.problems, *_wrong_labels(folder, office), *faults(folder))
    return "label, clock jumps", Struck(
        len(acknowledged), len(compared.lost), len(compared.doubled), not office.problems, problems, hit=False
    )


@contextmanager
def _office(stage: Stage, folder: Path) -> Iterator[Office]:
    clock = stage.place / "clock"
    clock.write_text("0", encoding="ascii")
    with stage.nursery.start("serve", folder=str(folder), clock=str(clock)) as server:
        up = server.hear()
        with Line(up["url"], up["token"]) as line:
            yield Office(line, clock, truths(folder))
        server.end()


def _far_back(office: Office) -> None:
    """A day back: people keep what they hold, and others are given what is left."""
    _jump(office, -DAY)


def _ahead(office: Office) -> None:
    """Two hours ahead: no lease has lasted ten minutes yet, so none has ended."""
    _jump(office, 2 * HOUR)


def _jump(office: Office, seconds: float) -> None:
    held = office.lease("ann", SOME)
    office.expect("ben is given others than ann", not held & office.lease("ben", SOME))
    office.set_clock(seconds)
    office.expect("no image is given to two after the jump", not held & office.lease("ben"))
    office.expect("ann still holds her images", office.lease("ann", SOME) == held)
    office.answer("ann", sorted(held)[:4])
    office.release_all()


def _a_little_back(office: Office) -> None:
    """Half an hour back and an hour ahead: what ann holds stays hers until she gives it back."""
    held = office.lease("ann", SOME)
    for seconds in (-HOUR / 2, -HOUR / 2 + HOUR):
        office.set_clock(seconds)
        office.expect("no image is given to two", not held & office.lease("ben"))
    office.line.post("/api/release", annotator="ann", images=sorted(held))
    taken: set[str] = set()
    while given := office.lease("ben"):
        office.answer("ben", given)
        taken |= given
    office.expect("what ann gave back is given to others", held <= taken)


def _later_counts(office: Office) -> None:
    """People correct answers on a clock that was put back: the correction is the later one."""
    images = sorted(office.truth)[-SOME:]
    classes = sorted(set(office.truth.values()))
    wrong = {image: next(cls for cls in classes if cls != office.truth[image]) for image in images}
    for name in office.books:
        office.set_clock(0)
        office.answer(name, images, wrong)
        office.set_clock(-DAY)
        office.answer(name, images)


def _wrong_labels(folder: Path, office: Office) -> list[str]:
    """Decided images that do not have the class that was said last; all that was said in the end is true."""
    with Ledger.open(folder, read_only=True) as ledger:
        rows = ledger.read("SELECT i.key, l.class_id FROM current_label AS l JOIN image AS i ON i.id = l.image_id")
    decided = {row[0]: row[1] for row in rows}
    answered = {event[0] for book in office.books.values() for event in book.sent.values()}
    return [
        f"{image} has the class {decided.get(image)}" for image in answered if decided.get(image) != office.truth[image]
    ]
