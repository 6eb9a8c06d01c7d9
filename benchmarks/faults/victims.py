"""What the processes do that are killed: a campaign's verbs, each saying what it has acknowledged so far.

`say` takes one JSON value; what it has taken is with the one who listens, even if the next moment is the last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.numpy  # noqa: F401 - this and more: loaded before the fork, so that a kill falls on the work
import scipy.fft
import scipy.optimize  # noqa: F401

from tailwise.campaign import (
    models,  # noqa: F401
)
from tailwise.campaign.database import Step, read_steps
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.service import Campaign
from tailwise.errors import TailwiseError
from tailwise.learners import features  # noqa: F401
from tailwise.web import serve as server  # noqa: F401
from tailwise.web.serve import Options, Serving, run

Say = Callable[[Any], None]


def serve(say: Say, *, folder: str, clock: str | None = None) -> None:
    """The labelling page; with `clock`, a file that says how many seconds its clock is off."""
    if clock is not None:
        _shift_clock(Path(clock))

    def tell(up: Serving) -> None:
        say({"url": up.url, "token": up.token})

    run(folder, Options(port=0), tell)


def import_labels(say: Say, *, folder: str, table: str) -> None:
    """An import: the share that is reported is on the disk."""
    with Campaign.open(folder) as campaign:
        done = campaign.import_labels(table, report=lambda share, _: say({"share": share}))
    say({"done": done.added})


def choose(say: Say, *, folder: str, budget: int) -> None:
    """Training and choosing."""
    with Campaign.open(folder) as campaign:
        proposal = campaign.next(budget, report=lambda share, what: say({"share": share, "what": what}))
    say({"done": None if proposal.round is None else proposal.round.id})


def migrate(say: Say, *, folder: str, steps: Sequence[tuple[int, str]]) -> None:
    """Opening a ledger of an older schema."""
    Ledger.open(folder, steps=(*read_steps(), *(Step(number, sql) for number, sql in steps))).close()
    say({"done": len(steps)})


def relabel(say: Say, *, folder: str, batch: str) -> None:
    """One answer for all images at once: that they are in none of the classes."""
    with Campaign.open(folder) as campaign:
        keys = [row[0] for row in campaign.ledger.read("SELECT key FROM image ORDER BY id")]
        say({"begun": len(keys)})
        done = campaign.relabel(keys, None, annotator="ann", batch=batch)
    say({"done": len(done.changed)})


VERBS: Mapping[str, Callable[..., None]] = {
    "serve": serve,
    "import": import_labels,
    "next": choose,
    "migrate": migrate,
    "relabel": relabel,
}


def act(verb: str, say: Say, arguments: Mapping[str, Any]) -> None:
    """Do it; an error of Tailwise is said as well."""
    try:
        VERBS[verb](say, **arguments)
    except TailwiseError as error:
        say({"error": str(error), "kind": type(error).__name__})


def _shift_clock(path: Path) -> None:
    real = time.time_ns

    def shifted() -> int:
        return real() + int(1e9 * float(json.loads(path.read_text(encoding="ascii"))))

    time.time_ns = shifted
