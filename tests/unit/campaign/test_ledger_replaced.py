"""The ledger's file is deleted, moved or replaced while a campaign is open, as sync tools do."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import tailwise
from tailwise.campaign.database import BACKUPS, LEDGER_FILE
from tailwise.campaign.ledger import Ledger, read_meta, write_meta
from tailwise.errors import LedgerFault, LedgerReplaced

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not let go of a file that is in use")


def delete(path: Path) -> None:
    path.unlink()


def move_away(path: Path) -> None:
    path.rename(path.with_name("moved.sqlite"))


def replace_with_a_copy(path: Path) -> None:
    """What a sync tool does: another file, complete, renamed over the one in use."""
    copy = path.with_name("copy.sqlite")
    shutil.copyfile(path, copy)
    copy.replace(path)


def rewrite_with_the_same_bytes(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


WAYS = (delete, move_away, replace_with_a_copy, rewrite_with_the_same_bytes)


def notes(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        return [row[0] for row in file.execute("SELECT key FROM meta WHERE key LIKE 'note%' ORDER BY key")]


@pytest.mark.parametrize("strike", WAYS)
@pytest.mark.parametrize("ahead", [False, True])
def test_nothing_is_called_saved_after_the_file_was_replaced(
    ledger: Ledger, strike: Callable[[Path], None], ahead: bool
) -> None:
    if ahead:
        assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    strike(ledger.path)
    for _ in range(2):  # and not only once
        with pytest.raises(LedgerReplaced, match="was deleted or replaced while the campaign was open"):
            write_meta(ledger, "note 2", "after")
        with pytest.raises(LedgerReplaced):
            read_meta(ledger, "note 1")
        with pytest.raises(LedgerReplaced):
            ledger.back_up()


@pytest.mark.parametrize("strike", WAYS)
@pytest.mark.parametrize("ahead", [False, True])
def test_a_file_that_is_replaced_during_a_transaction_is_noticed_at_its_end(
    ledger: Ledger, strike: Callable[[Path], None], ahead: bool
) -> None:
    if ahead:
        assert ledger.write_ahead()

    def write() -> None:
        with ledger.writing() as connection:
            connection.execute("INSERT INTO meta VALUES ('note 1', 'during')")
            strike(ledger.path)

    with pytest.raises(LedgerReplaced):
        write()


@pytest.mark.parametrize("strike", WAYS)
def test_what_was_saved_before_is_kept_in_a_backup(ledger: Ledger, strike: Callable[[Path], None]) -> None:
    """With a log written ahead, the newest answers are not in the file itself yet."""
    assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    strike(ledger.path)
    with pytest.raises(LedgerReplaced, match=r"backups.campaign-\w+-replaced\.sqlite"):
        write_meta(ledger, "note 2", "after")
    (copy,) = (ledger.folder / BACKUPS).glob("*-replaced.sqlite")
    assert notes(copy) == ["note 1"]


def test_a_reader_that_notices_first_keeps_a_copy_too(ledger: Ledger) -> None:
    assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    ledger.path.unlink()
    with pytest.raises(LedgerReplaced):
        read_meta(ledger, "note 1")
    (copy,) = (ledger.folder / BACKUPS).glob("*-replaced.sqlite")
    assert notes(copy) == ["note 1"]


def test_a_file_that_is_moved_back_has_all_that_was_saved(ledger: Ledger, home: Path) -> None:
    assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    move_away(ledger.path)
    with pytest.raises(LedgerReplaced):
        write_meta(ledger, "note 2", "after")
    (home / "moved.sqlite").rename(ledger.path)
    with pytest.raises(LedgerReplaced):  # until it is opened again
        write_meta(ledger, "note 2", "after")
    ledger.close()
    with Ledger.open(home) as again:
        assert read_meta(again, "note 1") == "before"
        write_meta(again, "note 2", "after")
    assert notes(home / LEDGER_FILE) == ["note 1", "note 2"]


def test_the_file_that_took_its_place_is_left_as_it_is(ledger: Ledger, home: Path) -> None:
    """The log of the old file must not be played into the new one, not even after a crash."""
    shutil.copyfile(ledger.path, home / "older.sqlite")
    older = (home / "older.sqlite").read_bytes()
    assert ledger.write_ahead()
    for number in range(50):
        write_meta(ledger, f"note {number:02}", "x" * 2000)
    (home / "older.sqlite").replace(ledger.path)
    with pytest.raises(LedgerReplaced):
        write_meta(ledger, "note", "after")
    crashed = home.with_name("crashed")
    shutil.copytree(home, crashed)  # as the disk is now, while the ledger is still open
    assert notes(crashed / LEDGER_FILE) == []
    ledger.close()
    assert ledger.path.read_bytes() == older
    with Ledger.open(home) as again:
        write_meta(again, "note", "new")
        assert again.read("PRAGMA integrity_check")[0][0] == "ok"


def test_a_log_that_is_deleted_stops_the_writer_and_loses_nothing(ledger: Ledger, home: Path) -> None:
    assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    (home / f"{LEDGER_FILE}-wal").unlink()
    with pytest.raises(LedgerReplaced, match=r"campaign\.sqlite-wal was deleted or replaced"):
        write_meta(ledger, "note 2", "after")
    ledger.close()
    assert notes(home / LEDGER_FILE) == ["note 1"]


def test_a_folder_that_is_gone_is_not_made_again(ledger: Ledger, home: Path) -> None:
    home.rename(home.with_name("elsewhere"))
    with pytest.raises(LedgerReplaced):
        write_meta(ledger, "note", "after")
    ledger.close()
    assert not home.exists()


def test_a_campaign_that_is_only_read_says_so_too(ledger: Ledger, home: Path) -> None:
    ledger.close()
    with Ledger.open(home, read_only=True) as reader:
        assert read_meta(reader, "note 1") is None
        replace_with_a_copy(reader.path)
        with pytest.raises(LedgerReplaced, match="open the campaign again"):
            read_meta(reader, "note 1")
    assert not (home / BACKUPS).exists()


def test_a_file_that_cannot_be_looked_at_is_an_error_for_now(ledger: Ledger, home: Path) -> None:
    """A fault of the disk says nothing of the file: when it is over, writing goes on."""
    elsewhere = home.rename(home.with_name("elsewhere"))
    home.symlink_to(home)  # leads nowhere, without a file being missing
    with pytest.raises(LedgerFault, match="cannot use") as told:
        write_meta(ledger, "note", "x")
    assert not isinstance(told.value, LedgerReplaced)
    home.unlink()
    elsewhere.rename(home)
    write_meta(ledger, "note", "x")
    assert read_meta(ledger, "note") == "x"


def test_many_threads_lose_nothing_that_was_called_saved(ledger: Ledger, home: Path) -> None:
    """What was called saved is in the backup; all that came later was refused."""
    assert ledger.write_ahead()
    saved: list[str] = []
    refused: list[str] = []
    begun, end = threading.Event(), time.monotonic() + 60

    def write(name: str) -> None:
        number = mine = 0
        while mine < 3 and time.monotonic() < end:  # until it was refused three times
            key, number = f"note {name}{number:06}", number + 1
            try:
                write_meta(ledger, key, "x")
                saved.append(key)
            except LedgerReplaced:
                refused.append(key)
                mine += 1
            if len(saved) > 20:
                begun.set()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    replace_with_a_copy(ledger.path)
    for thread in threads:
        thread.join()
    assert len(refused) == 9
    (copy,) = (home / BACKUPS).glob("*-replaced.sqlite")
    assert set(saved) <= set(notes(copy))


def test_many_threads_that_notice_at_once_keep_one_copy(ledger: Ledger, home: Path) -> None:
    assert ledger.write_ahead()
    write_meta(ledger, "note 1", "before")
    ledger.path.unlink()
    together = threading.Barrier(8)
    refused: list[str] = []

    def ask(number: int) -> None:
        together.wait()
        for _ in range(20):
            try:
                if number % 2:
                    write_meta(ledger, "note 2", "after")
                else:
                    read_meta(ledger, "note 1")
            except LedgerReplaced as error:
                refused.append(str(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (copy,) = (home / BACKUPS).glob("*-replaced.sqlite")
    assert len(refused) == 160
    assert copy.name in refused[-1]


def test_a_label_of_a_python_program_is_refused_too(tmp_path: Path, photos: Path) -> None:
    with tailwise.Campaign.create(tmp_path / "campaign", photos, ["cat", "dog"]) as campaign:
        campaign.label("a.bmp", "cat", annotator="ann")
        replace_with_a_copy(campaign.ledger.path)
        with pytest.raises(LedgerReplaced, match="open the campaign again"):
            campaign.label("b.bmp", "dog", annotator="ann")
    with tailwise.Campaign.open(tmp_path / "campaign") as campaign:
        campaign.label("b.bmp", "dog", annotator="ann")
        assert campaign.status().labelled == 2
