"""BALD: mutual information between a sample's label and the model, from T stochastic passes.

(T, N, C) probabilities in, (N,) numbers out, larger = more informative.
"""

from __future__ import annotations

import numpy as np

from ..errors import BadInput
from ..inputs import softmax_rows
from ..types import Float64Array, FloatArray
from .softmax import entropy


def bald(mc_proba: FloatArray) -> Float64Array:
    """H(mean_t p_t) − mean_t H(p_t), at least 0 (PAPER §3).

    >>> agree = np.array([[[0.5, 0.5]], [[0.5, 0.5]]])
    >>> disagree = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> bald(agree).round(4).tolist(), bald(disagree).round(4).tolist()
    ([0.0], [0.6931])
    """
    mc_proba = softmax_rows(mc_proba, "mc_proba")
    if mc_proba.ndim != 3 or not len(mc_proba):
        raise BadInput(f"mc_proba must be (passes, images, classes), but has shape {mc_proba.shape}")
    passes, rows, classes = mc_proba.shape
    mean = np.zeros((rows, classes))  # float64 sums, one pass at a time
    inner = np.zeros(rows)
    for one in mc_proba:
        mean += one
        inner += entropy(np.asarray(one, dtype=np.float64))
    information: Float64Array = np.maximum(entropy(mean / passes) - inner / passes, 0.0)
    return information
