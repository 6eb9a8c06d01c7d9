"""Files and folders that hold no matrix are rejected with a message that names the file and says what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tailwise
from tailwise.errors import BadFile, BadProbabilities
from tailwise.matrix import parquet as spool
from tailwise.matrix.open import open_matrix

GOOD = np.full((6, 4), 0.25, dtype=np.float32)


def save(path: Path, array: np.ndarray = GOOD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def table(path: Path, **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns or {"prob_a": GOOD[:, 0], "prob_b": GOOD[:, 1]}), path)


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - 8])


def mixed(folder: Path) -> None:
    save(folder / "a.npy")
    table(folder / "deep" / "b.parquet")


def other_columns(folder: Path) -> None:
    save(folder / "a.npy")
    save(folder / "b.npy", GOOD[:, :3])


def other_dtype(folder: Path) -> None:
    save(folder / "a.npy")
    save(folder / "b.npy", GOOD.astype(np.float64))


def cut_short(folder: Path) -> None:
    save(folder / "a.npy")
    save(folder / "b.npy")
    halve(folder / "b.npy")


def pickled(folder: Path) -> None:
    save(folder / "a.npy", np.array([[{"a": 1}]], dtype=object))


def records(folder: Path) -> None:
    save(folder / "a.npy", np.zeros((3, 2), dtype=[("height", "f4"), ("width", "f4")]))


def other_names(folder: Path) -> None:
    table(folder / "a.parquet")
    table(folder / "b.parquet", prob_a=GOOD[:, 0], prob_c=GOOD[:, 1])


def list_lengths(folder: Path) -> None:
    table(folder / "a.parquet", prob=[[0.5, 0.5], [1.0], [0.2, 0.3, 0.5]])


def ragged(folder: Path) -> None:
    table(folder / "a.parquet", prob=[[0.5, 0.5], [1.0]])


def null_lists(folder: Path) -> None:
    table(folder / "a.parquet", prob=pa.array([[0.5, 0.5], None], pa.list_(pa.float32(), 2)))


def several_lists(folder: Path) -> None:
    table(folder / "a.parquet", one=[[0.5, 0.5]], two=[[0.5, 0.5]])


def cut_parquet(folder: Path) -> None:
    table(folder / "a.parquet")
    table(folder / "b.parquet")
    halve(folder / "b.parquet")


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda _: None, "is a folder without .npy or .parquet files"),
        (lambda folder: (folder / "notes.txt").write_text("x"), "is a folder without .npy or .parquet files"),
        (lambda folder: save(folder / "inner" / "a.npy"), "there are some in inner: name that folder"),
        (mixed, r"holds both \.npy \(a\.npy\) and \.parquet \(deep/b\.parquet\); move one kind"),
        (other_columns, r"same columns, but .*a\.npy has 4 and .*b\.npy has 3"),
        (other_dtype, r"same dtype, but .*a\.npy has float32 and .*b\.npy has float64"),
        (cut_short, r"b\.npy .* is cut short, 88 of 96 bytes"),
        (pickled, r"a\.npy is not a plain .npy array: it holds pickled objects"),
        (records, r"a\.npy holds records \(height, width\)"),
        (lambda folder: save(folder / "a.npy", np.ones(5)), r"a\.npy must be a matrix .* has shape \(5,\)"),
        (lambda folder: (folder / "a.npy").write_text("hello"), r"a\.npy cannot be read as a plain \.npy array"),
        (other_names, r"same columns of numbers, but .*a\.parquet has 2 \(prob_a … prob_b\) and .*b\.parquet has 2"),
        (cut_parquet, r"b\.parquet cannot be read as Parquet"),
        (list_lengths, r"a\.parquet: column 'prob' holds lists of 2 numbers, and one of 1"),
        (ragged, r"a\.parquet: the lists in column 'prob' have different lengths"),
        # the second is what older versions of pyarrow, 18 to 21 at least, say by themselves
        (null_lists, r"a\.parquet(: column 'prob' is null| cannot be read as Parquet: Expected all lists)"),
        (several_lists, r"a\.parquet has several columns of lists \(one, two\); name the one to read 'prob'"),
        (lambda folder: table(folder / "a.parquet", name=["x"]), r"a\.parquet has no floating-point columns"),
    ],
)
def test_a_folder_without_a_matrix_is_rejected(fill: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    fill(tmp_path)
    with pytest.raises(BadFile, match=message):
        open_matrix(tmp_path)[:]


def test_nothing_at_a_path_is_said_as_it_was_typed() -> None:
    with pytest.raises(BadFile, match=r"^no file at absent\.npy; check the path$"):
        open_matrix("absent.npy")
    with pytest.raises(BadFile, match="give a URL as a string, not as a Path"):
        open_matrix(Path("s3://bucket/key"))
    with pytest.raises(BadFile, match="cannot be read"):
        open_matrix("a\0b.npy")


def test_urls_of_no_known_kind_are_rejected() -> None:
    with pytest.raises(BadFile, match=r"gopher://a/b is not a valid address, such as s3://"):
        open_matrix("gopher://a/b")
    with pytest.raises(BadFile, match="three slashes"):
        open_matrix("file://data/p.npy")


def test_a_file_that_vanishes_or_changes_after_opening_is_named(tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / f"{number}.npy")
    matrix = open_matrix(tmp_path)
    (tmp_path / "1.npy").unlink()
    save(tmp_path / "2.npy", np.concatenate([GOOD, GOOD]))
    assert np.array_equal(matrix[0:6], GOOD)
    with pytest.raises(BadFile, match=r"1\.npy cannot be read any more.*No such file"):
        matrix[5:8]
    with pytest.raises(BadFile, match=r"2\.npy cannot be read any more.*had 224 bytes and has 320"):
        matrix[np.array([13])]


def test_a_parquet_file_that_vanishes_or_changes_after_opening_is_named(tmp_path: Path) -> None:
    table(tmp_path / "a.parquet")
    table(tmp_path / "b.parquet")
    matrix = open_matrix(tmp_path)
    table(tmp_path / "a.parquet", prob_a=np.ones(7, np.float32), prob_b=np.ones(7, np.float32))
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(BadFile, match=r"a\.parquet has changed"):
        matrix[0:2]
    with pytest.raises(BadFile, match=r"b\.parquet cannot be read as Parquet"):
        matrix[7:8]


def test_nan_and_nulls_in_any_file_are_found(tmp_path: Path) -> None:
    save(tmp_path / "npy" / "0.npy")
    bad = GOOD.copy()
    bad[3, 1] = np.nan
    save(tmp_path / "npy" / "1.npy", bad)
    table(tmp_path / "parquet" / "0.parquet")
    table(tmp_path / "parquet" / "1.parquet", prob_a=pa.array([0.5, None], pa.float32()), prob_b=np.float32([0.5, 0.5]))
    with pytest.raises(BadProbabilities, match="row 9 holds NaN"):
        tailwise.select(tmp_path / "npy", 2, score="entropy")
    with pytest.raises(BadProbabilities):
        tailwise.select(tmp_path / "parquet", 2, score="entropy")


def test_a_disk_without_room_is_reported_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table(tmp_path / "a.parquet")
    matrix = open_matrix(tmp_path / "a.parquet")
    monkeypatch.setattr(spool, "RESERVE", 1 << 60)
    with pytest.raises(BadFile, match=r"a\.parquet is kept in a temporary file .* are free; set TMPDIR"):
        matrix[:]


def test_a_folder_that_predict_has_not_finished_is_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "part-00000.npy", np.full((3, 2), 0.5, dtype=np.float16))
    (tmp_path / "manifest.json").write_text('{"complete": false}')
    with pytest.raises(BadFile, match=r"is not finished.*tailwise predict"):
        open_matrix(tmp_path)
    for other in ('{"complete": true}', '{"name": "mine"}', "[1]", "no JSON"):
        (tmp_path / "manifest.json").write_text(other)
        assert open_matrix(tmp_path).shape == (3, 2)
