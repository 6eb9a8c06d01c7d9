"""Experiment files: what is written is read, what is wrong is said before anything runs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tailwise.errors import BadFile, BadInput, UnknownName
from tailwise.experiments.experiment import parse_experiment, presets, read_experiment
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
