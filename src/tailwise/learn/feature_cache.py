"""Features on the disk: the checksum of an image in, its row out; what is missing or damaged is made again.

A shard is two files: `<name>.npy`, (m, d) float32, read by memory map, and `<name>.keys.npy`, written after it.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile
from ..files import npy_bytes, write_whole
from ..pool.images import InputArray
from ..types import BoolArray

KEY = np.dtype([("image", "<u8", (2,)), ("crc", "<u4")])  # checksum of an image, checksum of its features
Features = NDArray[np.float32]


@dataclass(slots=True)
class FeatureCache:
    """All shards of one folder; each folder belongs to one backbone with one set of settings."""

    folder: Path
    shards: list[tuple[Features, NDArray[np.uint32]]] = field(default_factory=list)  # features (m, d), crc (m,)
    places: dict[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # image → (shard, row), …

    @classmethod
    def open(cls, folder: Path, *, clean: bool = True) -> FeatureCache:
        """Every shard that is whole; one that is not is removed, and its features are made again when asked for.

        Without `clean` nothing is removed, for those who only read.
        """
        cache = cls(folder)
        for path in sorted(folder.glob("*.keys.npy")) if folder.is_dir() else []:
            cache._read(path, clean=clean)
        return cache

    def find(self, image: bytes) -> Features | None:
        """The features (d,) of an image, or None; a row that fails its checksum counts as missing."""
        for shard, row in self.places.get(image, ()):
            features, crcs = self.shards[shard]
            found: Features = features[row]
            if zlib.crc32(found.tobytes()) == crcs[row]:
                return found
        return None

    def find_all(self, images: Sequence[bytes], keep: BoolArray | None = None) -> tuple[Features, BoolArray]:
        """The features (n, d) of many images as one array, and which of them were found, (n,); the others are 0.

        Shard by shard, in the order of the disk. What is not marked in `keep` is not looked for.
        """
        wanted = np.ones(len(images), dtype=bool) if keep is None else keep
        width = self.shards[0][0].shape[1] if self.shards else 0
        features, found = np.zeros((len(images), width), np.float32), np.zeros(len(images), dtype=bool)
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for at in np.flatnonzero(wanted).tolist():
            for shard, row in self.places.get(images[at], ()):
                by_shard.setdefault(shard, []).append((row, at))
        for shard, pairs in sorted(by_shard.items()):
            stored, crcs = self.shards[shard]
            if stored.shape[1] == width:
                _copy_whole_rows(stored, crcs, sorted(pairs), features, found)
        return features, found

    def add(self, images: Sequence[bytes], features: Features) -> None:
        """Write one more shard: the features first, then the keys that make them count."""
        name = secrets.token_hex(8)
        keys = np.empty(len(images), KEY)
        keys["image"] = np.frombuffer(b"".join(images), "<u8").reshape(-1, 2)
        keys["crc"] = [zlib.crc32(row.tobytes()) for row in features]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadFile(f"cannot make the folder {self.folder}: {error.strerror or error}") from error
        write_whole(self.folder / f"{name}.npy", npy_bytes(features))
        write_whole(self.folder / f"{name}.keys.npy", npy_bytes(keys))

    def _read(self, path: Path, *, clean: bool) -> None:
        try:
            features, keys = _load(path)
        except (OSError, ValueError, EOFError):
            if clean:
                with suppress(OSError):  # a folder that may only be read keeps what it has
                    remove_shard(path)
            return
        raw = np.ascontiguousarray(keys["image"]).tobytes()
        for row in range(len(keys)):
            image = raw[16 * row : 16 * row + 16]
            self.places[image] = (*self.places.get(image, ()), (len(self.shards), row))
        self.shards.append((features, keys["crc"]))


def shard_faults(folder: Path) -> list[tuple[Path, str]]:
    """The files of a folder of features that are not whole, and why; nothing is removed."""
    faults = []
    keys_files = sorted(folder.glob("*.keys.npy"))
    for path in keys_files:
        try:
            features, keys = _load(path)
        except (OSError, ValueError, EOFError) as error:
            faults.append((path, f"cannot be read ({error})"))
            continue
        bad = sum(zlib.crc32(features[row].tobytes()) != crc for row, crc in enumerate(keys["crc"].tolist()))
        if bad:
            faults.append((path, f"{bad} of {len(keys)} rows fail their checksum"))
    known = {*keys_files, *(_features_of(path) for path in keys_files)}
    faults += [(path, "belongs to no keys") for path in sorted(folder.glob("*.npy")) if path not in known]
    return faults


def remove_shard(path: Path) -> None:
    """Take a shard away, named by either of its files; its features are made again when asked for."""
    path.unlink(missing_ok=True)
    if path.name.endswith(".keys.npy"):
        _features_of(path).unlink(missing_ok=True)


def _features_of(keys_path: Path) -> Path:
    return keys_path.with_name(keys_path.name.replace(".keys.npy", ".npy"))


def _load(path: Path) -> tuple[Features, NDArray[np.void]]:
    """Features (m, d) and keys (m,) of a shard; an error where they are not whole."""
    keys = np.load(path, allow_pickle=False)
    features = np.load(_features_of(path), mmap_mode="r", allow_pickle=False)
    if keys.dtype != KEY or features.dtype != np.float32 or features.shape[:1] != keys.shape or features.ndim != 2:
        raise ValueError("not a shard of features")
    return features, keys


def _copy_whole_rows(
    stored: Features, crcs: NDArray[np.uint32], pairs: list[tuple[int, int]], into: Features, found: BoolArray
) -> None:
    """Copy rows of a shard to their places, (row, place) by rising row, those whose checksum is right."""
    width = 4 * stored.shape[1]  # bytes of a row
    whole = np.ascontiguousarray(stored).view(np.uint8).reshape(-1).data
    right = [(row, at) for row, at in pairs if zlib.crc32(whole[row * width : (row + 1) * width]) == crcs[row]]
    if right:
        rows, places = np.array(right, dtype=np.int64).T
        into[places] = stored[rows]
        found[places] = True


def image_key(image: InputArray) -> bytes:
    """16 bytes that name an image by its pixels and its shape.

    >>> one, other = np.zeros((2, 4, 3), np.uint8), np.zeros((4, 2, 3), np.uint8)
    >>> image_key(one) == image_key(one.copy()) != image_key(other)
    True
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
