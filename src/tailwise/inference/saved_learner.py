"""A learner on the disk, made ready for images: a folder in, pixels → probabilities and embeddings out.

The folder is what a model's `save` wrote, or a campaign, whose newest model is then taken with its backbone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration import Calibration
from ..campaign import models
from ..campaign.classes import list_classes
from ..campaign.database import LEDGER_FILE
from ..campaign.features import LITE0, SIMPLE, chosen_backbone
from ..campaign.ledger import Ledger
from ..errors import BadFile, BadInput
from ..learners import LEARNERS, make_learner
from ..learners.backbone import OTHER_NAMES, Backbone, FrozenModel
from ..learners.learner import SETTINGS_FILE, Model, need_torch
from ..learners.linear import Head
from ..pools.pool import InputArray
from ..types import FloatArray

FROZEN, FROZEN_FILE = "frozen", "frozen.json"
MOST_SIZE = 4096  # pixels of a side
USUAL_SIZE = 64  # that of the pool "folder", for nets that look at images of any size

Features = Callable[[InputArray], InputArray]  # (n, size, size, 3) uint8 → what the model was fitted on


@dataclass(frozen=True, slots=True, eq=False)
class SavedLearner:
    """Where a learner is and what goes into it; small enough to be sent to any worker, which then opens it.

    Attributes
    ----------
    folder: of the model's files.
    kind: the learner's name.
    backbone: a frozen net or "simple", whose features the model was fitted on; None where it looks at pixels.
    size: pixels of a side of the images that go in.
    class_names: (C,), or () where they are unknown.
    calibration: of a campaign's model; of others, none.
    checksum: of all that the answers depend on.
    """

    folder: Path
    kind: str
    backbone: Backbone | str | None
    size: int
    classes: int
    class_names: tuple[str, ...] = ()
    calibration: Calibration = field(default_factory=Calibration)
    checksum: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Predictor:
    """A learner that was opened."""

    model: Model
    features: Features
    calibration: Calibration

    def answer(self, pixels: InputArray, *, embeddings: bool) -> tuple[FloatArray, FloatArray | None]:
        """Probabilities (n, C) float32, rows sum to 1, and embeddings (n, d) where they are asked for."""
        features = self.features(pixels)
        proba = np.asarray(self.calibration.apply(np.asarray(self.model.predict_proba(features))))
        embedded = np.asarray(self.model.embed(features), np.float32) if embeddings else None
        if not np.isfinite(proba).all() or (embedded is not None and not np.isfinite(embedded).all()):
            raise BadInput("the learner gives NaN or infinity; train it again")
        return (proba / proba.sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32), embedded


def find_learner(path: str | Path, *, backbone: str | None = None, size: int | None = None) -> SavedLearner:
    """Look at a saved learner: what it is, and what images it wants.

    `backbone` names what made the features of a head that was saved alone; `size` the pixels of a side that a net
    was trained on. Both are read from the files where these contain them.
    """
    folder = Path(path).expanduser().resolve()
    if size is not None and not 1 <= size <= MOST_SIZE:
        raise BadInput(f"size is {size}; it must lie between 1 and {MOST_SIZE} pixels")
    if (folder / LEDGER_FILE).is_file():
        if backbone or size:
            raise BadInput(f"{folder} is a campaign, which knows its own backbone and size; leave both out")
        return _from_campaign(folder)
    found = _frozen(folder, size) if (folder / FROZEN_FILE).is_file() else _plain(folder, backbone, size)
    return replace(found, checksum=_checksum(found))


def open_learner(saved: SavedLearner) -> Predictor:
    """Load the model, and the net before it, if any."""
    model = make_learner(saved.kind).load(saved.folder)
    head = model.head if isinstance(model, FrozenModel) else model  # its net is run by us, once for both answers
    return Predictor(head, _features(saved.backbone), saved.calibration)


def _from_campaign(folder: Path) -> SavedLearner:
    with Ledger.open(folder, read_only=True) as ledger:
        row = models.newest_model(ledger)
        fault = models.fault_of(ledger, row)
        if fault is not None:
            raise BadFile(f"the newest model of {folder} cannot be used: {fault}; open the next round, which trains it")
        if not row.summary.get("sha256"):
            raise BadInput(
                f"the newest model of {folder} was made by {row.learner}, whose models are not stored; choose the "
                "learner linear or mlp and open the next round"
            )
        names = {one.id: one.name for one in list_classes(ledger, retired=True)}
        trained = models.load(ledger, row.version)
    calibration = trained.calibration
    if calibration.kind in ("prior", "both"):  # a prior would be estimated anew for every few images
        calibration = replace(calibration, kind="temperature")
    backbone = _backbone_named(str(row.settings["backbone"]))
    found = SavedLearner(
        models.model_folder(ledger, row.version), row.learner, backbone, _side(backbone), trained.model.classes,
        tuple(names[number] for number in row.class_ids), calibration,
    )  # fmt: skip
    return replace(found, checksum=_checksum(found))


def _frozen(folder: Path, size: int | None) -> SavedLearner:
    model: Any = make_learner(FROZEN).load(folder)
    side = size or model.backbone.size
    if not side:
        raise BadInput(f"the net of {folder} takes images of any size; say with --size what it was trained on")
    return SavedLearner(folder, FROZEN, model.backbone, side, model.classes)


def _plain(folder: Path, backbone: str | None, size: int | None) -> SavedLearner:
    kind = _kind(folder)
    model = make_learner(kind).load(folder)
    if not isinstance(model, Head):
        if backbone:
            raise BadInput(f"the {kind} in {folder} looks at pixels; leave --backbone out")
        return SavedLearner(folder, kind, None, size or USUAL_SIZE, model.classes)
    net, side = _inputs_of(model, folder, backbone)
    if size not in (None, side):
        raise BadInput(f"the {kind} in {folder} was fitted on images of {side} pixels a side, not {size}")
    return SavedLearner(folder, kind, net, side, model.classes)


def _inputs_of(head: Head, folder: Path, backbone: str | None) -> tuple[Backbone | str | None, int]:
    """What a head was fitted on, as named by the user, or known from the length of its inputs."""
    from ..learners.features import SIDE, WIDTH

    width = len(head.scaling.centre)
    side = math.isqrt(width // 3)
    if backbone:
        net = _backbone_named(backbone)
        return net, _side(net)
    if 3 * side * side == width:
        return None, side
    if width == WIDTH:
        return SIMPLE, SIDE
    raise BadInput(
        f"the learner in {folder} was fitted on {width} features per image; say what made them with "
        f"--backbone: {LITE0}, {OTHER_NAMES}"
    )


def _kind(folder: Path) -> str:
    try:
        kind = json.loads((folder / SETTINGS_FILE).read_bytes()).get("kind")
    except OSError as error:
        raise BadFile(
            f"{folder} holds no saved learner ({SETTINGS_FILE} or {FROZEN_FILE}) and is not a campaign; "
            "save one with model.save(folder)"
        ) from error
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadFile(f"{folder / SETTINGS_FILE} is not valid JSON of a model: {error}") from error
    if not isinstance(kind, str) or kind not in LEARNERS:
        raise BadFile(f"{folder / SETTINGS_FILE} holds a {kind!r}, which no learner can load")
    return kind


def _backbone_named(name: str) -> Backbone | str:
    chosen = chosen_backbone(name)
    return SIMPLE if chosen == SIMPLE else Backbone(chosen)


def _side(backbone: Backbone | str) -> int:
    from ..learners.features import SIDE

    return SIDE if isinstance(backbone, str) else backbone.size


def _features(backbone: Backbone | str | None) -> Features:
    if backbone is None:
        return lambda pixels: pixels
    if isinstance(backbone, str):
        from ..learners.features import simple_features

        return simple_features
    need_torch(f"backbone {backbone.name!r}")
    from ..learners.torch_models import feature_net

    net = feature_net(backbone, backbone.key())
    return lambda pixels: net.features(pixels, len(pixels))


def _checksum(saved: SavedLearner) -> str:
    """Of every file of the model, of the backbone with its weights, and of the calibration."""
    digest = hashlib.sha256()
    for path in sorted(path for path in saved.folder.rglob("*") if path.suffix in (".json", ".safetensors")):
        digest.update(path.relative_to(saved.folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    backbone = saved.backbone.key() if isinstance(saved.backbone, Backbone) else saved.backbone
    facts = {name: np.asarray(value).tolist() for name, value in asdict(saved.calibration).items() if value is not None}
    digest.update(json.dumps([saved.kind, backbone, saved.size, facts], sort_keys=True).encode())
    return digest.hexdigest()
