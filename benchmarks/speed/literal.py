"""Other people's methods, written down literally, to compare picks with."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from .instances import Array


def algorithm_2(pool: Array, labelled: Array, proba: Array, omega: Array, lam: float, budget: int) -> Array:
    """Algorithm 2, one pick at a time in float64: ψ = argmin_i −d_i + λ·‖Ω − P_i − Pᵀz‖₁; d ← min(d, distance to ψ)."""
    pool, proba = pool.astype(np.float64), proba.astype(np.float64)
    distance = nearest(pool, labelled.astype(np.float64))  # d (N,)
    expected = np.zeros(proba.shape[1])  # Pᵀz
    picks: list[int] = []
    for _ in range(budget):
        price = lam * cdist(proba, (omega - expected)[None], "cityblock")[:, 0] - distance
        price[picks] = np.inf
        best = int(price.argmin())
        picks.append(best)
        expected += proba[best]
        distance = np.minimum(distance, cdist(pool, pool[best][None])[:, 0])
    return np.array(picks)


def nearest(points: Array, centres: Array, step: int = 1_000) -> Array:
    """Distance of each point to the nearest centre, (N,), in strips of bounded memory."""
    strips = [cdist(points[at : at + step], centres).min(axis=1) for at in range(0, len(points), step)]
    return np.concatenate(strips)


def class_balancer(proba: Array, scores: Array, budget: int, rng: np.random.Generator) -> Array:
    """small-text's ClassBalancer over an entropy strategy, with nothing labelled yet: quotas by predicted class.

    Each predicted class gives b/C of its most informative rows (what is left over goes to classes at random), or all it
    has; the rows then missing are spread at random over the classes that have more.
    """
    predicted = proba.argmax(axis=1)
    classes = proba.shape[1]
    available = np.bincount(predicted, minlength=classes)
    quota = np.full(classes, budget // classes)
    quota[rng.permutation(classes)[: budget % classes]] += 1
    quota = np.minimum(quota, available)
    spare = rng.permutation(np.repeat(np.arange(classes), available - quota))[: budget - quota.sum()]
    quota += np.bincount(spare, minlength=classes)
    ranked = np.argsort(-scores, kind="stable")
    return np.concatenate([ranked[predicted[ranked] == k][: quota[k]] for k in range(classes)])
