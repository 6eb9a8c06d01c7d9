"""The dashboard: what it shows of a real campaign at 10 and at 44 classes, hunting, settings, measuring and export."""

from __future__ import annotations

import csv
import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.rounds import current_round, round_picks
from tailwise.campaign.service import Campaign
from tailwise.learners.features import FeatureCache

from .api_client import serving_api
from .conftest import Site, draw_images, free_port

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
MEASURING = 600.0  # seconds, on a machine that does much else


def make_labelled(home: Path, classes: int, *, rounds: int = 2, audit: float = 0.2) -> Site:
    """A campaign whose features say the class, with rounds that two people have answered in full."""
    names = [f"bird {number:02}" for number in range(classes)]
    draw_images(home / "images", 6 * classes, classes)
    rng = np.random.default_rng(0)
    with Campaign.create(home / "campaign", home / "images", names, backbone="simple", name="Birds") as campaign:
        ledger = campaign.ledger
        rows = ledger.read("SELECT id, path, sha256 FROM image ORDER BY id")
        truth = {row["id"]: int(Path(row["path"]).stem.split("_")[1]) for row in rows}
        features = np.eye(classes)[[truth[row["id"]] for row in rows]] + 0.2 * rng.normal(size=(len(rows), classes))
        keys = [bytes.fromhex(row["sha256"])[:16] for row in rows]
        FeatureCache(ledger.folder / "features" / "simple-1").add(keys, features.astype(np.float32))
        ids = [one.id for one in campaign.classes()]
        for _ in range(rounds):
            campaign.next(2 * classes, audit=audit)
            current = current_round(ledger)
            assert current is not None
            for name in ("ada", "bob"):
                record(ledger, [
                    Answer(uuid.uuid4().hex, pick.image, name, "label", ids[truth[pick.image]], round_id=current.id)
                    for pick in round_picks(ledger, current.id)
                ])  # fmt: skip
    return Site(home / "campaign", free_port())


@pytest.fixture(params=[10, 44])
def labelled(request: pytest.FixtureRequest, tmp_path: Path) -> Any:  # noqa: ANN401 - a generator of a site and a number
    site = make_labelled(tmp_path, request.param)
    site.start()
    yield site, request.param
    site.stop()


def ready(page: Page) -> str:
    return str(page.run("return document.getElementById('dashboard').dataset.ready ?? ''"))


def test_the_dashboard_shows_counts_at_once_and_measures_by_itself(page: Page, labelled: Any) -> None:  # noqa: ANN401
    site, classes = labelled
    page.open(site, name="ada", view="dashboard")
    page.until(lambda: ready(page), "the counts")
    assert len(page.all("#dashboard h1")) == 1
    page.until(lambda: ready(page) == "measured", "the measures", MEASURING)
    advice = page.text(".advice")
    assert advice.startswith(("Another round", "You can stop", "Whether another"))
    assert "%" in (page.attribute(".curve", "aria-label") or "")
    assert len(page.all(".curve .dot")) == 2
    shared = site.rows("SELECT count(*) FROM round_image")[0][0]
    page.wait_text(f"ada and bob agree on {shared} of {shared} images; by chance they would on", "[data-card=people]")
    drawn = site.rows("SELECT sum(drawn) FROM audit_draw")[0][0]
    page.wait_text("The model names the right class for", "[data-card=audit]")
    page.wait_text(f"{drawn // 2} more were drawn at random", "[data-card=round]")
    rows = len(page.all("[data-card=needs] li"))
    assert rows == (classes if classes == 10 else 12)
    if classes == 44:
        page.click("[data-act=all-needs]")
        page.until(lambda: len(page.all("[data-card=needs] li")) == 44, "all classes")
    wide = page.run("const d = document.getElementById('dashboard'); return d.scrollWidth - d.clientWidth")
    assert wide <= 0


def test_a_short_class_is_hunted_in_the_gallery(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12)
    page.open(site)
    for _ in range(4):
        page.answer("1")
    page.wait_saved()
    page.press("d")
    page.wait_text("dog is 1 label short, and 1 other class is short, too.", "[data-card=needs]")
    page.click("[data-act=hunt-2]")
    page.until(lambda: page.run("return location.hash") == "#gallery", "the gallery")
    page.wait_text("dog is 1 label short, but there is no image to propose", ".hunt-title")


def test_the_settings_of_the_next_round_are_checked_and_saved(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=30, chosen=0)
    page.open(site, view="dashboard")
    page.wait_text("Nothing is labelled yet: choose the first batch in Rounds.", ".advice")
    budget, audit = page.find("#set-budget"), page.find("#set-audit")
    for box, text in ((budget, "0"), (audit, "20")):
        box.clear()
        box.send_keys(text)
    page.click("[data-act=save-settings]")
    assert page.run("return document.querySelector('#set-budget').validity.rangeUnderflow")
    assert site.rows("SELECT value FROM meta WHERE key = 'settings'")[0][0].count('"budget": 100')
    budget.clear()
    budget.send_keys("10")
    page.run(
        "const box = document.getElementById('set-strategy'); box.value = 'margin';"
        "box.dispatchEvent(new Event('input', { bubbles: true }))"
    )
    page.wait_text("two classes are about equally likely", "#set-strategy-what")
    page.click("[data-act=save-settings]")
    page.wait_text("Saved for the next round", "#toasts")
    kept = site.rows("SELECT value FROM meta WHERE key = 'settings'")[0][0]
    assert all(part in kept for part in ('"budget": 10,', '"strategy": "margin"', '"audit": 0.2', '"balance": "auto"'))
    page.press("r")
    page.click("#rounds [data-act=next]")
    page.until(lambda: site.rows("SELECT count(*), sum(audit) FROM round_image") == [(10, 2)], "the round", MEASURING)
    assert site.rows("SELECT drawn, population, last_image FROM audit_draw") == [(2, 30, 30)]


def test_an_annotator_sees_a_summary_in_place_of_the_form(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=6, settings={"budget": 25, "overlap": 2, "audit": 0.1})
    page.open(site)
    page.ask(
        "const { store } = await import('/static/js/state.js');"
        "store.watch((state) => [state.server], ({ server }) => { if (server) server.role = 'annotator'; });"
        "store.set({ server: { ...store.get().server, role: 'annotator' } });"
    )
    page.press("d")
    page.wait_text("The next round has 25 images; 2 people answer each image, and 10 % of them", "[data-card=settings]")
    assert page.all("#set-budget") == []
    assert page.run("return document.querySelector('[data-act=export]').hidden")


def test_the_api_exports_labels_and_rejects_bad_settings(tmp_path: Path) -> None:
    with serving_api(tmp_path, images=6) as api:
        keys = api.lease()
        for key in keys[:4]:
            api.answer(key, 2)
        content = api.client.get("/api/dashboard/labels.csv")
        assert content.headers["content-type"].startswith("text/csv")
        assert 'filename="labels.csv"' in content.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(content.text)))
        assert [row["label"] for row in rows] == ["dog"] * 4
        found = api.get("/api/dashboard")
        assert found["overview"]["labelled"] == 4
        assert {one["name"]: one["labelled"] for one in found["overview"]["needs"]} == {"cat": 0, "dog": 4, "owl": 0}
        assert api.refused("/api/dashboard/settings", strategy="selekt") == (400, "bad_input")
        assert api.refused("/api/dashboard/settings", strategy="vaal") == (400, "bad_input")
        assert api.refused("/api/dashboard/settings", balance="very") == (400, "bad_input")
        assert api.refused("/api/dashboard/settings", audit=0.6)[0] == 422
        assert api.refused("/api/dashboard/settings", colour="red")[0] == 422
        saved = api.post("/api/dashboard/settings", audit=0.05, wanted_accuracy=1.0)
        assert (saved["settings"]["audit"], saved["settings"]["budget"]) == (0.05, 100)
        assert api.client.get("/api/dashboard", headers={"X-Tailwise-Token": "wrong"}).status_code == 401
