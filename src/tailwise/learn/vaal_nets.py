"""VAAL's nets: autoencoders for images and for features, and the discriminator between labelled and unlabelled.

An autoencoder gives (reconstruction, μ, log σ²). torch is imported here: load this module when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .vaal import VaalSettings


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
