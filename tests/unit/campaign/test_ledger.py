from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.database import LEDGER_FILE, connect, read_steps
from tailwise.campaign.ledger import CURRENT_SCHEMA, Ledger, now, read_meta, write_meta
from tailwise.campaign.locks import holder_of
from tailwise.errors import BadFile, BadInput, NewerLedger


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process; it says what it has done on its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_new_ledger_says_what_it_is(home: Path) -> None:
    with Ledger.create(home) as ledger:
        assert len(read_meta(ledger, "campaign") or "") == 32
        assert abs(int(read_meta(ledger, "created") or 0) - now()) < 60_000_000
        assert read_meta(ledger, "nothing") is None
        with ledger.reading() as connection:
            assert connection.execute("PRAGMA user_version").fetchone()[0] == CURRENT_SCHEMA
            assert connection.execute("PRAGMA application_id").fetchone()[0].to_bytes(4, "big") == b"TLWS"
            tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'").fetchall()
        assert all(row["strict"] for row in tables if row["name"] in {"event", "image", "class", "round", "lease"})


def test_the_schema_number_is_that_of_the_last_step() -> None:
    assert [step.number for step in read_steps()] == list(range(1, CURRENT_SCHEMA + 1))


def test_a_folder_holds_one_campaign(ledger: Ledger, home: Path) -> None:
    with pytest.raises(BadInput, match="holds a campaign already"):
        Ledger.create(home)
    assert len(ledger.read("SELECT * FROM class")) == 3


def test_what_is_no_campaign_is_told(home: Path) -> None:
    with pytest.raises(BadFile, match=r"no campaign in .*campaign; make one with `tailwise init`"):
        Ledger.open(home)
    home.mkdir()
    sqlite3.connect(home / LEDGER_FILE).execute("CREATE TABLE mine (x)").connection.close()
    for read_only in (True, False):
        with pytest.raises(BadFile, match="is not a ledger of Tailwise"):
            Ledger.open(home, read_only=read_only)
    (home / LEDGER_FILE).write_bytes(b"not a database at all" * 100)
    for read_only in (True, False):
        with pytest.raises(BadFile, match="damaged"):
            Ledger.open(home, read_only=read_only)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="cannot make the folder"):
        Ledger.create(tmp_path / "file" / "campaign")


def test_names_of_folders_that_a_uri_would_misread_are_fine(tmp_path: Path) -> None:
    home = tmp_path / "50% of ?those #birds&co – été"
    Ledger.create(home).close()
    with Ledger.open(home) as ledger:
        write_meta(ledger, "note", "here")
    assert sorted(path.name for path in home.iterdir() if path.suffix == ".sqlite") == [LEDGER_FILE]


# Transactions


def test_an_exception_takes_all_of_a_block_back(ledger: Ledger) -> None:
    def fail() -> None:
        with ledger.writing() as connection:
            connection.execute("INSERT INTO meta VALUES ('a', '1')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_meta(ledger, "a") is None
    write_meta(ledger, "a", "2")
    assert read_meta(ledger, "a") == "2"


def test_an_inner_block_is_taken_back_alone(ledger: Ledger) -> None:
    def fail() -> None:
        with ledger.writing():
            write_meta(ledger, "inner", "1")
            raise ZeroDivisionError

    with ledger.writing():
        write_meta(ledger, "outer", "1")
        with pytest.raises(ZeroDivisionError):
            fail()
        assert read_meta(ledger, "inner") is None
        write_meta(ledger, "inner again", "1")
    assert [read_meta(ledger, key) for key in ("outer", "inner", "inner again")] == ["1", None, "1"]


def test_reads_inside_a_block_see_it_and_reads_of_others_do_not(ledger: Ledger) -> None:
    seen = []
    with ledger.writing():
        write_meta(ledger, "note", "new")
        assert read_meta(ledger, "note") == "new"
        other = threading.Thread(target=lambda: seen.append(read_meta(ledger, "note")))
        other.start()
        other.join()
    assert seen == [None]
    assert read_meta(ledger, "note") == "new"


def test_a_reading_block_sees_one_state(ledger: Ledger) -> None:
    with ledger.reading(), pytest.raises(BadInput, match="inside a reading"):
        write_meta(ledger, "note", "new")
    started, go = threading.Event(), threading.Event()

    def write() -> None:
        started.wait()
        write_meta(ledger, "note", "new")  # its commit waits for the reader
        go.set()

    writer = threading.Thread(target=write)
    writer.start()
    with ledger.reading():
        before = read_meta(ledger, "note")
        started.set()
        assert not go.wait(0.3)
        assert read_meta(ledger, "note") == before is None
    writer.join()
    assert read_meta(ledger, "note") == "new"


def test_a_reader_cannot_write(ledger: Ledger, home: Path) -> None:
    with ledger.reading() as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    with Ledger.open(home, read_only=True) as other:
        assert other.read_only
        with pytest.raises(BadInput, match="opened read-only"):
            write_meta(other, "a", "b")


def test_a_read_that_writes_is_told_and_the_reader_is_still_good(ledger: Ledger) -> None:
    with pytest.raises(BadFile, match="readonly"):
        ledger.read("INSERT INTO meta VALUES ('a', 'b')")
    assert read_meta(ledger, "a") is None


def test_threads_share_one_writer_and_lose_nothing(ledger: Ledger) -> None:
    def work(number: int) -> None:
        for turn in range(25):
            key = f"thread{number}-{turn:04d}"
            record(ledger, [Answer(key, 1 + turn % 12, f"annotator {number}", "label", 1 + number % 3)])
            assert ledger.read("SELECT 1 FROM event WHERE key = ?", (key,))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.read("SELECT count(*) FROM event")[0][0] == 200
    assert ledger.read("PRAGMA integrity_check")[0][0] == "ok"


def test_a_closed_ledger_says_so(home: Path) -> None:
    ledger = Ledger.create(home)
    ledger.close()
    ledger.close()
    with pytest.raises(BadInput, match="was closed; open it again"):
        read_meta(ledger, "campaign")
    with pytest.raises(BadInput, match="was closed"), ledger.writing():
        pass


def test_a_foreign_key_that_points_nowhere_is_refused(ledger: Ledger) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), ledger.writing() as connection:
        connection.execute("INSERT INTO lease VALUES (999, 'ann', 1)")


# Append only


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE event SET class_id = 2",
        "DELETE FROM event",
        "INSERT OR REPLACE INTO event SELECT * FROM event",
        "INSERT OR REPLACE INTO event (key, image_id, annotator, kind, at, source) "
        "VALUES ('keykeykey', 2, 'eve', 'skip', 1, 'api')",
        "UPDATE class_event SET new = 'x'",
        "DELETE FROM class_event",
        "INSERT OR REPLACE INTO class_event SELECT * FROM class_event",
    ],
)
def test_what_was_said_cannot_be_unsaid(ledger: Ledger, sql: str) -> None:
    record(ledger, [Answer("keykeykey", 1, "ann", "label", 1)])
    before = [tuple(row) for table in ("event", "class_event") for row in ledger.read(f"SELECT * FROM {table}")]
    with pytest.raises(sqlite3.IntegrityError, match="are added, never"), ledger.writing() as connection:
        connection.execute(sql)
    after = [tuple(row) for table in ("event", "class_event") for row in ledger.read(f"SELECT * FROM {table}")]
    assert after == before


@pytest.mark.parametrize(
    "columns",
    [
        {"kind": "label", "class_id": None},
        {"kind": "other", "class_id": 1},
        {"kind": "undo", "class_id": None},
        {"kind": "like", "class_id": None},
        {"source": "rumour"},
        {"key": ""},
        {"key": "k" * 65},
    ],
)
def test_the_ledger_itself_refuses_events_that_mean_nothing(ledger: Ledger, columns: dict[str, object]) -> None:
    row = {"key": "keykeykey", "kind": "label", "class_id": 1, "source": "api", **columns}
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"), ledger.writing() as connection:
        connection.execute(
            "INSERT INTO event (key, image_id, annotator, kind, class_id, at, source) "
            "VALUES (:key, 1, 'ann', :kind, :class_id, 1, :source)",
            row,
        )


# Death at any time

LABELLER = """
import sys
from tailwise.campaign.answers import Answer, record
from tailwise.campaign.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
start = int(sys.argv[2])
if sys.argv[3] == "log":
    assert ledger.write_ahead()
for number in range(start, start + 100_000):
    answers = [Answer(f"answer-{number}-{i}", 1 + (number + i) % 12, "ann", "label", 1 + number % 3) for i in range(3)]
    record(ledger, answers)
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["journal", "log"])
def test_what_was_acknowledged_survives_kill_9_at_any_time(ledger: Ledger, home: Path, how: str) -> None:
    ledger.close()
    rng = np.random.default_rng(0)
    acknowledged: set[int] = set()
    for life in range(6):
        process = child(LABELLER, home, life * 1_000_000, how)
        acknowledged.add(int(first_line(process)))
        time.sleep(float(rng.uniform(0, 0.15)))
        process.kill()
        out, _ = process.communicate()
        acknowledged.update(int(line) for line in out.splitlines()[:-1])  # the last may be half a line
        with Ledger.open(home, read_only=bool(life % 2)) as after:
            assert after.read("PRAGMA integrity_check")[0][0] == "ok"
            keys = {row[0] for row in after.read("SELECT key FROM event")}
        numbers = {int(key.split("-")[1]) for key in keys}
        assert acknowledged <= numbers
        assert keys == {f"answer-{number}-{i}" for number in numbers for i in range(3)}  # all of a call, or nothing
    assert len(acknowledged) > 6


HALF_A_COMMIT = """
import os, signal, sys
from tailwise.campaign.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
with ledger.writing() as connection:
    connection.execute("PRAGMA cache_size = 2")  # pages go to the file before the commit
    for number in range(2000):
        connection.execute("INSERT INTO meta VALUES (?, ?)", (f"half {number}", "x" * 1000))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("read_only", [True, False])
def test_half_a_commit_is_taken_back_by_whoever_comes_next(ledger: Ledger, home: Path, read_only: bool) -> None:
    write_meta(ledger, "before", "1")
    ledger.close()
    process = child(HALF_A_COMMIT, home)
    process.communicate()
    journal = home / f"{LEDGER_FILE}-journal"
    assert journal.stat().st_size > 0  # a hot journal: the file alone is not whole
    with Ledger.open(home, read_only=read_only) as after:
        assert read_meta(after, "before") == "1"
        assert after.read("SELECT count(*) FROM meta WHERE key LIKE 'half%'")[0][0] == 0
        assert after.read("PRAGMA integrity_check")[0][0] == "ok"
    assert not journal.exists() or journal.stat().st_size == 0


def test_an_open_reader_goes_on_after_a_writer_died_in_a_commit(ledger: Ledger, home: Path) -> None:
    ledger.close()
    with Ledger.open(home, read_only=True) as reader:
        assert read_meta(reader, "half 0") is None
        child(HALF_A_COMMIT, home).communicate()
        assert read_meta(reader, "half 0") is None
        assert len(reader.read("SELECT * FROM class")) == 3


def test_a_full_disk_is_told_and_nothing_is_half_written(ledger: Ledger) -> None:
    assert ledger._writer is not None
    pages = ledger.read("PRAGMA page_count")[0][0]
    ledger._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    much = [(f"much {number}", "x" * 1000) for number in range(1000)]
    with pytest.raises(BadFile, match="disk is full; free space"), ledger.writing() as connection:
        connection.executemany("INSERT INTO meta VALUES (?, ?)", much)
    assert ledger.read("SELECT count(*) FROM meta WHERE key LIKE 'much%'")[0][0] == 0
    ledger._writer.execute("PRAGMA max_page_count = 1000000")
    write_meta(ledger, "little", "1")
    assert read_meta(ledger, "little") == "1"


# A log beside the file


def beside(home: Path) -> set[str]:
    """What lies beside the file and is not empty."""
    return {path.suffix for path in home.glob(f"{LEDGER_FILE}-*") if path.stat().st_size}


def is_one_file(home: Path) -> bool:
    """Whether the file alone is the ledger: its header says so, and nothing lies beside it."""
    return (home / LEDGER_FILE).read_bytes()[18:20] == b"\1\1" and not beside(home)


def test_with_a_log_a_commit_does_not_wait_for_who_reads(ledger: Ledger) -> None:
    assert ledger.write_ahead()
    seen: list[int] = []

    def write() -> None:
        write_meta(ledger, "written", "meanwhile")
        seen.append(1)

    with ledger.reading():
        before = read_meta(ledger, "written")
        thread = threading.Thread(target=write)
        thread.start()
        thread.join(30)
        assert (seen, before, read_meta(ledger, "written")) == ([1], None, None)
    assert read_meta(ledger, "written") == "meanwhile"


def test_closing_brings_the_log_into_the_one_file(ledger: Ledger, home: Path) -> None:
    ledger.write_ahead()
    write_meta(ledger, "in the log", "1")
    assert not is_one_file(home)
    ledger.close()
    assert is_one_file(home)
    with Ledger.open(home, read_only=True) as after:
        assert read_meta(after, "in the log") == "1"
    assert is_one_file(home)


def test_a_log_that_somebody_reads_stays_until_the_next_writer_comes(ledger: Ledger, home: Path) -> None:
    ledger.write_ahead()
    write_meta(ledger, "first", "1")
    with Ledger.open(home, read_only=True) as reader:
        with reader.reading():
            ledger.close()
        with Ledger.open(home) as second:  # it cannot leave the log either, and writes to it
            write_meta(second, "second", "2")
        assert [read_meta(reader, key) for key in ("first", "second")] == ["1", "2"]
        assert not is_one_file(home)
    Ledger.open(home).close()
    assert is_one_file(home)
    with Ledger.open(home, read_only=True) as after:
        assert [read_meta(after, key) for key in ("first", "second")] == ["1", "2"]


DIES_WITH_A_LOG = """
import os, signal, sys
from tailwise.campaign.ledger import Ledger, write_meta
ledger = Ledger.open(sys.argv[1])
assert ledger.write_ahead()
write_meta(ledger, "said", "before it died")
with ledger.writing() as connection:
    connection.execute("INSERT INTO meta VALUES ('half', 'x')")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("read_only", [True, False])
def test_what_a_killed_program_left_in_its_log_is_there_for_whoever_comes_next(
    ledger: Ledger, home: Path, read_only: bool
) -> None:
    ledger.close()
    child(DIES_WITH_A_LOG, home).communicate()
    assert "said" not in str((home / LEDGER_FILE).read_bytes())  # it is in the log alone
    with Ledger.open(home, read_only=read_only) as after:
        assert (read_meta(after, "said"), read_meta(after, "half")) == ("before it died", None)
        assert after.read("PRAGMA integrity_check")[0][0] == "ok"
        assert is_one_file(home) != read_only


@pytest.mark.usefixtures("ledger")
def test_a_ledger_that_cannot_write_has_no_log(home: Path) -> None:
    with Ledger.open(home, read_only=True) as reader:
        assert not reader.write_ahead()
    assert is_one_file(home)


# Backups


def test_a_backup_is_a_whole_ledger_and_waits_for_nobody(ledger: Ledger, tmp_path: Path) -> None:
    record(ledger, [Answer("keykeykey", 1, "ann", "label", 1)])
    copy = ledger.back_up()
    assert copy.parent == ledger.folder / "backups"
    elsewhere = tmp_path / "restored"
    elsewhere.mkdir()
    (elsewhere / LEDGER_FILE).write_bytes(copy.read_bytes())
    with Ledger.open(elsewhere) as restored:
        assert [tuple(row) for row in restored.read("SELECT * FROM event")] == [
            tuple(row) for row in ledger.read("SELECT * FROM event")
        ]
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


def test_a_backup_of_a_ledger_with_a_log_is_one_file(ledger: Ledger, tmp_path: Path) -> None:
    ledger.write_ahead()
    write_meta(ledger, "in the log", "1")
    copy = ledger.back_up()
    elsewhere = tmp_path / "restored"
    elsewhere.mkdir()
    copy.replace(elsewhere / LEDGER_FILE)
    assert is_one_file(elsewhere)
    assert list(copy.parent.iterdir()) == []
    with Ledger.open(elsewhere, read_only=True) as restored:
        assert read_meta(restored, "in the log") == "1"


def test_a_newer_ledger_is_refused_for_writing_and_can_be_read(ledger: Ledger, home: Path) -> None:
    ledger.close()
    newer = connect(home / LEDGER_FILE, "rw")
    newer.execute(f"PRAGMA user_version = {CURRENT_SCHEMA + 1}")
    newer.close()
    before = (home / LEDGER_FILE).read_bytes()
    with pytest.raises(NewerLedger, match=f"schema {CURRENT_SCHEMA + 1}, written by a newer Tailwise"):
        Ledger.open(home)
    with Ledger.open(home, read_only=True) as reader:
        assert len(reader.read("SELECT * FROM class")) == 3
    assert (home / LEDGER_FILE).read_bytes() == before
    assert holder_of(home) is None
