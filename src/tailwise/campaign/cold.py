"""A batch before there is a model: features of the pool, and of what is labelled, in; a typical and diverse batch out.

Distances are taken along the main axes of the features, where a pool of 50,000 is clustered in seconds, not minutes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..learners.linear import Float32Array
from ..processes import one_blas_thread
from ..strategies import cold_start, make
from ..types import Selection

AXES = 64  # on CIFAR-10 features 64 axes give as good a first batch as all 256, to within noise
SAMPLE = 4096  # images that the axes are found from
STEPS = 3  # of the search for axes
STRATEGY = "typiclust"
WITHOUT_MODEL = ("random", "kcenter", "maxherding", "uherding", STRATEGY)  # they need no model for a first batch


def choose_cold(
    pool: Float32Array, labelled: Float32Array, budget: int, *, strategy: str, classes: int, seed: int
) -> Selection:
    """Rows of the pool, chosen by a strategy that needs no model, or else by TypiClust, away from what is labelled."""
    name = strategy if strategy in WITHOUT_MODEL else STRATEGY
    short, labelled_short = main_axes(pool, labelled)
    blank = replace(cold_start(short, classes=classes), labelled_embeddings=labelled_short)
    return make(name, balance=0.0).select(blank, budget, seed=seed)


def main_axes(pool: Float32Array, others: Float32Array, axes: int = AXES) -> tuple[Float32Array, Float32Array]:
    """Features (n, d) along the pool's axes of greatest spread, (n, axes), and others along the same.

    By subspace iteration on a sample: no d × d matrix has to be decomposed. Narrow features stay as they are.
    """
    width = pool.shape[1]
    if width <= axes or len(pool) <= axes:
        return pool, others
    sample = pool[np.linspace(0, len(pool) - 1, min(len(pool), SAMPLE)).astype(np.int64)]
    centre = sample.mean(axis=0)
    sample = sample - centre
    basis = np.random.default_rng(0).standard_normal((width, min(axes + 16, width))).astype(np.float32)
    with one_blas_thread():
        for _ in range(STEPS):
            basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
        turned = np.linalg.svd(sample @ basis, full_matrices=False)[2]  # (axes + 16, axes + 16)
        found = (basis @ turned.T)[:, :axes]
        return (pool - centre) @ found, (others - centre) @ found
