"""Training by SGD as in the paper, or faster and steadier: labelled images in, a trained net out; killed, it goes on.

The order and the augmentation of an epoch follow from (seed, epoch) alone, so a checkpoint holds no random state, and a
training that goes on ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import BadInput
from ..pool.images import Inputs
from ..types import IntArray, Progress, unheard
from .augment import Channels, crop_and_flip, normalise
from .batches import read_images
from .checkpoints import Checkpoints, State, fingerprint
from .seeded import AUGMENT, DROPOUT, ORDER, derived, deterministic, generator, global_seed

CHECKPOINT_SECONDS = 30.0
SETTLED = 200  # steps after which the running averages of batch norm have caught up with the weights
FEWEST = 4  # images whose variance can be measured: that of one or two tiny ones is all but nothing
CLASS_WEIGHTS = ("none", "balanced")
SCHEDULES = ("steps", "one-cycle")
WARM_UP = 0.15  # of a one-cycle schedule


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a net is trained; the defaults are those of the paper for CIFAR."""

    epochs: int = 100
    lr: float = 0.02
    schedule: str = "steps"  # at the milestones; "one-cycle": lr rises to its peak and falls to 0, both linearly
    milestones: tuple[int, ...] = (60, 80)
    decay: float = 0.5  # of the learning rate, at each milestone
    average: float = 0.0  # share of the training over which weights are averaged; 0: the last weights count
    batch: int = 256
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    padding: int = 4  # pixels of black around an image from which it is cropped
    flip: bool = True
    class_weight: str = "none"  # "balanced": a class weighs the inverse of its share

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or self.padding < 0 or self.lr <= 0:
            raise BadInput(f"epochs ≥ 1, batch ≥ 2, padding ≥ 0 and lr > 0 are needed, but they are {self}")
        if not 0 <= self.average < 1:
            raise BadInput(f"average is {self.average}; it must be a share of the training, 0 or more and below 1")
        for name, known in (("schedule", SCHEDULES), ("class_weight", CLASS_WEIGHTS)):
            if getattr(self, name) not in known:
                raise BadInput(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(known)}")

    def rate(self, epoch: float) -> float:
        """The learning rate so many epochs into the training.

        >>> [Recipe().rate(epoch) for epoch in (0, 59.9, 60, 80)]
        [0.02, 0.02, 0.01, 0.005]
        >>> [round(Recipe(schedule="one-cycle", lr=0.2).rate(epoch), 3) for epoch in (0, 7.5, 15, 57.5, 100)]
        [0.0, 0.1, 0.2, 0.1, 0.0]
        """
        if self.schedule == "one-cycle":
            done = epoch / self.epochs
            return self.lr * min(done / WARM_UP, (1 - done) / (1 - WARM_UP))
        return self.lr * self.decay ** sum(epoch >= milestone for milestone in self.milestones)


@dataclass(frozen=True, slots=True, eq=False)
class Lesson:
    """What is learnt: labelled images, and the channels' statistics that normalise them."""

    inputs: Inputs  # (n, h, w, 3)
    labels: IntArray  # (n,)
    channels: Channels
    classes: int


def train(
    net: nn.Module, lesson: Lesson, recipe: Recipe, *, seed: int, report: Progress = unheard,
    checkpoint: Path | None = None, every: float = CHECKPOINT_SECONDS,
) -> None:  # fmt: skip
    """Train in place by SGD, and leave the net in eval mode, finite in every number."""
    device = next(net.parameters()).device
    optimiser = torch.optim.SGD(
        net.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov
    )
    averaged = net.named_parameters() if recipe.average else ()
    state = State(net, optimiser, {name: parameter.detach().clone() for name, parameter in averaged})
    kept = Checkpoints(checkpoint, _fingerprint(net, lesson, recipe, seed, checkpoint), every, report)
    with deterministic(device):
        for epoch in range(kept.restore(state), recipe.epochs):
            with global_seed(seed, DROPOUT, epoch, device=device):
                _one_epoch(state, lesson, recipe, seed=seed, epoch=epoch, report=report)
            if epoch + 1 < recipe.epochs:
                kept.keep(state, epoch + 1, (epoch + 1) / recipe.epochs)
        net.load_state_dict(state.average, strict=False)
        # Averaged weights have never met the running statistics of batch norm, and after few steps nor have the last.
        stale = bool(state.average) or steps_of(lesson, recipe) < SETTLED
        if stale and len(lesson.labels) >= FEWEST:
            measure_norms(net, lesson, recipe.batch, seed)
    net.eval()
    kept.remove()
    if not all(bool(torch.isfinite(tensor).all()) for tensor in net.state_dict().values()):
        raise BadInput(f"the training ended in weights that are no numbers; {_remedy(recipe)}")


@torch.no_grad()
def measure_norms(net: nn.Module, lesson: Lesson, batch: int, seed: int) -> None:
    """Give batch norms the mean and variance of the clean images under the weights that the net has now.

    Their running averages weigh the last ten steps, or what a net starts with. After few steps they are those of other
    weights, and a hundred layers multiply the error: a ResNet-101 answered NaN after one step.
    """
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    device = next(net.parameters()).device
    momenta = [norm.momentum for norm in norms]
    net.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.train().momentum = None  # the plain mean over the batches
    for indices in even_batches(len(lesson.labels), batch, seed):
        images = torch.from_numpy(read_images(lesson.inputs, indices)).to(device)
        net(normalise(images, lesson.channels))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval().momentum = momentum


def _one_epoch(state: State, lesson: Lesson, recipe: Recipe, *, seed: int, epoch: int, report: Progress) -> None:
    net, optimiser = state.net.train(), state.optimiser
    device = next(net.parameters()).device
    weights = class_weights(lesson, recipe).to(device)
    batches = epoch_batches(len(lesson.labels), recipe.batch, seed, epoch)
    for step, (images, labels) in enumerate(_augmented(lesson, recipe, batches, seed, epoch, device)):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate(epoch + (step + 0.5) / len(batches))
        optimiser.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(net(images), labels, weights)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        if state.average:
            _update_average(state, recipe, step=epoch * len(batches) + step, steps=recipe.epochs * len(batches))
        done = (epoch + (step + 1) / len(batches)) / recipe.epochs
        report(done, f"epoch {epoch + 1} of {recipe.epochs}, loss {_finite(loss, epoch, recipe):.3f}")


@torch.no_grad()
def _update_average(state: State, recipe: Recipe, *, step: int, steps: int) -> None:
    """An exponential average over a share of all steps; before so many are done, the plain mean of those there are."""
    weight = min(1.0, max(1 / (step + 1), 1 / (recipe.average * steps)))
    for name, parameter in state.net.named_parameters():
        state.average[name].lerp_(parameter, weight)


def _augmented(
    lesson: Lesson, recipe: Recipe, batches: list[IntArray], seed: int, epoch: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (B, 3, h, w) and labels (B,), cropped, mirrored and normalised."""
    draws = generator(seed, AUGMENT, epoch)
    for indices in batches:
        images = torch.from_numpy(read_images(lesson.inputs, indices)).to(device)
        if recipe.padding or recipe.flip:
            images = crop_and_flip(images, recipe.padding, draws, flip=recipe.flip)
        yield normalise(images, lesson.channels), torch.from_numpy(lesson.labels[indices]).to(device)


def epoch_batches(count: int, batch: int, seed: int, epoch: int) -> list[IntArray]:
    """The images of an epoch in random order, a batch at a time.

    Batch norm needs two: one image left over joins the batch before, and a lone image is taken twice.

    >>> [len(indices) for indices in epoch_batches(9, 4, seed=0, epoch=0)]
    [4, 5]
    >>> [indices.tolist() for indices in epoch_batches(1, 4, seed=0, epoch=0)]
    [[0, 0]]
    """
    order = np.random.default_rng(derived(seed, ORDER, epoch)).permutation(count)
    if count == 1:
        order = np.repeat(order, 2)
    starts = list(range(batch, len(order), batch))
    if len(order) % batch == 1:
        starts.pop()
    return np.split(order, starts)


def even_batches(count: int, batch: int, seed: int) -> list[IntArray]:
    """All images in random order, in batches of nearly one size from `batch` up: each weighs as much as the others.

    >>> [len(indices) for indices in even_batches(11, 4, seed=0)]
    [6, 5]
    """
    order = np.random.default_rng(derived(seed, ORDER)).permutation(count)
    return np.array_split(order, max(1, count // batch))


def steps_of(lesson: Lesson, recipe: Recipe) -> int:
    """Steps of a whole training."""
    return recipe.epochs * len(epoch_batches(len(lesson.labels), recipe.batch, 0, 0))


def class_weights(lesson: Lesson, recipe: Recipe) -> Tensor:
    """(C,) ones, or for "balanced" n / (classes seen · n_k), so that each class seen weighs the same; unseen: 0."""
    counts = np.bincount(lesson.labels, minlength=lesson.classes)
    if recipe.class_weight == "none":
        return torch.ones(lesson.classes)
    weights = len(lesson.labels) / ((counts > 0).sum() * np.maximum(counts, 1))
    return torch.from_numpy(np.where(counts > 0, weights, 0.0).astype(np.float32))


def _finite(loss: Tensor, epoch: int, recipe: Recipe) -> float:
    value = loss.item()
    if not np.isfinite(value):
        raise BadInput(f"the loss became {value} in epoch {epoch + 1}: the training diverged; {_remedy(recipe)}")
    return value


def _remedy(recipe: Recipe) -> str:
    return f"lower lr ({recipe.lr}), or label more images"


def _fingerprint(net: nn.Module, lesson: Lesson, recipe: Recipe, seed: int, folder: Path | None) -> str:
    if folder is None:
        return ""
    settings = {"recipe": asdict(recipe), "seed": seed, "channels": asdict(lesson.channels), "classes": lesson.classes}
    return fingerprint(settings, net, lesson.inputs, lesson.labels)
