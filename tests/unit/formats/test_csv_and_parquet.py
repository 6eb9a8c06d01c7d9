from __future__ import annotations

import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailwise.errors import BadFile
from tailwise.formats import FORMATS, Record, guess_format

from .conftest import CLASSES, Pictures


def test_a_csv_with_a_mark_in_front_and_semicolons_is_read(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_bytes(b"\xef\xbb\xbfpath;label;created_at\r\nh\xc3\xbctte.jpg;Haus;2023-11-14 22:13:20\r\n")
    assert guess_format(table) == "csv"
    loaded = FORMATS["csv"].read(table, ())
    assert loaded.records == [Record("hütte.jpg", "Haus", at=1_700_000_000_000_000)]
    assert loaded.classes == ("Haus",)


def test_a_csv_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_bytes("path,label\n1.jpg,cat\n2.jpg,Bär\n".encode("latin-1"))
    with pytest.raises(BadFile, match=r"line 3 of .*labels\.csv is not UTF-8; save the file as UTF-8"):
        FORMATS["csv"].read(table, ())


def test_rows_that_are_missing_are_told(records: list[Record], pictures: Pictures, tmp_path: Path) -> None:
    out = FORMATS["csv"].write(records, tmp_path / "labels.csv", pictures.source, CLASSES)
    lines = out.read_bytes().split(b"\r\n")
    out.write_bytes(b"\r\n".join(lines[:4]) + b"\r\n")
    loaded = FORMATS["csv"].read(out, ())
    assert len(loaded.records) == 3
    assert "has 3 rows, but 16 were written" in loaded.problems[0]


def test_a_row_that_was_cut_off_anywhere_is_told(pictures: Pictures, tmp_path: Path) -> None:
    pictures.add("1.png", 1)
    record = pictures.hashed(Record("1.png", "cat", annotator="ann", at=0, model_version="m"))
    out = FORMATS["csv"].write([record], tmp_path / "labels.csv", pictures.source, ("cat",))
    whole = out.read_bytes()
    first = whole.index(b"\r\n") + 2
    for end in range(first + 1, len(whole) - 2):
        out.write_bytes(whole[:end])
        with pytest.raises(BadFile, match="cut off"):
            FORMATS["csv"].read(out, ())


def test_a_file_beside_the_table_that_is_not_ours_is_kept(pictures: Pictures, tmp_path: Path) -> None:
    (tmp_path / "labels.classes.json").write_text('{"mine": 1}', encoding="utf-8")
    with pytest.raises(BadFile, match=r"labels\.classes\.json is there already"):
        FORMATS["csv"].write([], tmp_path / "labels.csv", pictures.source, ())
    assert not (tmp_path / "labels.csv").exists()


def test_a_plain_list_of_classes_beside_a_csv_gives_their_order(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\n1.jpg,b\n", encoding="utf-8")
    (tmp_path / "labels.classes.json").write_text('["z", "b", "a"]', encoding="utf-8")
    assert FORMATS["csv"].read(tmp_path / "labels.csv", ()).classes == ("z", "b", "a")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"tailwise": 2}', "is of version 2, this Tailwise reads 1; update Tailwise"),
        ('{"tailwise": 1, "classes": [7]}', "not as Tailwise writes it"),
        ('{"tailwise": 1, "format": "csv", "cla', "is not valid JSON.*cut off"),
    ],
)
def test_a_strange_list_of_classes_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("path,label\n1.jpg,b\n", encoding="utf-8")
    (tmp_path / "labels.classes.json").write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        FORMATS["csv"].read(tmp_path / "labels.csv", ())


def test_a_parquet_table_of_another_program_is_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    table = pa.table(
        {
            "filename": ["1.jpg", "2.jpg"],
            "class": pa.array(["cat", None]).dictionary_encode(),
            "timestamp": pa.array([datetime(2023, 11, 14, 22, 13, 20), None], pa.timestamp("ms")),
            "prob_cat": pa.array([0.5, None], pa.float32()),
            "pixels": [b"never read", b""],
        }
    )
    pq.write_table(table, path)
    assert FORMATS["parquet"].read(path, ()).records == [
        Record("1.jpg", "cat", at=1_700_000_000_000_000, proba={"cat": 0.5}),
        Record("2.jpg", None),
    ]


def test_parquet_columns_are_typed_and_open_in_pandas(
    records: list[Record], pictures: Pictures, tmp_path: Path
) -> None:
    out = FORMATS["parquet"].write(records, tmp_path / "labels.parquet", pictures.source, CLASSES)
    schema = pq.read_schema(out)
    assert str(schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert str(schema.field("prob_cat").type) == "double"
    assert pq.read_table(out).to_pandas()["label"].notna().sum() == sum(r.label is not None for r in records)


def test_a_parquet_table_of_somebody_else_is_not_replaced(pictures: Pictures, tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(BadFile, match="no export has written it"):
        FORMATS["parquet"].write([], path, pictures.source, ())
    assert pq.read_table(path).num_rows == 1


def test_a_parquet_column_of_objects_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"path": ["1.jpg"], "label": [{"name": "cat"}]}), path)
    with pytest.raises(BadFile, match="a cell of the kind dict"):
        FORMATS["parquet"].read(path, ())


WITHOUT_ARROW = """
import sys
sys.modules["pyarrow"] = None
from pathlib import Path
from tailwise.formats import FORMATS
from tailwise.errors import MissingExtra
for act in (lambda: FORMATS["parquet"].read(Path("x.parquet"), ()),
            lambda: FORMATS["parquet"].write([], Path("x.parquet"), None, ())):
    try:
        act()
    except MissingExtra as error:
        print(error)
"""


def test_without_pyarrow_the_command_that_mends_it_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ARROW], capture_output=True, text=True, check=True)
    assert done.stdout.count("pip install 'tailwise[tables]'") == 2
