"""Shards of probabilities on the disk, each whole or absent, with checksums: what is there is not computed again.

OUT/manifest.json               the job, and its shards; "complete" is false until the last is there
OUT/part-00000.npy              (n, C) probabilities of the first shard
OUT/part-00000.json             names of its rows, its bad images, checksums; written last: it makes the shard
OUT/embeddings/part-00000.npy   (n, d), where they were asked for

A shard that is damaged, or of other images, another learner or other settings counts as absent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput
from ..files import npy_bytes, write_whole
from ..pools.pool import BadImage
from ..types import FloatArray, IntArray

FORMAT = 1
MANIFEST, EMBEDDINGS = "manifest.json", "embeddings"
HALF = re.compile(r"\.(part-\d{5,}\.(npy|json)|manifest\.json)\.[0-9a-f]+\.part")
PART = re.compile(r"part-(\d{5,})\.(npy|json)")


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of probabilities, as its JSON file describes it."""

    number: int
    input: str
    fingerprint: str
    dtype: str
    rows: int
    names: tuple[str, ...]  # (n,)
    paths: tuple[str, ...]  # (n,) what a table says of them; () where it says nothing
    bad: tuple[BadImage, ...]
    sha256: str
    embeddings_sha256: str | None = None

    @property
    def file(self) -> str:
        """The array's name."""
        return f"{part_name(self.number)}.npy"


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """What the manifest says of a shard."""

    file: str
    input: str
    rows: int
    bad: int
    sha256: str
    embeddings_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A pool's probabilities.

    Attributes
    ----------
    complete: False while shards are missing.
    classes: C.
    class_names: (C,), or () where they are unknown.
    inputs, learner: what was asked for.
    """

    complete: bool
    classes: int
    class_names: tuple[str, ...]
    dtype: str
    inputs: dict[str, str]
    learner: dict[str, Any]
    shards: tuple[ManifestShard, ...]

    @property
    def rows(self) -> int:
        """Rows of all shards."""
        return sum(shard.rows for shard in self.shards)


@dataclass(frozen=True, slots=True)
class ShardStore:
    """The folder of the output."""

    folder: Path

    def find(self, number: int, fingerprint: str, *, embeddings: bool) -> Shard | None:
        """A shard that is there and whole, and of this very input, learner and settings."""
        shard = self.read(number)
        if shard is None or shard.fingerprint != fingerprint:
            return None
        if embeddings and shard.embeddings_sha256 is None:
            return None
        wanted = [(self.folder / shard.file, shard.sha256)]
        if shard.embeddings_sha256 is not None:
            wanted.append((self.folder / EMBEDDINGS / shard.file, shard.embeddings_sha256))
        return shard if all(_checksum(path) == sha256 for path, sha256 in wanted) else None

    def read(self, number: int) -> Shard | None:
        """What the JSON file of a shard says; None where it is missing or damaged."""
        try:
            page = json.loads((self.folder / f"{part_name(number)}.json").read_bytes())
            if page.pop("format") != FORMAT:
                return None
            names, paths, bad = page.pop("names"), page.pop("paths"), page.pop("bad")
            shard = Shard(**page, names=tuple(names), paths=tuple(paths), bad=tuple(BadImage(**one) for one in bad))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return shard if shard.number == number and len(shard.names) == shard.rows else None

    def keep(self, shard: Shard, proba: FloatArray, embeddings: FloatArray | None) -> Shard:
        """Write a shard: its arrays first, then the file that names them; gives it with its checksums."""
        content = npy_bytes(proba)
        checksum = None
        if embeddings is not None:
            (self.folder / EMBEDDINGS).mkdir(exist_ok=True)
            embedded = npy_bytes(embeddings)
            checksum = hashlib.sha256(embedded).hexdigest()
            write_whole(self.folder / EMBEDDINGS / shard.file, embedded)
        write_whole(self.folder / shard.file, content)
        facts = asdict(shard) | {"sha256": hashlib.sha256(content).hexdigest(), "embeddings_sha256": checksum}
        page = json.dumps({"format": FORMAT, **facts}, ensure_ascii=False).encode()
        write_whole(self.folder / f"{part_name(shard.number)}.json", page)
        kept = self.read(shard.number)
        if kept is None:
            raise BadFile(f"{self.folder / shard.file} was written, but cannot be read; is the disk sound?")
        return kept

    def write_manifest(self, manifest: Manifest) -> None:
        """Say what the folder holds."""
        page = {"format": FORMAT, **asdict(manifest), "rows": manifest.rows}
        write_whole(self.folder / MANIFEST, (json.dumps(page, ensure_ascii=False, indent=1) + "\n").encode())

    def remove_halves(self) -> None:
        """Remove what a killed run was about to write; the folder must be locked."""
        for folder in (self.folder, self.folder / EMBEDDINGS):
            for path in folder.glob(".*.part"):
                if HALF.fullmatch(path.name):
                    path.unlink(missing_ok=True)

    def remove_beyond(self, count: int) -> None:
        """Remove the shards of an earlier job that had more of them; what is not ours stays."""
        for path in sorted(self.folder.glob("part-*.json")):
            found = PART.fullmatch(path.name)
            number = int(found[1]) if found else 0
            if number >= count and self.read(number) is not None:
                path.unlink(missing_ok=True)
                (self.folder / f"{part_name(number)}.npy").unlink(missing_ok=True)
                (self.folder / EMBEDDINGS / f"{part_name(number)}.npy").unlink(missing_ok=True)


def part_name(number: int) -> str:
    """A shard's name without its ending.

    >>> part_name(7)
    'part-00007'
    """
    return f"part-{number:05d}"


def read_manifest(folder: str | Path) -> Manifest:
    """What a folder of shards holds."""
    path = Path(folder).expanduser() / MANIFEST
    try:
        page = json.loads(path.read_bytes())
        if page.pop("format") != FORMAT:
            raise BadFile(f"{path} is not of format {FORMAT}, which is the one that this version reads")
        page.pop("rows")
        shards = tuple(ManifestShard(**shard) for shard in page.pop("shards"))
        return Manifest(**page | {"class_names": tuple(page["class_names"]), "shards": shards})
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror}; make shards with: tailwise predict") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{path} is not a manifest of shards: {error}") from error


def knows_names(folder: str | Path) -> bool:
    """Whether a place is a folder that `tailwise predict` has finished, with the names of all rows."""
    home = Path(folder).expanduser()
    if not (home / MANIFEST).is_file():
        return False
    try:
        manifest = read_manifest(home)
    except BadFile:
        return False  # of another program
    return manifest.complete and all((home / f"{part_name(at)}.json").is_file() for at in range(len(manifest.shards)))


def names_of(folder: str | Path, indices: Sequence[int] | IntArray) -> list[str]:
    """The images that rows of a pool stand for, as `tailwise select` numbers them: all shards in order."""
    home = Path(folder).expanduser()
    manifest = read_manifest(home)
    wanted = np.asarray(indices, dtype=np.int64)
    if len(wanted) and not 0 <= wanted.min() <= wanted.max() < manifest.rows:
        asked = f"{wanted.min()} to {wanted.max()}"
        raise BadInput(f"{home} has {manifest.rows:,} rows, numbered from 0, but rows {asked} were asked for")
    ends = np.cumsum([shard.rows for shard in manifest.shards])
    places = np.searchsorted(ends, wanted, side="right")
    names = {number: _names(home, number) for number in np.unique(places).tolist()}
    starts = ends - [shard.rows for shard in manifest.shards]
    return [names[place][index - starts[place]] for place, index in zip(places.tolist(), wanted.tolist(), strict=True)]


def _names(folder: Path, number: int) -> tuple[str, ...]:
    shard = ShardStore(folder).read(number)
    if shard is None:
        raise BadFile(f"{folder / part_name(number)}.json is missing or damaged; run tailwise predict again")
    return shard.names


def _checksum(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
