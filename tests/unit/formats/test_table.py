from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailwise.errors import BadFile
from tailwise.formats import Record
from tailwise.formats.tables import csv_of, guarded, header_of, parse_csv, records_of, row_of, unguarded

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
DANGER = ("=", "+", "-", "@", "\t", "\r")


@given(TEXT | st.builds(lambda a, b, c: a * "'" + b + c, st.integers(0, 3), st.sampled_from(DANGER), TEXT))
def test_a_guard_is_undone_exactly_and_hides_every_formula(cell: str) -> None:
    assert unguarded(guarded(cell)) == cell
    assert not guarded(cell).startswith(DANGER)


RECORDS = st.builds(
    Record,
    path=TEXT.filter(bool),
    label=TEXT.filter(bool),
    split=TEXT,
    annotator=TEXT,
    at=st.none() | st.integers(-(10**15), 10**17),
    model_version=TEXT,
    proba=st.none() | st.dictionaries(st.sampled_from(["cat", "=x", "ü"]), st.floats(0, 1), min_size=1),
    sha256=st.sampled_from(["", "0" * 64]),
)


@given(st.lists(RECORDS))
def test_any_text_comes_back_from_csv(records: list[Record]) -> None:
    header = header_of(records, ("ü", "cat"))
    text = csv_of(header, (row_of(record, header) for record in records)).decode()
    assert list(records_of(parse_csv(text, "x.csv"))) == records


def test_a_spreadsheet_sees_no_formula_in_an_export() -> None:
    records = [Record("=1.png", "@x", annotator="+1", model_version="-v"), Record("\r.png", "\tx")]
    header = header_of(records, ())
    text = csv_of(header, (row_of(record, header) for record in records)).decode()
    for row in csv.reader(io.StringIO(text, newline="")):
        assert not any(cell.startswith(DANGER) for cell in row)


def test_columns_of_probabilities_follow_the_classes() -> None:
    records = [Record("1", "a", proba={"x": 0.5, "b": 0.25, "a": 0.25})]
    assert header_of(records, ("a", "unseen", "b"))[7:] == ["prob_a", "prob_b", "prob_x", "sha256"]
    assert header_of([Record("1", "a")], ("a",))[7:] == ["sha256"]


@pytest.mark.parametrize(
    "text",
    [
        "path,label\n1.jpg,cat\n",
        "\N{BYTE ORDER MARK}path,label\r\n1.jpg,cat\r\n".removeprefix("\N{BYTE ORDER MARK}"),
        "path;label\n1.jpg;cat",
        "path\tlabel\n\n1.jpg\tcat\n\n",
        "sep=;\r\nlabel;path\r\ncat;1.jpg\r\n",
        'Label,File_Name,extra\n"cat","1.jpg",\n',
        "class,filename\ncat,1.jpg,,\n",
        "id,image,choice\n7,1.jpg,cat\n",
    ],
)
def test_tables_of_other_programs_are_read(text: str) -> None:
    assert list(records_of(parse_csv(text, "x.csv"))) == [Record("1.jpg", "cat")]


def test_quotes_separators_and_line_ends_within_cells_are_kept() -> None:
    text = 'path;label\n"a;""b""\nc.jpg";"x;y"\n'
    assert list(records_of(parse_csv(text, "x.csv"))) == [Record('a;"b"\nc.jpg', "x;y")]


def test_a_row_without_a_label_is_an_image_that_nobody_has_answered() -> None:
    (record,) = records_of(parse_csv("path,label\n1.jpg,\n", "x.csv"))
    assert not record.answered


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'path'"),
        ("name,label\n1.jpg,cat\n", "no column 'path'.*name,label"),
        ("path,label\n1.jpg,cat\n2.jpg\n", "line 3 of x.csv has 1 cells, but the header has 2; was the file cut off"),
        ("path,label\n1.jpg,cat,dog\n", "line 2 of x.csv has 3 cells"),
        ('path,label\n1.jpg,"ca', "is not valid CSV: unexpected end of data in line 2; was the file cut off"),
        ("path,label\n1.jpg,", "the last line of x.csv has no end.*cut off"),
        ("path,label\n,cat\n", "line 2 of x.csv: there is no path"),
        ("path,label,time\n1.jpg,cat,yesterday\n", "line 2 of x.csv: 'yesterday' is not a time like 2023"),
        ("path,label,kind\n1.jpg,cat,maybe\n", "line 2 of x.csv: the kind is 'maybe'; it must be one of label"),
        ("path,label,kind\n1.jpg,cat,skip\n", "only the kind 'label' has a label"),
        ("path,label,kind\n1.jpg,,label\n", "only the kind 'label' has a label"),
        ("path,label,prob_cat\n1.jpg,cat,nan\n", "line 2 of x.csv: 'nan' is not a probability"),
        ("path,label,prob_cat\n1.jpg,cat,1.5\n", "'1.5' is not a probability between 0 and 1"),
        ('path,label,sha256\n"a\nb",cat,\n1.jpg,cat,abc\n', "line 4 of x.csv: the sha256 'abc' is not 64 hex"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadFile, match=message):
        list(records_of(parse_csv(text, "x.csv")))
