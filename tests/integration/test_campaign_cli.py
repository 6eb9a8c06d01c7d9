"""A campaign from the command line: a folder of images in, a labelled data set out, and all that people do wrong."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tailwise

from .conftest import NAMES, answer_round, complaint, draw, json_of, make_photos, process, ran, rows, shown

MANY = 4000  # images, too many to be indexed before anybody can interrupt
COMMANDS = (
    "init", "next", "label", "status", "advise", "audit", "classes", "notes", "import", "export", "report", "doctor",
    "backup", "find", "review", "map",
)  # fmt: skip


# The whole way


def test_from_a_folder_of_images_to_a_data_set(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = json_of(capsys, "next", "zoo", "--budget", "5")
    assert (first["round"], first["cold_start"], len(first["images"])) == (1, True, 5)
    assert json_of(capsys, "status", "zoo")["round"]["remaining"] == 5
    answer_round(zoo)
    second = json_of(capsys, "next", "zoo", "-b", "6", "--strategy", "margin", "--balance", "1", "--seed", "3")
    assert (second["round"], second["cold_start"], second["strategy"], second["lam"]) == (2, False, "margin", 1.0)
    assert sum(row["expected"] for row in second["classes"]) == pytest.approx(6)
    assert {row["guess"] for row in second["images"]} <= set(NAMES)
    answer_round(zoo)
    assert ran("export", "zoo", "labels.csv") == 0
    with Path("labels.csv").open(encoding="utf-8", newline="") as file:
        written = {row["path"]: row["label"] for row in csv.DictReader(file)}
    assert len(written) == 11
    assert all(path.split("-")[0] == label for path, label in written.items())
    with tailwise.Campaign.open(zoo, read_only=True) as campaign:
        assert written == campaign.labels()


def test_the_round_is_explained_in_words_with_counts_targets_and_certificate(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cold = shown(capsys, "next", "zoo", "-b", "5")
    assert "Round 1: 5 of 27 images, a cold start" in cold
    assert "without a model" in cold
    assert "tailwise label zoo" in cold
    answer_round(zoo)
    assert "boundary, covering the pool, learnt from 5 labels" in shown(capsys, "next", "zoo", "-b", "6", "--dry-run")
    facts = json_of(capsys, "next", "zoo", "-b", "6", "--strategy", "entropy", "--dry-run")
    text = shown(capsys, "next", "zoo", "-b", "6", "--strategy", "entropy")
    assert "Round 2: 6 of 22 images" in text
    assert f"entropy, λ = {facts['lam']:.4g} (auto), learnt from 5 labels" in text
    assert "certified" in text or "optimal" in text
    for row in facts["classes"]:
        assert f"{row['class']} {row['labelled']} {row['target']:.1f} {row['expected']:.1f} " in text
    assert "L1 score of the labelled set" in text


def test_a_dry_run_of_next_opens_nothing(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in zoo.rglob("*") if path.is_file())
    asked = json_of(capsys, "next", "zoo", "-b", "5", "--dry-run")
    assert asked["round"] is None
    assert sorted((path, path.stat().st_mtime_ns) for path in zoo.rglob("*") if path.is_file()) == before
    assert json_of(capsys, "next", "zoo", "-b", "5")["images"] == asked["images"]


def test_a_round_that_waits_for_answers_holds_up_the_next_unless_that_is_wanted(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("next", "zoo", "-b", "5", "--quiet") == 0
    assert zoo.is_dir()
    assert "round 1 is not finished" in complaint(capsys, "next", "zoo", code=3)
    assert json_of(capsys, "next", "zoo", "-b", "5", "--allow-unfinished")["round"] == 2


# init


def test_init_again_tells_what_is_new_changed_gone_and_unusable(
    zoo: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tailwise.Campaign.open(zoo) as campaign:
        campaign.label("cat-00.png", "cat")
        campaign.label("cat-01.png", "cat")
    draw(1, np.random.default_rng(9)).save(photos / "dog-90.png")
    shutil.copyfile(photos / "cat-02.png", photos / "copy.png")
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (photos / "cat-00.png").write_bytes((photos / "dog-90.png").read_bytes() + b" ")
    (photos / "cat-01.png").unlink()
    (photos / "notes.txt").write_text("hello")
    (photos / "cat-03.png").rename(photos / "moved.png")
    found = json_of(capsys, "init", "zoo")
    assert (found["created"], found["images"], found["new_classes"]) == (False, 30, [])
    folder = found["folders"][0]
    assert (folder["new"], folder["duplicates"], folder["moved"]) == (3, 1, 1)
    assert folder["changed"] == ["cat-00.png"]
    assert folder["gone"] == ["cat-01.png"]
    assert {row["path"] for row in folder["quarantined"]} == {"broken.jpg", "cat-00.png"}
    assert folder["passed_over"] == {".txt": 1}


def test_what_init_found_is_shown_with_reasons_and_how_to_go_on(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "bröken [red].jpg").write_bytes(b"")
    shutil.copyfile(photos / "cat-02.png", photos / "copy.png")
    text = shown(capsys, "init", "my zoo", "--images", "photos", "--classes", "cat,[bold]dog,Зебра")
    assert "New campaign my zoo: 27 images, 3 classes" in text
    assert "29 new" in text
    assert "1 copy of another image" in text
    assert "bröken [red].jpg" in text
    assert "cat, [bold]dog, Зебра" in text
    assert "tailwise next 'my zoo'" in text
    assert "27 known, as before" not in text
    assert "28 known, as before" in shown(capsys, "init", "my zoo")


def test_init_again_adds_classes_that_are_new_and_leaves_retired_ones(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("classes", "zoo", "--retire", "eel") == 0
    found = json_of(capsys, "init", "zoo", "--classes", "CAT,dog,eel,fox")
    assert found["new_classes"] == ["fox"]
    assert found["classes"] == ["cat", "dog", "fox"]
    assert zoo.is_dir()


@pytest.mark.usefixtures("photos")
def test_classes_come_from_a_file_with_one_name_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("classes.txt").write_text("\ufeffcat\n\n dog, small \nЗебра\n", encoding="utf-8")
    found = json_of(capsys, "init", "zoo", "--images", "photos", "--classes-file", "classes.txt")
    assert found["classes"] == ["cat", "dog, small", "Зебра"]


@pytest.mark.usefixtures("photos")
def test_labels_that_are_there_already_are_imported_and_may_bring_the_classes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("labels.csv").write_text("path,label\ncat-00.png,cat\ndog-00.png,dog\nabsent.png,cat\n")
    found = json_of(capsys, "init", "zoo", "--images", "photos", "--labels", "labels.csv")
    assert sorted(found["classes"]) == ["cat", "dog"]
    assert found["labels"]["added"] == 2
    assert [row["path"] for row in found["labels"]["unmatched"]] == ["absent.png"]
    assert "2 were there already" in shown(capsys, "init", "zoo", "--labels", "labels.csv")
    Path("labels.csv").write_text("path,label\ncat-01.png,cat\ndog-01.png,dgo\n")
    again = json_of(capsys, "init", "zoo", "--labels", "labels.csv")
    assert (again["classes"], again["labels"]["added"], again["labels"]["new_classes"]) == (["cat", "dog"], 1, [])
    assert [one["name"] for one in again["labels"]["unknown_classes"]] == ["dgo"]
    assert "import --create-classes" in shown(capsys, "init", "zoo", "--labels", "labels.csv")


@pytest.mark.usefixtures("photos")
def test_a_dry_run_of_init_makes_and_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["init", "zoo", "--images", "photos", "--classes", "cat,dog"]
    assert json_of(capsys, *arguments, "--dry-run")["folders"][0]["new"] == 27
    assert not Path("zoo").exists()
    assert ran(*arguments) == 0
    before = Path("zoo/campaign.sqlite").read_bytes()
    Path("photos/cat-00.png").unlink()
    again = json_of(capsys, "init", "zoo", "--classes", "fox", "--dry-run")
    assert (again["folders"][0]["gone"], again["new_classes"]) == (["cat-00.png"], ["fox"])
    assert Path("zoo/campaign.sqlite").read_bytes() == before


def test_several_folders_of_images_are_told_apart(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = photos.parent / "more"
    more.mkdir()
    draw(0, np.random.default_rng(5)).save(more / "cat-00.png")
    found = json_of(capsys, "init", "zoo", "--images", "photos", "--images", "more", "--classes", "cat")
    assert [(row["folder"], row["new"]) for row in found["folders"]] == [("photos", 27), ("more", 1)]
    assert sum(row["known"] for row in json_of(capsys, "init", "zoo")["folders"]) == 28


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["zoo", "--classes", "cat"], 2, "say where its --images are"),
        (["zoo", "--images", "photos"], 2, "needs --classes"),
        (["zoo", "--images", "absent", "--classes", "cat"], 3, "no folder at"),
        (["zoo", "--images", "empty", "--classes", "cat"], 3, "there is no image in empty"),
        (["zoo", "--images", "papers", "--classes", "cat"], 3, "(only 2 × .txt)"),
        (["zoo", "--images", "a-file", "--classes", "cat"], 3, "a-file is a file; name the folder of your images"),
        (["a-file", "--images", "photos", "--classes", "cat"], 3, "a-file is a file; name the folder of the campaign"),
        (["a-file/zoo", "--images", "photos", "--classes", "cat"], 3, "cannot make the folder"),
        (["photos", "--images", "photos", "--classes", "cat"], 3, "folder of its own"),
        (["zoo", "--images", "photos", "--classes", "cat,,dog"], 3, "is empty"),
        (["zoo", "--images", "photos", "--classes", ""], 3, "is empty"),
        (["zoo", "--images", "photos", "--classes", "cat,dog,Cat "], 3, "'Cat' is named twice"),
        (["zoo", "--images", "photos", "--classes", "c\u202eat"], 3, "U+202E"),
        (["zoo", "--images", "photos", "--classes", "c" * 201], 3, "at most 200"),
        (["zoo", "--images", "photos", "--classes-file", "absent.txt"], 3, "cannot read the classes in absent.txt"),
        (["zoo", "--images", "photos", "--classes-file", "photos/cat-00.png"], 3, "not UTF-8 text"),
        (["zoo", "--images", "photos", "--classes-file", "blank.txt"], 3, "blank.txt names no class"),
        (["zoo", "--images", "photos", "--classes", "cat", "--labels", "absent.csv"], 3, "absent.csv"),
        (["zoo", "--images", "photos", "--classes", "cat", "--labels", "a-file"], 3, "is not recognised"),
        (["zoo", "--images", "photos", "--classes", "cat", "--backbone", "resnet"], 3, "no backbone is called"),
    ],
)
@pytest.mark.usefixtures("photos")
def test_a_wrong_init_says_what_is_wrong_and_makes_nothing(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    Path("papers").mkdir()
    for name in ("papers/a.txt", "papers/b.txt", "a-file", "blank.txt"):
        Path(name).write_text("\n")
    assert words in complaint(capsys, "init", *arguments, code=code)
    assert not Path("zoo").exists()


@pytest.mark.usefixtures("interruptible")
def test_interrupting_init_keeps_the_index_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    base = Image.new("RGB", (16, 16))
    for number in range(MANY):
        base.putpixel((0, 0), (number % 256, number // 256, 7))
        base.save(folder / f"{number:04d}.bmp")
    arguments = ["init", "my zoo", "--images", "photos", "--classes", "cat,dog"]
    with process(*arguments, cwd=tmp_path) as child:
        home = tmp_path / "my zoo"
        while child.poll() is None and not indexed(home):
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    assert child.returncode == 130, err
    kept = indexed(home)
    assert 500 <= kept < MANY
    assert f"{kept:,} images are indexed and kept; go on with: tailwise init 'my zoo' --images photos" in err
    assert "Traceback" not in err
    assert out == ""
    with process("init", "my zoo", "--images", "photos", "--json", cwd=tmp_path) as child:
        found = json.loads(child.communicate(timeout=300)[0])
    assert (found["folders"][0]["known"], found["folders"][0]["new"]) == (kept, MANY - kept)


def indexed(home: Path) -> int:
    """How many images the ledger has; 0 where there is none yet."""
    try:
        return int(rows(home, "SELECT count(*) FROM image")[0][0])
    except sqlite3.OperationalError:
        return 0


# label


@contextmanager
def labelling(home: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tailwise label` in a process of its own, and its link."""
    with process("label", str(home), "--no-open", "--port", "0", "--quiet", *arguments) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def post(link: str, path: str, body: dict[str, object]) -> Any:  # noqa: ANN401 - whatever JSON has
    url, _, token = link.partition("/?token=")
    request = urllib.request.Request(
        f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json", "X-Tailwise-Token": token}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


@pytest.mark.usefixtures("interruptible")
def test_labelling_keeps_answers_names_itself_to_others_and_ends_softly(
    zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("next", "zoo", "-b", "4") == 0
    with labelling(zoo) as (child, link):
        images = post(link, "/api/lease", {"annotator": "ann", "count": 4})["images"]
        said = [{"key": uuid.uuid4().hex, "image": one["key"], "kind": "label", "class_id": 1} for one in images[:3]]
        done = post(link, "/api/answers", {"annotator": "ann", "answers": said})["results"]
        assert all(one["saved"] for one in done)
        busy = complaint(capsys, "classes", "zoo", "--add", "fox", code=3)
        assert f"the labelling page (pid {child.pid}) holds it" in busy
        assert json_of(capsys, "status", "zoo")["labelled"] == 3  # reading does not wait
        assert json_of(capsys, "next", "zoo", "-b", "4", "--dry-run", "--allow-unfinished")["round"] is None
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    assert (child.returncode, out, err) == (0, "", "")
    assert ran("classes", "zoo", "--add", "fox") == 0
    assert stat_mode(zoo / "token") == 0o600


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_the_page_is_announced_with_its_link_and_what_came_of_it_is_told(zoo: Path) -> None:
    with process("label", str(zoo), "--no-open", "--port", "0", "--no-token") as child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(6)]
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=300)
    assert (child.returncode, err) == (0, "")
    assert "zoo is open for labelling: no round is open yet" in lines[0]
    assert lines[2].strip().startswith("http://127.0.0.1:")
    assert "everybody on this machine can label" in lines[4]
    assert "Stopped; no new answers. 0 images labelled" in out
    assert "tailwise next" in out


@pytest.mark.usefixtures("interruptible")
def test_the_link_as_json_is_one_document(zoo: Path) -> None:
    with process("label", str(zoo), "--no-open", "--port", "0", "--json") as child:
        assert child.stdout is not None
        answer = json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=300) == ("", "")
    assert answer["link"].startswith(answer["url"])
    assert answer["port"] in range(1024, 65536)


def test_listening_to_the_network_without_a_token_is_refused(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = complaint(capsys, "label", "zoo", "--host", "0.0.0.0", "--no-token", code=3)
    assert "without a token" in said
    assert not (zoo / "token").exists()


def test_a_dry_run_of_the_page_says_what_it_would_change(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(zoo.rglob("*"))
    text = shown(capsys, "label", "zoo", "--overlap", "2", "--new-token", "--port", "0", "--dry-run")
    assert "zoo would be open for labelling at 127.0.0.1, port any that is free" in text
    assert "overlap 1 → 2, from the next round on" in text
    assert "a new token; links that were given out would end" in text
    assert json_of(capsys, "label", "zoo", "--overlap", "2", "--dry-run")["overlap"] == 2
    assert "without a token" in complaint(
        capsys, "label", "zoo", "--host", "0.0.0.0", "--no-token", "--dry-run", code=3
    )
    assert sorted(zoo.rglob("*")) == before
    assert json_of(capsys, "status", "zoo")["settings"]["overlap"] == 1


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_without_the_web_extra_the_command_that_installs_it_is_named(zoo: Path, package: str) -> None:
    without = f"import sys; sys.modules[{package!r}] = None; "
    probe = without + "from tailwise.cli.output import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", probe, "label", str(zoo), "--no-open"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 5
    assert "pip install 'tailwise[web]'" in done.stderr


# What every command refuses

ONE_EACH = {
    "next": ["next", "zoo"],
    "label": ["label", "zoo", "--no-open"],
    "status": ["status", "zoo"],
    "advise": ["advise", "zoo"],
    "audit": ["audit", "zoo"],
    "classes": ["classes", "zoo"],
    "import": ["import", "zoo", "labels.csv"],
    "export": ["export", "zoo", "out.csv"],
    "report": ["report", "zoo"],
    "doctor": ["doctor", "zoo"],
    "backup": ["backup", "zoo"],
}


@pytest.mark.parametrize("verb", ONE_EACH)
def test_a_folder_without_a_campaign_is_refused_by(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no campaign in" in complaint(capsys, *ONE_EACH[verb], code=3)
    Path("zoo").mkdir()
    assert "no campaign in" in complaint(capsys, *ONE_EACH[verb], code=3)
    assert list(Path("zoo").iterdir()) == []
    Path("zoo").rmdir()
    Path("zoo").write_text("")
    assert "zoo is a file; name the folder of the campaign" in complaint(capsys, *ONE_EACH[verb], code=3)


def test_a_campaign_of_a_newer_tailwise_is_read_but_not_written(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(zoo / "campaign.sqlite")) as file:
        file.execute("PRAGMA user_version = 99")
    for arguments in (["next", "zoo"], ["init", "zoo"], ["classes", "zoo", "--add", "fox"]):
        assert "written by a newer Tailwise" in complaint(capsys, *arguments, code=3)
    for arguments in (["init", "zoo"], ["classes", "zoo", "--add", "fox"]):
        assert f"{zoo}/campaign.sqlite has schema 99" in complaint(capsys, *arguments, "--dry-run", code=3)
    assert "schema 99, written by a newer Tailwise" in shown(capsys, "doctor", "zoo")
    assert json_of(capsys, "status", "zoo")["images"] == 27


@contextmanager
def somebody_else() -> Iterator[Path]:
    """A folder that all may use; inside, root is nobody in particular, so that permissions mean something."""
    folder, me = Path(mkdtemp()), os.geteuid()
    folder.chmod(0o777)
    try:
        if me == 0:
            os.seteuid(65534)
        yield folder
    finally:
        os.seteuid(me)
        shutil.rmtree(folder)


def test_a_read_only_folder_is_read_and_not_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with somebody_else() as folder:
        monkeypatch.chdir(folder)
        make_photos(folder / "photos")
        assert ran("init", "zoo", "--images", "photos", "--classes", "cat,dog", "--backbone", "simple") == 0
        with tailwise.Campaign.open("zoo") as campaign:
            campaign.label("cat-00.png", "cat")
        Path("zoo/lock").unlink()
        Path("zoo").chmod(0o555)
        try:
            assert "cannot write to the campaign" in complaint(capsys, "next", "zoo", code=3)
            assert "cannot write to the campaign" in complaint(capsys, "init", "zoo", code=3)
            assert "cannot write a backup" in complaint(capsys, "backup", "zoo", code=3)
            assert "cannot make the folder" in complaint(
                capsys, "init", "zoo/inner", "--images", "photos", "--classes", "cat", code=3
            )
            assert json_of(capsys, "status", "zoo")["labelled"] == 1
            assert json_of(capsys, "export", "zoo", "labels.csv")["records"] == 1
            assert ran("backup", "zoo", "--out", "copy.sqlite") == 0
            assert len(json_of(capsys, "next", "zoo", "-b", "3", "--dry-run")["images"]) == 3
        finally:
            Path("zoo").chmod(0o755)
        monkeypatch.chdir("/")


def test_the_command_that_init_names_works_in_a_small_pool(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "next", "zoo")
    assert "Round 1: 27 of 27 images" in text
    assert "27 images are left to choose from, fewer than the usual 100" in text
    answer_round(zoo)
    assert "only 0 are left" in complaint(capsys, "next", "zoo", code=4)
    assert "one of none, temperature" in complaint(capsys, "next", "zoo", "--calibration", "both", code=3)


def test_a_budget_above_the_pool_cannot_be_met(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "only 27 are left" in complaint(capsys, "next", "zoo", "-b", "28", code=4)
    assert "--balance" in complaint(capsys, "next", "zoo", "--balance", "heavy", code=2)
    assert "did you mean 'entropy'?" in complaint(capsys, "next", "zoo", "--strategy", "entropi", code=2)
    assert json_of(capsys, "next", "zoo", "-b", "28", code=4)["error"]["kind"] == "PoolExhausted"
    assert zoo.is_dir()


# The look


def test_help_shows_the_commands_in_three_panels(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--help")
    panels = [text.index(f"─ {name} ─") for name in ("Select", "Campaigns", "Experiments")]
    assert panels == sorted(panels)
    for verb in COMMANDS:
        assert panels[1] < text.index(f"│ {verb} ") < panels[2]
    assert text.index("│ select ") < panels[1]
    assert text.index("│ bench ") > panels[2]


def test_no_line_is_wider_than_the_terminal(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran("next", "zoo", "-b", "5") == 0
    answer_round(zoo)
    for verb in ("next", "status", "advise", "doctor", "init"):
        assert ran(verb, "zoo", *(["-b", "6"] if verb == "next" else [])) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_asking_about_a_campaign_loads_neither_torch_nor_the_web(zoo: Path) -> None:
    probe = "import sys; from tailwise.cli.output import run; run(sys.argv[1:]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe, "status", str(zoo)], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert loaded & {"torch", "fastapi", "matplotlib", "pandas", "sklearn"} == set()


# Guidelines, order and keys of classes; notes.


@pytest.mark.usefixtures("zoo")
def test_classes_are_described_moved_and_illustrated(capsys: pytest.CaptureFixture[str]) -> None:
    names = [one["name"] for one in json_of(capsys, "classes", "zoo")["classes"]]
    first, last = names[0], names[-1]
    changes = ("--describe", f"{last}=Long = thin", "--move", f"{last}=1", "--hotkey", f"{last}=w")
    found = json_of(capsys, "classes", "zoo", *changes, "--example", f"{last}=cat-00.png", "--dry-run")
    assert found["classes"][0]["name"] == last
    assert [one["name"] for one in json_of(capsys, "classes", "zoo")["classes"]] == names  # nothing was changed
    done = json_of(capsys, "classes", "zoo", *changes, "--example", f"{last}=cat-00.png")
    assert done["done"][-1] == f"cat-00.png is an example of {last}"
    assert done["classes"][0] == {
        "name": last, "labelled": 0, "retired": False, "hotkey": "w", "description": "Long = thin",
    }  # fmt: skip
    assert "is a command of the page" in complaint(
        capsys, "classes", "zoo", "--describe", f"{first}=x", "--hotkey", f"{first}=u", code=3
    )
    assert "give a whole number" in complaint(capsys, "classes", "zoo", "--move", f"{first}=up", code=2)
    undone = json_of(capsys, "classes", "zoo", "--hotkey", f"{last}=", "--remove-example", f"{last}=cat-00.png")
    assert (undone["classes"][0]["hotkey"], undone["classes"][1]["description"]) == (None, "")


@pytest.mark.usefixtures("zoo")
def test_notes_are_added_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert json_of(capsys, "notes", "zoo") == {"notes": [], "added": 0, "dry_run": False}
    adds = ("--flag", "cat-00.png", "--comment", "cat-01.png=Two = many", "--annotator", "ann")
    assert json_of(capsys, "notes", "zoo", *adds, "--dry-run")["added"] == 2
    assert json_of(capsys, "notes", "zoo")["notes"] == []
    assert "2 notes added" in shown(capsys, "notes", "zoo", *adds)
    found = json_of(capsys, "notes", "zoo")["notes"]
    assert [(one["image"], one["annotator"], one["kind"], one["text"]) for one in found] == [
        ("cat-00.png", "ann", "flag", ""),
        ("cat-01.png", "ann", "comment", "Two = many"),
    ]
    assert [one["image"] for one in json_of(capsys, "notes", "zoo", "--flagged")["notes"]] == ["cat-00.png"]
    assert "not an image" in complaint(capsys, "notes", "zoo", "--flag", "cat-02.png", "--flag", "no.png", code=2)
    assert ran("notes", "zoo", "--unflag", "cat-00.png") == 0
    assert json_of(capsys, "notes", "zoo", "--flagged")["notes"] == []
