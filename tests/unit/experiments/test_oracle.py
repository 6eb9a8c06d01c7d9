"""Labels that are read inside a batch: in experiments only, only those of the batch, and checked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput, UnknownName
from tailwise.experiments import trial_run
from tailwise.experiments.experiment import Experiment, parse_experiment
from tailwise.experiments.store import Store
from tailwise.experiments.trial_run import RecordingOracle, trials_of
from tailwise.matrix.shards import Column
from tailwise.strategies import STRATEGIES
from tailwise.strategies.strategy import Base, Task, strategy

READING = [name for name in STRATEGIES if STRATEGIES[name].reads_labels]


def experiment(name: str) -> Experiment:
    return parse_experiment(
        f"""
name = "reading"
budget = 25
cycles = 2
seeds = [0]
pool = {{ name = "digits" }}
imbalance = {{ factors = [0.2] }}
start = {{ initial = 30 }}
strategies = [{{ name = "{name}" }}]
""",
        "test",
    )


@pytest.fixture
def oracles(monkeypatch: pytest.MonkeyPatch) -> list[RecordingOracle]:
    """Every oracle that an experiment makes, with what it was asked."""
    made: list[RecordingOracle] = []

    class Kept(RecordingOracle):
        def __init__(self, labels: np.ndarray) -> None:
            super().__init__(labels)
            made.append(self)

    monkeypatch.setattr(trial_run, "RecordingOracle", Kept)
    return made


@pytest.mark.parametrize("name", [*READING, "entropy"])
def test_an_experiment_gives_labels_of_the_batch_and_no_others(
    name: str, tmp_path: Path, oracles: list[RecordingOracle]
) -> None:
    (trial,) = trials_of(experiment(name))
    store = Store(tmp_path)
    trial_run.run_trial(trial, store)
    setup, cycles = trial_run.open_setup(trial), list(store.cycles(trial))
    labelled = setup.split.labelled
    assert len(oracles) == len(cycles) - 1 == 2
    for cycle, oracle in zip(cycles[:-1], oracles, strict=True):
        asked = setup.left(labelled)[oracle.asked]
        assert set(asked.tolist()) <= set(cycle.picks.tolist())
        assert bool(oracle.asked) == (name in READING)
        labelled = np.append(labelled, cycle.picks)


@pytest.fixture
def peeking() -> Iterator[str]:
    @strategy
    @dataclass(frozen=True, kw_only=True)
    class Peeking(Base):
        """Reads labels of images that it does not pick."""

        name: ClassVar[str] = "peeking"
        reads_labels: ClassVar[bool] = True

        def choose(self, task: Task, _predictions: tailwise.Predictions, _costs: Column) -> tailwise.Selection:
            assert task.oracle is not None
            task.oracle(np.arange(task.budget + 3))
            return task.selection(np.arange(task.budget), informativeness=0.0, balance=0.0, lam=0.0, method=self.name)

    yield "peeking"
    del STRATEGIES["peeking"]


def test_a_strategy_that_reads_other_labels_is_rejected(peeking: str, tmp_path: Path) -> None:
    (trial,) = trials_of(experiment(peeking))
    with pytest.raises(
        BadInput, match=r"'peeking' has read the labels of 3 images that are not in its batch, .* row 25"
    ):
        trial_run.run_trial(trial, Store(tmp_path))


def test_rows_that_do_not_exist_are_rejected() -> None:
    for rows in ([3], [-1]):
        with pytest.raises(BadInput, match="rows go from 0 to 2"):
            RecordingOracle(np.zeros(3, dtype=np.int64))(np.array(rows))


@pytest.mark.parametrize("name", READING)
def test_select_and_paths_say_why_they_cannot_use_it(name: str) -> None:
    proba = np.full((5, 2), 0.5)
    for call in (tailwise.select, tailwise.balance_path):
        with pytest.raises(BadInput, match=f"'{name}' reads the label of each pick before it makes the next one"):
            call(proba, 2, score=name)
    with pytest.raises(UnknownName, match="no score is called 'kcenter'"):
        tailwise.select(proba, 2, score="kcenter")
