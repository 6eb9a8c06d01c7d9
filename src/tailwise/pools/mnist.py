"""MNIST and Fashion-MNIST from their IDX files, gzipped or not, and the handwritten digits of scikit-learn.

MNIST gives pixels uint8 (N, 28, 28, 3) in the official order; the digits are 1,797 images of 8×8, without a download.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile
from ..files import open_regular
from ..types import IntArray
from .download import cache_folder
from .pool import POOLS, InputArray, Inputs, LabelledImages, Pool, array_digest, keep_counts

DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
UNSIGNED_BYTES = 0x08
MOST_BYTES = 1 << 30
BRIGHTEST = 16.0  # of a pixel of the digits
TEST_PER_CLASS = 40
SPLIT_SEED = 0  # which digits are tested on is part of the data set, not of an experiment


@dataclass(frozen=True, slots=True, eq=False)
class Grey(Inputs):
    """Grey pixels, given with three equal channels when asked for: what nets take, at a third of the memory."""

    pixels: NDArray[np.uint8]  # (N, height, width)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, height, width, 3)."""
        return (*self.pixels.shape, 3)

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        return np.repeat(self.pixels[indices][..., None], 3, axis=-1)

    def digest(self, rows: IntArray) -> bytes:
        """Of the one channel."""
        return array_digest(self.pixels[rows])


@POOLS.register("mnist")
def mnist(path: Path | None = None) -> Pool:
    """MNIST: 60,000 training and 10,000 test digits."""
    return _read("mnist", path, DIGITS)


@POOLS.register("fashion-mnist")
def fashion_mnist(path: Path | None = None) -> Pool:
    """Fashion-MNIST: 60,000 training and 10,000 test pieces of clothing in 10 classes."""
    return _read("fashion-mnist", path, CLOTHES)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes, which must be neither shorter nor longer than it says."""
    try:
        with open_regular(path) as packed, gzip.open(packed) if path.suffix == ".gz" else packed as file:
            magic, header = file.read(4), file.read(4 * dimensions)
            shape = tuple(int(size) for size in np.frombuffer(header, ">u4")) if len(header) % 4 == 0 else ()
            if magic != bytes((0, 0, UNSIGNED_BYTES, dimensions)) or len(shape) != dimensions:
                raise BadFile(f"{path} is not an IDX file of bytes in {dimensions} dimensions")
            if prod(shape) > MOST_BYTES:
                raise BadFile(f"{path} claims the shape {shape}, more than the {MOST_BYTES:,} bytes allowed")
            content = file.read(prod(shape) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"cannot read {path}: {error}") from error
    if len(content) != prod(shape):
        relation = "more" if len(content) > prod(shape) else f"{len(content):,}"
        raise BadFile(f"{path} should hold {prod(shape):,} bytes after its header, but holds {relation}; get it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read(name: str, path: Path | None, class_names: tuple[str, ...]) -> Pool:
    folder = cache_folder() / name if path is None else path
    train, test = (_half(folder, prefix, name, class_names) for prefix in ("train", "t10k"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise BadFile(f"{folder} has training images {train.inputs.shape[1:]}, but test images {test.inputs.shape[1:]}")
    return Pool(name, train, test)


def _half(folder: Path, prefix: str, name: str, class_names: tuple[str, ...]) -> LabelledImages:
    pixels = read_idx(_find(folder, prefix, "images-idx3-ubyte", name), 3)
    place = _find(folder, prefix, "labels-idx1-ubyte", name)
    labels = read_idx(place, 1)
    if len(labels) != len(pixels):
        raise BadFile(f"{place} has {len(labels):,} labels for {len(pixels):,} images")
    if len(labels) and labels.max() >= len(class_names):
        raise BadFile(f"{place} holds the label {labels.max()}, but labels end at {len(class_names) - 1}")
    return LabelledImages(Grey(pixels), labels.astype(np.int64), class_names)


def _find(folder: Path, prefix: str, rest: str, name: str) -> Path:
    """One of the four files; some mirrors write a dot for the second hyphen, and unpackers drop the .gz."""
    official = f"{prefix}-{rest}"
    for file in (official, official.replace("-idx", ".idx")):
        for place in (folder / file, folder / f"{file}.gz"):
            if place.is_file():
                return place
    raise BadFile(f"no {name} at {folder}: {official} or {official}.gz is missing; put the four IDX files there")


# The digits of scikit-learn.


def load_digits() -> LabelledImages:
    """All 1,797 digits, flat float32 features in [0, 1].

    >>> digits = load_digits()
    >>> digits.inputs.shape, digits.counts().tolist()
    ((1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    """
    from sklearn.datasets import load_digits as bundled

    features, labels = bundled(return_X_y=True)
    return LabelledImages((features / BRIGHTEST).astype(np.float32), labels.astype(np.int64), DIGITS)


@POOLS.register("digits")
def digits(path: Path | None = None) -> Pool:  # noqa: ARG001 - needs no files
    """The digits, 40 of each for the test."""
    images = load_digits()
    wanted = np.full(images.classes, TEST_PER_CLASS)
    tested = keep_counts(images.labels, wanted, np.random.default_rng(SPLIT_SEED))
    others: IntArray = np.setdiff1d(np.arange(len(images)), tested)
    return Pool("digits", images.take(others), images.take(tested))
