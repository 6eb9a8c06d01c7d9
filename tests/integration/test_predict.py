"""Predicting a pool from the command line: a folder and a learner in, shards out, and all that people do wrong."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tailwise.inference.storage import names_of, read_manifest
from tailwise.learners import make_learner
from tailwise.learners.features import simple_features

from .conftest import NAMES, answer_round, complaint, draw, json_of, process, ran, shown

MANY = 300  # images in so many shards that a kill comes in the middle
PER_SHARD = 5


@pytest.fixture
def learner(photos: Path) -> Path:
    """A head on simple features, in learner/ of the working directory."""
    rng = np.random.default_rng(0)
    pixels = np.stack([np.asarray(draw(cls % 3, rng).resize((64, 64))) for cls in range(12)])
    folder = photos.parent / "learner"
    make_learner("linear").fit(simple_features(pixels), np.arange(12) % 3, classes=3, seed=0).save(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_from_a_campaign_to_shards_that_name_their_images(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert ran("next", "zoo", "--budget", "6", "--quiet") == 0
        answer_round(zoo)
    assert ran("next", "zoo", "--budget", "1", "--quiet") == 0
    said = json_of(capsys, "predict", "photos", "--learner", "zoo", "--out", "shards", "--shard-size", "10")
    assert (said["rows"], said["classes"], said["shards"], said["computed"], said["bad"]) == (27, 3, 3, 3, [])
    manifest = read_manifest("shards")
    assert manifest.complete
    assert manifest.class_names == NAMES
    proba = np.concatenate([np.load(path) for path in sorted(Path("shards").glob("part-*.npy"))])
    names = names_of("shards", range(27))
    guessed = [NAMES[cls] for cls in proba.argmax(axis=1)]
    right = [name.split("-")[0] == guess for name, guess in zip(names, guessed, strict=True)]
    assert np.mean(right) > 0.7  # it has learnt from 12 of them; chance is half that
    batch = json_of(capsys, "select", "shards", "--budget", "4", "--out", "picks.csv")
    assert batch["names"] == names_of("shards", batch["indices"])
    lines = Path("picks.csv").read_text().splitlines()
    assert lines[0] == "rank,index,name"
    assert lines[1] == f"1,{batch['indices'][0]},{batch['names'][0]}"


def test_the_summary_names_bad_images_and_what_to_do_next(
    learner: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "été.jpg").write_bytes(b"\xff\xd8 cut")
    for number in range(6):
        (photos / f"empty-{number}.png").touch()
    (photos / "[bold]\x1b[2J.png").touch()
    said = shown(capsys, "predict", "photos", "--learner", str(learner), "--out", "my shards")
    assert "27 images × 3 classes in 1 shard" in said
    assert "8 images could not be used, and got no row:" in said
    assert "[bold]\\x1b[2J.png: the file is empty" in said
    assert "… and 3 more, in the shards' .json" in said
    assert "Next: tailwise select 'my shards' --budget 2" in said
    again = shown(capsys, "predict", "photos", "--learner", str(learner), "--out", "my shards")
    assert "in 1 shard, 1 of them done before" in again


def test_a_dry_run_tells_and_writes_nothing(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("predict", "photos", "--learner", str(learner), "--out", "shards", "--shard-size", "20")
    assert "27 images in 2 shards, 0 of them done; 3 classes, about 0.0 MB" in shown(capsys, *asked, "--dry-run")
    assert not Path("shards").exists()
    assert ran(*asked, "--quiet") == 0
    Path("shards/part-00001.npy").unlink()
    said = json_of(capsys, *asked, "--dry-run")
    assert (said["images"], said["shards"], said["done"], said["bytes"]) == (27, 2, 1, 27 * 3 * 2)
    assert not Path("shards/part-00001.npy").exists()


def test_quiet_prints_nothing(learner: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "predict", "photos", "--learner", str(learner), "--out", "shards", "--quiet") == ""
    assert read_manifest("shards").rows == 27


def whole_shards(folder: Path) -> int:
    """How many shards are there, each of which must be whole."""
    pages = [json.loads(path.read_bytes()) for path in folder.glob("part-*.json")]
    for page in pages:
        content = (folder / f"part-{page['number']:05d}.npy").read_bytes()
        assert hashlib.sha256(content).hexdigest() == page["sha256"]
    return len(pages)


@pytest.mark.long
def test_kill_9_leaves_whole_shards_and_the_next_run_does_the_others(learner: Path, tmp_path: Path) -> None:
    pool, rng = tmp_path / "pool", np.random.default_rng(1)
    pool.mkdir()
    for number in range(MANY):
        draw(number % 3, rng).resize((200, 200)).save(pool / f"{number:04d}.png")
    asked = ["predict", "pool", "--learner", str(learner), "--shard-size", str(PER_SHARD), "--workers", "1", "--json"]
    with process(*asked, "--out", "whole") as undisturbed:
        undisturbed.communicate()
    killed = 0
    for wanted in (3, 20):  # twice, at different places
        with process(*asked, "--out", "shards") as running:
            while len(list(Path("shards").glob("part-*.json"))) < wanted:
                assert running.poll() is None
                time.sleep(0.002)
            running.send_signal(signal.SIGKILL)
            killed += running.wait() == -signal.SIGKILL
        there = whole_shards(Path("shards"))
        assert wanted <= there < MANY // PER_SHARD
        assert not read_manifest("shards").complete
    (Path("shards") / ".part-00058.npy.0123abcd.part").write_bytes(b"half")  # as a kill may leave it
    with process(*asked, "--out", "shards") as last:
        said = json.loads(last.communicate()[0])
    assert killed == 2
    assert said["computed"] == MANY // PER_SHARD - there
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ({"IMAGES": "absent"}, 3, "nothing at"),
        ({"IMAGES": "learner"}, 3, "holds no images"),
        ({"--learner": "photos"}, 3, "holds no saved learner"),
        ({"--learner": "absent"}, 3, "holds no saved learner"),
        ({"--engine": "spark"}, 2, "--engine: the engine is 'spark'; it must be 'ray'"),
        ({"--engine": "ray=127.0.0.1:1"}, 3, "cannot join the Ray cluster at 127.0.0.1:1: Connection refused"),
        ({"--dtype": "int8"}, 2, "--dtype is 'int8'; give float16 or float32"),
        ({"--workers": "0"}, 2, "workers"),
        ({"--shard-size": "0"}, 2, "shard-size"),
        ({"--size": "32"}, 3, "was fitted on images of 64 pixels a side, not 32"),
        ({"--column": "image"}, 3, "belong to Parquet"),
        ({"--out": "s3://bucket/shards"}, 3, "must be in a folder of this machine"),
        ({"IMAGES": "s3://bucket/photos"}, 3, "must be in a folder of this machine"),
    ],
)
def test_what_people_do_wrong_is_told_in_a_line(
    wrong: dict[str, str], code: int, words: str, learner: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"IMAGES": "photos", "--learner": learner.name, "--out": "shards"} | wrong
    arguments = [options.pop("IMAGES"), *(word for pair in options.items() for word in pair)]
    assert words in complaint(capsys, "predict", *arguments, code=code)
    assert not list(Path().glob("shards/part-*"))


@pytest.mark.parametrize("command", [("predict", "photos", "--learner", "learner"), ("bench", "run", "demo-digits")])
@pytest.mark.usefixtures("learner")
def test_without_ray_the_extra_is_named_before_any_work(command: tuple[str, ...]) -> None:
    code = "import sys; sys.modules['ray'] = None; from tailwise.cli.output import run; sys.exit(run(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *command, "--out", "out", "--engine", "ray"], capture_output=True, text=True,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 5
    assert done.stderr == "tailwise: engine 'ray' needs ray, which is not installed; run: pip install 'tailwise[ray]'\n"
    assert not Path("out").exists()


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tailwise predict photos --learner birds --out shards" in shown(capsys, "predict", "--help")
