"""How balanced is a labelled set? Counts per class in, one number out (PAPER §9)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..inputs import per_class, real_array


def l1_score(counts: ArrayLike) -> float:
    """Distance from uniform: Σ|n_i − M/C| · C / (2M(C−1)); 0 = uniform, 1 = all in one class.

    >>> l1_score([5, 5]), l1_score([10, 0])
    (0.0, 1.0)
    """
    n = real_array(counts, "counts")
    n = per_class(n, "counts", n.size)  # (C,)
    total, classes = n.sum(), len(n)
    if total == 0 or classes < 2:
        return 0.0
    return float(np.abs(n - total / classes).sum() * classes / (2 * total * (classes - 1)))
