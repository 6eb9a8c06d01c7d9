"""ResNets as the paper trains them, and a small net for CPUs: pixels → features (d,) → logits (C,).

Weights carry torchvision's names, so that its files fit. The last section makes randomness and arithmetic repeatable.
torch is imported here: load this module when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import BadFile, BadInput

STEMS = {"3x3": (3, 1, False), "7x7": (7, 2, False), "7x7-pool": (7, 2, True)}
"""Kernel, stride, max-pool. "3x3" is the CIFAR form and "7x7-pool" the ImageNet form. "7x7" is for Tiny ImageNet:
pretrained filters at the stride they were learnt with, but no max-pool, so that of 64×64 pixels 4×4 places are left
at the end rather than 2×2."""

IMAGENET = {
    "resnet18": "https://download.pytorch.org/models/resnet18-f37072fd.pth",
    "resnet101": "https://download.pytorch.org/models/resnet101-63fe2227.pth",
}


@dataclass(frozen=True, slots=True)
class ResNetConfig:
    """Shape of a net. Widths of the four stages: w, 2w, 4w, 8w (four times that with bottlenecks)."""

    classes: int
    blocks: tuple[int, int, int, int] = (2, 2, 2, 2)  # ResNet-18; (1, 1, 1, 1) is ResNet-10
    width: int = 64
    bottleneck: bool = False  # True for ResNet-101, with blocks (3, 4, 23, 3)
    stem: str = "3x3"
    dropout: float = 0.0  # before the last layer

    def __post_init__(self) -> None:
        if self.stem not in STEMS:
            raise BadInput(f"no stem is called {self.stem!r}; known: {', '.join(STEMS)}")
        check_dropout(self.dropout)

    @property
    def features(self) -> int:
        """d: 512 for ResNet-18, 128 for ResNet-10 of width 16, 2,048 for ResNet-101."""
        return 8 * self.width * (4 if self.bottleneck else 1)


@dataclass(frozen=True, slots=True)
class PooledConfig:
    """Shape of a net for processors. Widths of the stem and the three stages: w/2, w, 2w, 4w."""

    classes: int
    width: int = 32
    dropout: float = 0.0  # before the last layer

    def __post_init__(self) -> None:
        if self.width < 2:
            raise BadInput(f"width is {self.width}; it must be at least 2")
        check_dropout(self.dropout)

    @property
    def features(self) -> int:
        """d: 128 at width 32."""
        return 4 * self.width


def check_dropout(dropout: float) -> None:
    """Reject a rate outside [0, 1)."""
    if not 0 <= dropout < 1:
        raise BadInput(f"dropout is a probability below 1, but {dropout} was asked for")


class Net(nn.Module):
    """What all nets here have in common: features of images, then dropout and one linear layer."""

    config: ResNetConfig | PooledConfig
    dropout: nn.Dropout
    fc: nn.Linear

    def features(self, images: Tensor) -> Tensor:
        """What goes into the last layer: (B, 3, h, w) → (B, d)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Tensor:
        """Logits: (B, 3, h, w) → (B, C)."""
        logits: Tensor = self.fc(self.dropout(self.features(images)))
        return logits

    def _start(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def make_net(config: ResNetConfig | PooledConfig | dict[str, Any]) -> Net:
    """A fresh net of this shape, or of one that `asdict` wrote."""
    if isinstance(config, dict):
        saved = config
        config = (
            ResNetConfig(**saved | {"blocks": tuple(saved["blocks"])}) if "blocks" in saved else PooledConfig(**saved)
        )
    return ResNet(config) if isinstance(config, ResNetConfig) else PooledNet(config)


class ResNet(Net):
    """Stem, four stages, average, dropout, one linear layer."""

    config: ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        kernel, stride, pool = STEMS[config.stem]
        self.config = config
        self.conv1 = nn.Conv2d(3, config.width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(config.width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if pool else nn.Identity()
        stages = _stages(config)
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.features, config.classes)
        self._start()

    def features(self, images: Tensor) -> Tensor:
        """What goes into the last layer: (B, 3, h, w) → (B, d)."""
        maps = self.maxpool(self.relu(self.bn1(self.conv1(images))))  # (B, w, h, w) at "3x3"
        maps = self.layer2(self.layer1(maps))  # (B, 2w, h/2, w/2)
        maps = self.layer4(self.layer3(maps))  # (B, 8w, h/8, w/8)
        mean: Tensor = maps.mean(dim=(2, 3))  # (B, d)
        return mean


class PooledNet(Net):
    """A stem of 2×2, three stages that each halve the image, the largest value of each channel, one linear layer.

    On a processor memory is what takes time: few channels where the image is large, and every stage is pooled before
    batch norm and ReLU. With 2,000 labels of CIFAR-10 and one recipe it had 63 %, a ResNet-10 of equal cost 52.
    """

    config: PooledConfig

    def __init__(self, config: PooledConfig) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.stem = nn.Conv2d(3, width // 2, 2)
        self.relu = nn.ReLU(inplace=True)
        self.stages = nn.Sequential(
            PooledBlock(width // 2, width), PooledBlock(width, 2 * width), PooledBlock(2 * width, 4 * width)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.fc = nn.Linear(config.features, config.classes)
        self._start()

    def features(self, images: Tensor) -> Tensor:
        """What goes into the last layer: (B, 3, h, w) → (B, d)."""
        maps = self.stages(self.relu(self.stem(images)))  # (B, 4w, h/8, w/8)
        largest: Tensor = maps.amax(dim=(2, 3))  # (B, d)
        return largest


class PooledBlock(nn.Module):
    """A 3×3 convolution and a max-pool, then one more convolution with a shortcut."""

    def __init__(self, entering: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, entering, h, w) → (B, width, h/2, w/2); what is one pixel wide is not halved."""
        wide = self.conv1(maps)
        size = [min(2, side) for side in wide.shape[2:]]
        half = self.relu(self.bn1(functional.max_pool2d(wide, size)))
        added: Tensor = self.relu(self.bn2(self.conv2(half)).add_(half))
        return added


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(entering, width, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, entering, h, w) → (B, width, h/stride, w/stride)."""
        change = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(maps)))))
        added: Tensor = self.relu(change.add_(self.downsample(maps)))
        return added


class Bottleneck(nn.Module):
    """1×1 down, 3×3 (which carries the stride, as in torchvision), 1×1 up, with a shortcut."""

    expansion = 4

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(entering, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(entering, 4 * width, stride)

    def forward(self, maps: Tensor) -> Tensor:
        """(B, entering, h, w) → (B, 4·width, h/stride, w/stride)."""
        narrow = self.relu(self.bn1(self.conv1(maps)))
        change = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(narrow)))))
        added: Tensor = self.relu(change.add_(self.downsample(maps)))
        return added


class StridedPoint(nn.Conv2d):
    """A 1×1 convolution with a stride: the places that count are taken first, and then it has none.

    The same numbers; but the kernel that takes strides writes beyond its memory for some narrow nets (torch 2.13 on
    AVX2, 4 → 8 channels in channels_last order: a crash in the backward pass).
    """

    def __init__(self, entering: int, leaving: int, stride: int) -> None:
        super().__init__(entering, leaving, 1, bias=False)
        self.step = stride

    def forward(self, maps: Tensor) -> Tensor:
        """(B, entering, h, w) → (B, leaving, h/stride, w/stride)."""
        # A 1×1 average is the place itself. A slice gives the same numbers, but its gradient is in another order in
        # memory, which makes the whole backward pass a quarter slower.
        taken = functional.avg_pool2d(maps, 1, self.step) if self.step > 1 else maps
        return super().forward(taken.contiguous(memory_format=torch.channels_last))


def _shortcut(entering: int, leaving: int, stride: int) -> nn.Module:
    if entering == leaving and stride == 1:
        return nn.Identity()
    return nn.Sequential(StridedPoint(entering, leaving, stride), nn.BatchNorm2d(leaving))


def _stages(config: ResNetConfig) -> list[nn.Sequential]:
    kind = Bottleneck if config.bottleneck else BasicBlock
    entering, stages = config.width, []
    for stage, count in enumerate(config.blocks):
        width = config.width << stage
        blocks = []
        for block in range(count):
            blocks.append(kind(entering, width, 2 if stage and not block else 1))
            entering = width * kind.expansion
        stages.append(nn.Sequential(*blocks))
    return stages


def placed(net: nn.Module, device: torch.device) -> None:
    """Move a net to a device, its weights in channels_last order, in which convolutions are fastest."""
    net.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]


def load_pretrained(net: Net, weights: str, name: str) -> None:
    """Fill everything but the last layer from a file, or with weights="imagenet" from torchvision's official one."""
    state = _fetched(name) if weights == "imagenet" else read_weights(Path(weights))
    own = {key: value for key, value in net.state_dict().items() if not key.startswith("fc.")}
    # Files from before torch 1.0 do not count the batches; nothing depends on the count.
    wanted = {key for key in own if key in state or not key.endswith("num_batches_tracked")}
    missing = sorted(key for key in wanted if key not in state or state[key].shape != own[key].shape)
    if missing:
        raise BadFile(
            f"the weights {weights!r} do not fit {name}: {len(missing)} of {len(wanted)} tensors are missing or of "
            f"another shape, such as {missing[0]!r}; use a file with torchvision's names for {name}"
        )
    net.load_state_dict({key: state[key] for key in wanted}, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Tensors by name from .safetensors, or from .pth without running anything that it holds."""
    import safetensors.torch

    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file fails in many ways, each of its own type
        raise BadFile(f"cannot read weights from {path}: {error}") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise BadFile(f"{path} is not a table of tensors by name; save net.state_dict() as safetensors")
    return loaded


def _fetched(name: str) -> dict[str, Tensor]:
    if name not in IMAGENET:
        raise BadInput(f"there are no official ImageNet weights for {name}; known: {', '.join(IMAGENET)}")
    url = IMAGENET[name]
    try:
        state: dict[str, Tensor] = torch.hub.load_state_dict_from_url(
            url, map_location="cpu", progress=False, check_hash=True, weights_only=True
        )
    except (OSError, RuntimeError) as error:
        raise BadFile(
            f"cannot fetch ImageNet weights for {name}: {error}; download {url} where there is a network and pass "
            "weights='the/file.pth', or train from scratch with weights=''"
        ) from error
    return state


START, ORDER, AUGMENT, DROPOUT, NOISE = range(1, 6)
"""What draws are for; each purpose has a stream of its own."""


def derived(seed: int, *purpose: int) -> int:
    """A seed of its own for each purpose, such as an epoch.

    >>> derived(1, 7) == derived(1, 7) != derived(1, 8)
    True
    """
    return int(np.random.SeedSequence([seed, *purpose]).generate_state(1, np.uint64)[0] >> np.uint64(1))


@contextmanager
def global_seed(seed: int, *purpose: int, device: torch.device) -> Iterator[None]:
    """torch's own generator, seeded for a while: layers are initialised and dropout is drawn from it."""
    with torch.random.fork_rng([] if device.type == "cpu" else [device]):
        torch.manual_seed(derived(seed, *purpose))
        yield


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """The same bits in every run; on a graphics card as far as it has such kernels."""
    before, only_warned = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    memory.fill_uninitialized_memory = False  # a help in debugging that costs time
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        memory.fill_uninitialized_memory = filled


def device_named(name: str) -> torch.device:
    """A device by torch's name; "auto" is the graphics card where there is one.

    >>> device_named("cpu")
    device(type='cpu')
    """
    found = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in {"auto", "cpu", found}:
        raise BadInput(f"device {name!r} was asked for, but this machine has {found!r}; use 'auto' or 'cpu'")
    return torch.device(found if name == "auto" else name)
