"""Algorithm 2 written down literally, pools to run it on, and a matrix that can do no more than a file can."""

from __future__ import annotations

import numpy as np

from tailwise.targets import Ranges


def literal(
    pool: np.ndarray, labelled: np.ndarray, budget: int, proba: np.ndarray, lam: float, ranges: Ranges,
    first: list[int] | None = None,
) -> list[int]:  # fmt: skip
    """PAPER §4 as it stands: every distance and every price anew, one pick at a time; `first` are made beforehand."""
    pool, proba = pool.astype(np.float64), proba.astype(np.float64)
    centres = [*labelled.astype(np.float64), *pool[first or []]]
    d = np.min([np.sqrt(((pool - one) ** 2).sum(axis=1)) for one in centres], axis=0)
    picks = list(first or [])
    expected = np.zeros(proba.shape[1])
    for row in picks:
        expected += proba[row]
    while len(picks) < budget:
        after = expected + proba
        distance = np.maximum(ranges.low - after, 0) + np.maximum(after - ranges.high, 0)
        price = -d + lam * distance.sum(axis=1)
        price[picks] = np.inf
        best = int(price.argmin())
        picks.append(best)
        expected += proba[best]
        d = np.minimum(d, np.sqrt(((pool - pool[best]) ** 2).sum(axis=1)))
    return picks


def random_case(seed: int, size: int = 300, classes: int = 6) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Long-tailed clusters: pool, labelled, probabilities."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, size=size, p=np.geomspace(1, 0.02, classes) / np.geomspace(1, 0.02, classes).sum())
    centres = rng.normal(size=(classes, 8))
    pool = (centres[labels] + rng.normal(size=(size, 8))).astype(np.float32)
    proba = rng.dirichlet(np.full(classes, 0.3), size=size).astype(np.float32)
    return pool, (centres[rng.integers(classes, size=20)] + rng.normal(size=(20, 8))).astype(np.float32), proba


class OnDisk:
    """Has `shape`, `dtype` and `[slice or ascending indices]`, and remembers the most rows ever asked for at once."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype
        self.most = 0

    def __getitem__(self, where: slice | np.ndarray) -> np.ndarray:
        if not isinstance(where, slice):
            assert where.dtype == np.int64
            assert (np.diff(where) > 0).all()
        found = self._array[where].copy()
        self.most = max(self.most, len(found))
        return found
