"""Runs one trial: Algorithm 1 with an oracle that knows the labels, cycle by cycle, resumed after a crash.

Also the λ sweep of the cycle-0 model (Fig. 4), with the two methods that it is compared to.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..adapters.sklearn import as_learner
from ..cycle import Asking, Choice, Marks, Seconds, choose, class_shares, fit, mark
from ..errors import BadFile, BadInput
from ..files import write_whole
from ..inputs import shown
from ..learners import make_learner
from ..learners.learner import Learner, Model
from ..pools import Pool, Split, split
from ..processes import one_blas_thread
from ..strategies import make
from ..strategies.select import balance_path
from ..strategies.strategy import Strategy
from ..targets import Target, l1_score
from ..types import Float64Array, IntArray, Predictions, Progress, no_progress
from .experiment import Experiment, Row, Trial, balance_name, trials_of
from .store import Cycle, Store, read_pool, recorded_content

NO_PICKS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class TrialSetup:
    """What all trials of one imbalance and one seed share."""

    pool: Pool
    split: Split
    learner: Learner
    target: Target

    def left(self, labelled: IntArray) -> IntArray:
        """What is not labelled yet, ascending."""
        return np.setdiff1d(np.union1d(self.split.labelled, self.split.unlabelled), labelled)


def open_setup(trial: Trial) -> TrialSetup:
    """Read the pool and split it; both depend on the file and the seed alone."""
    experiment = trial.experiment
    pool = read_pool(experiment.pool, trial.content)
    parts = split(
        pool.train.labels, pool.train.classes, tail=trial.tail, initial=experiment.start.initial,
        draw=experiment.start.draw, seed=trial.seed,
    )  # fmt: skip
    named = experiment.learner
    learner = as_learner(make_learner(named.name, **named.settings), named.name)
    return TrialSetup(pool, parts, learner, Target.paper() if experiment.target == "paper" else Target.uniform())


def run_trial(trial: Trial, store: Store, report: Progress = no_progress) -> list[Row]:
    """Do what is not done yet, and give all rows."""
    done = list(store.cycles(trial))
    if store.is_complete(trial, done):
        return [cycle.row for cycle in done]
    with one_blas_thread():
        setup = open_setup(trial)
        for number in range(len(done), trial.experiment.cycles + 1):
            cycle = _run_cycle(trial, setup, store, done, number, _named(report, trial, number))
            store.keep(trial, cycle)
            done.append(cycle)
            if cycle.exhausted:
                break
    return [cycle.row for cycle in done]


def first_model(trial: Trial, store: Store, report: Progress = no_progress) -> None:
    """Train and keep the model of cycle 0, which all trials of the seed share."""
    with one_blas_thread():
        model_of_cycle_0(trial, open_setup(trial), store, _named(report, trial, 0))


def model_of_cycle_0(trial: Trial, setup: TrialSetup, store: Store, report: Progress) -> Model:
    """The shared model: read, or trained and kept; a damaged one is trained again."""
    labelled = setup.split.labelled
    folder = store.folder / "models" / trial.model_key(labelled)
    if folder.is_dir():
        try:
            return setup.learner.load(folder)
        except BadFile as fault:
            report(0.0, f"training again: {fault}")
    model = _train(trial, setup, labelled, 0, folder.with_name(f"{folder.name}.checkpoint"), report)
    folder.parent.mkdir(parents=True, exist_ok=True)
    model.save(folder)
    return model


def _run_cycle(
    trial: Trial, setup: TrialSetup, store: Store, done: list[Cycle], number: int, report: Progress
) -> Cycle:
    """Fit → predict → select → label, once."""
    started = time.perf_counter()
    labelled = np.sort(np.concatenate([setup.split.labelled, *(cycle.picks for cycle in done)]))
    checkpoint = store.trial(trial) / "checkpoint"
    model = (
        model_of_cycle_0(trial, setup, store, report)
        if number == 0
        else _train(trial, setup, labelled, number, checkpoint, report)
    )
    fitted = time.perf_counter()
    left = setup.left(labelled)
    choice = None
    if number < trial.experiment.cycles and len(left):
        strategy, oracle = _strategy(trial, done), RecordingOracle(setup.pool.train.labels[left])
        choice = choose(
            strategy, setup.learner, model, setup.pool.train.take(labelled), setup.pool.train.take(left).inputs,
            min(trial.experiment.budget, len(left)), asking=_asking(trial.experiment),
            seed=seed_of(trial.seed, number, "select"), report=report, oracle=oracle,
            target=setup.target,
        )  # fmt: skip
        oracle.check(choice.selection.indices, strategy.name)
    asked = time.perf_counter()
    shares = choice.shares if choice else _last_shares(setup, model, labelled, left)
    spent = choice.seconds if choice else Seconds(0.0, time.perf_counter() - asked, 0.0)
    tested = time.perf_counter()
    marks = mark(model, setup.pool.test, shares)
    seconds = {
        "seconds_fit": fitted - started, "seconds_calibrate": spent.calibrate, "seconds_predict": spent.predict,
        "seconds_select": spent.select, "seconds_test": time.perf_counter() - tested,
    }  # fmt: skip
    picks = left[choice.selection.indices] if choice else NO_PICKS
    return Cycle(_row(trial, setup, number, labelled, left, marks, choice, picks, seconds), picks)


def _last_shares(setup: TrialSetup, model: Model, labelled: IntArray, left: IntArray) -> Float64Array:
    """The classes' shares among all images where no batch is chosen any more."""
    pool = setup.pool.train.take(left).inputs
    proba = np.asarray(model.predict_proba(pool)) if len(left) else np.zeros((0, setup.pool.train.classes), np.float32)
    return class_shares(setup.pool.train.take(labelled), proba)


def _train(
    trial: Trial, setup: TrialSetup, labelled: IntArray, number: int, checkpoint: Path, report: Progress
) -> Model:
    """Train from scratch, going on from a checkpoint where there is one."""
    seed = seed_of(trial.seed, number, "fit")
    model = fit(setup.learner, setup.pool.train.take(labelled), seed=seed, report=report, checkpoint=checkpoint)
    shutil.rmtree(checkpoint, ignore_errors=True)
    return model


def _strategy(trial: Trial, done: list[Cycle]) -> Strategy:
    """The strategy, with the λ that cycle 0 found where it is to be kept; "auto" goes by the scores of each round."""
    keep = trial.experiment.lam == "first" and bool(done) and trial.balance != "auto"
    balance = done[0].row.lam if keep else trial.balance
    return make(trial.part.name, balance=balance, **trial.part.settings)


def _asking(experiment: Experiment) -> Asking:
    calibration = experiment.calibration
    return Asking(calibration.kind, calibration.folds, experiment.passes, experiment.vaal_settings)


def seed_of(seed: int, cycle: int, purpose: str) -> int:
    """A seed of its own for each use, the same for all strategies.

    >>> seed_of(0, 1, "fit") != seed_of(0, 1, "select")
    True
    """
    words = np.random.SeedSequence([seed, cycle, *purpose.encode()]).generate_state(1)
    return int(words[0] >> 1)


def _row(
    trial: Trial, setup: TrialSetup, number: int, labelled: IntArray, left: IntArray, marks: Marks,
    choice: Choice | None, picks: IntArray, seconds: dict[str, float],
) -> Row:  # fmt: skip
    train, tail = setup.pool.train, setup.split.tail
    counts = train.take(labelled).counts() if len(labelled) else np.zeros(train.classes, dtype=np.int64)
    realised = np.bincount(train.labels[picks], minlength=train.classes)
    batch = choice.selection if choice else None
    return Row(
        experiment=trial.experiment.name,
        pool=setup.pool.name,
        setting=trial.setting,
        imbalance=trial.factor,
        learner=trial.experiment.learner.name,
        strategy=trial.part.name,
        balance=balance_name(trial.balance),
        seed=trial.seed,
        cycle=number,
        labelled=len(labelled),
        share=len(labelled) / len(train),
        accuracy=marks.accuracy,
        adjusted_accuracy=marks.adjusted_accuracy,
        balanced_accuracy=marks.balanced_accuracy,
        adjusted_balanced_accuracy=marks.adjusted_balanced_accuracy,
        tail_accuracy=float(np.nanmean(marks.recalls[tail])) if len(tail) else np.nan,
        l1_score=l1_score(counts),
        recalls=tuple(marks.recalls.tolist()),
        counts=tuple(counts.tolist()),
        pool_counts=tuple(np.bincount(train.labels[left], minlength=train.classes).tolist()),
        picks=len(picks),
        lam=batch.lam if batch else np.nan,
        gap=batch.gap if batch else np.nan,
        informativeness=batch.informativeness if batch else np.nan,
        l1=batch.l1 if batch else np.nan,
        batch_l1_score=l1_score(realised) if batch else np.nan,
        expected=tuple(batch.expected_counts.tolist()) if batch else (),
        realised=tuple(realised.tolist()) if batch else (),
        temperature=choice.calibration.temperature if choice else np.nan,
        version=__version__,
        status=batch.status if batch else "",
        settings=trial.settings,
        **seconds,
    )


def _named(report: Progress, trial: Trial, number: int) -> Progress:
    """The same, with the trial's name in front and the share of the whole trial."""
    cycles = trial.experiment.cycles + 1
    return lambda done, what: report((number + done) / cycles, f"{trial.title}, cycle {number}: {what}")


def sweep_lam(trial: Trial, store: Store, report: Progress = no_progress) -> None:
    """Sweep λ for entropy on the first pool of a trial, and keep the numbers."""
    path = store.sweep(trial.folder)
    if path.is_file():
        return
    with one_blas_thread():
        setup = open_setup(trial)
        counts = setup.pool.train.take(setup.split.labelled).counts()
        model = model_of_cycle_0(trial, setup, store, report)
        report(0.5, f"{trial.setting}, seed {trial.seed}: λ sweep")
        pool = setup.pool.train.take(setup.left(setup.split.labelled))
        proba = np.asarray(model.predict_proba(pool.inputs))
        budget = min(trial.experiment.budget, len(pool))
        asked: dict[str, Any] = {"counts": counts, "target": setup.target, "seed": trial.seed}
        swept = balance_path(proba, budget, **asked)

        def reference(name: str, lam: float) -> dict[str, float]:
            made = make(name, balance=lam).select(Predictions(proba), budget, **asked)
            score = l1_score(counts + made.expected_counts)
            return {"informativeness": made.informativeness, "l1": made.l1, "l1_score": score}

        content = {
            **swept.to_dict(),
            "pool": setup.pool.name,
            "setting": trial.setting,
            "references": {
                "entropy": reference("entropy", 0.0),
                "entropy-l1-pseudo-label": reference("entropy-l1-pseudo-label", swept.chosen),
            },
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content, allow_nan=False).encode())


def kept_sweeps(experiment: Experiment, store: Store, content: str | None = None) -> list[dict[str, Any]]:
    """The sweeps of an experiment that are there and whole, as plain values; see `collect`."""
    kept = []
    wanted = recorded_content(experiment, store).content if content is None else content
    name = store.pool_name(wanted)
    for trial in trials_of(experiment, wanted):
        try:
            values = json.loads(store.sweep(trial.folder).read_bytes())
            kept.append(values | ({"pool": name} if name else {}))
        except (OSError, ValueError):
            continue
    return kept


class RecordingOracle:
    """Rows of the pool in, their true classes out; `asked` holds the rows in the order in which they were asked for.

    >>> import numpy as np
    >>> oracle = RecordingOracle(np.array([2, 0, 1]))
    >>> oracle(np.array([2, 0])).tolist(), oracle.asked
    ([1, 2], [2, 0])
    """

    def __init__(self, labels: IntArray) -> None:
        self._labels = labels  # (N,)
        self.asked: list[int] = []

    def __call__(self, rows: IntArray) -> IntArray:
        """The classes of some rows, (m,)."""
        if not ((rows >= 0) & (rows < len(self._labels))).all():
            raise BadInput(f"asked for the labels of {shown(rows.tolist())}; rows go from 0 to {len(self._labels) - 1}")
        self.asked += rows.tolist()
        answers: IntArray = self._labels[rows]
        return answers

    def check(self, batch: IntArray, strategy: str) -> None:
        """Reject a batch whose strategy has read labels of other rows: it would have had them for nothing."""
        outside = sorted(set(self.asked) - set(batch.tolist()))
        if outside:
            raise BadInput(
                f"strategy {strategy!r} has read the labels of {len(outside)} images that are not in its batch, "
                f"the first of them row {outside[0]}; it may read only the labels of its picks"
            )
