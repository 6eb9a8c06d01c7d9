"""What notebooks show: HTML of every value, progress, links without a token; and a library that is silent."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tailwise
from tailwise.types import ProgressBar

VOID = {"br", "img", "hr"}


class Checked(HTMLParser):
    """Raises where tags are not closed in order; gathers the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.opened == []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - of HTMLParser
        if tag not in VOID:
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if "style" not in self.opened else ""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tailwise.Campaign]:
    home = tmp_path_factory.mktemp("notebooks")
    photos = home / "photos"
    photos.mkdir()
    noise = np.random.default_rng(0)
    for number in range(24):
        pixels = noise.integers(0, 60, (16, 16), dtype=np.uint8) + np.uint8(150 * (number % 2))
        Image.fromarray(pixels).save(photos / f"{number:02}.png")
    with tailwise.Campaign.create(home / "birds", photos, ["<owl>", "kite"], backbone="simple") as made:
        yield made


def test_status_rounds_advice_and_the_next_round_are_shown_in_notebooks(campaign: tailwise.Campaign) -> None:
    cold = Checked(campaign.next(8)._repr_html_()).text
    assert "Round 1" in cold
    assert "without a model" in cold
    for number in range(24):
        campaign.label(f"{number:02}.png", ["<owl>", "kite"][number % 2]) if number < 16 else None
    made = campaign.next(2, allow_unfinished=True)
    shown = Checked(made._repr_html_()).text
    assert "Round 2 · 2 of 8 images" in shown
    assert "<owl>" in shown
    assert made.class_names == ("<owl>", "kite")
    status = Checked(campaign.status()._repr_html_()).text
    assert "16 of 24 images labelled" in status
    assert "<owl>8kite8" in status
    assert "Round 2: 0 of 2 images answered." in status
    rounds = campaign.rounds()
    table = Checked(rounds._repr_html_()).text
    assert "2 rounds" in table
    assert "closed" in table
    assert "learnt from" in table
    assert "closed" not in Checked(rounds[-1]._repr_html_()).text
    advice = campaign.advise()
    assert advice.because in Checked(advice._repr_html_()).text
    assert all(one.text in Checked(advice._repr_html_()).text for one in advice.evidence)


def test_a_path_shows_the_chosen_balance_and_what_it_costs() -> None:
    rng = np.random.default_rng(0)
    path = tailwise.balance_path(rng.dirichlet([5, 1, 1], 200), 20)
    shown = Checked(path._repr_html_()).text
    assert f"{path.chosen:.4g} ◂ chosen" in shown
    assert f"instead of {path.l1[0]:.1f} images from the target" in shown
    flat = tailwise.balance_path(np.full((6, 2), 0.5), 2, score=np.zeros(6), lams=[1.0])
    assert "0.0%" in Checked(flat._repr_html_()).text


def test_bars_are_as_long_as_their_values() -> None:
    picked = tailwise.select(np.array([[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]]), 3, score="margin", balance=0)
    html = picked._repr_html_()  # expected 1.25 and 1.75, target 1.5 each
    assert [f"width:{share:.1f}%" in html for share in (100 * 1.25 / 1.75, 100.0)] == [True, True]
    assert html.count(f"left:{100 * 1.5 / 1.75:.1f}%") == 2


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal_ends_its_line_when_the_work_is_done_and_when_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    stderr = Terminal()
    monkeypatch.setattr(sys, "stderr", stderr)
    bar = ProgressBar()
    bar(0.25, "fitting [a]")
    bar(1.0, "fitted")
    assert "fitting [a]" in stderr.getvalue()
    assert stderr.getvalue().count("\r") == 1
    assert stderr.getvalue().endswith("\n")
    failed = ProgressBar()
    failed(0.5, "x" * 500)
    assert stderr.getvalue().endswith("\r")
    del failed
    assert stderr.getvalue().endswith("\r\n")
    assert all(len(line) < 200 for line in stderr.getvalue().splitlines())


def test_without_a_terminal_a_bar_writes_lines_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar()
    for step in range(100):
        bar(step / 100, f"step {step}")
    bar(1.0, "done")
    assert capsys.readouterr().err.split() == ["0%", "step", "0", "100%", "done"]


def test_a_bar_takes_the_lines_of_select(capsys: pytest.CaptureFixture[str]) -> None:
    tailwise.select(np.full((30, 3), 1 / 3), 6, score="entropy", report=ProgressBar())
    ProgressBar()("a line")
    assert capsys.readouterr().err.endswith("a line\n")


def test_in_a_notebook_a_bar_is_one_picture_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython is not among the test's packages: what rich and the bar ask of it is put in its place."""
    pictures: list[tuple[str, str]] = []

    class Handle:
        def update(self, html: str) -> None:
            pictures.append(("update", html))

    def display(html: str, *, display_id: bool) -> Handle:
        assert display_id
        pictures.append(("display", html))
        return Handle()

    module = types.ModuleType("IPython.display")
    module.HTML, module.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    bar = ProgressBar()
    assert bar.interactive
    bar(0.5, "<fitting>")
    bar(1.0, "fitted")
    assert pictures == [
        ("display", "<progress value='0.500' max='1'></progress> &lt;fitting&gt;"),
        ("update", "<progress value='1.000' max='1'></progress> fitted"),
    ]


def test_a_campaign_reports_to_a_bar_and_shows_nothing_by_itself(
    campaign: tailwise.Campaign, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign.next(2, dry_run=True, allow_unfinished=True)
    assert capsys.readouterr() == ("", "")
    campaign.index(report=ProgressBar())
    assert "listing" in capsys.readouterr().err


# The page's link


def test_the_link_of_a_served_page_opens_it_without_the_token_and_ends_with_it(campaign: tailwise.Campaign) -> None:
    page = campaign.serve(port=0).start()
    try:
        token = (campaign.folder / "token").read_text(encoding="ascii").strip()
        assert page.serving is not None
        assert page.serving.link.endswith(token)
        shown = [page._repr_html_(), page.serving._repr_html_(), repr(page), repr(page.serving)]
        assert all(token not in text for text in shown)
        link = shown[0].split("href='")[1].split("'")[0]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), urllib.request.ProxyHandler({}))
        assert b"<html" in opener.open(link).read()
        stranger = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            stranger.open(link[:-4] + "oops")
    finally:
        page.stop()
    assert link not in page._repr_html_()
    with campaign.serve(port=0) as again:
        other = again._repr_html_().split("href='")[1].split("'")[0]
    assert other.split("token=")[1] != link.split("token=")[1]


def test_without_a_token_the_link_is_the_address(campaign: tailwise.Campaign) -> None:
    with campaign.serve(port=0, with_token=False) as page:
        assert f"href='{page.url}'" in page._repr_html_()


# Logging


def test_the_library_logs_and_is_silent_by_default(
    campaign: tailwise.Campaign, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, logger="tailwise"):
        tailwise.select(np.full((30, 3), 1 / 3), 6, score="entropy")
        campaign.index()
        campaign.next(2, dry_run=True, allow_unfinished=True)
    messages = caplog.messages
    assert messages[0].startswith("6 of 30 images by entropy: ")
    assert messages[1] == "indexed 1 folders: 0 new images, 24 known"
    assert messages[2].startswith("a dry run: 2 of 8 images by")
    (tmp_path / "torn.png").write_bytes(b"no image")
    script = (
        "import tailwise, sys; c = tailwise.Campaign.create('c', sys.argv[1], ['a']); print(len(c.index().quarantined))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path.parent
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "1", "")
