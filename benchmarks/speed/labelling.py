"""Eight people label at once: how long each waits until an answer is on the disk, and whether every one is there.

A real server in a process of its own; the people are threads of another, each with a connection, and never pause.
"""

from __future__ import annotations

import http.client
import json
import secrets
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .measured import Measured, Row, Run, Sheet

NAME = "labelling"
PEOPLE = 8
LIMIT = 0.050  # seconds
AT_ONCE = 16  # images of one lease; the page keeps 8 ahead and asks for 12 more
CLASSES = 10
SERVE = (
    "import sys\n"
    "from tailwise.web.serve import Options, run\n"
    "run(sys.argv[1], Options(port=0), lambda up: print(up.port, up.token, flush=True))\n"
)


@dataclass
class Person:
    """One annotator: what they were shown, what was called saved, and how long that took."""

    name: str
    port: int
    token: str
    shown: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    looks: list[float] = field(default_factory=list)  # seconds of the requests for the state

    def label(self) -> None:
        """Until no image is left; every sixteen answers a look at the state, as the page has it."""
        self.line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while images := self.ask("POST", "/api/lease", {"annotator": self.name, "count": AT_ONCE})["images"]:
            for image in images:
                self.shown.append(image["key"])
                self.answer(image["key"])
            started = time.perf_counter()
            self.ask("GET", f"/api/state?annotator={self.name}")
            self.looks.append(time.perf_counter() - started)
        self.line.close()

    def answer(self, image: str) -> None:
        """One image, timed."""
        said = {"key": secrets.token_hex(8), "image": image, "kind": "label", "class_id": 1 + int(image, 16) % CLASSES}
        started = time.perf_counter()
        result = self.ask("POST", "/api/answers", {"annotator": self.name, "answers": [said]})["results"][0]
        self.seconds.append(time.perf_counter() - started)
        if result["saved"] and result["fresh"]:
            self.saved.append(said["key"])

    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - whatever JSON has
        """One request; anything but 200 ends the measurement."""
        headers = {"X-Tailwise-Token": self.token, "Content-Type": "application/json"}
        self.line.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.line.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content!r}")
        return json.loads(content)


def measure(run: Run) -> Iterator[Measured]:
    """People alone, then beside a round that is being chosen."""
    each = 100 if run.quick else 500
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        yield Sheet(NAME, "this machine").tell("99 % of bare commits to this disk: ms", bare_commit(folder / "bare"))
        make_campaign(folder, PEOPLE * each)
        sheet = Sheet(NAME, f"{PEOPLE} people, {each} labels each")
        with served(folder / "campaign") as (port, token):
            yield from label_all(sheet, folder / "campaign", port, token, PEOPLE * each)
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        make_campaign(folder, 4 * PEOPLE * each, chosen=PEOPLE * each)
        sheet = Sheet(NAME, "while a round is being chosen")
        with served(folder / "campaign") as (port, token):
            yield from label_beside_a_job(sheet, port, token)


def bare_commit(path: Path) -> float:
    """What one row costs on the disk, written as the server does, with nobody else asking: ms of 99 in 100 commits."""
    seconds = []
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for setting in ("journal_mode = WAL", "synchronous = FULL"):
            file.execute(f"PRAGMA {setting}")
        file.execute("CREATE TABLE event (number INTEGER)")
        for number in range(200):
            started = time.perf_counter()
            file.execute("INSERT INTO event VALUES (?)", (number,))
            seconds.append(time.perf_counter() - started)
    return 1000 * float(np.quantile(seconds, 0.99))


def make_campaign(folder: Path, images: int, chosen: int | None = None) -> None:
    """Tiny images that all differ, the first of them in one round."""
    from PIL import Image

    from tailwise.campaign.images import list_images
    from tailwise.campaign.rounds import Pick, open_round
    from tailwise.campaign.service import Campaign

    photos = folder / "photos"
    photos.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (images, 16, 16, 3), dtype=np.uint8)
    for number in range(images):
        Image.fromarray(pixels[number]).save(photos / f"{number:06}.bmp")
    names = [f"class {number}" for number in range(CLASSES)]
    with Campaign.create(folder / "campaign", photos, names, backbone="simple") as campaign:
        rows = list_images(campaign.ledger, usable=True)[:chosen]
        picks = [Pick(row.id, 1 + row.id % CLASSES, 0.5) for row in rows]
        open_round(campaign.ledger, picks, budget=len(picks), strategy="random")


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, str]]:
    """A server in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", SERVE, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port, token = process.stdout.readline().split()
        yield int(port), token
    finally:
        process.terminate()
        process.wait(60)


def together(people: list[Person]) -> float:
    """All label at once; gives the seconds that it took."""
    threads = [threading.Thread(target=person.label) for person in people]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def label_all(sheet: Sheet, folder: Path, port: int, token: str, images: int) -> Iterator[Measured]:
    """Every image of the round, and what the ledger says afterwards."""
    from tailwise.campaign.service import Campaign

    people = [Person(f"person-{number}", port, token) for number in range(PEOPLE)]
    seconds = together(people)
    shown = Counter(image for person in people for image in person.shown)
    saved = {key for person in people for key in person.saved}
    with Campaign.open(folder, read_only=True) as campaign:
        kept = [row[0] for row in campaign.ledger.read("SELECT key FROM event")]
    yield sheet.at_most("images shown to two people", sum(count - 1 for count in shown.values()), 0)
    yield sheet.at_most("labels lost or doubled", abs(images - len(kept)) + len(saved ^ set(kept)), 0)
    yield sheet.tell("labels per second", len(kept) / seconds)
    yield from waits(sheet, [second for person in people for second in person.seconds])
    looks = [second for person in people for second in person.looks]
    yield sheet.tell("99 % of looks at the state: ms", 1000 * float(np.quantile(looks, 0.99)))


def label_beside_a_job(sheet: Sheet, port: int, token: str) -> Iterator[Measured]:
    """People label at the pace of people while a child process makes features and chooses."""
    people = [Person(f"person-{number}", port, token) for number in range(PEOPLE)]
    boss = Person("boss", port, token)
    boss.line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    boss.ask("POST", "/api/next", {"budget": 100, "strategy": "random", "allow_unfinished": True})
    stop = threading.Event()
    threads = [threading.Thread(target=at_ease, args=(person, stop)) for person in people]
    for thread in threads:
        thread.start()
    while (job := boss.ask("GET", "/api/job"))["state"] == "running":
        time.sleep(0.2)
    stop.set()
    for thread in threads:
        thread.join()
    if job["state"] != "done":
        yield sheet.failed("99 % of labels: ms", f"<= {1000 * LIMIT:g}", str(job["error"]))
        return
    yield from waits(sheet, [second for person in people for second in person.seconds])


def at_ease(person: Person, stop: threading.Event) -> None:
    """Three labels a second, until told to stop."""
    person.line = http.client.HTTPConnection("127.0.0.1", person.port, timeout=60)
    while not stop.is_set():
        for image in person.ask("POST", "/api/lease", {"annotator": person.name, "count": AT_ONCE})["images"]:
            if stop.wait(0.3):
                return
            person.answer(image["key"])


def waits(sheet: Sheet, seconds: list[float]) -> Iterator[Measured]:
    """How long people waited for "saved"."""
    milliseconds = 1000 * np.array(seconds)
    yield sheet.tell("labels measured", len(seconds))
    yield sheet.tell("half of labels: ms", float(np.quantile(milliseconds, 0.5)))
    yield sheet.at_most("99 % of labels: ms", float(np.quantile(milliseconds, 0.99)), 1000 * LIMIT)
    yield sheet.tell("slowest label: ms", float(milliseconds.max()))


PROMISE = f"of {PEOPLE} people at once, 99 % of labels are saved within {1000 * LIMIT:g} ms; none is lost or doubled"
ROW = Row(NAME, PROMISE, measure)


def main() -> None:
    """This row alone, as `python -m benchmarks.speed --only labelling` measures it."""
    from . import __main__ as speed

    sys.argv[1:1] = ["--only", NAME, "--no-peers"]
    speed.main()


if __name__ == "__main__":
    main()
