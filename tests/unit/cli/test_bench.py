"""`tailwise bench`: results are run, found and reported for the data they belong to, also when it is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tailwise.cli.output import run

FILE = """
name = "mine"
budget = 6
cycles = 1
seeds = [0]
pool = { name = "features" }
imbalance = { factors = [0.5] }
start = { initial = 9 }
strategies = [
    { name = "random" },
    { name = "kcenter", balance = [0, 0.5, 0.5000001] },
    { name = "kcenter", balance = [0, 0.5], settings = { parts = 2 } },
]
"""
METHODS = [
    "Random", "KCenter", "KCenter (parts 2)", "KCenter-CB (λ = 0.5)", "KCenter-CB (λ = 0.5, parts 2)",
    "KCenter-CB (λ = 0.5000001)",
]  # fmt: skip


pytestmark = pytest.mark.usefixtures("quick_figures", "quick_sweeps")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("mine.toml").write_text(FILE, encoding="utf-8")
    for seed in (1, 2):
        write(tmp_path / f"v{seed}" / "features.npz", seed)
    return tmp_path


def write(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = {"train": np.arange(90) % 3, "test": np.arange(30) % 3}
    path.parent.mkdir(exist_ok=True)
    inputs = {f"x_{half}": np.eye(3, 5)[y] + rng.normal(size=(len(y), 5)) for half, y in labels.items()}
    np.savez(path, **inputs, **{f"y_{half}": y for half, y in labels.items()})


def bench(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    found = run(["bench", *arguments])
    printed = capsys.readouterr()
    assert found == code, printed.err
    return printed.out, printed.err


RUN = ("run", "mine.toml", "--processes", "1", "--out", "out")


def test_two_entries_of_a_strategy_and_close_balances_run_and_are_reported_under_their_own_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench(capsys, *RUN, "--data", "v1/features.npz", "--quiet", "--no-report")
    shown, _ = bench(capsys, "report", "mine.toml", "--out", "out")
    assert all(f" {name} " in f" {shown} " for name in METHODS)
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in page for name in METHODS)
    status, _ = bench(capsys, "status", "mine.toml", "--out", "out")
    assert "kcenter λ=0.5 (parts=2)" in status
    assert "6 of 6 trials are complete" in status


def test_a_report_is_of_the_data_that_is_named_and_needs_it_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    answers = {}
    for version in ("v1", "v2"):
        data = ("--data", f"{version}/features.npz")
        answers[version] = json.loads(bench(capsys, *RUN, *data, "--json", "--no-report")[0])["gains"]
    assert answers["v1"] != answers["v2"]
    for version in ("v1", "v2"):
        Path(version, "features.npz").unlink()
        found, _ = bench(capsys, "report", "mine.toml", "--out", "out", "--data", f"{version}/features.npz", "--json")
        assert json.loads(found)["gains"] == answers[version]
    _, error = bench(capsys, "report", "mine.toml", "--out", "out", code=3)
    assert "name one with --data: v1/features.npz, v2/features.npz" in error
    _, error = bench(capsys, "report", "mine.toml", "--out", "out", "--data", "v3/features.npz", code=3)
    assert "has no results for v3/features.npz" in error


def test_changed_data_is_noted_by_run_and_report(capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", "v1/features.npz")
    _, error = bench(capsys, *RUN, *data, "--quiet", "--no-report")
    assert "note:" not in error
    write(Path("v1/features.npz"), 3)
    _, error = bench(capsys, "report", "mine.toml", "--out", "out", *data, "--json")
    assert "note: v1/features.npz has changed since these results were computed" in error
    _, error = bench(capsys, *RUN, *data, "--quiet", "--no-report")
    assert "note: v1/features.npz has changed since an earlier run; results of the new data are kept apart" in error


def test_results_of_a_version_that_recorded_no_data_are_noted_and_adopted_on_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tailwise.experiments.experiment import read_experiment, trials_of
    from tailwise.experiments.store import Store

    data = ("--data", "v1/features.npz")
    before = json.loads(bench(capsys, *RUN, *data, "--json", "--no-report")[0])["gains"]
    store, experiment = Store(Path("out")), read_experiment("mine.toml")
    old = experiment.model_copy(update={"pool": experiment.pool.model_copy(update={"path": data[1]})})
    (content,) = (record.content for record in store.pool_records())
    for then, now in zip(trials_of(old), trials_of(old, content), strict=True):
        store.trial(now).rename(store.trial(then))
    Path("out/pools.json").unlink()
    found, error = bench(capsys, "report", "mine.toml", "--out", "out", *data, "--json")
    assert json.loads(found)["gains"] == before
    assert "note: an older version of Tailwise computed these results" in error
    assert "<dd>not recorded</dd>" in Path("out/report.html").read_text(encoding="utf-8")
    _, error = bench(capsys, *RUN, *data, code=3)
    assert "run again with --adopt to go on with them; else give another --out" in error
    assert json.loads(bench(capsys, *RUN, *data, "--adopt", "--json", "--no-report")[0])["gains"] == before


SCRIPT = """
from pathlib import Path

import numpy as np

from tailwise.experiments.experiment import parse_experiment
from tailwise.experiments.runner import run_experiment
from tailwise.experiments.store import Store
from tailwise.pools import LabelledImages, POOLS, Pool

@POOLS.register("blobs")
def blobs(path=None):
    labels = np.arange(120) % 3
    x = (np.eye(3, 5)[labels] + np.random.default_rng(0).normal(size=(120, 5))).astype(np.float32)
    images = LabelledImages(x, labels, ("red", "green", "blue"))
    return Pool("blobs", images.take(np.arange(90)), images.take(np.arange(90, 120)))

text = Path("mine.toml").read_text(encoding="utf-8").replace("features", "blobs")
assert run_experiment(parse_experiment(text, "script"), Store(Path("out")), processes=1) == {}
"""


def test_a_pool_that_a_program_registered_is_reported_without_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=300)
    found, _ = bench(capsys, "report", "out/experiment.toml", "--out", "out", "--json")
    assert json.loads(found)["rows"] == 12
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert any(f">{name}<" in page for name in ("red", "green", "blue"))
    status, _ = bench(capsys, "status", "out/experiment.toml", "--out", "out", "--json")
    assert json.loads(status)["complete"] == 6
    _, error = bench(capsys, "run", "out/experiment.toml", "--out", "out", code=3)
    assert "no pool is called 'blobs'" in error
