"""Pixels for training: random crops from zero padding and mirror images of a whole uint8 batch, and normalisation.

Tensors (B, h, w, 3) in; the order of pixels in memory is torch's channels_last, so nothing has to be turned around.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from ..pool.images import Inputs
from .batches import chunks, read_images

CHUNK = 256


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
