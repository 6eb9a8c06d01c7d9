"""A folder of pictures, a campaign over it, and ways to run a command and read what it says."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import tailwise
from tailwise.campaign.answers import Answer, record
from tailwise.campaign.classes import find_class
from tailwise.campaign.images import find_image
from tailwise.campaign.rounds import current_round, round_picks
from tailwise.cli.output import run

NAMES = ("cat", "dog", "eel")
COUNTS = (14, 8, 5)


def draw(cls: int, rng: np.random.Generator) -> Image.Image:
    """Stripes whose direction and tint tell the class."""
    down, across = np.mgrid[:16, :16]
    wave = np.sin(across * np.cos(cls) + down * np.sin(cls) + rng.uniform(0, 6))
    tint = np.array([1 + 0.6 * np.cos(2 * cls), 1.0, 1 + 0.6 * np.sin(2 * cls)])
    pixels = 120 + (35 * wave[..., None] + 25) * tint + rng.normal(0, 8, (16, 16, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def make_photos(folder: Path) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for cls, (name, count) in enumerate(zip(NAMES, COUNTS, strict=True)):
        for number in range(count):
            draw(cls, rng).save(folder / f"{name}-{number:02d}.png")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """27 pictures in photos/ of the working directory; their names tell what they show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_photos(tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture
def zoo(photos: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A campaign over the pictures."""
    assert run(["init", "zoo", "--images", "photos", "--classes", ",".join(NAMES), "--backbone", "simple"]) == 0
    capsys.readouterr()
    return photos.parent / "zoo"


def ran(*arguments: str) -> int:
    return run(list(arguments))


def json_of(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:  # noqa: ANN401 - whatever JSON has
    """What a command prints with --json, which must be one document."""
    capsys.readouterr()
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """What a command prints, in words with single spaces."""
    capsys.readouterr()
    assert run(list(arguments)) == code
    return " ".join(capsys.readouterr().out.split())


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """The error of a command, which is one or two lines on stderr and nothing on stdout."""
    capsys.readouterr()
    assert run(list(arguments)) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert 1 <= len(printed.err.splitlines()) <= 2
    return printed.err


def answer_round(home: Path, annotator: str = "ann", *, wrong: int = 0) -> None:
    """Say what the pictures' names say; of the first `wrong` something else."""
    with tailwise.Campaign.open(home) as campaign:
        current = current_round(campaign.ledger)
        assert current is not None
        picks = round_picks(campaign.ledger, current.id)
        said = []
        for place, pick in enumerate(picks):
            truth = NAMES.index(find_image(campaign.ledger, pick.image).path.split("-")[0])
            klass = find_class(campaign.ledger, NAMES[(truth + (place < wrong)) % 3])
            said.append(Answer(uuid.uuid4().hex, pick.image, annotator, "label", klass.id, round_id=current.id))
        record(campaign.ledger, said)


def process(*arguments: str, **settings: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - of Popen
    command = [sys.executable, "-m", "tailwise", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **settings
    )


def rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Asked of the file itself."""
    with closing(sqlite3.connect(f"file:{home}/campaign.sqlite?mode=ro", uri=True, timeout=5)) as file:
        return file.execute(sql).fetchall()
