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


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadFile, match="cannot make the folder"):
        run_demo(tmp_path / "file" / "demo", "0", quiet=True)


@pytest.mark.slow
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
    folder = tmp_path / "tailwise-demo"
    assert (folder / "report.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    with (folder / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 6 * 8  # methods, cycles with the first model, seeds
    first = [row for row in rows if (row["cycle"], row["seed"]) == ("5", "0")]
    last = {(row["strategy"], row["balance"]): float(row["l1_score"]) for row in first}
    assert last["entropy", "auto"] < last["entropy", "0"]
    assert last["boundary", "auto"] < last["random", "0"]
