from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import Pictures, in_order

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


def test_plain_class_names_go_to_csv_with_an_explicit_label_and_one_row_per_file(
    pictures: Pictures, tmp_path: Path
) -> None:
    pictures.add("a/1.png", 1)
    pictures.add("b/1.png", 2)
    bare = [Record("a/1.png", "cat"), Record("b/1.png", "dog"), Record("b/1.png", "cat", annotator="ann")]
    records = [pictures.hashed(record) for record in bare]
    out = HUGGING_FACE.write(records, tmp_path / "out", pictures.source, ("dog", "cat"))
    with (out / "train" / "metadata.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file_name"], row["label"], row["path"]) for row in rows] == [
        ("1.png", "cat", "a/1.png"),
        ("1-2.png", "dog", "b/1.png"),
        ("1-3.png", "cat", "b/1.png"),
    ]
    assert {p.name for p in (out / "train").iterdir()} == {"metadata.csv", *(row["file_name"] for row in rows)}
    assert in_order(HUGGING_FACE.read(out, ()).records) == in_order(records)


@pytest.mark.parametrize("name", ["NA", "null", "007", "-x", "=x", "True", "#N/A", "1.5"])
def test_a_class_that_pandas_would_misread_goes_to_json_lines(name: str, pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    record = pictures.hashed(Record("1.png", name))
    out = HUGGING_FACE.write([record], tmp_path / "out", pictures.source, (name,))
    assert [path.name for path in (out / "train").glob("metadata.*")] == ["metadata.jsonl"]
    assert HUGGING_FACE.read(out, ()).records == [record]


def test_a_corrected_label_in_the_metadata_of_an_export_counts(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    out = HUGGING_FACE.write([Record("1.png", "cat")], tmp_path / "out", pictures.source, ("cat", "dog"))
    table = out / "train" / "metadata.csv"
    table.write_text(table.read_text(encoding="utf-8").replace(",cat,", ",dog,"), encoding="utf-8")
    assert HUGGING_FACE.read(out, ()).records[0].label == "dog"
