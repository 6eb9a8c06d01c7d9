"""Several swaps at once: where no single swap gains, two or three together often do.

In: a core at a local optimum. Out: a better one. Pairs are priced all against all; triples are nearest-neighbour
queries in a k-d tree, which works while the classes are few.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from ..types import Float64Array, IntArray
from .rounding import NOTABLE, Core
from .shards import smallest

PAIR_BLOCK = 256
TRIPLE_COORDINATES = 24  # beyond that a k-d tree looks at every point
TRIPLE_SWAPS = 300
TRIPLE_PAIRS = 15_000
NEIGHBOURS = 2  # the nearest may share a row with the query
PAIRED_SWAPS = 500
MOST_ROUNDS = 50


def pair_descent(core: Core) -> Core:
    """Two swaps at once, the best pair of the cheapest swaps, until none gains."""
    least = NOTABLE * (1.0 + abs(core.value()))
    for _ in range(MOST_ROUNDS):
        pair = _best_pair(core, least)
        if pair is None:
            break
        core = _exchanged(core, *pair)
    return core


def triple_descent(core: Core) -> Core:
    """Up to three swaps at once, until none gains; the core is returned as it is where there are many classes."""
    if core.rows.shape[1] > TRIPLE_COORDINATES:
        return core
    least = NOTABLE * (1.0 + abs(core.value()))
    for _ in range(MOST_ROUNDS):
        triple = _best_triple(core, least)
        if triple is None:
            break
        core = pair_descent(_exchanged(core, *triple))  # pairs are quicker to look through
    return core


def kick(core: Core, swaps: int, rng: np.random.Generator) -> Core:
    """A few random cheap swaps: a start from which descent may end elsewhere."""
    outs, intos, _, _ = _cheap_swaps(core, TRIPLE_SWAPS)
    for swap in rng.permutation(np.arange(1, len(outs)))[:swaps]:
        if core.chosen[outs[swap]] and not core.chosen[intos[swap]]:
            core = _exchanged(core, outs[[swap]], intos[[swap]])
    return core


def _exchanged(core: Core, outs: IntArray, intos: IntArray) -> Core:
    chosen = core.chosen.copy()
    chosen[outs], chosen[intos] = False, True
    return core.choosing(chosen)


def _best_pair(core: Core, least: float) -> tuple[IntArray, IntArray] | None:
    """Rows out and rows in of the best one or two swaps; None where nothing gains more than `least`."""
    outs, intos, price, moves = _cheap_swaps(core, PAIRED_SWAPS)
    residual = core.residual()
    best, found = -least, None
    now = float(np.abs(residual).sum())
    for start in range(0, len(outs), PAIR_BLOCK):
        part = slice(start, start + PAIR_BLOCK)
        total = cdist(residual - moves[part], moves, "cityblock")
        total += price[part, None] + (price - now)
        if total.min() >= best:
            continue
        # a row cannot leave or enter twice; the first "swap" is doing nothing, and may be paired with itself
        total[((outs[part, None] == outs) | (intos[part, None] == intos)) & (outs != -1)] = np.inf
        at = int(total.argmin())
        first, second = start + at // len(outs), at % len(outs)
        if total.flat[at] < best:
            best = float(total.flat[at])
            real = [index for index in (first, second) if outs[index] != -1]
            found = outs[real], intos[real]
    return found


def _cheap_swaps(core: Core, most: int) -> tuple[IntArray, IntArray, Float64Array, Float64Array]:
    """The `most` swaps of least reduced cost, after the empty one: rows out, rows in, prices and moves (K,)."""
    inside, outside = np.flatnonzero(core.chosen), np.flatnonzero(~core.chosen)
    reduced = core.reduced[outside] - core.reduced[inside][:, None]  # (inside, outside)
    cheap = smallest(reduced.ravel(), min(most, reduced.size))
    first, second = inside[cheap // len(outside)], outside[cheap % len(outside)]
    price = np.append(0.0, core.cost[second] - core.cost[first])
    moves = np.concatenate([np.zeros((1, core.rows.shape[1])), core.rows[second] - core.rows[first]])
    return np.append(-1, first), np.append(-1, second), price, moves


def _best_triple(core: Core, least: float) -> tuple[IntArray, IntArray] | None:
    """Rows out and rows in of the best one to three swaps; None where nothing gains more than `least`.

    The price of a set of moves is the last coordinate of their sum. Measured from far below, |price − depth| is the
    price itself up to a constant, so the cheapest set is the nearest neighbour in city-block distance.
    """
    outs, intos, price, moves = _cheap_swaps(core, TRIPLE_SWAPS)
    points = np.column_stack([moves, price])  # (1 + swaps, K + 1)
    first, second = _cheap_pairs(core, outs, intos)
    tree = KDTree(np.concatenate([points, points[first] + points[second]]), leafsize=32)
    depth = 1.0 + 3 * float(np.abs(price).max(initial=0.0))
    residual = core.residual()
    goal = np.append(residual, -depth)
    limit = float(np.abs(residual).sum()) + depth - least
    nearest = tree.query(goal - points, k=NEIGHBOURS, p=1, distance_upper_bound=limit, workers=-1)
    distance, found = np.asarray(nearest[0]), np.asarray(nearest[1])  # (1 + swaps, neighbours) each
    # members[i]: the swaps that point i of the tree is made of; 0 is the empty swap
    members = np.zeros((tree.n, 2), dtype=np.int64)
    members[: len(points), 0] = np.arange(len(points))
    members[len(points) :] = np.column_stack([first, second])
    for at in np.argsort(distance, axis=None, kind="stable"):
        query, rank = divmod(int(at), NEIGHBOURS)
        if not np.isfinite(distance[query, rank]):
            return None
        swaps = np.array([query, *members[found[query, rank]]])
        swaps = swaps[swaps > 0]
        if len(set(outs[swaps])) == len(set(intos[swaps])) == len(swaps):
            return outs[swaps], intos[swaps]
    return None


def _cheap_pairs(core: Core, outs: IntArray, intos: IntArray) -> tuple[IntArray, IntArray]:
    """The pairs of different swaps with the least reduced cost, as positions in the list of swaps."""
    reduced = core.reduced[intos] - core.reduced[outs]
    first, second = np.triu_indices(len(outs) - 1, k=1)
    first, second = first + 1, second + 1  # 0 is the empty swap
    apart = (outs[first] != outs[second]) & (intos[first] != intos[second])
    first, second = first[apart], second[apart]
    cheap = smallest(reduced[first] + reduced[second], TRIPLE_PAIRS)
    return first[cheap], second[cheap]
