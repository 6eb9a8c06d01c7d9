"""Studies that go on from published rows: what is whole there is not run again, all else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality.published import Continued, by_trial, read_published
from tailwise.bench.config import Experiment, parse_experiment
from tailwise.bench.pool_record import identify
from tailwise.bench.results import Row
from tailwise.bench.runner import collect, run_experiment, status_of
from tailwise.bench.trials import Trial, trials_of

FILE = """
name = "tiny"
budget = 20
cycles = 1
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "entropy" }]
"""


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return parse_experiment(FILE, "test")


@pytest.fixture(scope="module")
def rows(tiny: Experiment, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder = tmp_path_factory.mktemp("whole")
    assert run_experiment(tiny, Continued(folder), processes=1) == {}
    return read_published(folder / "results.csv")


def trial(tiny: Experiment, seed: int, strategy: str) -> Trial:
    trials = trials_of(tiny, identify(tiny.pool).content)
    (found,) = (one for one in trials if (one.seed, one.part.name) == (seed, strategy))
    return found


def test_only_what_is_not_published_is_run(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    marked = [replace(row, accuracy=0.125) for row in rows if (row.seed, row.strategy) != (1, "entropy")]
    store = Continued(tmp_path / "on", by_trial(marked))
    assert status_of(tiny, store).complete == 3
    assert run_experiment(tiny, store, processes=1) == {}
    assert {path.name.split("_")[2] for path in (store.folder / "trials").iterdir()} == {"entropy"}
    found = {(row.seed, row.strategy, row.cycle): row.accuracy for row in collect(tiny, store)}
    assert len(found) == len(rows)
    for row in rows:
        fresh = (row.seed, row.strategy) == (1, "entropy")
        assert found[row.seed, row.strategy, row.cycle] == (row.accuracy if fresh else 0.125)


def test_a_trial_that_is_published_in_part_is_run(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    store = Continued(tmp_path, by_trial(row for row in rows if row.cycle == 0))
    assert not any(store.is_complete(one) for one in trials_of(tiny))


def test_what_the_folder_holds_whole_comes_first(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    store = Continued(tmp_path, by_trial(replace(row, accuracy=0.125) for row in rows))
    assert not list(Continued(tmp_path).cycles(trial(tiny, 0, "random")))
    assert [cycle.row.accuracy for cycle in store.cycles(trial(tiny, 0, "random"))] == [0.125, 0.125]
    assert run_experiment(tiny, Continued(tmp_path), processes=1) == {}
    kept = [row.accuracy for row in rows if (row.seed, row.strategy) == (0, "random")]
    assert [cycle.row.accuracy for cycle in store.cycles(trial(tiny, 0, "random"))] == kept


def test_where_nothing_is_published_there_are_no_rows(tmp_path: Path) -> None:
    assert read_published(tmp_path / "results.csv") == []
