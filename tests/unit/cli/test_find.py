"""`tailwise find` prints what the library finds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise import Campaign
from tailwise.cli.output import run


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(photos / f"{number}.png")
    with Campaign.create(tmp_path / "birds", photos, ["owl", "kite"], backbone="simple") as campaign:
        for number in range(3):
            campaign.label(f"{number}.png", "owl")
        campaign.label("3.png", "kite")
    return tmp_path / "birds"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["find", *words]) == 0
    return capsys.readouterr().out


def test_images_like_one_are_those_of_the_library(birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Campaign.open(birds) as campaign:
        paths = [one.path for one in campaign.find("0.png", count=4)]
    found = json.loads(printed(capsys, str(birds), "--like", "0.png", "--count", "4", "--json"))
    assert [one["path"] for one in found["images"]] == paths
    assert printed(capsys, str(birds), "--like", "0.png", "--count", "4", "-q").split() == paths
    assert paths[0] in printed(capsys, str(birds), "--like", "0.png")


def test_short_classes_and_hunts(birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = json.loads(printed(capsys, str(birds), "--json"))["short"]
    assert [(one["name"], one["labelled"], one["short"]) for one in short] == [("kite", 1, 1)]
    assert "--class kite" in printed(capsys, str(birds))
    assert printed(capsys, str(birds), "--quiet").split() == ["kite"]
    found = json.loads(printed(capsys, str(birds), "--class", "kite", "--json"))["images"]
    assert {one["path"] for one in found} == {f"{number}.png" for number in range(4, 8)}
    assert {one["how"] for one in found} == {"examples"}
    examples = printed(capsys, str(birds), "--class", "kite")
    assert "kite is 1 label short" in examples
    assert "rough" not in examples
    with Campaign.open(birds) as campaign:
        campaign.next(budget=2)
    assert "The percentages are rough" in printed(capsys, str(birds), "--class", "kite")  # four labels


def test_where_nothing_is_labelled_the_first_step_is_shown(
    birds: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Campaign.create(tmp_path / "fresh", tmp_path / "photos", ["owl", "kite"], backbone="simple"):
        pass
    found = json.loads(printed(capsys, str(tmp_path / "fresh"), "--json"))
    assert found["short"] == []
    assert found["message"].startswith("Nothing is labelled yet. Open a round and label some images first")
    assert found["message"] in printed(capsys, str(tmp_path / "fresh"))
    assert "No class is short" not in found["message"]
    assert json.loads(printed(capsys, str(birds), "--json"))["message"] == ""


def test_a_campaign_that_is_being_served_can_be_searched(birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Campaign.open(birds):
        found = json.loads(printed(capsys, str(birds), "--like", "0.png", "--json"))
    assert len(found["images"]) == 7


def test_wrong_requests_are_explained(birds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["find", str(birds), "--text", "an owl"]) == 3
    assert "no text tower" in capsys.readouterr().err
    assert run(["find", str(birds), "--like", "0.png", "--class", "owl"]) == 2
    assert run(["find", str(birds), "--class", "heron"]) == 2
