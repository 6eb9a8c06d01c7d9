"""What a real server writes to its log and shows to people: no control characters, and no paths of the machine."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tailwise.campaign.database import LEDGER_FILE
from tailwise.web.serve import Options

from .api_client import serving_api


def test_ids_of_a_webhook_reach_the_log_escaped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hostile = "7\n2030-01-01 ERROR the disk is gone\x1b[2J"
    with serving_api(tmp_path, Options(port=0, ml_backend=True), images=2) as api:
        told = api.client.post("/webhook", json={"action": "ANNOTATION_DELETED", "annotation": {"id": hostile}})
        assert told.status_code == 202
        assert len(told.json()["left_out"]) == 1
    (record,) = [one for one in caplog.records if "left out" in one.getMessage()]
    assert r"7\n2030-01-01 ERROR the disk is gone\x1b[2J" in record.getMessage()
    assert record.getMessage().isprintable()


def test_a_busy_ledger_is_reported_without_its_path(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=2) as api:
        image = api.lease()[0]
        with closing(sqlite3.connect(api.folder / LEDGER_FILE, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            said = {"key": "a-key-of-a-test", "image": image, "kind": "label", "class_id": 1}
            told = api.client.post("/api/answers", json={"annotator": "ada", "answers": [said]})
        assert (told.status_code, told.json()["error"]["code"]) == (409, "busy")
        assert "the ledger of campaign is busy" in told.json()["error"]["message"]
        assert str(tmp_path) not in told.text


def test_a_job_that_fails_is_reported_without_paths_and_logged_with_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with serving_api(tmp_path, images=4) as api:
        (api.folder / "backups").write_text("not a folder", encoding="utf-8")  # where a job begins with a copy
        api.post("/api/next", allow_unfinished=True)
        job = api.wait_for_job()
        assert job["state"] == "failed"
        assert "backups" in job["error"]
        assert str(tmp_path) not in str(job)
        assert str(tmp_path) not in api.client.get("/api/state").text
    assert any(str(api.folder / "backups") in one.getMessage() for one in caplog.records)
