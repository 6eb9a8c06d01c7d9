"""The public calls: `select` (probabilities in, a certified batch out) and `balance_path` (what balance costs)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..calibration import named_like, probabilities_of, trust_in, with_trust
from ..errors import BadInput, MissingExtra
from ..inputs import (
    LARGEST_SCORE,
    checked_names,
    in_row_order,
    per_class,
    per_row,
    real_array,
    real_number,
    row_ids,
    shown,
    whole_number,
)
from ..inputs import class_names as column_names
from ..matrix.npy import FileMatrix
from ..matrix.open import TopK, as_matrix, open_proba
from ..matrix.shards import Column, Rows, rows_on, scan
from ..processes import most_threads
from ..score import SCORES, Score
from ..selection import Bar, Selection, html_summary, html_table
from ..solver.constraints import Purse, solve_priced
from ..solver.path import (
    Balance,
    Sweep,
    find_lam,
    paper_grid,
    paper_lam,
    parse_balance,
    quick_effort,
    score_scale,
    spread_of,
)
from ..solver.program import Effort, Groups
from ..targets import PerClass, Target, l1_score
from ..types import AnyMatrix, Float64Array, Predictions, Proba, ScoreName, StrategyName
from .limits import Limits, Request, choose_within
from .strategy import (
    DEFAULT,
    STRATEGIES,
    WITHOUT_EMBEDDINGS,
    Strategy,
    Task,
    by_cost,
    check_reads_no_labels,
    make,
    make_task,
)

if TYPE_CHECKING:
    import pandas


log = logging.getLogger(__name__)
PLAIN_SCORE = "margin"  # where a score is needed and none is given


def select(
    proba: Proba | Predictions,
    budget: float,
    *,
    strategy: StrategyName | str | Strategy | None = None,
    score: ScoreName | str | ArrayLike | None = None,
    embeddings: AnyMatrix | None = None,
    labelled_embeddings: AnyMatrix | None = None,
    counts: PerClass = None,
    target: Target | PerClass = None,
    balance: Balance = "auto",
    ids: object = None,
    class_names: Sequence[Hashable] | None = None,
    exclude: object = None,
    mask: object = None,
    include: object = None,
    groups: object = None,
    per_group: int = 1,
    cost: ArrayLike | None = None,
    logits: bool = False,
    gap: float = 1e-4,
    time_limit: float | None = None,
    seed: int = 0,
    threads: int | None = None,
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
        (docs/select.md). `Predictions` for strategies that need more than embeddings.
    budget: how many images to choose; with `cost`, what they may cost.
    strategy: a registered strategy (`tailwise strategies` lists them), or one with settings of its own, made by
        `tailwise.strategies.make`, which then brings balance, gap, time limit, engine and shards with it.
    score: a registered score ("entropy", "margin", "least-confidence"), or an array (N,), larger = more informative.
    embeddings: (N, d) what the model's last hidden layer says of the pool, in any form that `proba` may have.
    labelled_embeddings: (L, d) the same of the labelled images; may be left out where nothing is labelled.
    counts: (C,) labelled images per class so far; default none. A dict or a pandas Series goes by class name, where
        there are names, or by class number; classes that it leaves out have none.
    target: None: every class equally often in the labelled set (Eq. 4). An array (C,): wanted counts of this batch.
        A `Target`: any shares of the labelled set, or per-class ranges.
    balance: how strongly to balance. "auto" keeps the target where a strategy has quotas ("base": only a target that
        is given, else equally many per class), and with a score is λ = a tenth of the spread of the scores; a number is
        λ, 0 does not balance; "paper" is the paper's rule; "within 5%" is a wish: the smallest λ whose expected counts
        are that close to the target (docs/select.md).
    ids: (N,) what the images are called, such as their file names; default the index of a DataFrame. Iterating over the
        selection then gives ids, and `exclude` and `include` go by them.
    class_names: (C,) the names of the classes; default the columns of a DataFrame.
    exclude: images that cannot be picked, such as those that are labelled already: ids (rows without ids), or booleans.
    mask: (N,) booleans instead of `exclude`: True for images that may be picked.
    include: images that must be in the batch; they count towards the budget, and the others are chosen around them.
    groups: (N,) the burst, video, patient or duplicate cluster of each image, by any name; None is a group of its own.
    per_group: at most so many picks of each group.
    cost: (N,) what it costs to label each image, above 0; `budget` is then what the batch may cost. Needs a score
        (default "margin"), and a balance that is a number or "auto".
    logits: whether `proba` and `labelled_proba` hold logits; they are turned into probabilities, in memory.
    gap: relative gap to stop at. Below 1e-4 the search tries several times harder.
    time_limit: seconds after which the best batch so far is returned. The only thing that can make two equal calls
        differ is a time limit that is hit.
    seed: equal seeds, equal picks, whatever the engine and the number of threads and shards.
    threads: how many CPUs to use on this machine; default all.
    engine: "local": this process. "ray": the actors of a Ray cluster, which is started on this machine;
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
    >>> batch = select(proba, 2, ids=["a.jpg", "b.jpg", "c.jpg", "d.jpg"], class_names=["owl", "kite"])
    >>> list(batch), batch.status, batch.method
    (['c.jpg', 'b.jpg'], 'optimal', 'base')
    >>> batch.picks[0].reason
    'uncertain between owl and kite; owl is 1 label short'
    """
    if strategy is not None and score is not None:
        raise BadInput(f"strategy is {shown(strategy)} and score is given as well; give one of them")
    given = _predictions(proba, embeddings, labelled_embeddings)
    if logits:
        whole = as_matrix(given.proba, "proba")
        table = whole[:] if isinstance(whole, FileMatrix) else given.proba
        given = replace(given, proba=named_like(table, probabilities_of(table, "proba", logits=True)))
        if labelled_proba is not None:
            softmax = probabilities_of(labelled_proba, "labelled_proba", logits=True)
            labelled_proba = named_like(labelled_proba, softmax)
    matrix = open_proba(given.proba)
    size, classes = matrix.shape
    names, known_ids = checked_names(class_names, given.proba, classes), row_ids(ids, given.proba, size)
    checked = None
    if labelled_proba is not None or labels is not None:
        checked = trust_in(labelled_proba, labels, classes, names)
    lacks_borders = given.embeddings is None and isinstance(matrix, TopK)  # where only the largest are kept
    prices = None if cost is None else _prices(cost, given.proba, size, strategy, groups)
    if strategy is None and score is None and (prices is not None or lacks_borders):
        score = PLAIN_SCORE
    own_scores = None
    if score is not None and not isinstance(score, str):
        own_scores = per_row(in_row_order(score, given.proba, "score"), "score", size)
    request = Request(
        np.arange(size), replace(given, proba=matrix), own_scores,
        whole_number(budget, "budget") if prices is None else real_number(budget, "budget"),
        None if counts is None else per_class(counts, "counts", classes, names),
        None if target is None else Target.of(target).numbered(classes, names), prices=prices,
    )  # fmt: skip
    solving: dict[str, Any] = {"balance": balance, "gap": gap, "time_limit": time_limit}
    place: dict[str, Any] = {"engine": engine, "shards": shards}
    if score is None:
        around = labelled_or_none(given.embeddings, given.labelled_embeddings, request.counts)
        request = replace(request, predictions=replace(request.predictions, labelled_embeddings=around))
        chosen = _strategy(strategy, given.embeddings is not None, solving | place)
        keeps = getattr(chosen, "keeps_groups", None)  # most strategies have no such method
        choose = partial(_by_strategy, chosen, seed=seed, report=report)
    else:
        keeps, choose = always, partial(_by_score, score, seed=seed, report=report, **solving, **place)
    with nullcontext() if threads is None else most_threads(whole_number(threads, "threads", least=1)):
        if all(one is None for one in (exclude, mask, include, groups)):
            batch = choose(request)
        else:
            limits = Limits.read(size, known_ids, exclude, mask, include, groups, per_group)
            batch = choose_within(limits, request, choose, keeps)
    chosen_ids = None if known_ids is None else tuple(known_ids[row] for row in batch.indices.tolist())
    batch = replace(batch, ids=chosen_ids, class_names=names)
    log.info("%d of %d images by %s: %s, gap %.1e", len(batch.indices), size, batch.method, batch.status, batch.gap)
    if checked is None:
        return batch
    trust, held_out = checked
    return with_trust(batch, trust, held_out if request.counts is None else request.counts)


def always(_groups: Groups) -> bool:
    """With a score, groups are part of the program."""
    return True


def _predictions(proba: object, embeddings: AnyMatrix | None, labelled: AnyMatrix | None) -> Predictions:
    """All that the model says of the pool in one place."""
    if not isinstance(proba, Predictions):
        return Predictions(proba, embeddings, labelled)  # type: ignore[arg-type] # checked when it is opened
    if embeddings is not None or labelled is not None:
        raise BadInput("embeddings are given as well as Predictions; put them into the Predictions")
    return proba


def _prices(cost: object, proba: object, size: int, strategy: object, groups: object) -> Float64Array:
    """What each image costs, checked; a budget of costs is for scores alone."""
    if strategy is not None or groups is not None:
        other = "strategy" if strategy is not None else "groups"
        raise BadInput(f"cost and {other} are given; cost works with a score alone: give score= and leave {other} out")
    prices = per_row(in_row_order(cost, proba, "cost"), "cost", size)
    if not (prices > 0).all():
        row = int(np.flatnonzero(prices <= 0)[0])
        raise BadInput(f"cost of image {row} is {prices[row]:g}; it must be above 0")
    return prices


def _strategy(strategy: object, embedded: bool, settings: dict[str, Any]) -> Strategy:
    """The strategy that is asked for, by name or ready-made, or the default."""
    if strategy is None or isinstance(strategy, str):
        return make(strategy or (DEFAULT if embedded else WITHOUT_EMBEDDINGS), **settings)
    if not callable(getattr(strategy, "select", None)):
        raise BadInput(f"strategy is {shown(strategy)}; give a name, or what tailwise.strategies.make returns")
    usual = {"balance": "auto", "gap": 1e-4, "time_limit": None, "engine": "local", "shards": None}
    if changed := [name for name, value in settings.items() if value != usual[name]]:
        raise BadInput(f"{changed[0]} is given, but the strategy was made already; give it to strategies.make")
    made: Strategy = strategy  # type: ignore[assignment] # it has a select
    return made


def _by_strategy(chosen: Strategy, part: Request, *, seed: int, report: Callable[[str], None] | None) -> Selection:
    groups: dict[str, Any] = {} if part.groups is None else {"groups": part.groups}
    return chosen.select(
        part.predictions, int(part.budget), counts=part.counts, target=part.target, seed=seed, report=report, **groups
    )


def _by_score(
    score: object,
    part: Request,
    *,
    balance: Balance,
    engine: str,
    shards: int | None,
    **asked: Any,  # noqa: ANN401 - what make_task takes
) -> Selection:
    """The program of the paper with a registered score, or with one's own scores."""
    method, given = score if isinstance(score, str) else "scores", score if part.scores is None else part.scores
    with rows_on(open_proba(part.predictions.proba), engine, shards) as rows:
        size, purse = int(part.budget), None
        if part.prices is not None:
            purse = Purse(part.prices, part.budget)
            size = _affordable(rows, given, purse, balance)
        task, costs, scale = scored_task(rows, size, given, counts=part.counts, target=part.target, **asked)
        task = replace(task, groups=part.groups)
        if purse is None:
            return by_cost(task, costs, balance, scale=scale, method=method)
        lam = find_lam(balance, lambda _: 0.0, task.program(costs), scale=scale, spread=spread_of(costs, size))
        effort = Effort.for_gap(task.gap, task.time_limit, task.started)
        found = solve_priced(task.program(costs, lam.value), purse, effort, seed=task.seed, report=task.report)
        batch = task.certified(found, costs, balance=balance, lam=lam, method=method)
    spent = float(purse.prices[batch.indices].sum())
    return replace(batch, notes=(*batch.notes, f"{len(batch):,} images cost {spent:,.6g} of {purse.limit:,.6g}."))


def _affordable(rows: Rows, score: object, purse: Purse, balance: Balance) -> int:
    """How many images the most informative batch within the limit has: the target is one for so many."""
    if parse_balance(balance) != "auto" and not isinstance(parse_balance(balance), float):
        raise BadInput(f"balance is {shown(balance)}; with cost it must be a number or 'auto'")
    costs = scan(rows, named_score(score)).values() if isinstance(score, str) else 0.0 - real_array(score, "score")
    if size := purse.fill(costs)[2]:
        return size
    cheapest = float(purse.prices.min(initial=np.inf))
    raise BadInput(f"a budget of {purse.limit:g} pays for no informative image; the cheapest image costs {cheapest:g}")


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

    def _repr_html_(self) -> str:
        """For notebooks: how far each λ leaves the counts from the target, and what it pays in informativeness."""
        most, longest = self.informativeness.max(initial=0.0), self.l1.max(initial=0.0)
        near = int(np.abs(self.lam - self.chosen).argmin())
        steps = np.linspace(0, len(self.lam) - 1, min(len(self.lam), SHOWN_STEPS)).round().astype(np.int64)
        rows = [
            (f"{self.lam[at]:.4g}{' ◂ chosen' if at == near else ''}", f"{self.l1[at]:.1f}", Bar(self.l1[at], longest),
             f"{self.informativeness[at]:.4g}", Bar(max(0.0, self.informativeness[at]), most))
            for at in np.union1d(steps, near).tolist()
        ]  # fmt: skip
        header = ("λ", "distance from the target", "", "informativeness", "")
        paid = 1 - self.informativeness[near] / most if most > 0 else 0.0
        facts = (
            f"at λ = {self.chosen:.4g} expected counts are {self.l1[near]:.1f} instead of {self.l1[0]:.1f} images from "
            f"the target, for {paid:.1%} of the informativeness"
        )
        return html_summary("What balance costs", facts, (), html_table(header, rows))


SHOWN_STEPS = 12  # of a path, in a notebook
PATH_COLUMNS = ("lam", "informativeness", "l1", "l1_score", "gap")


def balance_path(
    proba: Proba,
    budget: int,
    *,
    score: ScoreName | str | ArrayLike = "entropy",
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
            names=column_names(proba),
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
