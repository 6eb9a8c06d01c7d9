"""What a campaign's commands do with labels and files: people, classes, imports, exports, reports, faults, backups."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

import tailwise
from tailwise.formats import FORMATS

from .conftest import NAMES, answer_round, complaint, json_of, ran, shown

# status, advise, classes


def test_status_is_that_of_the_library_in_every_form(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "9", "--overlap", "2") == 0
    answer_round(zoo, "ann")
    answer_round(zoo, "ben", wrong=2)
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        status = campaign.status()
    assert (status.conflicts, status.labelled) == (2, 7)
    facts = json_of(capsys, "status", "zoo")
    for name in ("images", "usable", "labelled", "conflicts", "rounds"):
        assert facts[name] == getattr(status, name)
    assert facts["annotators"] == {"ann": 9, "ben": 9}
    assert {row["name"]: row["labelled"] for row in facts["classes"]} == dict(
        zip(NAMES, status.labels.values(), strict=True)
    )
    text = shown(capsys, "status", "zoo")
    assert "9 of 9 answered" in text
    assert "2 conflicts" in text
    assert f"Agreement (Krippendorff's α): {facts['agreement']['value']:.2f} over 9 images" in text
    assert "tailwise label zoo settle 2 conflicts" in text
    assert shown(capsys, "status", "zoo", "--quiet") == "7 of 27 images labelled; round 1: complete"


def test_advice_is_that_of_the_library_in_every_form(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "9", "--quiet") == 0
    answer_round(zoo)
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        advice = campaign.advise()
    facts = json_of(capsys, "advise", "zoo")
    assert (facts["worth_it"], facts["because"]) == (advice.worth_it, advice.because)
    assert [one["text"] for one in facts["evidence"]] == [one.text for one in advice.evidence]
    text = shown(capsys, "advise", "zoo")
    assert f"Is another round worth it? {advice.worth_it}. {advice.because}" in text
    assert shown(capsys, "advise", "zoo", "--quiet") == advice.worth_it


def test_an_audit_is_that_of_the_library_in_every_form(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "tailwise next zoo --audit 0.1" in shown(capsys, "audit", "zoo")
    assert ran("next", "zoo", "-b", "12", "--audit", "0.5", "--quiet") == 0
    answer_round(zoo)
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        found = campaign.audit(wanted=0.6)
    assert found.images == 6
    facts = json_of(capsys, "audit", "zoo", "--wanted", "0.6")
    assert facts["accuracy"] == asdict(found)["accuracy"]
    assert [one["name"] for one in facts["classes"]] == list(NAMES)
    text = shown(capsys, "audit", "zoo", "--wanted", "0.6")
    assert all(sentence in text for sentence in found.sentences)
    assert "95 % interval" in text
    assert shown(capsys, "audit", "zoo", "--wanted", "0.6", "--quiet") == found.sentences[0]


def test_classes_are_changed_all_or_none(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no class is called 'yak'" in complaint(capsys, "classes", "zoo", "--add", "fox", "--retire", "yak", code=2)
    assert shown(capsys, "classes", "zoo", "--quiet") == "cat dog eel"
    asked = ["classes", "zoo", "--add", "fox", "--rename", "dog=großer Hund", "--retire", "eel"]
    planned = json_of(capsys, *asked, "--dry-run")
    assert shown(capsys, "classes", "zoo", "--quiet") == "cat dog eel"
    done = json_of(capsys, *asked)
    assert done["classes"] == planned["classes"]
    assert [(row["name"], row["retired"]) for row in done["classes"]] == [
        ("cat", False), ("großer Hund", False), ("eel", True), ("fox", False),
    ]  # fmt: skip
    text = shown(capsys, "classes", "zoo", "--restore", "eel")
    assert "✓ restored eel" in text
    assert zoo.is_dir()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--rename", "dog"], 2, "--rename is 'dog'"),
        (["--rename", "dog="], 2, "--rename is 'dog='"),
        (["--rename", "dog=CAT"], 3, "there already"),
        (["--add", " "], 3, "is empty"),
        (["--add", "cat"], 3, "there already"),
        (["--retire", "yak"], 2, "no class is called 'yak'"),
    ],
)
@pytest.mark.usefixtures("zoo")
def test_a_wrong_change_of_classes_says_why(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in complaint(capsys, "classes", "zoo", *arguments, code=code)
    assert words in complaint(capsys, "classes", "zoo", *arguments, "--dry-run", code=code)


# import and export


def test_importing_tells_what_fits_and_what_does_not(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("labels.csv").write_text(
        "path,label\ncat-00.png,cat\ndog-00.png,Hund\neel-00.png,newt\nabsent.png,cat\n", encoding="utf-8"
    )
    asked = ["import", "zoo", "labels.csv", "--annotator", "eva", "--rename", "Hund=dog"]
    planned = json_of(capsys, *asked, "--dry-run")
    assert (planned["added"], planned["dry_run"]) == (2, True)
    assert json_of(capsys, "status", "zoo")["labelled"] == 0
    text = shown(capsys, *asked)
    assert "2 answers added" in text
    assert "newt 1 record" in text
    assert "absent.png no image has that name" in text
    assert "--create-classes" in text
    assert json_of(capsys, *asked)["same"] == 2
    assert json_of(capsys, *asked, "--create-classes")["new_classes"] == ["newt"]
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        assert campaign.labels() == {"cat-00.png": "cat", "dog-00.png": "dog", "eel-00.png": "newt"}
        assert campaign.status().annotators == {"eva": 3}


def test_a_quiet_import_still_says_that_something_did_not_fit(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("labels.csv").write_text("path,label\ncat-00.png,cat\nabsent.png,cat\ndog-00.png,yak\ndog-01.png,yak\n")
    assert ran("import", "zoo", "labels.csv", "--quiet") == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "3 records of labels.csv could not be taken" in printed.err
    assert zoo.is_dir()


def test_an_import_changes_what_was_said_only_when_told_to(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("labels.csv").write_text("path,label\ncat-00.png,cat\n")
    assert ran("import", "zoo", "labels.csv", "--quiet") == 0
    Path("labels.csv").write_text("path,label\ncat-00.png,dog\n")
    text = shown(capsys, "import", "zoo", "labels.csv")
    assert "cat-00.png import: cat → dog" in text
    assert "--overwrite" in text
    assert json_of(capsys, "import", "zoo", "labels.csv", "--overwrite")["overwritten"] == 1
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        assert campaign.labels() == {"cat-00.png": "dog"}


@pytest.mark.parametrize("format", list(FORMATS))
def test_every_format_can_be_written_and_read_back(format: str, zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "9", "--quiet") == 0
    answer_round(zoo)
    out = f"out{FORMATS[format].suffix}"
    planned = json_of(capsys, "export", "zoo", out, "--format", format, "--dry-run")
    assert not Path(out).exists()
    done = json_of(capsys, "export", "zoo", out, "--format", format)
    assert done == planned | {"dry_run": False}
    assert (done["records"], done["format"]) == (9, format)
    assert ran("init", "other", "--images", "photos", "--classes", ",".join(NAMES), "--quiet") == 0
    assert json_of(capsys, "import", "other", out, "--format", format)["added"] == 9
    with (
        tailwise.Campaign.open(zoo, read_only=True) as first,
        tailwise.Campaign.open("other", read_only=True) as second,
    ):
        assert first.labels() == second.labels()


def test_the_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("import", "export"):
        text = shown(capsys, verb, "--help").replace("│ │ ", "")
        assert [name for name in FORMATS if name not in text] == []


def test_an_export_says_what_is_not_in_it(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "9", "--overlap", "2", "--quiet") == 0
    answer_round(zoo, "ann")
    answer_round(zoo, "ben", wrong=1)
    text = shown(capsys, "export", "zoo", "labels.csv", "--split", "train=0.5,test=0.5")
    assert "Wrote 8 records of 8 images to labels.csv (csv)" in text
    assert "note: 1 image on which people differ" in text
    assert json_of(capsys, "export", "zoo", "all.csv", "--every-answer")["records"] == 18
    assert json_of(capsys, "export", "zoo", "all.csv", "--unlabelled")["images"] == 27


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["labels.txt"], 3, "give the format: one of csv"),
        (["labels.csv", "--format", "cvs"], 2, "did you mean 'csv'?"),
        (["labels.csv", "--split", "half"], 2, "--split is 'half'"),
        (["labels.csv", "--split", "train=x,test=0.2"], 2, "--split is"),
        (["labels.csv", "--split", "a=0.5,a=0.5"], 2, "names a split twice"),
        (["labels.csv", "--split", "1.5"], 3, "between 0 and 1"),
        (["labels.csv", "--split", "train=0.5,test=0.2"], 3, "sum to 1"),
        (["photos/out", "--format", "folders"], 3, "name a place outside"),
        (["labels.csv", "--with-predictions"], 3, "there is no model yet"),
        (["nowhere/labels.csv"], 3, "there is no folder"),
        (["nowhere/out", "--format", "folders"], 3, "there is no folder"),
        (["photos", "--format", "label-studio"], 3, "files that no export has written"),
        (["tasks.json", "--format", "label-studio"], 3, "a folder with several files; name one, such as tasks"),
        (["a.zip", "--format", "cvat-imagenet"], 3, "a folder with several files; name one, such as a"),
    ],
)
@pytest.mark.usefixtures("zoo")
def test_a_wrong_export_says_why_and_writes_nothing_nor_does_a_dry_run(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().rglob("*"))
    for rehearsed in ([], ["--dry-run"]):
        assert words in complaint(capsys, "export", "zoo", *arguments, *rehearsed, code=code)
    assert sorted(Path().rglob("*")) == before


def test_a_dry_run_refuses_what_the_export_would(zoo: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat")
    for rehearsed, verb in ((["--dry-run"], "Would write"), ([], "Wrote")):
        assert f"{verb} 1 record of 1 image" in shown(capsys, "export", "zoo", "out", "-f", "folders", *rehearsed)
    Path("out/notes.txt").write_text("mine")
    for rehearsed in ([], ["--dry-run"]):
        said = complaint(capsys, "export", "zoo", "out", "-f", "folders", *rehearsed, code=3)
        assert "files such as notes.txt were put there since (1 in all)" in said
    (photos / "cat-00.png").unlink()
    for rehearsed in ([], ["--dry-run"]):
        assert "is gone; put it back" in complaint(capsys, "export", "zoo", "new", "-f", "folders", *rehearsed, code=3)


def test_an_export_tells_of_copies_and_of_classes_that_are_retired(
    zoo: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile(photos / "cat-00.png", photos / "zz-copy.png")
    assert ran("init", "zoo") == 0
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat")
        campaign.label("dog-00.png", "dog")
        campaign.retire_class("dog")
    text = shown(capsys, "export", "zoo", "labels.csv")
    assert "note: 1 record has the class dog, which is retired" in text
    assert "note: 1 file is not listed: copies, byte for byte, of images that are" in text
    told = json_of(capsys, "export", "zoo", "labels.csv", "--dry-run")
    assert (told["retired"], told["copies"]) == ({"dog": 1}, 1)


def test_an_import_names_the_copy_that_the_file_names(
    zoo: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copyfile(photos / "cat-00.png", photos / "zz-copy.png")
    assert ran("init", "zoo") == 0
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat", annotator="ann")
    Path("ben.csv").write_text("path,label\nzz-copy.png,dog\n")
    told = json_of(capsys, "import", "zoo", "ben.csv", "--annotator", "ben", "--dry-run")
    assert [one["path"] for one in told["conflicts"]] == ["zz-copy.png (a copy of cat-00.png)"]


# report, doctor and backup


@pytest.mark.usefixtures("quick_figures")
def test_a_report_is_one_page_where_it_was_asked_for(
    zoo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert ran("next", "zoo", "-b", "5", "--quiet") == 0
    answer_round(zoo)
    assert "Would write zoo/report/report.html" in shown(capsys, "report", "zoo", "--dry-run", "--open")
    assert not (zoo / "report").exists()
    page = Path(json_of(capsys, "report", "zoo")["report"])
    assert page.is_relative_to(zoo / "report")
    assert "<html" in page.read_text(encoding="utf-8")
    assert opened == []
    assert "Wrote my report/report.html" in shown(capsys, "report", "zoo", "--out", "my report", "--open")
    assert opened == [Path("my report/report.html").resolve().as_uri()]
    Path("a-file").write_text("")
    for rehearsed in ([], ["--dry-run"]):
        assert "a-file" in complaint(capsys, "report", "zoo", "--out", "a-file", *rehearsed, code=3)


def test_a_sound_campaign_is_called_so(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "doctor", "zoo") == "✓ All is well."
    assert json_of(capsys, "doctor", "zoo") == {"findings": [], "mended": [], "dry_run": False}
    assert zoo.is_dir()


def test_the_doctor_finds_a_damaged_model_and_mends_it_when_told(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert ran("next", "zoo", "-b", "6", "--quiet") == 0
        answer_round(zoo)
    model = next((zoo / "models").rglob("*.safetensors"))
    model.write_bytes(model.read_bytes()[:20])
    assert "models" in shown(capsys, "doctor", "zoo")
    planned = json_of(capsys, "doctor", "zoo", "--fix", "models", "--dry-run")
    assert planned["mended"] == ["models"]
    assert "models" in {one["name"] for one in planned["findings"]}
    text = shown(capsys, "doctor", "zoo", "--fix-all")
    assert "✓ models" in text
    assert "All is well" in text


def test_a_damaged_ledger_is_an_error_until_a_backup_is_restored_by_name(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("next", "zoo", "-b", "6", "--quiet") == 0
    answer_round(zoo)
    assert ran("backup", "zoo") == 0
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        labels = campaign.labels()
    (zoo / "campaign.sqlite").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    told = shown(capsys, "doctor", "zoo", code=1)
    assert "error" in told
    assert "fixed by name alone: ledger" in told
    assert "--fix-all" not in told
    assert "tailwise doctor`" not in told  # who reads this is there
    assert "error" in shown(capsys, "doctor", "zoo", "--fix-all", code=1)
    assert "damaged" in complaint(capsys, "status", "zoo", code=3)
    assert "✓ ledger" in shown(capsys, "doctor", "zoo", "--fix", "ledger")
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        assert campaign.labels() == labels


def test_a_damaged_index_of_the_ledger_is_mended_by_name_and_no_answer_is_lost(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("backup", "zoo") == 0
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat")  # which the backup does not have
        page = campaign.ledger.read("SELECT rootpage FROM sqlite_schema WHERE name = 'image_by_sha256'")[0][0]
        size = campaign.ledger.read("PRAGMA page_size")[0][0]
    content = bytearray((zoo / "campaign.sqlite").read_bytes())
    content[page * size - 20 : page * size] = bytes(20)
    (zoo / "campaign.sqlite").write_bytes(content)
    assert "write it anew from its own tables" in shown(capsys, "doctor", "zoo", code=1)
    assert "✓ ledger" in shown(capsys, "doctor", "zoo", "--fix", "ledger")
    assert json_of(capsys, "status", "zoo")["labelled"] == 1
    assert len(list((zoo / "backups").glob("damaged-*.sqlite"))) == 1


def test_a_campaign_whose_images_have_moved_is_well_again(
    zoo: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "out.png").symlink_to(zoo)  # leads out of the folder, and so was never read
    assert ran("init", "zoo") == 0
    photos.rename("moved")
    Path("moved/out.png").unlink()
    assert "If it moved: tailwise init" in shown(capsys, "doctor", "zoo", code=1)
    assert ran("init", "zoo", "--images", "moved") == 0
    assert ran("init", "zoo") == 0
    assert "All is well" in shown(capsys, "doctor", "zoo", "--fix-all")


@pytest.mark.usefixtures("zoo")
def test_an_unknown_fix_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown fix 'model'; the fixes are" in complaint(capsys, "doctor", "zoo", "--fix", "model", code=2)


def test_a_backup_is_a_whole_ledger(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat")
    places = [
        Path(shown(capsys, "backup", "zoo", "--quiet")),
        Path(json_of(capsys, "backup", "zoo", "--out", "friday.sqlite")["backup"]),
    ]
    Path("kept").mkdir()
    places.append(Path(shown(capsys, "backup", "zoo", "--out", "kept", "--quiet")))
    assert [place.parent.name for place in places[::2]] == ["backups", "kept"]
    for number, place in enumerate(places):
        home = Path(f"restored-{number}")
        home.mkdir()
        shutil.copyfile(place, home / "campaign.sqlite")
        with tailwise.Campaign.open(home) as campaign:
            assert campaign.labels() == {"cat-00.png": "cat"}
    assert "is there already" in complaint(capsys, "backup", "zoo", "--out", "friday.sqlite", code=3)
    assert "is there already" in complaint(capsys, "backup", "zoo", "--out", "friday.sqlite", "--dry-run", code=3)
    before = sorted(Path().rglob("*"))
    assert "Would write into zoo/backups" in shown(capsys, "backup", "zoo", "--dry-run")
    assert json_of(capsys, "backup", "zoo", "--out", "monday.sqlite", "--dry-run")["backup"] == "monday.sqlite"
    assert sorted(Path().rglob("*")) == before
    Path("a-file").write_text("")
    assert "cannot write a backup" in complaint(capsys, "backup", "zoo", "--out", "a-file/b.sqlite", code=3)
