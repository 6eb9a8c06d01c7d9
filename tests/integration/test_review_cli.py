"""`tailwise review`: what the library finds, in every form; labels that are kept, changed and given to a group."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

import tailwise

from .conftest import COUNTS, NAMES, answer_round, complaint, json_of, ran, rows, shown

SAID = "SELECT annotator, kind, found_by, batch FROM event WHERE kind LIKE 'settle%' OR batch IS NOT NULL ORDER BY id"


@pytest.fixture
def labelled(zoo: Path) -> Path:
    """All 27 images are labelled, two of them wrongly."""
    truth = {f"{name}-{n:02d}.png": name for name, count in zip(NAMES, COUNTS, strict=True) for n in range(count)}
    truth |= {"cat-03.png": "dog", "dog-02.png": "eel"}
    with tailwise.Campaign.open(zoo) as campaign:
        for path, name in truth.items():
            campaign.label(path, name, annotator="ada")
    return zoo


def test_errors_are_those_of_the_library_in_every_form(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tailwise.Campaign.open(labelled) as campaign:
        found = campaign.review(count=4)
    assert {"cat-03.png", "dog-02.png"} <= {one.path for one in found}
    facts = json_of(capsys, "review", "zoo", "--count", "4")
    assert facts["checked"] == 27
    assert [(one["image"], one["reason"]) for one in facts["errors"]] == [(one.path, one.reason) for one in found]
    text = shown(capsys, "review", "zoo", "-n", "4")
    assert "of 27 to look at again" in text
    assert "cat-03.png dog ada cat" in text
    assert shown(capsys, "review", "zoo", "--count", "4", "--quiet") == str(len(found))


def test_a_dry_run_decides_nothing(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = json_of(capsys, "review", "zoo", "--keep", "dog-02.png", "--dry-run")
    assert done == {"decided": [{"image": "dog-02.png", "class": "eel"}], "dry_run": True}
    assert "A dry run" in shown(capsys, "review", "zoo", "--change", "dog-02.png=dog", "--dry-run")
    assert rows(labelled, SAID) == []


def test_a_label_is_kept_or_changed_and_not_listed_again(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = json_of(
        capsys, "review", "zoo", "--keep", "dog-02.png", "--change", "cat-03.png=cat", "--annotator", "eve"
    )  # fmt: skip
    assert done["decided"] == [{"image": "dog-02.png", "class": "eel"}, {"image": "cat-03.png", "class": "cat"}]
    assert rows(labelled, SAID) == [("eve", "settle-label", "review", None)] * 2
    with tailwise.Campaign.open(labelled, read_only=True) as campaign:
        assert (campaign.labels()["dog-02.png"], campaign.labels()["cat-03.png"]) == ("eel", "cat")
    left = json_of(capsys, "review", "zoo", "--count", "30")["errors"]
    assert not {"dog-02.png", "cat-03.png"} & {one["image"] for one in left}


def test_decisions_are_made_all_or_none(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no class is called 'yak'" in complaint(
        capsys, "review", "zoo", "--keep", "dog-02.png", "--change", "cat-03.png=yak", code=2
    )
    assert rows(labelled, SAID) == []
    assert "write IMAGE=CLASS" in complaint(capsys, "review", "zoo", "--change", "cat-03.png", code=2)
    assert "has no decided label" in complaint(capsys, "review", "zoo", "--keep", "nobody.png", code=3)


def test_too_few_labels_and_a_missing_extra_say_what_to_do(
    zoo: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert zoo.is_dir()
    assert "label at least 2 images in each of 2 classes first" in complaint(capsys, "review", "zoo", "-q", code=3)
    monkeypatch.setitem(sys.modules, "cleanlab", None)
    assert "pip install 'tailwise[review]'" in complaint(capsys, "review", "zoo", "-q", code=5)


def test_a_group_is_listed_and_labelled_at_once(
    photos: Path, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    with Image.open(photos / "cat-00.png") as picture:
        picture.resize((48, 48), Image.Resampling.BICUBIC).save(photos / "cat-00-large.png")
    assert ran("init", "zoo", "-q") == 0
    facts = json_of(capsys, "review", "zoo", "duplicates", "--count", "100")
    (group,) = [
        one for one in facts["groups"] if {image["image"] for image in one["images"]} >= {"cat-00.png"}
    ]  # fmt: skip
    paths = {image["image"] for image in group["images"]}
    assert "cat-00-large.png" in paths
    assert "look alike" in shown(capsys, "review", "zoo", "duplicates")
    done = json_of(capsys, "review", "zoo", "--group", "cat-00.png=cat", "--annotator", "eve")
    assert len(done["decided"]) == len(paths)
    said = rows(zoo, SAID)
    assert {one[:3] for one in said} == {("eve", "label", "duplicates")}
    assert len({one[3] for one in said}) == 1
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        assert campaign.labels() == dict.fromkeys(paths, "cat")


def test_conflicts_are_listed_with_who_said_what_and_settled(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "5", "--overlap", "2", "-q") == 0
    answer_round(zoo, "ann")
    answer_round(zoo, "ben", wrong=1)
    facts = json_of(capsys, "review", "zoo", "conflicts")
    assert facts["count"] == 1
    (conflict,) = facts["conflicts"]
    assert conflict["answers"]["ann"] == conflict["image"].split("-")[0] != conflict["answers"]["ben"]
    text = shown(capsys, "review", "zoo", "conflicts")
    assert f"ann: {conflict['answers']['ann']}, ben: {conflict['answers']['ben']}" in text
    assert ran("review", "zoo", "conflicts", "--change", f"{conflict['image']}={conflict['answers']['ben']}") == 0
    assert "Nothing to settle" in shown(capsys, "review", "zoo", "conflicts")
