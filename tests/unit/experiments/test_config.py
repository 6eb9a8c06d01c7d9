"""Experiment files: what is written is read, what is wrong is said before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.experiments.experiment import parse_experiment, presets, read_experiment
from tailwise.experiments.runner import collect, run_experiment
from tailwise.experiments.store import Store
from tailwise.learners import make_learner
from tailwise.strategies.strategy import DEFAULT

SMALLEST = """
name = "mine"
budget = 5
pool = { name = "digits" }
start = { initial = 20 }
strategies = [{ name = "entropy", balance = [0, "auto"] }]
"""


def test_the_smallest_file_shows_every_default_when_it_is_written_out() -> None:
    experiment = parse_experiment(SMALLEST, "test")
    written = experiment.to_toml()
    assert parse_experiment(written, "again") == experiment
    values = tomllib.loads(written)
    assert values["cycles"] == 4
    assert values["imbalance"] == {"profile": "step", "factors": [1.0, 0.3, 0.1], "tail": "last"}
    assert values["calibration"]["kind"] == experiment.calibration.kind
    assert values["strategies"][0]["balance"] == [0.0, "auto"]


def test_without_strategies_the_default_runs_with_those_that_it_should_beat() -> None:
    shortest = "\n".join(line for line in SMALLEST.splitlines() if not line.startswith("strategies"))
    parts = parse_experiment(shortest, "test").strategies
    assert {part.name: part.balance for part in parts} == {
        "random": (0.0,), "margin": (0.0,), "entropy": (0.0, "auto"), DEFAULT: ("auto",),
    }  # fmt: skip
    assert parts == read_experiment("demo-digits").strategies


def test_the_shipped_presets_are_those_that_are_promised_and_read_back_the_same() -> None:
    found = {one.name: one for one in presets()}
    assert {
        "demo-digits", "cifar10-features", "cifar10-small", "tinyimagenet-features",
        "paper-cifar10", "paper-cifar100", "paper-tinyimagenet",
    } <= set(found)  # fmt: skip
    for name, one in found.items():
        assert read_experiment(name) == one
        assert parse_experiment(one.to_toml(), name) == one
        assert one.about


def test_the_paper_presets_have_the_published_settings() -> None:
    cifar = read_experiment("paper-cifar10")
    assert (cifar.start.initial, cifar.budget, cifar.cycles, cifar.imbalance.factors) == (
        5000,
        2500,
        4,
        (1.0, 0.3, 0.1),
    )
    assert cifar.learner.name == "resnet18"
    balances = {part.name: part.balance for part in cifar.strategies}
    assert balances["entropy"] == (0.0, 0.6)
    assert balances["kcenter"] == (0.0, 0.5)
    tiny = read_experiment("paper-tinyimagenet")
    assert (tiny.start.initial, tiny.budget, tiny.learner.name) == (10_000, 5_000, "resnet101")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("budgte = 3", "budgte"),
        ("cycles = 0", "cycles"),
        ("seeds = [1, 1]", "seeds holds something twice"),
        ("seeds = []", "seeds must be"),
        ("imbalance = { factors = [] }", "imbalance.factors is empty"),
        ("imbalance = { factors = [0.5, 0.5] }", "imbalance.factors holds a number twice"),
        ("imbalance = { profile = 'stairs' }", "imbalance.profile"),
        ("learner = { name = 'linaer' }", "did you mean 'linear'"),
        ("vaal = { stpes = 1 }", "vaal has no setting 'stpes'"),
        ("vaal = { steps = 0 }", "VAAL needs at least one step"),
        ("learner = { settings = { strenght = 1 } }", "no setting 'strenght'"),
    ],
)
def test_a_fault_is_named_before_anything_runs(change: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        parse_experiment(f"{change}\n{SMALLEST}", "mine.toml")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"entropy"', '"entorpy"', "did you mean 'entropy'"),
        ('"auto"', '"atuo"', "balance is 'atuo'"),
        ('"digits"', '"digist"', "did you mean 'digits'"),
        ('"mine"', '"My Experiment"', "name"),
        ("budget = 5", "budget = 0", "budget"),
    ],
)
def test_a_wrong_value_is_named(old: str, new: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        parse_experiment(SMALLEST.replace(old, new), "mine.toml")


@pytest.mark.parametrize(
    "entries",
    [
        '{ name = "entropy", balance = [0, 0.0] }',
        '{ name = "entropy", balance = [0.5, "0.50"] }',
        '{ name = "entropy" }, { name = "entropy" }',
        '{ name = "entropy", balance = [0.5, "auto"] }, { name = "entropy", balance = ["auto"] }',
        '{ name = "kcenter" }, { name = "kcenter", settings = { parts = 1 } }',  # 1 is the default
    ],
)
def test_the_same_strategy_twice_is_rejected(entries: str) -> None:
    with pytest.raises(BadInput, match=r"strategies holds '\w+' with balance .* twice, with the same settings"):
        parse_experiment(SMALLEST.replace('{ name = "entropy", balance = [0, "auto"] }', entries), "mine.toml")


@pytest.mark.parametrize(
    "entries",
    [
        '{ name = "entropy", balance = [0.1234567, 0.12345678] }',
        '{ name = "kcenter" }, { name = "kcenter", settings = { parts = 4 } }',
        '{ name = "entropy", balance = [0.5] }, { name = "entropy", balance = [0.5], settings = { gap = 0.1 } }',
    ],
)
def test_a_strategy_may_come_twice_with_different_settings(entries: str) -> None:
    experiment = parse_experiment(SMALLEST.replace('{ name = "entropy", balance = [0, "auto"] }', entries), "mine.toml")
    assert parse_experiment(experiment.to_toml(), "again") == experiment


def test_names_that_are_not_known_here_can_be_read_for_a_report() -> None:
    text = SMALLEST.replace('"digits"', '"unheard-of"').replace('"entropy"', '"mine"') + '[learner]\nname = "ours"\n'
    with pytest.raises(BadInput, match="no pool is called 'unheard-of'"):
        parse_experiment(text, "mine.toml")
    experiment = parse_experiment(text, "mine.toml", to_run=False)
    assert (experiment.pool.name, experiment.strategies[0].name, experiment.learner.name) == (
        "unheard-of",
        "mine",
        "ours",
    )
    with pytest.raises(BadInput, match="seeds holds something twice"):
        parse_experiment(f"seeds = [1, 1]\n{text}", "mine.toml", to_run=False)


def test_no_toml_no_file_and_no_preset_are_told_apart(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text("name = ")
    with pytest.raises(BadFile, match="is not valid TOML"):
        read_experiment(broken)
    with pytest.raises(BadFile, match="no file at"):
        read_experiment(tmp_path / "absent.toml")
    with pytest.raises(UnknownName, match=r"did you mean 'demo-digits'.*must end in \.toml"):
        read_experiment("demo-digit")


# -- learners as objects ----------------------------------------------------------------------------------------------


class Pairs:
    """A learner with a setting that no file can hold."""

    def __init__(self, pairs: object = None) -> None:
        self.pairs = pairs

    def fit(self, inputs: np.ndarray, labels: np.ndarray) -> Pairs:  # noqa: ARG002 - never fitted
        return self

    def predict_proba(self, inputs: np.ndarray) -> np.ndarray:
        return inputs


def test_an_estimator_is_kept_as_its_class_and_the_settings_that_differ() -> None:
    forest = RandomForestClassifier(np.int64(7), max_depth=3, max_features=0.5)
    part = read_experiment("demo-digits").with_learner(forest).learner
    assert part.settings == {"n_estimators": 7, "max_depth": 3, "max_features": 0.5}
    assert repr(make_learner(part.name, **part.settings)) == repr(forest).replace("np.int64(7)", "7")


def test_a_learner_of_ours_is_kept_under_its_name() -> None:
    part = read_experiment("demo-digits").with_learner(make_learner("linear", dropout=0.25)).learner
    assert (part.name, part.settings) == ("linear", {"dropout": 0.25})


def test_an_experiment_with_a_learner_object_runs_and_its_file_gives_it_again(tmp_path: Path) -> None:
    text = """
name = "mine"
budget = 10
cycles = 1
seeds = [0]
pool = { name = "digits" }
imbalance = { factors = [0.1] }
start = { initial = 30 }
calibration = { kind = "none" }
strategies = [{ name = "entropy" }]
"""
    experiment = parse_experiment(text, "text").with_learner(GaussianNB(var_smoothing=1e-2))
    store = Store(tmp_path)
    run_experiment(experiment, store, processes=1)
    assert {row.learner for row in collect(experiment, store)} == {"sklearn.naive_bayes:GaussianNB"}
    assert parse_experiment(experiment.to_toml(), "again") == experiment


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (make_pipeline(GaussianNB()), r"setting 'steps' is of type list; give the experiment the name of a class"),
        (Pairs({"a": 1}), r"setting 'pairs' is of type dict"),
        (StandardScaler(), "is not a class with fit and predict_proba"),
        ("linear", "is not a class with fit|is not a learner"),
    ],
)
def test_a_learner_that_cannot_be_written_down_is_rejected_with_what_to_do(learner: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_experiment("demo-digits").with_learner(learner)
