"""Tiny ImageNet as it is handed out: 64×64 JPEGs in 200 classes, decoded when asked for, from the folder or the .zip.

The test set is the official validation set; classes are numbered in the order of their WordNet ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from ..errors import BadFile
from .download import cache_folder
from .folder import Files, names_below, open_below
from .pool import POOLS, LabelledImages, Pool

FOLDER = "tiny-imagenet-200"
URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
SIDE = 64


@POOLS.register("tiny-imagenet")
def tiny_imagenet(path: Path | None = None) -> Pool:
    """Tiny ImageNet: 100,000 training and 10,000 test images in 200 classes."""
    root = _find(cache_folder() if path is None else path)
    names = names_below(root)
    top = _top(root, names)
    ids = sorted(set(_text(root, top + "wnids.txt").split()))
    class_names = readable_names(ids, _table(root, top + "words.txt"))
    train = _images(root, _train(names, top, ids, root), ids, class_names)
    annotations = _table(root, top + "val/val_annotations.txt")
    test = _images(root, _test(annotations, top, set(names), root), ids, class_names)
    return Pool("tiny-imagenet", train, test)


def readable_names(ids: list[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """The first name of each id; the id itself where it has none, and behind a name that two ids share.

    >>> readable_names(["n1", "n2", "n3"], {"n1": "crane, bird", "n2": "crane", "n3": "goldfish, Carassius auratus"})
    ('crane (n1)', 'crane (n2)', 'goldfish')
    """
    first = [words.get(wnid, wnid).split(",")[0].strip() for wnid in ids]
    shared = {name for name, times in Counter(first).items() if times > 1}
    return tuple(f"{name} ({wnid})" if name in shared else name for name, wnid in zip(first, ids, strict=True))


def _find(root: Path) -> Path:
    """The official folder or the .zip, at the path or in it."""
    for place in (root, root / FOLDER):
        if (place / "wnids.txt").is_file():
            return place
    for place in (root, root / f"{FOLDER}.zip"):
        if place.is_file():
            return place
    raise BadFile(f"no Tiny ImageNet at {root}: neither {FOLDER}/ nor {FOLDER}.zip is there; get it from {URL}")


def _top(root: Path, names: Iterable[str]) -> str:
    """What stands before each name: nothing in the folder, the folder in the .zip."""
    for name in names:
        if name.split("/")[-1] == "wnids.txt" and not name.startswith("__MACOSX"):
            return name.removesuffix("wnids.txt")
    raise BadFile(f"{root} holds no wnids.txt; get Tiny ImageNet from {URL}")


def _train(names: Iterable[str], top: str, ids: list[str], root: Path) -> dict[str, str]:
    """Name → id of the training images, which must be equally many of each class: else some did not arrive."""
    images = {}
    for name in names:
        match name.removeprefix(top).split("/"):
            case ["train", wnid, "images", file] if name.startswith(top) and file.upper().endswith(".JPEG"):
                images[name] = wnid
    counts = Counter(dict.fromkeys(ids, 0))
    counts.update(images.values())
    fewest, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[fewest] != counts[most] or not images:
        raise BadFile(
            f"{root} has {counts[fewest]} training images of {fewest}, but {counts[most]} of {most}; unpack it again"
        )
    return images


def _test(annotations: Mapping[str, str], top: str, names: set[str], root: Path) -> dict[str, str]:
    images = {f"{top}val/images/{file}": rest.split("\t")[0] for file, rest in annotations.items()}
    missing = sorted(set(images) - names)
    if missing:
        raise BadFile(f"{root / missing[0]} is missing (and {len(missing) - 1} more); unpack it again")
    return images


def _images(root: Path, half: Mapping[str, str], ids: list[str], class_names: tuple[str, ...]) -> LabelledImages:
    numbers = {wnid: number for number, wnid in enumerate(ids)}
    unknown = sorted(set(half.values()) - set(ids))
    if unknown:
        raise BadFile(f"{root} has images of {unknown[0]}, which its wnids.txt does not name")
    labels = np.array([numbers[wnid] for wnid in half.values()], dtype=np.int64)
    return LabelledImages(Files(root, tuple(half), SIDE), labels, class_names)


def _text(root: Path, name: str) -> str:
    with open_below(root, name) as file:
        return file.read().decode("utf-8", "replace")


def _table(root: Path, name: str) -> dict[str, str]:
    """First column → the others, of a table with tabs."""
    lines = (line.partition("\t") for line in _text(root, name).splitlines())
    return {key.strip(): rest for key, tab, rest in lines if tab}
