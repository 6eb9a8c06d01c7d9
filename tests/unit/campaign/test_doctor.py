"""The doctor: every damage is done for real, found, and mended where that can be; looking changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.answers import settle
from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.database import repair_ledger, restore_backup, sound_backups
from tailwise.campaign.doctor import FIXES, Finding, diagnose, examine, fix
from tailwise.campaign.features import embed
from tailwise.campaign.images import list_images, locate
from tailwise.campaign.leases import lease
from tailwise.campaign.ledger import CURRENT_SCHEMA, Ledger
from tailwise.campaign.models import load
from tailwise.campaign.rounds import list_models
from tailwise.errors import BadFile, BadInput, UnknownName

MakeStudio = Callable[..., Any]


@pytest.fixture
def studio(make_studio: MakeStudio) -> Any:  # noqa: ANN401 - a Studio
    """Healthy: two classes, a round by a model, a backup."""
    made = make_studio({"a": 10, "b": 10})
    made.say([1, 2, 11, 12])
    next_round(made.campaign, RoundOptions(4))
    made.campaign.backup()
    return made


def names(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings]


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    return findings[0]


def tree(folder: Path) -> dict[str, bytes]:
    return {path.as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def hurt(path: Path, place: float = 0.5) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 0xFF
    path.write_bytes(content)


def test_nothing_is_found_in_a_healthy_campaign_and_looking_changes_nothing(studio: Any) -> None:  # noqa: ANN401
    before = tree(studio.ledger.folder)
    assert examine(studio.campaign) == []
    assert tree(studio.ledger.folder) == before
    assert fix(studio.campaign, ["all"]) == []
    assert diagnose(studio.ledger.folder) == []


def test_files_that_moved_or_went_are_found_before_anybody_indexes(studio: Any) -> None:  # noqa: ANN401
    (studio.photos / "a-000.png").rename(studio.photos / "renamed.png")
    (studio.photos / "a-001.png").unlink()
    found = only(examine(studio.campaign))
    assert (found.name, found.count, found.severity) == ("index", 2, "warning")
    left = only(fix(studio.campaign, ["index"]))
    assert (left.name, left.count) == ("missing", 1)
    assert locate(studio.ledger, "renamed.png").id == 1
    Image.new("RGB", (4, 4), (9, 9, 9)).save(studio.photos / "a-005.png")  # another picture, under a known name
    studio.campaign.index()
    assert "missing" in names(examine(studio.campaign))


def test_a_missing_file_that_came_back_is_mended(studio: Any) -> None:  # noqa: ANN401
    away = studio.photos.parent / "a-001.png"
    (studio.photos / "a-001.png").rename(away)
    studio.campaign.index()
    assert only(examine(studio.campaign)).what == "1 image whose file is missing: a-001.png"
    away.rename(studio.photos / "a-001.png")
    assert fix(studio.campaign, ["missing"]) == []
    assert len(list_images(studio.ledger, usable=True)) == 20


def test_bytes_that_changed_under_a_label_are_accepted_only_by_name(studio: Any) -> None:  # noqa: ANN401
    Image.new("RGB", (20, 20), (1, 2, 3)).save(studio.photos / "a-000.png")
    studio.campaign.index()
    found = only(examine(studio.campaign))
    assert (found.name, found.severity) == ("changed", "warning")
    assert names(fix(studio.campaign, ["all"])) == ["changed"]
    assert fix(studio.campaign, ["changed"]) == []
    assert locate(studio.ledger, "a-000.png").usable


def test_unreadable_images_are_named_with_their_reason_and_looked_at_again(studio: Any) -> None:  # noqa: ANN401
    (studio.photos / "broken.png").write_bytes(b"not a picture")
    studio.campaign.index()
    found = only(examine(studio.campaign))
    assert found.name == "unreadable"
    assert found.what.startswith("1 image that cannot be read: broken.png (it is no JPEG")
    Image.new("RGB", (8, 8), (200, 1, 1)).save(studio.photos / "broken.png")
    assert fix(studio.campaign, ["unreadable"]) == []


def test_a_folder_that_is_not_mounted_is_one_finding_and_no_fix_is_offered(studio: Any) -> None:  # noqa: ANN401
    studio.photos.rename(studio.photos.with_name("away"))
    found = only(examine(studio.campaign))
    assert (found.name, found.severity, found.fix) == ("folders", "error", None)
    assert len(fix(studio.campaign, ["all"])) == 1
    assert len(list_images(studio.ledger, usable=True)) == 20


def test_after_the_images_have_moved_the_old_folder_is_no_concern(studio: Any, tmp_path: Path) -> None:  # noqa: ANN401
    studio.photos.rename(tmp_path / "moved")
    shutil.rmtree(studio.ledger.folder / "features")
    with pytest.raises(BadFile, match=r"is its disk mounted\? If .* moved: tailwise init .* --images NEW"):
        next_round(studio.campaign, RoundOptions(4, allow_unfinished=True))
    studio.campaign.index(tmp_path / "moved")
    embed(studio.ledger, backbone="simple")
    assert examine(studio.campaign) == []
    (tmp_path / "moved" / "broken.png").write_bytes(b"not a picture")
    studio.campaign.index()
    assert names(fix(studio.campaign, ["all"])) == ["unreadable"]


def test_what_could_never_be_read_does_not_keep_an_old_folder_in_use(studio: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (studio.photos / "out.png").symlink_to(tmp_path / "elsewhere.png")
    studio.campaign.index()
    studio.photos.rename(tmp_path / "moved")
    (tmp_path / "moved" / "out.png").unlink()
    studio.campaign.index(tmp_path / "moved")
    studio.campaign.index()  # of the folders that are in use
    found = only(examine(studio.campaign))
    assert (found.name, found.severity, found.count) == ("gone", "note", 1)
    assert fix(studio.campaign, ["all"]) == []
    assert len(list_images(studio.ledger, usable=True)) == 20


def test_people_may_say_that_a_folder_is_gone_for_good_where_another_is_there(studio: Any, tmp_path: Path) -> None:  # noqa: ANN401
    studio.photos.rename(tmp_path / "moved")
    (tmp_path / "moved" / "a-000.png").unlink()  # which somebody has answered
    studio.campaign.index(tmp_path / "moved")
    found = only(examine(studio.campaign))
    assert (found.name, found.severity, found.count) == ("folders", "error", 1)
    assert "and 1 image with it; is its disk mounted?" in found.what
    assert names(fix(studio.campaign, ["all"])) == ["folders"]
    left = only(fix(studio.campaign, ["folders"]))
    assert (left.name, left.what, left.fix) == ("missing", "1 image whose file is missing: a-000.png", None)
    studio.campaign.index()
    assert len(studio.campaign.labels()) == 4


def test_to_look_again_is_offered_only_where_there_is_something_new(studio: Any) -> None:  # noqa: ANN401
    (studio.photos / "broken.png").write_bytes(b"not a picture")
    (studio.photos / "a-001.png").unlink()
    studio.campaign.index()
    assert {finding.name: finding.fix for finding in examine(studio.campaign)} == {"missing": None, "unreadable": None}
    (studio.photos / "broken.png").write_bytes(b"not a picture either")
    (studio.photos / "a-001.png").write_bytes((studio.photos / "a-002.png").read_bytes())
    assert {finding.fix for finding in examine(studio.campaign)} == {"look again"}


def test_images_that_are_gone_and_of_which_nobody_has_spoken_are_forgotten(studio: Any) -> None:  # noqa: ANN401
    unasked = next(row for row in list_images(studio.ledger, usable=True) if row.path not in asked_about(studio))
    (studio.photos / unasked.path).unlink()
    studio.campaign.index()
    found = only(examine(studio.campaign))
    assert found.what == f"1 image whose file is gone and unlabelled: {unasked.path}"
    assert fix(studio.campaign, ["gone"]) == []
    assert studio.campaign.status().images == 19


def asked_about(studio: Any) -> set[str]:  # noqa: ANN401 - a Studio
    rows = studio.ledger.read(
        "SELECT path FROM image WHERE id IN (SELECT image_id FROM event UNION SELECT image_id FROM round_image)"
    )
    return {row["path"] for row in rows}


@pytest.mark.parametrize("damage", ["bit", "cut", "no keys", "no features"])
def test_damaged_features_are_found_and_made_again(studio: Any, damage: str) -> None:  # noqa: ANN401
    before = embed(studio.ledger, backbone="simple").features
    folder = studio.ledger.folder / "features" / "simple-1"
    keys = next(folder.glob("*.keys.npy"))
    features = keys.with_name(keys.name.replace(".keys", ""))
    {
        "bit": lambda: hurt(features, 0.9),
        "cut": lambda: features.write_bytes(features.read_bytes()[:2000]),
        "no keys": keys.unlink,
        "no features": features.unlink,
    }[damage]()
    assert only(examine(studio.campaign)).name == "features"
    assert only(examine(studio.campaign)).name == "features"  # looking has removed nothing
    assert fix(studio.campaign, ["features"]) == []
    again = embed(studio.ledger, backbone="simple")
    assert again.made == 0
    assert np.array_equal(again.features, before)


def test_features_that_cannot_be_opened_are_reported_and_never_removed(studio: Any) -> None:  # noqa: ANN401
    embed(studio.ledger, backbone="simple")
    folder = studio.ledger.folder / "features" / "simple-1"
    keys = next(folder.glob("*.keys.npy"))
    features = keys.with_name(keys.name.replace(".keys", ""))
    kept = features.rename(folder / "kept")
    features.mkdir()  # cannot be read as a file, whoever asks
    found = only(examine(studio.campaign))
    assert (found.name, found.fix, found.count) == ("locked features", None, 1)
    assert "it is a folder, not a file" in found.what
    with pytest.raises(BadFile, match="nothing was removed"):
        embed(studio.ledger, backbone="simple")
    assert keys.is_file()
    features.rmdir()
    kept.rename(features)
    assert examine(studio.campaign) == []
    assert embed(studio.ledger, backbone="simple").made == 0


@pytest.mark.parametrize("damage", ["gone", "bit"])
def test_damaged_models_are_found_and_made_again(studio: Any, damage: str) -> None:  # noqa: ANN401
    row = list_models(studio.ledger)[0]
    folder = studio.ledger.folder / "models" / row.version
    if damage == "gone":
        shutil.rmtree(folder)
    else:
        hurt(next(folder.glob("*.safetensors")), 0.9)
    found = only(examine(studio.campaign))
    assert (found.name, found.count) == ("models", 1)
    assert fix(studio.campaign, ["models"]) == []
    assert load(studio.ledger, row.version).rebuilt == ""


def test_models_of_no_round_are_removed(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder / "models"
    shutil.copytree(next(folder.iterdir()), folder / "round-9-abc")
    found = only(examine(studio.campaign))
    assert (found.name, found.severity) == ("orphans", "note")
    assert fix(studio.campaign, ["orphans"]) == []
    assert len(list(folder.iterdir())) == 1


def test_features_and_models_and_images_are_mended_together(studio: Any) -> None:  # noqa: ANN401
    shutil.rmtree(studio.ledger.folder / "models")
    hurt(next(path for path in (studio.ledger.folder / "features").rglob("*.npy") if ".keys" not in path.name), 0.9)
    (studio.photos / "b-003.png").rename(studio.photos / "moved.png")
    assert sorted(names(examine(studio.campaign))) == ["features", "index", "models"]
    assert fix(studio.campaign, ["all"]) == []


def test_ended_leases_are_cleared(studio: Any) -> None:  # noqa: ANN401
    lease(studio.ledger, 1, "ann", 2, seconds=60, at=1_000_000)
    found = only(examine(studio.campaign))
    assert (found.name, found.count) == ("leases", 2)
    assert fix(studio.campaign, ["leases"]) == []


def test_conflicts_and_copies_with_different_labels_wait_for_people(studio: Any) -> None:  # noqa: ANN401
    studio.say([3], "ann", cls=1)
    studio.say([3], "bob", cls=2)
    shutil.copy(studio.photos / "b-005.png", studio.photos / "copy.png")
    studio.campaign.index()
    studio.say([locate(studio.ledger, "b-005.png").id], cls=2)
    studio.say([locate(studio.ledger, "copy.png").id], cls=1)
    found = {finding.name: finding for finding in examine(studio.campaign)}
    assert set(found) == {"conflicts", "twins"}
    assert {finding.fix for finding in found.values()} == {None}
    assert "b-005.png" in found["twins"].what
    settle(studio.ledger, key=uuid.uuid4().hex, image=3, annotator="judge", class_id=1)
    assert names(examine(studio.campaign)) == ["twins"]


def test_files_that_a_crash_left_half_written_are_removed(studio: Any) -> None:  # noqa: ANN401
    left = studio.ledger.folder / "features" / "simple-1" / ".x.npy.0123.part"
    left.write_bytes(b"half")
    assert only(examine(studio.campaign)).name == "leftovers"
    assert fix(studio.campaign, ["leftovers"]) == []
    assert not left.exists()


def test_answers_without_a_backup_are_told(studio: Any) -> None:  # noqa: ANN401
    shutil.rmtree(studio.ledger.folder / "backups")
    assert only(examine(studio.campaign)).name == "backup"
    assert fix(studio.campaign, ["backup"]) == []
    assert len(sound_backups(studio.ledger.folder)) == 1


WRITER = """
import sys, time
from tailwise.campaign.ledger import Ledger
ledger = Ledger.open(sys.argv[1], purpose="a test")
print("open", flush=True)
time.sleep(600)
"""


def test_a_lock_that_is_held_and_one_that_was_left_behind(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    studio.campaign.close()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        held = only(diagnose(folder))
        assert held.name == "busy"
        assert f"a test (pid {child.pid})" in held.what
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    left = only(diagnose(folder))
    assert (left.name, left.severity) == ("lock", "note")
    with Ledger.open(folder) as ledger:
        assert fix(ledger, ["lock"]) == []
    assert diagnose(folder) == []


def test_rows_that_point_nowhere_are_found(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    studio.campaign.close()
    with sqlite3.connect(folder / "campaign.sqlite") as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("INSERT INTO lease VALUES (999, 'ann', 9000000000000000)")
    connection.close()
    found = diagnose(folder)
    assert found[0].name == "references"
    assert (found[0].severity, found[0].fix, found[0].count) == ("error", None, 1)


def test_settings_that_cannot_be_read_are_found(studio: Any) -> None:  # noqa: ANN401
    with studio.ledger.writing() as connection:
        connection.execute("INSERT OR REPLACE INTO meta VALUES ('settings', '{')")
    assert only(examine(studio.campaign)).name == "settings"


def test_a_damaged_page_of_the_ledger_is_found(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    root = studio.ledger.read("SELECT rootpage FROM sqlite_schema WHERE name = 'image_by_sha256'")[0][0]
    size = studio.ledger.read("PRAGMA page_size")[0][0]
    studio.campaign.close()
    path = folder / "campaign.sqlite"
    content = bytearray(path.read_bytes())
    content[(root - 1) * size + size // 2 : root * size] = b"\xa5" * (size // 2)
    path.write_bytes(content)
    found = diagnose(folder)
    assert found[0].name == "ledger"
    assert found[0].severity == "error"


def overwrite_half_of(path: Path, page: int, size: int) -> None:
    content = bytearray(path.read_bytes())
    content[(page - 1) * size + size // 2 : page * size] = b"\xa5" * (size // 2)
    path.write_bytes(content)


@pytest.mark.parametrize(("hurt_part", "lost"), [("image_by_sha256", 0), ("event", 1)])
def test_a_damaged_ledger_that_opens_is_mended_from_its_tables_or_by_a_backup(
    studio: Any, hurt_part: str, lost: int  # noqa: ANN401
) -> None:  # fmt: skip
    studio.say([5])  # which no backup has
    folder, said = studio.ledger.folder, len(studio.campaign.labels())
    page = studio.ledger.read("SELECT rootpage FROM sqlite_schema WHERE name = ?", (hurt_part,))[0][0]
    size = studio.ledger.read("PRAGMA page_size")[0][0]
    studio.campaign.close()
    before = (folder / "campaign.sqlite").read_bytes()
    overwrite_half_of(folder / "campaign.sqlite", page, size)
    damaged = (folder / "campaign.sqlite").read_bytes()
    found = diagnose(folder)[0]
    assert (found.name, found.severity) == ("ledger", "error")
    assert ("put campaign-" if lost else "write it anew from its own tables") in (found.fix or "")
    assert (folder / "campaign.sqlite").read_bytes() == damaged != before  # looking changes nothing
    kept = repair_ledger(folder)
    assert kept.read_bytes() == damaged
    with Ledger.open(folder) as ledger:
        assert ledger.read("SELECT count(*) FROM current_label")[0][0] == said - lost
        assert examine(ledger) == []


def test_a_damaged_ledger_is_not_mended_while_it_is_open(studio: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadInput, match=r"close the campaign and run `tailwise doctor .* --fix ledger`"):
        fix(studio.campaign, ["ledger"])


def set_schema(folder: Path, number: int) -> None:
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as connection:
        connection.execute(f"PRAGMA user_version = {number}")


def test_an_older_ledger_is_sound_and_no_backup_takes_its_place(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    studio.campaign.close()
    set_schema(folder, 0)
    before = (folder / "campaign.sqlite").read_bytes()
    found = only(diagnose(folder))
    assert (found.name, found.severity) == ("schema", "warning")
    assert found.fix == "bring it up to date, on a copy, and keep the old file"
    assert f"`tailwise doctor {folder} --fix schema`" in found.what
    with pytest.raises(BadFile, match=r"says that it has schema 0, which no Tailwise has written; it is as it was"):
        Ledger.open(folder)
    assert (folder / "campaign.sqlite").read_bytes() == before


def test_a_newer_ledger_is_told_and_no_fix_is_offered(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    (studio.photos / "a-001.png").unlink()
    studio.campaign.close()
    set_schema(folder, CURRENT_SCHEMA + 1)
    found = diagnose(folder)
    assert names(found) == ["schema", "index"]
    assert f"written by a newer Tailwise, and this one knows {CURRENT_SCHEMA}" in found[0].what
    assert {finding.fix for finding in found} == {None}


@pytest.mark.parametrize("damage", ["text", "cut", "gone"])
def test_a_ledger_that_cannot_be_opened_is_replaced_by_its_newest_sound_backup(studio: Any, damage: str) -> None:  # noqa: ANN401
    folder, path = studio.ledger.folder, studio.ledger.folder / "campaign.sqlite"
    studio.say([5])
    good = studio.campaign.backup()
    said = len(studio.campaign.labels())
    (folder / "backups" / "campaign-99990101T000000000000Z-bad.sqlite").write_bytes(b"SQLite format 3\0 no")
    studio.campaign.close()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"oops" * 1000 if damage == "text" else path.read_bytes()[:700])
    log = path.with_name("campaign.sqlite-wal")
    log.write_bytes(b"of the damaged file")
    found = diagnose(folder)
    assert (found[0].name, found[0].severity) == ("ledger", "error")
    assert good.name in (found[0].fix or "")
    kept = restore_backup(folder)
    assert kept.exists() == (damage != "gone")
    assert (log.exists(), kept.with_name(f"{kept.name}-wal").read_bytes()) == (False, b"of the damaged file")
    with Ledger.open(folder) as ledger:
        assert ledger.read("SELECT count(*) FROM current_label")[0][0] == said
        assert "ledger" not in names(examine(ledger))


def test_without_a_sound_backup_nothing_is_touched(studio: Any) -> None:  # noqa: ANN401
    folder = studio.ledger.folder
    studio.campaign.close()
    shutil.rmtree(folder / "backups")
    (folder / "campaign.sqlite").write_bytes(b"oops")
    assert only(diagnose(folder)).fix is None
    with pytest.raises(BadFile, match=r"no backup in .* is sound"):
        restore_backup(folder)
    assert (folder / "campaign.sqlite").read_bytes() == b"oops"


def test_a_folder_without_a_campaign_is_told(tmp_path: Path) -> None:
    assert "no campaign in" in only(diagnose(tmp_path)).what


def test_unknown_names_and_read_only_campaigns_are_refused(studio: Any) -> None:  # noqa: ANN401
    with pytest.raises(UnknownName, match="'teeth' is an unknown fix"):
        fix(studio.campaign, ["teeth"])
    with Ledger.open(studio.ledger.folder, read_only=True) as reader:
        assert examine(reader) == []
        with pytest.raises(BadInput, match="opened read-only"):
            fix(reader, ["all"])


def test_every_fix_that_is_offered_can_be_asked_for(studio: Any) -> None:  # noqa: ANN401
    shutil.rmtree(studio.ledger.folder / "backups")
    shutil.rmtree(studio.ledger.folder / "models")
    (studio.photos / "a-001.png").unlink()
    for finding in examine(studio.campaign):
        assert finding.fix is not None
        assert finding.name in FIXES
    assert json.dumps([finding.what for finding in examine(studio.campaign)])
