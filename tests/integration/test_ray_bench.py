"""An experiment on Ray that is killed: nothing of Ray stays, and processes go on where it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import json_of, process

FILE = """
name = "tiny"
budget = 20
cycles = 3
seeds = [0]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "entropy", balance = ["auto"] }]
"""
PATIENCE = 600.0  # seconds


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder for temporary files with a short name, as sockets need it."""
    folder = Path(tempfile.mkdtemp(prefix="tw", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def processes_in(folder: Path) -> list[str]:
    """Command lines that name a folder; those of Ray name the one of their session."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line[:200])
    return found


def rows_of(folder: Path) -> list[dict[str, object]]:
    """What was found, without how long it took."""
    pages = [json.loads(path.read_bytes())["row"] for path in sorted(folder.glob("trials/*/cycle-*.json"))]
    return [{name: value for name, value in page.items() if not name.startswith("seconds")} for page in pages]


@pytest.mark.long
def test_a_killed_run_leaves_no_process_and_another_engine_goes_on(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(FILE)
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)  # another test of this process may be in a session of its own
    command = ["bench", "run", "tiny.toml", "--no-report"]
    assert json_of(capsys, *command, "--out", "whole", "--processes", "1")["rows"] == 8
    monkeypatch.setenv("TMPDIR", str(place))
    with process(*command, "--out", "out", "--engine", "ray", "--processes", "2", "--quiet") as running:
        while len(list(Path("out").glob("trials/*/cycle-*.json"))) < 2:
            assert running.poll() is None, running.communicate()
            time.sleep(0.01)
        assert processes_in(place)
        running.send_signal(signal.SIGKILL)
        running.wait()
    deadline = time.monotonic() + PATIENCE
    while processes_in(place):
        assert time.monotonic() < deadline, processes_in(place)
        time.sleep(0.2)
    assert len(rows_of(Path("out"))) >= 2
    assert json_of(capsys, *command, "--out", "out", "--processes", "1")["failed"] == {}
    assert rows_of(Path("out")) == rows_of(Path("whole"))
