"""The map of a campaign: the features of all usable images in two dimensions, by PCA or UMAP, kept in one file.

A map is fitted on a sample; all other images, and those that are added later, are placed on it without changing what is
there. The file is a cache of arrays by the checksum of the bytes: one that is missing or damaged is made again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import warnings
import zipfile
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile, BadInput
from ..files import read_regular, write_whole
from ..learners.features import Features
from ..types import IntArray, Progress, no_progress
from .features import chosen_backbone, embed
from .ledger import HasLedger, Ledger, ledger_of
from .state import read_settings

FOLDER = "maps"
PCA, UMAP, AUTO = "pca", "umap", "auto"
METHODS = (AUTO, PCA, UMAP)
INSTALL = "pip install 'tailwise[map]'"
BETTER = f"PCA; for UMAP, which separates classes better: {INSTALL}"
SAMPLE = 20_000  # rows that a map is fitted on
WIDTH = 50  # dimensions that UMAP sees
NEIGHBOURS = 15  # of UMAP
FEWEST = 30  # images that UMAP needs
PLACED_BY = 5  # neighbours between which an image is placed that UMAP has not seen
CHUNK = 512  # rows placed at once: their distances to the sample are 40 MB
SEED = 0
VERSION = 1  # of the file

Points: TypeAlias = NDArray[np.float32]  # (n, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """Where images are on the map.

    Attributes
    ----------
    images: (n,) ids, ascending.
    xy: (n, 2) in [0, 1], with one scale for both axes.
    method: "pca" or "umap".
    backbone: the name of what made the features.
    made: how many were placed now; n where the map was drawn anew.
    note: how to get a better map; "" where this one is good.
    """

    images: IntArray
    xy: Points
    method: str
    backbone: str
    made: int = 0
    note: str = ""

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, slots=True, eq=False)
class FittedMap:
    """A map as it is stored.

    Attributes
    ----------
    method, backbone: see `Projection`.
    cache: the folder of the features, which names the backbone's weights.
    mean: (d,), components: (k, d): of the PCA, k is 2, or 50 for UMAP.
    sample: (m, k) what UMAP was fitted on, sample_xy: (m, 2) where it put it; empty for PCA.
    middle: (2,), span: (): what is 0.5 and what is 1 long on the map.
    keys: (n,) checksums of images as 16 bytes, xy: (n, 2) where they are.
    """

    method: str
    backbone: str
    cache: str
    mean: Features
    components: Features
    sample: Features
    sample_xy: Points
    middle: Features
    span: Features
    keys: NDArray[np.void]
    xy: Points

    def raw(self, features: Features) -> Points:
        """Features (n, d) in two dimensions, before scaling."""
        result = np.zeros((len(features), 2), np.float32)
        for start in range(0, len(features), CHUNK):
            block = slice(start, start + CHUNK)
            reduced = np.asarray((features[block] - self.mean) @ self.components.T, np.float32)  # (m, k)
            placed = reduced if self.method == PCA else placed_between(reduced, self.sample, self.sample_xy)
            result[block, : placed.shape[1]] = placed[:, :2]
        return result

    def place(self, features: Features) -> Points:
        """Features (n, d) on the map, (n, 2); what lies outside is drawn at the edge."""
        placed: Points = np.clip((self.raw(features) - self.middle) / self.span + 0.5, 0, 1).astype(np.float32)
        return placed


def project(
    campaign: HasLedger | Ledger, method: str = AUTO, *, redo: bool = False, seed: int = SEED,
    report: Progress = no_progress,
) -> Projection:  # fmt: skip
    """All usable images on the map: a stored map is used, and new images are placed on it.

    "auto" is UMAP where it is installed and there are at least 30 images, and PCA otherwise. `redo` draws it anew.
    """
    ledger = ledger_of(campaign)
    check_method(method)
    embedding = embed(ledger, backbone=read_settings(ledger).backbone, report=part_of(report, 0.0, 0.5))
    count = len(embedding.ids)
    if not count:
        raise BadInput("no image can be drawn on a map; add images with `tailwise init`")
    method = _resolved(method, count)
    keys = _keys_of(ledger, embedding.ids)
    stored = None if redo else read_map(map_file(ledger, method, embedding.backbone))
    if stored is None or stored.cache != embedding.cache or stored.mean.shape != embedding.features.shape[1:]:
        fitted = fit_map(embedding.features, method, seed=seed, report=part_of(report, 0.5, 0.9))
        stored = replace(fitted, backbone=embedding.backbone, cache=embedding.cache)
    rows, there = _rows(stored.keys, keys)
    made = int((~there).sum())
    if made:
        report(0.92, f"placing {made:,} images on the map")
        fresh = stored.place(embedding.features[~there])
        stored = replace(stored, keys=np.append(stored.keys, keys[~there]), xy=np.concatenate([stored.xy, fresh]))
        rows, there = _rows(stored.keys, keys)
        if not ledger.read_only:
            write_map(map_file(ledger, method, stored.backbone), stored)
    report(1.0, f"the map of {count:,} images is drawn")
    note = "" if method == UMAP or find_spec("umap") else BETTER
    return Projection(embedding.ids, stored.xy[rows], method, stored.backbone, made, note)


def check_method(method: str) -> None:
    """Reject an unknown method, and UMAP where it is not installed."""
    if method not in METHODS:
        raise BadInput(f"no map is drawn by {method!r}; use {', '.join(map(repr, METHODS))}")
    if method == UMAP and find_spec("umap") is None:
        raise BadInput(f"UMAP is not installed; {INSTALL}, or draw the map with 'pca'")


def _resolved(method: str, count: int) -> str:
    if method == UMAP and count < FEWEST:
        raise BadInput(f"UMAP needs at least {FEWEST} images, but there are {count}; draw the map with 'pca'")
    if method != AUTO:
        return method
    return UMAP if count >= FEWEST and find_spec("umap") else PCA


def part_of(report: Progress, start: float, end: float) -> Progress:
    """Reports the progress of one part of the work."""

    def reported(share: float, what: str) -> None:
        report(start + (end - start) * share, what)

    return reported


@dataclass(frozen=True, slots=True, eq=False)
class PointValues:
    """What the ledger knows of images.

    Attributes
    ----------
    classes: (n,) ids; 0 where nothing is decided, -1 for none of the classes.
    rounds: (n,) the last round that asked for it; 0 where none has.
    guesses: (n,) the class that the model of that round took it for; 0 without one.
    certainty: (n,) the probability of that class; 0 without one.
    """

    classes: IntArray
    rounds: IntArray
    guesses: IntArray
    certainty: NDArray[np.float32]


def point_values(ledger: Ledger, images: IntArray) -> PointValues:
    """Classes, rounds and guesses of images, whose ids ascend."""
    classes, rounds, guesses = (np.zeros(len(images), np.int64) for _ in range(3))
    certainty = np.zeros(len(images), np.float32)
    with ledger.reading():
        decided = ledger.read(
            "SELECT image_id, iif(outcome = 'other', -1, class_id) FROM verdict "
            "WHERE outcome IN ('settled', 'agreed', 'other')"
        )
        asked = ledger.read(
            "SELECT image_id, max(round_id), coalesce(predicted, 0), coalesce(confidence, 0) FROM round_image "
            "GROUP BY image_id"  # with max() the other columns are those of the row that has it
        )
    rows, there = _places(images, [row[0] for row in decided])
    classes[rows] = np.array([row[1] for row in decided], dtype=np.int64)[there]
    rows, there = _places(images, [row[0] for row in asked])
    for values, column in ((rounds, 1), (guesses, 2), (certainty, 3)):
        values[rows] = np.array([row[column] for row in asked], dtype=values.dtype)[there]
    return PointValues(classes, rounds, guesses, certainty)


def _places(images: IntArray, wanted: list[int]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Rows of those of the wanted ids that are among the images, and which of them are."""
    ids = np.array(wanted, dtype=np.int64)
    rows = np.searchsorted(images, ids)
    there = rows < len(images)
    there[there] = images[rows[there]] == ids[there]
    return rows[there], there


# -- fitting -----------------------------------------------------------------------------------------------------------


def fit_map(features: Features, method: str, *, seed: int = SEED, report: Progress = no_progress) -> FittedMap:
    """A map with nothing placed on it, fitted on at most 20,000 of the features (n, d).

    The extent of a PCA map is that of all features, so that all of them fit.
    """
    rng = np.random.default_rng(seed)
    sample = features
    if len(features) > SAMPLE:
        sample = features[np.sort(rng.choice(len(features), SAMPLE, replace=False))]
    report(0.0, f"finding the main directions of {len(sample):,} images")
    mean, components = principal_components(sample, 2 if method == PCA else WIDTH)
    nothing = np.zeros((0, 2), np.float32)
    keys = np.zeros(0, dtype="V16")
    one = np.ones((), np.float32)
    fitted = FittedMap(method, "", "", mean, components, nothing, nothing, mean[:0], one, keys, nothing)
    if method == UMAP:
        report(0.2, f"UMAP of {len(sample):,} images; takes a minute or two")
        reduced = ((sample - mean) @ components.T).astype(np.float32)
        fitted = replace(fitted, sample=reduced, sample_xy=umap_layout(reduced, seed))
    extent = fitted.raw(features) if method == PCA else fitted.sample_xy
    low, high = extent.min(axis=0), extent.max(axis=0)
    span = max(float((high - low).max()), 1e-30)  # one image, or equal ones: all in the middle
    return replace(fitted, middle=(low + high) / 2, span=np.asarray(span, np.float32))


def principal_components(features: Features, count: int) -> tuple[Features, Features]:
    """Mean (d,) and the first principal directions (k, d) of features (n, d); k is at most d.

    The largest entry of each direction is positive, so that equal features give equal maps.

    >>> mean, components = principal_components(np.array([[0, 0], [2, 0], [4, 0]], np.float32), 1)
    >>> mean.tolist(), components.tolist()
    ([2.0, 0.0], [[1.0, 0.0]])
    """
    exact = features.astype(np.float64)
    mean = exact.mean(axis=0)
    exact -= mean
    _, vectors = np.linalg.eigh(exact.T @ exact)  # (d, d), the values ascending
    components = vectors[:, ::-1][:, :count].T
    largest = np.take_along_axis(components, np.abs(components).argmax(axis=1)[:, None], axis=1)
    return mean.astype(np.float32), (components * np.where(largest < 0, -1, 1)).astype(np.float32)


def umap_layout(reduced: Features, seed: int) -> Points:
    """Where UMAP puts rows (m, k); it begins with the first two columns, and one seed gives one layout."""
    from umap import UMAP as Umap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of isolated points, and of what numba may change one day
        reducer = Umap(
            n_neighbors=min(NEIGHBOURS, len(reduced) - 1), init=reduced[:, :2], random_state=seed, n_jobs=1,
        )  # fmt: skip
        layout: Points = np.asarray(reducer.fit_transform(reduced), np.float32)
    return layout


def placed_between(rows: Features, sample: Features, sample_xy: Points) -> Points:
    """Rows (n, k) between their nearest rows of the sample (m, k), weighted by 1 / distance, (n, 2).

    >>> placed_between(np.float32([[1]]), np.float32([[0], [1], [9]]), np.float32([[0, 0], [1, 1], [9, 9]])).round(3)
    array([[1., 1.]], dtype=float32)
    """
    squares = np.einsum("ij,ij->i", sample, sample) - 2 * rows @ sample.T  # (n, m), without what a row has in common
    count = min(PLACED_BY, len(sample))
    nearest = np.argpartition(squares, count - 1, axis=1)[:, :count]
    apart = np.linalg.norm(sample[nearest] - rows[:, None], axis=2)  # (n, 5); exact also where it is nearly 0
    weights = 1 / np.maximum(apart, 1e-6 * apart.max(axis=1, keepdims=True) + 1e-12)
    placed = np.einsum("nk,nkc->nc", weights / weights.sum(axis=1, keepdims=True), sample_xy[nearest])
    return np.asarray(placed, np.float32)


# -- the file ----------------------------------------------------------------------------------------------------------

ARRAYS = ("mean", "components", "sample", "sample_xy", "middle", "span", "xy")


def map_file(ledger: Ledger, method: str, backbone: str) -> Path:
    """Where the map by a method from a backbone's features is stored."""
    short = re.sub(r"[^a-z0-9.]+", "-", Path(backbone).name.lower())[:40]
    return ledger.files / FOLDER / f"{method}-{short}-{hashlib.sha256(backbone.encode()).hexdigest()[:8]}.npz"


def write_map(path: Path, fitted: FittedMap) -> None:
    """Store a map, whole or not at all."""
    about = {"version": VERSION, "method": fitted.method, "backbone": fitted.backbone, "cache": fitted.cache}
    arrays = {name: getattr(fitted, name) for name in ARRAYS}
    arrays["keys"] = fitted.keys.view(np.uint8).reshape(-1, 16)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {path.parent} for the map: {error.strerror or error}") from error
    write_whole(path, buffer.getvalue())


def read_map(path: Path) -> FittedMap | None:
    """A stored map; None where it is missing, damaged or of another version."""
    try:
        content = read_regular(path)
        with np.load(io.BytesIO(content), allow_pickle=False) as file:  # a zip: its checksums show damage
            about = json.loads(file["about"].tobytes())
            if about["version"] != VERSION:
                return None
            keys = np.ascontiguousarray(file["keys"], np.uint8).reshape(-1, 16).view("V16").reshape(-1)
            arrays = {name: np.asarray(file[name], np.float32) for name in ARRAYS}
    except (FileNotFoundError, zipfile.BadZipFile, KeyError, ValueError, TypeError, EOFError):
        return None
    except OSError as error:  # the bytes may be fine: only bytes that were read can prove damage
        raise BadFile(f"cannot read the map in {path}: {error.strerror or error}; free it, or delete it") from error
    if len(keys) != len(arrays["xy"]):
        return None
    return FittedMap(about["method"], about["backbone"], about["cache"], keys=keys, **arrays)


def stored_projection(ledger: Ledger, method: str | None = None) -> Projection | None:
    """What is stored of the map, without computing anything; of several methods the one drawn last, None without one.

    `made` is the number of images that are not on it yet.
    """
    backbone = chosen_backbone(read_settings(ledger).backbone)
    paths = [map_file(ledger, one, backbone) for one in ((PCA, UMAP) if method is None else (method,))]
    found = sorted((stat.st_mtime_ns, stat.st_size, path) for path in paths if (stat := _stat(path)) is not None)
    images = tuple(ledger.read(_IMAGES)[0])
    for changed, size, path in reversed(found):
        state = (changed, size, images)
        kept = _placed.get(path)
        if kept is not None and kept[0] == state:
            return kept[1]
        fitted = read_map(path)
        if fitted is not None:
            ids, keys = _usable(ledger)
            rows, there = _rows(fitted.keys, keys)
            missing = int((~there).sum())
            placed = Projection(ids[there], fitted.xy[rows[there]], fitted.method, fitted.backbone, missing)
            _placed.clear()  # the page asks for one map, again and again
            _placed[path] = (state, placed)
            return placed
    return None


# What changes whenever an image is added, renamed, re-read, taken out or put back.
_IMAGES = (
    "SELECT count(*), max(id), total(mtime_ns), total(ctime_ns), total(bytes) FROM image "
    "WHERE sha256 IS NOT NULL AND trouble IS NULL AND duplicate_of IS NULL"
)
_placed: dict[Path, tuple[object, Projection]] = {}  # by the file of the map, with the state of the file and the images


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _usable(ledger: Ledger) -> tuple[IntArray, NDArray[np.void]]:
    """Ids, ascending, and checksums of the images that a map shows."""
    rows = ledger.read(
        "SELECT id, substr(sha256, 1, 32) FROM image WHERE sha256 IS NOT NULL AND trouble IS NULL "
        "AND duplicate_of IS NULL ORDER BY id"
    )
    keys = np.frombuffer(bytes.fromhex("".join([row[1] for row in rows])), dtype="V16")
    return np.array([row[0] for row in rows], dtype=np.int64), keys


def _keys_of(ledger: Ledger, ids: IntArray) -> NDArray[np.void]:
    """Checksums of images, (n,) of 16 bytes, in their order."""
    rows = ledger.read("SELECT id, substr(sha256, 1, 32) FROM image WHERE sha256 IS NOT NULL")
    known: dict[int, str] = {row[0]: row[1] for row in rows}
    return np.frombuffer(bytes.fromhex("".join([known[number] for number in ids.tolist()])), dtype="V16")


def _rows(known: NDArray[np.void], wanted: NDArray[np.void]) -> tuple[IntArray, NDArray[np.bool_]]:
    """Where the wanted checksums are among the known ones, and which of them are; the others have row 0."""
    places = {key: row for row, key in enumerate(known.tolist())}
    rows = np.array([places.get(key, -1) for key in wanted.tolist()], dtype=np.int64)
    return np.maximum(rows, 0), rows >= 0
