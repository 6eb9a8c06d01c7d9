"""The λ sweep of the cycle-0 model (Fig. 4), with the two methods that it is compared to."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..balance.measure import l1_score
from ..blas import one_blas_thread
from ..files import write_whole
from ..strategies import make
from ..strategies.path import balance_path
from ..types import Predictions, Progress, Selection, unheard
from .config import Experiment
from .pool_record import recorded_content
from .store import Store
from .trial_run import model_of_cycle_0, open_world
from .trials import Trial, trials_of


def sweep_lam(trial: Trial, store: Store, report: Progress = unheard) -> None:
    """Sweep λ for entropy on the first pool of a trial, and keep the numbers."""
    path = store.sweep(trial.folder)
    if path.is_file():
        return
    with one_blas_thread():
        world = open_world(trial)
        counts = world.train.take(world.split.labelled).counts()
        model = model_of_cycle_0(trial, world, store, report)
        report(0.5, f"{trial.setting}, seed {trial.seed}: λ sweep")
        pool = world.train.take(world.left(world.split.labelled))
        proba = np.asarray(model.predict_proba(pool.inputs))
        budget = min(trial.experiment.budget, len(pool))
        asked: dict[str, Any] = {"counts": counts, "target": trial.experiment.wanted, "seed": trial.seed}
        swept = balance_path(proba, budget, **asked)

        def reference(name: str, lam: float) -> dict[str, float]:
            made = make(name, balance=lam).select(Predictions(proba), budget, **asked)
            return _point(made, l1_score(counts + made.expected_counts))

        content = {
            **swept.to_dict(),
            "pool": world.pool.name,
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


def _point(made: Selection, score: float) -> dict[str, float]:
    return {"informativeness": made.informativeness, "l1": made.l1, "l1_score": score}
