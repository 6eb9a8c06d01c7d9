"""Every notebook in examples/ runs, its cells in order in a fresh process, and is stored without outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
NEEDED = {"own_pytorch_model": "torch"}
FEWER_ROWS = "20000"
# As a kernel does it: the cells in order, in one namespace; what the last line of a cell gives is shown.
RUNNER = """
import ast, json, sys
import matplotlib
matplotlib.use("agg")
names = {"__name__": "__main__"}
for number, cell in enumerate(json.loads(sys.stdin.read()), start=1):
    tree = ast.parse(cell, f"cell {number}")
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, f"cell {number}", "exec"), names)
    value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
    if value is not None:
        print(value._repr_html_() if hasattr(value, "_repr_html_") else value)
"""


def read(notebook: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return content


def code(notebook: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in read(notebook)["cells"] if cell["cell_type"] == "code"]


def test_there_are_five_notebooks() -> None:
    names = {"campaign", "compare_strategies", "million_rows", "own_pytorch_model", "quickstart"}
    assert {path.stem for path in NOTEBOOKS} == names


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_stored_without_outputs(notebook: Path) -> None:
    content = read(notebook)
    assert (content["nbformat"], content["nbformat_minor"]) == (4, 5)
    assert content["cells"][0]["cell_type"] == "markdown"
    assert len({cell["id"] for cell in content["cells"]}) == len(content["cells"])
    for cell in content["cells"]:
        assert cell.get("outputs", []) == []
        assert cell.get("execution_count") is None
    assert notebook.stat().st_size < 10_000


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    if notebook.stem in NEEDED:
        pytest.importorskip(NEEDED[notebook.stem])
    surroundings = {**os.environ, "TAILWISE_ROWS": FEWER_ROWS, "TMPDIR": str(tmp_path), "TEMP": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", RUNNER],
        input=json.dumps(code(notebook)), capture_output=True, text=True, cwd=tmp_path, env=surroundings, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "class='tailwise'" in done.stdout or notebook.stem == "compare_strategies"
