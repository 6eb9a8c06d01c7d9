"""Two swaps at once: where no single swap gains, a pair often does.

In: a core at a local optimum. Out: a better one; all pairs of the cheapest swaps are priced.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from ..types import Float64Array, IntArray
from .blocks import smallest
from .rounding import Core

PAIR_BLOCK = 256
KICKED_SWAPS = 300  # kicks are drawn from so many
PAIRED_SWAPS = 200
MOST_ROUNDS = 50


def pair_descent(core: Core) -> Core:
    """Two swaps at once, the best pair of the cheapest swaps, until none gains."""
    least = core.notable()
    for _ in range(MOST_ROUNDS):
        pair = _best_pair(core, least)
        if pair is None:
            break
        core = _exchanged(core, *pair)
    return core


def kick(core: Core, swaps: int, rng: np.random.Generator) -> Core:
    """A few random cheap swaps: a start from which descent may end elsewhere."""
    outs, intos, _, _ = _cheap_swaps(core, KICKED_SWAPS)
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
