"""The table of images that want answers: it is what the events say, and asking stays as quick as at first."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pytest

from tailwise.campaign.answers import Answer, record, settle, undo
from tailwise.campaign.images import quarantine
from tailwise.campaign.leases import lease, refresh_waiting, release
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadInput

from .conftest import add_images

PEOPLE = ("ann", "bob", "eve")


def waiting(ledger: Ledger, number: int = 1) -> list[int]:
    with ledger.writing() as connection:
        refresh_waiting(connection, number)
        return [row[0] for row in connection.execute("SELECT image_id FROM waiting ORDER BY rank")]


def wanting(ledger: Ledger, number: int = 1) -> list[int]:
    """The same by going through all that was ever said."""
    events = ledger.read("SELECT * FROM event ORDER BY id")
    taken_back = {event["undoes"] for event in events if event["kind"] == "undo"}
    said: defaultdict[int, dict[str, str]] = defaultdict(dict)  # image → person → kind of the last answer
    settled = set()
    for event in events:
        if event["id"] not in taken_back and event["kind"] in ("label", "other", "skip"):
            said[event["image_id"]][event["annotator"]] = event["kind"]
        elif event["id"] not in taken_back and event["kind"].startswith("settle"):
            settled.add(event["image_id"])
    usable = {row[0] for row in ledger.read("SELECT id FROM image WHERE trouble IS NULL AND duplicate_of IS NULL")}
    picks = ledger.read("SELECT * FROM round_image WHERE round_id = ? ORDER BY rank", (number,))
    return [
        pick["image_id"] for pick in picks
        if pick["image_id"] in usable - settled
        and sum(kind != "skip" for kind in said[pick["image_id"]].values()) < pick["wanted"]
    ]  # fmt: skip


def something(ledger: Ledger, dice: random.Random, key: str) -> None:
    """One of all the things that can happen to an image."""
    image, who = dice.randint(1, 12), dice.choice(PEOPLE)
    match dice.randrange(8):
        case 0 | 1 | 2:
            record(ledger, [Answer(key, image, who, "label", dice.randint(1, 3))])
        case 3:
            record(ledger, [Answer(key, image, who, dice.choice(["other", "skip", "skip"]))])
        case 4 | 5:
            undo(ledger, key, who)
        case 6:
            settle(ledger, key=key, image=image, annotator=who, class_id=dice.choice([1, None]))
        case _:
            with ledger.writing() as connection:
                column = dice.choice(["trouble", "duplicate_of"])
                value = dice.choice([None, "'lost'" if column == "trouble" else "1"])
                connection.execute(f"UPDATE image SET {column} = {value or 'NULL'} WHERE id = ?", (image,))


@pytest.mark.parametrize("seed", range(4))
def test_after_whatever_happens_it_is_what_the_events_say(ledger: Ledger, seed: int) -> None:
    dice = random.Random(seed)
    images = dice.sample(range(1, 13), 10)
    open_round(ledger, [Pick(image, wanted=dice.randint(1, 2)) for image in images], budget=10, strategy="x")
    lengths = set()
    with ledger.writing():  # one transaction: the disk is not what is tested here
        for step in range(60):
            something(ledger, dice, f"key-{step:06d}")
            assert waiting(ledger) == wanting(ledger)
            lengths.add(len(waiting(ledger)))
    assert len(lengths) > 3


def test_what_is_taken_back_is_taken_back_here_too(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1), Pick(2), Pick(3)], budget=3, strategy="x")
    assert waiting(ledger) == [1, 2, 3]

    def answer_in_vain() -> None:
        with ledger.writing():
            record(ledger, [Answer("key-000001", 2, "ann", "label", 1)])
            assert waiting(ledger) == [1, 3]
            raise BadInput("never mind")

    for _ in range(2):
        with pytest.raises(BadInput, match="never mind"):
            answer_in_vain()
        assert waiting(ledger) == [1, 2, 3]


def test_another_ledger_of_the_same_file_is_noticed(ledger: Ledger, home: Path) -> None:
    open_round(ledger, [Pick(1), Pick(2), Pick(3)], budget=3, strategy="x")
    assert waiting(ledger) == [1, 2, 3]
    with Ledger.open(home) as other:
        assert waiting(other) == [1, 2, 3]
        record(other, [Answer("by-another", 2, "ann", "label", 1)])
        assert waiting(ledger) == [1, 3]
        quarantine(ledger, [(3, "lost")])
        assert waiting(other) == [1]


def test_it_follows_from_round_to_round(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="x")
    assert waiting(ledger) == [1, 2]
    open_round(ledger, [Pick(5), Pick(2), Pick(4)], budget=3, strategy="x")
    assert waiting(ledger, 2) == [5, 2, 4]
    record(ledger, [Answer("key-000001", 2, "ann", "label", 1)])
    assert (waiting(ledger, 2), waiting(ledger, 1), waiting(ledger, 9)) == ([5, 4], [1], [])


def test_nothing_of_it_is_in_the_file(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1)], budget=1, strategy="x")
    before = ledger.read("SELECT name FROM sqlite_schema")
    waiting(ledger)
    assert ledger.read("SELECT name FROM sqlite_schema") == before


def test_a_lease_costs_the_same_however_many_images_are_answered(ledger: Ledger) -> None:
    """Counted in steps of SQLite's machine, which no other program can slow down."""
    many = 2000
    add_images(ledger, many)
    images = range(13, 13 + many)
    open_round(ledger, [Pick(image) for image in images], budget=many, strategy="x")
    with ledger.writing() as connection:
        lease(ledger, 1, "bob", 16)

        def steps() -> int:
            counted = 0

            def count() -> int:
                nonlocal counted
                counted += 1
                return 0

            connection.set_progress_handler(count, 10)
            given = lease(ledger, 1, "ann", 16)
            connection.set_progress_handler(None, 0)
            release(ledger, "ann")
            assert len(given) == 16
            return counted

        at_first = steps()
        record(ledger, [Answer(f"key-{image:06d}", image, "ann", "label", 1) for image in images[16:-20]])
        assert steps() < 1.2 * at_first
