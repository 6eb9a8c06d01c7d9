"""Training a net: what `tailwise.learners` takes for a few epochs, beside a bare torch loop that does the same work."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .measured import Measured, Row, Run, Sheet
from .timing import timed

if TYPE_CHECKING:
    import torch

NAME = "training"
SIDE, CLASSES, BATCH, PADDING = 32, 10, 64, 4


@dataclass(frozen=True, slots=True)
class Work:
    """How much is trained, how often."""

    images: int
    epochs: int
    rounds: int


def measure(run: Run) -> Iterator[Measured]:
    """Ours and the bare loop in turns, so that what else the machine does falls on both; the best of each counts."""
    import torch

    work = Work(256, 1, 3) if run.quick else Work(512, 2, 5)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield from _measure(work, Sheet(NAME, f"ResNet-10, {work.images} images of {SIDE}×{SIDE}"))
    finally:
        torch.set_num_threads(before)


def _measure(work: Work, sheet: Sheet) -> Iterator[Measured]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (work.images, SIDE, SIDE, 3), dtype=np.uint8)
    labels = rng.integers(0, CLASSES, work.images)
    ours(images[:BATCH], labels[:BATCH], 1)
    bare(images[:BATCH], labels[:BATCH], 1)
    own, plain = [], []
    for _ in range(work.rounds):
        own.append(timed(lambda: ours(images, labels, work.epochs)).processor_seconds)
        plain.append(timed(lambda: bare(images, labels, work.epochs)).processor_seconds)
    yield sheet.tell("processor seconds", min(own))
    yield sheet.tell("bare torch loop: processor seconds", min(plain))
    yield sheet.at_most("times the bare torch loop", min(own) / min(plain), 1.10)


def ours(images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """The learner as it is used, statistics of the channels and making the net included."""
    from tailwise.learners import make_learner

    learner = make_learner("resnet10", epochs=epochs, batch=BATCH, padding=PADDING, device="cpu")
    learner.fit(images, labels, classes=CLASSES, seed=0)


def bare(images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """What one writes by hand: the same net, the same steps, crops and mirror images one by one."""
    import torch

    from tailwise.learners.nets import ResNet, ResNetConfig

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    net = ResNet(ResNetConfig(CLASSES, (1, 1, 1, 1), 16, dropout=0.5)).train()
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.SGD(net.parameters(), 0.02, 0.9, weight_decay=5e-4, nesterov=True)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    mean = torch.from_numpy(images.mean(axis=(0, 1, 2), dtype=np.float64)).float()[:, None, None]
    std = torch.from_numpy(images.std(axis=(0, 1, 2), dtype=np.float64)).float()[:, None, None]
    truth = torch.from_numpy(labels)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            batch = torch.stack([_augmented(pixels[index], rng) for index in chosen]).float()
            ready = ((batch - mean) / std).contiguous(memory_format=torch.channels_last)
            optimiser.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(net(ready), truth[chosen]).backward()
            optimiser.step()


def _augmented(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    import torch

    padded = torch.nn.functional.pad(image, (PADDING,) * 4)
    top, left, mirrored = rng.integers(0, [2 * PADDING + 1, 2 * PADDING + 1, 2])
    crop = padded[:, top : top + SIDE, left : left + SIDE]
    return crop.flip(2) if mirrored else crop


ROW = Row(NAME, "a fit within 1.10 times a bare torch loop that does the same steps", measure)
