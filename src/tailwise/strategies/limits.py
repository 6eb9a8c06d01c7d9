"""What limits a batch: rows that must or must not be picked, and how many may come from each group.

Excluded rows are left out of the pool. Included rows are left out too: they count as labelled by their probabilities,
and the rest of the batch is chosen around them. Groups are part of the program where a strategy is a score; any other
strategy chooses again without the surplus of the groups that got too many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import numpy as np

from ..errors import BadInput, PoolExhausted
from ..inputs import listed, real_array, shown, whole_number
from ..matrix.npy import FileMatrix
from ..matrix.open import Matrix, Subset, TopK, as_matrix, open_proba
from ..selection import Selection
from ..solver.program import PROVEN, Groups
from ..targets import Ranges, Target
from ..types import BoolArray, Float64Array, IntArray, Predictions

BOUNDED = ("optimal", "within gap", "best found")  # states whose bound holds for every batch of the pool


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Checked limits on a batch from a pool of N rows."""

    free: IntArray  # (n,) rows that may be picked, ascending
    included: IntArray  # (m,) rows that are picked anyway, in the order given
    groups: Groups | None  # of all rows

    @classmethod
    def read(
        cls, size: int, ids: tuple[Hashable, ...] | None, exclude: object, mask: object, include: object,
        groups: object, per_group: object,
    ) -> Limits:  # fmt: skip
        """Check what the user gave; None does not limit it."""
        if exclude is not None and mask is not None:
            raise BadInput("exclude and mask are both given; give one of them")
        free = np.ones(size, dtype=bool)
        if mask is not None:
            free = _flags(mask, "mask", size).copy()  # the user's own stays as it is
        elif exclude is not None:
            free[_rows(exclude, "exclude", size, ids)] = False
        included = np.empty(0, np.int64) if include is None else _rows(include, "include", size, ids)
        if not free[included].all():
            row = int(included[~free[included]][0])
            raise BadInput(f"{_named(row, ids)} is both included and excluded; leave it out of one of the two")
        free[included] = False
        if groups is None:
            return cls(np.flatnonzero(free), included, None)
        numbers, limit = _group_numbers(groups, size), whole_number(per_group, "per_group", least=1)
        most = np.maximum(limit - np.bincount(numbers[included], minlength=int(numbers.max(initial=-1)) + 1), 0)
        return cls(np.flatnonzero(free & (most[numbers] > 0)), included, Groups(numbers, most))

    def check(self, budget: int, size: int) -> None:
        """Reject a budget that is larger than what may be picked."""
        left = budget - len(self.included)
        if left > len(self.free):
            possible = len(self.free) + len(self.included)
            raise PoolExhausted(
                f"asked for {budget} picks, but only {possible} of {size} images may be picked; "
                "lower the budget or exclude fewer"
            )
        if self.groups is not None:
            Groups(self.groups.numbers[self.free], self.groups.most).check(left)


def _flags(values: object, name: str, size: int) -> BoolArray:
    flags = real_array(values, name)
    if flags.dtype != bool or flags.shape != (size,):
        raise BadInput(
            f"{name} must be {size} booleans, True for images that may be picked, but is {flags.dtype} of shape "
            f"{flags.shape}"
        )
    return flags


def _rows(values: object, name: str, size: int, ids: tuple[Hashable, ...] | None) -> IntArray:
    """Rows from booleans (N,), from ids, or from row numbers where there are no ids; none twice."""
    keys = listed(values, name, "a list of ids or row numbers")
    if keys and all(isinstance(key, bool) for key in keys):
        if len(keys) != size:
            raise BadInput(f"{name} holds {len(keys)} booleans, but the pool has {size} images")
        return np.flatnonzero(np.array(keys))
    if ids is not None:
        places = {one: row for row, one in enumerate(ids)}
        unknown = [key for key in keys if not isinstance(key, Hashable) or key not in places]
        if unknown:
            raise BadInput(f"{name} names {shown(unknown[0])}, which is not one of the ids")
        rows = np.array([places[key] for key in keys], dtype=np.int64)
    else:
        numbers = [whole_number(key, f"a row of {name}") for key in keys]
        if (largest := max(numbers, default=-1)) >= size:
            raise BadInput(f"{name} names row {shown(largest)}, but the pool has {size} images (the first is row 0)")
        rows = np.array(numbers, dtype=np.int64)
    values_once, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise BadInput(f"{name} names {_named(int(values_once[counts > 1][0]), ids)} twice")
    return rows


def _named(row: int, ids: tuple[Hashable, ...] | None) -> str:
    return f"row {row}" if ids is None else shown(ids[row])


def _group_numbers(groups: object, size: int) -> IntArray:
    """Group names of any kind as numbers from 0; an image without a group (None or NaN) is one of its own."""
    names = listed(groups, "groups", "a group for each image")
    if len(names) != size:
        raise BadInput(f"groups must have {size} entries, one per image, but has {len(names)}")
    unusable = [one for one in names if not isinstance(one, Hashable)]
    if unusable:
        raise BadInput(f"groups holds {shown(unusable[0])}, which cannot name a group; give text or numbers")
    numbers: dict[object, int] = {}
    for row, one in enumerate(names):
        alone = one is None or one != one  # NaN
        names[row] = numbers.setdefault(("alone", row) if alone else one, len(numbers))
    return np.array(names, dtype=np.int64)


# -- choosing within limits -------------------------------------------------------------------------------------------


def subset(matrix: Matrix, rows: IntArray) -> Matrix:
    """Some rows of a matrix, ascending: files stay where they are, arrays are copied."""
    if len(rows) == matrix.shape[0]:
        return matrix
    if isinstance(matrix, TopK):
        return TopK.of_parts(matrix.values[rows], matrix.classes[rows], matrix.shape[1])
    return Subset(matrix, rows) if isinstance(matrix, FileMatrix) else np.asarray(matrix)[rows]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A batch that is asked for: of which rows, what the model says of them, and what is labelled."""

    rows: IntArray  # (n,) of the whole pool, ascending
    predictions: Predictions  # of these rows
    scores: Float64Array | None  # (n,) one's own, if given
    budget: float  # how many images, or what they may cost
    counts: Float64Array | None  # (C,)
    target: Target | None
    groups: Groups | None = None  # of the rows
    prices: Float64Array | None = None  # (n,) what each costs, where the budget is one of costs

    def of(self, rows: IntArray) -> Request:
        """The same of some of the rows, ascending; `rows` number those of the request."""
        given, groups = self.predictions, self.groups
        part = replace(
            given,
            proba=subset(open_proba(given.proba), rows),
            embeddings=None if given.embeddings is None else subset(as_matrix(given.embeddings), rows),
            mc_proba=None if given.mc_proba is None else real_array(given.mc_proba, "mc_proba")[:, rows],
            labelledness=None if given.labelledness is None else real_array(given.labelledness, "labelledness")[rows],
        )
        return replace(
            self, rows=self.rows[rows], predictions=part, scores=None if self.scores is None else self.scores[rows],
            groups=None if groups is None else replace(groups, numbers=groups.numbers[rows]),
            prices=None if self.prices is None else self.prices[rows],
        )  # fmt: skip


def choose_within(
    limits: Limits, request: Request, choose: Callable[[Request], Selection], keeps: Callable[[Groups], bool] | None
) -> Selection:
    """A batch that keeps to the limits; `keeps` says whether `choose` keeps to groups by itself."""
    spent = float(len(limits.included) if request.prices is None else request.prices[limits.included].sum())
    if request.budget < spent:
        raise BadInput(f"the included images take {spent:g} of a budget of {request.budget:g}; raise the budget")
    if request.prices is None:
        limits.check(int(request.budget), len(request.rows))
    rest = replace(request, groups=limits.groups)
    included = limits.included
    rows = np.asarray(open_proba(request.predictions.proba)[included], dtype=np.float64)  # (m, C)
    if len(included):
        rest = replace(
            rest,
            predictions=_with_labelled(request.predictions, included),
            budget=request.budget - spent if request.prices is not None else int(request.budget - spent),
            counts=rows.sum(axis=0) + (0.0 if request.counts is None else request.counts),
            target=None if request.target is None else request.target.less(rows.sum(axis=0)),
        )
    rest = rest.of(limits.free)
    exact = rest.groups is None or (keeps is not None and keeps(rest.groups))
    batch = choose(rest) if exact else _choose_again(rest, choose)
    batch = replace(batch, indices=limits.free[batch.indices])
    if not len(included):
        return batch
    counts = np.zeros(rows.shape[1]) if request.counts is None else request.counts
    return _joined(included, rows, batch, Target.of(request.target).resolve(counts, len(included) + len(batch)))


def _with_labelled(predictions: Predictions, included: IntArray) -> Predictions:
    """Included rows stand among the labelled ones, where a strategy looks at these."""
    if predictions.embeddings is None or predictions.labelled_embeddings is None:
        return predictions
    if predictions.labelled_labels is not None:
        raise BadInput("include cannot be used with labelled_labels: the labels of the included images are not known")
    pool = as_matrix(predictions.embeddings, "embeddings")
    labelled = as_matrix(predictions.labelled_embeddings, "labelled_embeddings")
    both = np.concatenate([np.asarray(labelled[:]), np.asarray(pool[included])])
    return replace(predictions, labelled_embeddings=both)


def _choose_again(request: Request, choose: Callable[[Request], Selection]) -> Selection:
    """Choose; groups that got too many keep their best picks and lose their other rows; choose again.

    What a bound says of all batches, it says of those that keep to the groups.
    """
    groups = request.groups
    assert groups is not None
    kept, first = np.arange(len(request.rows)), None
    plain = replace(request, groups=None)
    while True:
        batch = choose(plain.of(kept))
        first = first or batch
        picks = kept[batch.indices]
        within = Groups(groups.numbers[picks], groups.most).survivors(np.arange(len(picks), dtype=np.float64))
        crowded = np.unique(groups.numbers[picks[~within]])
        if not len(crowded):
            break
        others = np.isin(groups.numbers[kept], crowded) & ~np.isin(kept, picks[within])
        kept = kept[~others]
    batch = replace(batch, indices=picks)
    if batch is first or len(kept) == len(request.rows):
        return batch
    if batch.status not in BOUNDED or batch.lam != first.lam:
        return replace(batch, bound=-np.inf, gap=np.inf, status="greedy")
    gap = max(0.0, batch.objective - first.bound) / max(abs(batch.objective), 1e-300)
    return replace(batch, bound=first.bound, gap=gap, status="optimal" if gap <= PROVEN else "best found")


def _joined(included: IntArray, rows: Float64Array, batch: Selection, target: Ranges) -> Selection:
    """Included rows (m, C) and the rest of the batch as one; the certificate stays that of the rest."""
    expected = batch.expected_counts + rows.sum(axis=0)
    order = np.argsort(-rows, axis=1, kind="stable")[:, :2]
    unknown = np.full(len(included), np.nan)
    assert batch.likeliest is not None
    assert batch.probabilities is not None
    return replace(
        batch,
        indices=np.concatenate([included, batch.indices]),
        target=target.low,
        target_high=target.high,
        expected_counts=expected,
        l1=target.distance(expected),
        counts_std=np.sqrt(batch.counts_std**2 + (rows * (1 - rows)).sum(axis=0)),
        likeliest=np.concatenate([order, batch.likeliest]),
        probabilities=np.concatenate([np.take_along_axis(rows, order, axis=1), batch.probabilities]),
        scores=None if batch.scores is None else np.concatenate([unknown, batch.scores]),
        included=len(included),
    )
