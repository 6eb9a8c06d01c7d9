from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from PIL import Image

from tailwise.campaign.answers import Answer, record, settle
from tailwise.campaign.exporting import export, records, shares_of, split_of, write_export
from tailwise.campaign.importing import Imported, Options, import_file, import_records
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign
from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.formats import FORMATS, Record

from .conftest import Studio

Make = Callable[..., Studio]


def told(*found: Record) -> set[tuple[object, ...]]:
    return {(one.path, one.label, one.kind, one.annotator) for one in found}


@pytest.fixture
def ledger_with_answers(ledger: Ledger) -> Ledger:
    """Agreed, alone, at odds, settled, settled to other, other, skipped, skipped and labelled; the rest unanswered."""
    said = [
        (1, "ann", "label", 1), (1, "bob", "label", 1),
        (2, "ann", "label", 2),
        (3, "ann", "label", 1), (3, "bob", "label", 2),
        (4, "ann", "label", 1), (4, "bob", "label", 2),
        (5, "ann", "label", 1), (5, "bob", "label", 2),
        (6, "ann", "other", None),
        (7, "ann", "skip", None),
        (8, "ann", "skip", None), (8, "bob", "label", 3),
    ]  # fmt: skip
    for number, (image, who, kind, cls) in enumerate(said):
        record(ledger, [Answer(f"answer-{number}", image, who, kind, cls, at=1000 + number)])
    settle(ledger, key="settled-4", image=4, annotator="boss", class_id=2, at=5000)
    settle(ledger, key="settled-5", image=5, annotator="boss", class_id=None, at=5001)
    return ledger


def test_what_was_decided_is_one_record_per_image_with_who_decided_last(ledger_with_answers: Ledger) -> None:
    found = list(records(ledger_with_answers))
    assert [(one.path, one.label, one.annotator, one.at) for one in found] == [
        ("1.jpg", "cat", "bob", 1001),
        ("2.jpg", "dog", "ann", 1002),
        ("4.jpg", "dog", "boss", 5000),
        ("8.jpg", "eel", "bob", 1012),
    ]
    assert [one.sha256 for one in found] == [f"{number:064x}" for number in (1, 2, 4, 8)]


def test_with_the_unlabelled_come_others_skips_conflicts_and_the_unanswered(ledger_with_answers: Ledger) -> None:
    found = list(records(ledger_with_answers, unlabelled=True))
    assert len(found) == 12
    assert told(*found) - told(*records(ledger_with_answers)) == {
        ("3.jpg", None, "label", ""),
        ("5.jpg", None, "other", "boss"),
        ("6.jpg", None, "other", "ann"),
        ("7.jpg", None, "skip", "ann"),
        *((f"{number}.jpg", None, "label", "") for number in range(9, 13)),
    }


def test_every_answer_is_one_record_per_person(ledger_with_answers: Ledger) -> None:
    found = list(records(ledger_with_answers, every_answer=True))
    assert len(found) == 13
    assert told(*found) >= {("3.jpg", "cat", "label", "ann"), ("3.jpg", "dog", "label", "bob")}
    assert told(*found) >= {("8.jpg", None, "skip", "ann"), ("8.jpg", "eel", "label", "bob")}
    everything = list(records(ledger_with_answers, every_answer=True, unlabelled=True))
    assert told(*everything) - told(*found) == {(f"{number}.jpg", None, "label", "") for number in range(9, 13)}


def test_quarantined_images_keep_their_labels_and_are_not_offered_without(ledger_with_answers: Ledger) -> None:
    with ledger_with_answers.writing() as connection:
        connection.execute("UPDATE image SET trouble = 'changed' WHERE id IN (2, 11)")
        connection.execute("UPDATE image SET duplicate_of = 1 WHERE id = 12")
    assert "2.jpg" in {one.path for one in records(ledger_with_answers)}
    paths = {one.path for one in records(ledger_with_answers, unlabelled=True)}
    assert "2.jpg" in paths
    assert not {"11.jpg", "12.jpg"} & paths


def test_an_empty_campaign_has_no_records(ledger: Ledger, tmp_path: Path) -> None:
    assert list(records(ledger)) == []
    assert write_export(ledger, tmp_path / "labels.csv").records == 0
    assert FORMATS["csv"].read(tmp_path / "labels.csv", ()).classes == ("cat", "dog", "eel")


@pytest.mark.parametrize("name", FORMATS)
def test_a_campaign_goes_out_and_comes_back_into_a_new_one(name: str, make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 4, "dog": 3, "a/b".replace("/", "_"): 2}, also=["never seen"])
    people = {1: "ann", 2: "bob", 3: "ann", 4: "ann", 5: "bob"}
    for image, who in people.items():
        studio.say([image], who)
    studio.say([1], "bob", cls=4)
    studio.say([6], "ann", "other")
    studio.say([7], "bob", "skip")
    out = tmp_path / f"out{FORMATS[name].suffix}"
    done = write_export(studio.campaign, out, format=name, every_answer=True, unlabelled=True)
    assert (done.records, done.images, done.left_out) == (10, 9, ())
    with Campaign.create(tmp_path / "second", studio.photos, []) as second:
        assert import_file(second, out, create_classes=True).new_classes == ("cat", "dog", "a_b", "never seen")
        wanted = list(records(studio.campaign, every_answer=True, unlabelled=True))
        assert list(records(second, every_answer=True, unlabelled=True)) == wanted
        assert [one.name for one in second.classes()] == [one.name for one in studio.campaign.classes()]
        again = import_file(second, out, create_classes=True)
        assert (again.added, again.same, again.changed) == (0, 8, ())
        assert len(again.conflicts) == 1
    assert import_file(studio.campaign, out) == Imported(same=8, unanswered=2, conflicts=again.conflicts)


def test_a_moved_and_renamed_folder_of_images_is_still_known_by_its_bytes(make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 2, "dog": 2})
    studio.say([1, 2, 3, 4])
    export(studio.campaign, tmp_path / "labels.csv")
    other = tmp_path / "elsewhere"
    other.mkdir()
    for number, image in enumerate(sorted(studio.photos.iterdir())):
        (other / f"{number}.png").write_bytes(image.read_bytes())
    with Campaign.create(tmp_path / "second", other, ["cat", "dog"]) as second:
        assert import_file(second, tmp_path / "labels.csv").added == 4
        assert second.labels() == {"0.png": "cat", "1.png": "cat", "2.png": "dog", "3.png": "dog"}


def test_the_format_is_told_by_the_ending_or_asked_for(ledger: Ledger, tmp_path: Path) -> None:
    assert write_export(ledger, tmp_path / "x.xml").format == "cvat-xml"
    assert write_export(ledger, tmp_path / "x.parquet").format == "parquet"
    with pytest.raises(BadInput, match="does not name a format; give the format: one of csv, "):
        export(ledger, tmp_path / "folder")
    with pytest.raises(UnknownName, match="did you mean 'folders'"):
        export(ledger, tmp_path / "folder", format="folder")


def test_copies_are_not_put_among_the_images(make_studio: Make) -> None:
    studio = make_studio({"cat": 1})
    with pytest.raises(BadInput, match="lies among the campaign's images"):
        export(studio.campaign, studio.photos / "export", format="folders")
    assert sorted(path.name for path in studio.photos.iterdir()) == ["cat-000.png"]


def test_images_in_quarantine_are_left_out_of_copies_and_told(make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 2})
    studio.say([1, 2])
    with studio.ledger.writing() as connection:
        connection.execute("UPDATE image SET trouble = 'changed on disk' WHERE id = 1")
    done = write_export(studio.campaign, tmp_path / "out", format="folders")
    assert (done.records, done.left_out) == (1, (("cat-000.png", "changed on disk"),))
    assert write_export(studio.campaign, tmp_path / "out.csv").records == 2


def test_an_image_that_is_gone_stops_an_export_of_copies_with_advice(make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 2})
    studio.say([1, 2])
    (studio.photos / "cat-001.png").unlink()
    with pytest.raises(BadFile, match=r"cat-001\.png is gone; put it back"):
        export(studio.campaign, tmp_path / "out", format="folders")
    assert not (tmp_path / "out").exists()
    for name in ("csv", "label-studio", "cvat-xml"):  # which need no image
        assert export(studio.campaign, tmp_path / f"out{FORMATS[name].suffix}", format=name).exists()


def test_images_of_the_same_path_in_two_folders_are_both_exported(tmp_path: Path, make_studio: Make) -> None:
    studio = make_studio({"cat": 1})
    second = tmp_path / "more"
    second.mkdir()
    image = bytearray((studio.photos / "cat-000.png").read_bytes())
    (second / "cat-000.png").write_bytes(bytes(image) + b"\0")
    studio.campaign.index(second)
    studio.say([1, 2])
    out = export(studio.campaign, tmp_path / "out", format="folders")
    assert sorted(path.name for path in out.rglob("*.png")) == ["cat-000-2.png", "cat-000.png"]
    assert {path.read_bytes() for path in out.rglob("*.png")} == {bytes(image), bytes(image) + b"\0"}
    assert import_file(studio.campaign, out) == Imported(same=2)


TWO = {"one/0.png": "cat", "two/0.png": "dog", "two/1.png": "cat"}  # name in an export → class


@pytest.fixture
def two_folders(tmp_path: Path) -> Iterator[Campaign]:
    """A campaign over the folders one and two, which share a name."""
    for shade, name in enumerate(TWO):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        Image.new("L", (8, 8), 40 * shade).save(place)
    with Campaign.create(tmp_path / "pets", [tmp_path / "one", tmp_path / "two"], ["cat", "dog"]) as campaign:
        for name, cls in TWO.items():
            campaign.label(tmp_path / name, cls, annotator="ann")
        yield campaign


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_folders_that_share_names_go_out_apart_and_come_back_whole(
    name: str, two_folders: Campaign, tmp_path: Path
) -> None:
    out = export(two_folders, tmp_path / f"out{FORMATS[name].suffix}", format=name)
    read = {record.path: record.label for record in FORMATS[name].read(out, ("cat", "dog")).records}
    assert read == TWO
    assert import_file(two_folders, out) == Imported(same=3)


def test_lists_without_hashes_tell_folders_apart_that_share_names(two_folders: Campaign, tmp_path: Path) -> None:
    out = export(two_folders, tmp_path / "out", format="cvat-imagenet")
    with ZipFile(out / "annotations.zip") as archive:
        assert archive.read("default.txt").decode().splitlines() == ["one/0.png 0", "two/0.png 1", "two/1.png 0"]
    assert import_file(two_folders, out / "annotations.zip", annotator="ann") == Imported(same=3)


def test_what_an_export_calls_an_image_names_it_in_python_too(two_folders: Campaign) -> None:
    two_folders.label("two/0.png", "cat", annotator="bob")
    assert [one.path for one in records(two_folders, every_answer=True)] == [
        "one/0.png",
        *["two/0.png"] * 2,
        "two/1.png",
    ]
    with pytest.raises(UnknownName, match="is the name of 2 images, in different folders"):
        two_folders.label("0.png", "cat")


def test_label_studio_finds_images_below_the_folder_that_holds_both(two_folders: Campaign, tmp_path: Path) -> None:
    out = export(two_folders, tmp_path / "out", format="label-studio")
    tasks = json.loads((out / "tasks.json").read_text())
    assert [task["data"]["image"].partition("=")[2] for task in tasks] == list(TWO)


def test_folders_of_the_same_name_are_told_apart_by_more_of_their_paths(tmp_path: Path) -> None:
    for shade, place in enumerate((tmp_path / "a" / "photos", tmp_path / "b" / "photos")):
        place.mkdir(parents=True)
        Image.new("L", (8, 8), 40 * shade).save(place / "0.png")
    with Campaign.create(tmp_path / "pets", [tmp_path / "a/photos", tmp_path / "b/photos"], ["cat"]) as campaign:
        paths = [record.path for record in records(campaign, unlabelled=True)]
    assert paths == ["a/photos/0.png", "b/photos/0.png"]


def test_predictions_are_those_of_the_newest_model(make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 8, "dog": 8})
    with pytest.raises(BadInput, match="there is no model yet"):
        list(records(studio.campaign, with_predictions=True))
    studio.say([1, 2, 9, 10])
    version = studio.campaign.next(4).model_version
    found = list(records(studio.campaign, unlabelled=True, with_predictions=True))
    assert len(found) == 16
    assert {one.model_version for one in found} == {version}
    for one in found:
        assert one.proba is not None
        assert list(one.proba) == ["cat", "dog"]
        assert sum(one.proba.values()) == pytest.approx(1, abs=1e-5)
    out = export(studio.campaign, tmp_path / "out.csv", unlabelled=True, with_predictions=True)
    assert FORMATS["csv"].read(out, ()).records == found


@pytest.mark.parametrize("split", [0, 1, -0.5, float("nan"), {}, {"a": 0.5}, {"": 1.0}, {"a": 2.0, "b": -1.0}])
def test_a_split_that_is_none_is_refused(split: float | dict[str, float], ledger: Ledger) -> None:
    with pytest.raises(BadInput, match="the split is"):
        list(records(ledger, split=split))


def test_a_split_has_its_shares_and_keeps_images_where_they_are() -> None:
    shares = shares_of({"train": 0.7, "val": 0.1, "test": 0.2})
    contents = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(20_000)]
    counts = Counter(split_of(content, shares) for content in contents)
    for name, share in shares.items():
        assert counts[name] / 20_000 == pytest.approx(share, abs=0.015)  # five standard deviations
    assert [split_of(content, shares) for content in contents[:50]] == [split_of(c, shares) for c in contents[:50]]


def test_labels_that_are_added_move_no_image_to_another_split(ledger: Ledger) -> None:
    import_records(ledger, [Record(f"{n}.jpg", "cat") for n in range(1, 6)], Options())
    before = {one.path: one.split for one in records(ledger, split=0.5)}
    import_records(ledger, [Record(f"{n}.jpg", "dog") for n in range(6, 13)], Options())
    after = {one.path: one.split for one in records(ledger, split=0.5)}
    assert before.items() <= after.items()
    assert set(after.values()) == {"train", "test"}


def test_progress_goes_from_nothing_to_all(make_studio: Make, tmp_path: Path) -> None:
    studio = make_studio({"cat": 3})
    studio.say([1, 2, 3])
    shares: list[float] = []
    export(studio.campaign, tmp_path / "out", format="folders", report=lambda share, _: shares.append(share))
    assert shares == sorted(shares)
    assert (shares[-1], len(shares)) == (1.0, 4)


def test_tasks_for_label_studio_carry_round_and_rank_of_the_open_round(ledger: Ledger, tmp_path: Path) -> None:
    open_round(ledger, [Pick(2)], budget=1, strategy="random")
    open_round(ledger, [Pick(3), Pick(1)], budget=2, strategy="random")
    export(ledger, tmp_path / "studio", format="label-studio", unlabelled=True)
    tasks = json.loads((tmp_path / "studio" / "tasks.json").read_text(encoding="utf-8"))
    places = {one["data"]["tailwise"]["path"]: (one["data"].get("round"), one["data"].get("rank")) for one in tasks}
    assert (places["3.jpg"], places["1.jpg"], places["2.jpg"]) == ((2, 1), (2, 2), (None, None))


def test_an_answer_that_label_studio_gives_back_under_its_importer_s_name_is_the_same_answer(
    ledger: Ledger, tmp_path: Path
) -> None:
    record(ledger, [Answer("answer-1", 1, "ben", "label", 1, at=1000), Answer("answer-2", 1, "cleo", "other", at=1001)])
    export(ledger, tmp_path / "studio", format="label-studio", every_answer=True)
    tasks = json.loads((tmp_path / "studio" / "tasks.json").read_text(encoding="utf-8"))
    for one in tasks:  # what Label Studio 1.23 keeps of an imported annotation
        one["annotations"] = [
            {"id": 40 + said["id"], "import_id": said["id"], "completed_by": 1, "result": said["result"],
             "was_cancelled": said["was_cancelled"], "created_at": "2026-11-18T11:09:06.256896Z"}
            for said in one["annotations"]
        ]  # fmt: skip
    (tmp_path / "export.json").write_text(json.dumps(tasks), encoding="utf-8")
    flat = [
        {**one["data"], "id": one["annotations"][0]["id"], "label": "cat", "annotator": 1, "lead_time": None}
        for one in tasks
    ]
    (tmp_path / "min.json").write_text(json.dumps(flat), encoding="utf-8")
    note = json.dumps(tasks[0]["data"]["tailwise"]).replace('"', '""')
    (tmp_path / "export.csv").write_text(
        f'annotation_id,annotator,image,label,lead_time,tailwise\n41,1,1.jpg,cat,,"{note}"\n', encoding="utf-8"
    )
    for name, known in (("export.json", 2), ("min.json", 1), ("export.csv", 1)):
        done = import_file(ledger, tmp_path / name, format="label-studio" if name.endswith("json") else None)
        assert (done.added, done.same, done.changed) == (0, known, ())
    assert ledger.read("SELECT count(*) FROM event")[0][0] == 2
    made = (tmp_path / "export.csv").read_text(encoding="utf-8").replace("cat,,", "cat,1.5,")
    (tmp_path / "export.csv").write_text(made, encoding="utf-8")
    assert import_file(ledger, tmp_path / "export.csv").added == 1, "an account that took its time has answered too"


def test_the_images_of_a_round_are_exported_best_first_and_listed(ledger_with_answers: Ledger, tmp_path: Path) -> None:
    ledger, campaign = ledger_with_answers, Campaign(ledger_with_answers)
    with pytest.raises(BadInput, match="no round is open"):
        campaign.picks()
    open_round(ledger, [Pick(8, 1, 0.5), Pick(2), Pick(9, 2, 0.25)], budget=3, strategy="base")
    found = campaign.picks()
    assert [(one.rank, one.path.name, one.predicted, one.confidence, one.labelled) for one in found] == [
        (1, "8.jpg", "cat", 0.5, True), (2, "2.jpg", None, None, True), (3, "9.jpg", "dog", 0.25, False),
    ]  # fmt: skip
    done = write_export(ledger, tmp_path / "round.csv", round="open")
    lines = (tmp_path / "round.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == ["8.jpg", "2.jpg", "9.jpg"]
    assert (done.records, write_export(ledger, tmp_path / "same.csv", round=1).records) == (3, 3)
    with pytest.raises(UnknownName, match="no round has the number 7"):
        write_export(ledger, tmp_path / "none.csv", round=7)
    with pytest.raises(BadInput, match="give its number, or 'open'"):
        campaign.picks("last")
