"""What is done to a block of images, on any engine: encoded in, decoded, then answers out, bad images named.

An image that cannot be decoded has no row: it is listed with its reason, and its numbers are never invented.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import BadFile
from ..files import read_regular
from ..pool.decode import fault, read_pixels
from ..pool.images import BadImage, InputArray
from ..types import FloatArray
from .saved_learner import Predictor, SavedLearner
from .sources import Block, Picture, Source


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What is to be done to every block; it is sent to workers."""

    source: Source
    learner: SavedLearner
    embeddings: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A shard that cannot be read, as opposed to single images of it."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A block whose images are pixels."""

    shard: int
    start: int
    names: tuple[str, ...]  # (n,) of those that could be decoded
    paths: tuple[str, ...]  # (n,)
    bad: tuple[BadImage, ...]
    pixels: InputArray  # (n, size, size, 3) uint8


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a learner says of a block."""

    shard: int
    start: int
    names: tuple[str, ...]
    paths: tuple[str, ...]
    bad: tuple[BadImage, ...]
    proba: FloatArray  # (n, C) float32
    embeddings: FloatArray | None  # (n, d) float32

    @property
    def rows(self) -> int:
        """Images of the block, good and bad."""
        return len(self.names) + len(self.bad)


def decode_block(block: Block, size: int) -> Decoded:
    """Make pixels of all that can be decoded."""
    good: list[Picture] = []
    pixels, bad = [], []
    for picture in block.pictures:
        try:
            pixels.append(_pixels(picture, size))
            good.append(picture)
        except BadFile as error:
            bad.append(BadImage(picture.name, str(error)))
    names, paths = tuple(one.name for one in good), tuple(one.path for one in good)
    stacked = np.stack(pixels) if pixels else np.empty((0, size, size, 3), np.uint8)
    return Decoded(block.shard, block.start, names, paths, tuple(bad), stacked)


def ask(predictor: Predictor, decoded: Decoded, job: Job) -> Answer:
    """Ask a learner about a block; an empty one is not asked about."""
    proba: FloatArray = np.empty((0, job.learner.classes), np.float32)
    embedded: FloatArray | None = None
    if len(decoded.pixels):
        proba, embedded = predictor.answer(decoded.pixels, embeddings=job.embeddings)
    return Answer(decoded.shard, decoded.start, decoded.names, decoded.paths, decoded.bad, proba, embedded)


def _pixels(picture: Picture, size: int) -> InputArray:
    if isinstance(picture.content, str):
        raise BadFile(picture.content)
    content = _bytes(picture.content) if isinstance(picture.content, Path) else picture.content
    try:
        return read_pixels(io.BytesIO(content), size, picture.name)
    except BadFile as error:
        raise BadFile(fault(io.BytesIO(content), decode=True) or str(error)) from error


def _bytes(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise BadFile(f"it cannot be read ({error.strerror or error})") from error
