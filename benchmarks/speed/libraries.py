"""Two ideas of other libraries beside ours: scikit-activeml's CoreSet, and small-text's quotas by predicted class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .instances import Array, Instance, costs, generate
from .kcenter import Case, Space, make_space, pick
from .literal import algorithm_2, class_balancer
from .measured import Measured, Row, Run, Sheet
from .timing import Timed, timed

NAME = "peers"
CORESET = Case(10_000, 500, 64, 10, 500, checked=500)
TRANSCRIBED = "transcribed"  # ClassBalancer is not in the released small-text 1.4.1, only in what follows it


def measure(run: Run) -> Iterator[Measured]:
    """Time and picks against CoreSet, balance and informativeness against quotas."""
    if run.peers:
        for seed in run.seeds(full=3):
            yield from _beside_coreset(seed)
    for classes in (10, 100):
        for seed in run.seeds(full=5, quick=2):
            yield from _beside_quotas(Instance(45_000, classes, seed))


def _beside_coreset(seed: int) -> Iterator[Measured]:
    sheet = Sheet(NAME, CORESET.name, seed)
    space = make_space(CORESET, seed)
    ran, peer = pick(space, CORESET.budget, 0.0), _coreset(space, seed)
    ours, theirs = ran.result.indices, peer.result
    omega = np.zeros(CORESET.classes)
    literal = algorithm_2(space.pool, space.labelled, space.proba, omega, 0.0, CORESET.budget)
    yield sheet.tell("seconds", ran.seconds)
    yield sheet.tell("scikit-activeml CoreSet: seconds", peer.seconds)
    yield sheet.tell("times faster than CoreSet", peer.seconds / ran.seconds)
    yield sheet.tell("picks in the same place as CoreSet's", _same(ours, theirs), f"of {CORESET.budget}")
    yield sheet.tell("picks in common with CoreSet", len(set(ours.tolist()) & set(theirs.tolist())))
    yield sheet.at_least("picks identical to the literal loop's", _same(ours, literal), CORESET.budget)
    yield sheet.tell("CoreSet's picks identical to the literal loop's", _same(theirs, literal))


def _coreset(space: Space, seed: int) -> Timed[Array]:
    """scikit-activeml's picks; the pool comes first, so its indices are ours."""
    from skactiveml.pool import CoreSet

    points = np.concatenate([space.pool, space.labelled]).astype(np.float64)
    labels = np.concatenate([np.full(len(space.pool), np.nan), np.zeros(len(space.labelled))])
    chooser = CoreSet(random_state=seed)
    return timed(lambda: chooser.query(points, labels, batch_size=CORESET.budget))


def _same(one: Array, other: Array) -> int:
    return int((one == other).sum())


def _beside_quotas(instance: Instance) -> Iterator[Measured]:
    import tailwise

    proba, labels = generate(instance)
    scores = -costs(proba)
    rng = np.random.default_rng(instance.seed)
    batches = {
        "entropy alone": (tailwise.select(proba, instance.budget, balance=0.0, score="entropy").indices, ""),
        "small-text's quotas": (class_balancer(proba, scores, instance.budget, rng), TRANSCRIBED),
        "ours, λ = 1": (tailwise.select(proba, instance.budget, balance=1.0, score="entropy").indices, ""),
        "ours, λ = auto": (tailwise.select(proba, instance.budget, balance="auto", score="entropy").indices, ""),
    }
    sheet = Sheet(NAME, instance.name, instance.seed)
    most = np.sort(scores)[-instance.budget :].sum()
    for method, (picks, note) in batches.items():
        for quantity, value in _qualities(proba, labels, scores, picks, float(most)).items():
            yield sheet.tell(f"{method}: {quantity}", value, note)


def _qualities(proba: Array, labels: Array, scores: Array, picks: Array, most: float) -> dict[str, float]:
    from tailwise.targets import l1_score

    expected = proba[picks].sum(axis=0, dtype=np.float64)
    true = np.bincount(labels[picks], minlength=proba.shape[1])
    return {
        "expected L1 score": l1_score(expected), "true L1 score": l1_score(true),
        "informativeness kept": float(scores[picks].sum()) / most,
    }  # fmt: skip


ROW = Row(
    NAME,
    "reported, not promised: time and picks compared with scikit-activeml's CoreSet; balance (L1 score, 0 = uniform) "
    "and informativeness compared with small-text's quotas by predicted class (transcribed: small-text 1.4.1 is "
    "without its ClassBalancer)",
    measure,
)
