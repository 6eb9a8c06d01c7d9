"""Public data sets: CIFAR-10, CIFAR-100 and Tiny ImageNet (PAPER §7), MNIST and Fashion-MNIST, and small digits.

A path is the folder, its parent or the archive, which is read in place; without one, the user's cache is searched.
Images are uint8 (N, height, width, 3) in the official order. Tiny ImageNet is tested on its validation set; its classes
follow their WordNet ids. The digits of scikit-learn are 1,797 images of 8×8, without a download.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile
from ..files import open_regular
from ..types import IntArray, Progress, no_progress
from .download import Limits, Source, cache_folder, fetch, open_members
from .folder import Files, names_below, open_below
from .pool import POOLS, InputArray, Inputs, LabelledImages, Pool, array_digest, keep_counts

SIDE = 32
PIXELS = 3 * SIDE * SIDE
NAMES_BYTES = 1 << 16
TINY_FOLDER = "tiny-imagenet-200"
TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
TINY_SIDE = 64


# CIFAR-10 and CIFAR-100.


@dataclass(frozen=True, slots=True)
class Layout:
    """How a CIFAR is laid out: files of records, each some label bytes and then the red, green and blue planes."""

    name: str
    source: Source
    train: tuple[str, ...]
    test: str
    names: str
    labels: tuple[int, ...]  # how many values each label byte may have; the last is the class
    train_records: int  # per file
    test_records: int

    def bytes_of(self, file: str) -> int:
        """The size that a file must have, or, for the names, may have at most."""
        if file == self.names:
            return NAMES_BYTES
        records = self.test_records if file == self.test else self.train_records
        return records * (len(self.labels) + PIXELS)


CIFAR10 = Layout(
    name="cifar10",
    source=Source(
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "md5:c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-batches-bin", Limits(bytes=400_000_000, members=50),
    ),
    train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    test="test_batch.bin",
    names="batches.meta.txt",
    labels=(10,),
    train_records=10_000,
    test_records=10_000,
)  # fmt: skip
CIFAR100 = Layout(
    name="cifar100",
    source=Source(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "md5:03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-binary", Limits(bytes=400_000_000, members=50),
    ),
    train=("train.bin",),
    test="test.bin",
    names="fine_label_names.txt",
    labels=(20, 100),
    train_records=50_000,
    test_records=10_000,
)  # fmt: skip


@POOLS.register("cifar10")
def cifar10(path: Path | None = None, *, download: bool = False, report: Progress = no_progress) -> Pool:
    """CIFAR-10: 50,000 training and 10,000 test images in 10 classes."""
    return read_cifar(CIFAR10, find_cifar(CIFAR10, path, download=download, report=report))


@POOLS.register("cifar100")
def cifar100(path: Path | None = None, *, download: bool = False, report: Progress = no_progress) -> Pool:
    """CIFAR-100: 50,000 training and 10,000 test images in 100 (fine) classes."""
    return read_cifar(CIFAR100, find_cifar(CIFAR100, path, download=download, report=report))


def find_cifar(layout: Layout, path: Path | None, *, download: bool = False, report: Progress = no_progress) -> Path:
    """The folder with the files, or the archive; fetched where it is missing and may be."""
    root = cache_folder() if path is None else path
    if root.is_file():
        return root
    for folder in (root, root / layout.source.folder):
        if (folder / layout.test).exists():
            return folder
    archive = root / layout.source.url.rpartition("/")[2]
    if archive.is_file():
        return archive
    if download:
        return fetch(layout.source, root, report)
    raise BadFile(
        f"no {layout.name} at {root}: neither {layout.source.folder}/ nor {archive.name} is there; "
        f"pass download=True, or put there what {layout.source.url} gives"
    )


def read_cifar(layout: Layout, path: Path) -> Pool:
    """Read every file once, each into its place."""
    train, test = (_Half.empty(files, layout) for files in (layout.train, (layout.test,)))
    names: tuple[str, ...] = ()
    for file, content in _contents(layout, path):
        if file == layout.names:
            names = _names(content, layout.labels[-1], path, file)
            continue
        half = test if file == layout.test else train
        half.place(file, _records(content, layout, path, file))
    trained, tested = (LabelledImages(half.pixels, half.labels, names) for half in (train, test))
    return Pool(layout.name, trained, tested)


@dataclass(frozen=True, slots=True, eq=False)
class _Half:
    """The training or the test set while it is being read."""

    files: tuple[str, ...]
    pixels: NDArray[np.uint8]  # (N, 32, 32, 3)
    labels: IntArray  # (N,)

    @classmethod
    def empty(cls, files: tuple[str, ...], layout: Layout) -> _Half:
        number = layout.test_records if files == (layout.test,) else layout.train_records * len(files)
        return cls(files, np.empty((number, SIDE, SIDE, 3), np.uint8), np.empty(number, np.int64))

    def place(self, file: str, records: NDArray[np.uint8]) -> None:
        at = self.files.index(file) * len(records)
        where = slice(at, at + len(records))
        planes = records[:, -PIXELS:].reshape(-1, 3, SIDE, SIDE)
        self.pixels[where] = planes.transpose(0, 2, 3, 1)  # the one copy
        self.labels[where] = records[:, -PIXELS - 1]


def _contents(layout: Layout, path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file that is needed, from a folder or an archive; a missing one is an error."""
    wanted = {*layout.train, layout.test, layout.names}
    for file, content in (_from_archive if path.is_file() else _from_folder)(layout, path, wanted):
        wanted.remove(file)
        yield file, content
    if wanted:
        raise BadFile(f"{path} has no {min(wanted)}; it must hold the {layout.name} files of {layout.source.url}")


def _from_folder(layout: Layout, folder: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    for file in sorted(wanted):
        if (folder / file).exists():
            try:
                with open_regular(folder / file) as stream:
                    yield file, stream.read(layout.bytes_of(file) + 1)  # one more shows that it is too long
            except OSError as error:
                raise BadFile(f"cannot read {folder / file}: {error.strerror}") from error


def _from_archive(layout: Layout, archive: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    with open_members(archive, layout.source.limits) as members:
        for member in members:
            file = PurePosixPath(member.name).name
            if file in wanted and not member.is_folder:
                with member.open() as stream:
                    yield file, stream.read(layout.bytes_of(file) + 1)


def _records(content: bytes, layout: Layout, path: Path, file: str) -> NDArray[np.uint8]:
    """The records of a file, (n, record), with labels in their range."""
    if len(content) != layout.bytes_of(file):
        relation = "more" if len(content) > layout.bytes_of(file) else f"{len(content):,}"
        raise BadFile(f"{path / file} must have {layout.bytes_of(file):,} bytes, but has {relation}; fetch it again")
    records = np.frombuffer(content, np.uint8).reshape(-1, len(layout.labels) + PIXELS)
    for place, values in enumerate(layout.labels):
        bad = np.flatnonzero(records[:, place] >= values)
        if len(bad):
            label = records[bad[0], place]
            raise BadFile(f"{path / file} gives image {bad[0]} the label {label}, but labels end at {values - 1}")
    return records


def _names(content: bytes, classes: int, path: Path, file: str) -> tuple[str, ...]:
    names = tuple(content.decode("utf-8", "replace").split())
    if len(names) != classes or len(set(names)) != classes:
        raise BadFile(f"{path / file} must name {classes} classes, but has {len(set(names))} different names")
    return names


# Tiny ImageNet.


@POOLS.register("tiny-imagenet")
def tiny_imagenet(path: Path | None = None) -> Pool:
    """Tiny ImageNet: 100,000 training and 10,000 test images in 200 classes."""
    root = _find_tiny(cache_folder() if path is None else path)
    names = names_below(root)
    top = _top(root, names)
    ids = sorted(set(_text(root, top + "wnids.txt").split()))
    class_names = readable_names(ids, _table(root, top + "words.txt"))
    train = _tiny_images(root, _tiny_train(names, top, ids, root), ids, class_names)
    annotations = _table(root, top + "val/val_annotations.txt")
    test = _tiny_images(root, _tiny_test(annotations, top, set(names), root), ids, class_names)
    return Pool("tiny-imagenet", train, test)


def readable_names(ids: list[str], words: Mapping[str, str]) -> tuple[str, ...]:
    """The first name of each id; the id itself where it has none, and behind a name that two ids share.

    >>> readable_names(["n1", "n2", "n3"], {"n1": "crane, bird", "n2": "crane", "n3": "goldfish, Carassius auratus"})
    ('crane (n1)', 'crane (n2)', 'goldfish')
    """
    first = [words.get(wnid, wnid).split(",")[0].strip() for wnid in ids]
    shared = {name for name, times in Counter(first).items() if times > 1}
    return tuple(f"{name} ({wnid})" if name in shared else name for name, wnid in zip(first, ids, strict=True))


def _find_tiny(root: Path) -> Path:
    """The official folder or the .zip, at the path or in it."""
    for place in (root, root / TINY_FOLDER):
        if (place / "wnids.txt").is_file():
            return place
    for place in (root, root / f"{TINY_FOLDER}.zip"):
        if place.is_file():
            return place
    raise BadFile(
        f"no Tiny ImageNet at {root}: neither {TINY_FOLDER}/ nor {TINY_FOLDER}.zip is there; get it from {TINY_URL}"
    )


def _top(root: Path, names: Iterable[str]) -> str:
    """What stands before each name: nothing in the folder, the folder in the .zip."""
    for name in names:
        if name.split("/")[-1] == "wnids.txt" and not name.startswith("__MACOSX"):
            return name.removesuffix("wnids.txt")
    raise BadFile(f"{root} holds no wnids.txt; get Tiny ImageNet from {TINY_URL}")


def _tiny_train(names: Iterable[str], top: str, ids: list[str], root: Path) -> dict[str, str]:
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


def _tiny_test(annotations: Mapping[str, str], top: str, names: set[str], root: Path) -> dict[str, str]:
    images = {f"{top}val/images/{file}": rest.split("\t")[0] for file, rest in annotations.items()}
    missing = sorted(set(images) - names)
    if missing:
        raise BadFile(f"{root / missing[0]} is missing (and {len(missing) - 1} more); unpack it again")
    return images


def _tiny_images(root: Path, half: Mapping[str, str], ids: list[str], class_names: tuple[str, ...]) -> LabelledImages:
    numbers = {wnid: number for number, wnid in enumerate(ids)}
    unknown = sorted(set(half.values()) - set(ids))
    if unknown:
        raise BadFile(f"{root} has images of {unknown[0]}, which its wnids.txt does not name")
    labels = np.array([numbers[wnid] for wnid in half.values()], dtype=np.int64)
    return LabelledImages(Files(root, tuple(half), TINY_SIDE), labels, class_names)


def _text(root: Path, name: str) -> str:
    with open_below(root, name) as file:
        return file.read().decode("utf-8", "replace")


def _table(root: Path, name: str) -> dict[str, str]:
    """First column → the others, of a table with tabs."""
    lines = (line.partition("\t") for line in _text(root, name).splitlines())
    return {key.strip(): rest for key, tab, rest in lines if tab}


# -- MNIST from IDX files, and the digits of scikit-learn ------------------------------------------------------------


DIGITS = tuple(str(digit) for digit in range(10))
CLOTHES = (
    "T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
UNSIGNED_BYTES = 0x08
MOST_BYTES = 1 << 30
BRIGHTEST = 16.0  # of a pixel of the digits
TEST_PER_CLASS = 40
SPLIT_SEED = 0  # which digits are tested on is part of the data set, not of an experiment


@dataclass(frozen=True, slots=True, eq=False)
class Grey(Inputs):
    """Grey pixels, given with three equal channels when asked for: what nets take, at a third of the memory."""

    pixels: NDArray[np.uint8]  # (N, height, width)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, height, width, 3)."""
        return (*self.pixels.shape, 3)

    def __getitem__(self, indices: IntArray, /) -> InputArray:
        return np.repeat(self.pixels[indices][..., None], 3, axis=-1)

    def digest(self, rows: IntArray) -> bytes:
        """Of the one channel."""
        return array_digest(self.pixels[rows])


@POOLS.register("mnist")
def mnist(path: Path | None = None) -> Pool:
    """MNIST: 60,000 training and 10,000 test digits."""
    return _read("mnist", path, DIGITS)


@POOLS.register("fashion-mnist")
def fashion_mnist(path: Path | None = None) -> Pool:
    """Fashion-MNIST: 60,000 training and 10,000 test pieces of clothing in 10 classes."""
    return _read("fashion-mnist", path, CLOTHES)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array of an IDX file of unsigned bytes, which must be neither shorter nor longer than it says."""
    try:
        with open_regular(path) as packed, gzip.open(packed) if path.suffix == ".gz" else packed as file:
            magic, header = file.read(4), file.read(4 * dimensions)
            shape = tuple(int(size) for size in np.frombuffer(header, ">u4")) if len(header) % 4 == 0 else ()
            if magic != bytes((0, 0, UNSIGNED_BYTES, dimensions)) or len(shape) != dimensions:
                raise BadFile(f"{path} is not an IDX file of bytes in {dimensions} dimensions")
            if prod(shape) > MOST_BYTES:
                raise BadFile(f"{path} claims the shape {shape}, more than the {MOST_BYTES:,} bytes allowed")
            content = file.read(prod(shape) + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadFile(f"cannot read {path}: {error}") from error
    if len(content) != prod(shape):
        relation = "more" if len(content) > prod(shape) else f"{len(content):,}"
        raise BadFile(f"{path} should hold {prod(shape):,} bytes after its header, but holds {relation}; get it again")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _read(name: str, path: Path | None, class_names: tuple[str, ...]) -> Pool:
    folder = cache_folder() / name if path is None else path
    train, test = (_half(folder, prefix, name, class_names) for prefix in ("train", "t10k"))
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        raise BadFile(f"{folder} has training images {train.inputs.shape[1:]}, but test images {test.inputs.shape[1:]}")
    return Pool(name, train, test)


def _half(folder: Path, prefix: str, name: str, class_names: tuple[str, ...]) -> LabelledImages:
    pixels = read_idx(_find(folder, prefix, "images-idx3-ubyte", name), 3)
    place = _find(folder, prefix, "labels-idx1-ubyte", name)
    labels = read_idx(place, 1)
    if len(labels) != len(pixels):
        raise BadFile(f"{place} has {len(labels):,} labels for {len(pixels):,} images")
    if len(labels) and labels.max() >= len(class_names):
        raise BadFile(f"{place} holds the label {labels.max()}, but labels end at {len(class_names) - 1}")
    return LabelledImages(Grey(pixels), labels.astype(np.int64), class_names)


def _find(folder: Path, prefix: str, rest: str, name: str) -> Path:
    """One of the four files; some mirrors write a dot for the second hyphen, and unpackers drop the .gz."""
    official = f"{prefix}-{rest}"
    for file in (official, official.replace("-idx", ".idx")):
        for place in (folder / file, folder / f"{file}.gz"):
            if place.is_file():
                return place
    raise BadFile(f"no {name} at {folder}: {official} or {official}.gz is missing; put the four IDX files there")


# The digits of scikit-learn.


def load_digits() -> LabelledImages:
    """All 1,797 digits, flat float32 features in [0, 1].

    >>> digits = load_digits()
    >>> digits.inputs.shape, digits.counts().tolist()
    ((1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    """
    found = find_spec("sklearn")
    file = Path(found.origin if found and found.origin else "").parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():  # its import takes 0.7 s, in each process of an experiment
        table = np.loadtxt(file, delimiter=",")
        features, labels = table[:, :-1], table[:, -1]
    else:
        from sklearn.datasets import load_digits as bundled

        features, labels = bundled(return_X_y=True)
    return LabelledImages((features / BRIGHTEST).astype(np.float32), labels.astype(np.int64), DIGITS)


@POOLS.register("digits")
def digits(path: Path | None = None) -> Pool:  # noqa: ARG001 - needs no files
    """The digits, 40 of each for the test."""
    images = load_digits()
    wanted = np.full(images.classes, TEST_PER_CLASS)
    tested = keep_counts(images.labels, wanted, np.random.default_rng(SPLIT_SEED))
    others: IntArray = np.setdiff1d(np.arange(len(images)), tested)
    return Pool("digits", images.take(others), images.take(tested))
