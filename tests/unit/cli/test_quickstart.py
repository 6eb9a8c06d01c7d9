"""`tailwise quickstart`: the drawings, the campaign on them, the page; and folders of others are left alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tailwise
from tailwise.cli.output import Form
from tailwise.cli.quickstart import ABOUT, NOTE, SHAPES, claim, draw_shape, draw_shapes, outline, run_quickstart
from tailwise.errors import BadFile, BadInput
from tailwise.types import no_progress


def test_drawings_are_the_same_each_time_and_their_names_do_not_say_what_they_show(tmp_path: Path) -> None:
    for name in ("a", "b"):
        draw_shapes(tmp_path / name, no_progress)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files == [f"{number:03}.png" for number in range(1, 1 + sum(SHAPES.values()))]
    assert all((tmp_path / "a" / one).read_bytes() == (tmp_path / "b" / one).read_bytes() for one in files)
    assert len({(tmp_path / "a" / one).read_bytes() for one in files}) == len(files)  # no copies
    (tmp_path / "a" / "001.png").write_bytes(b"mine")
    draw_shapes(tmp_path / "a", no_progress)
    assert (tmp_path / "a" / "001.png").read_bytes() == b"mine"
    assert max(SHAPES.values()) >= 8 * min(SHAPES.values())


@pytest.mark.parametrize(("name", "area"), [("circle", np.pi), ("square", 2.0), ("triangle", 3 * 3**0.5 / 4)])
def test_outlines_enclose_the_area_of_their_shape(name: str, area: float) -> None:
    x, y = outline(name).T
    found = abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2
    assert found == pytest.approx(area, rel=0.01)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_dark_on_a_light_ground_and_within_the_picture(name: str) -> None:
    for seed in range(5):
        image = draw_shape(name, np.random.default_rng(seed))
        grey = np.asarray(image.convert("L")).astype(int)
        assert isinstance(image, Image.Image)
        border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
        assert border.min() > 150
        assert 0.05 < (grey < 150).mean() < 0.6


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "photo.jpg").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"was not made by `tailwise quickstart`; name another with --folder"):
        run_quickstart(tmp_path / "mine", {"port": 0, "open_browser": False}, Form.QUIET)
    (tmp_path / "mine" / NOTE).write_text("my notes", encoding="utf-8")
    with pytest.raises(BadInput, match="was not made by"):
        claim(tmp_path / "mine")
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [NOTE, "photo.jpg"]
    with pytest.raises(BadFile, match="is a file"):
        run_quickstart(tmp_path / "mine" / "photo.jpg", {}, Form.QUIET)
    assert not claim(tmp_path / "new" / "folder")
    assert claim(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder" / NOTE).read_text(encoding="utf-8") == ABOUT


@pytest.mark.skipif(sys.platform == "win32", reason="a Ctrl-C cannot be sent to one process there")
def test_a_first_label_is_given_and_the_next_call_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tailwise", "quickstart", "--folder", "try", "--no-open", "--json", "--port", "0"]
    for labels in (0, 1):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            found = json.loads(process.stdout.readline())
            try:
                assert (found["images"], found["classes"], found["round"]) == (sum(SHAPES.values()), list(SHAPES), 1)
                opener = urllib.request.build_opener(
                    urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({})
                )
                assert b"<html" in opener.open(found["link"]).read()
            finally:
                process.send_signal(signal.SIGINT)
            assert process.wait() == 0
        with tailwise.Campaign.open(found["campaign"]) as campaign:
            assert campaign.status().labelled == labels
            assert len(campaign.rounds()) == 1
            campaign.label("001.png", "circle")


def test_a_few_rounds_find_more_rare_shapes_than_chance_does(tmp_path: Path) -> None:
    from tailwise.campaign.images import find_image
    from tailwise.cli.quickstart import SEED, _campaign

    claim(tmp_path / "try")
    draw_shapes(tmp_path / "try" / "images", no_progress)
    names = np.random.default_rng(SEED).permutation(np.repeat(list(SHAPES), list(SHAPES.values()))).tolist()
    with _campaign(tmp_path / "try") as campaign:
        for _ in range(4):
            for pick in campaign.next(20).picks:
                path = find_image(campaign.ledger, pick.image).path
                campaign.label(path, names[int(path[:3]) - 1])
        counts = Counter(campaign.labels().values())
    rare = ("star", "cross")
    by_chance = sum(counts.values()) * sum(SHAPES[name] for name in rare) / sum(SHAPES.values())
    assert sum(counts[name] for name in rare) > 1.5 * by_chance
    assert min(counts[name] for name in SHAPES) >= 5
