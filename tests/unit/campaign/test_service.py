from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

import tailwise
from tailwise import Campaign
from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.images import find_image
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.locks import holder_of
from tailwise.campaign.rounds import ModelRow, Pick, open_round
from tailwise.errors import BadFile, BadInput, UnknownName


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        Image.new("RGB", (8, 8), (40 * number, 9, 9)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def campaign(home: Path, photos: Path) -> Campaign:
    with Campaign.create(home, photos, ["owl", "kite"], budget=2) as made:
        yield made


def test_a_campaign_is_made_of_images_and_classes(campaign: Campaign, home: Path) -> None:
    assert tailwise.Campaign is Campaign
    assert (campaign.folder, campaign.name, campaign.settings.budget) == (home, "campaign", 2)
    assert [one.name for one in campaign.classes()] == ["owl", "kite"]
    status = campaign.status()
    assert (status.images, status.usable, status.labelled, status.rounds) == (5, 5, 0, 0)
    assert repr(campaign) == f"Campaign({str(home)!r})"


def test_what_was_said_is_there_after_opening_again(campaign: Campaign, home: Path, photos: Path) -> None:
    assert campaign.label("1.png", "OWL").fresh
    campaign.label(photos / "2.png", "kite", annotator="bob")
    campaign.label("3.png", None)
    campaign.close()
    with Campaign.open(home, read_only=True) as again:
        assert again.labels() == {"1.png": "owl", "2.png": "kite"}
        assert again.status().other == 1
        with pytest.raises(BadInput, match="read-only"):
            again.label("1.png", "owl")
    assert holder_of(home) is None


def test_an_answer_carries_the_round_that_asked_for_it_and_its_model(campaign: Campaign) -> None:
    model = ModelRow("v1", "linear", {}, 2, (1, 2))
    open_round(campaign.ledger, [Pick(2)], budget=1, strategy="x", model=model)
    campaign.label("1.png", "owl")
    campaign.skip("1.png", annotator="bob")
    campaign.label("3.png", "owl")  # which no round has asked for
    rows = campaign.ledger.read("SELECT kind, round_id, model_version FROM event ORDER BY id")
    assert [tuple(row) for row in rows] == [("label", 1, "v1"), ("skip", 1, "v1"), ("label", None, None)]


def test_a_conflict_is_settled_and_the_decision_taken_back(campaign: Campaign) -> None:
    with pytest.raises(BadInput, match=r"asked to settle 1\.png, which nobody has answered; label it instead"):
        campaign.settle("1.png", "owl")
    campaign.label("1.png", "owl", annotator="ann")
    campaign.label("1.png", "kite", annotator="bob")
    assert [one.image for one in campaign.conflicts()] == [2]
    assert campaign.agreement().alpha.images == 1
    campaign.settle("1.png", "kite", annotator="eve", key="by-eve-01")
    assert (campaign.labels(), campaign.conflicts()) == ({"1.png": "kite"}, [])
    undone = campaign.undo("eve", key="by-eve-01")
    assert undone is not None
    assert len(campaign.conflicts()) == 1
    assert campaign.undo("bob") is not None
    assert campaign.labels() == {"1.png": "owl"}
    assert campaign.undo("nobody") is None


def test_a_skip_leaves_the_image_to_others(campaign: Campaign) -> None:
    campaign.next()
    first = campaign.next(2, dry_run=True, allow_unfinished=True).picks[0].image
    campaign.skip(find_image(campaign.ledger, first).path, annotator="ann")
    assert (campaign.labels(), campaign.status().skipped) == ({}, 1)


def test_dry_runs_change_nothing(campaign: Campaign, photos: Path, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), (1, 2, 3)).save(photos / "new.png")
    (photos / "0.png").unlink()
    found = campaign.index(dry_run=True)
    assert (found.added, found.missing) == (1, ("0.png",))
    assert campaign.status().images == 5
    assert campaign.backup(tmp_path / "copy.sqlite", dry_run=True) == tmp_path / "copy.sqlite"
    assert campaign.backup(dry_run=True) == campaign.folder / "backups"
    assert campaign.export(tmp_path / "labels.csv", dry_run=True) == tmp_path / "labels.csv"
    assert [one.name for one in campaign.doctor(["all"], dry_run=True)] == ["index"]
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "campaign"}
    assert not (campaign.folder / "backups").exists()
    assert campaign.status().images == 5


def test_a_backup_goes_where_it_is_asked_to(campaign: Campaign, tmp_path: Path) -> None:
    campaign.label("1.png", "owl")
    copy = campaign.backup(tmp_path / "friday.sqlite")
    assert copy == tmp_path / "friday.sqlite"
    assert campaign.backup(tmp_path).parent == tmp_path
    with pytest.raises(BadFile, match="is there already; name a file that is not, or a folder"):
        campaign.backup(copy)
    (tmp_path / "again").mkdir()
    shutil.copyfile(copy, tmp_path / "again" / LEDGER_FILE)
    with Campaign.open(tmp_path / "again") as again:
        assert again.labels() == {"1.png": "owl"}


def test_a_key_makes_an_answer_repeatable(campaign: Campaign) -> None:
    first = campaign.label("1.png", "owl", key="my-own-key")
    again = campaign.label("1.png", "owl", key="my-own-key")
    assert (first.event_id, again.fresh) == (again.event_id, False)


@pytest.mark.parametrize(
    ("image", "name", "error", "says"),
    [
        ("9.png", "owl", UnknownName, "'9.png' is not an image of this campaign"),
        ("1.png", "eagle", UnknownName, "no class is called 'eagle'; the classes are owl, kite"),
        ("1.png", "kite", BadInput, "the class 'kite' is retired; restore it"),
    ],
)
def test_labels_that_cannot_be_are_told(
    campaign: Campaign, image: str, name: str, error: type[Exception], says: str
) -> None:
    campaign.retire_class("kite")
    with pytest.raises(error, match=says):
        campaign.label(image, name)
    assert campaign.status().annotators == {}


def test_classes_change_and_labels_stay(campaign: Campaign) -> None:
    campaign.label("1.png", "kite")
    campaign.rename_class("kite", "red kite")
    campaign.add_class("heron")
    campaign.retire_class("owl")
    assert [one.name for one in campaign.classes()] == ["red kite", "heron"]
    campaign.restore_class("owl")
    assert [one.name for one in campaign.classes(retired=True)] == ["owl", "red kite", "heron"]
    assert campaign.labels() == {"1.png": "red kite"}


def test_with_several_folders_labels_have_whole_paths(campaign: Campaign, tmp_path: Path, photos: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(more / "1.png")
    assert campaign.index(more).added == 1
    campaign.label(more / "1.png", "owl")
    campaign.label(photos / "1.png", "kite")
    assert campaign.labels() == {str(photos / "1.png"): "kite", str(more / "1.png"): "owl"}
    found = campaign.index()
    assert (found.known, found.added) == (6, 0)


@pytest.mark.parametrize("address", ["s3://bucket/photos", "gs://bucket/photos", "s3:/bucket/photos"])
def test_images_in_an_object_store_are_rejected_with_what_to_do(tmp_path: Path, address: str) -> None:
    with pytest.raises(BadInput, match="must be in a folder of this machine; mount or copy them"):
        Campaign.create(tmp_path / "birds", images=address, classes=["owl"])
    assert not (tmp_path / "birds").exists()


def test_images_that_went_elsewhere_as_a_whole_are_followed(campaign: Campaign, tmp_path: Path, photos: Path) -> None:
    campaign.label("1.png", "owl")
    photos.rename(tmp_path / "elsewhere")
    with pytest.raises(BadFile, match="no folder at"):
        campaign.index()
    found = campaign.index(tmp_path / "elsewhere")
    assert (found.moved, found.added) == (5, 0)
    assert campaign.index().known == 5  # the old folder is not asked for any more
    assert campaign.status().usable == 5
    assert campaign.labels() == {"1.png": "owl"}


def test_settings_and_rounds_and_backups(campaign: Campaign) -> None:
    assert campaign.configure(overlap=2, name="Birds").overlap == 2
    assert campaign.name == "Birds"
    assert campaign.rounds() == []
    open_round(campaign.ledger, [Pick(1)], budget=1, strategy="x")
    assert [one.id for one in campaign.rounds()] == [1]
    copy = campaign.backup()
    assert copy.parent == campaign.folder / "backups"
    assert copy.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("classes", "settings", "error", "says"),
    [
        (["owl", "Owl"], {}, BadInput, "'Owl' is named twice"),
        (["owl", ""], {}, BadInput, "is empty"),
        ("owl", {}, BadInput, "give a list of names"),
        (["owl"], {"bugdet": 3}, BadInput, "no setting 'bugdet'"),
        (["owl"], {"overlap": 0}, BadInput, "overlap is 0"),
    ],
)
def test_what_cannot_be_made_leaves_nothing_behind(
    home: Path, photos: Path, classes: list[str], settings: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        Campaign.create(home, photos, classes, **settings)
    assert not home.exists()


def test_images_that_are_not_there_leave_nothing_behind(home: Path, photos: Path) -> None:
    for missing in (home / "nothing", photos / "1.png", [photos, home / "nothing"]):
        with pytest.raises(BadFile, match="no folder at"):
            Campaign.create(home, missing, ["owl"])
    with pytest.raises(BadInput, match="put the campaign into a folder of its own"):
        Campaign.create(photos, photos, ["owl"])
    assert not home.exists()
    assert not (photos / LEDGER_FILE).exists()


def test_a_campaign_may_lie_inside_its_images(photos: Path) -> None:
    with Campaign.create(photos / "campaign", photos, ["owl"]) as campaign:
        assert campaign.status().images == 5
        assert campaign.index().known == 5


def test_an_empty_folder_and_one_class_and_no_class(home: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with Campaign.create(home, tmp_path / "empty", ["owl"]) as campaign:
        assert campaign.status().images == 0
        assert campaign.labels() == {}
    with Campaign.create(tmp_path / "other", tmp_path / "empty") as campaign:
        assert campaign.classes() == []
        assert campaign.add_class("owl").id == 1


def test_an_interrupted_making_can_be_opened_and_indexed(home: Path, photos: Path) -> None:
    class Stop(BaseException):
        pass

    def stop(_share: float, _what: str) -> None:
        raise Stop

    with pytest.raises(Stop):
        Campaign.create(home, photos, ["owl"], report=stop)
    assert holder_of(home) is None
    with Campaign.open(home) as campaign:
        assert [one.name for one in campaign.classes()] == ["owl"]
        assert campaign.index(photos).added == 5


def test_a_campaign_is_closed_by_its_block_even_after_a_fault(home: Path, photos: Path) -> None:
    with pytest.raises(ZeroDivisionError), Campaign.create(home, photos, ["owl"]):
        1 / 0  # noqa: B018 - the fault
    with Ledger.open(home, wait=0):
        pass


def test_labels_that_are_there_already_come_along(home: Path, photos: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("path,label\n0.png,owl\n1.png,kite\n")
    with Campaign.create(home, photos, labels=table) as campaign:
        assert campaign.labels() == {"0.png": "owl", "1.png": "kite"}
        out = campaign.export(tmp_path / "out.csv")
        assert "0.png" in out.read_text()
        proposal = campaign.next(2, dry_run=True)
        assert len(proposal.picks) == 2
        assert campaign.rounds() == []
