"""Many labels at once: in one transaction, undone as a whole or one by one, and whole or absent after a kill."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, conflicts, hunted, record, settle, undo
from tailwise.campaign.answers import labels as decided
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.relabelling import MOST, relabel, undo_batch
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign
from tailwise.errors import BadInput

from .conftest import add_images


def labels(ledger: Ledger) -> dict[int, int]:
    images, classes = decided(ledger)
    return dict(zip(images.tolist(), classes.tolist(), strict=True))


def say(ledger: Ledger, image: int, cls: int, who: str) -> None:
    record(ledger, [Answer(uuid.uuid4().hex, image, who, "label", cls)])


def test_all_images_get_the_label_and_one_batch(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="random")
    done = relabel(ledger, [1, 2, 3, 3], 2, "ann", found_by="hunt")
    assert labels(ledger) == {1: 2, 2: 2, 3: 2}
    assert (done.changed, done.unchanged, done.settled) == ((1, 2, 3), 0, 0)
    rows = ledger.read("SELECT kind, batch, found_by, round_id, annotator FROM event ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("label", done.batch, "hunt", 1, "ann"), ("label", done.batch, "hunt", 1, "ann"),
        ("label", done.batch, "hunt", None, "ann"),
    ]  # fmt: skip


def test_answers_of_others_are_overruled_and_kept(ledger: Ledger) -> None:
    say(ledger, 1, 1, "ann")
    say(ledger, 2, 1, "ben")
    say(ledger, 3, 2, "ben")
    say(ledger, 4, 1, "ann")
    say(ledger, 4, 3, "ben")
    settle(ledger, key=uuid.uuid4().hex, image=5, annotator="cho", class_id=1)
    done = relabel(ledger, [1, 2, 3, 4, 5], 2, "ann")
    assert labels(ledger) == dict.fromkeys((1, 2, 3, 4, 5), 2)
    assert (done.changed, done.unchanged, done.settled) == ((1, 2, 4, 5), 1, 3)
    assert conflicts(ledger) == []
    undo_batch(ledger, done.batch, "ann")
    assert labels(ledger) == {1: 1, 2: 1, 3: 2, 5: 1}  # as before: image 4 is a conflict again


def test_without_settling_people_then_differ(ledger: Ledger) -> None:
    say(ledger, 1, 1, "ben")
    relabel(ledger, [1], 2, "ann", settle=False)
    assert [one.image for one in conflicts(ledger)] == [1]


def test_none_of_the_classes_and_what_has_the_label_already(ledger: Ledger) -> None:
    assert relabel(ledger, [1, 2], None, "ann").changed == (1, 2)
    assert relabel(ledger, [1, 2, 3], None, "ann").changed == (3,)
    assert {row[0] for row in ledger.read("SELECT kind FROM event")} == {"other"}


def test_one_image_that_is_not_there_leaves_all_unchanged(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="99"):
        relabel(ledger, [1, 2, 99], 1, "ann")
    assert ledger.read("SELECT 1 FROM event") == []
    for images in ([], range(MOST + 1)):
        with pytest.raises(BadInput):
            relabel(ledger, list(images), 1, "ann")


def test_the_same_batch_again_changes_nothing(ledger: Ledger) -> None:
    first = relabel(ledger, [1, 2], 1, "ann", batch="g0123456789")
    assert relabel(ledger, [1, 2], 1, "ann", batch="g0123456789") == first
    assert len(ledger.read("SELECT 1 FROM event")) == 2


def test_a_batch_is_undone_as_a_whole_or_one_by_one(ledger: Ledger) -> None:
    say(ledger, 1, 3, "ann")
    done = relabel(ledger, [1, 2, 3], 1, "ann")
    undo(ledger, uuid.uuid4().hex, "ann", undoes_key=f"{done.batch}-2")
    assert labels(ledger) == {1: 1, 3: 1}
    with pytest.raises(BadInput, match="people undo their own"):
        undo_batch(ledger, done.batch, "ben")
    assert undo_batch(ledger, done.batch, "ann", key="u-12345678") == [1, 3]
    assert labels(ledger) == {1: 3}
    assert undo_batch(ledger, done.batch, "ann", key="u-12345678") == []
    assert [row[0] for row in ledger.read("SELECT image_id FROM lease")] == [2]  # many are not held, one is
    with pytest.raises(BadInput, match="no answer belongs"):
        undo_batch(ledger, "g-unknown-batch", "ann")


def test_hunted_images_are_those_that_nobody_answered_elsewhere(ledger: Ledger) -> None:
    relabel(ledger, [1, 2, 3], 1, "ann", found_by="hunt")
    relabel(ledger, [4], 1, "ann")
    say(ledger, 2, 1, "ben")
    undo(ledger, uuid.uuid4().hex, "ann")  # the last answer of ann: image 4
    assert hunted(ledger) == {1, 3}


def test_campaigns_relabel_by_path_and_undo(tmp_path: Path, photos: Path) -> None:
    with Campaign.create(tmp_path / "birds", photos, ["owl", "kite"]) as campaign:
        done = campaign.relabel(["a.bmp", "deep/er/c.bmp"], "owl")
        assert campaign.labels() == {"a.bmp": "owl", "deep/er/c.bmp": "owl"}
        assert campaign.undo_batch(done.batch) == 2
        assert campaign.labels() == {}


CHANGE = """
import sys
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.relabelling import relabel
with Ledger.open(sys.argv[1]) as ledger:
    print("now", flush=True)
    relabel(ledger, range(1, 3001), 2, "ann", batch="g-the-change")
    print("done", flush=True)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="a kill -9 is of POSIX")
def test_kill_9_leaves_the_whole_change_or_nothing_of_it(ledger: Ledger, home: Path, tmp_path: Path) -> None:
    add_images(ledger, 2988)
    relabel(ledger, range(1, 3001), 1, "ben")
    ledger.close()
    outcomes = set()
    for number, wait in enumerate((0.0, 0.01, 0.03, 0.06, 0.12, 0.2, 0.3, None)):
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(home, copy)
        child = subprocess.Popen([sys.executable, "-c", CHANGE, str(copy)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "now\n"
        try:
            child.wait(wait)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
        child.wait()
        said_done = child.stdout.read() == "done\n"
        child.stdout.close()
        with Ledger.open(copy) as after:
            classes = set(labels(after).values())
            assert len(labels(after)) == 3000
            assert len(classes) == 1, f"{classes} after {wait}"
            assert classes == {2} or not said_done
            outcomes |= classes
            assert relabel(after, range(1, 3001), 2, "ann", batch="g-the-change").settled == 3000  # it goes on
            assert set(labels(after).values()) == {2}
            assert len(after.read("SELECT 1 FROM event")) == 6000  # and nothing is there twice
    assert outcomes == {1, 2}


def test_estimates_of_shares_leave_hunted_labels_out(ledger: Ledger) -> None:
    from tailwise.calibration import unseen_weight
    from tailwise.campaign.models import labelled_set
    from tailwise.softmax import unseen_share

    relabel(ledger, [1, 2, 3], 1, "ann")
    assert labelled_set(ledger).drawn() is None
    relabel(ledger, [4, 5], 2, "ann", found_by="hunt")
    found = labelled_set(ledger)
    assert (found.counts().tolist(), found.drawn()) == ([3, 2, 0], (3, 0, 0))
    held_out = np.array([[0.8, 0.2, 0.0], [0.6, 0.4, 0.0]])  # a mean doubt of 0.3
    # Of the two classes without drawn labels one has none at all: half of the share (0 + ½) / (3 + 1) is its own.
    assert unseen_share(found.drawn()) == 0.125
    assert unseen_weight(found.counts(), held_out, found.drawn()) == pytest.approx(0.5 * 0.125 / 0.3)
    assert unseen_weight([3, 2, 1], held_out, [3, 0, 1]) == 0
    assert unseen_weight(found.counts(), held_out) == pytest.approx(unseen_share([3, 2, 0]) / 0.3)
