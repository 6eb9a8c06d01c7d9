"""Who can read a campaign: what people said is for the owner, as the token is."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailwise.campaign.database import BACKUPS, LEDGER_FILE, Step, read_steps, repair_ledger, restore_backup
from tailwise.campaign.ledger import Ledger, write_meta
from tailwise.campaign.service import Campaign

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


@pytest.fixture(autouse=True, params=[0o022, 0o000, 0o002])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> list[str]:
    """Files that others could read if the folder let them in, but for the note of who holds the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("lock")]
    return [path.name for path in files if mode(path) != 0o600]


def test_a_new_campaign_is_for_its_owner_alone(home: Path) -> None:
    with Ledger.create(home) as ledger:
        assert mode(home) == 0o700
        assert ledger.write_ahead()
        write_meta(ledger, "note", "x")
        assert (home / f"{LEDGER_FILE}-wal").exists()
        ledger.back_up()
        assert open_to_others(home) == []
        assert mode(home / BACKUPS) == 0o700
    assert open_to_others(home) == []


def test_an_empty_folder_that_was_there_becomes_private_and_a_used_one_stays(tmp_path: Path) -> None:
    empty, used = tmp_path / "empty", tmp_path / "used"
    for folder in (empty, used):
        folder.mkdir()
        folder.chmod(0o755)
    (used / "notes.txt").write_text("mine")
    (used / "notes.txt").chmod(0o644)
    for folder in (empty, used):
        Ledger.create(folder).close()
        assert mode(folder / LEDGER_FILE) == 0o600
    assert (mode(empty), mode(used), mode(used / "notes.txt")) == (0o700, 0o755, 0o644)


def test_folders_above_a_campaign_are_as_the_user_has_them(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    Ledger.create(tmp_path / "above" / "campaign").close()
    assert mode(tmp_path / "above") == mode(plain)


def test_who_lets_others_in_is_not_overruled(home: Path) -> None:
    """A team that shares a machine may open a campaign to its group."""
    Ledger.create(home).close()
    home.chmod(0o750)
    (home / LEDGER_FILE).chmod(0o640)
    steps = (*read_steps(), Step(read_steps()[-1].number + 1, "CREATE TABLE more (x INTEGER) STRICT;"))
    with Ledger.open(home, steps=steps) as ledger:  # writes the file anew
        write_meta(ledger, "note", "x")
    assert (mode(home), mode(home / LEDGER_FILE)) == (0o750, 0o640)
    (backup,) = (home / BACKUPS).iterdir()
    assert mode(backup) == 0o600


@pytest.mark.parametrize("fix", [repair_ledger, restore_backup])
def test_a_ledger_that_was_repaired_is_as_private_as_before(home: Path, fix: object) -> None:
    assert callable(fix)
    with Ledger.create(home) as ledger:
        ledger.back_up()
    fix(home)
    assert open_to_others(home) == []


def test_a_backup_elsewhere_is_for_its_owner_alone(tmp_path: Path, photos: Path) -> None:
    with Campaign.create(tmp_path / "campaign", photos, ["cat"]) as campaign:
        assert mode(campaign.backup(tmp_path / "friday.sqlite")) == 0o600
        disk = tmp_path / "empty disk"
        disk.mkdir()
        disk.chmod(0o755)
        campaign.backup(disk / "friday.sqlite")
        assert mode(disk) == 0o755
    assert open_to_others(tmp_path / "campaign") == []


def test_a_campaign_on_a_disk_without_modes_is_made_all_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network drives refuse to change them."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    home.mkdir()
    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    with Ledger.create(home) as ledger:
        write_meta(ledger, "note", "x")
    shutil.rmtree(home)
