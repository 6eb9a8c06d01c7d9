"""The handwritten digits that scikit-learn carries: 1,797 images of 8×8 pixels in 10 classes, no download.

Nothing in, flat float32 features in [0, 1] and int64 labels out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..types import FloatArray, IntArray

DIGIT_CLASSES = 10
BRIGHTEST = 16.0


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImages:
    """Images with their true labels."""

    features: FloatArray  # (N, d)
    labels: IntArray  # (N,) in 0..classes-1
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: IntArray) -> LabelledImages:
        """Some of the images, in the order of the indices."""
        return LabelledImages(self.features[indices], self.labels[indices], self.classes)

    def counts(self) -> IntArray:
        """Images per class, (C,); a class without images counts 0, it is not missing."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64)


def load_digits() -> LabelledImages:
    """All 1,797 digits.

    >>> digits = load_digits()
    >>> digits.features.shape, digits.counts().tolist()
    ((1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    """
    from sklearn.datasets import load_digits as bundled

    features, labels = bundled(return_X_y=True)
    return LabelledImages((features / BRIGHTEST).astype(np.float32), labels.astype(np.int64), DIGIT_CLASSES)
