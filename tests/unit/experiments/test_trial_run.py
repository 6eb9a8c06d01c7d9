"""What a trial starts from, with the counts of the paper, and how long the parts of its cycles take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tailwise.experiments import trial_run
from tailwise.experiments.experiment import Experiment, PoolPart, parse_experiment, read_experiment, trials_of
from tailwise.experiments.store import Store
from tailwise.experiments.trial_run import TrialSetup, open_setup
from tailwise.learners import make_learner
from tailwise.learners.learner import Model
from tailwise.pools.pool import Inputs

# PAPER: preset, classes, images per class; by imbalance factor the images of a frequent and a rare class in the pool,
# and of all images with the first set.
PAPER = [
    ("paper-cifar10", 10, 5000, {1.0: (4500, 4500, 50_000), 0.3: (4500, 1350, 34_250), 0.1: (4500, 450, 29_750)}),
    ("paper-cifar100", 100, 500, {1.0: (450, 450, 50_000), 0.3: (450, 135, 34_250), 0.1: (450, 45, 29_750)}),
    ("paper-tinyimagenet", 200, 500, {1.0: (450, 450, 100_000), 0.3: (450, 135, 68_500), 0.1: (450, 45, 59_500)}),
]


def on_labels_alone(preset: str, classes: int, each: int, folder: Path) -> Experiment:
    """A preset on as many images as the data set has, each a single number."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each))
    x = np.zeros((len(labels), 1), np.float32)
    few = np.arange(classes)
    np.savez(folder / "labels.npz", x_train=x, y_train=labels, x_test=x[:classes], y_test=few)
    pool = PoolPart(name="features", path=str(folder / "labels.npz"))
    return read_experiment(preset).model_copy(update={"pool": pool})


@pytest.mark.parametrize(("preset", "classes", "each", "wanted"), PAPER)
def test_the_worlds_of_a_paper_preset_have_the_counts_of_the_paper(
    preset: str, classes: int, each: int, wanted: dict[float, tuple[int, int, int]], tmp_path: Path
) -> None:
    experiment = on_labels_alone(preset, classes, each, tmp_path)
    assert experiment.imbalance.factors == tuple(wanted)
    assert experiment.start.initial == classes * each // 10
    assert experiment.budget == classes * each // 20
    setups: dict[float, TrialSetup] = {trial.factor: open_setup(trial) for trial in first_of_each_factor(experiment)}
    for factor, (frequent, rare, total) in wanted.items():
        setup = setups[factor]
        left = setup.left(setup.split.labelled)
        assert setup.pool.train.take(setup.split.labelled).counts().tolist() == [each // 10] * classes
        assert setup.pool.train.take(left).counts().tolist() == [frequent] * (classes // 2) + [rare] * (classes // 2)
        assert len(setup.split.labelled) + len(left) == total
    assert len({setup.split.labelled.tobytes() for setup in setups.values()}) == 1  # it depends on the seed alone


def first_of_each_factor(experiment: Experiment) -> list:
    found = {}
    for trial in trials_of(experiment):
        found.setdefault(trial.factor, trial)
    return list(found.values())


class Clock:
    """A clock that stands still until somebody moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Clocked:
    """A linear model for which every fit and every prediction takes a known time."""

    name: ClassVar[str] = "clocked"
    clock: Clock
    model: Model | None = None
    classes: int = 10

    def fit(self, inputs: Inputs, labels: np.ndarray, **settings: Any) -> Clocked:  # noqa: ANN401 - a learner's
        self.clock.now += 1000 if len(inputs) in (30, 50) else 1  # else folds of the calibration
        settings = {name: value for name, value in settings.items() if name != "checkpoint"}
        return replace(self, model=make_learner("linear").fit(inputs, labels, **settings))

    def predict_proba(self, inputs: Inputs) -> np.ndarray:
        assert self.model is not None
        self.clock.now += 100 if len(inputs) == 400 else 10 if len(inputs) > 400 else 1  # test set, pool, fold
        return np.asarray(self.model.predict_proba(inputs))

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)


@pytest.mark.parametrize(("calibration", "calibrating"), [("none", False), ("temperature", True)])
def test_each_part_of_a_cycle_has_its_own_seconds(
    calibration: str, calibrating: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock)
    monkeypatch.setattr(trial_run, "make_learner", lambda *_, **__: Clocked(clock))
    text = (
        'name = "timed"\nbudget = 20\ncycles = 1\nseeds = [0]\npool = { name = "digits" }\nstart = { initial = 30 }\n'
        'imbalance = { factors = [0.2] }\nstrategies = [{ name = "entropy" }]\n'
        f'calibration = {{ kind = "{calibration}", folds = 2 }}\n'
    )
    (trial,) = trials_of(parse_experiment(text, "test"))
    rows = trial_run.run_trial(trial, Store(tmp_path))
    assert [row.seconds_fit for row in rows] == [1000, 1000]
    assert [row.seconds_predict for row in rows] == [10, 10]  # the pool alone
    assert [row.seconds_test for row in rows] == [100, 100]
    assert [row.seconds_select for row in rows] == [0, 0]
    assert (0 < rows[0].seconds_calibrate < 10) is calibrating
    assert rows[1].seconds_calibrate == 0


@pytest.mark.parametrize("initial", [10, 30])  # below two labels per class boundary has no quotas yet, and λ is 0
def test_exact_quotas_stay_exact_where_a_found_lambda_is_kept(initial: int, tmp_path: Path) -> None:
    text = f"""
        name = "quotas"
        budget = 12
        cycles = 3
        seeds = [0]
        pool = {{ name = "digits" }}
        imbalance = {{ factors = [0.1] }}
        start = {{ initial = {initial} }}
        strategies = [{{ name = "boundary", balance = ["auto"] }}]
    """
    first = parse_experiment(text, "a test")
    every = first.model_copy(update={"lam": "every"})
    rows = []
    for name, experiment in (("first", first), ("every", every)):
        (trial,) = trials_of(experiment)
        rows.append(trial_run.run_trial(trial, Store(tmp_path / name)))
    assert [row.counts for row in rows[0]] == [row.counts for row in rows[1]]
    assert rows[0][2].status == "optimal chunks"
