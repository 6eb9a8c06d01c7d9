"""The likeliest classes of every image, as a server keeps them in memory: asked for once per model, and there later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..campaign.ledger import Ledger
from ..campaign.predictions import USABLE, read_predictions
from ..types import FloatArray, IntArray

TOP = 3  # classes of an image that are kept


@dataclass(frozen=True, slots=True, eq=False)
class ModelPredictions:
    """The likeliest classes of every image by one model.

    Attributes
    ----------
    version: of the model.
    ids: (n,) of images, ascending.
    classes: (n, k) class ids, the likeliest first.
    confidence: (n, k) their probabilities.
    """

    version: str
    ids: IntArray
    classes: IntArray
    confidence: FloatArray

    @classmethod
    def read(cls, path: Path, version: str) -> ModelPredictions:
        """From the file that a job wrote."""
        with np.load(path, allow_pickle=False) as file:
            order = np.argsort(file["ids"], kind="stable")
            return cls(version, file["ids"][order], file["classes"][order], file["confidence"][order])

    def top(self, image: int) -> list[tuple[int, float]]:
        """Class ids and probabilities of an image; empty where the image is unknown."""
        at = int(np.searchsorted(self.ids, image))
        if at == len(self.ids) or self.ids[at] != image:
            return []
        return list(zip(self.classes[at].tolist(), self.confidence[at].tolist(), strict=True))


def kept_predictions(ledger: Ledger, version: str) -> ModelPredictions | None:
    """What an earlier job has kept of a model, where it knows all images of now."""
    found = read_predictions(ledger, version)
    if found is None or ledger.read(f"SELECT count(*) FROM ({USABLE})")[0][0] != len(found.ids):
        return None
    best = np.argsort(-found.proba, axis=1, kind="stable")[:, :TOP]
    classes = np.array(found.class_ids, dtype=np.int64)[best]
    return ModelPredictions(version, found.ids, classes, np.take_along_axis(found.proba, best, 1))


@dataclass(slots=True)
class PredictionCache:
    """The predictions of one model at a time; those of another are requested once, and arrive later."""

    ask: Callable[[str], None]  # for the predictions of a version
    kept: ModelPredictions | None = None
    asked: str | None = None  # the version that was asked for last
    failed: str | None = None  # the version whose predictions will not arrive

    def of(self, version: str | None) -> ModelPredictions | None:
        """The predictions of a model; None until they have arrived."""
        kept = self.kept
        if kept is not None and kept.version == version:
            return kept
        if version is not None and self.asked != version:
            self.asked = version
            self.ask(version)
        return None
