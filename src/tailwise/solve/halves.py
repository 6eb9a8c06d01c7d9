"""Meet in the middle: the best choice among some two dozen rows, all 2^26 of them decided in a tenth of a second.

In: a core and a few of its rows. Out: the core with exactly those rows chosen anew, none better possible. The rows
are split into two halves and all subsets of each listed; which subset of one half goes best with which of the other
is a nearest-neighbour question in city-block distance, answered by a k-d tree. For few classes only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from ..types import BoolArray, Float64Array, IntArray
from .rounding import Core

MOST_COORDINATES = 24  # beyond that a k-d tree looks at every point


def rechoose(core: Core, rows: IntArray) -> Core:
    """The core with the best choice among `rows` (positions in the core), all others left as they are."""
    kept = core.chosen.copy()
    kept[rows] = False
    wanted = int(core.chosen[rows].sum())
    pieces = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    first, second = (_subsets(core, piece) for piece in pieces)
    # The cost is the last coordinate. Measured from far below, |cost − depth| is the cost itself up to a constant.
    depth = float(np.abs(core.cost[rows]).sum())
    goal = np.append(core.goal - core.rows[kept].sum(axis=0), -depth)
    now = np.append(core.rows[core.chosen & ~kept].sum(axis=0), core.cost[core.chosen & ~kept].sum())
    best = float(np.abs(goal - now).sum()) - core.notable()
    found = None
    for count in range(wanted + 1):
        ours = np.flatnonzero(first.counts == count)
        theirs = np.flatnonzero(second.counts == wanted - count)
        if not len(ours) or not len(theirs):
            continue
        distance, left, right = _nearest(goal - first.points[ours], second.points[theirs], best)
        if distance < best:
            best, found = distance, (first.members[ours[left]], second.members[theirs[right]])
    if found is None:
        return core
    for piece, subset in zip(pieces, found, strict=True):
        kept[piece] = subset
    return core.choosing(kept)


@dataclass(frozen=True, slots=True, eq=False)
class _Subsets:
    """All subsets of a few rows, and what each adds up to."""

    members: BoolArray  # (2^n, n)
    counts: IntArray  # (2^n,)
    points: Float64Array  # (2^n, K + 1): the sum of the rows, and of their costs


def _subsets(core: Core, rows: IntArray) -> _Subsets:
    members = (np.arange(1 << len(rows))[:, None] >> np.arange(len(rows)) & 1).astype(bool)
    return _Subsets(members, members.sum(axis=1), members @ np.column_stack([core.rows[rows], core.cost[rows]]))


def _nearest(queries: Float64Array, points: Float64Array, limit: float) -> tuple[float, int, int]:
    """The least city-block distance below `limit` of any query to any point, and which these are."""
    if len(queries) > len(points):  # the tree is made of the longer list
        distance, right, left = _nearest(points, queries, limit)
        return distance, left, right
    tree = KDTree(points, leafsize=16, balanced_tree=False, compact_nodes=False)
    answer = tree.query(queries, p=1, distance_upper_bound=limit, workers=-1)
    distances, nearest = np.asarray(answer[0]), np.asarray(answer[1])
    query = int(distances.argmin())
    return float(distances[query]), query, int(nearest[query])
