from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.campaign.answers import (
    Answer,
    Recorded,
    Refused,
    annotators,
    conflicts,
    counts,
    history,
    is_answered,
    labels,
    record,
    record_each,
    settle,
    settlements,
    undo,
)
from tailwise.campaign.classes import add_classes
from tailwise.campaign.ledger import Ledger, now
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadInput

LABEL = Answer("answer-0001", 1, "ann", "label", 1)


def decided(ledger: Ledger) -> dict[int, int]:
    images, classes = labels(ledger)
    return dict(zip(images.tolist(), classes.tolist(), strict=True))


def say(ledger: Ledger, image: int, annotator: str, what: int | str, **more: object) -> str:
    """Record a class, "other" or "skip"; gives the key."""
    key = f"key-{ledger.read('SELECT count(*) FROM event')[0][0]:06d}"
    kind, class_id = ("label", what) if isinstance(what, int) else (what, None)
    record(ledger, [Answer(key, image, annotator, kind, class_id, **more)])  # type: ignore[arg-type]
    return key


def test_an_answer_is_an_event_with_all_that_was_said(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1)], budget=1, strategy="entropy")
    answer = Answer("answer-0001", 1, " ann ", "label", 2, 1234, 1, None, "page", 1.5, "hunt", "batch-0001")
    assert record(ledger, [answer]) == [Recorded(1, fresh=True)]
    (row,) = ledger.read("SELECT * FROM event")
    said = (1, "answer-0001", 1, "ann", "label", 2, None, 1234, 1, None, "page", 1.5, "hunt", "batch-0001")
    assert tuple(row) == said


def test_without_a_time_it_is_now(ledger: Ledger) -> None:
    before = now()
    record(ledger, [LABEL])
    assert before <= ledger.read("SELECT at FROM event")[0][0] <= now()


# Keys: twice is once


def test_the_same_key_again_is_the_first_event(ledger: Ledger) -> None:
    first = record(ledger, [LABEL])
    again = record(ledger, [replace(LABEL, at=5, seconds=3.0), LABEL])
    assert [one.fresh for one in first + again] == [True, False, False]
    assert len({one.event_id for one in first + again}) == 1
    assert len(ledger.read("SELECT * FROM event")) == 1


def test_the_same_key_twice_in_one_batch_is_once(ledger: Ledger) -> None:
    assert [one.fresh for one in record(ledger, [LABEL, LABEL])] == [True, False]


@pytest.mark.parametrize(
    "other", [{"image": 2}, {"annotator": "bob"}, {"class_id": 2}, {"kind": "skip", "class_id": None}]
)
def test_the_same_key_with_other_content_is_refused(ledger: Ledger, other: dict[str, object]) -> None:
    record(ledger, [LABEL])
    with pytest.raises(BadInput, match="the key answer-0001 was used for another answer"):
        record(ledger, [replace(LABEL, **other)])  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="used for another"):
        record(ledger, [replace(LABEL, key="answer-0002"), replace(LABEL, key="answer-0002", **other)])  # type: ignore[arg-type]
    assert [row["key"] for row in ledger.read("SELECT key FROM event")] == ["answer-0001"]


def test_a_key_that_was_used_is_known_after_opening_again(ledger: Ledger, home: Path) -> None:
    record(ledger, [LABEL])
    ledger.close()
    with Ledger.open(home) as again:
        assert record(again, [LABEL]) == [Recorded(1, fresh=False)]


def test_of_a_batch_all_are_recorded_or_none(ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="names the image 99"):
        record(ledger, [LABEL, replace(LABEL, key="answer-0002", image=99)])
    assert ledger.read("SELECT * FROM event") == []


def test_one_that_cannot_be_recorded_does_not_hold_up_the_others(ledger: Ledger) -> None:
    bad = replace(LABEL, key="answer-0002", image=99)
    third = replace(LABEL, key="answer-0003", image=3)
    done = record_each(ledger, [LABEL, bad, third])
    assert [type(one) for one in done] == [Recorded, Refused, Recorded]
    assert done[1] == Refused("answer-0002", "the answer answer-0002 names the image 99, which is not in this campaign")
    assert decided(ledger) == {1: 1, 3: 1}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"key": "short"}, "8 to 64 letters"),
        ({"key": "k" * 65}, "8 to 64 letters"),
        ({"key": "has space in it"}, "8 to 64 letters"),
        ({"key": "answer-0001\n"}, "8 to 64 letters"),
        ({"image": 0}, "names the image 0"),
        ({"image": -1}, "names the image -1"),
        ({"image": 10**30}, "names the image 1000000"),
        ({"model_version": "\udcff"}, "names the model"),
        ({"class_id": 9}, "names the class 9"),
        ({"round_id": 7}, "names the round 7"),
        ({"model_version": "v9"}, "names the model 'v9'"),
        ({"kind": "like"}, "of the kind 'like'; take one of label, other, skip"),
        ({"kind": "undo", "class_id": None}, "of the kind 'undo'"),
        ({"class_id": None}, "names no class"),
        ({"kind": "skip"}, "and names a class; leave it out"),
        ({"kind": "other"}, "and names a class; leave it out"),
        ({"source": "rumour"}, "has the source 'rumour'"),
        ({"seconds": float("nan")}, "took nan seconds"),
        ({"seconds": -1.0}, "took -1.0 seconds"),
        ({"seconds": float("inf")}, "took inf seconds"),
        ({"at": -1}, "the time -1 is invalid"),
        ({"at": 1 << 63}, "is invalid; give microseconds"),
        ({"annotator": ""}, "annotator name '' is empty"),
        ({"annotator": "x" * 61}, "at most 60"),
        ({"annotator": "ann\u202e"}, r"U\+202E"),
        ({"annotator": "ann\udcff"}, r"U\+DCFF"),
    ],
)
def test_an_answer_that_means_nothing_is_refused(ledger: Ledger, fault: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        record(ledger, [replace(LABEL, **fault)])  # type: ignore[arg-type]
    assert ledger.read("SELECT * FROM event") == []


# What is decided


def test_people_who_agree_decide_and_skips_do_not_count(ledger: Ledger) -> None:
    for annotator, what in (("ann", 1), ("bob", 1), ("eve", "skip")):
        say(ledger, 1, annotator, what)
    say(ledger, 2, "ann", "skip")
    say(ledger, 3, "ann", "other")
    assert decided(ledger) == {1: 1}
    assert counts(ledger) == {1: 1, 2: 0, 3: 0}
    assert annotators(ledger) == {"ann": 3, "bob": 1, "eve": 1}


def test_people_who_differ_are_in_conflict_until_it_is_settled(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1)
    say(ledger, 1, "bob", 2)
    say(ledger, 2, "ann", 1)
    say(ledger, 2, "bob", "other")
    say(ledger, 2, "eve", "skip")
    found = conflicts(ledger)
    assert [(one.image, [(a.annotator, a.kind, a.class_id) for a in one.answers]) for one in found] == [
        (1, [("ann", "label", 1), ("bob", "label", 2)]),
        (2, [("ann", "label", 1), ("bob", "other", None)]),
    ]
    assert decided(ledger) == {}
    settle(ledger, key="settle-0001", image=1, annotator="eve", class_id=2)
    settle(ledger, key="settle-0002", image=2, annotator="eve", class_id=None)
    assert (decided(ledger), conflicts(ledger)) == ({1: 2}, [])
    settle(ledger, key="settle-0003", image=2, annotator="ann", class_id=3)  # the last decision stands
    assert decided(ledger) == {1: 2, 2: 3}
    say(ledger, 1, "zoe", 3)  # a late answer does not reopen it
    assert decided(ledger) == {1: 2, 2: 3}
    undo(ledger, "undo-settle", "ann", undoes_key="settle-0003")
    assert decided(ledger) == {1: 2}


def test_a_second_thought_replaces_the_first(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1)
    say(ledger, 1, "ann", 2)
    assert decided(ledger) == {1: 2}
    say(ledger, 1, "ann", "skip")
    assert decided(ledger) == {}


def test_later_is_what_was_recorded_later_whatever_the_clocks_say(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1, at=2_000_000)
    say(ledger, 1, "ann", 2, at=1_000_000)
    assert decided(ledger) == {1: 2}
    assert [one.class_id for one in history(ledger, "ann")] == [2]


def test_no_labels_are_two_empty_arrays(ledger: Ledger) -> None:
    images, classes = labels(ledger)
    assert (images.shape, classes.shape, images.dtype) == ((0,), (0,), np.int64)


def test_history_is_the_standing_answers_of_one_person_latest_first(ledger: Ledger) -> None:
    first = open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="x").id
    keys = [say(ledger, image, "ann", 1, round_id=first) for image in (1, 2)]
    say(ledger, 1, "bob", 2, round_id=first)
    third = say(ledger, 3, "ann", "skip")
    assert [one.key for one in history(ledger, "ann")] == [third, keys[1], keys[0]]
    assert [one.key for one in history(ledger, "ann", round_id=first)] == [keys[1], keys[0]]
    assert [one.key for one in history(ledger, " ann", limit=1)] == [third]
    assert history(ledger, "nobody") == []


def test_history_with_changes_holds_what_stands_again_after_an_undo(ledger: Ledger) -> None:
    first, second, third = say(ledger, 1, "ann", 1), say(ledger, 2, "ann", 2), say(ledger, 1, "ann", 3)
    assert [one.key for one in history(ledger, "ann")] == [third, second]
    assert [one.key for one in history(ledger, "ann", changed=True)] == [third, second, first]
    assert [one.key for one in history(ledger, "ann", changed=True, limit=2)] == [third, second]
    undo(ledger, "undo-third", "ann")
    assert [one.key for one in history(ledger, "ann", changed=True)] == [second, first]
    assert [one.key for one in history(ledger, "ann")] == [second, first]


def test_settlements_are_the_standing_decisions_of_one_person_latest_first(ledger: Ledger) -> None:
    for image in (1, 2, 3):
        say(ledger, image, "ann", 1)
        settle(ledger, key=f"settle-000{image}", image=image, annotator="eve", class_id=2)
    settle(ledger, key="settle-0004", image=2, annotator="bob", class_id=None)
    undo(ledger, "undo-settle", "eve", undoes_key="settle-0003")
    assert [(one.key, one.image, one.kind, one.class_id) for one in settlements(ledger, "eve")] == [
        ("settle-0001", 1, "settle-label", 2),
    ]
    assert [one.kind for one in settlements(ledger, " bob")] == ["settle-other"]


def test_an_image_is_answered_by_an_opinion_or_a_decision_but_not_by_a_skip(ledger: Ledger) -> None:
    say(ledger, 1, "ann", "skip")
    say(ledger, 2, "ann", "other")
    settle(ledger, key="settle-0001", image=3, annotator="ann", class_id=1)
    assert [is_answered(ledger, image) for image in (1, 2, 3, 4)] == [False, True, True, False]


# Undo


def test_an_undo_takes_back_the_last_answer_and_the_one_before_stands_again(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1)
    say(ledger, 1, "ann", 2)
    done = undo(ledger, "undo-0001", "ann")
    assert done is not None
    assert (done.image, done.kind, done.class_id, done.fresh, done.restored) == (1, "label", 2, True, False)
    assert decided(ledger) == {1: 1}
    undo(ledger, "undo-0002", "ann")
    assert decided(ledger) == {}
    assert undo(ledger, "undo-0003", "ann") is None
    assert [row["kind"] for row in ledger.read("SELECT kind FROM event")] == ["label", "label", "undo", "undo"]


def test_the_same_undo_again_takes_back_nothing_more(ledger: Ledger) -> None:
    say(ledger, 1, "ann", 1)
    say(ledger, 2, "ann", 2)
    first, again = undo(ledger, "undo-0001", "ann"), undo(ledger, "undo-0001", "ann")
    assert first is not None
    assert again == replace(first, fresh=False)
    assert decided(ledger) == {1: 1}


def test_an_undo_of_an_undo_says_the_answer_again(ledger: Ledger) -> None:
    key = say(ledger, 1, "ann", 2)
    undo(ledger, "undo-0001", "ann", undoes_key=key)
    redo = undo(ledger, "redo-0001", "ann", undoes_key="undo-0001")
    assert redo is not None
    assert (redo.image, redo.kind, redo.class_id, redo.restored) == (1, "label", 2, True)
    assert decided(ledger) == {1: 2}
    assert undo(ledger, "redo-0001", "ann", undoes_key="undo-0001") == replace(redo, fresh=False)
    with pytest.raises(BadInput, match="undo-0001 is undone already, by redo-0001"):
        undo(ledger, "redo-0002", "ann", undoes_key="undo-0001")
    undo(ledger, "undo-0002", "ann", undoes_key="redo-0001")  # and so on
    assert decided(ledger) == {}
    undo(ledger, "redo-0003", "ann", undoes_key="undo-0002")
    assert decided(ledger) == {1: 2}


def test_an_undo_in_a_round_leaves_other_rounds_alone(ledger: Ledger) -> None:
    first = open_round(ledger, [Pick(1)], budget=1, strategy="x").id
    key = say(ledger, 1, "ann", 1, round_id=first)
    second = open_round(ledger, [Pick(2)], budget=1, strategy="x").id
    assert undo(ledger, "undo-0001", "ann", round_id=second) is None
    say(ledger, 2, "ann", 2, round_id=second)
    undo(ledger, "undo-0002", "ann", round_id=second)
    assert undo(ledger, "undo-0003", "ann", round_id=second) is None
    assert decided(ledger) == {1: 1}
    done = undo(ledger, "undo-0004", "ann", undoes_key=key)  # by name, across rounds
    assert done is not None
    assert decided(ledger) == {}
    assert [row["round_id"] for row in ledger.read("SELECT round_id FROM event WHERE kind = 'undo'")] == [2, 1]


def test_without_a_round_an_undo_goes_back_across_rounds(ledger: Ledger) -> None:
    first = open_round(ledger, [Pick(1)], budget=1, strategy="x").id
    say(ledger, 1, "ann", 1, round_id=first)
    open_round(ledger, [Pick(2)], budget=1, strategy="x")
    done = undo(ledger, "undo-0001", "ann")
    assert done is not None
    assert (done.image, decided(ledger)) == (1, {})


def test_people_undo_their_own_answers(ledger: Ledger) -> None:
    key = say(ledger, 1, "ann", 1)
    assert undo(ledger, "undo-0001", "bob") is None
    with pytest.raises(BadInput, match="bob asked to undo an answer of ann"):
        undo(ledger, "undo-0001", "bob", undoes_key=key)
    with pytest.raises(BadInput, match="no answer has that key"):
        undo(ledger, "undo-0001", "ann", undoes_key="never-said")
    assert decided(ledger) == {1: 1}


def test_a_key_of_an_answer_is_no_key_of_an_undo(ledger: Ledger) -> None:
    key, other = say(ledger, 1, "ann", 1), say(ledger, 2, "ann", 1)
    with pytest.raises(BadInput, match="used for another answer"):
        undo(ledger, key, "ann")
    undo(ledger, "undo-0001", "ann", undoes_key=key)
    with pytest.raises(BadInput, match="used for another answer"):
        undo(ledger, "undo-0001", "ann", undoes_key=other)
    with pytest.raises(BadInput, match="used for another answer"):
        undo(ledger, "undo-0001", "bob")
    with pytest.raises(BadInput, match="used for another answer"):
        record(ledger, [Answer("undo-0001", 1, "ann", "label", 1)])
    assert decided(ledger) == {2: 1}


def test_two_tabs_of_one_person(ledger: Ledger) -> None:
    """Both show image 1: each answers, one undoes by key, the other by key too, then says it again."""
    record(ledger, [Answer("tab-a-0001", 1, "ann", "label", 1)])
    record(ledger, [Answer("tab-b-0001", 1, "ann", "label", 2)])
    assert decided(ledger) == {1: 2}  # the last word
    undo(ledger, "tab-a-undo", "ann", undoes_key="tab-a-0001")
    assert decided(ledger) == {1: 2}  # of the other tab
    undo(ledger, "tab-b-undo", "ann", undoes_key="tab-b-0001")
    assert decided(ledger) == {}
    with pytest.raises(BadInput, match="undone already"):
        undo(ledger, "tab-a-again", "ann", undoes_key="tab-b-0001")
    undo(ledger, "tab-a-redo", "ann", undoes_key="tab-a-undo")
    assert decided(ledger) == {1: 1}


# Against a literal reference


@dataclass
class Reference:
    """Events in a list, everything read off by loops."""

    events: list[dict[str, object]]

    def standing(self) -> list[dict[str, object]]:
        gone = {event["undoes"] for event in self.events if event["kind"] == "undo"}
        return [event for event in self.events if event["id"] not in gone and event["kind"] != "undo"]

    def answers(self) -> dict[tuple[int, str], dict[str, object]]:
        last = {}
        for event in self.standing():
            if event["kind"] in ("label", "other", "skip"):
                last[event["image"], event["annotator"]] = event
        return last  # type: ignore[return-value]

    def verdicts(self) -> tuple[dict[int, int], set[int]]:
        settled = {e["image"]: e for e in self.standing() if str(e["kind"]).startswith("settle")}
        said = defaultdict(set)
        for (image, _), event in self.answers().items():
            if event["kind"] != "skip":
                said[image].add(event["class_id"])
        decided = {i: next(iter(s)) for i, s in said.items() if len(s) == 1 and i not in settled and None not in s}
        decided.update({i: e["class_id"] for i, e in settled.items() if e["kind"] == "settle-label"})
        return decided, {i for i, s in said.items() if len(s) > 1 and i not in settled}  # type: ignore[return-value]


deeds = st.lists(
    st.tuples(
        st.sampled_from(["label", "other", "skip", "settle-label", "settle-other", "undo", "undo one", "again"]),
        st.integers(1, 3),
        st.sampled_from(["ann", "bob"]),
        st.integers(1, 2),
        st.integers(0, 30),
    ),
    max_size=25,
)


class TakenBack(Exception):
    """Ends a block whose events are to be forgotten."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """Two classes, three images."""
    with Ledger.create(tmp_path_factory.mktemp("small")) as ledger:
        add_classes(ledger, ["cat", "dog"])
        with ledger.writing() as connection:
            connection.execute("INSERT INTO folder VALUES (1, '/photos')")
            for n in ("1", "2", "3"):
                connection.execute("INSERT INTO image (key, folder_id, path, added_at) VALUES (?, 1, ?, 0)", (n, n))
        yield ledger


@settings(max_examples=200, deadline=None)
@given(deeds)
def test_every_sequence_of_deeds_gives_what_a_loop_over_the_events_gives(
    small: Ledger, sequence: list[tuple[str, int, str, int, int]]
) -> None:
    with suppress(TakenBack), small.writing():
        reference = Reference([])
        for number, (kind, image, annotator, class_id, which) in enumerate(sequence):
            do_both(small, reference, f"key-{number:05d}", kind, image, annotator, class_id, which)
        decisions, conflicting = reference.verdicts()
        assert decided(small) == decisions
        assert {one.image for one in conflicts(small)} == conflicting
        mine = [e["id"] for e in reference.answers().values() if e["annotator"] == "ann"]
        assert [one.event_id for one in history(small, "ann")] == sorted(mine, reverse=True)  # type: ignore[type-var]
        raise TakenBack


def do_both(
    ledger: Ledger, reference: Reference, key: str, kind: str, image: int, annotator: str, class_id: int, which: int
) -> None:
    """One deed on the ledger and on the reference."""
    event: dict[str, object] = {"id": len(reference.events) + 1, "key": key, "annotator": annotator, "undoes": None}
    if kind == "again" and reference.events:
        before = reference.events[which % len(reference.events)]
        if before["undoes"] is None:
            said_before = (before[name] for name in ("key", "image", "annotator", "kind", "class_id"))
            again = Answer(*said_before)  # type: ignore[arg-type]
            assert not record(ledger, [again])[0].fresh
        return
    if kind.startswith("undo"):
        mine = [e for e in reference.answers().values() if e["annotator"] == annotator]
        target = max(mine, key=lambda e: e["id"], default=None)  # type: ignore[arg-type,return-value]
        named = None
        if kind == "undo one" and reference.events:
            target = reference.events[which % len(reference.events)]
            named = str(target["key"])
            taken = any(e["undoes"] == target["id"] for e in reference.events)
            if target["annotator"] != annotator or taken:
                with pytest.raises(BadInput):
                    undo(ledger, key, annotator, undoes_key=named)
                return
        done = undo(ledger, key, annotator, undoes_key=named)
        if target is None:
            assert done is None
            return
        said = target
        if target["kind"] == "undo":
            said = reference.events[int(target["undoes"]) - 1]  # type: ignore[call-overload]
            event |= {"kind": said["kind"], "class_id": said["class_id"]}
        else:
            event |= {"kind": "undo", "class_id": None}
        reference.events.append(event | {"image": said["image"], "undoes": target["id"]})
    elif kind != "again":
        number = class_id if kind in ("label", "settle-label") else None
        record(ledger, [Answer(key, image, annotator, kind, number)])
        reference.events.append(event | {"image": image, "kind": kind, "class_id": number})
