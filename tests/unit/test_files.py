"""Files that are whole or absent, and errors that say what is wrong."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tailwise.errors import BadFile
from tailwise.files import no_file, open_regular, read_regular, write_whole


def test_a_name_that_is_too_long_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="File name too long"):
        write_whole(tmp_path / ("x" * 250), b"content")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_told_with_the_nearest_name_that_is_there(tmp_path: Path) -> None:
    for name in ("proba.npy", "counts.csv"):
        (tmp_path / name).touch()
    assert no_file(tmp_path / "prob.npy") == f"no file at {tmp_path}/prob.npy; did you mean {tmp_path}/proba.npy?"
    (tmp_path / "union.py").touch()
    assert no_file(tmp_path / "no.npy").endswith("proba.npy?")  # a program is not a matrix
    assert no_file(tmp_path / "proba.npz").endswith("did you mean {}?".format(tmp_path / "proba.npy"))
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


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    content = bytes(range(256)) + b"\r\n\x1a" + bytes(100_000)  # what Windows would translate in text mode
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("file", "link"):
        assert read_regular(tmp_path / name) == content
        with open_regular(tmp_path / name) as file:
            assert file.seekable()
            assert not os.get_inheritable(file.fileno())


def test_a_folder_and_a_missing_file_are_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="it is a folder, not a file"):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")


OPEN = """
import sys
from tailwise.files import open_regular
try:
    open_regular(sys.argv[1])
except OSError as error:
    print(error.strerror)
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_a_socket_and_a_device_are_rejected_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket may not be long
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path, says in (("pipe", "a named pipe"), ("socket", "a socket"), (os.devnull, "a device")):
            done = subprocess.run(  # in a child with a timeout: a plain open of a pipe never returns
                [sys.executable, "-c", OPEN, path], capture_output=True, text=True, check=True, timeout=60
            )
            assert done.stdout.strip() == f"it is {says}, not a regular file"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no list of open files")
def test_a_rejected_file_leaves_no_open_descriptor(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        with pytest.raises(OSError, match="not a"):
            open_regular(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
