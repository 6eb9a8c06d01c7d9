"""The files on the page about plugins work as they are printed: the experiment runs, the package is found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import tailwise

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
HOME = Path(tailwise.__file__).parents[1]
GROUPS = {"tailwise.strategies", "tailwise.learners", "tailwise.pools", "tailwise.formats", "tailwise.backbones"}


def write_files(folder: Path) -> None:
    """Every block of the page that begins with the name of a file."""
    text = PAGE.read_text(encoding="utf-8")
    for content, name in re.findall(r"^```\w+\n(# (\S+\.\w+)\n.*?)^```$", text, re.DOTALL | re.MULTILINE):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(HOME)]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tailwise", *arguments], cwd=folder, env=environment | {"PYTHONUTF8": "1"},
        capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_experiment_of_the_page_runs(tmp_path: Path) -> None:
    write_files(tmp_path)
    done = json.loads(run(tmp_path, "bench", "run", "mine.toml", "--processes", "1", "--no-report", "--json"))
    assert (done["failed"], done["rows"]) == ({}, 40)


def test_the_package_of_the_page_is_found(tmp_path: Path) -> None:
    write_files(tmp_path)
    points = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    about = tmp_path / "birds-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: birds\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"[{group}]\n{name} = {value}\n" for group, one in points.items() for name, value in one.items()]
    (about / "entry_points.txt").write_text("".join(lines), encoding="utf-8")
    listed = json.loads(run(tmp_path, "strategies", "--json"))["strategies"]
    assert {"name": "longest", "what": "Images with the longest embeddings"}.items() <= listed[
        [row["name"] for row in listed].index("longest")
    ].items()


def test_the_page_names_every_group() -> None:
    from tailwise.formats import FORMATS
    from tailwise.learners import BACKBONES, LEARNERS
    from tailwise.pools import POOLS
    from tailwise.strategies import STRATEGIES

    named = set(re.findall(r"^\| `(tailwise\.\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    registries = (STRATEGIES, LEARNERS, POOLS, FORMATS, BACKBONES)
    assert named == GROUPS
    assert {registry.group for registry in registries} <= GROUPS | {""}  # "": a test has asked for an unknown name
