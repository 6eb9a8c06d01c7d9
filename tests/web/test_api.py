"""The API as programs see it: leases, answers that are on the disk when called saved, undo, conflicts, rounds, jobs."""

from __future__ import annotations

import io
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.service import Campaign
from tailwise.web.jobs import MODULE, PREFIX
from tailwise.web.serve import Options

from .api_client import Api, exchange, new_key, reopened, request, serving_api
from .conftest import PATIENCE, Plan, make_campaign, until


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """Six images in one round, with pre-labels."""
    with serving_api(tmp_path, images=6, guessing=True) as made:
        yield made


def label_everything(api: Api, annotator: str = "ada") -> int:
    """Answer all that is leased with the class that the file's name tells."""
    truth = {key: int(Path(path).stem.split("_")[1]) + 1 for key, path in api.rows("SELECT key, path FROM image")}
    keys = api.lease(annotator)
    for key in keys:
        assert api.answer(key, truth[key], annotator)["saved"]
    return len(keys)


# State.


def test_the_state_tells_campaign_classes_round_and_settings(api: Api) -> None:
    state = api.get("/api/state", annotator="ada")
    assert state["campaign"]["name"] == "Birds"
    assert [(one["name"], one["key"], one["retired"]) for one in state["classes"]] == [
        ("cat", "1", False), ("dog", "2", False), ("owl", "3", False),
    ]  # fmt: skip
    assert state["round"] == {
        "id": 1, "budget": 6, "answered": 0, "skipped": 0, "remaining": 6, "complete": False, "mine": 0,
        "rough": False,
    }  # fmt: skip
    assert state["next"] is None
    assert state["settings"] == {"overlap": 1, "blind": False, "plain_features": True}
    assert state["job"]["state"] == "idle"
    assert (state["annotators"], state["conflicts"]) == ([], 0)


def test_the_state_counts_what_was_answered(api: Api) -> None:
    first, second, third, *_ = api.lease()
    api.answer(first, 1)
    api.answer(second, 1)
    api.answer(third, None)
    state = api.get("/api/state", annotator="ada")
    assert (state["round"]["answered"], state["round"]["mine"]) == (3, 3)
    assert {one["class_id"]: one["labelled"] for one in state["balance"]} == {1: 2, 2: 0, 3: 0}
    assert {one["class_id"]: one["round_labelled"] for one in state["balance"]} == {1: 2, 2: 0, 3: 0}
    assert state["annotators"] == ["ada"]
    assert api.get("/api/state", annotator="bob")["round"]["mine"] == 0
    assert api.get("/api/state")["round"]["mine"] == 0


def test_skips_are_counted_apart_until_somebody_answers(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=3, settings={"overlap": 2}) as api:
        first, second, _ = api.lease("ada")
        assert api.lease("bob")[:2] == [first, second]
        api.answer(first, 1, "ada")
        api.answer(first, None, "bob", kind="skip")
        api.answer(second, None, "ada", kind="skip")
        assert api.get("/api/state")["round"]["skipped"] == 0, "the second image is still asked about"
        api.answer(second, None, "bob", kind="skip")
        found = api.get("/api/state")["round"]
        assert (found["skipped"], found["answered"], found["remaining"]) == (1, 2, 1)
        api.answer(second, 2, "ada")
        assert api.get("/api/state")["round"]["skipped"] == 0


def test_when_a_round_can_be_chosen_the_state_says_from_how_many_images(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=8, chosen=2, settings={"budget": 5}) as api:
        assert api.get("/api/state")["next"] is None
        first, second = api.lease()
        api.answer(first)
        api.answer(second, None, kind="skip")
        assert api.get("/api/state")["next"] == {"budget": 5, "left": 6, "skipped": 1}


def test_a_campaign_without_images_or_rounds_has_a_state(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=0) as api:
        state = api.get("/api/state")
        assert (state["round"], state["images"]) == (None, {"usable": 0})
        assert state["next"] == {"budget": 100, "left": 0, "skipped": 0}
        assert api.lease() == []
        assert api.post("/api/grid", annotator="ada", class_id=1) == {"images": [], "counts": []}
        assert api.get("/api/rounds") == {"items": []}
        assert api.get("/api/conflicts")["items"] == []
        answer = api.client.post("/api/next", json={})
        assert "no image is left to choose from" in answer.json()["error"]["message"]


def test_unicode_names_come_back_as_they_went_in(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=1, classes=("кошка", "犬", "🦉")) as api:
        assert [one["name"] for one in api.get("/api/state")["classes"]] == ["кошка", "犬", "🦉"]
        (key,) = api.lease("Ж 陳 🙂")
        api.answer(key, 3, "Ж 陳 🙂")
        assert api.get("/api/state")["annotators"] == ["Ж 陳 🙂"]
        assert len(api.get("/api/history", annotator="Ж 陳 🙂")["items"]) == 1


# Leases.


def test_a_lease_gives_images_by_rank_with_size_and_pre_label(api: Api) -> None:
    images = api.post("/api/lease", annotator="ada", count=2)["images"]
    assert [one["rank"] for one in images] == [1, 2]
    assert (images[0]["width"], images[0]["height"]) == (96, 72)
    assert images[0]["prelabel"] == {
        "class_id": 1, "confidence": 0.9, "top": [{"class_id": 1, "confidence": 0.9}],
    }  # fmt: skip
    assert images[0]["lease_until"] > time.time() * 1e6 + 60e6


def test_two_annotators_get_different_images(api: Api) -> None:
    ada, bob = api.lease("ada", 4), api.lease("bob", 4)
    assert (len(ada), len(bob)) == (4, 2)
    assert not set(ada) & set(bob)
    assert api.lease("ada", 4) == ada


def test_what_is_released_goes_to_others(api: Api) -> None:
    ada = api.lease("ada", 6)
    assert api.lease("bob") == []
    assert api.post("/api/release", annotator="ada", images=[*ada[:2], "f" * 16]) == {"released": 2}
    assert api.lease("bob") == ada[:2]


def test_blind_people_see_no_guess(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, blind=True), images=2, guessing=True) as api:
        assert [one["prelabel"] for one in api.post("/api/lease", annotator="ada")["images"]] == [None, None]
        assert api.get("/api/state")["settings"]["blind"] is True


def test_blind_people_get_no_images_sorted_by_what_the_model_thinks(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, blind=True), images=4, guessing=True) as api:
        answer = api.client.post("/api/grid", json={"annotator": "ada", "class_id": 2})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "impossible")
        assert "labelled blind; label them one by one" in answer.json()["error"]["message"]
        assert api.rows("SELECT count(*) FROM lease") == [(0,)]
    other = tmp_path / "other"
    other.mkdir()
    with serving_api(other, images=4, guessing=True, settings={"blind": True}) as api:
        assert api.client.post("/api/grid", json={"annotator": "ada", "class_id": 2}).status_code == 409


def test_overlap_asks_several_people(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=2, settings={"overlap": 2}) as api:
        assert api.get("/api/state")["settings"]["overlap"] == 2
        assert api.lease("ada") == api.lease("bob")
        assert api.lease("cleo") == []


def test_the_overlap_option_is_kept_by_the_campaign(tmp_path: Path) -> None:
    with serving_api(tmp_path, Options(port=0, overlap=3), images=1) as api:
        assert api.get("/api/state")["settings"]["overlap"] == 3
    with reopened(tmp_path / "campaign") as api:
        assert api.get("/api/state")["settings"]["overlap"] == 3


def test_the_grid_gives_one_class_the_most_confident_first(api: Api) -> None:
    images = api.post("/api/grid", annotator="ada", class_id=2, count=10)["images"]
    assert [one["prelabel"]["class_id"] for one in images] == [2, 2]
    assert images[0]["prelabel"]["confidence"] > images[1]["prelabel"]["confidence"]
    assert not set(api.lease("bob")) & {one["key"] for one in images}


def test_nothing_that_is_only_asked_for_writes(api: Api) -> None:
    """Links of other pages, previews and prefetches send GET and HEAD."""
    first, second, *_ = api.lease("ada", 3)
    api.answer(first, 1)
    api.answer(first, 2, "bob")
    paths: dict[str, Any] = api.get("/api/openapi.json")["paths"]
    asked = [path.replace("{key}", second) for path, methods in paths.items() if "get" in methods]
    assert len(asked) == 16
    before = ledger_text(api.folder)
    for path in [*asked, "/api/grid?annotator=ada&class_id=2", "/api/lease?annotator=ada", "/", "/static/js/main.js"]:
        for query in ("", "annotator=ada"):
            address = f"{path}{'&' if '?' in path else '?'}{query}"
            assert api.client.get(address).status_code in (200, 404, 405, 422), address
            assert api.client.head(address).status_code in (200, 404, 405, 422), address
    assert ledger_text(api.folder) == before
    assert api.client.get("/api/grid", params={"annotator": "ada", "class_id": 2}).status_code == 405


def ledger_text(folder: Path) -> list[str]:
    """Every row of the ledger."""
    with closing(sqlite3.connect(f"file:{folder / LEDGER_FILE}?mode=ro", uri=True)) as file:
        return list(file.iterdump())


# Answers.


def test_a_saved_answer_is_in_the_file_when_it_is_called_saved(api: Api) -> None:
    key = api.lease()[0]
    result = api.answer(key, 2, seconds=1.5)
    assert (result["saved"], result["fresh"]) == (True, True)
    rows = api.rows(
        "SELECT e.id, i.key, e.annotator, e.kind, e.class_id, e.round_id, e.source, e.seconds FROM event AS e "
        "JOIN image AS i ON i.id = e.image_id"
    )
    assert rows == [(result["event"], key, "ada", "label", 2, 1, "page", 1.5)]


def test_the_same_answer_twice_is_recorded_once(api: Api) -> None:
    said = {"key": new_key(), "image": api.lease()[0], "kind": "label", "class_id": 1}
    first, second = (api.post("/api/answers", annotator="ada", answers=[said])["results"][0] for _ in range(2))
    assert (first["fresh"], second["fresh"]) == (True, False)
    assert first["event"] == second["event"]
    assert api.rows("SELECT count(*) FROM event") == [(1,)]


def test_one_key_for_two_answers_is_refused(api: Api) -> None:
    said = {"key": new_key(), "image": api.lease()[0], "kind": "label", "class_id": 1}
    api.post("/api/answers", annotator="ada", answers=[said])
    other = api.post("/api/answers", annotator="ada", answers=[said | {"class_id": 2}])["results"][0]
    assert other["saved"] is False
    assert other["error"]["code"] == "bad_input"


def test_a_bad_answer_does_not_hold_up_the_good_ones(api: Api) -> None:
    first, second, *_ = api.lease()
    answers = [
        {"key": new_key(), "image": first, "kind": "label", "class_id": 1},
        {"key": new_key(), "image": "f" * 16, "kind": "skip"},
        {"key": new_key(), "image": second, "kind": "label"},
        {"key": new_key(), "image": second, "kind": "label", "class_id": 99},
        {"key": new_key(), "image": second, "kind": "other", "class_id": 1},
        {"key": new_key(), "image": second, "kind": "skip"},
    ]
    results = api.post("/api/answers", annotator="ada", answers=answers)["results"]
    assert [one["key"] for one in results] == [one["key"] for one in answers]
    assert [one["saved"] for one in results] == [True, False, False, False, False, True]
    assert results[1]["error"]["code"] == "unknown"
    assert api.rows("SELECT kind FROM event ORDER BY id") == [("label",), ("skip",)]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "undo"}, {"kind": "settle-label"}, {"kind": None}, {"class_id": "1"}, {"class_id": 1.5},
        {"class_id": True}, {"class_id": 0}, {"class_id": -1}, {"class_id": 2**63}, {"key": "short"}, {"key": "x" * 65},
        {"key": "with space here"}, {"key": "' OR 1=1 --"}, {"seconds": -1}, {"seconds": "2"}, {"at": 1.5}, {"at": -1},
        {"at": 2**60}, {"more": 1}, {"image": None}, {"seal": ""}, {"seal": "../x"},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_of_another_shape_is_refused(api: Api, change: dict[str, Any]) -> None:
    said = {"key": new_key(), "image": api.lease()[0], "kind": "label", "class_id": 1} | change
    assert api.refused("/api/answers", annotator="ada", answers=[said]) == (422, "invalid")
    assert api.rows("SELECT count(*) FROM event") == [(0,)]


def test_no_answers_and_too_many_are_refused(api: Api) -> None:
    image = api.lease()[0]
    many = [{"key": new_key(), "image": image, "kind": "skip"} for _ in range(201)]
    assert api.refused("/api/answers", annotator="ada", answers=[]) == (422, "invalid")
    assert api.refused("/api/answers", annotator="ada", answers=many) == (422, "invalid")
    results = api.post("/api/answers", annotator="ada", answers=many[:200])["results"]
    assert all(one["saved"] for one in results)


def test_a_clock_that_is_ahead_does_not_date_an_answer_into_the_future(api: Api) -> None:
    first, second, *_ = api.lease()
    now = int(time.time() * 1e6)
    api.answer(first, at=now + 10**12)
    api.answer(second, at=now - 10**9)
    ahead, behind = (row[0] for row in api.rows("SELECT at FROM event ORDER BY id"))
    assert abs(ahead - now) < 60e6
    assert behind == now - 10**9


def test_an_answer_after_the_round_was_closed_still_counts(api: Api) -> None:
    late = api.lease()[0]
    with Ledger.open(api.folder, purpose="a test") as ledger:  # the same process, so the same holder
        from tailwise.campaign.rounds import close_round

        close_round(ledger)
    assert api.lease() == []
    assert api.answer(late, 1)["saved"]
    assert api.rows("SELECT round_id FROM event") == [(1,)]


# Undo and history.


def test_undo_takes_the_last_answer_back_and_the_image_comes_again(api: Api) -> None:
    first, second, *_ = api.lease(count=2)
    api.answer(first, 1)
    api.answer(second, 2)
    undone = api.post("/api/undo", annotator="ada", key=new_key())["undone"]
    assert (undone["image"], undone["kind"], undone["class_id"]) == (second, "label", 2)
    assert api.get("/api/state", annotator="ada")["round"]["answered"] == 1
    assert second in api.lease(count=1)


def test_undo_by_key_and_twice_and_with_nothing_left(api: Api) -> None:
    first, second, *_ = api.lease()
    said = {"key": new_key(), "image": first, "kind": "label", "class_id": 1}
    api.post("/api/answers", annotator="ada", answers=[said])
    api.answer(second, 2)
    wish = {"annotator": "ada", "key": new_key(), "undoes": said["key"]}
    assert api.post("/api/undo", **wish)["undone"]["image"] == first
    assert api.post("/api/undo", **wish)["undone"]["image"] == first
    assert api.rows("SELECT count(*) FROM event WHERE kind = 'undo'") == [(1,)]
    assert api.post("/api/undo", annotator="ada", key=new_key())["undone"]["image"] == second
    assert api.post("/api/undo", annotator="ada", key=new_key()) == {"undone": None}


def test_nobody_undoes_what_another_said(api: Api) -> None:
    said = {"key": new_key(), "image": api.lease("ada")[0], "kind": "label", "class_id": 1}
    api.post("/api/answers", annotator="ada", answers=[said])
    assert api.post("/api/undo", annotator="bob", key=new_key()) == {"undone": None}
    assert api.refused("/api/undo", annotator="bob", key=new_key(), undoes=said["key"]) == (400, "bad_input")
    assert api.refused("/api/undo", annotator="ada", key=new_key(), undoes=new_key()) == (400, "bad_input")


def test_the_history_is_the_latest_first_and_only_ones_own(api: Api) -> None:
    keys = api.lease("ada", 3)
    for key in keys:
        api.answer(key, 1)
    items = api.get("/api/history", annotator="ada", limit=2)["items"]
    assert [one["image"] for one in items] == keys[:0:-1]
    assert items[0]["event"] > items[1]["event"]
    assert api.get("/api/history", annotator="bob")["items"] == []


def test_the_history_goes_on_before_an_event(api: Api) -> None:
    for key in api.lease("ada", 5):
        api.answer(key, 1)
    everything = [one["event"] for one in api.get("/api/history", annotator="ada")["items"]]
    paged, before = list[int](), {}
    while items := api.get("/api/history", annotator="ada", limit=2, **before)["items"]:
        paged += [one["event"] for one in items]
        before = {"before": paged[-1]}
    assert len(paged) == 5
    assert paged == everything


def test_the_image_that_is_wanted_first_comes_first_where_it_is_free(api: Api) -> None:
    keys = api.lease("ada", 5)
    api.post("/api/release", annotator="ada", images=keys)
    leased = api.post("/api/lease", annotator="ada", count=2, first=keys[3])["images"]
    assert [one["key"] for one in leased] == [keys[3], keys[0]]
    other = api.post("/api/lease", annotator="bob", count=2, first=keys[3])["images"]  # ada holds it
    assert keys[3] not in [one["key"] for one in other]


def test_the_history_holds_an_answer_that_was_changed_since(api: Api) -> None:
    first, second, *_ = api.lease("ada")
    for key, cls in ((first, 1), (second, 2), (first, 3)):
        api.answer(key, cls)
    items = api.get("/api/history", annotator="ada")["items"]
    assert [(one["image"], one["class_id"]) for one in items] == [(first, 3), (second, 2), (first, 1)]
    api.post("/api/undo", annotator="ada", key=new_key(), undoes=items[0]["key"])
    assert [one["class_id"] for one in api.get("/api/history", annotator="ada")["items"]] == [2, 1]


@pytest.mark.parametrize("query", [{}, {"annotator": ""}, {"annotator": "a\nb"}, {"annotator": "a", "limit": "0"},
                                   {"annotator": "a", "limit": "1001"}, {"annotator": "a", "limit": "x"}])  # fmt: skip
def test_a_bad_question_is_refused(api: Api, query: dict[str, str]) -> None:
    answer = api.client.get("/api/history", params=query)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")


# Conflicts.


def disagree(api: Api) -> str:
    """Ada and Bob see the first image differently, and agree on the second."""
    first, second, *_ = api.lease("ada")
    assert api.lease("bob")[:2] == [first, second]
    for annotator, classes in (("ada", (1, 2)), ("bob", (3, 2))):
        for key, cls in zip((first, second), classes, strict=True):
            api.answer(key, cls, annotator)
    return first


def test_a_conflict_is_shown_with_all_answers_and_settled_once(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=3, settings={"overlap": 2}) as api:
        image = disagree(api)
        found = api.get("/api/conflicts")
        (item,) = found["items"]
        assert item["image"] == image
        assert item["answers"] == [
            {"annotator": "ada", "kind": "label", "class_id": 1},
            {"annotator": "bob", "kind": "label", "class_id": 3},
        ]
        assert found["agreement"]["images"] == 2
        kappa = pytest.approx((0.5 - 0.25) / (1 - 0.25))
        assert found["agreement"]["cohen"] == kappa
        assert found["agreement"]["pairs"] == [{"first": "ada", "second": "bob", "cohen": kappa, "images": 2}]
        assert api.get("/api/state")["conflicts"] == 1
        wish = {"annotator": "cleo", "key": new_key(), "image": image, "kind": "settle-label", "class_id": 1}
        first, second = api.post("/api/settle", **wish), api.post("/api/settle", **wish)
        assert (first["fresh"], second["fresh"]) == (True, False)
        assert api.get("/api/conflicts")["items"] == []
        assert api.rows("SELECT class_id, decided FROM current_label WHERE decided = 'settled'") == [(1, "settled")]


def test_the_kappa_of_more_than_two_people_is_the_mean_over_their_pairs(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=2, settings={"overlap": 3}) as api:
        first, second = api.lease("ada")
        for annotator, classes in (("ada", (1, 2)), ("bob", (1, 2)), ("cleo", (2, 1))):
            for key, cls in zip((first, second), classes, strict=True):
                api.answer(key, cls, annotator)
        found = api.get("/api/conflicts")["agreement"]
        assert {(one["first"], one["second"]): one["cohen"] for one in found["pairs"]} == {
            ("ada", "bob"): 1.0, ("ada", "cleo"): -1.0, ("bob", "cleo"): -1.0,
        }  # fmt: skip
        assert (found["pair_count"], found["cohen"]) == (3, pytest.approx(-1 / 3))


def test_a_settlement_is_among_ones_own_until_it_is_taken_back(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=3, settings={"overlap": 2}) as api:
        image = disagree(api)
        wish = {"annotator": "cleo", "key": new_key(), "image": image, "kind": "settle-other"}
        api.post("/api/settle", **wish)
        (mine,) = api.get("/api/conflicts", annotator="cleo")["settled"]
        assert (mine["key"], mine["image"], mine["kind"], mine["class_id"]) == (
            wish["key"],
            image,
            "settle-other",
            None,
        )
        assert api.get("/api/conflicts", annotator="ada")["settled"] == []
        assert api.get("/api/conflicts")["settled"] == []
        api.post("/api/undo", annotator="cleo", key=new_key(), undoes=wish["key"])
        found = api.get("/api/conflicts", annotator="cleo")
        assert (found["settled"], [one["image"] for one in found["items"]]) == ([], [image])


def test_only_an_image_that_somebody_has_answered_is_settled(api: Api) -> None:
    first, second, *_ = api.lease()
    wish = {"annotator": "cleo", "kind": "settle-label", "class_id": 1}
    assert api.refused("/api/settle", **wish, key=new_key(), image=first) == (400, "bad_input")
    api.answer(first, None, kind="skip")
    refused = api.client.post("/api/settle", json=wish | {"key": new_key(), "image": first})
    assert "it has no answer yet; label it instead" in refused.json()["error"]["message"]
    api.answer(second, 2)
    key = new_key()
    assert api.post("/api/settle", **wish, key=key, image=second)["fresh"] is True
    for _ in range(2):
        api.post("/api/undo", annotator="ada", key=new_key())
    assert api.post("/api/settle", **wish, key=key, image=second)["fresh"] is False, "told again, it is known"
    assert api.rows("SELECT count(*) FROM event WHERE kind = 'settle-label'") == [(1,)]


def test_a_settlement_names_a_class_or_none_as_its_kind_says(api: Api) -> None:
    image = api.lease()[0]
    usual = {"annotator": "ada", "key": new_key(), "image": image}
    assert api.refused("/api/settle", **usual, kind="settle-label") == (400, "bad_input")
    assert api.refused("/api/settle", **usual, kind="settle-other", class_id=1) == (400, "bad_input")
    assert api.refused("/api/settle", **usual | {"image": "f" * 16}, kind="settle-other") == (404, "unknown")
    assert api.refused("/api/settle", **usual, kind="settle-label", class_id=77) == (400, "bad_input")
    assert api.refused("/api/settle", **usual, kind="label", class_id=1) == (422, "invalid")
    assert api.rows("SELECT count(*) FROM event") == [(0,)]


# Images.


def test_an_image_comes_upright_and_no_larger_than_asked(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    make_campaign(tmp_path / "home", Plan(images=0))
    folder = tmp_path / "home" / "images"
    notes = Image.Exif()
    notes[0x0112] = 6  # to be turned by 90°
    Image.new("RGB", (400, 200), (200, 30, 30)).save(folder / "turned.jpg", exif=notes)
    with Campaign.open(tmp_path / "home" / "campaign") as campaign:
        campaign.index()
    with reopened(tmp_path / "home" / "campaign") as api:
        key = api.rows("SELECT key FROM image")[0][0]
        for size, expected in ((160, (80, 160)), (512, (200, 400)), (1280, (200, 400)), (2048, (200, 400))):
            picture = Image.open(io.BytesIO(api.client.get(f"/image/{key}", params={"size": size}).content))
            assert (picture.format, picture.size) == ("JPEG", expected)


def test_an_image_is_not_sent_twice(api: Api) -> None:
    key = api.lease()[0]
    first = api.client.get(f"/image/{key}?size=160")
    again = api.client.get(f"/image/{key}?size=160", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = api.client.get(f"/image/{key}?size=512", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def replace_first_image(folder: Path) -> None:
    """Other bytes under the same name, seen by the campaign."""
    first = sorted((folder.parent / "images").iterdir())[0]
    Image.new("RGB", (96, 72), (0, 250, 0)).save(first)
    with Campaign.open(folder) as campaign:
        assert campaign.index().changed == (first.name,)


def test_the_address_of_a_picture_changes_with_its_bytes(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=2) as api:
        before = api.post("/api/lease", annotator="ada")["images"][0]
        old = api.client.get(f"/image/{before['key']}", params={"size": 160, "seal": before["seal"]})
        assert "immutable" in old.headers["cache-control"]
        bare = api.client.get(f"/image/{before['key']}?size=160")
        assert "immutable" not in bare.headers["cache-control"], "without a seal it may be another one tomorrow"
    replace_first_image(tmp_path / "campaign")
    with reopened(tmp_path / "campaign") as api:
        after = api.post("/api/lease", annotator="ada")["images"][0]
        assert after["key"] == before["key"]
        assert after["seal"] != before["seal"]
        new = api.client.get(f"/image/{after['key']}", params={"size": 160, "seal": after["seal"]})
        assert (new.status_code, new.content == old.content) == (200, False)
        stale = api.client.get(f"/image/{after['key']}", params={"size": 160, "seal": before["seal"]})
        assert (stale.status_code, "they have changed" in stale.text) == (400, True)
        assert stale.headers["cache-control"] != old.headers["cache-control"]


def test_an_answer_to_other_bytes_than_those_that_are_there_is_not_saved(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=2) as api:
        before = api.post("/api/lease", annotator="ada")["images"][0]
    replace_first_image(tmp_path / "campaign")
    with reopened(tmp_path / "campaign") as api:
        refused = api.answer(before["key"], 1, seal=before["seal"])
        assert (refused["saved"], refused["error"]["code"]) == (False, "changed")
        assert api.rows("SELECT count(*) FROM event") == [(0,)]
        after = api.post("/api/lease", annotator="ada")["images"][0]
        assert api.answer(after["key"], 1, seal=after["seal"])["saved"]
        (past,) = api.get("/api/history", annotator="ada")["items"]
        assert past["seal"] == after["seal"]


def test_an_image_that_is_gone_is_told_and_labelling_goes_on(api: Api) -> None:
    key, path = api.rows("SELECT key, path FROM image ORDER BY id")[0]
    (api.folder.parent / "images" / path).unlink()
    answer = api.client.get(f"/image/{key}?size=160")
    assert answer.status_code == 400
    assert str(api.folder.parent) not in answer.text
    assert api.answer(api.lease()[0])["saved"]


def test_answers_are_not_stuck_behind_images(tmp_path: Path) -> None:
    """While large images are being decoded for others, an answer is saved as usual."""
    make_campaign(tmp_path, Plan(images=4))
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    large = io.BytesIO()
    Image.fromarray(np.tile(noise, (10, 10, 1))).save(large, "JPEG", quality=95)
    for path in (tmp_path / "images").iterdir():
        path.write_bytes(large.getvalue())
    with reopened(tmp_path / "campaign") as api:
        keys = api.lease()
        busy = [
            threading.Thread(target=httpx.get, args=(f"{api.serving.url}image/{key}?size={size}",),
                             kwargs={"headers": {"X-Tailwise-Token": api.serving.token}, "timeout": 120})
            for key in keys for size in (512, 2048)
        ]  # fmt: skip
        for thread in busy:
            thread.start()
        assert api.answer(keys[0])["saved"]
        decoding = [thread for thread in busy if thread.is_alive()]
        for thread in busy:
            thread.join()
    assert len(decoding) >= len(busy) / 2, "the answer waited for images that are being decoded"


# Static files and the page.


def test_the_page_and_every_file_it_names_are_served_and_kept_by_name(api: Api) -> None:
    page = api.client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    names = {part.split('"')[0] for part in page.text.split('"/static/')[1:]}
    assert names
    for name in names:
        answer = api.client.get(f"/static/{name}")
        assert answer.status_code == 200, name
        again = api.client.get(f"/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
        assert answer.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert page.headers["cache-control"] == "private, no-cache"
    assert api.client.get("/static/v-0123456789abcdef/js/main.js").status_code == 404
    assert api.client.get("/static/js/main.js").headers["cache-control"] == "private, no-cache"


def test_static_files_are_compressed_for_those_who_can_read_it(api: Api) -> None:
    packed = api.client.get("/", headers={"Accept-Encoding": "gzip"})
    plain = api.client.get("/", headers={"Accept-Encoding": "identity"})
    assert (packed.headers.get("content-encoding"), plain.headers.get("content-encoding")) == ("gzip", None)
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == "Accept-Encoding"


# Rounds and jobs.


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Api]:
    """Forty images, no round yet, budget of nine."""
    with serving_api(tmp_path, images=40, chosen=0, settings={"budget": 9}) as made:
        yield made


def test_the_page_trains_and_chooses_round_after_round(fresh: Api) -> None:
    assert fresh.get("/api/job") == {"state": "idle", "share": 0.0, "what": "", "error": None, "round": None}
    started = fresh.post("/api/next")["job"]
    assert started["state"] == "running"
    done = fresh.wait_for_job()
    assert (done["state"], done["round"], done["error"]) == ("done", 1, None)
    assert label_everything(fresh) == 9
    fresh.post("/api/next", budget=6, strategy="margin", balance=0.5)
    assert fresh.wait_for_job()["round"] == 2
    assert fresh.get("/api/state")["round"]["rough"] is True  # nine labels
    images = fresh.post("/api/lease", annotator="ada", count=64)["images"]
    assert len(images) == 6
    for one in images:
        top = one["prelabel"]["top"]
        assert len(top) == 3
        assert sum(guess["confidence"] for guess in top) == pytest.approx(1.0, abs=1e-3)
        assert top[0]["class_id"] == one["prelabel"]["class_id"]
        assert [guess["confidence"] for guess in top] == sorted((g["confidence"] for g in top), reverse=True)
    first, second = fresh.get("/api/rounds")["items"]
    assert (first["id"], first["answered"], first["budget"]) == (1, 9, 9)
    assert sum(count["realised"] for count in first["counts"]) == 9
    assert (second["strategy"], second["balance"], second["closed_at"]) == ("margin", "0.5", None)
    assert sum(count["expected"] for count in second["counts"]) == pytest.approx(6, abs=1e-2)
    assert second["certificate"]["bound"] <= second["certificate"]["objective"] + 1e-9
    assert not list(fresh.folder.glob(f"{PREFIX}*"))


def test_each_round_has_a_seed_of_its_own_unless_one_is_asked_for(fresh: Api) -> None:
    for wishes in ({}, {}, {"seed": 77}):
        fresh.post("/api/next", budget=2, strategy="random", allow_unfinished=True, **wishes)
        assert fresh.wait_for_job()["state"] == "done"
    assert fresh.rows("SELECT seed FROM round ORDER BY id") == [(1,), (2,), (77,)]


def test_the_guesses_come_back_after_a_restart(fresh: Api, tmp_path: Path) -> None:
    fresh.post("/api/next")
    fresh.wait_for_job()
    label_everything(fresh)
    fresh.post("/api/next")
    assert fresh.wait_for_job()["state"] == "done"
    before = {one["key"]: one["prelabel"] for one in fresh.post("/api/lease", annotator="ada")["images"]}
    with reopened(tmp_path / "campaign") as again:  # beside the first, in the same process

        def guesses() -> bool:
            images = again.post("/api/lease", annotator="ada")["images"]
            return {one["key"]: one["prelabel"] for one in images} == before

        until(guesses, "the three likeliest classes are known again", 60)


def test_labelling_goes_on_while_the_next_round_is_chosen(fresh: Api) -> None:
    fresh.post("/api/next")
    fresh.wait_for_job()
    *most, last = fresh.lease()
    for key in most:
        fresh.answer(key, 1)
    fresh.post("/api/next", allow_unfinished=True)
    assert fresh.get("/api/job")["state"] == "running"
    assert fresh.answer(last, 2)["saved"]
    assert fresh.get("/api/job")["state"] == "running", "the job was done before the answer: the test shows nothing"
    assert fresh.wait_for_job()["state"] == "done"
    chosen = {row[0] for row in fresh.rows("SELECT i.key FROM round_image AS r JOIN image AS i ON i.id = r.image_id "
                                           "WHERE r.round_id = 2")}  # fmt: skip
    assert last not in chosen


def test_an_unfinished_round_is_not_left_by_accident(api: Api) -> None:
    assert api.refused("/api/next") == (409, "unfinished")
    assert api.get("/api/job")["state"] == "idle"


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ({"strategy": "nonsense"}, (400, "bad_input")), ({"balance": -1}, (400, "bad_input")),
        ({"balance": "nonsense"}, (400, "bad_input")), ({"budget": 0}, (422, "invalid")),
        ({"budget": 1.5}, (422, "invalid")), ({"seed": -1}, (422, "invalid")), ({"strategy": ""}, (422, "invalid")),
    ],
    ids=str,
)  # fmt: skip
def test_a_round_that_cannot_be_is_refused_at_once(fresh: Api, wish: dict[str, Any], expected: tuple[int, str]) -> None:
    assert fresh.refused("/api/next", **wish) == expected
    assert fresh.get("/api/job")["state"] == "idle"


def test_a_job_that_fails_says_why_and_the_next_one_may_succeed(fresh: Api) -> None:
    images = fresh.folder.parent / "images"
    images.rename(images.with_name("away"))
    fresh.post("/api/next", budget=5)
    failed = fresh.wait_for_job()
    assert failed["state"] == "failed"
    assert failed["error"]
    assert fresh.get("/api/state")["job"]["error"] == failed["error"]
    images.with_name("away").rename(images)
    fresh.post("/api/next", budget=5)
    assert fresh.wait_for_job()["state"] == "done"


def test_an_impossible_budget_is_rejected_before_a_job_starts(fresh: Api) -> None:
    answer = fresh.client.post("/api/next", json={"budget": 41})
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == (
        "asked for 41 images, but only 40 can be chosen; lower the budget to 40"
    )
    assert fresh.get("/api/job")["state"] == "idle"
    fresh.post("/api/next", budget=40)
    assert fresh.wait_for_job()["round"] == 1


def test_one_job_at_a_time(fresh: Api) -> None:
    fresh.post("/api/next")
    assert fresh.refused("/api/next") == (409, "running")
    assert fresh.wait_for_job()["round"] == 1
    assert fresh.rows("SELECT count(*) FROM round") == [(1,)]


def child_of(process: int) -> int | None:
    """The process of a job, by the kernel's own book; other tests have children of other kinds."""
    found = Path(f"/proc/{process}/task").glob("*/children")
    numbers = [int(number) for path in found for number in path.read_text().split()]
    return next((number for number in numbers if MODULE.encode() in command_of(number)), None)


def command_of(process: int) -> bytes:
    with suppress(OSError):  # it has ended meanwhile
        return Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def test_a_job_whose_process_is_killed_fails_and_the_server_lives(fresh: Api) -> None:
    fresh.post("/api/next")
    os.kill(until(lambda: child_of(os.getpid()), "a child process"), signal.SIGKILL)
    failed = fresh.wait_for_job()
    assert failed["state"] == "failed"
    assert "signal 9" in failed["error"]
    assert not list(fresh.folder.glob(f"{PREFIX}*"))
    assert fresh.get("/api/state")["round"] is None


def test_stopping_the_server_stops_the_job_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=40, chosen=0) as api:
        api.post("/api/next", budget=5)
        child = until(lambda: child_of(os.getpid()), "a child process")
        started = time.monotonic()
    assert time.monotonic() - started < PATIENCE
    assert not Path(f"/proc/{child}").exists()
    assert not list((tmp_path / "campaign").glob(f"{PREFIX}*"))
    with reopened(tmp_path / "campaign") as again:
        assert again.get("/api/job")["state"] == "idle"
        assert again.get("/api/state")["round"] is None


# A server in a process of its own.

SERVE = (
    "import sys\n"
    "from tailwise.web.serve import Options, run\n"
    "run(sys.argv[1], Options(port=0), lambda up: print(up.port, up.token, flush=True))\n"
)


def start(folder: Path, script: str = SERVE) -> tuple[subprocess.Popen[str], str, dict[str, str]]:
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port, token = process.stdout.readline().split()
    return process, f"http://127.0.0.1:{port}", {"X-Tailwise-Token": token}


def finish(process: subprocess.Popen[str], number: signal.Signals) -> int:
    process.send_signal(number)
    code = process.wait(PATIENCE)
    assert process.stdout is not None
    process.stdout.close()
    return code


def keep_answering(url: str, headers: dict[str, str], annotator: str, saved: list[str], ready: threading.Event) -> None:
    """Answer until the server is gone; what it called saved is kept in `saved`."""
    try:
        with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=10) as client:
            while True:
                images = client.post("/api/lease", json={"annotator": annotator, "count": 8}).json()["images"]
                for image in images:
                    said = {"key": new_key(), "image": image["key"], "kind": "label", "class_id": 1}
                    body = {"annotator": annotator, "answers": [said]}
                    result = client.post("/api/answers", json=body).json()["results"][0]
                    if result["saved"]:
                        saved.append(said["key"])
                    ready.set()
    except (httpx.TransportError, KeyError):
        return


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_the_server_no_saved_answer_is_lost(tmp_path: Path, number: signal.Signals) -> None:
    make_campaign(tmp_path, Plan(images=300))
    process, url, headers = start(tmp_path / "campaign")
    saved: list[str] = []
    ready = threading.Event()
    people = [
        threading.Thread(target=keep_answering, args=(url, headers, f"p{n}", saved, ready)) for n in range(4)
    ]  # fmt: skip
    for person in people:
        person.start()
    assert ready.wait(PATIENCE)
    time.sleep(0.2)
    code = finish(process, number)
    for person in people:
        person.join()
    assert code == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    with Ledger.open(tmp_path / "campaign", purpose="a test") as ledger:
        kept = {row[0] for row in ledger.read("SELECT key FROM event")}
    assert saved
    assert set(saved) <= kept


FULL_DISK = (
    "import os, resource, sys\n"
    "from tailwise.web.serve import Options, run\n"
    "size = os.stat(sys.argv[1] + '/campaign.sqlite').st_size\n"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))\n"
    "run(sys.argv[1], Options(port=0), lambda up: print(up.port, up.token, flush=True))\n"
)


def test_on_a_full_disk_nothing_is_called_saved_and_nothing_saved_is_lost(tmp_path: Path) -> None:
    """The system lets no file of the server grow beyond a limit, as a disk without space would."""
    make_campaign(tmp_path, Plan(images=1))
    process, url, headers = start(tmp_path / "campaign", FULL_DISK)
    saved: list[str] = []
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
        image = client.post("/api/lease", json={"annotator": "ada"}).json()["images"][0]["key"]
        for _ in range(500):
            answers = [{"key": new_key(), "image": image, "kind": "label", "class_id": 1} for _ in range(50)]
            reply = client.post("/api/answers", json={"annotator": "ada", "answers": answers})
            if reply.status_code != 200:
                break
            saved += [result["key"] for result in reply.json()["results"] if result["saved"]]
        assert (reply.status_code, reply.json()["error"]["code"]) == (500, "cannot_write")
        assert client.get("/api/state").status_code == 200
    assert finish(process, signal.SIGTERM) == 0
    assert saved
    with reopened(tmp_path / "campaign") as api:
        assert {row[0] for row in api.rows("SELECT key FROM event")} == set(saved)
        again = api.post("/api/answers", annotator="ada", answers=answers)["results"]
        assert all(result["saved"] and result["fresh"] for result in again)


def test_after_a_kill_the_next_server_clears_away_what_a_job_left(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=40, chosen=0))
    process, url, headers = start(tmp_path / "campaign")
    httpx.post(f"{url}/api/next", json={"budget": 5}, headers=headers).raise_for_status()
    child = until(lambda: child_of(process.pid), "a child process")
    finish(process, signal.SIGKILL)
    assert list((tmp_path / "campaign").glob(f"{PREFIX}*"))
    until(lambda: not Path(f"/proc/{child}").exists(), "the child ends with its parent")
    with reopened(tmp_path / "campaign") as api:
        assert not list((tmp_path / "campaign").glob(f"{PREFIX}*"))
        assert api.get("/api/job")["state"] == "idle"


def test_a_fault_inside_is_one_answer_in_the_usual_shape(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The round's reasons are damaged in the file, which no route expects."""
    with serving_api(tmp_path, images=1) as api:
        with Ledger.open(api.folder, purpose="a test") as ledger, ledger.writing() as connection:
            connection.execute("UPDATE round SET why = '{'")
        answer = api.client.get("/api/rounds")
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "broken"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert api.get("/api/job")["state"] == "idle"
    assert "/api/rounds failed" in caplog.text


def test_the_openapi_document_names_every_route_and_is_for_token_holders(api: Api) -> None:
    paths = api.get("/api/openapi.json")["paths"]
    assert set(paths) == {
        "/api/state", "/api/lease", "/api/release", "/api/answers", "/api/undo", "/api/history", "/api/grid",
        "/api/conflicts", "/api/settle", "/api/rounds", "/api/next", "/api/job", "/image/{key}",
        "/api/review/errors", "/api/review/errors/start", "/api/review/duplicates", "/api/review/duplicates/start",
        "/api/dashboard", "/api/dashboard/measure", "/api/dashboard/settings", "/api/dashboard/labels.csv",
        "/api/gallery", "/api/gallery/keys", "/api/gallery/image/{key}", "/api/gallery/relabel", "/api/gallery/undo",
        "/api/find/similar", "/api/find/text", "/api/hunt",
        "/api/map", "/api/map/start", "/api/map/points", "/api/classes/labelled",
        "/api/classes", "/api/classes/add", "/api/classes/edit", "/api/note", "/api/notes",
    }  # fmt: skip
    bare = request("GET", "/api/openapi.json", {"Host": "localhost"})
    assert exchange(api.serving.port, bare).status == 401
