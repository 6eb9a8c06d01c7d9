"""Datumaro's and FiftyOne's own importers read what we write, and we read what they write: `make formats`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tailwise.formats import FORMATS, Record, guess_format

from .conftest import Pictures

CLASSES = ("zebra", "cat", "unseen")
MADE = [
    Record("a/1.png", "cat", split="train"),
    Record("a/2.png", "zebra", split="train"),
    Record("b/1.png", None, split="train"),
    Record("b/3.png", "cat", split="test"),
]


@pytest.fixture
def export(pictures: Pictures, tmp_path: Path) -> Callable[..., Path]:
    """Write MADE in a format, and give the place."""

    def write(name: str, *, split: bool = True) -> Path:
        for number, record in enumerate(MADE):
            pictures.add(record.path, number)
        kept = [record if split else Record(record.path, record.label) for record in MADE]
        out = tmp_path / f"{name}{FORMATS[name].suffix}"
        return FORMATS[name].write([pictures.hashed(one) for one in kept], out, pictures.source, CLASSES)

    return write


def by_color(pairs: list[tuple[int, str | None]]) -> dict[int, str | None]:
    """Label of each image by its first colour, which is its number in MADE."""
    assert len(pairs) == len({color for color, _ in pairs})
    return dict(pairs)


WANTED = {number: record.label for number, record in enumerate(MADE)}


# Datumaro.


@pytest.fixture
def datumaro() -> ModuleType:
    return pytest.importorskip("datumaro", reason="datumaro is not installed; `make formats` runs this test")


def datumaro_labels(dataset: Any) -> dict[int, str | None]:  # noqa: ANN401 - Datumaro may be absent
    names = [one.name for one in dataset.categories()[next(iter(dataset.categories()))].items]
    pairs = []
    for item in dataset:
        labels = [note.label for note in item.annotations if note.label is not None]
        assert len(labels) <= 1
        pairs.append((int(item.media.data[0, 0, 2]), names[labels[0]] if labels else None))  # blue, green, red
    return by_color(pairs)


@pytest.mark.parametrize(("name", "theirs"), [("datumaro", "datumaro"), ("coco", "coco_labels")])
def test_datumaro_reads_classes_in_order_splits_and_labels(
    name: str, theirs: str, datumaro: ModuleType, export: Callable[..., Path]
) -> None:
    dataset = datumaro.Dataset.import_from(str(export(name)), theirs)
    (categories,) = dataset.categories().values()
    assert [one.name for one in categories.items] == list(CLASSES)
    assert {subset: len(items) for subset, items in dataset.subsets().items()} == {"train": 3, "test": 1}
    assert datumaro_labels(dataset) == WANTED


def test_datumaro_reads_class_folders(datumaro: ModuleType, export: Callable[..., Path]) -> None:
    out = export("folders", split=False)
    (out / "_unlabelled").rename(out / "no_label")  # its name for this folder
    for file in ("classes.json", "records.csv"):  # it takes a folder with files for something else
        (out / file).unlink()
    assert datumaro_labels(datumaro.Dataset.import_from(str(out), "imagenet")) == WANTED


@pytest.mark.parametrize(
    ("theirs", "ours", "splits"),
    [
        ("datumaro", "datumaro", True),
        ("coco_labels", "coco", True),
        ("coco", "coco", True),
        ("imagenet", "cvat-imagenet", False),
        ("imagenet_with_subset_dirs", "folders", True),
        ("imagenet_txt", "cvat-imagenet", True),
    ],
)
def test_what_datumaro_writes_is_read(
    theirs: str, ours: str, splits: bool, datumaro: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    items = [
        datumaro.DatasetItem(
            id=f"picture {number}",
            subset=record.split,
            media=datumaro.Image.from_file(path=str(pictures.add(f"{number}.png", number))),
            annotations=[] if record.label is None else [datumaro.Label(CLASSES.index(record.label))],
        )
        for number, record in enumerate(MADE)
    ]
    out = tmp_path / "out"
    datumaro.Dataset.from_iterable(items, categories=list(CLASSES)).export(str(out), theirs, save_media=True)
    assert guess_format(out) == ours
    loaded = FORMATS[ours].read(out, ())
    known = {pictures.hashed(Record(f"{number}.png", None)).sha256: number for number in range(len(MADE))}
    known_names = {f"picture {number}.png": number for number in range(len(MADE))}
    numbers = [known[one.sha256] if one.sha256 else known_names[one.path] for one in loaded.records]
    assert by_color(list(zip(numbers, [one.label for one in loaded.records], strict=True))) == WANTED
    if splits:
        assert {known_names[one.path]: one.split for one in loaded.records} == {n: m.split for n, m in enumerate(MADE)}


# FiftyOne: its importers and exporters alone; its data sets need a database.


@pytest.fixture
def fiftyone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("FIFTYONE_DATABASE_DIR", str(tmp_path / "database"))
    pytest.importorskip("fiftyone", reason="FiftyOne is not installed; `make formats` runs this test")
    return pytest.importorskip("fiftyone.utils.data")


def fiftyone_labels(importer: Any) -> dict[int, str | None]:  # noqa: ANN401 - FiftyOne may be absent
    from PIL import Image

    pairs = []
    with importer:
        for path, _, label in importer:
            with Image.open(path) as image:
                named = label.get("ground_truth") if isinstance(label, dict) else label
                pairs.append((image.getpixel((0, 0))[0], named.label if named is not None else None))
    return by_color(pairs)


def test_fiftyone_reads_our_data_set_in_its_format(fiftyone: ModuleType, export: Callable[..., Path]) -> None:
    importer = fiftyone.FiftyOneImageClassificationDatasetImporter(dataset_dir=str(export("fiftyone")))
    assert fiftyone_labels(importer) == WANTED
    assert importer.get_dataset_info()["classes"] == list(CLASSES)


def test_fiftyone_reads_our_class_folders(fiftyone: ModuleType, export: Callable[..., Path]) -> None:
    out = export("folders", split=False)
    (out / "_unlabelled").rename(out / "_unlabeled")  # its spelling
    assert fiftyone_labels(fiftyone.ImageClassificationDirectoryTreeImporter(dataset_dir=str(out))) == WANTED


@pytest.mark.parametrize(
    ("exporter", "ours"),
    [
        ("FiftyOneImageClassificationDatasetExporter", "fiftyone"),
        ("ImageClassificationDirectoryTreeExporter", "folders"),
    ],
)
def test_what_fiftyone_writes_is_read(
    exporter: str, ours: str, fiftyone: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    from fiftyone.core.labels import Classification

    out = tmp_path / "out"
    settings = {"classes": list(CLASSES)} if ours == "fiftyone" else {}
    with getattr(fiftyone, exporter)(export_dir=str(out), **settings) as writer:
        for number, record in enumerate(MADE):
            label = None if record.label is None else Classification(label=record.label)
            writer.export_sample(str(pictures.add(f"{number}.png", number)), label)
    assert guess_format(out) == ours
    loaded = FORMATS[ours].read(out, ())
    known = {pictures.hashed(Record(f"{number}.png", None)).sha256: number for number in range(len(MADE))}
    assert by_color([(known[one.sha256], one.label) for one in loaded.records]) == WANTED
    if ours == "fiftyone":
        assert loaded.classes == CLASSES
