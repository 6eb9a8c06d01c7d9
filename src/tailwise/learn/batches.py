"""Inputs batch by batch: what fits is held in memory, what does not is read when its turn comes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..errors import BadInput
from ..pool.images import InputArray, Inputs, read_all
from ..types import IntArray

MOST_BYTES = 2 << 30  # above this a labelled set stays where it is


def chunks(count: int, size: int) -> Iterator[IntArray]:
    """Indices 0..count-1 in order, `size` at a time.

    >>> [chunk.tolist() for chunk in chunks(5, 2)]
    [[0, 1], [2, 3], [4]]
    """
    for start in range(0, count, size):
        yield np.arange(start, min(start + size, count))


def held(inputs: Inputs, most_bytes: int = MOST_BYTES) -> Inputs:
    """The inputs in memory where they fit there, so that decoding is done once and not once per epoch."""
    bytes_each = 1 if is_images(inputs) else 4
    return read_all(inputs) if np.prod(inputs.shape, dtype=np.float64) * bytes_each <= most_bytes else inputs


def is_images(inputs: Inputs) -> bool:
    """Pixels, rather than features."""
    return len(inputs.shape) == 4


def check_images(inputs: Inputs, who: str) -> None:
    """Refuse anything but images (n, height, width, 3)."""
    if not is_images(inputs) or inputs.shape[3] != 3:
        raise BadInput(f"{who} looks at images (n, height, width, 3), but the inputs are {inputs.shape}")


def read_images(inputs: Inputs, indices: IntArray) -> InputArray:
    """Some images as uint8 (n, height, width, 3), contiguous and writable, as torch wants them."""
    images = inputs[indices]
    if images.dtype != np.uint8:
        raise BadInput(f"images must be uint8, 0 to 255, but are {images.dtype}")
    return np.require(images, requirements=["C", "W"])
