"""Any folder of images as a pool: class folders, train/ and test/ with class folders, or a CSV with paths and labels.

Every file is checked on loading; what cannot be used is reported with its reason and left out. Nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import BadFile, BadInput
from ..types import IntArray, Progress, unheard
from .decode import fault
from .images import BadImage, LabelledImages, Pool
from .listing import Entry, Listing, list_images
from .longtail import keep_counts
from .registry import POOLS
from .tree import BLOCK, Files, in_threads, open_below

Verify = Literal["header", "decode"]
MOST_SIZE = 4096


@POOLS.register("folder")
def folder(
    path: Path | None = None, *, size: int = 64, test_share: float = 0.2, seed: int = 0, verify: Verify = "header",
    report: Progress = unheard,
) -> Pool:  # fmt: skip
    """A folder of images, each the largest centred square scaled to `size`; without a given split, a stratified one."""
    if path is None:
        raise BadInput("the pool 'folder' needs a path: a folder of class folders, or a CSV with path,label")
    _check(size, test_share, verify)
    listing = list_images(path)
    entries, bad = usable(listing, decode=verify == "decode", report=report)
    images = _images(listing, entries, size)
    if listing.entries and listing.entries[0].split:
        tested: IntArray = np.flatnonzero([entry.split == "test" for entry in entries])
    else:
        wanted = test_counts(images.counts(), test_share)
        tested = keep_counts(images.labels, wanted, np.random.default_rng(seed))
    others = np.setdiff1d(np.arange(len(images)), tested)
    return Pool(path.resolve().stem, images.take(others), images.take(tested), (*listing.bad, *bad))


def test_counts(counts: IntArray, share: float) -> IntArray:
    """How many of each class to test on: the nearest to `share` that leaves one on both sides, where there are two.

    >>> test_counts(np.array([100, 2, 1, 0]), 0.2).tolist()
    [20, 1, 0, 0]
    """
    if not share:
        return np.zeros_like(counts)
    most = np.maximum(counts - 1, 0)
    near = np.floor(share * counts + 0.5).astype(np.int64)
    tested: IntArray = np.minimum(np.maximum(near, 1), most)
    return tested


def usable(listing: Listing, *, decode: bool, report: Progress = unheard) -> tuple[list[Entry], list[BadImage]]:
    """Open every image, on all cores; those that can be used, and the others with the reasons."""

    def look(entry: Entry) -> str | None:
        try:
            with open_below(listing.root, entry.name) as file:
                return fault(file, decode=decode)
        except BadFile as error:
            return str(error)

    good, bad = [], []
    for number, reason in enumerate(in_threads(look, listing.entries)):
        if number % BLOCK == 0:
            report(number / len(listing.entries), f"checking {len(listing.entries):,} images")
        entry = listing.entries[number]
        if reason is None:
            good.append(entry)
        else:
            bad.append(BadImage(str(listing.root / entry.name), reason))
    _check_some_left(listing, good, bad)
    return good, bad


def _images(listing: Listing, entries: list[Entry], size: int) -> LabelledImages:
    numbers = {name: number for number, name in enumerate(listing.class_names)}
    labels = np.array([numbers[entry.label] for entry in entries], dtype=np.int64)
    files = Files(listing.root, tuple(entry.name for entry in entries), size)
    return LabelledImages(files, labels, listing.class_names)


def _check_some_left(listing: Listing, good: list[Entry], bad: list[BadImage]) -> None:
    if not good:
        faults = [*bad, *listing.bad]
        first = f"; the first of {len(faults)} faults: {faults[0].path}: {faults[0].reason}" if faults else ""
        raise BadFile(f"{listing.root} holds no usable image; put them into one folder per class{first}")


def _check(size: int, test_share: float, verify: str) -> None:
    if not 1 <= size <= MOST_SIZE:
        raise BadInput(f"size is {size}; it must lie between 1 and {MOST_SIZE} pixels")
    if not 0 <= test_share < 1:
        raise BadInput(f"test_share is {test_share:g}; it must lie in [0, 1)")
    if verify not in ("header", "decode"):
        raise BadInput(f"verify is {verify!r}; it must be 'header' or 'decode'")
