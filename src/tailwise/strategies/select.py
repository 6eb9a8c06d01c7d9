"""`tailwise.select`: probabilities in, a certified batch out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..balance.calibration import softmaxed, trust_in
from ..balance.target import PerClass, Target
from ..balance.trust import with_trust
from ..errors import BadInput
from ..inputs import class_names, in_row_order, per_class, per_row, real_array, shown
from ..score.softmax import SCORES, Score
from ..solve.engines import rows_on
from ..solve.file_matrix import FileMatrix
from ..solve.matrices import as_matrix
from ..solve.path import Balance, Sweep, find_lam, parse_balance, quick_effort
from ..solve.score_scale import score_scale, spread_of
from ..solve.shards import Column, Rows
from ..solve.solver import solve
from ..solve.source import open_proba
from ..solve.top_k import TopK
from ..types import AnyMatrix, Predictions, Proba, Selection
from .task import Task, make_task

SPARSE_SCORE = "margin"  # where only the largest probabilities are kept, distances to most borders are unknown


def select(
    proba: Proba,
    budget: int,
    *,
    strategy: str | None = None,
    score: str | ArrayLike | None = None,
    embeddings: AnyMatrix | None = None,
    labelled_embeddings: AnyMatrix | None = None,
    counts: PerClass = None,
    target: Target | PerClass = None,
    balance: Balance = "auto",
    logits: bool = False,
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

    With `embeddings` the strategy is "boundary", without them "base"; docs/strategies.md says why. With a `score` it is
    the program of the paper: the batch z of `budget` images that minimises uᵀz + λ·‖Ω − Pᵀz‖₁, u = −score, P = proba.

    Parameters
    ----------
    proba: (N, C) softmax probabilities of the unlabelled pool, float16/32/64: an array, a tensor, a DataFrame, a
        numpy.memmap, a `TopK`, or a path or URL to .npy, .parquet, a folder of such, or a saved `TopK`
        (docs/select.md).
    budget: how many images to choose.
    strategy: a registered strategy (`tailwise strategies` lists them). For one with settings of its own, or one that
        needs more than embeddings, use `tailwise.strategies.make`.
    score: a registered score ("entropy", "margin", "least-confidence"), or an array (N,), larger = more informative.
    embeddings: (N, d) what the model's last hidden layer says of the pool, in any form that `proba` may have.
    labelled_embeddings: (L, d) the same of the labelled images; may be left out where nothing is labelled.
    counts: (C,) labelled images per class so far; default none. A dict or a pandas Series goes by class name, where
        `proba` is a DataFrame, or by class number; classes that it leaves out have none.
    target: None: every class equally often in the labelled set (Eq. 4). An array (C,): wanted counts of this batch.
        A `Target`: any shares of the labelled set, or per-class ranges.
    balance: how strongly to balance. "auto" keeps the target where a strategy has quotas ("base": only a target that
        is given, else equally many per class), and with a score is λ = a tenth of the spread of the scores; a number is
        λ, 0 does not balance; "paper" is the paper's rule; "within 5%" is a wish: the smallest λ whose expected counts
        are that close to the target (docs/select.md).
    logits: whether `proba` and `labelled_proba` hold logits; they are turned into probabilities, in memory.
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
    >>> batch = select(proba, 2)
    >>> batch.indices.tolist(), batch.status, batch.method
    ([2, 1], 'optimal', 'base')
    """
    if strategy is not None and score is not None:
        raise BadInput(f"strategy is {shown(strategy)} and score is given as well; give one of them")
    if logits:
        given = as_matrix(proba, "proba")
        proba = given[:] if isinstance(given, FileMatrix) else proba
        proba, labelled_proba = softmaxed(proba, "proba"), softmaxed(labelled_proba, "labelled_proba")
    matrix = open_proba(proba)
    checked = trust_in(labelled_proba, labels, matrix.shape[1], class_names(proba))
    if strategy is None and score is None and embeddings is None and isinstance(matrix, TopK):
        score = SPARSE_SCORE
    asked: dict[str, Any] = {"counts": counts, "target": target, "seed": seed, "report": report}
    solving: dict[str, Any] = {"gap": gap, "time_limit": time_limit}
    if score is None:
        from .base import DEFAULT, WITHOUT_EMBEDDINGS, make  # that module needs `by_cost`

        name = strategy or (WITHOUT_EMBEDDINGS if embeddings is None else DEFAULT)
        maker = make(name, balance=balance, engine=engine, shards=shards, **solving)
        around = labelled_or_none(embeddings, labelled_embeddings, counts)
        batch = maker.select(Predictions(proba, embeddings, around), budget, **asked)
    else:
        with rows_on(matrix, engine, shards) as rows:
            scores = in_row_order(score, proba, "score")
            task, costs, scale = scored_task(rows, budget, scores, names=class_names(proba), **asked, **solving)
            batch = by_cost(task, costs, balance, scale=scale, method=score if isinstance(score, str) else "scores")
    if checked is None:
        return batch
    trust, held_out = checked
    known = held_out if counts is None else per_class(counts, "counts", len(held_out), class_names(proba))
    return with_trust(batch, trust, known)


def labelled_or_none(embeddings: object, labelled: AnyMatrix | None, counts: object) -> AnyMatrix | None:
    """The embeddings of the labelled images; no rows where nothing is labelled."""
    if embeddings is None or labelled is not None:
        return labelled
    given = list(counts.values()) if isinstance(counts, Mapping) else counts
    if given is not None and real_array(given, "counts").any():
        raise BadInput("there are labelled images, but no labelled_embeddings; give those of the same model, (L, d)")
    return np.empty((0, as_matrix(embeddings, "embeddings").shape[1]), dtype=np.float32)


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
