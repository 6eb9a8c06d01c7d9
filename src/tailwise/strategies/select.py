"""`tailwise.select`: probabilities in, a certified batch out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from ..balance.calibration import trust_in
from ..balance.target import PerClass, Target
from ..balance.trust import with_trust
from ..inputs import class_names, in_row_order, per_row
from ..score.softmax import SCORES, Score
from ..solve.engines import rows_on
from ..solve.path import Balance, Sweep, find_lam, parse_balance, quick_effort
from ..solve.score_scale import score_scale, spread_of
from ..solve.shards import Column, Rows
from ..solve.solver import solve
from ..solve.source import open_proba
from ..types import Proba, Selection
from .task import Task, make_task


def select(
    proba: Proba,
    budget: int,
    *,
    score: str | ArrayLike = "entropy",
    counts: PerClass = None,
    target: Target | PerClass = None,
    balance: Balance = "auto",
    gap: float = 1e-4,
    time_limit: float | None = None,
    seed: int = 0,
    engine: str = "local",
    shards: int | None = None,
    report: Callable[[str], None] | None = None,
    labelled_proba: object = None,
    labels: object = None,
) -> Selection:
    """Choose the images to label next: informative, class-balanced, with a certificate.

    Minimises uᵀz + λ·‖Ω − Pᵀz‖₁ over batches z of `budget` images, u = −score, P = proba.

    Parameters
    ----------
    proba: (N, C) softmax probabilities of the unlabelled pool, float16/32/64: an array, a tensor, a DataFrame, a
        numpy.memmap, a `TopK`, or a path or URL to .npy, .parquet, a folder of such, or a saved `TopK`
        (docs/select.md).
    budget: how many images to choose.
    score: a registered score ("entropy", "margin", "least-confidence"), or an array (N,), larger = more informative.
    counts: (C,) labelled images per class so far; default none. A dict or a pandas Series goes by class name, where
        `proba` is a DataFrame, or by class number; classes that it leaves out have none.
    target: None: every class equally often in the labelled set (Eq. 4). An array (C,): wanted counts of this batch.
        A `Target`: any shares of the labelled set, or per-class ranges.
    balance: λ ≥ 0; "auto": a fifth of the spread of the scores, in one solve; "paper": the paper's rule, a sweep; or a
        wish such as "within 5%": the smallest λ whose expected counts are that close to the target (l1 distance beyond
        what the budget forces, in percent of the budget).
    gap: relative gap to stop at. Below 1e-4 the search tries several times harder.
    time_limit: seconds after which the best batch so far is returned. The only thing that can make two equal calls
        differ is a time limit that is hit.
    seed: equal seeds, equal picks, whatever the engine and the number of threads and shards.
    engine: "local": this process, on all cores. "ray": the actors of a Ray cluster, which is started on this machine;
        "ray=host:port", or the address alone, joins one (docs/scale.md).
    shards: into how many parts the rows are cut; default one per node of the cluster.
    report: called with one line of text after each step of the solver.
    labelled_proba, labels: (n, C) probabilities of labelled images that the model has not learnt from, and their
        classes (n,). They say how far the expected counts can be trusted (`Selection.trust`); where confidence and
        accuracy disagree by more than 10 points, a `CalibrationWarning` says what to do.

    Examples
    --------
    >>> import numpy as np
    >>> proba = np.array([[0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [0.1, 0.9]])
    >>> batch = select(proba, 2, balance=1.0)
    >>> batch.indices.tolist(), batch.status
    ([2, 1], 'optimal')
    """
    matrix = open_proba(proba)
    checked = trust_in(labelled_proba, labels, matrix.shape[1], class_names(proba))
    with rows_on(matrix, engine, shards) as rows:
        task, costs, scale = scored_task(
            rows, budget, in_row_order(score, proba, "score"), counts=counts, target=target, gap=gap,
            time_limit=time_limit, seed=seed, report=report, names=class_names(proba),
        )  # fmt: skip
        batch = by_cost(task, costs, balance, scale=scale, method=score if isinstance(score, str) else "scores")
    if checked is None:
        return batch
    trust, held_out = checked
    return with_trust(batch, trust, held_out if counts is None else task.counts)


def scored_task(
    rows: Rows, budget: int, score: object, **asked: Any,  # noqa: ANN401 - what make_task takes
) -> tuple[Task, Column, float]:  # fmt: skip
    """A checked request, its costs 0 − score, and what λ = 1 means relative to entropy."""
    if isinstance(score, str):
        task, costs = make_task(rows, budget, score=named_score(score), **asked)
    else:
        task, _ = make_task(rows, budget, **asked)
        costs = rows.hold(0.0 - per_row(score, "score", rows.size))
    entropy = isinstance(score, str) and score == "entropy"
    return task, costs, 1.0 if entropy else score_scale(costs, budget)


def named_score(name: str) -> Score:
    """A registered score; for a strategy that reads labels while it picks the error says why it cannot be one."""
    if name not in SCORES:
        from .base import STRATEGIES, check_reads_no_labels  # that module needs `by_cost`

        if name in STRATEGIES:
            check_reads_no_labels(name)
    return SCORES[name]


def by_cost(task: Task, costs: Column, balance: Balance, *, scale: float, method: str) -> Selection:
    """The program of the paper with u = −score; λ = 0 is the classical top-b.

    `scale` is what λ = 1 means relative to entropy.
    """
    program, setting = task.program(costs), parse_balance(balance)
    # A wish is judged by the very solves that make the batch, so that it holds; the paper's rule needs no such care.
    by_rule = setting == "paper"
    sweep = Sweep(program, quick_effort(task.time_limit) if by_rule else task.effort, task.seed, task.report)
    spread = spread_of(costs, task.budget) if setting == "auto" else None
    lam = find_lam(balance, sweep.l1_at, program, scale=scale, spread=spread)
    solution = sweep.found.get(lam.value) if not by_rule else None
    if solution is None:
        warm = sweep.nearest_duals(lam.value)
        solution = solve(program.at(lam.value), task.effort, seed=task.seed, warm=warm, report=task.report)
    return task.certified(solution, costs, balance=balance, lam=lam, method=method)
