"""What the dashboard counts, compared with counting by hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.advice import gather
from tailwise.campaign.answers import Answer, record
from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.confusion import confused_by_model, confused_classes
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.overview import (
    FILE,
    HOUR,
    HOURS,
    measure,
    overview,
    pair_text,
    read_measures,
    strategy_choices,
    work_of_people,
)
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.state import check_strategy

MakeStudio = Callable[..., Any]


def say(ledger: Ledger, image: int, annotator: str, cls: int | None, at: int = 0) -> None:
    kind = "label" if cls else "other"
    record(ledger, [Answer(uuid.uuid4().hex, image, annotator, kind, cls, at)])


def test_needs_are_measured_against_the_target_of_the_last_round(ledger: Ledger) -> None:
    for image, cls in enumerate([1, 1, 1, 1, 2, 2], start=1):
        say(ledger, image, "ann", cls)
    found = overview(ledger)
    assert [(one.name, one.labelled, one.target, one.short) for one in found.needs] == [
        ("eel", 0, 2.0, 2), ("dog", 2, 2.0, 0), ("cat", 4, 2.0, 0),
    ]  # fmt: skip
    why = {"class_ids": [1, 2, 3], "counts": [4, 2, 0], "target": [0.2, 3.4, 5.6], "expected_counts": [1.0, 4.0, 4.0]}
    open_round(ledger, [Pick(7), Pick(8)], budget=2, strategy="boundary", why=why)
    found = overview(ledger)
    assert [(one.name, one.short) for one in found.needs] == [("eel", 6), ("dog", 3), ("cat", 0)]
    assert found.needs[1].target == pytest.approx(5.4)
    assert (found.labelled, found.usable, found.rounds) == (6, 12, 1)


def test_the_last_round_is_compared_with_what_it_expected_without_the_audit(ledger: Ledger) -> None:
    why = {"class_ids": [1, 2, 3], "expected_counts": [0.5, 4.5, 1.0]}
    picks = [Pick(image, audit=image > 6) for image in range(1, 9)]
    open_round(ledger, picks, budget=8, strategy="boundary", why=why)
    for image in (1, 2, 7, 8):
        say(ledger, image, "ann", 1)
    last = overview(ledger).last_round
    assert last is not None
    assert last.text == "2 of the 6 chosen images have a label so far."
    for image in (3, 4, 5, 6):
        say(ledger, image, "ann", 2 if image == 3 else 1)
    last = overview(ledger).last_round
    assert last is not None
    assert (last.images, last.answered, last.audited, last.open) == (8, 8, 2, True)
    assert [(one.name, one.expected, one.labelled) for one in last.classes] == [
        ("cat", 0.5, 5),
        ("dog", 4.5, 1),
        ("eel", 1.0, 0),
    ]
    assert last.text == "6 images were chosen, and 6 have a label. cat came more often than expected: 5 instead of 0."


def test_work_is_counted_by_person_and_hour(ledger: Ledger) -> None:
    end = 1_000 * HOUR
    for ago, image in ((0, 1), (0, 2), (1, 3), (HOURS - 1, 4), (HOURS, 5)):
        say(ledger, image, "ann", 1, end - ago * HOUR)
    say(ledger, 6, "bob", None, end - 3 * HOUR)
    record(ledger, [Answer(uuid.uuid4().hex, 7, "import", "label", 1, end, source="import")])
    (ann, bob), until = work_of_people(ledger)
    assert until == end + HOUR
    assert (ann.annotator, ann.answers, bob.annotator, bob.answers) == ("ann", 5, "bob", 1)
    assert {at: count for at, count in enumerate(ann.hours) if count} == {0: 1, HOURS - 2: 1, HOURS - 1: 2}
    assert (ann.per_hour, bob.per_hour) == (pytest.approx(4 / 3), 1.0)
    assert bob.hours.index(1) == HOURS - 4


def test_agreement_is_shown_with_what_chance_would_give() -> None:
    said = [("a", "a")] * 60 + [("b", "b")] * 30 + [("a", "b")] * 10  # chance: (70·60 + 30·40) / 100
    assert pair_text("ada", "bob", said) == "ada and bob agree on 90 of 100 images; by chance they would on 54."
    assert pair_text("ada", "bob", [("a", "a")]) == "ada and bob agree on all of 1 image, which are of one class."


def test_agreement_is_that_of_each_two_people(ledger: Ledger) -> None:
    for image, (ada, bob) in enumerate([(1, 1), (2, 2), (1, 2), (None, None)], start=1):
        say(ledger, image, "ada", ada)
        say(ledger, image, "bob", bob)
    say(ledger, 1, "cy", 1)
    first, *others = overview(ledger).agreement
    assert first == "ada and bob agree on 3 of 4 images; by chance they would on 1."
    assert len(others) == 2


def test_confused_classes_are_those_of_a_count_by_hand(ledger: Ledger) -> None:
    confusion = np.array([[33, 7, 0], [2, 10, 2], [0, 1, 9]])  # true classes down
    pairs = confused_by_model(confusion, (1, 2, 3))
    assert pairs == [[1, 2, 7, 40], [2, 1, 2, 14], [2, 3, 2, 14], [3, 2, 1, 10]]
    by_model = confused_classes(ledger, {"confused": [*pairs, [1, 99, 1, 40]]})  # a class that is not there any more
    assert [one.text for one in by_model] == [
        "cat taken for dog: 7 of 40", "dog taken for cat: 2 of 14", "dog taken for eel: 2 of 14",
        "eel taken for dog: 1 of 10",
    ]  # fmt: skip
    assert confused_classes(ledger, None) == ()

    said = {"ada": [1, 1, 2, 3, None, 1], "bob": [2, 2, 2, 3, 1], "cy": [2, 1]}
    for name, answers in said.items():
        for image, cls in enumerate(answers, start=1):
            say(ledger, image, name, cls)
    found = confused_classes(ledger, None)  # cat or dog: images 1 and 2, of 1, 2, 3 and 5; image 6 has one answer
    assert [(one.text, one.class_id, one.other_id) for one in found] == [
        ("cat or dog: people differ on 2 of 4", 1, 2), ("cat or other: people differ on 1 of 3", 1, None),
    ]  # fmt: skip
    keys = [row[0] for row in ledger.read("SELECT key FROM image ORDER BY id")]
    assert found[0].images == tuple(keys[:2])
    assert overview(ledger).confused == found


def test_every_strategy_that_is_offered_can_be_set() -> None:
    offered = strategy_choices()
    assert offered[0].name == "boundary"
    assert {"vaal", "galaxy", "direct"} & {one.name for one in offered} == set()
    for one in offered:
        check_strategy(one.name, "auto")


def test_measures_are_kept_until_something_is_answered(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 40, "b": 30}, spread=0.3)
    ledger = studio.ledger
    assert (overview(ledger).measures, overview(ledger).measures_fresh) == (None, False)
    for _ in range(2):
        next_round(studio.campaign, RoundOptions(16, audit=0.25))
        studio.say_round()
    made = measure(ledger)
    found = overview(ledger)
    assert found.measures_fresh
    assert found.measures == json.loads(json.dumps(made)) == read_measures(ledger)
    assert made["audit"]["images"] == studio.campaign.audit().images > 0
    assert made["advice"]["because"] == studio.campaign.advise().because
    curve = gather(ledger).curve
    assert curve is not None
    assert made["confused"] == confused_by_model(curve.confusion, curve.class_ids)[:5]
    assert [point["labels"] for point in made["curve"]] == [point.labels for point in curve.points]
    level = curve.points[-1].balanced_accuracy
    assert level is not None
    assert made["curve"][-1]["value"] == level.value
    assert made["curve"][-1]["low"] == pytest.approx(max(0, level.value - 2 * level.error))
    studio.say([int(ledger.read("SELECT max(id) FROM image")[0][0])])
    assert not overview(ledger).measures_fresh
    (ledger.files / FILE).write_text("{")
    assert overview(ledger).measures is None
    assert asdict(overview(ledger).settings)["audit"] == 0.0
