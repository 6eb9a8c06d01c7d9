"""The campaign's file is deleted or replaced while the page is served: nothing is called saved, and nothing is lost."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailwise.campaign.database import BACKUPS, LEDGER_FILE

from .api_client import new_key, reopened, serving_api
from .test_page_outbox import label, open_images

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not let go of a file that is in use")


def delete(folder: Path) -> None:
    (folder / LEDGER_FILE).unlink()


def replace(folder: Path) -> None:
    shutil.copyfile(folder / LEDGER_FILE, folder / "synced")
    (folder / "synced").replace(folder / LEDGER_FILE)


def put_back(folder: Path) -> None:
    """As the documentation says: the copy that was kept becomes the ledger."""
    (copy,) = (folder / BACKUPS).glob("*-replaced.sqlite")
    for end in ("-wal", "-shm", "-journal"):
        (folder / f"{LEDGER_FILE}{end}").unlink(missing_ok=True)
    shutil.copyfile(copy, folder / LEDGER_FILE)


@pytest.mark.parametrize("strike", [delete, replace])
def test_answers_are_refused_and_the_same_ones_are_taken_after_a_restart(
    tmp_path: Path, strike: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    said: dict[str, Any]
    with serving_api(tmp_path, images=4) as api:
        first, second, *_ = api.lease()
        assert api.answer(first, 1)["saved"]
        strike(api.folder)
        said = {"key": new_key(), "image": second, "kind": "label", "class_id": 2}
        for _ in range(3):
            answer = api.client.post("/api/answers", json={"annotator": "ada", "answers": [said]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "ledger_replaced")
            assert str(tmp_path) not in answer.text
        assert api.client.get("/api/state").status_code == 503
        assert api.refused("/api/lease", annotator="ada", count=1) == (503, "ledger_replaced")
        assert api.refused("/api/undo", annotator="ada", key=new_key()) == (503, "ledger_replaced")
    lines = [one.getMessage() for one in caplog.records if "deleted or replaced" in one.getMessage()]
    assert len(lines) == 1
    assert str(api.folder / LEDGER_FILE) in lines[0]
    put_back(api.folder)
    with reopened(api.folder) as again:
        results = again.post("/api/answers", annotator="ada", answers=[said])["results"]
        assert (results[0]["saved"], results[0]["fresh"]) == (True, True)
        assert dict(again.rows("SELECT i.key, e.class_id FROM event AS e JOIN image AS i ON i.id = e.image_id")) == {
            first: 1,
            second: 2,
        }


def test_a_job_that_runs_when_the_file_is_replaced_opens_no_round(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=6) as api:
        for image in api.lease():
            api.answer(image, 1)
        replace(api.folder)
        assert api.refused("/api/next") == (503, "ledger_replaced")


@pytest.mark.parametrize("strike", [delete, replace])
def test_the_page_says_so_and_keeps_what_is_answered(
    page: Page, make_process_site: MakeSite, strike: Callable[[Path], None]
) -> None:
    site = make_process_site(images=12)
    page.open(site)
    said = label(page, site, 2)
    page.wait_saved()
    page.until(lambda: open_images(page) >= 5, "enough images are at hand")
    before = page.run("return document.getElementById('saving').dataset.state")
    assert before == "saved"
    strike(site.folder)
    said |= label(page, site, 3)
    page.wait_text("The campaign file was replaced or deleted while the server was running", "#banner")
    page.until(lambda: page.saving() == "kept", "the answers are kept here")
    page.wait_text("Your answers are kept in this browser (3)", "#banner")
    page.until(lambda: "3 waiting to sync" in page.text("#saving"), "the number is shown")
    page.driver.refresh()  # a page that is opened now says the same
    page.wait_text("The campaign file was replaced or deleted")
    site.stop(signal.SIGTERM)
    put_back(site.folder)
    site.start()
    page.ready()
    page.until(lambda: site.labels() == said, "all that was said is on the disk")
    page.until(lambda: page.saving() in ("saved", "ready"), "nothing waits")
    assert len(site.events()) == len(said) == 5
    page.until(lambda: not page.text("#banner"), "the warning is gone")
