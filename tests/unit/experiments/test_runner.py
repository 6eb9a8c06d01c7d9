"""Running experiments: all of it, once, the same whatever the number of processes, and on after kill −9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.experiments import trial_run
from tailwise.experiments.experiment import Experiment, Row, Trial, parse_experiment, trials_of
from tailwise.experiments.runner import Watcher, collect, run_experiment, status_of
from tailwise.experiments.store import NOT_REPEATABLE, Store, read_rows
from tailwise.targets import Target

FILE = """
name = "tiny"
budget = 20
cycles = 2
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
calibration = { kind = "both", folds = 2 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "entropy", balance = [0, "paper"] }, { name = "kcenter", balance = [0.5] }]
"""


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return parse_experiment(FILE, "test")


@pytest.fixture(scope="module")
def finished(tiny: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("whole"))
    assert run_experiment(tiny, store, processes=1) == {}
    return store


def repeatable(rows: list[Row]) -> list[dict[str, object]]:
    """Rows as text, without the times: NaN equals NaN, and floats are equal to the last bit."""
    kept = [{name: value for name, value in asdict(row).items() if name not in NOT_REPEATABLE} for row in rows]
    return [{name: repr(value) for name, value in row.items()} for row in kept]


def test_every_cycle_of_every_trial_has_a_row_that_adds_up(tiny: Experiment, finished: Store) -> None:
    rows = collect(tiny, finished)
    assert len(rows) == 2 * 4 * 3
    assert status_of(tiny, finished).complete == 8
    for row in rows:
        assert row.labelled == 30 + 20 * row.cycle == sum(row.counts)
        assert row.picks == sum(row.realised) == (20 if row.cycle < 2 else 0)
        assert 0 <= row.accuracy <= 1
        if row.cycle < 2:
            assert sum(row.expected) == pytest.approx(20)
    for before, after in pairwise(rows):
        if after.cycle:
            grown = [n + more for n, more in zip(before.counts, before.realised, strict=True)]
            assert list(after.counts) == grown


def test_the_tables_hold_what_the_folder_holds(tiny: Experiment, finished: Store) -> None:
    assert repeatable(read_rows(finished.folder / "results.csv")) == repeatable(collect(tiny, finished))
    assert parse_experiment((finished.folder / "experiment.toml").read_text(), "kept") == tiny


def test_the_names_of_the_classes_and_the_status_of_every_batch_are_kept(tiny: Experiment, finished: Store) -> None:
    assert finished.class_names() == {"digits": tuple("0123456789")}
    found: dict[str, set[str]] = {}
    for row in read_rows(finished.folder / "results.csv"):
        method = row.strategy if row.balance == "0" else f"{row.strategy}-cb"
        found.setdefault(method if row.cycle < tiny.cycles else "last", set()).add(row.status)
    assert found.pop("entropy-cb") <= {"optimal", "within gap", "best found"}
    assert found == {"random": {"optimal"}, "entropy": {"optimal"}, "kcenter-cb": {"greedy"}, "last": {""}}


def test_cycle_0_is_the_same_for_all_strategies_of_a_seed(tiny: Experiment, finished: Store) -> None:
    first = [row for row in collect(tiny, finished) if row.cycle == 0]
    assert len({(row.seed, row.accuracy, row.counts, row.recalls) for row in first}) == 2
    assert len(list((finished.folder / "models").iterdir())) == 2


def test_lambda_is_found_in_the_first_cycle_and_kept(tiny: Experiment, finished: Store) -> None:
    swept = [row for row in collect(tiny, finished) if row.balance == "paper" and row.cycle < 2]
    for first, second in zip(swept[::2], swept[1::2], strict=True):
        assert first.lam == second.lam > 0


@pytest.mark.parametrize("form", ["uniform", "paper"])
def test_batches_are_measured_by_the_target_of_the_file(form: str, tmp_path: Path) -> None:
    text = FILE.replace("start = { initial = 30 }", 'start = { initial = 90, draw = "pool" }')
    text = text.replace("seeds = [0, 1]", f'seeds = [0]\ntarget = "{form}"').replace('[0, "paper"]', "[0.5]")
    experiment = parse_experiment(text, "test")
    run_experiment(experiment, Store(tmp_path), processes=1)
    rows = [row for row in collect(experiment, Store(tmp_path)) if row.cycle < 2]
    targets = {"uniform": Target.uniform(), "paper": Target.paper()}
    for row in rows:
        wanted = {name: target.resolve(row.counts, 20).low for name, target in targets.items()}
        assert wanted["paper"].sum() > 20.1 or row.cycle  # some class has too many already
        assert row.l1 == pytest.approx(np.abs(wanted[form] - row.expected).sum(), rel=1e-5)


def test_auto_goes_by_the_scores_of_each_cycle(tmp_path: Path) -> None:
    automatic = FILE.replace("seeds = [0, 1]", "seeds = [0]").replace('[0, "paper"]', '["auto"]')
    experiment = parse_experiment(automatic, "test")
    run_experiment(experiment, Store(tmp_path), processes=1)
    first, second = (row.lam for row in collect(experiment, Store(tmp_path)) if row.balance == "auto" and row.cycle < 2)
    assert first != second


def test_nothing_is_done_twice(tiny: Experiment, finished: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(trial_run, "fit", never)
    assert run_experiment(tiny, finished, processes=1) == {}


def test_two_processes_give_the_same_rows_as_one(tiny: Experiment, finished: Store, tmp_path: Path) -> None:
    heard: list[str] = []

    class Listener(Watcher):
        def line(self, trial: Trial, done: float, what: str) -> None:
            assert 0 <= done <= 1
            heard.append(f"{trial.title}: {what}")

        def finished(self, trial: Trial, rows: list[Row]) -> None:
            heard.append(f"{trial.title}: {len(rows)} rows")

    assert run_experiment(tiny, Store(tmp_path), processes=2, watchers=(Listener(),)) == {}
    assert repeatable(collect(tiny, Store(tmp_path))) == repeatable(collect(tiny, finished))
    assert sum(line.endswith(": 3 rows") for line in heard) == 8
    assert any("choosing" in line for line in heard)


def wait_for_the_end(group: int) -> None:
    """Wait until all processes of a session have ended."""
    deadline = time.monotonic() + 300
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            assert time.monotonic() < deadline, "a worker of a killed run is still there"
            time.sleep(0.02)


@pytest.mark.long
def test_a_run_that_is_killed_goes_on_to_the_same_bits(tiny: Experiment, finished: Store, tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(FILE)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tailwise", "bench", "run", str(file), "--out", str(out), "--processes", "2", "-q"]
    for _ in range(2):
        child = subprocess.Popen([*command, "--no-report"], start_new_session=True)
        before = len(list(out.glob("trials/*/*.json")))
        deadline = time.monotonic() + 300
        while len(list(out.glob("trials/*/*.json"))) < before + 3 and child.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGKILL)  # the parent alone: its workers must end by themselves
        child.wait()
        wait_for_the_end(group=child.pid)
    assert 0 < status_of(tiny, Store(out)).cycles_done < 24
    subprocess.run([*command, "--no-report"], check=True, timeout=600)
    assert repeatable(collect(tiny, Store(out))) == repeatable(collect(tiny, finished))


def test_a_second_run_in_the_same_folder_is_refused(tiny: Experiment, tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / ".lock").open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BadFile, match="another run is at work"):
            run_experiment(tiny, Store(tmp_path), processes=1)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_trial_that_cannot_run_is_named_and_the_others_go_on(tmp_path: Path, processes: int) -> None:
    text = FILE.replace("initial = 30", "initial = 20").replace("seeds = [0, 1]", "seeds = [0]")
    text = text.replace('{ name = "entropy", balance = [0, "paper"] }', '{ name = "vaal" }, { name = "entropy" }')
    broken = parse_experiment(text, "test")
    broken = broken.model_copy(update={"vaal": {"device": "abacus"}})
    failed = run_experiment(broken, Store(tmp_path), processes=processes)
    assert len(failed) == 1
    assert "vaal" in next(iter(failed))
    assert status_of(broken, Store(tmp_path)).complete == 3


def test_a_damaged_model_is_trained_again(tiny: Experiment, finished: Store, tmp_path: Path) -> None:
    store = Store(tmp_path)
    trial = next(trials_of(tiny))
    trial_run.first_model(trial, store)
    (folder,) = (tmp_path / "models").iterdir()
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-3])
    rows = trial_run.run_trial(trial, store)
    assert repeatable(rows) == repeatable(collect(tiny, finished)[:3])


def test_the_pool_may_run_out(tmp_path: Path) -> None:
    text = FILE.replace("budget = 20", "budget = 700").replace("seeds = [0, 1]", "seeds = [0]")
    short = parse_experiment(text, "test")
    assert run_experiment(short, Store(tmp_path), processes=1) == {}
    rows = collect(short, Store(tmp_path))
    assert status_of(short, Store(tmp_path)).complete == 4
    assert sum(rows[-1].pool_counts) == 0
