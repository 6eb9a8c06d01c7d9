"""The public campaign: it has the verbs of the command line, those of the report and of the page among them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image

import tailwise
from tailwise.campaign import service as inner
from tailwise.errors import BadInput


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[tailwise.Campaign]:
    (tmp_path / "images").mkdir()
    for shade in (10, 90, 200):
        Image.new("L", (8, 8), shade).save(tmp_path / "images" / f"{shade}.png")
    with tailwise.Campaign.create(tmp_path / "birds", tmp_path / "images", ["owl", "kite"]) as made:
        yield made


def test_open_and_create_give_the_public_campaign(campaign: tailwise.Campaign) -> None:
    campaign.close()
    with tailwise.Campaign.open(campaign.folder) as again:
        assert type(again) is tailwise.Campaign
        assert isinstance(again, inner.Campaign)


def test_the_report_is_written_where_it_says(campaign: tailwise.Campaign, tmp_path: Path) -> None:
    campaign.label("10.png", "owl")
    assert campaign.report(dry_run=True) == campaign.folder / "report" / "report.html"
    assert not (campaign.folder / "report").exists()
    heard: list[str] = []
    page = campaign.report(tmp_path / "elsewhere", report=lambda _share, what: heard.append(what))
    assert page == tmp_path / "elsewhere" / "report.html"
    assert "owl" in page.read_text()
    assert heard[-1] == "drawing"


def test_the_page_and_the_block_use_one_campaign(campaign: tailwise.Campaign) -> None:
    with campaign.serve(port=0, blind=True) as served:
        campaign.label("10.png", "owl")
        with httpx.Client(headers={"X-Tailwise-Token": served.token or ""}, trust_env=False) as browser:
            state = browser.get(f"{served.url}api/state").json()
        assert state["settings"]["blind"]
        assert [one["labelled"] for one in state["balance"]] == [1, 0]
    with pytest.raises(httpx.ConnectError):
        httpx.get(served.url, trust_env=False)
    campaign.label("90.png", "kite")  # the campaign stays open
    assert campaign.labels() == {"10.png": "owl", "90.png": "kite"}


def test_what_cannot_be_served_is_refused(campaign: tailwise.Campaign) -> None:
    with pytest.raises(BadInput, match="the labelling page has no setting 'prot'; its settings are host, port"):
        campaign.serve(prot=0)
    for wrong, why in (
        ({"port": "8000"}, "the port is '8000'; it must be a whole number from 0 to 65,535, or None"),
        ({"port": 99_999}, "the port is 99999; it must be"),
        ({"host": 5}, "the host is 5; it must be a name or an address"),
        ({"other_names": "box"}, "the other names are 'box'; give a tuple"),
    ):
        with pytest.raises(BadInput, match=why):
            campaign.serve(**wrong)
    campaign.close()
    with (
        tailwise.Campaign.open(campaign.folder, read_only=True) as watched,
        pytest.raises(BadInput, match="open read-only"),
        watched.serve(port=0),
    ):
        pass
