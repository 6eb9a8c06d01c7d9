from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import Pictures

COCO, DATUMARO = FORMATS["coco"], FORMATS["datumaro"]
CATEGORIES = [{"id": 7, "name": "zebra"}, {"id": 3, "name": "cat"}, {"id": 9, "name": "unseen"}]


def coco(path: Path, images: list[str], notes: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    listed = [{"id": number, "file_name": name} for number, name in enumerate(images)]
    content = {"images": listed, "annotations": notes, "categories": CATEGORIES}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_categories_of_images_are_their_labels_and_images_are_found_in_the_folder_of_their_split(
    pictures: Pictures,
) -> None:
    pictures.add("train2017/1.png", 1)
    pictures.add("val/1.png", 2)
    coco(pictures.root / "annotations" / "labels_train.json", ["1.png"], [{"image_id": 0, "category_id": 7}])
    coco(pictures.root / "annotations" / "labels_val.json", ["1.png"], [{"image_id": 0, "category_id": 3}])
    coco(pictures.root / "annotations" / "image_info_val.json", ["1.png", "gone.png"], [])
    assert guess_format(pictures.root) == "coco"
    loaded = COCO.read(pictures.root, ())
    second = pictures.hashed(Record("val/1.png", None)).sha256
    assert set(loaded.records) == {
        Record("1.png", "zebra", split="train"),  # two images of this name, and no folder of this split
        Record("1.png", "cat", split="val", sha256=second),
        Record("gone.png", None, split="val"),
    }
    assert loaded.classes == ("zebra", "cat", "unseen")


def test_camera_traps_in_one_json_file_are_read(tmp_path: Path) -> None:
    file = coco(tmp_path / "traps.json", ["site1/1.jpg", "site2/1.jpg"], [{"image_id": 1, "category_id": 3}])
    assert guess_format(file) == "coco"
    assert COCO.read(file, ()).records == [Record("site1/1.jpg", None), Record("site2/1.jpg", "cat")]


def test_boxes_of_one_class_label_the_image_with_a_note_and_several_classes_are_left_out(tmp_path: Path) -> None:
    box = {"bbox": [0, 0, 1, 1]}
    notes = [
        {"image_id": 0, "category_id": 3, **box},
        {"image_id": 0, "category_id": 3, "segmentation": [[0, 0, 1, 1]]},
        {"image_id": 1, "category_id": 3, **box},
        {"image_id": 1, "category_id": 7, **box},
        {"image_id": 2, "category_id": 7},
        {"image_id": 2, "category_id": 3, **box},  # the class of the whole image goes first
    ]
    loaded = COCO.read(coco(tmp_path / "boxes.json", ["1.jpg", "2.jpg", "3.jpg"], notes), ())
    assert loaded.records == [Record("1.jpg", "cat"), Record("3.jpg", "zebra")]
    assert loaded.problems == [
        "2.jpg: 2 classes (cat, zebra), but an image has one class here",
        "1 images have boxes or outlines of one class: it was taken for the whole image",
    ]


def test_a_datumaro_folder_is_read_with_splits_and_unlabelled_images(pictures: Pictures) -> None:
    pictures.add("images/train/a.png", 1)
    label = {"id": 0, "type": "label", "label_id": 1, "attributes": {}, "group": 0}
    items = [
        {"id": "a", "annotations": [label], "image": {"path": "a.png"}},
        {"id": "b", "annotations": [{**label, "type": "bbox", "bbox": [0, 0, 1, 1]}, {**label, "type": "caption"}]},
        {"id": "c", "annotations": [], "image": {"path": "c.png"}},
    ]
    names = {"label": {"labels": [{"name": "zebra"}, {"name": "cat"}]}}
    (pictures.root / "annotations").mkdir()
    place = pictures.root / "annotations" / "train.json"
    place.write_text(json.dumps({"categories": names, "items": items}), encoding="utf-8")
    loaded = DATUMARO.read(pictures.root, ())
    known = pictures.hashed(Record("images/train/a.png", None)).sha256
    assert loaded.records == [
        Record("a.png", "cat", split="train", sha256=known),
        Record("b", "cat", split="train"),
        Record("c.png", None, split="train"),
    ]
    assert loaded.classes == ("zebra", "cat")


@pytest.mark.parametrize("note", [{"image_id": 5, "category_id": 7}, {"image_id": 0, "category_id": 1}, 7])
def test_annotations_of_unknown_images_or_classes_are_an_error_of_ours(note: object, tmp_path: Path) -> None:
    file = coco(tmp_path / "odd.json", ["1.jpg"], [note])  # type: ignore[list-item]
    with pytest.raises(BadFile, match=r"odd\.json is not as coco writes it"):
        COCO.read(file, ())


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (("JPEGImages/1.jpg", "Annotations/1.xml", "ImageSets/Main/train.txt"), "Pascal VOC"),
        (("images/train/1.jpg", "labels/train/1.txt"), "YOLO"),
        (("images/1.jpg", "annotations/boxes.json"), "annotations/"),
    ],
)
def test_data_sets_of_objects_are_not_taken_for_class_folders(
    files: tuple[str, ...], kind: str, tmp_path: Path
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}", encoding="utf-8")
    with pytest.raises(BadFile, match=rf"objects in images \({kind}\), not class folders; convert it"):
        FORMATS[guess_format(tmp_path)].read(tmp_path, ())
