"""Learner "frozen": a frozen net gives features, which are cached, and a small head is fitted on them.

Images (n, h, w, 3) in, features (n, d) or a model out. This module loads without torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import BadFile, BadInput
from ..files import read_regular, write_whole
from ..inputs import Registry
from ..pools.pool import InputArray, Inputs
from ..types import FloatArray, IntArray, Progress, no_progress
from .features import FeatureCache, Features, image_key
from .learner import Model, check_images, check_labels, chunks, learner, make_learner, need_torch, read_images

if TYPE_CHECKING:
    from .torch_models import FeatureNet


CHUNK = 256  # images that are read together
SHARD = 4096  # features that are written together: what a crash may cost
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LITE0 = "efficientnet-lite0"
OTHER_NAMES = "'package.module:factory', or a Hugging Face model: 'owner/name' of the hub, or its folder"
LITE_MEAN, LITE_STD = (127 / 255,) * 3, (128 / 255,) * 3
BACKBONES: Registry[Callable[[], Any]] = Registry("backbone", "tailwise.backbones")
"""Functions that make a torch module, by a name of their own; those of other packages are loaded when asked for."""


@dataclass(frozen=True, slots=True)
class Backbone:
    """A net that gives features, and how images are made ready for it.

    Attributes
    ----------
    name: "efficientnet-lite0", or "package.module:factory" of a function that makes a torch module, whose output is
        (B, d) or (B, d, h, w). The package is imported, and so runs: name only what you trust. Or the name of such a
        function in `BACKBONES`. Or a vision model of the Hugging Face hub, such as "facebook/dinov2-small", or the
        folder that it was saved in.
    weights: a .safetensors or .pth file for the module; "" keeps those it is made with.
    size: images are resized to size × size; 0 leaves them as they are. A Hugging Face model has its own.
    mean, std: of the channels, on a scale of 0 to 1; () takes those that the net was trained with.
    """

    name: str = LITE0
    weights: str = ""
    size: int = 224
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if is_hugging_face(self.name):
            self._take_from_processor()
        elif not is_net(self.name):
            known = ", ".join(map(repr, (LITE0, *BACKBONES)))
            raise BadInput(f"no backbone is called {self.name!r}; use {known} or {OTHER_NAMES}")
        lite = self.name == LITE0
        object.__setattr__(self, "mean", tuple(self.mean) or (LITE_MEAN if lite else IMAGENET_MEAN))
        object.__setattr__(self, "std", tuple(self.std) or (LITE_STD if lite else IMAGENET_STD))
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0 or self.size < 0:
            raise BadInput(f"a backbone needs three means, three positive deviations and a size ≥ 0, but has {self}")

    def _take_from_processor(self) -> None:
        """Size, means and deviations of a Hugging Face model, which its image processor says."""
        if self.weights:
            raise BadInput(f"backbone {self.name!r} has weights of its own; leave weights out")
        need_torch(f"backbone {self.name!r}")
        from .torch_models import hugging_face_folder, image_settings

        size, mean, std = image_settings(hugging_face_folder(self.name))
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "mean", tuple(self.mean) or mean)
        object.__setattr__(self, "std", tuple(self.std) or std)

    def key(self) -> str:
        """Names what the features depend on; weights, and a Hugging Face model as a whole, by their content."""
        facts: dict[str, Any] = asdict(self)
        try:
            if is_hugging_face(self.name):
                from .torch_models import hugging_face_folder

                facts["name"] = folder_digest(hugging_face_folder(self.name))
            if self.weights:
                facts["weights"] = hashlib.sha256(read_regular(self.weights)).hexdigest()
        except OSError as error:
            raise BadFile(f"cannot read the weights {self.weights or self.name}: {error.strerror or error}") from error
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def is_net(name: str) -> bool:
    """Whether a name is that of a net which is made here, and not of a Hugging Face model.

    >>> is_net("efficientnet-lite0"), is_net("torchvision.models:resnet18"), is_net("owl")
    (True, True, False)
    """
    return name == LITE0 or name.count(":") == 1 or name in BACKBONES


def is_hugging_face(name: str) -> bool:
    """Whether a backbone is a model of the hub ("owner/name") or a folder.

    >>> is_hugging_face("facebook/dinov2-small"), is_hugging_face("torchvision.models:resnet18")
    (True, False)
    """
    return name not in ("", LITE0) and (("/" in name and ":" not in name) or Path(name).expanduser().is_dir())


def has_text_tower(name: str) -> bool:
    """Whether a backbone was trained on images and texts together, as CLIP and SigLIP; nothing is loaded or fetched.

    >>> has_text_tower("efficientnet-lite0")
    False
    """
    folder = _local_folder(name) if is_hugging_face(name) else None
    try:
        return folder is not None and "text_config" in json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError):
        return False


def _local_folder(name: str) -> Path | None:
    """The folder of a Hugging Face model on this machine; None where it was not fetched yet."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, local_files_only=True))
    except Exception:  # not installed, not fetched: each has an error of its own
        return None


def text_features(name: str, text: str) -> Features:
    """What a backbone makes of a text, (d,), in the space of its image features."""
    if not has_text_tower(name):
        raise BadInput(
            f"this backbone has no text tower: {name!r} knows images alone. Set the campaign's backbone to CLIP or "
            "SigLIP, such as 'openai/clip-vit-base-patch32', after: pip install 'tailwise[torch,huggingface]'"
        )
    need_torch(f"backbone {name!r}")
    from .torch_models import embed_text

    return embed_text(name, text)


def folder_digest(folder: Path) -> str:
    """Names a folder of a model by the content of its settings and weights."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors")):
        with path.open("rb") as file:
            digest.update(path.name.encode() + b"\0" + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def extract_features(
    inputs: Inputs, backbone: Backbone, *, batch: int = 64, cache: Path | None = None, report: Progress = no_progress
) -> Features:
    """The features of every image, (n, d) float32; with a `cache` folder only those of new images are computed."""
    check_images(inputs, f"backbone {backbone.name!r}")
    need_torch(f"backbone {backbone.name!r}")
    from .torch_models import feature_net

    if not len(inputs):
        raise BadInput("no images to extract features from")
    key = backbone.key()
    net = feature_net(backbone, key)
    if cache is None:
        return _walk(inputs, report, lambda _rows, images: net.features(images, batch))
    store = _Stored(FeatureCache.open(cache / key), net, batch, report)
    features = _walk(inputs, report, store.features)
    store.write()
    return features


def _walk(inputs: Inputs, report: Progress, features_of: Any) -> Features:  # noqa: ANN401 - (rows, images) → (m, d)
    found = []
    for rows in chunks(len(inputs), CHUNK):
        found.append(features_of(rows, read_images(inputs, rows)))
        report((int(rows[-1]) + 1) / len(inputs), f"features of {int(rows[-1]) + 1:,} of {len(inputs):,} images")
    return np.concatenate(found)


@dataclass(slots=True)
class _Stored:
    """Features from the cache where it has them, from the net where not; new ones wait to be written."""

    cache: FeatureCache
    net: FeatureNet
    batch: int
    report: Progress
    new_keys: list[bytes] = field(default_factory=list)
    new_features: list[Features] = field(default_factory=list)

    def features(self, _rows: IntArray, images: InputArray) -> Features:
        """(m, d)."""
        keys = [image_key(image) for image in images]
        known = [self.cache.find(key) for key in keys]
        missing = [row for row, found in enumerate(known) if found is None]
        if missing:
            fresh = self.net.features(images[missing], self.batch)
            for row, features in zip(missing, fresh, strict=True):
                known[row] = features
            self.new_keys += [keys[row] for row in missing]
            self.new_features.append(fresh)
            if len(self.new_keys) >= SHARD:
                self.write()
        return np.stack([features for features in known if features is not None])

    def write(self) -> None:
        """Write what is new; features that cannot be kept are still good."""
        if not self.new_keys:
            return
        try:
            self.cache.add(self.new_keys, np.concatenate(self.new_features))
        except BadFile as error:
            self.report(1.0, f"features are not kept: {error}")
        self.new_keys, self.new_features = [], []


@dataclass(frozen=True, slots=True, eq=False)
class FrozenModel:
    """A head on the features of a frozen net."""

    backbone: Backbone
    head_name: str
    head: Model
    cache: Path | None

    @property
    def classes(self) -> int:
        """C."""
        return self.head.classes

    def predict_proba(self, inputs: Inputs) -> FloatArray:
        """Softmax, (n, C)."""
        features = extract_features(inputs, self.backbone, cache=self.cache)
        return self.head.predict_proba(features)

    def embed(self, inputs: Inputs) -> FloatArray:
        """What goes into the head's last layer, (n, d)."""
        features = extract_features(inputs, self.backbone, cache=self.cache)
        return self.head.embed(features)

    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> FloatArray:
        """Softmax of the head's dropout passes, (T, n, C)."""
        features = extract_features(inputs, self.backbone, cache=self.cache)
        return self.head.mc_proba(features, passes, seed)

    def save(self, folder: Path) -> None:
        """Write the head, then frozen.json, which makes the two a model; the backbone itself is not copied."""
        self.head.save(folder / "head")
        facts = {"backbone": asdict(self.backbone), "head": self.head_name}
        write_whole(folder / "frozen.json", json.dumps(facts, indent=1).encode())


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenLearner:
    """A frozen backbone with a head.

    Attributes
    ----------
    backbone, weights, size, mean, std: those of `Backbone`.
    head, head_settings: another learner that takes features, such as "linear" or "mlp".
    cache: a folder for features; "" computes them anew each time.
    """

    backbone: str = LITE0
    weights: str = ""
    size: int = 224
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    head: str = "linear"
    head_settings: Mapping[str, Any] = field(default_factory=dict)
    cache: str = ""

    name: ClassVar[str] = "frozen"

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = no_progress, checkpoint: Path | None = None,
    ) -> FrozenModel:  # fmt: skip
        """Extract features, then fit the head on them."""
        check_labels(inputs, labels, classes)
        backbone = Backbone(self.backbone, self.weights, self.size, tuple(self.mean), tuple(self.std))
        cache = Path(self.cache) if self.cache else None
        head = make_learner(self.head, **self.head_settings)
        # Extraction is the first half of the work, the head the second.
        features = extract_features(inputs, backbone, cache=cache, report=lambda done, what: report(done / 2, what))
        fitted = head.fit(
            features, labels, classes=classes, seed=seed, checkpoint=checkpoint,
            report=lambda done, what: report(0.5 + done / 2, what),
        )  # fmt: skip
        return FrozenModel(backbone, self.head, fitted, cache)

    def load(self, folder: Path) -> FrozenModel:
        """A model that was saved; its own backbone counts, not this learner's."""
        try:
            facts = json.loads((folder / "frozen.json").read_bytes())
            backbone, head = Backbone(**facts["backbone"]), str(facts["head"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadFile(f"{folder} does not hold a saved frozen model: {error}") from error
        cache = Path(self.cache) if self.cache else None
        return FrozenModel(backbone, head, make_learner(head).load(folder / "head"), cache)
