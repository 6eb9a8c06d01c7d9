"""The gallery: every filter and order is compared with a plain walk over the ledger's views."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailwise.campaign.answers import Answer, record, settle, undo
from tailwise.campaign.gallery import (
    GalleryFilter,
    GalleryOrder,
    describe_images,
    gallery_page,
    image_history,
    select_images,
)
from tailwise.campaign.image_table import STATES, image_table
from tailwise.campaign.images import find_image
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.predictions import pool_predictions, read_predictions
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadInput

MakeStudio = Callable[..., Any]
BY_PATH = GalleryOrder()


def say(
    ledger: Ledger, image: int, kind: str = "label", cls: int | None = 1, who: str = "ann", **more: int | str
) -> str:
    key = uuid.uuid4().hex
    record(ledger, [Answer(key, image, who, kind, cls if kind.endswith("label") else None, **more)])
    return key


def by_view(ledger: Ledger) -> dict[int, tuple[str, int | None]]:
    """State and class of each image, as the views of the ledger have them."""
    rows = ledger.read("SELECT image_id, outcome, class_id FROM verdict")
    names = {"settled": "labelled", "agreed": "labelled"}
    return {row[0]: (names.get(row[1], row[1]), row[2]) for row in rows}


def by_table(ledger: Ledger) -> dict[int, tuple[str, int | None]]:
    table = image_table(ledger)
    return {number: (STATES[one.state], one.class_id) for number, one in table.said.items()}


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["label", "other", "skip", "settle-label", "settle-other", "undo"]),
        st.integers(1, 4), st.integers(1, 3), st.sampled_from(["ann", "ben"]),
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS)
def test_the_table_follows_the_ledger_as_its_views_have_it(ledger: Ledger, acts: list[Any]) -> None:
    for kind, image, cls, who in acts:
        if kind == "undo":
            undo(ledger, uuid.uuid4().hex, who)
        else:
            say(ledger, image, kind, cls, who)
        assert by_table(ledger) == by_view(ledger)
        state = {number: STATES[code] for number, code in zip(*_state(ledger), strict=True) if code}
        assert state == {number: outcome for number, (outcome, _) in by_view(ledger).items()}


def _state(ledger: Ledger) -> tuple[list[int], list[int]]:
    table = image_table(ledger)
    return table.ids.tolist(), table.state.tolist()


def test_a_rolled_back_write_leaves_no_trace_in_the_table(ledger: Ledger) -> None:
    from tailwise.campaign.relabelling import relabel

    with ledger.writing(dry_run=True):
        relabel(ledger, [1, 2], 1, "ann")
    assert by_table(ledger) == {}
    say(ledger, 3)
    assert by_table(ledger) == by_view(ledger)


@pytest.fixture
def mixed(ledger: Ledger) -> Ledger:
    """Labels, other, skips, a conflict, two people, a round, a copy and a flag."""
    open_round(ledger, [Pick(number, 1, 0.5) for number in (1, 2, 3, 9)], budget=4, strategy="random")
    for image, cls in ((1, 1), (2, 2), (3, 1)):
        say(ledger, image, cls=cls, round_id=1, at=1_000 * image)
    say(ledger, 3, cls=2, who="ben", at=9_000)  # a conflict
    say(ledger, 4, "other", who="ben", at=4_000)
    say(ledger, 5, "skip", at=5_000)
    record(ledger, [Answer(uuid.uuid4().hex, 6, "ann", "label", 3, 6_000, found_by="hunt")])
    with ledger.writing() as connection:
        connection.execute(
            "UPDATE image SET duplicate_of = 1, sha256 = (SELECT sha256 FROM image WHERE id = 1) WHERE id = 12"
        )
        for number, kind in enumerate(("flag", "comment"), 1):
            connection.execute(
                "INSERT INTO note (key, image_id, annotator, kind, text, at) VALUES (?, 7, 'ann', ?, 'blurred', 0)",
                (f"note-{number}", kind),
            )
        connection.execute("INSERT INTO note (key, image_id, annotator, kind, at) VALUES ('a', 8, 'ann', 'flag', 0)")
        connection.execute("INSERT INTO note (key, image_id, annotator, kind, at) VALUES ('b', 8, 'ann', 'unflag', 0)")
    return ledger


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (GalleryFilter(), {*range(1, 12)}),
        (GalleryFilter(duplicates="show"), {*range(1, 13)}),
        (GalleryFilter(duplicates="only"), {1, 12}),
        (GalleryFilter(states=("labelled",)), {1, 2, 6}),
        (GalleryFilter(states=("unlabelled",)), {7, 8, 9, 10, 11}),
        (GalleryFilter(states=("skipped", "other")), {4, 5}),
        (GalleryFilter(states=("conflict",)), {3}),
        (GalleryFilter(classes=(1,)), {1}),
        (GalleryFilter(classes=(1, 3)), {1, 6}),
        (GalleryFilter(annotator="ben"), {3, 4}),
        (GalleryFilter(annotator="ann", states=("labelled",)), {1, 2, 6}),
        (GalleryFilter(round_id=1), {1, 2, 3, 9}),
        (GalleryFilter(round_id=1, states=("unlabelled",)), {9}),
        (GalleryFilter(found_by="hunt"), {6}),
        (GalleryFilter(flagged=True), {7}),
        (GalleryFilter(images=(2, 5, 99)), {2, 5}),
    ],
)
def test_filters_let_exactly_those_images_through(mixed: Ledger, asked: GalleryFilter, expected: set[int]) -> None:
    assert set(select_images(mixed, asked, BY_PATH).tolist()) == expected


def test_orders_by_path_and_by_time(mixed: Ledger) -> None:
    everything = GalleryFilter(duplicates="show")
    paths = {row[0]: row[1] for row in mixed.read("SELECT id, path FROM image")}
    assert select_images(mixed, everything, BY_PATH).tolist() == sorted(paths, key=lambda one: paths[one])
    backwards = select_images(mixed, everything, GalleryOrder(reverse=True)).tolist()
    assert backwards == sorted(paths, key=lambda one: paths[one], reverse=True)
    by_time = select_images(mixed, everything, GalleryOrder("time")).tolist()
    assert by_time == [3, 6, 5, 4, 2, 1, 7, 8, 9, 10, 11, 12]  # latest first; without an answer last, by id


def test_a_snapshot_pages_through_one_order_whatever_is_labelled(mixed: Ledger) -> None:
    asked = GalleryFilter(states=("unlabelled",))
    first = gallery_page(mixed, asked, BY_PATH, count=2)
    whole = select_images(mixed, asked, BY_PATH).tolist()
    say(mixed, int(first.ids[0]))
    later = gallery_page(mixed, asked, BY_PATH, offset=2, count=2, snapshot=first.snapshot)
    assert (first.total, [*first.ids.tolist(), *later.ids.tolist()]) == (5, whole[:4])
    assert gallery_page(mixed, asked, BY_PATH).total == 4
    assert gallery_page(mixed, asked, BY_PATH, snapshot="gone").total == 4


def test_unknown_filters_and_orders_are_rejected(mixed: Ledger) -> None:
    for wrong in (
        lambda: GalleryFilter(states=("lost",)), lambda: GalleryFilter(duplicates="x"),
        lambda: GalleryFilter(found_by="luck"), lambda: GalleryOrder("size"), lambda: GalleryOrder("similarity"),
        lambda: select_images(mixed, GalleryFilter(least=0.5), BY_PATH),
    ):  # fmt: skip
        with pytest.raises(BadInput):
            wrong()


def test_guesses_are_those_of_the_newest_model(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 12, "dog": 12, "eel": 12}, spread=0.25, seed=3)
    studio.campaign.next(12)
    studio.say_round()
    proposal = studio.campaign.next(6)
    from tailwise.campaign.models import predict

    ids = np.array([row[0] for row in studio.ledger.read("SELECT id FROM image ORDER BY id")])
    literal = predict(studio.ledger, ids, proposal.model_version)
    guess, sure = literal.best()
    found = studio.campaign.gallery(sort="confidence")
    names = {one.id: one.name for one in studio.campaign.classes()}
    best = np.argsort(-sure, kind="stable")
    assert [one.confidence for one in found] == pytest.approx(sure[best].tolist(), rel=1e-5)
    assert {one.path: one.guess for one in found} == {
        find_image(studio.ledger, int(number)).path: names[int(cls)] for number, cls in zip(ids, guess, strict=True)
    }
    ordered = np.sort(literal.proba, axis=1)
    margin = ordered[:, -1] - ordered[:, -2]
    hard = [find_image(studio.ledger, int(number)).path for number in ids[np.argsort(margin, kind="stable")]]
    assert [one.path for one in studio.campaign.gallery(sort="uncertainty", count=5)] == hard[:5]
    limits = (0.5, 0.9)
    inside = {one.path for one in studio.campaign.gallery(confidence=limits)}
    expected = ids[(sure >= limits[0]) & (sure <= limits[1])]
    assert inside == {find_image(studio.ledger, int(number)).path for number in expected}
    assert {one.guess for one in studio.campaign.gallery(guess="cat")} == {"cat"}
    assert len(studio.campaign.gallery(guess="cat")) == np.count_nonzero(guess == 1)
    assert len(studio.campaign.gallery(state="labelled")) == 12
    blind = describe_images(studio.ledger, ids.tolist(), guesses=False)
    assert {one.guess for one in blind} == {None}


def test_predictions_are_kept_for_the_model_and_made_again_when_damaged(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 8, "dog": 8}, spread=0.2)
    assert pool_predictions(studio.ledger) is None
    studio.campaign.next(8)
    studio.say_round()
    version = studio.campaign.next(4).model_version
    made = pool_predictions(studio.ledger)
    kept = read_predictions(studio.ledger, version)
    assert made is not None
    assert kept is not None
    assert isinstance(kept.proba, np.memmap)
    assert np.array_equal(kept.proba, made.proba)
    assert kept.of_class(1) == pytest.approx(made.proba[:, 0])
    assert kept.of_class(99) is None
    file = next((studio.ledger.files / "predictions").glob("*.proba.npy"))
    file.write_bytes(file.read_bytes()[:-40])
    assert read_predictions(studio.ledger, version) is None
    again = pool_predictions(studio.ledger)
    assert again is not None
    assert np.array_equal(again.proba, made.proba)


def test_the_history_of_an_image_says_who_said_what_and_why_it_was_chosen(mixed: Ledger) -> None:
    first = say(mixed, 1, cls=3, who="ben")
    undo(mixed, uuid.uuid4().hex, "ben", undoes_key=first)
    settle(mixed, key=uuid.uuid4().hex, image=1, annotator="cho", class_id=2)
    found = image_history(mixed, find_image(mixed, 1))
    assert [(one.annotator, one.kind, one.class_id, one.undone) for one in found.events] == [
        ("ann", "label", 1, False), ("ben", "label", 3, True), ("ben", "undo", None, False),
        ("cho", "settle-label", 2, False),
    ]  # fmt: skip
    assert [(one.round_id, one.rank, one.of, one.predicted, one.confidence) for one in found.chosen] == [
        (1, 1, 4, 1, 0.5)
    ]  # fmt: skip
    assert found.copies == (find_image(mixed, 12).key,)
    assert (found.image.state, found.image.class_id) == ("labelled", 2)
    assert [(one.kind, one.text) for one in image_history(mixed, find_image(mixed, 7)).notes] == [
        ("flag", "blurred"), ("comment", "blurred"),
    ]  # fmt: skip
    hidden = image_history(mixed, find_image(mixed, 1), guesses=False).chosen[0]
    assert (hidden.predicted, hidden.confidence) == (None, None)
