"""Features without a net: pixels uint8 (n, 64, 64, 3) in, float32 (n, 928) out, with numpy alone.

Responses of a fixed bank of small filters, gradient histograms and colours, each pooled over a few places of the image.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..errors import BadInput
from ..pools.pool import InputArray
from ..types import Float64Array
from .linear import Float32Array

NAME = "simple-1"  # a change of anything below is a new name: features that are kept are known by it
SIDE = 64  # pixels of the images that go in
PATCH = 6  # pixels of a filter's side, at half the size
FILTERS = 80
SEED = 20220111  # of the filters; never that of a campaign
THRESHOLD = 0.75  # of a filter's response, in standard deviations
FLAT = 10.0  # grey levels²: contrast below about 3 levels is noise, and is not blown up
QUADRANTS = 2  # filter responses are averaged in 2 × 2 parts of the image
CELLS = 4  # gradients and colours in 4 × 4
DIRECTIONS = 12
MOST_OF_BLOCK = 0.2  # of a block of gradients, that one direction may have
WIDTH = 2 * FILTERS * QUADRANTS**2 + DIRECTIONS * CELLS**2 + 6 * CELLS**2  # d
CHUNK = 16  # images at once: their patches fit a processor's cache


def simple_features(images: InputArray) -> Float32Array:
    """The features (n, d) of images; those of one image do not depend on what stands beside it.

    >>> simple_features(np.zeros((2, 64, 64, 3), np.uint8)).shape
    (2, 928)
    """
    if images.shape[1:] != (SIDE, SIDE, 3) or images.dtype != np.uint8:
        raise BadInput(f"simple features need uint8 (n, {SIDE}, {SIDE}, 3), but the images are {images.shape}")
    result = np.empty((len(images), WIDTH), np.float32)
    for start in range(0, len(images), CHUNK):
        pixels = images[start : start + CHUNK].astype(np.float32)  # (m, 64, 64, 3)
        parts = (_filter_responses(_halved(pixels)), _gradients(pixels), _colours(pixels))
        result[start : start + CHUNK] = np.concatenate(parts, axis=1)
    return result


def _filter_responses(pixels: Float32Array) -> Float32Array:
    """How often, and how strongly, each filter answers in each quadrant, either way, (m, 2·K·4)."""
    windows = sliding_window_view(pixels, (PATCH, PATCH), axis=(1, 2))  # (m, h, w, 3, 6, 6)
    count, places = windows.shape[0], windows.shape[1]
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(count, places * places, -1)  # (m, h·w, 108)
    patches -= patches.mean(axis=2, keepdims=True)
    spread = np.sqrt(np.einsum("mpd,mpd->mp", patches, patches) / patches.shape[2] + FLAT)
    # One product per image, not one for all: the last bit of an image's features must not depend on its neighbours.
    found = np.matmul(patches, filter_bank()) / spread[:, :, None]
    maps = found.reshape(count, places, places, FILTERS)
    pooled = [pool(part) for part in _quarters(maps) for pool in (_above, _below)]
    return np.sqrt(np.concatenate(pooled, axis=1))


def _quarters(maps: Float32Array) -> list[Float32Array]:
    middle = maps.shape[1] // 2
    halves = (slice(0, middle), slice(middle, None))
    return [maps[:, rows, columns] for rows in halves for columns in halves]


def _above(responses: Float32Array) -> Float32Array:
    mean: Float32Array = np.maximum(responses - np.float32(THRESHOLD), 0).mean(axis=(1, 2))
    return mean


def _below(responses: Float32Array) -> Float32Array:
    mean: Float32Array = np.maximum(-responses - np.float32(THRESHOLD), 0).mean(axis=(1, 2))
    return mean


@lru_cache(maxsize=1)
def filter_bank() -> Float32Array:
    """K oriented filters in grey and in opposed colours, (108, K), that answer with a deviation of 1 on average.

    They are whitened as if for photographs: neighbouring pixels alike, the three colours nearly so.
    """
    covariance = _photograph_covariance()
    values, vectors = np.linalg.eigh(covariance)
    whitening = (vectors / np.sqrt(values + 0.1)) @ vectors.T
    rng = np.random.default_rng(SEED)
    bank = whitening @ np.stack([_wavelet(rng) for _ in range(FILTERS)], axis=1)
    bank -= bank.mean(axis=0)
    spread = np.sqrt(np.einsum("dk,de,ek->k", bank, covariance, bank))
    return np.asarray(bank / spread.mean(), np.float32)


def _wavelet(rng: np.random.Generator) -> Float64Array:
    """A wave under a bell, of random direction, length, phase, place and colour, (108,), of length 1."""
    down, across = np.mgrid[:PATCH, :PATCH] - (PATCH - 1) / 2
    angle, waves, phase = rng.uniform(0, np.pi), rng.uniform(0.08, 0.4), rng.uniform(0, 2 * np.pi)
    width, (x, y) = rng.uniform(1.0, 2.5), rng.uniform(-1, 1, 2)
    bell = np.exp(-((across - x) ** 2 + (down - y) ** 2) / (2 * width**2))
    along = (across - x) * np.cos(angle) + (down - y) * np.sin(angle)
    kinds = ((1, 1, 1), (1, -1, 0), (0.5, 0.5, -1), tuple(rng.normal(size=3)))
    colour = np.array(kinds[rng.choice(4, p=(0.5, 0.15, 0.15, 0.2))])
    wave = (bell * np.cos(2 * np.pi * waves * along + phase))[:, :, None] * colour / np.linalg.norm(colour)
    flat = (wave - wave.mean()).ravel()
    return np.asarray(flat / np.linalg.norm(flat))


def _photograph_covariance(reach: float = 8.0, own_colour: float = 0.05) -> Float64Array:
    """How the 108 numbers of a patch go together, its mean taken out, its mean variance 1."""
    places = np.argwhere(np.ones((PATCH, PATCH)))  # (36, 2)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)  # (36, 36) pixels
    colours = (1 - own_colour) * np.ones((3, 3)) + own_colour * np.eye(3)
    both = np.kron(np.exp(-apart / reach), colours)
    centring = np.eye(len(both)) - 1 / len(both)
    centred = centring @ both @ centring
    return np.asarray(centred * len(both) / np.trace(centred))


def _gradients(pixels: Float32Array) -> Float32Array:
    """Histograms of the directions in which grey changes, (m, 12·16), each cell measured against its four blocks."""
    grey = np.sqrt(pixels.mean(axis=3) / 255)
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), "edge")
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    cells = _histograms(np.hypot(across, down), np.arctan2(down, across) * (DIRECTIONS / (2 * np.pi)))
    energy = np.einsum("mijk,mijk->mij", cells, cells)  # (m, 4, 4)
    blocks = energy[:, :-1, :-1] + energy[:, 1:, :-1] + energy[:, :-1, 1:] + energy[:, 1:, 1:]
    around = np.sqrt(np.pad(blocks, ((0, 0), (1, 1), (1, 1)), "edge") + 1e-3)  # (m, 5, 5)
    corners = [around[:, row : row + CELLS, column : column + CELLS, None] for row in (0, 1) for column in (0, 1)]
    measured = sum(np.minimum(cells / corner, MOST_OF_BLOCK) for corner in corners) / np.float32(2)
    return np.asarray(measured, np.float32).reshape(len(pixels), -1)


def _histograms(strength: Float32Array, turn: Float32Array) -> Float32Array:
    """Sum the strengths by cell and direction, each shared between the two nearest directions, (m, 4, 4, 12)."""
    count, side = strength.shape[:2]
    low = np.floor(turn)
    share = turn - low
    first = low.astype(np.int64) % DIRECTIONS
    cell_of = np.arange(side) // (side // CELLS)
    cell = (np.arange(count)[:, None, None] * CELLS + cell_of[:, None]) * CELLS + cell_of  # (m, 64, 64)
    sums = np.zeros(count * CELLS**2 * DIRECTIONS)
    for direction, part in ((first, 1 - share), ((first + 1) % DIRECTIONS, share)):
        sums += np.bincount(
            (cell * DIRECTIONS + direction).ravel(), weights=(strength * part).ravel(), minlength=len(sums)
        )
    return sums.astype(np.float32).reshape(count, CELLS, CELLS, DIRECTIONS)


def _colours(pixels: Float32Array) -> Float32Array:
    """Mean and spread of red, green and blue in each cell, (m, 6·16)."""
    count, cell = len(pixels), SIDE // CELLS
    bright = pixels / 255
    mean, square = (
        some.reshape(count, CELLS, cell, CELLS, cell * 3).sum(axis=2).reshape(count, CELLS, CELLS, cell, 3).mean(axis=3)
        / cell
        for some in (bright, bright * bright)
    )
    spread = np.sqrt(np.maximum(square - mean * mean, 0))
    return np.concatenate([mean.reshape(count, -1), spread.reshape(count, -1)], axis=1)


def _halved(pixels: Float32Array) -> Float32Array:
    count, height, width, _ = pixels.shape
    halved: Float32Array = pixels.reshape(count, height // 2, 2, width // 2, 2, 3).mean(axis=(2, 4))
    return halved
