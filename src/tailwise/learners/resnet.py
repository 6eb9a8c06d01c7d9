"""Learners "resnet18", "resnet101", "resnet10" and "resnet8": labelled images in, a net trained on them out.

This module loads without torch; training, asking and loading need it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..pools.pool import Inputs
from ..types import IntArray, Progress, no_progress
from .learner import check_images, check_labels, in_memory, learner, need_torch

if TYPE_CHECKING:
    from .nets import PooledConfig, ResNetConfig
    from .torch_models import ResNetModel


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLearner:
    """What all of them have in common; the defaults are the paper's for CIFAR.

    Attributes
    ----------
    epochs, lr, batch, weight_decay, nesterov: of SGD with momentum 0.9.
    schedule: "steps": lr halves at each of the `milestones`; "one-cycle": lr rises from 0 to `lr` and falls to 0 again.
    average: share of the training over which weights are averaged, such as 0.1; 0: the last weights count.
    padding, flip: of the augmentation.
    dropout: before the last layer; BALD needs it above 0.
    class_weight: "none", or "balanced": each class weighs the same, however many labels it has.
    width: channels of the first stage.
    weights: "" to train from scratch, "imagenet" for the official ones, or a .safetensors or .pth file.
    device: "auto" is the graphics card where there is one.
    """

    epochs: int = 100
    lr: float = 0.02
    schedule: str = "steps"
    milestones: tuple[int, ...] = (60, 80)
    average: float = 0.0
    batch: int = 256
    weight_decay: float = 5e-4
    nesterov: bool = True
    padding: int = 4
    flip: bool = True
    dropout: float = 0.5
    class_weight: str = "none"
    width: int = 64
    weights: str = ""
    device: str = "auto"

    name: ClassVar[str]

    def fit(
        self, inputs: Inputs, labels: IntArray, *, classes: int, seed: int,
        report: Progress = no_progress, checkpoint: Path | None = None,
    ) -> ResNetModel:  # fmt: skip
        """Train from scratch, or from `weights`; with a `checkpoint` folder a training that was killed goes on."""
        check_labels(inputs, labels, classes)
        check_images(inputs, self.name)
        need_torch(f"learner {self.name!r}")
        from .torch_models import fit_resnet

        return fit_resnet(
            self, in_memory(inputs), labels, classes=classes, seed=seed, report=report, checkpoint=checkpoint
        )

    def load(self, folder: Path) -> ResNetModel:
        """A model that was saved by this kind of learner."""
        need_torch(f"a saved {self.name!r}")
        from .torch_models import load_resnet

        return load_resnet(folder, self.name, self.device)

    def config(self, classes: int) -> ResNetConfig | PooledConfig:
        """The shape of the net."""
        raise NotImplementedError

    def recipe_settings(self) -> dict[str, object]:
        """The settings that are the recipe's."""
        own = ("dropout", "width", "stem", "weights", "device")
        settings = {name: value for name, value in asdict(self).items() if name not in own}
        return settings | {"milestones": tuple(self.milestones)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResNetLearner(NetLearner):
    """What the ResNets of the paper have in common.

    Attributes
    ----------
    stem: "3x3" (CIFAR), "7x7" (without max-pool) or "7x7-pool" (ImageNet).
    """

    stem: str = "3x3"

    blocks: ClassVar[tuple[int, int, int, int]]
    bottleneck: ClassVar[bool] = False

    def config(self, classes: int) -> ResNetConfig:
        """The shape of the net."""
        from .nets import ResNetConfig

        return ResNetConfig(classes, self.blocks, self.width, self.bottleneck, self.stem, self.dropout)


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet18(ResNetLearner):
    """The paper's net for CIFAR: 3×3 stem, no max-pool, 100 epochs, lr 0.02 halved at 60 and 80, batches of 256."""

    name: ClassVar[str] = "resnet18"
    blocks: ClassVar[tuple[int, int, int, int]] = (2, 2, 2, 2)


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet10(ResNetLearner):
    """A small relative for machines without a graphics card: one block per stage, a quarter of the width."""

    width: int = 16

    name: ClassVar[str] = "resnet10"
    blocks: ClassVar[tuple[int, int, int, int]] = (1, 1, 1, 1)


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet8(NetLearner):
    """For machines without a graphics card and for small images: a net and a recipe that get most out of a minute.

    Its first filters are not drawn but the principal components of the images' 2×2 patches.
    """

    epochs: int = 40
    lr: float = 0.03
    schedule: str = "one-cycle"
    average: float = 0.1
    batch: int = 32
    dropout: float = 0.2
    width: int = 32

    name: ClassVar[str] = "resnet8"

    def config(self, classes: int) -> PooledConfig:
        """The shape of the net."""
        from .nets import PooledConfig

        return PooledConfig(classes, self.width, self.dropout)


@learner
@dataclass(frozen=True, slots=True, kw_only=True)
class ResNet101(ResNetLearner):
    """The paper's net for Tiny ImageNet: pretrained, 30 epochs, lr 0.01 halved at 10, 15, 20, 25, 8-pixel padding.

    The paper gives neither batch, weight decay nor stem; 128, those of CIFAR, and "7x7" are our choice.
    """

    epochs: int = 30
    lr: float = 0.01
    milestones: tuple[int, ...] = (10, 15, 20, 25)
    batch: int = 128
    padding: int = 8
    stem: str = "7x7"
    weights: str = "imagenet"

    name: ClassVar[str] = "resnet101"
    blocks: ClassVar[tuple[int, int, int, int]] = (3, 4, 23, 3)
    bottleneck: ClassVar[bool] = True
