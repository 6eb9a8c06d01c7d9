from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.ledger import Ledger, write_meta
from tailwise.campaign.locks import holder_of
from tailwise.errors import LedgerBusy


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process; it says what it has done on its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


HOLDER = """
import sys, time
from tailwise.campaign.ledger import Ledger
ledger = Ledger.open(sys.argv[1], purpose="`tailwise label`")
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_process_is_told_who_writes(ledger: Ledger, home: Path) -> None:
    ledger.close()
    holder = child(HOLDER, home)
    try:
        assert first_line(holder) == "held"
        with pytest.raises(LedgerBusy) as told:
            Ledger.open(home, wait=0.1)
        assert f"`tailwise label` (pid {holder.pid}) holds it; use its page, or stop it" in str(told.value)
        with pytest.raises(LedgerBusy):
            Ledger.create(home, wait=0)
        found = holder_of(home)
        assert found is not None
        assert (found.pid, found.purpose) == (holder.pid, "`tailwise label`")
        with Ledger.open(home, read_only=True) as reader:
            assert len(reader.read("SELECT * FROM class")) == 3
    finally:
        end(holder)


def test_a_short_writer_is_to_be_waited_for(ledger: Ledger, home: Path) -> None:
    ledger.close()
    holder = child(HOLDER.replace("`tailwise label`", "`tailwise next`"), home)
    try:
        assert first_line(holder) == "held"
        with pytest.raises(LedgerBusy, match=r"`tailwise next` .* holds it; wait for it, or stop it, and try again"):
            Ledger.open(home, wait=0)
    finally:
        end(holder)


def test_a_lock_file_that_was_removed_while_nobody_held_it_is_made_again(ledger: Ledger, home: Path) -> None:
    ledger.close()
    (home / "lock").unlink()
    with Ledger.open(home, wait=0):
        assert holder_of(home) is not None


def test_threads_that_open_at_once_share_one_lock(ledger: Ledger, home: Path) -> None:
    ledger.close()
    opened: list[Ledger] = []
    threads = [threading.Thread(target=lambda: opened.append(Ledger.open(home, wait=0))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 8
    for number, one in enumerate(opened):
        write_meta(one, f"from {number}", "1")
    for one in opened:
        one.close()
    assert holder_of(home) is None


def test_a_killed_writer_leaves_no_lock(ledger: Ledger, home: Path) -> None:
    ledger.close()
    holder = child(HOLDER, home)
    assert first_line(holder) == "held"
    end(holder)
    note = json.loads((home / "lock").read_text())
    assert note["pid"] == holder.pid  # the file still names it
    assert holder_of(home) is None
    with Ledger.open(home, wait=0) as again:
        write_meta(again, "a", "b")
    assert holder_of(home) is None


def test_a_writer_that_ends_soon_is_waited_for(ledger: Ledger, home: Path) -> None:
    ledger.close()
    holder = child(HOLDER, home)
    assert first_line(holder) == "held"
    threading.Timer(0.3, holder.kill).start()
    with Ledger.open(home, wait=30):
        pass
    end(holder)


def test_ledgers_of_one_process_share_the_lock_until_the_last_is_closed(ledger: Ledger, home: Path) -> None:
    second = Ledger.open(home, wait=0)
    write_meta(second, "a", "1")
    ledger.close()
    write_meta(second, "a", "2")
    assert holder_of(home) is not None
    second.close()
    assert holder_of(home) is None


def test_a_forked_child_neither_writes_nor_keeps_the_lock(ledger: Ledger, home: Path) -> None:
    code = """
import os, sys, time
from tailwise.campaign.ledger import Ledger, read_meta, write_meta
from tailwise.errors import LedgerBusy
ledger = Ledger.open(sys.argv[1])
pid = os.fork()
if pid == 0:
    said = []
    for verb in (lambda: read_meta(ledger, "a"), lambda: write_meta(ledger, "a", "b")):
        try:
            verb()
        except LedgerBusy as error:
            said.append("forked" in str(error))
    ledger.close()
    print(os.getpid(), said, flush=True)
    time.sleep(600)
time.sleep(600)
"""
    ledger.close()
    parent = child(code, home)
    pid, _, said = first_line(parent).partition(" ")
    try:
        assert said == "[True, True]"
        with pytest.raises(LedgerBusy):
            Ledger.open(home, wait=0)
        parent.kill()
        parent.wait()
        with Ledger.open(home, wait=5):  # the child is alive, and holds nothing
            os.kill(int(pid), 0)
    finally:
        os.kill(int(pid), signal.SIGKILL)
        end(parent)


def test_a_foreign_program_that_writes_is_waited_for_and_then_told(ledger: Ledger, home: Path) -> None:
    foreign = sqlite3.connect(home / LEDGER_FILE, isolation_level=None)
    foreign.execute("BEGIN EXCLUSIVE")
    assert ledger._writer is not None
    ledger._writer.execute("PRAGMA busy_timeout = 100")
    with pytest.raises(LedgerBusy, match=r"the ledger of .* is busy"):
        write_meta(ledger, "a", "b")
    foreign.execute("ROLLBACK")
    foreign.close()
    write_meta(ledger, "a", "b")


def test_a_read_only_folder_can_be_read(ledger: Ledger, home: Path) -> None:
    ledger.close()
    (home / "lock").unlink()
    home.chmod(0o555)
    try:
        with Ledger.open(home, read_only=True) as reader:
            assert len(reader.read("SELECT * FROM class")) == 3
    finally:
        home.chmod(0o755)
    assert not (home / "lock").exists()
