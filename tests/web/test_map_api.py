"""The map's API: drawn in the background, and its bytes hold what the stored map and the ledger hold."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.projection import stored_projection
from tailwise.campaign.service import Campaign
from tailwise.web.serve import Options

from .api_client import Api, reopened, serving_api
from .conftest import PATIENCE, Plan, draw_images, make_campaign

IMAGES = 12
OTHER, UNSURE = 65_535, 255


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving_api(tmp_path, images=IMAGES, guessing=True, chosen=8) as made:
        yield made


def draw_map(api: Api, **how: Any) -> Any:  # noqa: ANN401 - JSON
    """Start the job and wait for its end."""
    assert api.post("/api/map/start", **how)["job"]["state"] == "running"
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        status = api.get("/api/map")
        if status["job"]["state"] != "running":
            return status
        time.sleep(0.05)
    raise AssertionError("the map is still being drawn")


@dataclass(frozen=True)
class Points:
    header: dict[str, Any]
    keys: list[str]
    x: list[int]
    y: list[int]
    classes: list[int]
    guesses: list[int]
    rounds: list[int]
    certainty: list[int]


def read_points(content: bytes) -> Points:
    """Taken apart as the page does."""
    (length,) = struct.unpack_from("<I", content)
    header = json.loads(content[4 : 4 + length])
    count, at = header["points"], 4 + length
    assert at % 8 == 0
    keys = [content[at + 8 * one : at + 8 * one + 8].hex() for one in range(count)]
    at += 8 * count
    words = []
    for _ in range(5):
        words.append(list(struct.unpack_from(f"<{count}H", content, at)))
        at += 2 * count
    certainty = list(content[at:])
    assert len(certainty) == count
    x, y, classes, guesses, rounds = words
    return Points(header, keys, x, y, classes, guesses, rounds, certainty)


def points_of(api: Api) -> Points:
    answer = api.client.get("/api/map/points")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/octet-stream"
    return read_points(answer.content)


def test_a_map_that_is_not_drawn_is_said_to_be_so(api: Api) -> None:
    status = api.get("/api/map")
    assert (status["points"], status["missing"], status["method"]) == (0, IMAGES, None)
    assert status["job"]["state"] == "idle"
    answer = api.client.get("/api/map/points")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown")


def test_the_bytes_hold_the_stored_map_and_the_ledger(api: Api) -> None:
    status = draw_map(api, method="pca")
    assert status["job"]["state"] == "done"
    assert (status["points"], status["missing"], status["method"], status["backbone"]) == (IMAGES, 0, "pca", "simple")
    keys = [row[0] for row in api.rows("SELECT key FROM image ORDER BY id")]
    leased = api.lease()
    for key, cls in ((leased[0], 1), (leased[1], 3), (leased[2], None)):
        assert api.answer(key, cls)["saved"]
    found = points_of(api)
    with Campaign.open(api.folder, read_only=True) as campaign:
        stored = stored_projection(campaign.ledger)
    assert stored is not None
    assert found.keys == keys
    assert np.allclose(np.column_stack([found.x, found.y]) / 65_535, stored.xy, atol=1 / 65_535)
    assert found.header["classes"] == [1, 2, 3]
    said = {leased[0]: 1, leased[1]: 3, leased[2]: OTHER}
    assert found.classes == [said.get(key, 0) for key in keys]
    asked = {
        key: (predicted, confidence)
        for key, predicted, confidence in api.rows(
            "SELECT i.key, r.predicted, r.confidence FROM round_image AS r JOIN image AS i ON i.id = r.image_id"
        )
    }
    assert len(asked) == 8
    assert found.rounds == [1 if key in asked else 0 for key in keys]
    assert found.guesses == [asked[key][0] if key in asked else 0 for key in keys]
    assert found.certainty == [round(asked[key][1] * 254) if key in asked else UNSURE for key in keys]
    assert found.header["guesses"] == "ready"


def test_the_newest_models_guesses_are_sent_for_every_image(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=18, chosen=12) as api:
        truth = {key: int(Path(path).stem.split("_")[1]) + 1 for key, path in api.rows("SELECT key, path FROM image")}
        for key in api.lease():
            assert api.answer(key, truth[key])["saved"]
        api.post("/api/next", budget=4)
        assert api.wait_for_job()["state"] == "done"
        draw_map(api, method="pca")
        found = points_of(api)
        assert found.header["guesses"] == "ready"
        assert all(one in (1, 2, 3) for one in found.guesses)
        assert all(one != UNSURE for one in found.certainty)
        asked = api.rows(
            "SELECT i.key, r.predicted, r.confidence FROM round_image AS r JOIN image AS i ON i.id = r.image_id "
            "WHERE r.round_id = 2"
        )
        for key, predicted, confidence in asked:
            at = found.keys.index(key)
            assert found.guesses[at] == predicted
            assert found.certainty[at] == pytest.approx(confidence * 254, abs=1)
            assert found.rounds[at] == 2


@pytest.mark.parametrize("where", ["campaign", "server"])
def test_where_people_label_blind_no_guess_is_sent(tmp_path: Path, where: str) -> None:
    settings = {"blind": True} if where == "campaign" else {}
    options = Options(port=0, blind=where == "server")
    with serving_api(tmp_path, options, images=IMAGES, guessing=True, settings=settings) as api:
        draw_map(api, method="pca")
        found = points_of(api)
        assert found.header["guesses"] == "blind"
        assert found.guesses == [0] * IMAGES
        assert found.certainty == [UNSURE] * IMAGES
        assert found.rounds == [1] * IMAGES


def test_points_that_did_not_change_are_not_sent_again(api: Api) -> None:
    draw_map(api, method="pca")
    first = api.client.get("/api/map/points")
    same = api.client.get("/api/map/points", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    api.answer(api.lease()[0], 2)
    later = api.client.get("/api/map/points", headers={"If-None-Match": first.headers["etag"]})
    assert later.status_code == 200
    assert read_points(later.content).classes.count(2) == 1


def test_images_that_were_added_wait_and_are_then_placed_without_moving_the_others(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=IMAGES))
    with Campaign.open(tmp_path / "campaign") as campaign:
        campaign.map("pca")
        draw_images(tmp_path / "more", IMAGES + 5, 3)  # of these twelve are known already
        campaign.index(tmp_path / "more")
    with reopened(tmp_path / "campaign") as api:
        status = api.get("/api/map")
        assert (status["points"], status["missing"]) == (IMAGES, 5)
        before = points_of(api)
        assert (before.header["missing"], len(before.keys)) == (5, IMAGES)
        after = draw_map(api, method="pca")
        assert (after["points"], after["missing"]) == (IMAGES + 5, 0)
        found = points_of(api)
        assert (found.keys[:IMAGES], found.x[:IMAGES], found.y[:IMAGES]) == (before.keys, before.x, before.y)


def test_a_second_job_is_refused_and_labelling_goes_on_meanwhile(api: Api) -> None:
    api.post("/api/map/start", method="pca")
    assert api.refused("/api/map/start", method="pca") == (409, "running")
    assert api.answer(api.lease()[0], 1)["saved"]
    assert api.get("/api/job")["state"] == "idle"  # training is another job


def test_a_job_that_fails_says_why_without_paths(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=4) as api:
        (api.folder / "maps").write_text("not a folder", encoding="utf-8")
        status = draw_map(api, method="pca")
        assert status["job"]["state"] == "failed"
        assert status["job"]["error"]
        assert str(tmp_path) not in str(status)


def test_wrong_requests_are_refused(api: Api) -> None:
    assert api.refused("/api/map/start", method="tsne") == (422, "invalid")
    assert api.refused("/api/map/start", redo="yes") == (422, "invalid")


def test_a_point_takes_nineteen_bytes_so_that_100_000_are_less_than_two_megabytes(api: Api) -> None:
    draw_map(api, method="pca")
    content = api.client.get("/api/map/points").content
    (header,) = struct.unpack_from("<I", content)
    assert (len(content) - 4 - header) / IMAGES == 19
    assert header < 1000
