from __future__ import annotations

import csv
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tailwise.cli import bench
from tailwise.cli.bench import run_demo
from tailwise.errors import BadFile


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot make the folder"):
        run_demo(tmp_path / "file" / "demo", "0", quiet=True)


@pytest.mark.long
def test_make_demo_compares_every_method_in_less_than_two_minutes_on_a_single_core(tmp_path: Path) -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:.*\n\t@\$\(BIN\)/tailwise demo$", makefile, re.MULTILINE)  # what is timed is what it runs
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "tailwise", "demo"], cwd=tmp_path, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime  # other work on the machine apart
    assert seconds < 120
    shown = done.stdout.splitlines()
    assert shown[-1] == f"Report:  {Path('tailwise-demo', 'report.html')}"
    for method in ("Random", "Entropy", "Entropy-CB", "Margin", "Boundary-CB", "Boundary-CB, the default, against"):
        assert any(line.startswith(f"{method} ") for line in shown), method
    assert shown[0].startswith("This demo shows how much more a model learns from the labels that Tailwise")
    table = [
        line.split() for line in shown if re.match(r"(Random|Entropy|Entropy-CB|Margin|Boundary-CB)  +\d\d\.\d ", line)
    ]
    base, *others = table[:5]
    assert base[0] == "Random"
    for words in others:  # method, accuracy, gain, ±, error, adjusted accuracy, …: gains are differences as printed
        for at, place in ((1, 1), (5, 2), (9, 3)):
            gain = float(words[at + 1].replace("−", "-").strip("()"))
            assert round(float(words[at]) - float(base[place]), 1) == gain
    page = (tmp_path / "tailwise-demo" / "report.html").read_text(encoding="utf-8")
    opening = page[page.index("<h1>") : page.index("<nav>")]
    assert "With Boundary-CB, the default, accuracy is" in opening
    assert "with decisions adjusted to equal class shares" in opening
    assert opening.count("<figure>") == 1
    assert "Accuracy, plain and adjusted" in opening
    folder = tmp_path / "tailwise-demo"
    assert (folder / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    with (folder / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 6 * 8  # methods, cycles with the first model, seeds
    first = [row for row in rows if (row["cycle"], row["seed"]) == ("5", "0")]
    last = {(row["strategy"], row["balance"]): float(row["l1_score"]) for row in first}
    assert last["entropy", "auto"] < last["entropy", "0"]
    assert last["boundary", "auto"] < last["random", "0"]


def test_a_line_is_written_every_few_seconds_while_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []

    def heard() -> list[str]:
        lines.extend(capsys.readouterr().err.splitlines())
        return lines

    def until(question: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 60
        while not question():
            assert time.monotonic() < end, what
            time.sleep(0.01)

    assert bench.EVERY <= 2.5  # two waits in a row stay within five seconds
    monkeypatch.setattr(bench, "EVERY", 0.02)
    with bench.lively("reading the data", quiet=False) as show:
        until(lambda: "reading the data …" in heard(), "the first step")
        show("figure 2")
        until(lambda: "figure 2 …" in heard(), "the second step")
    with bench.lively("nothing", quiet=True) as show:
        show("nothing")
    heard()
    assert "nothing" not in lines
