"""The API of the gallery: it sends what the ledger has; many labels at once; nothing of the model where blind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailwise.campaign.ledger import Ledger
from tailwise.campaign.search import make_index

from .api_client import Api, new_key, reopened, serving_api
from .conftest import Plan, make_campaign, until

CLASSES = ("cat", "dog", "owl")


@pytest.fixture
def make_api(tmp_path: Path) -> Any:  # noqa: ANN401 - a context manager
    return lambda **plan: serving_api(tmp_path, **{"images": 12, "classes": CLASSES} | plan)


def ready(api: Api, what: str, **body: Any) -> Any:  # noqa: ANN401 - the gallery's response
    """The gallery, once what is made in the background is there."""
    until(lambda: api.post("/api/gallery")[what] == "ready", f"{what} is ready")
    return api.post("/api/gallery", **body)


def after_a_round(api: Api) -> None:
    """Label the open round by the files' names, and open one that a model has chosen."""
    names = dict(api.rows("SELECT key, path FROM image"))
    for key in api.lease():
        api.answer(key, 1 + int(Path(names[key]).stem.split("_")[1]))
    api.post("/api/next", budget=3)
    assert api.wait_for_job()["state"] == "done"


def test_pages_hold_all_images_in_order_with_their_labels(make_api: Callable[..., Any]) -> None:
    with make_api() as api:
        keys = [row[0] for row in api.rows("SELECT key FROM image ORDER BY path")]
        api.answer(keys[3], 2)
        first = api.post("/api/gallery", count=5)
        rest = api.post("/api/gallery", offset=5, count=100, snapshot=first["snapshot"])
        assert (first["total"], rest["total"], first["guesses"]) == (12, 12, "none")
        assert [tile["key"] for tile in first["tiles"] + rest["tiles"]] == keys
        assert (first["tiles"][3]["state"], first["tiles"][3]["class_id"]) == ("labelled", 2)
        assert [tile["key"] for tile in api.post("/api/gallery", states=["labelled"])["tiles"]] == [keys[3]]
        assert api.post("/api/gallery/keys", states=["unlabelled"])["keys"] == keys[:3] + keys[4:]
        assert api.refused("/api/gallery", sort="confidence") == (400, "bad_input")
        assert api.refused("/api/gallery", images=["0" * 16]) == (400, "bad_input")


def test_many_labels_at_once_and_their_undo(make_api: Callable[..., Any]) -> None:
    with make_api() as api:
        keys = [row[0] for row in api.rows("SELECT key FROM image ORDER BY path")]
        body = {"annotator": "ada", "batch": f"g{new_key()[:16]}", "images": keys[:4], "class_id": 3}
        done = api.post("/api/gallery/relabel", **body)
        assert (done["changed"], done["unchanged"]) == (4, 0)
        assert api.post("/api/gallery/relabel", **body) == done  # sent twice, recorded once
        assert api.rows("SELECT count(*), count(DISTINCT batch), min(source) FROM event") == [(4, 1, "page")]
        wrong = {**body, "batch": f"g{new_key()[:16]}", "images": [*keys[4:6], "f" * 16]}
        assert api.refused("/api/gallery/relabel", **wrong) == (400, "bad_input")
        assert api.rows("SELECT count(*) FROM current_label") == [(4,)]  # none of them
        undone = api.post("/api/gallery/undo", annotator="ada", key=new_key(), batch=done["batch"])
        assert undone == {"undone": 4}
        assert api.rows("SELECT count(*) FROM current_label") == [(0,)]


def test_an_image_has_its_history_and_its_neighbours(make_api: Callable[..., Any]) -> None:
    with make_api(guessing=True) as api:
        key = api.rows("SELECT key FROM image ORDER BY path")[0][0]
        api.answer(key, 2, "ada")
        api.answer(key, 1, "ben")
        ready(api, "search")
        found = api.client.get(f"/api/gallery/image/{key}").json()
        assert [(one["annotator"], one["class_id"]) for one in found["events"]] == [("ada", 2), ("ben", 1)]
        assert found["image"]["state"] == "conflict"
        assert (found["chosen"][0]["rank"], found["chosen"][0]["predicted"]) == (1, 1)
        near = api.post("/api/find/similar", images=[key], count=11)["tiles"]
        assert [tile["key"] for tile in near] == [tile["key"] for tile in found["neighbours"]]
        assert len({tile["key"] for tile in near} - {key}) == 11
        by_likeness = ready(api, "search", sort="similarity", like=[key])["tiles"]
        assert [tile["key"] for tile in by_likeness] == [key, *(tile["key"] for tile in near)]
        assert api.refused("/api/find/text", text="a cat") == (400, "bad_input")
        assert api.client.get("/api/gallery/image/ffffffffffffffff").status_code == 404


def test_a_hunt_offers_images_that_nobody_has_looked_at(make_api: Callable[..., Any]) -> None:
    with make_api(images=24, chosen=9) as api:
        after_a_round(api)
        assert ready(api, "guesses")["tiles"][0]["confidence"] > 0
        answered = {row[0] for row in api.rows("SELECT image.key FROM image JOIN event ON event.image_id = image.id")}
        found = api.post("/api/hunt", class_id=2)
        assert found["how"] == "model"
        keys = [tile["key"] for tile in found["tiles"]]
        assert set(keys).isdisjoint(answered)
        assert [tile["score"] for tile in found["tiles"]] == sorted(tile["score"] for tile in found["tiles"])[::-1]
        api.post("/api/gallery/relabel", annotator="ada", batch=f"g{new_key()[:16]}", images=keys[:2], class_id=2,
                 found_by="hunt")  # fmt: skip
        assert api.rows("SELECT count(*) FROM event WHERE found_by = 'hunt'") == [(2,)]
        again = api.post("/api/hunt", class_id=2)
        assert again["labelled"] == found["labelled"] + 2
        assert set(keys[:2]).isdisjoint(tile["key"] for tile in again["tiles"])
        assert api.refused("/api/hunt", class_id=2, text="a dog") == (400, "bad_input")  # this backbone knows no texts


def test_a_class_is_hunted_by_a_text_where_the_backbone_knows_texts(tmp_path: Path, clip: Path) -> None:
    make_campaign(tmp_path, Plan(12, CLASSES, settings={"backbone": str(clip)}))
    with Ledger.open(tmp_path / "campaign") as ledger:
        make_index(ledger)  # here, where the libraries are loaded already
    with reopened(tmp_path / "campaign") as api:
        first = api.post("/api/hunt")  # nothing is labelled: no class is short, and what to do is said
        assert (first["classes"], first["class_id"], first["tiles"], first["text"]) == ([], None, [], True)
        assert first["message"].startswith("Nothing is labelled yet. Label some images first")

        def hunted(**how: Any) -> tuple[str, list[tuple[str, float]]]:  # noqa: ANN401 - fields of the request
            found = api.post("/api/hunt", **how)
            return found["how"], [(tile["key"], tile["score"]) for tile in found["tiles"]]

        def fitting(text: str) -> tuple[str, list[tuple[str, float]]]:
            found = api.post("/api/find/text", text=text, count=48, unlabelled=True)
            return "text", [(tile["key"], tile["score"]) for tile in found["tiles"]]

        usual = hunted(class_id=1)  # nothing else is known of the class
        assert usual == fitting("a photo of a cat") != fitting("a dog")
        assert hunted(class_id=1, text=" a dog ") == fitting("a dog")
        api.answer(usual[1][0][0], 1)
        assert hunted(class_id=1)[0] == "examples"
        assert hunted(class_id=1, text="a dog") == fitting("a dog")
        assert len(fitting("a dog")[1]) == 11  # without the answered one
        short = api.post("/api/hunt", count=0)
        assert (short["tiles"], [one["name"] for one in short["classes"]]) == ([], ["dog", "owl"])
        assert api.refused("/api/hunt", class_id=1, text="x" * 501)[0] == 422


def test_where_people_label_blind_nothing_of_the_model_is_sent(make_api: Callable[..., Any]) -> None:
    with make_api(images=24, chosen=9, guessing=True, settings={"blind": True}) as api:
        after_a_round(api)
        found = api.post("/api/gallery", count=100)
        assert found["guesses"] == "hidden"
        assert {tile["guess"] for tile in found["tiles"]} == {tile["confidence"] for tile in found["tiles"]} == {None}
        for body in ({"sort": "confidence"}, {"sort": "uncertainty"}, {"guesses": [1]}, {"least": 0.5}, {"most": 0.5}):
            assert api.refused("/api/gallery", **body)[0] == 409, body
        assert api.refused("/api/hunt", class_id=1)[0] == 409
        detail = api.client.get(f"/api/gallery/image/{found['tiles'][0]['key']}").json()
        assert {one["predicted"] for one in detail["chosen"]} <= {None}
