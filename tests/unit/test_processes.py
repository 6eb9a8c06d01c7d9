from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailwise.campaign.locks import LOCK_FILE, holder_of, take_lock
from tailwise.errors import BadFile
from tailwise.pools.download import Source, fetch
from tailwise.processes import cores, is_locked, lock_file, unlock_file

HOLD = """
import sys
from pathlib import Path
from tailwise.processes import lock_file
print(lock_file(Path(sys.argv[1])) is not None, flush=True)
sys.stdin.read()
"""


def holder(path: Path) -> subprocess.Popen[str]:
    """A process that holds a lock until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "True"
    return process


def test_the_cpus_of_this_process_are_counted_with_whatever_the_system_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {1, 3, 5}, raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 2, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "process_cpu_count")
    assert cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 7
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert cores() == 1


def test_a_lock_is_held_once_and_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with holder(path) as other:
        assert is_locked(path)
        assert lock_file(path) is None
        other.kill()
    mine = lock_file(path)
    assert mine is not None
    assert is_locked(path)
    assert lock_file(path) is None
    unlock_file(mine)
    assert not is_locked(path)


def test_looking_for_a_holder_never_finds_another_that_looks(tmp_path: Path) -> None:
    """A killed writer left its note: many threads look at once, each with a descriptor of its own, like processes."""
    (tmp_path / LOCK_FILE).write_text('{"pid": 1, "purpose": "gone", "host": "here", "since": 1}')
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.extend(holder_of(tmp_path) for _ in range(100))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [None] * 400


def test_the_first_byte_of_the_lock_file_is_not_needed_to_name_the_holder(tmp_path: Path) -> None:
    """Windows lets nobody else read the byte that is locked."""
    lock = take_lock(tmp_path, "`tailwise next`", wait=0)
    with (tmp_path / LOCK_FILE).open("r+b") as file:
        file.write(b"?")
    found = holder_of(tmp_path)
    lock.release()
    assert found is not None
    assert (found.pid, found.purpose) == (os.getpid(), "`tailwise next`")


def test_fetching_waits_for_another_process_and_then_takes_what_it_left(tmp_path: Path) -> None:
    source = Source("https://example.org/pets.tar.gz", "md5:0", "pets")
    told: list[str] = []

    def report(_done: float, what: str) -> None:
        told.append(what)
        (tmp_path / "pets").mkdir()  # as if the other process had made it
        other.communicate()

    with holder(tmp_path / ".lock") as other:
        assert fetch(source, tmp_path, report) == tmp_path / "pets"
    assert told == [f"another process is fetching into {tmp_path}: waiting for it"]
    assert [path.name for path in tmp_path.iterdir()] == ["pets"]


def test_a_folder_in_which_no_lock_can_be_made_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(BadFile, match="cannot write to"):
        fetch(Source("https://example.org/pets.tar.gz", "md5:0", "pets"), tmp_path)
