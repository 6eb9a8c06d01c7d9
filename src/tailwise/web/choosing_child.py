"""The child process that trains and chooses: a task as one line of JSON in, progress and a result as such lines out.

It works on a copy of the ledger. It ends when its parent does, which it sees by the end of its input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..campaign.choosing import next_round
from ..campaign.images import usable_images
from ..campaign.ledger import Ledger
from ..campaign.models import predict
from ..errors import TailwiseError

TOP = 3
GUESSES = "guesses.npz"
NICE = 5  # people who label come first
PURPOSE = "a background job"


def main() -> None:
    """Do the task that the parent gives."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):  # Windows has no such call
        os.nice(NICE)
    try:
        say({"result": do(task)})
    except TailwiseError as error:
        say({"error": str(error)})


def do(task: Mapping[str, Any]) -> dict[str, Any]:
    """Choose a round where one is asked for, then ask the model about all images.

    The copy of the ledger is in a folder of the campaign, whose features and models it shares.
    """
    folder = Path(task["folder"])
    with Ledger.open(folder, purpose=PURPOSE, files=folder.parent) as ledger:
        number = None
        if task["choose"] is not None:
            proposal = next_round(ledger, **task["choose"], report=_progress)
            number = None if proposal.round is None else proposal.round.id
            version = proposal.model_version
        else:
            version = task["version"]
        if version is not None:
            guess(ledger, folder, version)
    return {"round": number, "version": version}


def guess(ledger: Ledger, folder: Path, version: str) -> None:
    """The likeliest classes of every image, into a file."""
    _progress(0.99, "asking the model about all images")
    ids = np.array([image.id for image in usable_images(ledger)], dtype=np.int64)
    found = predict(ledger, ids, version)
    best = np.argsort(-found.proba, axis=1, kind="stable")[:, :TOP]
    classes = np.array(found.class_ids, dtype=np.int64)[best]
    np.savez(folder / GUESSES, ids=found.images, classes=classes, confidence=np.take_along_axis(found.proba, best, 1))


def say(message: Mapping[str, Any]) -> None:
    """One line to the parent."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _progress(share: float, what: str) -> None:
    say({"share": min(max(float(share), 0.0), 1.0), "what": what})


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
