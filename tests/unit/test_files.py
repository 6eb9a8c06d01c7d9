"""Files that are whole or absent, and errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.files import no_file, write_whole


def test_a_name_that_is_too_long_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="File name too long"):
        write_whole(tmp_path / ("x" * 250), b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_told_with_the_nearest_name_that_is_there(tmp_path: Path) -> None:
    for name in ("proba.npy", "counts.csv"):
        (tmp_path / name).touch()
    assert no_file(tmp_path / "prob.npy") == f"no file at {tmp_path}/prob.npy; did you mean {tmp_path}/proba.npy?"
    assert no_file(tmp_path / "elsewhere.parquet").endswith("elsewhere.parquet; check the path")
    assert no_file(tmp_path / "no" / "p.npy").endswith(f": there is no folder {tmp_path}/no; check the path")
    assert "there is no folder" in no_file(tmp_path / "proba.npy" / "p.npy")  # a file is no folder


def test_a_folder_or_a_link_to_nowhere_in_place_of_a_file_is_not_offered_as_itself(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").mkdir()
    assert no_file(tmp_path / "counts.csv").endswith("counts.csv: it is a folder; name a file in it")
    (tmp_path / "p.npy").symlink_to(tmp_path / "gone")
    assert no_file(tmp_path / "p.npy").endswith("p.npy; check the path")


def test_a_folder_of_very_many_files_is_not_gone_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proba.npy").touch()
    monkeypatch.setattr("tailwise.files.NAMES_LOOKED_AT", 0)
    assert no_file(tmp_path / "prob.npy").endswith("prob.npy; check the path")
