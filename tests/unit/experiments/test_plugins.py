"""`plugins = [...]` in an experiment file: a run with a pool and a learner of your own, and what can go wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.experiments.experiment import parse_experiment, read_experiment, trials_of
from tailwise.experiments.runner import collect, run_experiment
from tailwise.experiments.store import NOT_REPEATABLE, Store
from tailwise.learners import LEARNERS
from tailwise.pools import POOLS

HOME = Path(tailwise.__file__).parents[1]
FILE = """
name = "mine"
budget = 6
cycles = 2
seeds = [0, 1]
plugins = ["my_module"]
pool = { name = "blobs", settings = { size = 120 } }
imbalance = { factors = [0.5] }
start = { initial = 9 }
learner = { name = "nearest-mean", settings = { width = 4.0 } }
calibration = { kind = "none" }
strategies = [{ name = "random" }, { name = "entropy", balance = ["auto"] }]
"""
MODULE = """
import numpy as np

from tailwise.learners.learner import learner
from tailwise.pools import POOLS, LabelledImages, Pool


@POOLS.register("blobs")
def blobs(path=None, *, size=300):
    rng = np.random.default_rng(0)
    labels = np.arange(size) % 3
    points = rng.normal(size=(size, 3)) + 4 * np.eye(3)[labels]
    halves = np.array_split(np.arange(size), 2)
    train, test = (LabelledImages(points[rows], labels[rows], ("a", "b", "c")) for rows in halves)
    return Pool("blobs", train, test)


@learner
class NearestMean:
    name = "nearest-mean"

    def __init__(self, width=1.0):
        self.width = width

    def fit(self, inputs, labels, *, classes):
        import my_neighbour  # found when it runs, too

        self.means = my_neighbour.means(inputs, labels, classes)
        return self

    def predict_proba(self, inputs):
        weights = np.exp(-((inputs[:, None] - self.means) ** 2).sum(axis=2) / self.width)
        return weights / weights.sum(axis=1, keepdims=True)
"""
NEIGHBOUR = """
import numpy as np


def means(inputs, labels, classes):
    return np.array([inputs[labels == k].mean(axis=0) for k in range(classes)])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An experiment file with its module; what is registered and imported here is gone after the test."""
    (tmp_path / "mine.toml").write_text(FILE, encoding="utf-8")
    (tmp_path / "my_module.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "my_neighbour.py").write_text(NEIGHBOUR, encoding="utf-8")
    path, modules = list(sys.path), set(sys.modules)
    registries: tuple[dict[str, Any], ...] = (POOLS, LEARNERS)
    known = [set(registry) for registry in registries]
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]
    for registry, before in zip(registries, known, strict=True):
        for name in set(registry) - before:
            del registry[name]


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`tailwise bench` in another folder than that of the file."""
    environment = os.environ | {"PYTHONPATH": str(HOME), "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    (folder / "elsewhere").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "tailwise", "bench", *arguments], env=environment, cwd=folder / "elsewhere",
        capture_output=True, text=True, encoding="utf-8", timeout=300, check=False,
    )  # fmt: skip


def rows_of(folder: Path) -> dict[str, dict[str, object]]:
    pages = {
        path.parent.name + path.name: json.loads(path.read_bytes())["row"] for path in folder.glob("trials/*/*.json")
    }
    return {
        place: {name: value for name, value in page.items() if name not in NOT_REPEATABLE}
        for place, page in pages.items()
    }  # fmt: skip


def test_a_run_with_an_own_pool_and_learner_is_resumed_and_gives_what_one_process_gives(folder: Path) -> None:
    command = ("run", "../mine.toml", "--out", "out", "--processes", "2", "--no-report", "--json")
    first = bench(folder, *command)
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["rows"] == 12
    out = folder / "elsewhere" / "out"
    whole, trials = rows_of(out), sorted(out.glob("trials/*"))
    for path in trials[0].glob("cycle-0[12].json"):
        path.unlink()
    untouched = {path: path.stat().st_mtime_ns for trial in trials[1:] for path in trial.iterdir()}
    again = bench(folder, *command)
    assert again.returncode == 0, again.stderr
    assert rows_of(out) == whole
    assert {path: path.stat().st_mtime_ns for path in untouched} == untouched
    experiment = read_experiment(folder / "mine.toml")
    assert run_experiment(experiment, Store(folder / "here"), processes=1) == {}
    assert rows_of(folder / "here") == whole
    assert collect(experiment, Store(folder / "here"))[-1].accuracy > 0.9


def test_a_report_needs_no_plugins_and_the_kept_file_names_them(folder: Path) -> None:
    experiment = read_experiment(folder / "mine.toml")
    run_experiment(experiment.model_copy(update={"seeds": (0,)}), Store(folder / "out"), processes=1)
    kept = read_experiment(folder / "out" / "experiment.toml", to_run=False)
    assert kept.plugins == ("my_module",)
    (folder / "my_module.py").unlink()
    done = bench(folder, "status", "../out/experiment.toml", "--out", "../out", "--json")
    assert json.loads(done.stdout)["complete"] == 2, done.stderr
    failed = bench(folder, "run", "../mine.toml", "--out", "../out")
    assert failed.returncode != 0
    assert "cannot import the plugin 'my_module'" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_plugins_do_not_change_fingerprints(folder: Path) -> None:
    plain = 'name = "mine"\nbudget = 6\npool = { name = "digits" }\nstart = { initial = 9 }\n'
    for text in (plain, 'plugins = ["my_module"]\n' + plain):
        first = next(trials_of(parse_experiment(text, "test", folder=folder), "content"))
        assert first.fingerprint == "476bf2473ac21d73ac908e4e13422d9f05c1168a4afe061eb1f7eacd22dcb70b"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("import no_such_library", r"ModuleNotFoundError: No module named 'no_such_library' \(my_module.py, line 1\)"),
        ("x = (", r"SyntaxError: .*my_module.py, line 1"),
        ("\nraise SystemExit('bye')", r"SystemExit: bye \(my_module.py, line 2\)"),
        (MODULE.replace('"blobs"', '"digits"'), "ValueError: a pool called 'digits' is registered already; choose"),
        (None, r"ModuleNotFoundError: No module named 'my_module'\. A plugin must be installed or lie in "),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_an_error_with_the_reason(
    content: str | None, words: str, folder: Path
) -> None:
    if content is None:
        (folder / "my_module.py").unlink()
    else:
        (folder / "my_module.py").write_text(content, encoding="utf-8")
    with pytest.raises(BadInput, match=rf"mine.toml: cannot import the plugin 'my_module': {words}"):
        read_experiment(folder / "mine.toml")


@pytest.mark.parametrize("name", ["my_module.py", "./my_module", "", "my module"])
def test_what_is_not_the_name_of_a_module_is_rejected(name: str, folder: Path) -> None:
    with pytest.raises(BadInput, match=r"plugins holds .*; give the name of a module, such as 'my_module'"):
        parse_experiment(FILE.replace('"my_module"', json.dumps(name)), "test", folder=folder)


def test_another_module_of_the_same_name_is_not_taken_for_the_plugin(folder: Path) -> None:
    (folder / "json.py").write_text(MODULE, encoding="utf-8")
    with pytest.raises(BadInput, match=r"the plugin 'json' is .*, not .*json\.py: two modules have this name; rename"):
        parse_experiment(FILE.replace("my_module", "json"), "test", folder=folder)
