"""The API of the review views: fresh after a check, stale after a label; a group is changed once, all or none."""

from __future__ import annotations

import time
from pathlib import Path

from .api_client import Api, serving_api


def wait_fresh(api: Api, path: str) -> dict[str, object]:
    """What is found when the job has ended."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found: dict[str, object] = api.get(path)
        if found["job"]["state"] != "running":  # type: ignore[index]
            return found
        time.sleep(0.1)
    raise AssertionError("the job still runs")


def test_labels_are_checked_in_the_background_and_are_stale_after_the_next_label(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=9) as api:
        first, *others = api.lease()
        assert not api.get("/api/review/errors")["enough"]
        for place, image in enumerate(others):
            api.answer(image, place % 3 + 1)
        before = api.get("/api/review/errors")
        assert (before["enough"], before["fresh"], before["checked"], before["labels"]) == (True, False, 0, 8)
        assert api.post("/api/review/errors/start")["job"]["state"] == "running"
        found = wait_fresh(api, "/api/review/errors")
        assert (found["fresh"], found["checked"]) == (True, 8)
        api.answer(first, 1)
        assert not api.get("/api/review/errors")["fresh"]


def test_a_group_is_labelled_once_however_often_it_is_sent(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=4) as api:
        images = api.lease()[:3]
        api.answer(images[0], 2, "bob")
        asked = {"annotator": "ada", "batch": "batch-0001", "images": images, "class_id": 1, "found_by": "duplicates"}
        assert [api.post("/api/gallery/relabel", **asked)["changed"] for _ in range(2)] == [3, 3]
        rows = api.rows("SELECT kind, found_by, batch, source FROM event WHERE annotator = 'ada' ORDER BY id")
        assert [row[0] for row in rows] == ["settle-label", "label", "label"]
        assert {row[1:] for row in rows} == {("duplicates", "batch-0001", "page")}
        undo = {"annotator": "ada", "batch": "batch-0001"}
        assert api.refused("/api/gallery/undo", **{**undo, "annotator": "bob"}, key="undo-0001") == (400, "bad_input")
        assert api.post("/api/gallery/undo", **undo, key="undo-0001") == {"undone": 3}
        assert api.post("/api/gallery/undo", **undo, key="undo-0002") == {"undone": 0}
        assert [row[0] for row in api.rows("SELECT class_id FROM current_label")] == [2]
