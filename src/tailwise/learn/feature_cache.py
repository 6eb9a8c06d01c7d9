"""Features on the disk: the checksum of an image in, its row out; what is missing or damaged is made again.

A shard is two files: `<name>.npy`, (m, d) float32, read by memory map, and `<name>.keys.npy`, written after it.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile
from ..files import npy_bytes, write_whole
from ..pool.images import InputArray

KEY = np.dtype([("image", "<u8", (2,)), ("crc", "<u4")])  # checksum of an image, checksum of its features
Features = NDArray[np.float32]


@dataclass(slots=True)
class FeatureCache:
    """All shards of one folder; each folder belongs to one backbone with one set of settings."""

    folder: Path
    shards: list[tuple[Features, NDArray[np.uint32]]] = field(default_factory=list)  # features (m, d), crc (m,)
    places: dict[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)  # image → (shard, row), …

    @classmethod
    def open(cls, folder: Path) -> FeatureCache:
        """Every shard that is whole; one that is not is removed, and its features are made again when asked for."""
        cache = cls(folder)
        for path in sorted(folder.glob("*.keys.npy")) if folder.is_dir() else []:
            cache._read(path)
        return cache

    def find(self, image: bytes) -> Features | None:
        """The features (d,) of an image, or None; a row that fails its checksum counts as missing."""
        for shard, row in self.places.get(image, ()):
            features, crcs = self.shards[shard]
            found: Features = features[row]
            if zlib.crc32(found.tobytes()) == crcs[row]:
                return found
        return None

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

    def _read(self, path: Path) -> None:
        features_path = path.with_name(path.name.replace(".keys.npy", ".npy"))
        try:
            keys = np.load(path, allow_pickle=False)
            features = np.load(features_path, mmap_mode="r", allow_pickle=False)
            if (
                keys.dtype != KEY
                or features.dtype != np.float32
                or features.shape[:1] != keys.shape
                or features.ndim != 2
            ):
                raise ValueError("not a shard of features")
        except (OSError, ValueError, EOFError):
            path.unlink(missing_ok=True)
            features_path.unlink(missing_ok=True)
            return
        raw = np.ascontiguousarray(keys["image"]).tobytes()
        for row in range(len(keys)):
            image = raw[16 * row : 16 * row + 16]
            self.places[image] = (*self.places.get(image, ()), (len(self.shards), row))
        self.shards.append((features, keys["crc"]))


def image_key(image: InputArray) -> bytes:
    """16 bytes that name an image by its pixels and its shape.

    >>> one, other = np.zeros((2, 4, 3), np.uint8), np.zeros((4, 2, 3), np.uint8)
    >>> image_key(one) == image_key(one.copy()) != image_key(other)
    True
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
