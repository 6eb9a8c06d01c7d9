from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from PIL import Image

import tailwise
from tailwise.report.figures import STYLE, path_figure, write_figure
from tailwise.strategies.select import BalancePath


@pytest.fixture(scope="module")
def path() -> BalancePath:
    proba = np.random.default_rng(0).dirichlet([4.0, 2.0, 0.5], size=60)
    return tailwise.balance_path(proba, 10, lams=[0.5, 1.0, 2.0])


def test_the_path_is_drawn_with_its_numbers_and_the_chosen_lambda(path: BalancePath) -> None:
    figure = path_figure(path)
    drawn = [axes.lines[0].get_xydata() for axes in figure.axes]
    for line, values in zip(drawn, (path.informativeness, path.l1, path.l1_score), strict=True):
        np.testing.assert_array_equal(line, np.column_stack([path.lam, values]))
    for axes in figure.axes:
        assert f"λ = {path.chosen:.3g}" in [text.get_text() for text in axes.texts]
        assert axes.lines[1].get_xdata()[0] == path.chosen


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_same_figure_gives_the_same_bytes(path: BalancePath, tmp_path: Path, suffix: str, start: bytes) -> None:
    written = []
    for name in ("one", "two"):
        write_figure(path_figure(path), tmp_path / f"{name}{suffix}")
        written.append((tmp_path / f"{name}{suffix}").read_bytes())
    assert written[0] == written[1]
    assert written[0].startswith(start)


def test_png_files_have_a_palette_that_nobody_sees(path: BalancePath, tmp_path: Path) -> None:
    figure = path_figure(path)
    write_figure(figure, tmp_path / "small.png")
    with mpl.rc_context(STYLE):
        figure.savefig(tmp_path / "whole.png")
    with Image.open(tmp_path / "small.png") as small, Image.open(tmp_path / "whole.png") as whole:
        assert (small.mode, small.size) == ("P", whole.size)
        assert small.info["dpi"] == whole.info["dpi"]
        drawn, wanted = (np.asarray(image.convert("RGB"), dtype=np.int64) for image in (small, whole))
    assert np.abs(drawn - wanted).max() < 20
    assert (drawn[(wanted == 255).all(axis=2)] == 255).all()  # white stays white
    assert (tmp_path / "small.png").stat().st_size < (tmp_path / "whole.png").stat().st_size / 2


def test_text_stays_text_in_svg(path: BalancePath, tmp_path: Path) -> None:
    write_figure(path_figure(path), tmp_path / "path.svg")
    assert "l1 distance from the target" in (tmp_path / "path.svg").read_text(encoding="utf-8")


def test_pyplot_and_its_global_state_stay_out() -> None:
    probe = "import sys, tailwise.report.figures; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
