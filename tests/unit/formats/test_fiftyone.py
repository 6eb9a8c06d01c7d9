from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import Pictures

FIFTYONE = FORMATS["fiftyone"]


def dataset(root: Path, classes: list[str] | None, labels: dict[str, object]) -> Path:
    root.mkdir(exist_ok=True)
    (root / "labels.json").write_text(json.dumps({"classes": classes, "labels": labels}), encoding="utf-8")
    return root


def test_a_dataset_as_fiftyone_exports_it_is_read(pictures: Pictures) -> None:
    pictures.add("data/000001.png", 1)
    pictures.add("data/sub/000002.jpeg", 2)
    pictures.add("data/000003.png", 3)
    labels = {"000001": 1, "sub/000002": 0, "000003": None}
    root = dataset(pictures.root, ["sunflower", "daisy", "no image"], labels)
    assert guess_format(root) == guess_format(root / "labels.json") == "fiftyone"
    loaded = FIFTYONE.read(root, ())
    assert [(record.path, record.label) for record in loaded.records] == [
        ("000001.png", "daisy"),
        ("sub/000002.jpeg", "sunflower"),
        ("000003.png", None),
    ]
    assert loaded.classes == ("sunflower", "daisy", "no image")
    assert all(pictures.hashed(Record(f"data/{r.path}", None)).sha256 == r.sha256 for r in loaded.records)


def test_labels_with_confidence_names_and_lists_are_read(tmp_path: Path) -> None:
    labels = {"a": {"label": "cat", "confidence": 0.9, "attributes": {}}, "b": ["dog"], "c": "cat", "d": []}
    root = dataset(tmp_path / "set", None, labels)
    loaded = FIFTYONE.read(root / "labels.json", ())
    assert [(r.path, r.label) for r in loaded.records] == [("a", "cat"), ("b", "dog"), ("c", "cat"), ("d", None)]
    assert loaded.classes == ("cat", "dog")


def test_images_left_in_place_are_found_by_the_manifest(tmp_path: Path) -> None:
    root = dataset(tmp_path / "set", ["cat"], {"a": 0})
    (root / "data.json").write_text(json.dumps({"a": "/photos/a.jpg"}), encoding="utf-8")
    assert FIFTYONE.read(root, ()).records == [Record("/photos/a.jpg", "cat")]


def test_numbers_without_classes_are_those_of_the_known_classes(tmp_path: Path) -> None:
    root = dataset(tmp_path / "set", None, {"a": 1})
    assert FIFTYONE.read(root, ("cat", "dog")).records == [Record("a", "dog")]


def test_what_has_no_single_class_is_told(tmp_path: Path) -> None:
    root = dataset(tmp_path / "set", ["cat"], {"a": [0, 0], "b": 1, "c": True, "d": 0})
    loaded = FIFTYONE.read(root, ())
    assert loaded.records == [Record("d", "cat")]
    assert loaded.problems == [
        "a: 2 labels, but an image has one class here",
        "b: the label is 1, but there are 1 classes",
        "c: the label is True, but there are 1 classes",
    ]


@pytest.mark.parametrize("content", ["[]", '{"labels": []}', '{"classes": 3, "labels": {}}', "7"])
def test_other_json_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match="not as FiftyOne writes it"):
        FIFTYONE.read(tmp_path, ())


def test_a_class_tree_is_read_too(pictures: Pictures) -> None:
    pictures.add("daisy/1.png", 1)
    pictures.add("_unlabeled/2.png", 2)
    assert [(r.path, r.label) for r in FIFTYONE.read(pictures.root, ()).records] == [
        ("2.png", None),
        ("1.png", "daisy"),
    ]


def test_an_export_has_numbers_of_classes_names_without_endings_and_predictions(
    pictures: Pictures, tmp_path: Path
) -> None:
    pictures.add("a/1.png", 1)
    pictures.add("b/1.jpg", 2)  # the same name but for the ending: FiftyOne could not tell them apart
    records = [
        Record("a/1.png", "cat", proba={"dog": 0.75, "cat": 0.25}),
        Record("b/1.jpg", None),
    ]
    out = FIFTYONE.write(records, tmp_path / "out", pictures.source, ("dog", "cat"))
    assert json.loads((out / "labels.json").read_text(encoding="utf-8")) == {
        "classes": ["dog", "cat"],
        "labels": {"1": 1, "1-2": None},
    }
    assert json.loads((out / "predictions.json").read_text(encoding="utf-8"))["labels"] == {
        "1": {"label": 0, "confidence": 0.75}
    }
    assert sorted(path.name for path in (out / "data").iterdir()) == ["1-2.jpg", "1.png"]


def test_a_label_changed_in_the_export_counts_and_nobody_has_signed_it(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("a/1.png", 1)
    record = pictures.hashed(Record("a/1.png", "cat", annotator="ann", at=5))
    out = FIFTYONE.write([record], tmp_path / "out", pictures.source, ("dog", "cat"))
    dataset(out, ["dog", "cat"], {"1": 0})
    assert FIFTYONE.read(out, ()).records == [Record("a/1.png", "dog", sha256=record.sha256)]
