"""Images that were replaced by pipes: every command, the page and its end come back instead of waiting for a writer."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.images import FileStat, list_images
from tailwise.campaign.indexing import ImageFile, examine
from tailwise.campaign.service import Campaign
from tailwise.errors import BadFile
from tailwise.formats.folders import sha256_of
from tailwise.pools.download import open_members
from tailwise.pools.folder import Files
from tailwise.pools.folder import list_images as list_pool
from tailwise.web.images import ImageRenderer

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")

PATIENCE = 120  # seconds: only reached if a command waits for ever
IMAGES = 12


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Two classes, every image labelled; afterwards two images are replaced by pipes."""
    photos, home = tmp_path / "photos", tmp_path / "campaign"
    photos.mkdir()
    rng = np.random.default_rng(0)
    for number in range(IMAGES):
        pixels = rng.integers(0, 90, (20, 20, 3)) + 120 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(photos / f"{number:02d}.png")
    with Campaign.create(home, photos, ["dark", "light"], backbone="simple") as made:
        for number in range(IMAGES - 2):
            made.label(f"{number:02d}.png", ("dark", "light")[number % 2])
    for number in (0, IMAGES - 1):
        replace_by_pipe(photos / f"{number:02d}.png")
    return home


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tailwise", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("command", ["init", "next", "report", "advise", "doctor", "status"])
def test_a_command_reports_the_pipe_or_works_without_it(campaign: Path, command: str) -> None:
    done = run(command, campaign)
    assert done.returncode in (0, 1, 3), done.stderr
    assert "Traceback" not in done.stderr


def test_next_quarantines_the_pipe_with_its_reason(campaign: Path) -> None:
    assert run("next", campaign, "--budget", "1").returncode == 0
    with Campaign.open(campaign, read_only=True) as opened:
        troubles = {row.path: row.trouble for row in list_images(opened.ledger) if row.trouble}
    assert set(troubles) == {"00.png", f"{IMAGES - 1:02d}.png"}
    assert set(troubles.values()) == {"it cannot be read (it is a named pipe, not a regular file)"}


@pytest.mark.parametrize("format", ["folders", "huggingface", "cvat-imagenet", "fiftyone", "cvat-xml"])
def test_an_export_comes_back(campaign: Path, tmp_path: Path, format: str) -> None:
    out = tmp_path / ("out.xml" if format == "cvat-xml" else "out")
    done = run("export", campaign, out, "--format", format)
    if format == "cvat-xml":  # holds no copies: the size of this image is left out, its label stays
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 3
        assert "it is a named pipe, not a regular file" in done.stderr
        assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_indexing_an_image_that_became_a_pipe_after_it_was_listed(campaign: Path, tmp_path: Path) -> None:
    assert campaign.is_dir()
    found = examine(tmp_path / "photos", ImageFile("00.png", FileStat(1, 2, 3)))
    assert found.trouble == "it cannot be read (it is a named pipe, not a regular file)"


def test_pools_archives_and_label_files_that_are_pipes_are_rejected(tmp_path: Path) -> None:
    for name in ("x.png", "x.zip", "x.tar.gz", "labels.csv"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(BadFile, match="a named pipe"):
        Files(tmp_path, ("x.png",), 8)[np.array([0])]
    with pytest.raises(BadFile, match="a named pipe"):
        Files(tmp_path / "x.zip", ("x.png",), 8)[np.array([0])]
    for name in ("x.zip", "x.tar.gz"):
        with pytest.raises(BadFile, match="a named pipe"), open_members(tmp_path / name) as members:
            list(members)
    with pytest.raises(BadFile, match="a named pipe"):
        sha256_of(tmp_path / "x.png")
    with pytest.raises(BadFile):
        list_pool(tmp_path / "labels.csv")


def test_importing_from_a_pipe_is_rejected(campaign: Path, tmp_path: Path) -> None:
    for name in ("labels.csv", "labels.json", "labels.xml", "labels.zip"):
        os.mkfifo(tmp_path / name)
        done = run("import", campaign, tmp_path / name)
        assert done.returncode == 3, name
        assert "Traceback" not in done.stderr


def test_a_picture_is_refused_and_its_threads_end(campaign: Path) -> None:
    with Campaign.open(campaign, read_only=True) as opened:
        keys = [row.key for row in list_images(opened.ledger) if row.path in ("00.png", f"{IMAGES - 1:02d}.png")]
        pictures = ImageRenderer(lambda query: query(opened.ledger))
        try:
            for key in keys:
                with pytest.raises(BadFile, match=f"cannot read the image {key}: it is a named pipe"):
                    asyncio.run(pictures.get(key, 160))
        finally:
            pictures.close()


def test_the_page_answers_and_its_server_still_ends_on_sigterm(campaign: Path) -> None:
    with Campaign.open(campaign, read_only=True) as opened:
        keys = [row.key for row in list_images(opened.ledger) if row.path in ("00.png", f"{IMAGES - 1:02d}.png")]
    command = [sys.executable, "-m", "tailwise", "label", str(campaign), "--no-open", "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            url, _, token = server.stdout.readline().strip().partition("/?token=")
            for key in keys:
                asked = urllib.request.Request(f"{url}/image/{key}?size=160", headers={"X-Tailwise-Token": token})
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(asked, timeout=PATIENCE)
                refused.value.close()
                assert refused.value.code not in (401, 403, 500)
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE)
        finally:
            server.kill()
