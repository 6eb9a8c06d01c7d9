"""Trials: all of them, once, under names that tell different results apart."""

from __future__ import annotations

import numpy as np

from tailwise.experiments.experiment import Experiment, Trial, balance_name, parse_experiment, trials_of

FILE = """
name = "mine"
budget = 5
cycles = 2
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [1.0, 0.1] }
start = { initial = 20 }
strategies = [{ name = "random" }, { name = "entropy", balance = [0, "auto", 0.5] }]
"""


def experiment(change: str = "") -> Experiment:
    """The experiment, with "old→new" changed in its file."""
    old, _, new = change.partition("→")
    assert old in FILE
    return parse_experiment(FILE.replace(old, new) if old else FILE, "test")


def names(one: Experiment, content: str = "") -> set[str]:
    return {trial.folder for trial in trials_of(one, content)}


def test_there_is_one_trial_per_factor_seed_strategy_and_balance() -> None:
    trials = list(trials_of(experiment()))
    assert len(trials) == 2 * 2 * 4
    assert len({trial.fingerprint for trial in trials}) == len(trials)
    assert len({trial.folder for trial in trials}) == len(trials)


def test_whole_seeds_come_first() -> None:
    assert [trial.seed for trial in trials_of(experiment())] == [0] * 8 + [1] * 8


def test_what_changes_the_results_changes_the_name() -> None:
    base = names(experiment())
    for change in (
        "budget = 5→budget = 6", "initial = 20→initial = 30", 'name = "digits"→name = "cifar10"',
        "factors = [1.0, 0.1]→factors = [0.99, 0.2]", "cycles = 2→passes = 3", 'cycles = 2→lam = "every"',
        'cycles = 2→calibration = { kind = "prior" }', "cycles = 2→learner = { settings = { strength = 2.0 } }",
    ):  # fmt: skip
        assert not base & names(experiment(change)), change


def test_more_seeds_strategies_or_cycles_leave_the_others_as_they_are() -> None:
    base = names(experiment())
    for change in ("seeds = [0, 1]→seeds = [0, 1, 2]", '"auto", 0.5→"auto", 0.5, 0.7', "cycles = 2→cycles = 3",
                   'name = "mine"→name = "other"', "1.0, 0.1→1.0, 0.1, 0.3"):  # fmt: skip
        assert base <= names(experiment(change)), change


def test_where_the_files_lie_is_not_part_of_the_name() -> None:
    here = experiment('{ name = "digits" }→{ name = "digits", path = "a/pool.npz" }')
    there = experiment('{ name = "digits" }→{ name = "digits", path = "b/pool.npz" }')
    other = experiment('{ name = "digits" }→{ name = "digits", path = "b/other.npz" }')
    assert names(here) == names(there)
    assert not names(here) & names(other)
    assert names(here, "content 1") == names(there, "content 1") == names(other, "content 1")


def test_data_of_another_content_is_another_trial_whatever_its_path() -> None:
    assert not names(experiment(), "content 1") & names(experiment(), "content 2")
    assert not names(experiment(), "content 1") & names(experiment())
    first, second = (next(trials_of(experiment(), content)) for content in ("content 1", "content 2"))
    assert first.model_key(np.arange(5)) != second.model_key(np.arange(5))


def test_balances_are_told_apart_to_the_last_digit() -> None:
    close = (0.1234567, 0.12345678, 0.1 + 0.2, 0.3, 1e-7, 1e6, 1e6 + 0.5)
    for content in ("", "content 1"):
        trials = list(trials_of(experiment(f'[0, "auto", 0.5]→[{", ".join(map(repr, close))}]'), content))
        assert len({trial.folder for trial in trials}) == len(trials)
    assert len({balance_name(value) for value in close}) == len(close)
    assert balance_name(0.5) == balance_name("0.5") == balance_name("0.50") == "0.5"


def test_settings_of_a_strategy_are_part_of_the_title() -> None:
    two = experiment('{ name = "random" }→{ name = "kcenter" }, { name = "kcenter", settings = { parts = 4 } }')
    titles = [trial.title for trial in trials_of(two) if trial.part.name == "kcenter"]
    assert len(set(titles)) == len(titles)
    assert titles[1] == "balanced, seed 0, kcenter λ=0 (parts=4)"


def test_a_model_is_shared_by_all_trials_that_start_with_the_same_images_and_no_others() -> None:
    trials = list(trials_of(experiment()))
    first, second = np.arange(5), np.arange(1, 6)

    def key(trial: Trial, labelled: np.ndarray = first) -> str:
        return trial.model_key(labelled)

    assert len({key(trial) for trial in trials if trial.seed == 0}) == 1
    assert key(trials[0]) != key(trials[-1])  # another seed
    assert key(trials[0]) != key(trials[0], second)
    other = next(trials_of(experiment("cycles = 2→learner = { settings = { strength = 2.0 } }")))
    assert key(other) != key(trials[0])
