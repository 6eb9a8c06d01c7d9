"""Features on disk: the checksum of an image in, its row out; what is missing or damaged is computed again.

A shard is two files: `<name>.npy`, (m, d) float32, and `<name>.keys.npy`, written after it. Files are open only while
they are read. One that cannot be read now (no permission, too many open files, a disk error) is an error and is kept:
only bytes that were read can prove damage.
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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile, OutOfFiles
from ..files import NPY_START, check_open_files, npy_bytes, npy_header, open_regular, read_regular, write_whole
from ..pools.pool import InputArray
from ..types import BoolArray

KEY = np.dtype([("image", "<u8", (2,)), ("crc", "<u4")])  # checksum of an image, checksum of its features
KEYS_END = ".keys.npy"
DENSE = 4  # a shard is read in one piece where at least one row in four is wanted
Features = NDArray[np.float32]


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


@dataclass(frozen=True, slots=True)
class ShardFault:
    """A file that cannot be used."""

    path: Path
    reason: str
    damaged: bool  # its bytes prove it; else it could not be read now, and may be whole


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
    return faults + [ShardFault(path, "belongs to no keys", damaged=True) for path in strays]


def remove_shard(path: Path) -> None:
    """Remove a shard, named by either of its files; its features are computed again when needed."""
    path.unlink(missing_ok=True)
    if path.name.endswith(KEYS_END):
        _features_of(path).unlink(missing_ok=True)


def _checksums(features: Features) -> list[int]:
    """One per row of an array in C order."""
    size = features.itemsize * features.shape[1]
    raw = features.reshape(-1).view(np.uint8).data  # slices of it are no copies
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


def image_key(image: InputArray) -> bytes:
    """16 bytes that name an image by its pixels and its shape.

    >>> one, other = np.zeros((2, 4, 3), np.uint8), np.zeros((4, 2, 3), np.uint8)
    >>> image_key(one) == image_key(one.copy()) != image_key(other)
    True
    """
    digest = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    digest.update(np.ascontiguousarray(image).data)
    return digest.digest()
