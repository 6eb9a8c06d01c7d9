"""The public calls: `select` (probabilities in, a certified batch out) and `balance_path` (what balance costs)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..calibration import named_like, probabilities_of, trust_in, with_trust
from ..errors import BadInput, MissingExtra
from ..inputs import LARGEST_SCORE, class_names, in_row_order, per_class, per_row, real_array, shown
from ..matrix.npy import FileMatrix
from ..matrix.open import TopK, as_matrix, open_proba
from ..matrix.shards import Column, Rows, rows_on
from ..score import SCORES, Score
from ..solver.path import (
    Balance,
    Sweep,
    paper_grid,
    paper_lam,
    quick_effort,
    score_scale,
)
from ..targets import PerClass, Target, l1_score
from ..types import AnyMatrix, Float64Array, Predictions, Proba, Selection
from .strategy import DEFAULT, STRATEGIES, WITHOUT_EMBEDDINGS, Task, by_cost, check_reads_no_labels, make, make_task

if TYPE_CHECKING:
    import pandas


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
        proba = named_like(proba, probabilities_of(proba, "proba", logits=True))
        if labelled_proba is not None:
            softmax = probabilities_of(labelled_proba, "labelled_proba", logits=True)
            labelled_proba = named_like(labelled_proba, softmax)
    matrix = open_proba(proba)
    checked = None
    if labelled_proba is not None or labels is not None:
        checked = trust_in(labelled_proba, labels, matrix.shape[1], class_names(proba))
    if strategy is None and score is None and embeddings is None and isinstance(matrix, TopK):
        score = SPARSE_SCORE
    asked: dict[str, Any] = {"counts": counts, "target": target, "seed": seed, "report": report}
    solving: dict[str, Any] = {"gap": gap, "time_limit": time_limit}
    if score is None:
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
    if name not in SCORES and name in STRATEGIES:
        check_reads_no_labels(name)
    return SCORES[name]


@dataclass(frozen=True, slots=True, eq=False)
class BalancePath:
    """A sweep over λ; every array is (n,), in the order of λ.

    Attributes
    ----------
    lam: the values of λ, ascending, 0 first.
    informativeness: sum of the scores of the picks.
    l1: distance of the expected counts from the target.
    l1_score: L1 score of the labelled set with the expected counts added: 0 = uniform, 1 = one class.
    gap: certified gap of each batch.
    chosen: the λ that the paper's rule takes of these; with the default `lams` that of `select(balance="paper")`.
    """

    lam: Float64Array
    informativeness: Float64Array
    l1: Float64Array
    l1_score: Float64Array
    gap: Float64Array
    chosen: float

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, ready for JSON."""
        columns = {name: getattr(self, name).tolist() for name in PATH_COLUMNS}
        return {**columns, "chosen": self.chosen}

    def to_frame(self) -> pandas.DataFrame:
        """One row per λ."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra.named("to_frame()", "pandas", "tables") from error
        return pandas.DataFrame({name: getattr(self, name) for name in PATH_COLUMNS})


PATH_COLUMNS = ("lam", "informativeness", "l1", "l1_score", "gap")


def balance_path(
    proba: Proba,
    budget: int,
    *,
    score: str | ArrayLike = "entropy",
    counts: PerClass = None,
    target: Target | PerClass = None,
    lams: Sequence[float] | None = None,
    seed: int = 0,
    engine: str = "local",
    shards: int | None = None,
    report: Callable[[str], None] | None = None,
) -> BalancePath:
    """Sweep λ and measure what each batch gains in balance and pays in informativeness.

    `lams` defaults to 30 steps over (0, 3] for entropy, scaled for other scores; λ = 0 is always added. The other
    parameters are those of `select`.

    Examples
    --------
    >>> proba = np.array([[0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [0.1, 0.9]])
    >>> path = balance_path(proba, 2, lams=[1.0])
    >>> path.lam.tolist(), path.l1.round(2).tolist()
    ([0.0, 1.0], [0.3, 0.3])
    """
    with rows_on(open_proba(proba), engine, shards) as rows:
        task, costs, scale = scored_task(
            rows, budget, in_row_order(score, proba, "score"), counts=counts, target=target, seed=seed, report=report,
            names=class_names(proba),
        )  # fmt: skip
        return _swept(task, costs, _checked(paper_grid(scale) if lams is None else lams))


def _swept(task: Task, costs: Column, values: Float64Array) -> BalancePath:
    """Solve at every λ, and measure."""
    program = task.program(costs)
    sweep = Sweep(program, quick_effort(), task.seed, task.report)
    grid = values[values > 0] if program.steerable else values[:0]
    chosen = paper_lam(sweep.l1_at, grid)  # first, as each solve starts from those before it
    solutions = [sweep.at(lam) for lam in values.tolist()]
    expected = [task.rows.total(solution.indices) for solution in solutions]
    l1 = np.array([task.ranges.distance(one) for one in expected])
    return BalancePath(
        lam=values,
        informativeness=np.array([-costs.at(solution.indices).sum() for solution in solutions]),
        l1=l1,
        l1_score=np.array([l1_score(task.counts + one) for one in expected]),
        gap=np.array([solution.gap for solution in solutions]),
        chosen=chosen,
    )


def _checked(lams: object) -> Float64Array:
    given = real_array(lams, "lams")
    if given.ndim > 1:
        raise BadInput(f"lams must be a list of numbers, but has shape {given.shape}")
    values = given.astype(np.float64).ravel()
    if not ((values >= 0) & (values <= LARGEST_SCORE)).all():
        raise BadInput(f"lams must be numbers from 0 to {LARGEST_SCORE:g}, but are {shown(values.tolist())}")
    return np.unique(np.append(0.0, values))
