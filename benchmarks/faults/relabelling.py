"""Kills of a change of all images at once: all of it is there or nothing, and the same change again completes it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from tailwise.campaign.ledger import Ledger
from tailwise.campaign.service import Campaign

from .sound import events, faults, left_over
from .stage import Stage
from .strikes import Struck

BATCH = "g-all-at-once"


@dataclass(slots=True)
class Relabelling:
    """A fresh campaign for each kill, whose images others have answered."""

    stage: Stage
    verb: str = "relabel"

    def undisturbed(self) -> float:
        """A whole change."""
        started = time.monotonic()
        self._change(self.stage.copy("imported"))
        return time.monotonic() - started

    def strike(self, moment: float) -> Struck:
        """Kill it, look whether it is whole or absent, and make the change again, twice."""
        folder = self.stage.copy("imported")
        before = events(folder)
        with self.stage.nursery.start("relabel", **self._arguments(folder)) as victim:
            hit = victim.kill_at(moment)
            acknowledged = any("done" in word for word in victim.words)
        return replace(self.judged(folder, before, acknowledged=acknowledged), hit=hit)

    def judged(self, folder: Path, before: list[tuple[str, object]], *, acknowledged: bool) -> Struck:
        """What a change has left that was killed, and what comes of making it again."""
        there = changed(folder)
        torn = [f"{there} of {self.stage.images} images are changed"] if there not in (0, self.stage.images) else []
        now = set(events(folder))
        lost = sum(event not in now for event in before)
        lost += self.stage.images - there if acknowledged else 0
        first, second = self._change(folder), self._change(folder)
        with Campaign.open(folder, read_only=True) as campaign:
            whole = campaign.labels() == {} and campaign.status().other == self.stage.images
        return Struck(
            acknowledged=len(before) + (there if acknowledged else 0),
            lost=lost,
            doubled=changed(folder) - self.stage.images,
            went_on=whole and first == second == self.stage.images,
            faults=(*torn, *faults(folder)),
            at=f"{there} of {self.stage.images} there",
            left=left_over(folder),
        )

    def _change(self, folder: Path) -> int:
        """How many images the change has changed, now or before."""
        return int(self.stage.nursery.run("relabel", **self._arguments(folder)).get("done", -1))

    def _arguments(self, folder: Path) -> dict[str, str]:
        return {"folder": str(folder), "batch": BATCH}


def changed(folder: Path) -> int:
    """Events of the change."""
    with Ledger.open(folder) as ledger:  # for writing, which rolls back what a crash has left
        return int(ledger.read("SELECT count(*) FROM event WHERE batch = ?", (BATCH,))[0][0])
