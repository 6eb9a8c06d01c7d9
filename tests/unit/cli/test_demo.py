from __future__ import annotations

import csv
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tailwise.cli.bench import run_demo
from tailwise.errors import BadFile


def test_the_demo_compares_every_method_and_names_its_report_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "demo"
    run_demo(folder, "0", quiet=False)
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1] == f"Report:  {folder / 'report.html'}"
    for method in ("Random", "Entropy", "Entropy-CB", "Margin", "Boundary-CB", "Boundary-CB, the default, against"):
        assert any(line.startswith(f"{method} ") for line in shown), method
    assert (folder / "report.html").read_text().lower().startswith("<!doctype html>")
    with (folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 6
    last = {(row["strategy"], row["balance"]): float(row["l1_score"]) for row in rows if row["cycle"] == "5"}
    assert last["entropy", "auto"] < last["entropy", "0"]
    assert last["boundary", "auto"] < last["random", "0"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot make the folder"):
        run_demo(tmp_path / "file" / "demo", "0", quiet=True)


@pytest.mark.slow
def test_make_demo_takes_less_than_two_minutes_on_a_single_core(tmp_path: Path) -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:.*\n\t@\$\(BIN\)/tailwise demo$", makefile, re.MULTILINE)  # what is timed is what it runs
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "tailwise", "demo"], cwd=tmp_path, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tailwise-demo" / "report.html").is_file()
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime  # other work on the machine apart
    assert seconds < 120
