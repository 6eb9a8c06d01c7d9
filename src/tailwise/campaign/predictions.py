"""What a model says of every usable image, kept as files that are read without loading them whole.

Made once per model; a file that is missing or does not fit is made again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..files import npy_bytes, write_whole
from ..types import FloatArray, IntArray, Progress, no_progress
from .ledger import Ledger
from .models import Predicted, newest_model, predict
from .rounds import find_model, list_models

FOLDER = "predictions"
KEPT = 2  # models whose predictions are kept: the newest, and the one that people may still look at
USABLE = "SELECT id FROM image WHERE trouble IS NULL AND duplicate_of IS NULL AND sha256 IS NOT NULL ORDER BY id"


@dataclass(frozen=True, slots=True, eq=False)
class PoolPredictions:
    """Calibrated probabilities of one model for all images that were usable when they were made.

    Attributes
    ----------
    version: of the model.
    class_ids: (C,) the order of the columns.
    ids: (n,) of images, ascending.
    proba: (n, C) float32; read from a file as needed.
    trained: (C,) labels of each class that the model learnt from.
    """

    version: str
    class_ids: tuple[int, ...]
    ids: IntArray
    proba: NDArray[np.float32]
    trained: tuple[int, ...]

    def of_class(self, class_id: int) -> FloatArray | None:
        """Probabilities of one class, (n,); None where the model has no label of it to learn from."""
        if class_id not in self.class_ids:
            return None
        place = self.class_ids.index(class_id)
        if place < len(self.trained) and not self.trained[place]:
            return None
        return np.asarray(self.proba[:, place])


def newest_version(ledger: Ledger) -> str | None:
    """The version of the newest model; None before the first."""
    with suppress(BadInput):
        return newest_model(ledger).version
    return None


def read_predictions(ledger: Ledger, version: str) -> PoolPredictions | None:
    """The kept predictions of a model; None where they are missing or damaged."""
    row = find_model(ledger, version)
    ids_file, proba_file = _files(ledger, version)
    try:
        ids = np.load(ids_file, allow_pickle=False)
        proba = np.load(proba_file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    if proba.shape != (len(ids), len(row.class_ids)):
        return None
    return PoolPredictions(version, row.class_ids, ids, proba, tuple(row.summary.get("counts", ())))


def keep_predictions(ledger: Ledger, found: Predicted) -> None:
    """Write predictions: the probabilities first, then the ids, which make them count; those of old models go."""
    order = np.argsort(found.images, kind="stable")
    ids_file, proba_file = _files(ledger, found.version)
    ids_file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(proba_file, npy_bytes(np.ascontiguousarray(found.proba[order], np.float32)))
    write_whole(ids_file, npy_bytes(np.ascontiguousarray(found.images[order])))
    recent = {row.version for row in list_models(ledger)[-KEPT:]} | {found.version}
    for path in ids_file.parent.glob("*.npy"):
        if path.name.removesuffix(".ids.npy").removesuffix(".proba.npy") not in recent:
            with suppress(OSError):
                path.unlink()


def pool_predictions(
    ledger: Ledger, version: str | None = None, *, report: Progress = no_progress
) -> PoolPredictions | None:
    """The predictions of a model, the newest if none is named, made where they are missing; None without a model."""
    chosen = newest_version(ledger) if version is None else version
    if chosen is None:
        return None
    usable = np.array([row[0] for row in ledger.read(USABLE)], dtype=np.int64)
    kept = read_predictions(ledger, chosen)
    if kept is not None and np.isin(usable, kept.ids).all():
        return kept
    found = predict(ledger, usable, chosen, report=report)
    if not ledger.read_only:
        keep_predictions(ledger, found)
    row = find_model(ledger, chosen)
    return PoolPredictions(
        chosen, found.class_ids, found.images, np.asarray(found.proba, np.float32), tuple(row.summary.get("counts", ()))
    )


def _files(ledger: Ledger, version: str) -> tuple[Path, Path]:
    if "/" in version or "\\" in version or version.startswith("."):
        raise BadInput(f"{version!r} cannot be the version of a model")
    folder = ledger.files / FOLDER
    return folder / f"{version}.ids.npy", folder / f"{version}.proba.npy"
