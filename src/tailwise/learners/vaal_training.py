"""VAAL's nets and their training: the autoencoder maps both sets to alike codes, the discriminator separates them.

Inputs and settings in, the discriminator's probability of "labelled" for the pool out. torch is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from ..pools.pool import Inputs
from ..types import Float64Array, IntArray, Progress
from .learner import chunks, read_images
from .nets import NOISE, ORDER, START, derived, deterministic, device_named, global_seed, placed
from .training import Channels, normalise
from .vaal import VaalSettings

CHUNK = 1024  # inputs that are read together
GREY = Channels((127.5,) * 3, (127.5,) * 3)  # pixels from −1 to 1


class Autoencoder(nn.Module):
    """Encoder → μ and log σ² (32) → a sample of the latent → decoder."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, width: int, latent: int) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.mean, self.log_variance = nn.Linear(width, latent), nn.Linear(width, latent)

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """μ and log σ², (B, latent) each."""
        code = self.encoder(inputs)  # (B, width)
        return self.mean(code), self.log_variance(code)

    def forward(self, inputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reconstruction, μ and log σ²; `noise` (B, latent) is standard normal."""
        mean, log_variance = self.encode(inputs)
        return self.decoder(mean + noise * torch.exp(0.5 * log_variance)), mean, log_variance


def image_autoencoder(side: int, settings: VaalSettings) -> Autoencoder:
    """For images (B, 3, side, side): 4×4 convolutions of stride 2 down to side/16, and mirrored back up."""
    widths = (3, *settings.channels)
    last = side >> len(settings.channels)  # 2 for 32×32, 4 for 64×64
    down: list[nn.Module] = []
    for entering, leaving in pairwise(widths):
        down += [nn.Conv2d(entering, leaving, 4, 2, 1, bias=False), nn.BatchNorm2d(leaving), nn.ReLU(inplace=True)]
    flat = widths[-1] * last * last
    up: list[nn.Module] = [nn.Linear(settings.latent, flat), nn.Unflatten(1, (widths[-1], last, last))]
    for entering, leaving in zip(widths[:1:-1], widths[-2:0:-1], strict=True):
        up += [
            nn.ConvTranspose2d(entering, leaving, 4, 2, 1, bias=False),
            nn.BatchNorm2d(leaving),
            nn.ReLU(inplace=True),
        ]
    up.append(nn.ConvTranspose2d(widths[1], 3, 4, 2, 1))
    return Autoencoder(nn.Sequential(*down, nn.Flatten()), nn.Sequential(*up), flat, settings.latent)


def feature_autoencoder(features: int, settings: VaalSettings) -> Autoencoder:
    """For features (B, d): d-512-256 → 32 → 256-512-d."""
    widths = (features, *settings.hidden)
    back = (settings.latent, *widths[:0:-1])
    decoder = nn.Sequential(*_layers(back), nn.Linear(widths[1], features))
    return Autoencoder(nn.Sequential(*_layers(widths)), decoder, widths[-1], settings.latent)


def _layers(widths: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for entering, leaving in pairwise(widths):
        layers += [nn.Linear(entering, leaving, bias=False), nn.BatchNorm1d(leaving), nn.ReLU(inplace=True)]
    return layers


class Discriminator(nn.Module):
    """32-512-512-1: the logit of "labelled"."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(latent, width), nn.ReLU(inplace=True), nn.Linear(width, width), nn.ReLU(inplace=True),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, mean: Tensor) -> Tensor:
        """(B, latent) → (B,)."""
        logits: Tensor = self.layers(mean)[:, 0]
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Game:
    """The two nets and their optimisers."""

    vae: Autoencoder
    critic: Discriminator
    vae_optimiser: torch.optim.Optimizer
    critic_optimiser: torch.optim.Optimizer
    settings: VaalSettings


def train_and_score(
    labelled: Inputs, pool: Inputs, settings: VaalSettings, *, seed: int, report: Progress
) -> Float64Array:
    """D(μ(x)) for every input of the pool, (N,)."""
    device = device_named(settings.device)
    reader = make_reader(labelled, pool, device)
    with global_seed(seed, START, device=torch.device("cpu")):
        game = make_game(reader.shape, settings, device)
    noise = torch.Generator().manual_seed(derived(seed, NOISE))
    sides = (Stream(len(labelled), derived(seed, ORDER, 0)), Stream(len(pool), derived(seed, ORDER, 1)))

    def both() -> Tensor:
        """A labelled batch above an unlabelled one, (2B, …)."""
        inputs = zip((labelled, pool), sides, strict=True)
        return torch.cat([reader.read(source, stream.take(settings.batch)) for source, stream in inputs])

    with deterministic(device):
        for step in range(settings.steps):
            losses = [vae_step(game, both(), noise) for _ in range(settings.vae_steps)]
            critic_loss = critic_step(game, both())
            done = 0.95 * (step + 1) / settings.steps
            report(done, f"VAAL step {step + 1} of {settings.steps}, losses {losses[-1]:.3g} and {critic_loss:.3f}")
        return score(game, reader, pool)


def make_game(shape: tuple[int, ...], settings: VaalSettings, device: torch.device) -> Game:
    """Fresh nets for inputs of a shape: (d,) or (3, side, side)."""
    vae = image_autoencoder(shape[1], settings) if len(shape) == 3 else feature_autoencoder(shape[0], settings)
    critic = Discriminator(settings.latent, settings.critic)
    for net in (vae, critic):
        placed(net, device)
    vae_optimiser = torch.optim.Adam(vae.parameters(), settings.lr, fused=True)
    critic_optimiser = torch.optim.Adam(critic.parameters(), settings.lr, fused=True)
    return Game(vae, critic, vae_optimiser, critic_optimiser, settings)


def vae_step(game: Game, inputs: Tensor, noise: torch.Generator) -> float:
    """Reconstruct both halves, stay near the prior, and make the discriminator take every input for labelled.

    Both halves pass in one batch: apart, batch norm would hide from the discriminator how they differ.
    """
    drawn = torch.randn((len(inputs), game.settings.latent), generator=noise).to(inputs.device)
    rebuilt, mean, log_variance = game.vae(inputs, drawn)
    fooled = game.critic(mean)  # (2B,)
    halves = fooled.view(2, -1)
    fooling = sum(functional.binary_cross_entropy_with_logits(half, torch.ones_like(half)) for half in halves)
    # Twice the mean over both halves is the sum of the two sets' losses.
    loss = 2 * vae_loss(inputs, rebuilt, mean, log_variance, game.settings.beta) + game.settings.adversary * fooling
    game.vae_optimiser.zero_grad(set_to_none=True)
    loss.backward(inputs=list(game.vae.parameters()))  # type: ignore[no-untyped-call] # the discriminator stays
    game.vae_optimiser.step()
    return loss.item()


def vae_loss(inputs: Tensor, rebuilt: Tensor, mean: Tensor, log_variance: Tensor, beta: float) -> Tensor:
    """Minus the evidence bound, mean over the batch: ½·squared error + β·KL(N(μ, σ²) ‖ N(0, 1)), summed per input.

    >>> one = torch.ones(1, 2)
    >>> vae_loss(one, 0 * one, one, 0 * one, beta=3.0).item()
    4.0
    """
    error = 0.5 * (rebuilt - inputs).square().flatten(1).sum(dim=1)  # (B,)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1)  # (B,)
    return (error + beta * divergence).mean()


def critic_step(game: Game, inputs: Tensor) -> float:
    """Train the discriminator: the first half is labelled = 1, the second unlabelled = 0."""
    with torch.no_grad():
        mean, _ = game.vae.encode(inputs)
    labelled, unlabelled = game.critic(mean).view(2, -1)
    cross_entropy = functional.binary_cross_entropy_with_logits
    loss = cross_entropy(labelled, torch.ones_like(labelled)) + cross_entropy(unlabelled, torch.zeros_like(unlabelled))
    game.critic_optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    game.critic_optimiser.step()
    return loss.item()


@torch.inference_mode()
def score(game: Game, reader: Reader, pool: Inputs) -> Float64Array:
    """D(μ(x)) in eval mode, (N,)."""
    game.vae.eval()
    found = [
        torch.sigmoid(game.critic(game.vae.encode(reader.read(pool, rows))[0])) for rows in chunks(len(pool), CHUNK)
    ]
    return torch.cat(found).cpu().numpy().astype(np.float64)


class Stream:
    """Indices 0..count-1 in random order, then in another, without end.

    >>> sorted(Stream(3, seed=0).take(3).tolist())
    [0, 1, 2]
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.rng = count, np.random.default_rng(seed)
        self.left = self.rng.permutation(count)

    def take(self, size: int) -> IntArray:
        """The next `size` of them; more than there are come round again."""
        while len(self.left) < size:
            self.left = np.append(self.left, self.rng.permutation(self.count))
        taken, self.left = self.left[:size], self.left[size:]
        return taken


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """Makes inputs ready for the nets: pixels from −1 to 1, features with mean 0 and deviation 1."""

    shape: tuple[int, ...]  # (d,), or (3, side, side)
    device: torch.device
    scaling: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None  # means (d,) and factors (d,) of features

    def read(self, inputs: Inputs, rows: IntArray) -> Tensor:
        """(B, d) or (B, 3, side, side)."""
        if self.scaling is not None:
            features = (inputs[rows] - self.scaling[0]) * self.scaling[1]
            return torch.from_numpy(features.astype(np.float32, copy=False)).to(self.device)
        images = normalise(torch.from_numpy(read_images(inputs, rows)).to(self.device), GREY)
        if images.shape[1:] == self.shape:
            return images
        return functional.interpolate(images, self.shape[1:], mode="bilinear", antialias=True)


def make_reader(labelled: Inputs, pool: Inputs, device: torch.device) -> Reader:
    """Measure what has to be measured; images of other sizes than the nets take are resized."""
    if len(pool.shape) == 4:
        side = working_side(pool.shape[1], pool.shape[2])
        return Reader((3, side, side), device)
    count, total, squares = len(labelled) + len(pool), np.zeros(pool.shape[1]), np.zeros(pool.shape[1])
    for inputs in (labelled, pool):
        for rows in chunks(len(inputs), CHUNK):
            features = inputs[rows].astype(np.float64)
            total += features.sum(axis=0)
            squares += np.square(features).sum(axis=0)
    spread = np.sqrt(np.maximum(squares / count - np.square(total / count), 0.0))
    scale = 1 / np.where(spread > 1e-6, spread, 1.0)  # a constant feature is not blown up
    return Reader(pool.shape[1:], device, ((total / count).astype(np.float32), scale.astype(np.float32)))


def working_side(height: int, width: int) -> int:
    """The side of the square that the nets see: 32 or 64, or what the images have if it is a smaller multiple of 16.

    >>> [working_side(side, side) for side in (16, 28, 32, 48, 64, 224)]
    [16, 32, 32, 48, 64, 64]
    """
    if height == width and height % 16 == 0 and height <= 64:
        return height
    return 32 if max(height, width) <= 32 else 64
