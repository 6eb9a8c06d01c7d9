"""Every script in examples/ runs, and what Tailwise adds to a user's code is at most ten lines."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
NEEDED = {"pytorch": ["torch"], "hugging_face": ["datasets", "transformers"], "scikit_activeml": ["skactiveml"]}
MARK = "# Tailwise\n"  # after the data and the model that a user has


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs_and_prints_its_picks(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in NEEDED.get(script.stem, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert "picks" in capsys.readouterr().out


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_tailwise_adds_is_at_most_ten_lines(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text.count(MARK) == 1
    added = [line for line in text.split(MARK)[1].splitlines() if line.strip() and not line.startswith("#")]
    assert 0 < len(added) <= 10
    assert ast.get_docstring(ast.parse(text))


def test_there_is_a_script_for_every_adapter() -> None:
    assert {"pytorch", "scikit_learn", "scikit_activeml", "hugging_face"} <= {script.stem for script in SCRIPTS}
