from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.database import LEDGER_FILE, Step, connect, make_new, migrate, read_steps
from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadFile, LedgerBusy, NewerLedger

NOW = read_steps()[-1].number  # the newest schema
LAST = NOW + 2
LATER = (
    Step(NOW + 1, "ALTER TABLE class ADD COLUMN colour TEXT; UPDATE class SET colour = 'red';"),
    Step(LAST, "CREATE TABLE memo (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;"),
)
STEPS = (*read_steps(), *LATER)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def events(path: Path) -> list[tuple[object, ...]]:
    with closing(connect(path, "ro")) as connection:
        return [tuple(row) for row in connection.execute("SELECT * FROM event")]


def schema(path: Path) -> int:
    with closing(connect(path, "ro")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
def old(ledger: Ledger, home: Path) -> Path:
    """The folder of a closed campaign of the first schema, with a hundred answers."""
    record(ledger, [Answer(f"answer-{n:04d}", 1 + n % 12, "ann", "label", 1 + n % 3) for n in range(100)])
    ledger.close()
    return home


def test_an_older_ledger_is_brought_up_to_date_and_the_old_one_kept(old: Path) -> None:
    said, before = events(old / LEDGER_FILE), schema(old / LEDGER_FILE)
    with Ledger.open(old, steps=STEPS) as ledger:
        assert [row["colour"] for row in ledger.read("SELECT colour FROM class")] == ["red"] * 3
        with ledger.writing() as connection:
            connection.execute("INSERT INTO memo (text) VALUES ('new')")
            with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
                connection.execute("DELETE FROM event")
    assert (schema(old / LEDGER_FILE), events(old / LEDGER_FILE)) == (LAST, said)
    (kept,) = (old / "backups").iterdir()
    assert (schema(kept), events(kept)) == (before, said)
    assert f"before-schema-{LAST}" in kept.name
    assert {path.name for path in old.iterdir()} - {f"{LEDGER_FILE}-journal"} == {LEDGER_FILE, "backups", "lock"}


def test_opening_again_does_not_migrate_again(old: Path) -> None:
    for _ in range(3):
        Ledger.open(old, steps=STEPS).close()
    assert len(list((old / "backups").iterdir())) == 1


def test_a_reader_does_not_migrate(old: Path) -> None:
    before = digest(old / LEDGER_FILE)
    says = f"has schema {NOW}, and this Tailwise reads {LAST}; open the campaign for writing once"
    with pytest.raises(BadFile, match=says):
        Ledger.open(old, read_only=True, steps=STEPS)
    assert digest(old / LEDGER_FILE) == before
    assert not (old / "backups").exists()


def test_once_migrated_the_former_version_refuses_to_write(old: Path) -> None:
    Ledger.open(old, steps=STEPS).close()
    with pytest.raises(NewerLedger, match=f"schema {LAST}"):
        Ledger.open(old)
    with Ledger.open(old, read_only=True) as reader:
        assert len(reader.read("SELECT * FROM event")) == 100


LOSES_EVENTS = """
DROP TRIGGER event_is_not_deleted;
DELETE FROM event WHERE id = 50;
"""
POINTS_NOWHERE = "INSERT INTO lease VALUES (999, 'ann', 1);"
NO_SQL = "CREATE TABEL note (id);"


@pytest.mark.parametrize(
    ("sql", "error", "says"),
    [
        (LOSES_EVENTS, BadFile, "it has 99 events, not 100"),
        (POINTS_NOWHERE, BadFile, "lease has a row that points nowhere"),
        (NO_SQL, sqlite3.OperationalError, "syntax error"),
    ],
)
def test_a_step_that_does_harm_leaves_the_ledger_as_it_was(
    old: Path, sql: str, error: type[Exception], says: str
) -> None:
    before = digest(old / LEDGER_FILE)
    with pytest.raises(error, match=says):
        Ledger.open(old, steps=(*read_steps(), Step(NOW + 1, sql)))
    assert digest(old / LEDGER_FILE) == before
    assert not list(old.glob(".*"))
    with Ledger.open(old, wait=0) as ledger:  # and nobody holds it
        assert len(ledger.read("SELECT * FROM event")) == 100


def test_a_table_may_be_rebuilt(old: Path) -> None:
    rebuilt = """
    CREATE TABLE class_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, position INTEGER NOT NULL,
        added_at INTEGER NOT NULL, retired_at INTEGER, description TEXT, hotkey TEXT, note TEXT) STRICT;
    INSERT INTO class_new SELECT *, '' FROM class;
    PRAGMA legacy_alter_table = ON;
    DROP TABLE class;
    ALTER TABLE class_new RENAME TO class;
    PRAGMA legacy_alter_table = OFF;
    """
    with Ledger.open(old, steps=(*read_steps(), Step(NOW + 1, rebuilt))) as ledger:
        assert [row["name"] for row in ledger.read("SELECT * FROM class")] == ["cat", "dog", "eel"]
        assert len(ledger.read("SELECT * FROM current_label")) == 12


# Kills itself before the n-th thing that touches the disk: opening, removing, renaming and connecting are announced.
DIES = """
import os, signal, sys
left = int(sys.argv[1])
ANNOUNCED = {"open", "os.rename", "os.remove", "os.mkdir", "sqlite3.connect", "sqlite3.connect/handle"}
armed = False

def hook(event, arguments):
    global left
    if armed and event in ANNOUNCED:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
"""
MIGRATES = """
from pathlib import Path
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.database import Step, read_steps
steps = (*read_steps(), *(Step(int(number), sql) for number, sql in eval(sys.argv[3])))
armed = True
Ledger.open(sys.argv[2], steps=steps).close()
"""
CREATES = """
from tailwise.campaign.ledger import Ledger
armed = True
Ledger.create(sys.argv[2]).close()
"""


def dies_everywhere(code: str, folder: Callable[[], Path], check: Callable[[Path], None], *more: str) -> int:
    """Run the code until it is not killed any more, killing it one announcement later each time."""
    for announcements in range(1, 200):
        home = folder()
        done = subprocess.run(
            [sys.executable, "-c", DIES + code, str(announcements), str(home), *more], capture_output=True, text=True
        )
        check(home)
        if done.returncode == 0:
            return announcements
        assert done.returncode == -9, done.stderr
    raise AssertionError("it never ended")


@pytest.mark.slow
def test_a_kill_anywhere_in_a_migration_leaves_the_old_ledger_or_the_new_one(old: Path, tmp_path: Path) -> None:
    said, content, found = events(old / LEDGER_FILE), (old / LEDGER_FILE).read_bytes(), []

    def fresh() -> Path:
        home = tmp_path / f"copy {len(found)}"
        home.mkdir()
        (home / LEDGER_FILE).write_bytes(content)
        return home

    def check(home: Path) -> None:
        found.append(schema(home / LEDGER_FILE))
        assert events(home / LEDGER_FILE) == said
        if found[-1] == LAST:
            (kept,) = (home / "backups").glob("*.sqlite")
            assert (schema(kept), events(kept)) == (NOW, said)
        with Ledger.open(home, steps=STEPS) as again:
            assert len(again.read("SELECT * FROM memo")) == 0
            assert len(again.read("SELECT * FROM event")) == 100
        assert not list(home.glob(".*.part*"))

    steps = repr([(step.number, step.sql) for step in LATER])
    tried = dies_everywhere(MIGRATES, fresh, check, steps)
    assert tried > 10
    assert set(found) == {NOW, LAST}


@pytest.mark.slow
def test_a_kill_anywhere_in_the_making_leaves_no_campaign_or_a_whole_one(tmp_path: Path) -> None:
    found = []

    def fresh() -> Path:
        return tmp_path / f"new {len(found)}"

    def check(home: Path) -> None:
        made = (home / LEDGER_FILE).exists()
        found.append(made)
        with Ledger.open(home) if made else Ledger.create(home) as ledger:
            assert ledger.read("SELECT count(*) FROM meta")[0][0] == 2

    assert dies_everywhere(CREATES, fresh, check) > 5
    assert set(found) == {True, False}


def test_what_a_killed_migration_left_beside_is_removed(old: Path) -> None:
    left = [old / f".{LEDGER_FILE}.part", old / f".{LEDGER_FILE}.part-journal"]
    for path in left:
        path.write_bytes(b"half a ledger")
    Ledger.open(old, steps=STEPS).close()
    assert not any(path.exists() for path in left)
    assert schema(old / LEDGER_FILE) == LAST


def test_migrating_directly_gives_the_path_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / LEDGER_FILE
    make_new(path, read_steps(), {"campaign": "x", "created": "1"})
    kept = migrate(path, tmp_path / "backups", STEPS)
    assert kept.parent.name == "backups"
    assert (schema(kept), schema(path)) == (NOW, LAST)


DIES_WITH_A_LOG = """
import os, signal, sys
from tailwise.campaign.answers import Answer, record
from tailwise.campaign.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
assert ledger.write_ahead()
record(ledger, [Answer("in-the-log", 1, "ann", "label", 1)])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_server_left_in_its_log_is_migrated_too(old: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES_WITH_A_LOG, str(old)], check=False)
    assert (old / f"{LEDGER_FILE}-wal").stat().st_size > 0
    with Ledger.open(old, steps=STEPS) as ledger:
        assert ledger.read("SELECT count(*) FROM event")[0][0] == 101
    assert not (old / f"{LEDGER_FILE}-wal").exists()  # it would be played into the new file
    assert schema(old / LEDGER_FILE) == LAST
    (kept,) = (old / "backups").iterdir()
    assert (schema(kept), len(events(kept))) == (NOW, 101)


def test_a_ledger_whose_log_somebody_reads_is_not_migrated(old: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES_WITH_A_LOG, str(old)], check=False)
    with Ledger.open(old, read_only=True) as reader:
        assert reader.read("SELECT count(*) FROM event")[0][0] == 101
        with pytest.raises(LedgerBusy, match="while somebody reads it; try again"):
            Ledger.open(old, steps=STEPS)
        assert reader.read("SELECT count(*) FROM event")[0][0] == 101
    with Ledger.open(old, steps=STEPS) as ledger:
        assert ledger.read("SELECT count(*) FROM event")[0][0] == 101
