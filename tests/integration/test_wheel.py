"""The wheel, installed outside the checkout, does what a newcomer tries first: `make wheel` builds and installs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest

TAILWISE = os.environ.get("TAILWISE_WHEEL", "")  # the command of the environment with the wheel
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not TAILWISE, reason="needs the wheel in an environment of its own; run `make wheel`"),
]


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run([TAILWISE, *arguments], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def serve(folder: Path, *arguments: str) -> str:
    """Start a page, load it by its link, and stop it as Ctrl-C does; what it said."""
    command = [TAILWISE, *arguments, "--no-open", "--port", "0"]
    said = ""
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said += line
                link = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", line)
                if link:
                    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # as the link logs in
                    with browser.open(link[0], timeout=60) as answer:
                        assert "<title>" in answer.read().decode()
                    process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
    return said


def test_the_command_is_that_of_the_wheel(tmp_path: Path) -> None:
    python = Path(TAILWISE).with_name("python")
    where = subprocess.run(
        [python, "-c", "import tailwise; print(tailwise.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "site-packages" in where


def test_select_picks_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "proba.npy", np.random.default_rng(0).dirichlet([3.0, 2.0, 1.0], size=500))
    assert "20 of 500 images" in run(tmp_path, "select", "proba.npy", "--budget", "20", "--out", "picks.csv")
    assert len((tmp_path / "picks.csv").read_text(encoding="utf-8").splitlines()) == 21


def test_quickstart_and_a_campaign_open_their_pages(tmp_path: Path) -> None:
    assert "round 1: 0 of 20 answered" in serve(tmp_path, "quickstart")
    images = tmp_path / "tailwise-quickstart" / "images"
    classes = "circle,square,triangle,star,cross"
    assert "300 images" in run(tmp_path, "init", "shapes", "--images", str(images), "--classes", classes)
    assert "Round 1: 10 of 300 images" in run(tmp_path, "next", "shapes", "--budget", "10")
    assert "round 1: 0 of 10 answered" in serve(tmp_path, "label", "shapes")


def test_the_demo_ends_with_its_table_and_report(tmp_path: Path) -> None:
    assert "gain" in run(tmp_path, "demo")
    assert (tmp_path / "tailwise-demo" / "report.html").is_file()
