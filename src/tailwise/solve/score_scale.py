"""The spread of scores in any unit: what one image can gain or lose, and so the unit of λ.

"auto" is a share of it. The paper's grid of λ is (0, 3] for entropy, whose range is log C; for other scores it is
stretched by their spread. A score of −1e9 for rows to leave out, or of +1e9 for rows to take, says nothing of that
spread: such rows are cut off.
"""

from __future__ import annotations

import numpy as np

from ..types import Float64Array
from .shards import Column

SAMPLED_ROWS = 1 << 17
CUT_OFF = 10.0  # a jump in the sorted scores that is so many times larger than all other differences together
CUT_OFF_EQUAL = 1e6  # the same where all rows on the kept side have one score, in units of that score or of 1
TRIMMED = 0.01  # of the rows that are left, at either end


def score_scale(costs: Column, budget: int) -> float:
    """What λ = 1 is for scores −u, relative to entropy; judged by a sample where the rows are many."""
    return scale_of(*_scores_seen(costs, budget), costs.rows.classes)


def spread_of(costs: Column, budget: int) -> float:
    """What one image can gain or lose in score, for scores −u; 1 where all are equal."""
    return score_spread(*_scores_seen(costs, budget)) or 1.0


def _scores_seen(costs: Column, budget: int) -> tuple[Float64Array, int]:
    """The scores, or a sample of them, and how many of them a batch would have."""
    size = costs.rows.size
    if size <= SAMPLED_ROWS:
        return -costs.values(), budget
    sample = costs.at(np.random.default_rng(0).integers(0, size, SAMPLED_ROWS))
    return -sample, -(-budget * SAMPLED_ROWS // size)


def scale_of(scores: Float64Array, budget: int, classes: int) -> float:
    """The spread of scores over that of entropy, log C; 1 where there is no spread.

    >>> f"{scale_of(np.linspace(0, 1, 101), 1, 2):.4f}"
    '1.4283'
    """
    spread = score_spread(scores, budget)
    return spread / float(np.log(classes)) if spread > 0 and classes > 1 else 1.0


def score_spread(scores: Float64Array, budget: int) -> float:
    """The range of the scores without 1 % at either end and without rows that are cut off from the others.

    Where the best b are fewer than 2 % their median is the upper end: it is among these rows that λ decides.

    >>> score_spread(np.append(np.linspace(0, 1, 101), [-1e9, -1e9]), budget=1)
    0.99
    """
    ordered = _without_cut_off(np.sort(scores), budget)
    if not len(ordered):
        return 0.0
    trimmed = int(TRIMMED * len(ordered))
    best = ordered[len(ordered) - 1 - min(trimmed, max(0, budget - 1) // 2)]
    spread = float(best - ordered[trimmed])
    return spread if spread > 0 else float(ordered[-1] - ordered[0])


def _without_cut_off(ordered: Float64Array, budget: int) -> Float64Array:
    """Ascending scores without those below, or above, a jump that dwarfs all other differences.

    Rows below it are to be left out if a whole batch lies above it; else the rows above it are to be taken in any case.
    """
    while len(ordered) > 2:
        jumps = np.diff(ordered)
        at = int(jumps.argmax()) + 1
        kept = ordered[at:] if len(ordered) - at >= budget else ordered[:at]
        others = float(ordered[-1] - ordered[0]) - float(jumps[at - 1])
        least = CUT_OFF * others if kept[-1] > kept[0] else CUT_OFF_EQUAL * max(1.0, abs(float(kept[0])))
        if jumps[at - 1] <= least:
            break
        ordered = kept
    return ordered
