"""Training of nets by SGD: augmentation, checkpoints, and the loop over epochs.

The order and the augmentation of an epoch follow from (seed, epoch) alone: a checkpoint holds no random state, and a
resumed training ends in the same bits. A damaged or foreign checkpoint is reported and ignored.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import BadFile, BadInput
from ..pools.pool import Inputs
from ..types import IntArray, Progress, no_progress
from .learner import SETTINGS_FILE, StoredModel, chunks, load_model, read_images, save_model
from .nets import AUGMENT, DROPOUT, ORDER, PooledNet, derived, deterministic, global_seed

CHUNK = 256  # images whose grey levels are counted together
KIND = "training"  # of a stored checkpoint
CHECKPOINT_SECONDS = 30.0
SETTLED = 200  # steps after which the running averages of batch norm have caught up with the weights
FEWEST = 4  # images whose variance can be measured: that of one or two tiny ones is all but nothing
CLASS_WEIGHTS = ("none", "balanced")
SCHEDULES = ("steps", "one-cycle")
WARM_UP = 0.15  # of a one-cycle schedule
MOST_WHITENED = 5_000  # images whose patches are counted
LEAST_VARIANCE = 5e-4  # of normalised pixels: what varies less is noise


@dataclass(frozen=True, slots=True)
class Channels:
    """Mean and standard deviation of red, green and blue, in grey levels 0 to 255."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def measure_channels(inputs: Inputs) -> Channels:
    """Exact mean and standard deviation per channel, from counts of the 256 grey levels; a flat channel has std 1."""
    counts = np.zeros((3, 256))
    for indices in chunks(len(inputs), CHUNK):
        pixels = read_images(inputs, indices)
        counts += [np.bincount(pixels[..., channel].ravel(), minlength=256) for channel in range(3)]
    levels = np.arange(256.0)
    shares = counts / counts.sum(axis=1, keepdims=True)  # (3, 256)
    mean = shares @ levels  # (3,)
    std = np.sqrt(((levels - mean[:, None]) ** 2 * shares).sum(axis=1))
    return Channels(tuple(mean.tolist()), tuple(np.where(std > 0, std, 1.0).tolist()))


def normalise(images: Tensor, channels: Channels) -> Tensor:
    """(B, h, w, 3) uint8 → (B, 3, h, w) float32 in channels_last order, mean 0 and deviation 1 per channel.

    >>> grey = torch.full((1, 2, 2, 3), 100, dtype=torch.uint8)
    >>> normalise(grey, Channels((90.0, 100.0, 120.0), (10.0, 10.0, 10.0)))[0, :, 0, 0].tolist()
    [1.0, 0.0, -2.0]
    """
    count, height, width, _ = images.shape
    # One row of pixels at a time: a repeated row is added in long strides, three numbers would be in short ones.
    mean = torch.tensor(channels.mean, device=images.device).repeat(width)  # (3·w,)
    scale = 1 / torch.tensor(channels.std, device=images.device).repeat(width)
    rows = images.reshape(count * height, width * 3).to(torch.float32)
    return rows.sub_(mean).mul_(scale).view(count, height, width, 3).permute(0, 3, 1, 2)


@torch.no_grad()
def whiten_stem(net: PooledNet, data: TrainingSet) -> None:
    """Start the 2×2 stem with the principal components of the images' patches, scaled to variance 1, in both signs.

    A net that begins with uncorrelated colours and edges needs half the epochs. Filters beyond these stay random.
    """
    sides = 3 * 2 * 2  # numbers in a patch
    first, second, count = torch.zeros(sides), torch.zeros(sides, sides), 0
    for indices in chunks(min(len(data.labels), MOST_WHITENED), CHUNK):
        images = normalise(torch.from_numpy(read_images(data.inputs, indices)), data.channels)
        patches = functional.unfold(images.contiguous(), 2).transpose(1, 2).reshape(-1, sides)
        first, second, count = first + patches.sum(0), second + patches.T @ patches, count + len(patches)
    mean = first / count
    variances, components = torch.linalg.eigh(second / count - torch.outer(mean, mean))  # rising
    filters = (components / torch.sqrt(variances.clamp(min=0) + LEAST_VARIANCE)).T.flip(0).reshape(-1, 3, 2, 2)
    both = torch.stack([filters, -filters], dim=1).flatten(0, 1)  # the largest variance first
    made = min(len(both), len(net.stem.weight))
    net.stem.weight[:made] = both[:made]


def crop_and_flip(images: Tensor, padding: int, generator: torch.Generator, *, flip: bool = True) -> Tensor:
    """Each image, (B, h, w, 3), shifted by up to `padding` pixels into black, and with `flip` mirrored half the time.

    The draws come from a generator on the processor, wherever the images are.
    """
    count, height, width, channels = images.shape
    top = torch.randint(2 * padding + 1, (count, 1), generator=generator)
    left = torch.randint(2 * padding + 1, (count, 1), generator=generator)
    mirrored = torch.rand((count, 1), generator=generator) < (0.5 if flip else 0.0)
    across = torch.arange(width)
    rows = top + torch.arange(height)  # (B, h) of the padded image
    columns = left + torch.where(mirrored, width - 1 - across, across)  # (B, w)
    starts = torch.arange(count)[:, None] * (height + 2 * padding) + rows  # (B, h) of all rows
    places = starts[:, :, None] * (width + 2 * padding) + columns[:, None, :]  # (B, h, w) of all pixels
    padded = functional.pad(images, (0, 0, padding, padding, padding, padding))
    taken = padded.view(-1, channels).index_select(0, places.view(-1).to(images.device))
    return taken.view(count, height, width, channels)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What a training changes from step to step."""

    net: nn.Module
    optimiser: torch.optim.Optimizer
    average: dict[str, Tensor]  # of the weights, by parameter; empty where the recipe keeps none


@dataclass(slots=True)
class Checkpoints:
    """Writes and finds the checkpoints of one training; a folder of None keeps nothing."""

    folder: Path | None
    fingerprint: str
    every: float  # seconds; the state after an epoch is only written when these have passed
    report: Progress
    written: float = field(default_factory=time.monotonic)

    def keep(self, state: State, epochs: int, done: float) -> None:
        """Write the state after so many epochs, if it is time; a full disk must not end hours of training."""
        if self.folder is None or time.monotonic() - self.written < self.every:
            return
        try:
            tensors = _arrays(state) | {"epochs": np.array([epochs])}  # a tensor, as the checksum covers those
            save_model(self.folder, StoredModel(KIND, {"fingerprint": self.fingerprint}, tensors))
        except BadFile as error:
            self.report(done, f"no checkpoint: {error}")
        self.written = time.monotonic()

    def restore(self, state: State) -> int:
        """Put everything back as it was; gives the number of epochs behind it, 0 without a checkpoint."""
        if self.folder is None or not (self.folder / SETTINGS_FILE).exists():
            return 0
        try:
            stored = load_model(self.folder, KIND)
            if stored.settings.get("fingerprint") != self.fingerprint:
                raise BadFile(f"the checkpoint in {self.folder} is of other settings, data or another seed")
            _put_back(stored.tensors, state)
        except BadFile as error:
            self.report(0.0, f"starting anew: {error}")
            return 0
        epochs = int(stored.tensors["epochs"][0])
        self.report(0.0, f"going on after epoch {epochs}")
        return epochs

    def remove(self) -> None:
        """The training is done: its files go, and the folder too if nothing else is in it."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in (self.folder / SETTINGS_FILE, *self.folder.glob("tensors-*.safetensors")):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def fingerprint(settings: dict[str, Any], net: nn.Module, inputs: Inputs, labels: IntArray) -> str:
    """One digest of the settings, of the net as it starts, of every input and of every label."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name, tensor in net.state_dict().items():
        digest.update(name.encode() + np.array(tensor.detach().cpu().numpy(), order="C").tobytes())
    digest.update(np.ascontiguousarray(labels, dtype=np.int64).tobytes())
    for indices in chunks(len(inputs), 1024):
        digest.update(np.ascontiguousarray(inputs[indices]).data)
    return digest.hexdigest()


def _arrays(state: State) -> dict[str, Any]:
    tensors = {f"net.{name}": tensor for name, tensor in state.net.state_dict().items()}
    for name, parameter in state.net.named_parameters():
        tensors[f"momentum.{name}"] = state.optimiser.state[parameter]["momentum_buffer"]
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.items()}
    return {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}


@torch.no_grad()
def _put_back(arrays: dict[str, Any], state: State) -> None:
    tensors = {f"net.{name}": tensor for name, tensor in state.net.state_dict().items()}
    for name, parameter in state.net.named_parameters():
        # In the parameter's own order in memory, as it was: another order may round the last bit differently.
        tensors[f"momentum.{name}"] = momentum = torch.empty_like(parameter)
        state.optimiser.state[parameter]["momentum_buffer"] = momentum
    tensors |= {f"average.{name}": tensor for name, tensor in state.average.items()}
    for name, tensor in tensors.items():
        tensor.copy_(torch.from_numpy(arrays[name].copy()).reshape(tensor.shape))


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
class TrainingSet:
    """What is learnt: labelled images, and the channels' statistics that normalise them."""

    inputs: Inputs  # (n, h, w, 3)
    labels: IntArray  # (n,)
    channels: Channels
    classes: int


def train(
    net: nn.Module, data: TrainingSet, recipe: Recipe, *, seed: int, report: Progress = no_progress,
    checkpoint: Path | None = None, every: float = CHECKPOINT_SECONDS,
) -> None:  # fmt: skip
    """Train in place by SGD, and leave the net in eval mode, finite in every number."""
    device = next(net.parameters()).device
    optimiser = torch.optim.SGD(
        net.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, nesterov=recipe.nesterov
    )
    averaged = net.named_parameters() if recipe.average else ()
    state = State(net, optimiser, {name: parameter.detach().clone() for name, parameter in averaged})
    kept = Checkpoints(checkpoint, _fingerprint(net, data, recipe, seed, checkpoint), every, report)
    with deterministic(device):
        for epoch in range(kept.restore(state), recipe.epochs):
            with global_seed(seed, DROPOUT, epoch, device=device):
                _one_epoch(state, data, recipe, seed=seed, epoch=epoch, report=report)
            if epoch + 1 < recipe.epochs:
                kept.keep(state, epoch + 1, (epoch + 1) / recipe.epochs)
        net.load_state_dict(state.average, strict=False)
        # Averaged weights have never met the running statistics of batch norm, and after few steps nor have the last.
        steps = recipe.epochs * len(epoch_batches(len(data.labels), recipe.batch, 0, 0))
        stale = bool(state.average) or steps < SETTLED
        if stale and len(data.labels) >= FEWEST:
            measure_norms(net, data, recipe.batch, seed)
    net.eval()
    kept.remove()
    if not all(bool(torch.isfinite(tensor).all()) for tensor in net.state_dict().values()):
        raise BadInput(
            f"the training ended in weights that are not finite; lower lr ({recipe.lr}), or label more images"
        )


@torch.no_grad()
def measure_norms(net: nn.Module, data: TrainingSet, batch: int, seed: int) -> None:
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
    for indices in even_batches(len(data.labels), batch, seed):
        images = torch.from_numpy(read_images(data.inputs, indices)).to(device)
        net(normalise(images, data.channels))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval().momentum = momentum


def _one_epoch(state: State, data: TrainingSet, recipe: Recipe, *, seed: int, epoch: int, report: Progress) -> None:
    net, optimiser = state.net.train(), state.optimiser
    device = next(net.parameters()).device
    weights = class_weights(data, recipe).to(device)
    batches = epoch_batches(len(data.labels), recipe.batch, seed, epoch)
    for step, (images, labels) in enumerate(_augmented(data, recipe, batches, seed, epoch, device)):
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
    data: TrainingSet, recipe: Recipe, batches: list[IntArray], seed: int, epoch: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images (B, 3, h, w) and labels (B,), cropped, mirrored and normalised."""
    draws = torch.Generator().manual_seed(derived(seed, AUGMENT, epoch))
    for indices in batches:
        images = torch.from_numpy(read_images(data.inputs, indices)).to(device)
        if recipe.padding or recipe.flip:
            images = crop_and_flip(images, recipe.padding, draws, flip=recipe.flip)
        yield normalise(images, data.channels), torch.from_numpy(data.labels[indices]).to(device)


def epoch_batches(count: int, batch: int, seed: int, epoch: int) -> list[IntArray]:
    """The images of an epoch in random order, in as many batches as usual, but of nearly one size.

    A few images left over at the end would weigh as much as a whole batch: with 2,500 images in batches of 32, a last
    one of 4 costs 2 points of accuracy. Batch norm needs two images, so a lone one is taken twice.

    >>> [len(indices) for indices in epoch_batches(9, 4, seed=0, epoch=0)]
    [3, 3, 3]
    >>> [indices.tolist() for indices in epoch_batches(1, 4, seed=0, epoch=0)]
    [[0, 0]]
    """
    order = np.random.default_rng(derived(seed, ORDER, epoch)).permutation(count)
    if count == 1:
        order = np.repeat(order, 2)
    return np.array_split(order, min(math.ceil(len(order) / batch), len(order) // 2))


def even_batches(count: int, batch: int, seed: int) -> list[IntArray]:
    """All images in random order, in batches of nearly one size from `batch` up: each weighs as much as the others.

    >>> [len(indices) for indices in even_batches(11, 4, seed=0)]
    [6, 5]
    """
    order = np.random.default_rng(derived(seed, ORDER)).permutation(count)
    return np.array_split(order, max(1, count // batch))


def class_weights(data: TrainingSet, recipe: Recipe) -> Tensor:
    """(C,) ones, or for "balanced" n / (classes seen · n_k), so that each class seen weighs the same; unseen: 0."""
    counts = np.bincount(data.labels, minlength=data.classes)
    if recipe.class_weight == "none":
        return torch.ones(data.classes)
    weights = len(data.labels) / ((counts > 0).sum() * np.maximum(counts, 1))
    return torch.from_numpy(np.where(counts > 0, weights, 0.0).astype(np.float32))


def _finite(loss: Tensor, epoch: int, recipe: Recipe) -> float:
    value = loss.item()
    if not np.isfinite(value):
        raise BadInput(
            f"the loss became {value} in epoch {epoch + 1}: the training diverged; lower lr ({recipe.lr}), or label "
            "more images"
        )
    return value


def _fingerprint(net: nn.Module, data: TrainingSet, recipe: Recipe, seed: int, folder: Path | None) -> str:
    if folder is None:
        return ""
    settings = {
        "recipe": asdict(recipe),
        "seed": seed,
        "channels": asdict(data.channels),
        "classes": data.classes,
    }
    return fingerprint(settings, net, data.inputs, data.labels)
