"""Bad input is rejected with a message that names it; good input of every kind is read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailwise.errors import BadFile, BadInput, BadProbabilities
from tailwise.inputs import per_class, per_row
from tailwise.matrix.open import open_proba
from tailwise.matrix.shards import Rows, scan
from tailwise.score import entropy

GOOD = np.full((50, 4), 0.25, dtype=np.float32)


def spoiled(row: int, values: list[float], dtype: type = np.float32) -> np.ndarray:
    array = GOOD.astype(dtype)
    array[row] = values
    return array


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (spoiled(7, [np.nan, 0, 0, 1]), "row 7 holds NaN"),
        (spoiled(9, [np.inf, 0, 0, 0]), "row 9 holds an infinite number"),
        (spoiled(3, [-0.5, 0.5, 0.5, 0.5]), "row 3 holds -0.5"),
        (spoiled(49, [0.2, 0.2, 0.2, 0.2]), "row 49 sums to 0.8"),
        (spoiled(5, [np.nan, 0, 0, 1], np.float16), "row 5 holds NaN"),
        (spoiled(6, [-1, 1, 1, 0], np.float16), "row 6 holds -1"),
    ],
)
def test_rows_that_are_no_distributions_are_named(array: np.ndarray, message: str) -> None:
    with pytest.raises(BadProbabilities, match=message):
        scan(Rows(open_proba(array)))


def test_of_many_bad_rows_the_first_are_named_and_the_others_counted() -> None:
    with pytest.raises(BadProbabilities, match=r"row 0 sums to 2; row 1 sums to 2; row 2 .* \(and 47 more\)"):
        scan(Rows(GOOD * 2))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(5), "must be a matrix"),
        (np.ones((2, 2, 2)), "must be a matrix"),
        (np.ones((3, 2), dtype=int), "must be float16, float32 or float64"),
        (np.array([[object()]]), "must be numbers, but holds <object object"),
        (np.empty((3, 0)), "no class columns"),
    ],
)
def test_arrays_of_the_wrong_kind_are_rejected(array: np.ndarray, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        open_proba(array)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_softmax_of_every_precision_passes(dtype: type) -> None:
    proba = np.random.default_rng(0).dirichlet(np.full(1_000, 0.05), size=300).astype(dtype)
    assert scan(Rows(proba), entropy).values().shape == (300,)


def test_files_are_read_as_arrays_are(tmp_path: Path) -> None:
    proba = np.random.default_rng(1).dirichlet(np.ones(3), size=40)
    np.save(tmp_path / "p.npy", proba)
    columns = {f"prob_{k}": proba[:, k] for k in range(3)} | {"height": np.arange(40.0), "name": ["x"] * 40}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet", row_group_size=7)
    for name in ("p.npy", "p.parquet"):
        assert np.array_equal(open_proba(tmp_path / name)[:], proba)
        assert np.array_equal(open_proba(str(tmp_path / name))[:], proba)


def test_a_parquet_file_of_float32_stays_float32(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": GOOD[:, 0], "b": GOOD[:, 1]}), tmp_path / "p.parquet")
    assert open_proba(tmp_path / "p.parquet").dtype == np.float32


def test_damaged_and_foreign_files_are_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], dtype=object))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("hello")
    pq.write_table(pa.table({"a": GOOD[:, 0]}), tmp_path / "whole.parquet")
    whole = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pa.table({"name": ["x"]}), tmp_path / "names.parquet")
    (tmp_path / "p.csv").write_text("1,2")
    for name in ("pickled.npy", "empty.npy", "text.npy", "half.parquet", "names.parquet", "p.csv", "absent.npy"):
        with pytest.raises(BadFile, match=name.replace(".", r"\.")):
            open_proba(tmp_path / name)


def test_numbers_per_class_and_per_row_must_fit() -> None:
    with pytest.raises(BadInput, match="must have 3 entries"):
        per_class([1, 2], "counts", 3)
    with pytest.raises(BadInput, match="class 1 is -2"):
        per_class([1, -2, 0], "counts", 3)
    with pytest.raises(BadInput, match="entry 2 is nan"):
        per_row([1.0, 2.0, np.nan], "score", 3)
    with pytest.raises(BadInput, match="must be numbers"):
        per_row(["a", "b"], "score", 2)
