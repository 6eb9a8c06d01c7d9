"""What every registered format must do: keep all, lose nothing, touch nothing, refuse what is broken."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image

from tailwise.errors import BadFile, BadInput, TailwiseError
from tailwise.formats import FORMATS, Loaded, Record, Source, guess_format, label_format
from tailwise.formats.base import Sample

from .conftest import CLASSES, Pictures, in_order

MAIN_FILE = {  # what to cut in half, where the format writes a folder
    "folders": "records.csv",
    "huggingface": "train/metadata.jsonl",
    "label-studio": "tasks.json",
    "cvat-imagenet": "imagenet.zip",
    "fiftyone": "labels.json",
    "coco": "annotations/labels_train.json",
    "datumaro": "annotations/train.json",
}
COPYING = ("folders", "huggingface", "cvat-imagenet", "fiftyone", "coco", "datumaro")


def place(tmp_path: Path, name: str) -> Path:
    return tmp_path / f"export{FORMATS[name].suffix}"


@pytest.mark.parametrize("name", FORMATS)
def test_what_was_written_is_read_back_to_the_last_bit(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    before = pictures.snapshot()
    out = FORMATS[name].write(iter(records), place(tmp_path, name), pictures.source, CLASSES)
    shutil.move(pictures.root, tmp_path / "away")  # reading needs nothing but the export
    loaded = FORMATS[name].read(out, ())
    assert in_order(loaded.records) == in_order(records)
    assert loaded.classes == CLASSES
    assert loaded.problems == []
    shutil.move(tmp_path / "away", pictures.root)
    assert pictures.snapshot() == before


@pytest.mark.parametrize("name", FORMATS)
def test_splits_of_any_name_and_classes_with_the_names_of_splits_come_back(
    name: str, pictures: Pictures, tmp_path: Path
) -> None:
    made = [
        Record("1.png", "train", split="fold 1/2", annotator="ann"),
        Record("2.png", "test", split="synsets"),
        Record("3.png", "test", split=""),
        Record("4.png", "train", split="fold 1_2"),
    ]
    for number, record in enumerate(made):
        pictures.add(record.path, number)
    records = [pictures.hashed(record) for record in made]
    out = FORMATS[name].write(records, place(tmp_path, name), pictures.source, ("train", "test"))
    loaded = FORMATS[name].read(out, ())
    assert in_order(loaded.records) == in_order(records)
    assert (loaded.classes, loaded.problems) == (("train", "test"), [])


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_is_recognised(name: str, records: list[Record], pictures: Pictures, tmp_path: Path) -> None:
    out = FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)
    assert guess_format(out) == name


@pytest.mark.parametrize("name", FORMATS)
def test_no_record_and_one_class_are_enough(name: str, pictures: Pictures, tmp_path: Path) -> None:
    out = FORMATS[name].write([], place(tmp_path, name), pictures.source, ("only",))
    loaded = FORMATS[name].read(out, ())
    assert (loaded.records, loaded.problems, loaded.classes) == ([], [], ("only",))


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_replaces_an_earlier_one(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = place(tmp_path, name)
    FORMATS[name].write(records, out, pictures.source, CLASSES)
    FORMATS[name].write(records[:1], out, pictures.source, CLASSES)
    assert in_order(FORMATS[name].read(out, ()).records) == in_order(records[:1])
    kept = {out, pictures.root, *tmp_path.glob("*.classes.json")}
    assert set(tmp_path.iterdir()) == kept  # nothing half-written is left beside it


@pytest.mark.parametrize("name", FORMATS)
def test_what_no_export_has_written_is_not_replaced(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = place(tmp_path, name)
    mine = out if FORMATS[name].suffix else out / "mine.txt"
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("do not lose me", encoding="utf-8")
    with pytest.raises(BadFile, match=r"no export has written.*name a"):
        FORMATS[name].write(records, out, pictures.source, CLASSES)
    assert mine.read_text(encoding="utf-8") == "do not lose me"


@pytest.mark.parametrize("name", [name for name in FORMATS if not FORMATS[name].suffix])
def test_an_earlier_export_with_something_new_in_it_is_not_replaced(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(BadFile, match=r"notes\.txt .*were put there since"):
        FORMATS[name].write(records, out, pictures.source, CLASSES)
    assert (out / "notes.txt").exists()


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_place_is_taken(name: str, records: list[Record], pictures: Pictures, tmp_path: Path) -> None:
    out = place(tmp_path, name)
    if FORMATS[name].suffix:
        out.write_bytes(b"")
    else:
        out.mkdir()
    FORMATS[name].write(records[:1], out, pictures.source, CLASSES)
    assert len(FORMATS[name].read(out, ()).records) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_that_is_not_there_is_named(name: str, pictures: Pictures, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"there is no folder .*nowhere; make it first"):
        FORMATS[name].write([], tmp_path / "nowhere" / place(tmp_path, name).name, pictures.source, ())


@pytest.mark.parametrize("name", FORMATS)
def test_a_place_that_the_disk_refuses_is_an_error_of_ours(name: str, pictures: Pictures, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"cannot write .*name too long"):
        FORMATS[name].write([], tmp_path / ("x" * 300 + FORMATS[name].suffix), pictures.source, ())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_place_of_the_wrong_kind_is_refused(name: str, pictures: Pictures, tmp_path: Path) -> None:
    out = place(tmp_path, name)
    if FORMATS[name].suffix:
        out.mkdir()
    else:
        out.write_text("a file", encoding="utf-8")
    with pytest.raises(BadFile, match=r"there is a (folder|file) of that name"):
        FORMATS[name].write([], out, pictures.source, ())


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].suffix])
def test_a_file_of_the_wrong_ending_is_refused(name: str, pictures: Pictures, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"must end in {FORMATS[name].suffix}"):
        FORMATS[name].write([], tmp_path / "labels.doc", pictures.source, ())


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_was_cut_in_half_is_told(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)
    main = out / MAIN_FILE[name] if name in MAIN_FILE else out
    content = main.read_bytes()
    main.write_bytes(content[: len(content) // 2])
    with pytest.raises(BadFile, match="cut off"):
        FORMATS[name].read(out, ())


@pytest.mark.parametrize("name", FORMATS)
def test_something_else_altogether_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    wrong = place(tmp_path, name)
    wrong.write_bytes(bytes(range(256)))
    with pytest.raises(BadFile):
        FORMATS[name].read(wrong, ())
    with pytest.raises(BadFile):
        FORMATS[name].read(tmp_path / "nowhere.at.all", ())


@pytest.mark.parametrize("name", COPYING)
def test_an_image_that_is_gone_stops_the_export_and_leaves_nothing(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    pictures.source(records[-1]).unlink()
    with pytest.raises(BadFile, match=r"11\.png is gone"):
        FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)
    assert list(tmp_path.iterdir()) == [pictures.root]


@pytest.mark.parametrize("name", COPYING)
def test_an_image_that_has_changed_is_not_passed_off_as_the_labelled_one(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    pictures.add(records[0].path, 200)
    with pytest.raises(BadFile, match=r"1\.png has changed"):
        FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)


@pytest.mark.parametrize("name", ["folders", "huggingface", "fiftyone", "coco", "datumaro"])
def test_images_are_copies_with_their_bytes_and_endings(
    name: str, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FORMATS[name].write(records, place(tmp_path, name), pictures.source, CLASSES)
    copies = [path for path in out.rglob("*") if path.suffix.lower() == ".png"]
    assert {path.read_bytes() for path in copies} == {pictures.source(record).read_bytes() for record in records}
    assert ".PNG" in {path.suffix for path in copies}
    for path in copies:
        assert path.stat().st_nlink == 1
        assert not path.is_symlink()
        Image.open(path).load()


DEEP = 100_000


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("label-studio", "deep.json", "[" * DEEP + "]" * DEEP),
        ("fiftyone", "deep.json", '{"labels": ' + "[" * DEEP + "]" * DEEP + "}"),
        ("cvat-xml", "deep.xml", "<a>" * DEEP + "</a>" * DEEP),
        ("huggingface", "metadata.jsonl", "[" * DEEP + "]" * DEEP),
    ],
)
def test_a_bottomless_file_is_refused(name: str, file: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="nested too deeply"):
        FORMATS[name].read(write(tmp_path / file, text), ())


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(TailwiseError, match=r"no format is called 'cvs'; did you mean 'csv'\? Known: csv, "):
        FORMATS["cvs"]


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("labels.tsv", "path\tlabel\n", "csv"),
        ("metadata.csv", "file_name,label\n", "huggingface"),
        ("set/labels.json", "{}", "fiftyone"),
        ("set/tasks.json", "[]", "label-studio"),
        ("set/annotations.xml", "<annotations/>", "cvat-xml"),
        ("set/no_label/1.jpg", "", "cvat-imagenet"),
        ("set/train/metadata.jsonl", "", "huggingface"),
        ("set/cat/1.jpg", "", "folders"),
        ("set/annotations/instances_val.json", '{"images": [], "annotations": []}', "coco"),
        ("set/train/_annotations.coco.json", '{"images": [], "annotations": []}', "coco"),
        ("camera-traps.json", '{"images": [], "annotations": [], "categories": []}', "coco"),
        ("set/annotations/default.json", '{"categories": {}, "items": []}', "datumaro"),
    ],
)
def test_what_other_tools_write_is_recognised(file: str, text: str, name: str, tmp_path: Path) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    write(tmp_path / file, text)
    assert guess_format(tmp_path / file.split("/")[0]) == name


@pytest.mark.parametrize("path", ["notes.doc", "nothing", "number.json"])
def test_an_unknown_format_has_to_be_named(path: str, tmp_path: Path) -> None:
    (tmp_path / "notes.doc").write_text("hello", encoding="utf-8")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "number.json").write_text("7", encoding="utf-8")
    with pytest.raises(BadFile, match="is not recognised; name it: csv, "):
        guess_format(tmp_path / path)


class Marked:
    """A format that recognises folders with a file "mark", before all others."""

    name = "marked"
    about = "for this test"
    suffix = ""
    copies = False
    priority = 100

    def recognises(self, sample: Sample) -> bool:
        return sample.has("mark")

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - nothing is read
        return Loaded([], classes=classes)

    def check(self, out: Path) -> None:
        """Any place will do."""

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:  # noqa: ARG002 - nothing is written
        return out


def test_a_registered_format_is_guessed_by_what_it_recognises(tmp_path: Path) -> None:
    for name in ("mark", "tasks.json", "labels.json"):
        (tmp_path / name).write_text("[]", encoding="utf-8")
    assert guess_format(tmp_path) == "label-studio"
    try:
        assert label_format(Marked) is Marked
        assert guess_format(tmp_path) == "marked"
        with pytest.raises(ValueError, match="registered already"):
            label_format(Marked)
    finally:
        FORMATS.pop("marked", None)
