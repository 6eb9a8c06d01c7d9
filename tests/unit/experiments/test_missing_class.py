"""A class that nobody has labelled yet: every learner, every strategy, calibration and the report work all the same."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tailwise.cli.output import run
from tailwise.cycle import Asking, choose, fit, mark
from tailwise.experiments.store import read_rows
from tailwise.experiments.trial_run import RecordingOracle
from tailwise.learners import LEARNERS, Learner, Model, make_learner
from tailwise.learners.vaal import VaalSettings
from tailwise.pools.pool import LabelledImages
from tailwise.strategies import STRATEGIES, make

NET = {"epochs": 1, "milestones": (), "batch": 16, "width": 4, "weights": "", "device": "cpu"}
QUICK: dict[str, dict[str, object]] = {
    "mlp": {"width": 8, "least_steps": 30},
    "resnet18": NET,
    "resnet10": NET,
    "resnet8": NET,
    "resnet101": NET | {"stem": "3x3"},
    "frozen": {"backbone": "torch.nn:Flatten", "size": 0},
}
SMALL_VAAL = VaalSettings(steps=2, batch=4, channels=(4, 4, 4, 4), hidden=(8, 4), critic=8, device="cpu")
BUDGET = 7


def images(count: int, seed: int, classes: tuple[int, ...]) -> LabelledImages:
    """Images (count, 8, 8, 3) whose class shows in their brightness, of some of four classes."""
    labels = np.tile(classes, count)[:count]
    noise = np.random.default_rng(seed).integers(0, 100, (count, 8, 8, 3))
    return LabelledImages((noise + 40 * labels[:, None, None, None]).astype(np.uint8), labels, ("a", "b", "c", "d"))


@cache
def fitted(name: str) -> tuple[Learner, Model, LabelledImages]:
    labelled = images(18, 0, (0, 1, 3))
    learner = make_learner(name, **QUICK.get(name, {}))
    return learner, fit(learner, labelled, seed=0), labelled


def balances(name: str) -> tuple[float | str, ...]:
    return (0.0,) if name in {"coreset", "direct", "galaxy"} else (0.0, 0.7, "auto")


def balances_with(learner: str, strategy: str) -> tuple[float | str, ...]:
    """All of them with the learner that is quick to train, and one with each of the others, in turn."""
    wanted = balances(strategy)
    turn = list(LEARNERS).index(learner) + list(STRATEGIES).index(strategy)
    return wanted if learner == "linear" else (wanted[turn % len(wanted)],)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("learner", list(LEARNERS))
def test_every_strategy_chooses_with_every_learner_and_the_model_stays_as_it_is(learner: str, strategy: str) -> None:
    teacher, model, labelled = fitted(learner)
    truth = images(40, 1, (0, 1, 2, 3))
    pool, oracle = truth.inputs, RecordingOracle(truth.labels)
    before = model.predict_proba(pool)
    for balance in balances_with(learner, strategy):
        asking = Asking(folds=2, passes=2, vaal=SMALL_VAAL)  # each fold trains the learner again
        made = choose(
            make(strategy, balance=balance),
            teacher,
            model,
            labelled,
            pool,
            BUDGET,
            asking=asking,
            seed=3,
            oracle=oracle,
        )
        picks = made.selection.indices
        assert len(set(picks.tolist())) == BUDGET
        assert np.isfinite(made.selection.expected_counts).all()
        assert np.isfinite(made.shares).all()
    assert np.array_equal(model.predict_proba(pool), before)


@pytest.mark.parametrize("kind", ["temperature", "prior", "both"])
@pytest.mark.parametrize("learner", list(LEARNERS))
def test_calibration_works_with_every_learner(learner: str, kind: str) -> None:
    teacher, model, labelled = fitted(learner)
    pool = images(40, 1, (0, 1, 2, 3))
    balanced, asking = make("entropy", balance=1.0), Asking(kind, folds=2)
    made = choose(balanced, teacher, model, labelled, pool.inputs, BUDGET, asking=asking, seed=3)
    assert made.calibration.temperature > 0
    assert math.isclose(made.selection.expected_counts.sum(), BUDGET, rel_tol=1e-4)
    marks = mark(model, pool, made.shares)
    assert 0 <= marks.adjusted_accuracy <= 1
    assert np.isfinite(marks.recalls).all()


@pytest.mark.usefixtures("quick_figures", "quick_sweeps")
def test_an_experiment_whose_first_set_lacks_classes_is_run_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), [60, 40, 20, 2, 1])
    test_labels = np.repeat(np.arange(5), [10, 10, 10, 10, 0])  # and one that is not tested
    features, test_features = (
        (np.eye(5, 6)[own] * 2 + rng.normal(size=(len(own), 6))).astype(np.float32) for own in (labels, test_labels)
    )
    names = np.array(["Bär", "b", "c", "rare", "rarest"])
    np.savez("p.npz", x_train=features, y_train=labels, x_test=test_features, y_test=test_labels, class_names=names)
    lines = "\n".join(
        f'[[strategies]]\nname = "{name}"\nbalance = {[one for one in balances(name) if one != 0.7]}'.replace("'", '"')
        for name in STRATEGIES
    )
    Path("rare.toml").write_text(
        'name = "rare"\nbudget = 12\ncycles = 1\nseeds = [0]\npasses = 3\n[pool]\nname = "features"\npath = "p.npz"\n'
        "[imbalance]\nfactors = [1.0]\n[start]\ninitial = 8\ndraw = 'pool'\n[calibration]\nkind = 'both'\nfolds = 2\n"
        f"[vaal]\nsteps = 3\nbatch = 4\nhidden = [8, 4]\ncritic = 8\n{lines}\n",
        encoding="utf-8",
    )
    assert run(["bench", "run", "rare.toml", "--processes", "1", "--quiet"]) == 0
    rows = read_rows(Path("tailwise-runs/rare/results.csv"))
    assert {row.strategy for row in rows} == set(STRATEGIES)
    for row in rows:
        assert row.labelled == 8 + 12 * row.cycle
        assert row.cycle or row.counts[3:] == (0, 0)
        assert all(math.isfinite(one) for one in (row.accuracy, row.adjusted_accuracy, row.balanced_accuracy))
        assert [math.isnan(recall) for recall in row.recalls] == [False] * 4 + [True]
    assert Path("tailwise-runs/rare/report.html").is_file()
