"""Models of a campaign: heads on cached features, trained on the images that were labelled at some event.

The ledger keeps what a model was made from (last event, classes, backbone, learner, seed); its files are a cache, made
again if lost.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..adapters.sklearn import as_learner
from ..calibration import Calibration
from ..cycle import fit
from ..errors import BadFile, BadInput
from ..learners import LEARNERS, make_learner
from ..learners.learner import SETTINGS_FILE, Learner, Model
from ..pools.pool import LabelledImages
from ..types import FloatArray, IntArray, Progress, no_progress
from .answers import hunted
from .classes import list_classes
from .features import Embedding, embed
from .ledger import HasLedger, Ledger, ledger_of
from .rounds import ModelRow, find_model, list_models

FOLDER = "models"
HEADS = ("linear", "mlp")  # learners of ours that take features
HOME = __name__.partition(".")[0]

# -- the labelled set, now or at an event of the past ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A labelled set at one moment, ready to learn from.

    Attributes
    ----------
    images: (L,) ids, ascending; of images with equal bytes the first.
    labels: (L,) columns: places in `class_ids`.
    class_ids: (C,) the classes, by position.
    last_event: the last event that counts.
    disputed: images left out because an image with equal bytes has another label.
    hunted: ids of images that were found by looking for their class: no sample of the pool.
    """

    images: IntArray
    labels: IntArray
    class_ids: tuple[int, ...]
    last_event: int
    disputed: int = 0
    hunted: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.images)

    def counts(self) -> IntArray:
        """Images per class, (C,)."""
        return np.bincount(self.labels, minlength=len(self.class_ids)).astype(np.int64)

    def drawn(self) -> tuple[int, ...] | None:
        """Images per class without the hunted, (C,), from which shares are estimated; None where none was hunted."""
        if not self.hunted:
            return None
        kept = ~np.isin(self.images, list(self.hunted))
        return tuple(np.bincount(self.labels[kept], minlength=len(self.class_ids)).tolist())

    def digest(self, ledger: Ledger) -> str:
        """Names the set by the content of its images and by its classes."""
        bytes_of = {row["id"]: row["sha256"] for row in ledger.read("SELECT id, sha256 FROM image")}
        pairs = zip(self.images.tolist(), self.labels.tolist(), strict=True)
        lines = sorted(f"{bytes_of[image]} {self.class_ids[label]}" for image, label in pairs)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def labelled_set(ledger: Ledger, event: int | None = None, class_ids: tuple[int, ...] | None = None) -> Labelled:
    """What can be learnt from at an event, or now: labels of these classes, or of those in use."""
    with ledger.reading():
        last = last_event(ledger) if event is None else event
        images, classes = labels_at(ledger, last)
        bytes_of = {row["id"]: row["sha256"] for row in ledger.read("SELECT id, sha256 FROM image")}
        used = tuple(one.id for one in list_classes(ledger)) if class_ids is None else class_ids
        found = frozenset(hunted(ledger)) if event is None else frozenset()
    column = {number: place for place, number in enumerate(used)}
    said: dict[str, list[tuple[int, int]]] = {}  # bytes → image and class
    for image, cls in zip(images.tolist(), classes.tolist(), strict=True):
        said.setdefault(bytes_of[image] or str(image), []).append((image, cls))
    agreed = [group[0] for group in said.values() if len({cls for _, cls in group}) == 1]
    disputed = sum(len(group) for group in said.values() if len({cls for _, cls in group}) > 1)
    kept = sorted((image, column[cls]) for image, cls in agreed if cls in column)
    pairs = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return Labelled(pairs[:, 0].copy(), pairs[:, 1].copy(), used, last, disputed, found)


_LABELS = """
WITH standing AS (
    SELECT e.id, e.image_id, e.annotator, e.kind, e.class_id FROM event AS e
    WHERE e.id <= :last AND e.kind <> 'undo'
        AND NOT EXISTS (SELECT 1 FROM event AS u WHERE u.undoes = e.id AND u.kind = 'undo' AND u.id <= :last)
),
answered AS (
    SELECT image_id, annotator, kind, class_id, max(id) FROM standing WHERE kind IN ('label', 'other', 'skip')
    GROUP BY image_id, annotator
),
decision AS (
    SELECT image_id, kind, class_id, max(id) FROM standing WHERE kind IN ('settle-label', 'settle-other')
    GROUP BY image_id
)
SELECT image_id, class_id FROM decision WHERE kind = 'settle-label'
UNION ALL
SELECT image_id, min(class_id) FROM answered
WHERE kind <> 'skip' AND image_id NOT IN (SELECT image_id FROM decision)
GROUP BY image_id HAVING sum(kind = 'other') = 0 AND min(class_id) = max(class_id)
ORDER BY 1
"""  # with max() the other columns are those of the row that has it


def labels_at(ledger: Ledger, event: int) -> tuple[IntArray, IntArray]:
    """Images (L,) and classes (L,), as ids, that were decided when this was the last event."""
    rows = ledger.read(_LABELS, {"last": event})
    pairs = np.array([(row[0], row[1]) for row in rows], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def last_event(ledger: Ledger) -> int:
    """The number of the last event; 0 before the first."""
    return int(ledger.read("SELECT coalesce(max(id), 0) FROM event")[0][0])


def with_features(labelled: Labelled, embedding: Embedding) -> Labelled:
    """The labelled set without the images that have no features."""
    there = embedding.rows(labelled.images)[1]
    return replace(labelled, images=labelled.images[there], labels=labelled.labels[there])


# -- trained models ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A model with what the ledger says of it."""

    row: ModelRow
    model: Model
    calibration: Calibration
    rebuilt: str = ""  # why it had to be made again; "" where it was read


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What a model says of images.

    Attributes
    ----------
    version: of the model.
    class_ids: (C,) the order of the columns.
    images: (n,) ids of those that have features, in the order in which they were asked for.
    proba: (n, C) calibrated.
    """

    version: str
    class_ids: tuple[int, ...]
    images: IntArray
    proba: FloatArray

    def best(self) -> tuple[IntArray, FloatArray]:
        """The likeliest class of each image, as an id, (n,), and its probability, (n,)."""
        places = self.proba.argmax(axis=1)
        return np.array(self.class_ids, dtype=np.int64)[places], self.proba[np.arange(len(places)), places]


def predict(
    campaign: HasLedger | Ledger, image_ids: IntArray, version: str | None = None, *, report: Progress = no_progress
) -> Predicted:
    """Ask a model, the newest if none is named, about images; those that cannot be read are left out."""
    ledger = ledger_of(campaign)
    trained = load(ledger, version, report=report)
    asked = np.asarray(image_ids, dtype=np.int64)
    embedding = embed(ledger, asked, backbone=str(trained.row.settings["backbone"]), report=report)
    rows, there = embedding.rows(asked)
    classes = trained.row.class_ids
    if not there.any():
        return Predicted(trained.row.version, classes, asked[:0], np.zeros((0, len(classes)), np.float32))
    proba = trained.calibration.apply(np.asarray(trained.model.predict_proba(embedding.features[rows[there]])))
    return Predicted(trained.row.version, classes, asked[there], proba)


def load(ledger: Ledger, version: str | None = None, *, report: Progress = no_progress) -> Trained:
    """A model by its version, or the newest; one that is missing or damaged is made again from the ledger."""
    row = newest_model(ledger) if version is None else find_model(ledger, version)
    calibration = _read_calibration(row.summary.get("calibration", {}))
    fault = fault_of(ledger, row)
    if fault is None and row.summary.get("sha256"):
        return Trained(row, head_named(row.learner).load(model_folder(ledger, row.version)), calibration)
    if row.settings.get("own"):
        raise BadInput(
            f"the model {row.version} was made by {row.learner}, a learner that was given to Campaign.next and is not "
            "stored; open the next round with a learner that has a name, and its model can be asked"
        )
    return Trained(row, rebuild(ledger, row, report=report), calibration, fault or "")


def newest_model(ledger: Ledger) -> ModelRow:
    """The model of the last round that has one."""
    rows = ledger.read("SELECT model_version FROM round WHERE model_version IS NOT NULL ORDER BY id DESC LIMIT 1")
    if rows:
        return find_model(ledger, rows[0]["model_version"])
    known = list_models(ledger)
    if not known:
        raise BadInput("there is no model yet: label images of at least two classes, then open the next round")
    return known[-1]


def fault_of(ledger: Ledger, row: ModelRow) -> str | None:
    """Why the files of a model cannot be used; None where they can, and for learners whose models are not stored."""
    if not row.summary.get("sha256"):
        return None
    folder = model_folder(ledger, row.version)
    if not folder.is_dir():
        return f"its folder {folder} is missing"
    try:
        head_named(row.learner).load(folder)
    except BadFile as error:
        return str(error)
    if checksum_of(folder) != row.summary.get("sha256"):
        return f"{folder} holds another model than the one that was made"
    return None


def rebuild(ledger: Ledger, row: ModelRow, *, report: Progress = no_progress) -> Model:
    """Make a model again from the labels that were known to it, and keep it where the ledger may be written.

    The same labels give the same model; where features are lost with their images, the others must do.
    """
    labelled = labelled_set(ledger, int(row.settings["last_event"]), row.class_ids)
    embedding = embed(ledger, labelled.images, backbone=str(row.settings["backbone"]), report=report)
    found = with_features(labelled, embedding)
    if not len(found):
        raise BadFile(
            f"the model {row.version} is lost and cannot be made again: none of its {row.labels} labelled images has "
            "features any more; bring the images back, or open the next round"
        )
    model, _ = train(found, embedding, learner=row.learner, seed=int(row.settings["seed"]), report=report)
    if not ledger.read_only:
        folder = model_folder(ledger, row.version)
        shutil.rmtree(folder, ignore_errors=True)
        model.save(folder)
    return model


def train(
    labelled: Labelled, embedding: Embedding, *, learner: str | Learner, seed: int, report: Progress = no_progress
) -> tuple[Model, LabelledImages]:
    """Fit a head on a labelled set, all of which has features; gives the set too, as it was learnt from."""
    features = embedding.features[embedding.rows(labelled.images)[0]]
    names = tuple(str(number) for number in labelled.class_ids)
    images = LabelledImages(features, labelled.labels, names)
    return fit(head_named(learner), images, seed=seed, report=report), images


def head_named(name: object) -> Learner:
    """A learner for a campaign, which learns from features: by name, or an object with `fit` and `predict_proba`."""
    if not isinstance(name, str):
        return as_learner(name)
    own = name.count(":") == 1 or (name in LEARNERS and LEARNERS[name].__module__.partition(".")[0] != HOME)
    if name not in HEADS and not own:
        raise BadInput(
            f"a campaign learns on cached features, so its learner is one of {', '.join(HEADS)}, not {name!r}; or name "
            "one of your own, 'package.module:Class'"
        )
    return as_learner(make_learner(name), name)


def describe(
    version: str, ledger: Ledger, labelled: Labelled, *, learner: str, backbone: str, seed: int,
    calibration: Calibration, checksum: str,
) -> ModelRow:  # fmt: skip
    """What the ledger is to keep of a model, from which it can be made again."""
    settings = {"backbone": backbone, "seed": seed, "last_event": labelled.last_event}
    summary = {
        "counts": labelled.counts().tolist(),
        "training": labelled.digest(ledger),
        "sha256": checksum,
        "calibration": _calibration_facts(calibration),
    }
    return ModelRow(version, learner, settings, len(labelled), labelled.class_ids, summary)


def _calibration_facts(calibration: Calibration) -> dict[str, Any]:
    trained = None if calibration.trained is None else calibration.trained.tolist()
    return {
        "kind": calibration.kind, "temperature": calibration.temperature, "trained": trained,
        "unseen": calibration.unseen,
    }  # fmt: skip


def _read_calibration(facts: Mapping[str, Any]) -> Calibration:
    """What the ledger keeps; earlier versions kept kind and temperature alone."""
    trained = facts.get("trained")
    return Calibration(
        str(facts.get("kind", "none")), float(facts.get("temperature", 1.0)),
        None if trained is None else np.asarray(trained, dtype=np.float64), unseen=float(facts.get("unseen", 0.0)),
    )  # fmt: skip


def save(ledger: Ledger, version: str, model: Model) -> str:
    """Write a model's files, whole or not at all; gives their checksum."""
    folder = model_folder(ledger, version)
    model.save(folder)
    return checksum_of(folder)


def model_folder(ledger: Ledger, version: str) -> Path:
    """Where the files of a model are."""
    if "/" in version or "\\" in version or version.startswith("."):
        raise BadInput(f"{version!r} cannot be the version of a model")
    return ledger.files / FOLDER / version


def checksum_of(folder: Path) -> str:
    """The checksum that the files of a model name; "" where they name none."""
    try:
        return str(json.loads((folder / SETTINGS_FILE).read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
