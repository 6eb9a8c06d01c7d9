from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import CLASSES, Pictures, in_order

HUGGING_FACE = FORMATS["huggingface"]


def test_metadata_csv_beside_its_images_is_read(pictures: Pictures) -> None:
    pictures.add("train/0001.png", 1)
    pictures.add("test/0002.png", 2)
    (pictures.root / "train" / "metadata.csv").write_text("file_name,label\n0001.png,cat\n", encoding="utf-8")
    (pictures.root / "test" / "metadata.csv").write_text("file_name,label\n0002.png,dog\n", encoding="utf-8")
    assert guess_format(pictures.root) == "huggingface"
    first = pictures.hashed(Record("train/0001.png", None)).sha256
    second = pictures.hashed(Record("test/0002.png", None)).sha256
    assert HUGGING_FACE.read(pictures.root, ()).records == [
        Record("0002.png", "dog", split="test", sha256=second),
        Record("0001.png", "cat", split="train", sha256=first),
    ]


def test_json_lines_with_other_features_and_without_images_are_read(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text(
        '{"file_name": "images/0001.png", "label": "cat", "objects": {"bbox": [[1, 2]]}}\n'
        '\n{"file_name": "0002.png", "label": 3, "text": "hello"}\n{"file_name": "0003.png"}\n',
        encoding="utf-8",
    )
    wanted = [Record("images/0001.png", "cat"), Record("0002.png", "3"), Record("0003.png", None)]
    assert HUGGING_FACE.read(tmp_path, ()).records == wanted
    assert HUGGING_FACE.read(tmp_path / "metadata.jsonl", ()).records == wanted
    assert guess_format(tmp_path / "metadata.jsonl") == "huggingface"


def test_names_that_climb_out_of_the_folder_are_not_opened(pictures: Pictures, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    pictures.add("1.png", 1)
    (pictures.root / "link.png").symlink_to(tmp_path / "secret.png")
    names = ("../secret.png", str(tmp_path / "secret.png"), "link.png", "a\0b", "1.png")
    table = "file_name,label\n" + "".join(f"{name},cat\n" for name in names)
    (pictures.root / "metadata.csv").write_text(table, encoding="utf-8")
    records = HUGGING_FACE.read(pictures.root, ()).records
    assert [bool(record.sha256) for record in records] == [False, False, False, False, True]


def test_without_metadata_the_folders_are_the_classes(pictures: Pictures) -> None:
    pictures.add("train/dog/1.png", 1)
    (record,) = HUGGING_FACE.read(pictures.root, ()).records
    assert (record.path, record.label, record.split) == ("1.png", "dog", "train")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metadata.csv", "path,label\n1.png,cat\n", "has no column 'file_name'"),
        ("metadata.jsonl", '{"file_name": "1.png"}\n[1]\n', r"line 2 of .* is not a JSON object"),
        ("metadata.jsonl", '{"file_name": "1.png"}\n{"file_na', r"line 2 of .* is not valid JSON: .*cut off"),
        ("metadata.jsonl", '{"file_name": "1.png", "label": NaN}', "NaN is not a number"),
        ("metadata.jsonl", '{"file_name": "1.png", "label": "\\ud800"}', "half a character"),
    ],
)
def test_strange_metadata_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        HUGGING_FACE.read(tmp_path, ())


def test_an_export_has_json_lines_with_an_explicit_label_and_one_row_per_file(
    pictures: Pictures, tmp_path: Path
) -> None:
    pictures.add("a/1.png", 1)
    pictures.add("b/1.png", 2)
    bare = [Record("a/1.png", "cat"), Record("b/1.png", "dog"), Record("b/1.png", "cat", annotator="ann")]
    records = [pictures.hashed(record) for record in bare]
    out = HUGGING_FACE.write(records, tmp_path / "out", pictures.source, ("dog", "cat"))
    lines = (out / "train" / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["file_name"], row["label"], row["path"]) for row in rows] == [
        ("1.png", "cat", "a/1.png"),
        ("1-2.png", "dog", "b/1.png"),
        ("1-3.png", "cat", "b/1.png"),
    ]
    assert {p.name for p in (out / "train").iterdir()} == {"metadata.jsonl", *(row["file_name"] for row in rows)}
    assert in_order(HUGGING_FACE.read(out, ()).records) == in_order(records)


@pytest.mark.parametrize("name", ["NA", "null", "007", "-x", "=x", "True", "#N/A", "1.5"])
def test_a_class_that_csv_would_misread_comes_back(name: str, pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    record = pictures.hashed(Record("1.png", name))
    out = HUGGING_FACE.write([record], tmp_path / "out", pictures.source, (name,))
    assert [path.name for path in (out / "train").glob("metadata.*")] == ["metadata.jsonl"]
    assert HUGGING_FACE.read(out, ()).records == [record]


def test_a_corrected_label_in_the_metadata_of_an_export_counts(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    out = HUGGING_FACE.write([Record("1.png", "cat")], tmp_path / "out", pictures.source, ("cat", "dog"))
    table = out / "train" / "metadata.jsonl"
    table.write_text(table.read_text(encoding="utf-8").replace('"label": "cat"', '"label": "dog"'), encoding="utf-8")
    assert HUGGING_FACE.read(out, ()).records[0].label == "dog"


# With the `datasets` library itself.


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed: pip install datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    return datasets


def exported(pictures: Pictures, out: Path, made: list[Record], classes: tuple[str, ...]) -> Path:
    for number, record in enumerate(made):
        pictures.add(record.path, number)
    return HUGGING_FACE.write([pictures.hashed(one) for one in made], out, pictures.source, classes)


def test_the_library_reads_the_classes_in_their_order_also_those_without_images(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    made = [
        Record("1.png", "zebra", split="train", annotator="ann", at=1),
        Record("2.png", "007", split="train", proba={"zebra": 0.25, "NA": 0.75}, model_version="m1"),
        Record("3.png", None, split="train"),
        Record("4.png", "NA", split="test"),
    ]
    classes = ("zebra", "NA", "007", "é\u2028'\"\U0001f989", "unseen")
    out = exported(pictures, tmp_path / "out", made, classes)
    loaded = library.load_dataset(str(out))
    assert loaded["train"].features["label"].names == loaded["test"].features["label"].names == list(classes)
    assert (loaded["train"]["label"][:], loaded["test"]["label"][:]) == ([0, 2, None], [1])
    assert [image.getpixel((0, 0))[0] for image in loaded["train"]["image"]] == [0, 1, 2]
    plain = library.load_dataset("imagefolder", data_dir=str(out))
    assert (plain["train"]["label"][:], plain["test"]["label"][:]) == (["zebra", "007", None], ["NA"])


def test_the_library_reads_an_export_with_columns_that_are_empty_in_one_split(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    made = [
        Record(
            "1.png", "owl", split="train", annotator="ann", at=1, proba={"owl": 0.5, "kite": 0.5}, model_version="m1"
        ),
        Record("2.png", None, split="test", kind="skip"),
    ]
    out = exported(pictures, tmp_path / "out", made, ("owl", "kite"))
    loaded = library.load_dataset(str(out))
    assert (loaded["train"]["label"][:], loaded["test"]["label"][:]) == ([0], [-1])
    plain = library.load_dataset("imagefolder", data_dir=str(out))
    assert (plain["train"]["annotator"][:], plain["test"]["annotator"][:]) == (["ann"], [""])
    assert in_order(HUGGING_FACE.read(out, ()).records) == in_order(pictures.hashed(one) for one in made)


@pytest.mark.parametrize("saved", ["save_to_disk", "parquet"])
def test_what_the_library_stores_of_an_export_is_read_back_to_the_last_bit(
    saved: str, library: ModuleType, records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = HUGGING_FACE.write(records, tmp_path / "out", pictures.source, CLASSES)
    loaded = library.load_dataset(str(out))
    place = tmp_path / "stored"
    if saved == "save_to_disk":
        loaded.save_to_disk(str(place))
    else:
        (place / "data").mkdir(parents=True)
        for split, part in loaded.items():
            part.to_parquet(str(place / "data" / f"{split}-00000-of-00001.parquet"))
    again = HUGGING_FACE.read(place, ())
    assert guess_format(place) == "huggingface"
    assert in_order(again.records) == in_order(records)
    assert (again.classes, again.problems) == (CLASSES, [])


def dataset(library: ModuleType, pictures: Pictures, columns: dict[str, object], features: dict[str, object]) -> object:
    images = [str(pictures.add(f"{number}.png", number)) for number in range(3)]
    kinds = library.Features({"image": library.Image(), **features})
    return library.Dataset.from_dict({"image": images, **columns}, features=kinds)


def test_class_names_and_images_of_any_data_set_are_read(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    kind = library.ClassLabel(names=["zebra", "cat", "unseen"])
    made = dataset(library, pictures, {"animal": [1, -1, 0]}, {"animal": kind})
    made.save_to_disk(str(tmp_path / "one"))
    made.to_parquet(str(tmp_path / "validation.parquet"))
    assert guess_format(tmp_path / "one") == guess_format(tmp_path / "validation.parquet") == "huggingface"
    stored, table = (HUGGING_FACE.read(tmp_path / name, ()) for name in ("one", "validation.parquet"))
    assert stored.classes == table.classes == ("zebra", "cat", "unseen")
    assert [one.label for one in stored.records] == [one.label for one in table.records] == ["cat", None, "zebra"]
    assert [one.path for one in table.records] == [str(pictures.root / f"{number}.png") for number in range(3)]
    assert [one.sha256 for one in stored.records] == [
        pictures.hashed(Record(f"{number}.png", None)).sha256 for number in range(3)
    ]
    assert {one.split for one in table.records} == {"validation"}


def test_splits_of_any_name_are_loaded(library: ModuleType, pictures: Pictures, tmp_path: Path) -> None:
    made = [Record("1.png", "owl", split="fold [1]"), Record("2.png", "kite", split="fold-(1)")]
    loaded = library.load_dataset(str(exported(pictures, tmp_path / "out", made, ("owl", "kite"))))
    assert {name: part["label"][:] for name, part in loaded.items()} == {"fold_1_": [0], "fold_1__2": [1]}


def test_rows_without_one_class_are_left_out_and_listed(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    kind = library.List(library.ClassLabel(names=["zebra", "cat"]))
    dataset(library, pictures, {"labels": [[1], [0, 1], []]}, {"labels": kind}).save_to_disk(str(tmp_path / "many"))
    loaded = HUGGING_FACE.read(tmp_path / "many", ())
    assert [one.label for one in loaded.records] == ["cat", None]
    assert len(loaded.problems) == 1
    assert "row 2 of" in loaded.problems[0]
    assert "2 labels, but an image has one class here" in loaded.problems[0]


def test_several_columns_of_classes_are_an_error_that_names_them(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    kind = library.ClassLabel(names=["a", "b"])
    made = dataset(library, pictures, {"coarse": [0, 1, 0], "fine": [1, 0, 1]}, {"coarse": kind, "fine": kind})
    made.save_to_disk(str(tmp_path / "two"))
    with pytest.raises(BadFile, match=r"columns of classes: coarse, fine; rename the one to import to 'label'"):
        HUGGING_FACE.read(tmp_path / "two", ())


def test_metadata_in_parquet_is_read_with_its_images(library: ModuleType, pictures: Pictures) -> None:
    arrow = pytest.importorskip("pyarrow")
    pictures.add("train/1.png", 1)
    table = arrow.table({"file_name": ["1.png"], "label": ["cat"]})
    pytest.importorskip("pyarrow.parquet").write_table(table, pictures.root / "train" / "metadata.parquet")
    record = pictures.hashed(Record("train/1.png", "cat", split="train"))
    assert HUGGING_FACE.read(pictures.root, ()).records == [replace(record, path="1.png")]
    assert library.load_dataset("imagefolder", data_dir=str(pictures.root))["train"]["label"][:] == ["cat"]


@pytest.mark.parametrize("content", ["{}", '{"_data_files": [{"filename": "../away.arrow"}]}', '{"_data_f'])
def test_a_damaged_saved_folder_is_an_error_of_ours(content: str, tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text("{}", encoding="utf-8")
    (tmp_path / "state.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=r"cut off|copy the whole folder"):
        HUGGING_FACE.read(tmp_path, ())


def test_a_saved_table_that_was_cut_off_is_an_error_of_ours(
    library: ModuleType, pictures: Pictures, tmp_path: Path
) -> None:
    dataset(library, pictures, {"label": ["a", "b", "c"]}, {"label": library.Value("string")}).save_to_disk(
        str(tmp_path / "cut")
    )
    (table,) = (tmp_path / "cut").glob("*.arrow")
    table.write_bytes(table.read_bytes()[:-700])
    with pytest.raises(BadFile, match="cut off"):
        HUGGING_FACE.read(tmp_path / "cut", ())
