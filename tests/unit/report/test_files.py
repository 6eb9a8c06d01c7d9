from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadFile, BadInput, MissingExtra
from tailwise.files import write_whole
from tailwise.report.tables import PICK_SUFFIXES, check_writable, write_picks, write_sweep


@pytest.fixture
def batch() -> tailwise.Selection:
    proba = np.random.default_rng(0).dirichlet(np.ones(3), size=20)
    return tailwise.select(proba, 4, balance=1.0, score="entropy")


def test_picks_in_csv_have_ranks_from_one(batch: tailwise.Selection, tmp_path: Path) -> None:
    write_picks(batch, tmp_path / "picks.csv")
    lines = [f"{rank},{index}" for rank, index in enumerate(batch.indices.tolist(), 1)]
    assert (tmp_path / "picks.csv").read_text() == "\n".join(["rank,index", *lines, ""])


def test_picks_in_npy_are_the_indices(batch: tailwise.Selection, tmp_path: Path) -> None:
    write_picks(batch, tmp_path / "picks.npy")
    loaded = np.load(tmp_path / "picks.npy", allow_pickle=False)
    assert loaded.dtype == np.int64
    assert loaded.tolist() == batch.indices.tolist()


def test_picks_in_parquet_are_those_in_csv(batch: tailwise.Selection, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_picks(batch, tmp_path / "picks.parquet")
    columns = parquet.read_table(tmp_path / "picks.parquet").to_pydict()
    assert columns == {"rank": [1, 2, 3, 4], "index": batch.indices.tolist()}


def test_a_sweep_in_csv_has_one_row_per_lambda(tmp_path: Path) -> None:
    proba = np.random.default_rng(0).dirichlet(np.ones(3), size=20)
    write_sweep(tailwise.balance_path(proba, 4, lams=[0.5, 1.0]), tmp_path / "path.csv")
    lines = (tmp_path / "path.csv").read_text().splitlines()
    assert lines[0] == "lam,informativeness,l1,l1_score,gap"
    assert [line.split(",")[0] for line in lines[1:]] == ["0.0", "0.5", "1.0"]


def test_a_crash_before_the_rename_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "picks.csv"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadFile, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_gets_the_usual_permissions_and_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_whole(tmp_path / "link.csv", b"x")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"x"
    (tmp_path / "touched").touch()
    assert (tmp_path / "real.csv").stat().st_mode == (tmp_path / "touched").stat().st_mode


def test_files_that_could_not_be_written_are_refused_beforehand(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BadInput, match=r"must end in \.csv, \.parquet, \.npy"):
        check_writable(tmp_path / "picks.txt", PICK_SUFFIXES)
    with pytest.raises(BadFile, match="there is a folder of that name"):
        check_writable(tmp_path / "folder.csv", PICK_SUFFIXES)
    with pytest.raises(BadFile, match="there is no folder"):
        check_writable(tmp_path / "absent" / "picks.csv", PICK_SUFFIXES)
    check_writable(tmp_path / "PICKS.CSV", PICK_SUFFIXES)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"tailwise\[tables\]"):
        check_writable(tmp_path / "picks.parquet", PICK_SUFFIXES)
