"""What `predict` keeps and reads on the disk: shards of probabilities, and a learner made ready for images.

OUT/manifest.json               the job, and its shards; "complete" is false until the last is there
OUT/part-00000.npy              (n, C) probabilities of the first shard
OUT/part-00000.json             names of its rows, its bad images, checksums; written last: it makes the shard
OUT/embeddings/part-00000.npy   (n, d), where they were asked for

A shard is whole or absent; one that is damaged, or of other images, another learner or other settings counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
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
from ..files import npy_bytes, write_whole
from ..learners import LEARNERS, make_learner
from ..learners.backbone import OTHER_NAMES, Backbone, FrozenModel
from ..learners.learner import SETTINGS_FILE, Model, need_torch
from ..learners.linear import Head
from ..pools.pool import BadImage, InputArray
from ..types import FloatArray, IntArray

FORMAT = 1
MANIFEST, EMBEDDINGS = "manifest.json", "embeddings"
HALF = re.compile(r"\.(part-\d{5,}\.(npy|json)|manifest\.json)\.[0-9a-f]+\.part")
PART = re.compile(r"part-(\d{5,})\.(npy|json)")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of probabilities, as its JSON file describes it."""

    number: int
    input: str
    fingerprint: str
    dtype: str
    rows: int
    names: tuple[str, ...]  # (n,)
    paths: tuple[str, ...]  # (n,) what a table says of them; () where it says nothing
    bad: tuple[BadImage, ...]
    sha256: str
    embeddings_sha256: str | None = None

    @property
    def file(self) -> str:
        """The array's name."""
        return f"{part_name(self.number)}.npy"


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """What the manifest says of a shard."""

    file: str
    input: str
    rows: int
    bad: int
    sha256: str
    embeddings_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A pool's probabilities.

    Attributes
    ----------
    complete: False while shards are missing.
    classes: C.
    class_names: (C,), or () where they are unknown.
    inputs, learner: what was asked for.
    """

    complete: bool
    classes: int
    class_names: tuple[str, ...]
    dtype: str
    inputs: dict[str, str]
    learner: dict[str, Any]
    shards: tuple[ManifestShard, ...]

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)


@dataclass(frozen=True, slots=True)
class ShardStore:
    """The folder of the output."""

    folder: Path

    def find(self, number: int, fingerprint: str, *, embeddings: bool) -> Shard | None:
        """A shard that is there and whole, and of this very input, learner and settings."""
        shard = self.read(number)
        if shard is None or shard.fingerprint != fingerprint:
            return None
        if embeddings and shard.embeddings_sha256 is None:
            return None
        wanted = [(self.folder / shard.file, shard.sha256)]
        if shard.embeddings_sha256 is not None:
            wanted.append((self.folder / EMBEDDINGS / shard.file, shard.embeddings_sha256))
        return shard if all(_file_checksum(path) == sha256 for path, sha256 in wanted) else None

    def read(self, number: int) -> Shard | None:
        """What the JSON file of a shard says; None where it is missing or damaged."""
        try:
            page = json.loads((self.folder / f"{part_name(number)}.json").read_bytes())
            if page.pop("format") != FORMAT:
                return None
            names, paths, bad = page.pop("names"), page.pop("paths"), page.pop("bad")
            shard = Shard(**page, names=tuple(names), paths=tuple(paths), bad=tuple(BadImage(**one) for one in bad))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return shard if shard.number == number and len(shard.names) == shard.rows else None

    def keep(self, shard: Shard, proba: FloatArray, embeddings: FloatArray | None) -> Shard:
        """Write a shard: its arrays first, then the file that names them; gives it with its checksums."""
        content = npy_bytes(proba)
        checksum = None
        if embeddings is not None:
            (self.folder / EMBEDDINGS).mkdir(exist_ok=True)
            embedded = npy_bytes(embeddings)
            checksum = hashlib.sha256(embedded).hexdigest()
            write_whole(self.folder / EMBEDDINGS / shard.file, embedded)
        write_whole(self.folder / shard.file, content)
        facts = asdict(shard) | {"sha256": hashlib.sha256(content).hexdigest(), "embeddings_sha256": checksum}
        page = json.dumps({"format": FORMAT, **facts}, ensure_ascii=False).encode()
        write_whole(self.folder / f"{part_name(shard.number)}.json", page)
        kept = self.read(shard.number)
        if kept is None:
            raise BadFile(f"{self.folder / shard.file} was written, but cannot be read; is the disk sound?")
        return kept

    def write_manifest(self, manifest: Manifest) -> None:
        """Say what the folder holds."""
        page = {"format": FORMAT, **asdict(manifest), "rows": manifest.rows}
        write_whole(self.folder / MANIFEST, (json.dumps(page, ensure_ascii=False, indent=1) + "\n").encode())

    def remove_halves(self) -> None:
        """Remove what a killed run was about to write; the folder must be locked."""
        for folder in (self.folder, self.folder / EMBEDDINGS):
            for path in folder.glob(".*.part"):
                if HALF.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def remove_beyond(self, count: int) -> None:
        """Remove the shards of an earlier job that had more of them; what is not ours stays."""
        for path in sorted(self.folder.glob("part-*.json")):
            found = PART.fullmatch(path.name)
            number = int(found[1]) if found else 0
            if number >= count and self.read(number) is not None:
                path.unlink(missing_ok=True)
                (self.folder / f"{part_name(number)}.npy").unlink(missing_ok=True)
                (self.folder / EMBEDDINGS / f"{part_name(number)}.npy").unlink(missing_ok=True)


def part_name(number: int) -> str:
    """A shard's name without its ending.

    >>> part_name(7)
    'part-00007'
    """
    return f"part-{number:05d}"


def read_manifest(folder: str | Path) -> Manifest:
    """What a folder of shards holds."""
    path = Path(folder).expanduser() / MANIFEST
    try:
        page = json.loads(path.read_bytes())
        if page.pop("format") != FORMAT:
            raise BadFile(f"{path} is not of format {FORMAT}, which is the one that this version reads")
        page.pop("rows")
        shards = tuple(ManifestShard(**shard) for shard in page.pop("shards"))
        return Manifest(**page | {"class_names": tuple(page["class_names"]), "shards": shards})
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}; make shards with: tailwise predict") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{path} is not a manifest of shards: {error}") from error


def knows_names(folder: str | Path) -> bool:
    """Whether a place is a folder that `tailwise predict` has finished, with the names of all rows."""
    home = Path(folder).expanduser()
    if not (home / MANIFEST).is_file():
        return False
    try:
        manifest = read_manifest(home)
    except BadFile:
        return False  # of another program
    return manifest.complete and all((home / f"{part_name(at)}.json").is_file() for at in range(len(manifest.shards)))


def names_of(folder: str | Path, indices: Sequence[int] | IntArray) -> list[str]:
    """The images that rows of a pool stand for, as `tailwise select` numbers them: all shards in order."""
    home = Path(folder).expanduser()
    manifest = read_manifest(home)
    wanted = np.asarray(indices, dtype=np.int64)
    if len(wanted) and not 0 <= wanted.min() <= wanted.max() < manifest.rows:
        asked = f"{wanted.min()} to {wanted.max()}"
        raise BadInput(f"{home} has {manifest.rows:,} rows, numbered from 0, but rows {asked} were asked for")
    ends = np.cumsum([shard.rows for shard in manifest.shards])
    places = np.searchsorted(ends, wanted, side="right")
    names = {number: _names(home, number) for number in np.unique(places).tolist()}
    starts = ends - [shard.rows for shard in manifest.shards]
    return [names[place][index - starts[place]] for place, index in zip(places.tolist(), wanted.tolist(), strict=True)]


def _names(folder: Path, number: int) -> tuple[str, ...]:
    shard = ShardStore(folder).read(number)
    if shard is None:
        raise BadFile(f"{folder / part_name(number)}.json is missing or damaged; run tailwise predict again")
    return shard.names


def _file_checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# -- a saved learner: a folder in, pixels → probabilities and embeddings out ----------------------------------------


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
    return replace(found, checksum=_learner_checksum(found))


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
    return replace(found, checksum=_learner_checksum(found))


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


def _learner_checksum(saved: SavedLearner) -> str:
    """Of every file of the model, of the backbone with its weights, and of the calibration."""
    digest = hashlib.sha256()
    for path in sorted(path for path in saved.folder.rglob("*") if path.suffix in (".json", ".safetensors")):
        digest.update(path.relative_to(saved.folder).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    backbone = saved.backbone.key() if isinstance(saved.backbone, Backbone) else saved.backbone
    facts = {name: np.asarray(value).tolist() for name, value in asdict(saved.calibration).items() if value is not None}
    digest.update(json.dumps([saved.kind, backbone, saved.size, facts], sort_keys=True).encode())
    return digest.hexdigest()
