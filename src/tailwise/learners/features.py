"""Features of images: `simple_features` needs no net, and `FeatureCache` keeps the features of any backbone on disk.

A shard of the cache is two files: `<name>.npy`, (m, d) float32, and `<name>.keys.npy`, written after it. A missing or
damaged row is computed again. A file that cannot be read now (permission, too many open files, disk error) raises an
error and is kept: only bytes that were read can prove damage.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..errors import BadFile, BadInput, OutOfFiles
from ..files import NPY_START, check_open_files, npy_bytes, npy_header, open_regular, read_regular, write_whole
from ..pools.pool import InputArray
from ..types import BoolArray, Float64Array

Features: TypeAlias = NDArray[np.float32]

# Of simple features. A change of any of these, or of what is computed, needs a new name.
NAME = "simple-1"  # by which features in a cache are known
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

# Of the cache.
KEY = np.dtype([("image", "<u8", (2,)), ("crc", "<u4")])  # checksum of an image, checksum of its features
KEYS_END = ".keys.npy"
DENSE = 4  # a shard is read in one piece where at least one row in four is wanted


# -- simple features --------------------------------------------------------------------------------------------------


def simple_features(images: InputArray) -> Features:
    """The features (n, d) of images; those of one image do not depend on the others.

    >>> simple_features(np.zeros((2, 64, 64, 3), np.uint8)).shape
    (2, 928)
    """
    if images.shape[1:] != (SIDE, SIDE, 3) or images.dtype != np.uint8:
        raise BadInput(f"simple features need uint8 (n, {SIDE}, {SIDE}, 3), but the images are {images.shape}")
    result = np.empty((len(images), WIDTH), np.float32)
    for start in range(0, len(images), CHUNK):
        pixels = images[start : start + CHUNK].astype(np.float32)  # (m, 64, 64, 3)
        halved: Features = pixels.reshape(len(pixels), SIDE // 2, 2, SIDE // 2, 2, 3).mean(axis=(2, 4))
        parts = (_filter_responses(halved), _gradients(pixels), _colours(pixels))
        result[start : start + CHUNK] = np.concatenate(parts, axis=1)
    return result


def _filter_responses(pixels: Features) -> Features:
    """How often, and how strongly, each filter answers in each quadrant, either way, (m, 2·K·4)."""
    windows = sliding_window_view(pixels, (PATCH, PATCH), axis=(1, 2))  # (m, h, w, 3, 6, 6)
    count, places = windows.shape[0], windows.shape[1]
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(count, places * places, -1)  # (m, h·w, 108)
    patches -= patches.mean(axis=2, keepdims=True)
    spread = np.sqrt(np.einsum("mpd,mpd->mp", patches, patches) / patches.shape[2] + FLAT)
    # One product per image, not one for all: the last bit of an image's features must not depend on its neighbours.
    found = np.matmul(patches, filter_bank()) / spread[:, :, None]
    maps = found.reshape(count, places, places, FILTERS)
    halves = (slice(0, places // 2), slice(places // 2, None))
    quadrants = [maps[:, rows, columns] for rows in halves for columns in halves]
    pooled: list[Features] = [
        np.maximum(responses - np.float32(THRESHOLD), 0).mean(axis=(1, 2))
        for quadrant in quadrants
        for responses in (quadrant, -quadrant)  # either way
    ]
    return np.sqrt(np.concatenate(pooled, axis=1))


@lru_cache(maxsize=1)
def filter_bank() -> Features:
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


def _gradients(pixels: Features) -> Features:
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


def _histograms(strength: Features, turn: Features) -> Features:
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


def _colours(pixels: Features) -> Features:
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


# -- the cache --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class FeatureCache:
    """All shards of one folder; each folder belongs to one backbone with one set of settings."""

    folder: Path
    shards: list[Shard] = field(default_factory=list)
    places: dict[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # image → (shard, row), …

    @classmethod
    def open(cls, folder: Path, *, clean: bool = True) -> FeatureCache:
        """Every shard that is whole; a damaged one is removed, and its features are computed again when needed.

        Without `clean` nothing is removed, for those who only read. A file that cannot be read raises BadFile.
        """
        cache = cls(folder)
        for path in _keys_files(folder):
            cache._add_shard(path, clean=clean)
        return cache

    def find(self, image: bytes) -> Features | None:
        """The features (d,) of an image, or None; a row that fails its checksum counts as missing."""
        for shard, row in self.places.get(image, ()):
            features, whole = self.shards[shard].read([row])
            if whole[0]:
                found: Features = features[0]
                return found
        return None

    def find_all(self, images: Sequence[bytes], keep: BoolArray | None = None) -> tuple[Features, BoolArray]:
        """The features (n, d) of many images as one array, and which of them were found, (n,); the others are 0.

        Shard by shard, in the order of the disk. What is not marked in `keep` is not looked for.
        """
        wanted = np.ones(len(images), dtype=bool) if keep is None else keep
        width = self.shards[0].width if self.shards else 0
        features, found = np.zeros((len(images), width), np.float32), np.zeros(len(images), dtype=bool)
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for at in np.flatnonzero(wanted).tolist():
            for shard, row in self.places.get(images[at], ()):
                by_shard.setdefault(shard, []).append((row, at))
        for number, pairs in sorted(by_shard.items()):
            if self.shards[number].width == width:
                pairs.sort()
                rows, whole = self.shards[number].read([row for row, _ in pairs])
                places = np.array([at for _, at in pairs])[whole]
                features[places], found[places] = rows[whole], True
        return features, found

    def add(self, images: Sequence[bytes], features: Features) -> None:
        """Write one more shard: the features first, then the keys that make them count."""
        name = secrets.token_hex(8)
        rows = np.ascontiguousarray(features, np.float32)
        keys = np.empty(len(images), KEY)
        keys["image"] = np.frombuffer(b"".join(images), "<u8").reshape(-1, 2)
        keys["crc"] = _checksums(rows)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"cannot make the folder {self.folder}: {error.strerror or error}") from error
        write_whole(self.folder / f"{name}.npy", npy_bytes(rows))
        write_whole(self.folder / f"{name}{KEYS_END}", npy_bytes(keys))

    def _add_shard(self, path: Path, *, clean: bool) -> None:
        try:
            shard, keys = _load(path)
        except DamagedShardError:
            if clean:
                with suppress(OSError):  # a folder that may only be read keeps what it has
                    remove_shard(path)
            return
        except FileNotFoundError:  # removed by another process, or keys without features
            return
        except OSError as error:
            raise _unreadable(path, error) from error
        raw = np.ascontiguousarray(keys["image"]).tobytes()
        for row in range(len(keys)):
            image = raw[16 * row : 16 * row + 16]
            self.places[image] = (*self.places.get(image, ()), (len(self.shards), row))
        self.shards.append(shard)


@dataclass(frozen=True, slots=True)
class ShardFault:
    """A file that cannot be used."""

    path: Path
    reason: str
    damaged: bool  # its bytes prove it; else it could not be read now, and may be whole


def shard_faults(folder: Path) -> list[ShardFault]:
    """The files of a folder of features that cannot be used; nothing is removed."""
    faults = []
    keys_files = _keys_files(folder)
    for path in keys_files:
        try:
            shard, keys = _load(path)
            whole = shard.read(range(len(keys)))[1] if len(keys) else np.ones(0, dtype=bool)
            if not whole.all():
                reason = f"{np.count_nonzero(~whole)} of {len(keys)} rows fail their checksum"
                faults.append(ShardFault(path, reason, damaged=True))
        except FileNotFoundError:
            faults.append(ShardFault(path, f"has no {_features_of(path).name}", damaged=True))
        except DamagedShardError as error:
            faults.append(ShardFault(path, f"cannot be read ({error})", damaged=True))
        except (BadFile, OutOfFiles, OSError) as error:
            faults.append(ShardFault(path, f"cannot be read ({error})", damaged=False))
    known = {*keys_files, *(_features_of(path) for path in keys_files)}
    strays = [path for path in sorted(folder.glob("*.npy")) if path not in known]
    return faults + [ShardFault(path, "has no keys file", damaged=True) for path in strays]


def remove_shard(path: Path) -> None:
    """Remove a shard, named by either of its files; its features are computed again when needed."""
    path.unlink(missing_ok=True)
    if path.name.endswith(KEYS_END):
        _features_of(path).unlink(missing_ok=True)


def image_key(image: InputArray) -> bytes:
    """16 bytes that name an image by its pixels and its shape.

    >>> one, other = np.zeros((2, 4, 3), np.uint8), np.zeros((4, 2, 3), np.uint8)
    >>> image_key(one) == image_key(one.copy()) != image_key(other)
    True
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()


# -- its files --------------------------------------------------------------------------------------------------------


class DamagedShardError(ValueError):
    """Bytes that were read and are not those of a whole shard."""


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Where the rows of one file are, and their checksums."""

    path: Path
    offset: int  # bytes before the first row
    width: int  # d
    crcs: NDArray[np.uint32]  # (m,)

    def read(self, rows: Sequence[int]) -> tuple[Features, BoolArray]:
        """Some rows (n, d), given in ascending order, and which of them have the right checksum, (n,)."""
        features = np.zeros((len(rows), self.width), np.float32)
        try:
            with open_regular(self.path) as file:
                self._fill(file, rows, features)
        except FileNotFoundError:  # removed by another process: its features are missing, not wrong
            pass
        except OSError as error:
            raise _unreadable(self.path, error) from error
        return features, np.array(_checksums(features), np.uint32) == self.crcs[rows]

    def _fill(self, file: io.BufferedReader, rows: Sequence[int], features: Features) -> None:
        """What a file that was cut short lacks stays 0, and fails its checksum."""
        size = features.itemsize * self.width  # bytes of a row
        span = rows[-1] - rows[0] + 1
        if DENSE * len(rows) >= span:
            in_a_row = np.array_equal(rows, np.arange(rows[0], rows[-1] + 1))
            every = features if in_a_row else np.zeros((span, self.width), np.float32)
            file.seek(self.offset + size * rows[0])
            file.readinto(every.data)
            if every is not features:
                np.take(every, np.asarray(rows) - rows[0], axis=0, out=features)
            return
        for at, row in enumerate(rows):
            file.seek(self.offset + size * row)
            file.readinto(features[at].data)


def _load(path: Path) -> tuple[Shard, NDArray[np.void]]:
    """A shard and its keys (m,), by the name of its keys; DamagedShardError where the two files are not whole."""
    content = read_regular(path)
    features = _features_of(path)
    with open_regular(features) as file:
        start, size = file.read(NPY_START), os.fstat(file.fileno()).st_size
    try:
        keys, rows = npy_header(content), npy_header(start)
    except ValueError as error:
        raise DamagedShardError(f"not a shard of features: {error}") from error
    good = keys.dtype.names == KEY.names and len(keys.shape) == 1 and rows.dtype == np.float32 and not rows.fortran
    if not good or len(rows.shape) != 2 or rows.shape[:1] != keys.shape:
        raise DamagedShardError("not a shard of features")
    count, width = rows.shape
    if len(content) != keys.offset + count * KEY.itemsize or size != rows.offset + 4 * count * width:
        raise DamagedShardError(f"it is cut short: {features.name} has {size} bytes")
    table: NDArray[np.void] = np.frombuffer(content, KEY, offset=keys.offset)
    return Shard(features, rows.offset, width, table["crc"]), table


def _checksums(features: Features) -> list[int]:
    """One per row of an array in C order."""
    size = features.itemsize * features.shape[1]
    raw = features.reshape(-1).view(np.uint8).data  # slices of it are views
    return [zlib.crc32(raw[size * row : size * (row + 1)]) for row in range(len(features))]


def _keys_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(KEYS_END))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        check_open_files(error)
        raise _unreadable(folder, error) from error


def _features_of(keys_path: Path) -> Path:
    return keys_path.with_name(keys_path.name.removesuffix(KEYS_END) + ".npy")


def _unreadable(path: Path, error: OSError) -> BadFile:
    return BadFile(f"cannot read the features in {path}: {error.strerror or error}; nothing was removed: try again")
