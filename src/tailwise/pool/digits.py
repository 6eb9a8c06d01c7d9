"""The handwritten digits that scikit-learn carries: 1,797 images of 8×8 pixels in 10 classes, no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..types import IntArray
from .images import LabelledImages, Pool
from .longtail import keep_counts
from .registry import POOLS

NAMES = tuple(str(digit) for digit in range(10))
BRIGHTEST = 16.0
TEST_PER_CLASS = 40
SPLIT_SEED = 0  # which digits are tested on is part of the data set, not of an experiment


def load_digits() -> LabelledImages:
    """All 1,797 digits, flat float32 features in [0, 1].

    >>> digits = load_digits()
    >>> digits.inputs.shape, digits.counts().tolist()
    ((1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    """
    from sklearn.datasets import load_digits as bundled

    features, labels = bundled(return_X_y=True)
    return LabelledImages((features / BRIGHTEST).astype(np.float32), labels.astype(np.int64), NAMES)


@POOLS.register("digits")
def digits(path: Path | None = None) -> Pool:  # noqa: ARG001 - needs no files
    """The digits, 40 of each for the test."""
    images = load_digits()
    wanted = np.full(images.classes, TEST_PER_CLASS)
    tested = keep_counts(images.labels, wanted, np.random.default_rng(SPLIT_SEED))
    others: IntArray = np.setdiff1d(np.arange(len(images)), tested)
    return Pool("digits", images.take(others), images.take(tested))
