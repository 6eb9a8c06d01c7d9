"""The labels as they stood: at each event what the views of the ledger said then, and at the last what they say."""

from __future__ import annotations

import random
import uuid

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, labels, record, settle, undo
from tailwise.campaign.classes import add_classes, retire_class
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.models import labelled_set, labels_at, last_event


def say(ledger: Ledger, image: int, annotator: str, cls: int | None, kind: str = "label") -> str:
    key = uuid.uuid4().hex
    record(ledger, [Answer(key, image, annotator, kind, cls)])
    return key


def live(ledger: Ledger, rng: random.Random) -> None:
    """One random deed."""
    who, image = rng.choice(["ann", "bob"]), rng.randint(1, 4)
    deed = rng.choice(["label", "label", "other", "skip", "undo", "undo", "settle", "undo an undo"])
    if deed in ("label", "other", "skip"):
        say(ledger, image, who, rng.randint(1, 3) if deed == "label" else None, deed)
    elif deed == "undo":
        undo(ledger, uuid.uuid4().hex, who)
    elif deed == "settle":
        settle(
            ledger, key=uuid.uuid4().hex, image=image, annotator="judge", class_id=rng.choice([None, 1, 2, 3])
        )  # fmt: skip
    else:
        undone = ledger.read(
            "SELECT key FROM event AS e WHERE kind = 'undo' AND annotator = ? "
            "AND NOT EXISTS (SELECT 1 FROM event AS a WHERE a.undoes = e.id)",
            (who,),
        )
        if undone:
            undo(ledger, uuid.uuid4().hex, who, undoes_key=rng.choice(undone)["key"])


@pytest.mark.parametrize("seed", range(6))
def test_every_past_state_is_what_the_views_said_at_that_time(ledger: Ledger, seed: int) -> None:
    rng, seen = random.Random(seed), {}
    for _ in range(60):
        live(ledger, rng)
        seen[last_event(ledger)] = [array.tolist() for array in labels(ledger)]
    assert len(seen) > 30
    assert any(seen[event] != seen[last_event(ledger)] for event in seen)
    for event, then in seen.items():
        assert [array.tolist() for array in labels_at(ledger, event)] == then


def test_before_the_first_event_nothing_is_labelled(ledger: Ledger) -> None:
    assert last_event(ledger) == 0
    found = labelled_set(ledger)
    assert (len(found), found.class_ids, found.counts().tolist(), found.last_event) == (0, (1, 2, 3), [0, 0, 0], 0)


def test_retired_classes_take_no_part_and_columns_follow_the_classes_in_use(ledger: Ledger) -> None:
    for image, cls in ((1, 1), (2, 2), (3, 3), (4, 3)):
        say(ledger, image, "ann", cls)
    retire_class(ledger, "dog")
    new = add_classes(ledger, ["fox"])[0].id
    found = labelled_set(ledger)
    assert found.class_ids == (1, 3, new)
    assert found.images.tolist() == [1, 3, 4]
    assert found.labels.tolist() == [0, 1, 1]
    assert found.counts().tolist() == [1, 2, 0]
    assert labelled_set(ledger, class_ids=(2, 1)).labels.tolist() == [1, 0]


def test_equal_bytes_count_once_and_not_at_all_where_their_labels_differ(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute("UPDATE image SET sha256 = 'same' WHERE id IN (2, 5)")
        connection.execute("UPDATE image SET sha256 = 'other' WHERE id IN (3, 6)")
    for image, cls in ((1, 1), (2, 2), (5, 2), (3, 1), (6, 3)):
        say(ledger, image, "ann", cls)
    found = labelled_set(ledger)
    assert found.images.tolist() == [1, 2]
    assert found.disputed == 2


def test_a_digest_names_the_labels_and_not_the_moment(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1)
    say(ledger, 2, "ann", 2)
    first = labelled_set(ledger)
    say(ledger, 1, "bob", 1)
    assert labelled_set(ledger).digest(ledger) == first.digest(ledger)
    say(ledger, 3, "bob", 1)
    assert labelled_set(ledger).digest(ledger) != first.digest(ledger)
    assert labelled_set(ledger, first.last_event).digest(ledger) == first.digest(ledger)


def test_the_images_are_ascending(ledger: Ledger) -> None:
    for image in (9, 2, 7, 4):
        say(ledger, image, "ann", 1)
    settle(ledger, key=uuid.uuid4().hex, image=3, annotator="judge", class_id=2)
    images, classes = labels_at(ledger, last_event(ledger))
    assert np.array_equal(images, [2, 3, 4, 7, 9])
    assert np.array_equal(classes, [1, 2, 1, 1, 1])
