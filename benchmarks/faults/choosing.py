"""Kills of training and choosing: no label and no round is lost, no half of a round is there, and the next one opens.

Beside the verb itself, the server's background job is killed, with the process that it has started.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.labeller import Line, SaidNo, open_next_round
from tailwise.campaign.answers import Answer, record
from tailwise.campaign.features import FOLDER as FEATURES
from tailwise.campaign.models import fault_of, newest_model
from tailwise.campaign.rounds import candidate_images, current_round, list_rounds, round_picks
from tailwise.campaign.service import Campaign

from .people import GONE
from .sound import Event, compare, events, faults, harmful, left_over
from .stage import Stage, class_ids, truth
from .strikes import Struck

BUDGET = 20
WRITING = "opening the round"


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds of undisturbed runs."""

    whole: float  # with the features to be made
    cached: float  # with features that are there
    writing: float  # of these, what comes after all is chosen


@dataclass(slots=True)
class Choosing:
    """One campaign bears kill upon kill, until its images run short; then comes the next."""

    stage: Stage
    verb: str = "next"
    folder: Path = field(init=False)
    said: list[tuple[str, Event]] = field(init=False)  # all events, in order
    rounds: int = field(init=False, default=0)  # that were reported to be open
    hits: int = field(init=False, default=0)
    pace: Pace | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """A campaign with a few labels and no round."""
        self.folder = self.stage.copy("labelled")
        self.said, self.rounds = events(self.folder), 0

    def undisturbed(self) -> float:
        """Features of all images, training, choosing; and again, with the features there."""
        times = []
        for _ in range(2):
            with self.stage.nursery.start("next", folder=str(self.folder), budget=BUDGET) as victim:
                victim.hear_until(WRITING)
                written = time.monotonic()
                victim.hear_out()
                times.append((time.monotonic() - victim.started, time.monotonic() - written))
            self.answer_open_round()
        self.pace = Pace(times[0][0], times[1][0], times[1][1])
        return self.pace.whole

    def strike(self, moment: float) -> Struck:
        """Kill it, look, ask again, look."""
        if candidates_left(self.folder) < 2 * BUDGET:  # a kill may come after the round is open, and then comes another
            self.begin_anew()
        hit, at, after = self.killed(moment)
        self.hits += hit
        after_kill = self.looked_at()
        self.answer_open_round()
        went_on = self.asked_again()
        found = [*after_kill, *self.looked_at(), *faults(self.folder)]
        self.answer_open_round()
        compared = compare(events(self.folder), dict(self.said), [key for key, _ in self.said])
        return Struck(
            len(self.said), len(compared.lost), len(compared.doubled), went_on, tuple(found), hit, at,
            left_over(self.folder), after,
        )  # fmt: skip

    def killed(self, moment: float) -> tuple[bool, str, float]:
        """Whether the kill hit, what it was doing, and after how many seconds.

        In turns a run that makes the features, one that has them, and the short time in which the round is written.
        """
        if self.hits % 3 == 0:
            shutil.rmtree(self.folder / FEATURES, ignore_errors=True)
        with self.stage.nursery.start("next", folder=str(self.folder), budget=BUDGET) as victim:
            if self.pace and self.hits % 3 == 1:
                moment *= self.pace.cached / self.pace.whole
            elif self.pace and self.hits % 3 == 2:
                victim.hear_until(WRITING)
                moment *= self.pace.writing / self.pace.whole
                moment += time.monotonic() - victim.started
            hit = victim.kill_at(moment)
            last = victim.words[-1] if victim.words else {}
        self.rounds += "done" in last
        return hit, str(last.get("what", last)), moment

    def asked_again(self) -> bool:
        """The same verb, undisturbed."""
        done = self.stage.nursery.run("next", folder=str(self.folder), budget=BUDGET).get("done")
        self.rounds = max(self.rounds, done or 0)
        return done is not None

    def looked_at(self) -> list[str]:
        """What is wrong with the rounds and their models."""
        with Campaign.open(self.folder, read_only=True) as campaign:
            ledger = campaign.ledger
            found = list_rounds(ledger)
            problems = [] if len(found) >= self.rounds else [f"{len(found)} rounds are left of {self.rounds}"]
            sizes = {one.id: len(round_picks(ledger, one.id)) for one in found}
            problems += [f"round {number} has {size} images" for number, size in sizes.items() if size != BUDGET]
            if any(one.model_version for one in found):
                fault = fault_of(ledger, newest_model(ledger))
                problems += [f"the newest model: {fault}"] if fault else []
            self.rounds = max(self.rounds, len(found))
        return problems

    def answer_open_round(self) -> None:
        """So that the next one can be opened, and has more to learn from."""
        with Campaign.open(self.folder) as campaign:
            current = current_round(campaign.ledger)
            if current is None:
                return
            images = {pick.image for pick in round_picks(campaign.ledger, current.id)}
            rows = campaign.ledger.read("SELECT id, key, path FROM image")
            ids, known = class_ids(campaign), {event[0] for _, event in self.said}
            new = [(row["id"], row["key"], ids[truth(row["path"])]) for row in rows
                   if row["id"] in images and row["key"] not in known]  # fmt: skip
            self.said += [(f"said-{key}", (key, "ann", "label", cls, None)) for _, key, cls in new]
            record(campaign.ledger, [Answer(f"said-{key}", image, "ann", "label", cls) for image, key, cls in new])


@dataclass(slots=True)
class Job(Choosing):
    """The same by the server: a child process chooses, and must not outlive it."""

    verb: str = "next, by the server"

    def undisturbed(self) -> float:
        """From the start of the server until the round is open."""
        folder = self.stage.copy("labelled")
        started = time.monotonic()
        self._serve_next(folder)
        return time.monotonic() - started

    def killed(self, moment: float) -> tuple[bool, str, float]:
        """Ask for the next round and kill the server."""
        what = "starting"
        with self.stage.nursery.start("serve", folder=str(self.folder)) as server:
            up = server.hear()
            try:
                with Line(up["url"], up["token"]) as line:
                    line.post("/api/next", budget=BUDGET)
                    while time.monotonic() < server.started + moment:
                        job = line.get("/api/job")
                        what = job["what"]
                        self.rounds += job["state"] == "done"
                        if job["state"] != "running":
                            break
                        time.sleep(0.01)
            except GONE:
                pass
            server.kill_at(moment)
        return not what.endswith("is open"), what, moment

    def asked_again(self) -> bool:
        """On a server that was started again; nothing of the killed job may be there."""
        opened = self._serve_next(self.folder)
        self.rounds = max(self.rounds, opened)
        return opened > 0

    def looked_at(self) -> list[str]:
        """Also whether the child has ended with its server."""
        orphans = self.stage.nursery.orphans()
        return [*Choosing.looked_at(self), *([f"{orphans} processes outlive their server"] if orphans else [])]

    def _serve_next(self, folder: Path) -> int:
        with self.stage.nursery.start("serve", folder=str(folder)) as server:
            up = server.hear()
            left = harmful(folder)
            try:
                with Line(up["url"], up["token"]) as line:
                    return 0 if left else open_next_round(line, budget=BUDGET)
            except SaidNo:
                return 0
            finally:
                server.end()


def candidates_left(folder: Path) -> int:
    """Images that a round may still be chosen from."""
    with Campaign.open(folder, read_only=True) as campaign:
        return len(candidate_images(campaign.ledger))
