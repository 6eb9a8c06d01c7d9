from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.cli.output import WrongUsage
from tailwise.cli.select import comma_list, limit_per_class, per_class, read_scores
from tailwise.errors import BadFile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.csv", "5\n3\n0\n"),
        ("headed.csv", "count\n5\n3\n0\n"),
        ("blank.csv", "5\r\n\r\n 3 \r\n0"),
        ("table.csv", "class,count\n1,3\n0,5\n"),
        ("bom.csv", "\ufeffclass, count\n2,0\n1,3\n0,5\n"),
        ("list.json", "[5, 3.0, 0]"),
    ],
)
def test_every_file_form_gives_one_number_per_class(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    assert per_class(name, "--counts", 3).tolist() == [5, 3, 0]


def test_npy_of_whole_numbers_and_comma_lists_are_read(folder: Path) -> None:
    np.save(folder / "counts.npy", np.array([5, 3, 0]))
    assert per_class("counts.npy", "--counts", 3).tolist() == [5, 3, 0]
    assert per_class(" 5, 3,0 ", "--counts", 3).tolist() == [5, 3, 0]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("empty.csv", "", "is empty"),
        ("two.csv", "1,5\n0,3\n", "columns class,count under that header"),
        ("three.csv", "a,b,c\n1,2,3\n", "must hold one number per line"),
        ("word.csv", "5\nmany\n0\n", "line 2 of word.csv reads 'many'"),
        ("ragged.csv", "class,count\n0,5\n1\n", "line 3 of ragged.csv reads '1'"),
        ("named.csv", "class,count\ncat,5\n", "line 2 of named.csv reads 'cat,5'"),
        ("short.csv", "5\n3\n", "short.csv gives 2 numbers, but the probabilities have 3 classes"),
        ("beyond.csv", "class,count\n3,5\n", r"names class 3, but classes run from 0 to 2 \(in beyond.csv\)"),
        ("twice.csv", "class,count\n1,5\n1,5\n", "names class 1 twice"),
        ("half.csv", "class,count\n0.5,5\n", "names class '0.5'"),
        ("object.json", '{"0": 5}', "JSON list of numbers"),
        ("bools.json", "[true, false, true]", "JSON list of numbers"),
        ("broken.json", "[1, 2", "cannot be read"),
        ("deep.json", "[" * 100_000, "cannot be read"),
        ("short.npy", "not an array", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_understood_says_where(folder: Path, name: str, content: str, complaint: str) -> None:
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=complaint):
        per_class(name, "--counts", 3)


def test_a_pickled_array_and_a_file_in_another_encoding_are_refused(folder: Path) -> None:
    np.save(folder / "pickled.npy", np.array([1, "a", None], dtype=object), allow_pickle=True)
    (folder / "latin.csv").write_bytes("Größe\n1\n".encode("latin-1"))
    for name in ("pickled.npy", "latin.csv", "absent.csv"):
        with pytest.raises(BadFile, match=name):
            per_class(name, "--counts", 3)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("5,3", "gives 2 numbers, but the probabilities have 3 classes"),
        ("5,x,0", "'x' is neither a number nor such a file"),
        ("5,,0", "'' is neither a number"),
        ("3=1", "names class 3, but classes run from 0 to 2"),
        ("1=1,1=2", "names class 1 twice"),
        ("1=1,2", "'2' is not of the form class=number"),
        ("counts.txt", "neither a number nor such a file"),
    ],
)
def test_a_list_that_does_not_fit_is_wrong_usage(text: str, complaint: str) -> None:
    with pytest.raises(WrongUsage, match=complaint):
        per_class(text, "--counts", 3)


def test_a_limit_is_one_number_for_all_or_pairs_or_a_list() -> None:
    assert limit_per_class("4", "--at-most", 3, missing=np.inf).tolist() == [4, 4, 4]
    assert limit_per_class("1=4", "--at-most", 3, missing=np.inf).tolist() == [np.inf, 4, np.inf]
    assert limit_per_class("1,2,3", "--at-most", 3, missing=np.inf).tolist() == [1, 2, 3]


def test_lists_of_lambdas_are_numbers() -> None:
    assert comma_list("0.1, 2", "--lams") == [0.1, 2.0]
    with pytest.raises(WrongUsage, match="--lams"):
        comma_list("auto", "--lams")


def test_scores_are_read_from_npy_and_nothing_else(folder: Path) -> None:
    np.save(folder / "scores.npy", np.array([1.0, 2.0]))
    (folder / "empty.npy").touch()
    assert read_scores(folder / "scores.npy").tolist() == [1.0, 2.0]
    for name in ("empty.npy", "absent.npy"):
        with pytest.raises(BadFile, match=name):
            read_scores(folder / name)
