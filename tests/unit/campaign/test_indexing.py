from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.answers import labels
from tailwise.campaign.images import find_image, is_unchanged, list_images, path_of
from tailwise.campaign.indexing import BATCH, CHANGED, MISSING, REPLACED, Indexed, accept_changed, index
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadFile

from .image_files import encoded, put, rows, say, shade


def test_a_renamed_file_takes_its_row_and_its_labels_along(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    before = say(empty, "a.bmp")
    (photos / "new").mkdir()
    (photos / "a.bmp").rename(photos / "new" / "name.bmp")
    assert index(empty, photos) == Indexed(known=2, moved=1)
    after = rows(empty)["new/name.bmp"]
    assert (after.id, after.key, after.trouble) == (before.id, before.key, None)
    assert path_of(empty, after).is_file()
    assert is_unchanged(empty, after)
    assert labels(empty)[0].tolist() == [before.id]
    assert len(rows(empty)) == 3


def test_a_renamed_folder_takes_all_along(empty: Ledger, photos: Path) -> None:
    put(photos, {f"many/{n}.bmp": shade(100 + n) for n in range(30)})
    index(empty, photos)
    before = {row.sha256: row.id for row in list_images(empty)}
    (photos / "many").rename(photos / "renamed")
    assert index(empty, photos) == Indexed(known=3, moved=30)
    assert {row.sha256: row.id for row in list_images(empty)} == before
    assert all(path_of(empty, row).is_file() for row in list_images(empty))


def test_a_file_that_moves_to_another_folder_of_the_campaign_takes_its_row_along(
    empty: Ledger, photos: Path, tmp_path: Path
) -> None:
    index(empty, photos)
    before = say(empty, "a.bmp")
    (tmp_path / "more").mkdir()
    (photos / "a.bmp").rename(tmp_path / "more" / "a.bmp")
    assert index(empty, tmp_path / "more").moved == 1
    after = find_image(empty, before.key)
    assert path_of(empty, after) == tmp_path / "more" / "a.bmp"
    assert index(empty, photos) == Indexed(known=2)


def test_files_that_swap_names_swap_rows(empty: Ledger, photos: Path) -> None:
    for file in (photos / "a.bmp", photos / "b.bmp"):
        os.utime(file, ns=(1, 1))  # of one size and one time: unpacked from an archive, say
    index(empty, photos)
    a, b = say(empty, "a.bmp"), say(empty, "b.bmp")
    (photos / "a.bmp").rename(photos / "t")
    (photos / "b.bmp").rename(photos / "a.bmp")
    (photos / "t").rename(photos / "b.bmp")
    assert index(empty, photos) == Indexed(known=1, moved=2)
    assert (rows(empty)["a.bmp"].id, rows(empty)["b.bmp"].id) == (b.id, a.id)
    assert [row.trouble for row in list_images(empty)] == [None] * 3


def test_files_that_are_numbered_anew_keep_their_rows(empty: Ledger, tmp_path: Path) -> None:
    """1 → 2 → 3 → … and a new 1: every name holds another image than before."""
    folder = tmp_path / "numbered"
    put(folder, {f"{n:02d}.bmp": shade(n) for n in range(1, 9)})
    index(empty, folder)
    before = {row.sha256: row.id for row in list_images(empty)}
    for n in range(8, 0, -1):
        (folder / f"{n:02d}.bmp").rename(folder / f"{n + 1:02d}.bmp")
    put(folder, {"01.bmp": shade(99)})
    assert index(empty, folder) == Indexed(added=1, moved=8)
    after = {row.sha256: (row.id, row.path) for row in list_images(empty) if row.sha256 in before}
    assert {sha256: number for sha256, (number, _) in after.items()} == before
    assert all(
        hashlib.sha256((folder / path).read_bytes()).hexdigest() == sha256 for sha256, (_, path) in after.items()
    )


def test_a_file_with_answers_whose_bytes_changed_is_told_and_its_labels_are_kept(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    before = say(empty, "a.bmp")
    put(photos, {"a.bmp": shade(77)})
    for _ in range(2):
        found = index(empty, photos)
        assert (found.changed, found.quarantined) == (("a.bmp",), (("a.bmp", CHANGED),))
    after = rows(empty)["a.bmp"]
    assert (after.id, after.sha256, after.trouble) == (before.id, before.sha256, CHANGED)
    assert labels(empty)[0].tolist() == [before.id]
    put(photos, {"a.bmp": shade(1)})  # the old bytes again
    assert index(empty, photos).changed == ()
    assert rows(empty)["a.bmp"].trouble is None


def test_changed_bytes_can_be_accepted(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    row = say(empty, "a.bmp")
    put(photos, {"a.bmp": shade(77)})
    index(empty, photos)
    assert accept_changed(empty, [row.id]) == 1
    after = rows(empty)["a.bmp"]
    assert (after.id, after.trouble, after.sha256) == (row.id, None, hashlib.sha256(shade(77)).hexdigest())
    assert index(empty, photos) == Indexed(known=3)
    put(photos, {"a.bmp": b"no image"})
    index(empty, photos)
    assert accept_changed(empty, [row.id]) == 0
    (photos / "a.bmp").unlink()
    assert accept_changed(empty, [row.id]) == 0
    (photos / "a.bmp").symlink_to(shutil.copy(photos / "b.bmp", photos.parent / "outside.bmp"))
    assert accept_changed(empty, [row.id]) == 0


def test_a_changed_file_that_nobody_spoke_of_is_read_anew(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    before = rows(empty)["a.bmp"]
    put(photos, {"a.bmp": encoded(Image.linear_gradient("L").resize((48, 64)), "PNG")})
    found = index(empty, photos)
    assert (found.changed, found.quarantined) == (("a.bmp",), ())
    after = rows(empty)["a.bmp"]
    assert (after.id, after.width, after.height, after.usable) == (before.id, 48, 64, True)


def test_a_file_that_is_gone_is_told_and_comes_back(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    row = say(empty, "a.bmp")
    (photos / "a.bmp").unlink()
    found = index(empty, photos)
    assert (found.missing, found.known) == (("a.bmp",), 2)
    assert rows(empty)["a.bmp"].trouble == MISSING
    assert labels(empty)[0].tolist() == [row.id]
    put(photos, {"a.bmp": shade(1)})
    assert index(empty, photos).missing == ()
    assert rows(empty)["a.bmp"].usable


def test_an_unmounted_disk_is_not_taken_for_an_empty_one(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    shutil.rmtree(photos)
    photos.mkdir()
    with pytest.raises(BadFile, match="holds no image any more, where 3 were indexed; is its disk mounted"):
        index(empty, photos)
    assert len(list_images(empty, usable=True)) == 3


def test_the_original_lives_on_in_its_duplicate(empty: Ledger, photos: Path) -> None:
    put(photos, {"copy.bmp": shade(1)})
    index(empty, photos)
    original = say(empty, "a.bmp")
    (photos / "a.bmp").unlink()
    found = index(empty, photos)
    assert (found.moved, found.missing) == (1, ())
    after = rows(empty)["copy.bmp"]
    assert (after.id, after.usable) == (original.id, True)
    assert labels(empty)[0].tolist() == [original.id]
    assert "a.bmp" not in rows(empty)  # nobody spoke of the duplicate


def test_an_original_that_was_overwritten_lives_on_in_its_duplicate(empty: Ledger, photos: Path) -> None:
    put(photos, {"copy.bmp": shade(1)})
    index(empty, photos)
    original = say(empty, "a.bmp")
    put(photos, {"a.bmp": shade(88)})
    found = index(empty, photos)
    assert (found.changed, found.moved, found.added) == ((), 1, 1)
    assert rows(empty)["copy.bmp"].id == original.id
    assert rows(empty)["a.bmp"].id != original.id
    assert rows(empty)["a.bmp"].usable


def test_a_row_whose_place_was_taken_keeps_its_labels_and_is_out_of_use(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    a, b = say(empty, "a.bmp"), say(empty, "b.bmp")
    (photos / "b.bmp").replace(photos / "a.bmp")
    found = index(empty, photos)
    assert (found.moved, found.missing) == (1, ("a.bmp",))
    assert rows(empty)["a.bmp"].id == b.id
    lost = find_image(empty, a.id)
    assert (lost.path, lost.trouble) == (f"a.bmp#{a.id}", REPLACED)
    assert labels(empty)[0].tolist() == [a.id, b.id]
    put(photos, {"back.bmp": shade(1)})
    assert index(empty, photos).moved == 1
    assert (find_image(empty, a.id).path, find_image(empty, a.id).usable) == ("back.bmp", True)


def test_a_chosen_image_keeps_its_row_even_where_nobody_answered(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    a = rows(empty)["a.bmp"]
    open_round(empty, [Pick(a.id)], budget=1, strategy="x")
    (photos / "b.bmp").replace(photos / "a.bmp")
    index(empty, photos)
    assert find_image(empty, a.id).trouble == REPLACED


def test_when_the_original_changes_its_first_duplicate_takes_its_place(empty: Ledger, photos: Path) -> None:
    put(photos, {"copy.bmp": shade(1), "other copy.bmp": shade(1)})
    index(empty, photos)
    put(photos, {"a.bmp": shade(88)})
    index(empty, photos)
    usable = [row.path for row in list_images(empty, usable=True)]
    assert sorted(usable) == ["a.bmp", "b.bmp", "copy.bmp", "deep/er/c.bmp"]
    assert rows(empty)["other copy.bmp"].duplicate_of == rows(empty)["copy.bmp"].id


def test_every_shuffle_of_files_keeps_bytes_and_rows_together(empty: Ledger, tmp_path: Path) -> None:
    """Random renames, copies, deletions and overwritings: a usable row's file holds the bytes that it was made with."""
    folder, dice = tmp_path / "shuffled", np.random.default_rng(5)
    put(folder, {f"{n}.bmp": shade(n) for n in range(10)})
    index(empty, folder)
    for row in list_images(empty, usable=True)[:6]:
        say(empty, row.path)
    said = {row.id: row.sha256 for row in list_images(empty, usable=True)[:6]}
    for turn in range(25):
        for _ in range(4):
            shuffle(folder, dice, turn)
        index(empty, folder)
        files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
        found = list_images(empty)
        fine = [row for row in found if row.trouble is None]
        assert {row.path: row.sha256 for row in fine} == {p: s for p, s in files.items() if p in {r.path for r in fine}}
        in_trouble = {row.path for row in found if row.trouble == CHANGED}
        assert set(files) == {row.path for row in fine} | in_trouble
        assert sorted({s for row in fine if (s := row.sha256)}) == sorted(r.sha256 or "" for r in fine if r.usable)
        assert {row.id: row.sha256 for row in found if row.id in said} == said  # what was labelled is what it was
        present = set(files.values())
        assert all(find_image(empty, n).trouble is None for n, sha256 in said.items() if sha256 in present)
    assert empty.read("PRAGMA foreign_key_check") == []


def shuffle(folder: Path, dice: np.random.Generator, turn: int) -> None:
    names = sorted(file.name for file in folder.iterdir())
    one, other = (folder / str(dice.choice(names)) for _ in range(2))
    deed = dice.integers(6)
    if deed == 0 and len(names) > 3:
        one.unlink()
    elif deed == 1:
        put(folder, {f"new {turn}-{dice.integers(1000)}.bmp": shade(int(dice.integers(12)))})
    elif deed == 2:
        put(folder, {one.name: shade(int(dice.integers(12)))})
    elif deed == 3 and one != other:
        one.replace(other)
    elif deed == 4 and one != other:
        shutil.copyfile(one, other)
    else:
        one.rename(folder / f"moved {turn}-{dice.integers(1000)}.bmp")


# Interrupted


def test_an_interruption_keeps_what_was_committed_and_the_next_run_goes_on(empty: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    put(folder, {f"{n:05d}.bmp": shade(n) for n in range(2 * BATCH + 50)})

    class Stop(BaseException):
        pass

    def stop(share: float, _what: str) -> None:
        if share > 0:
            raise Stop

    with pytest.raises(Stop):
        index(empty, folder, stop)
    assert len(list_images(empty)) == BATCH
    keys = {row.key for row in list_images(empty)}
    assert index(empty, folder) == Indexed(added=BATCH + 50, known=BATCH)
    assert keys < {row.key for row in list_images(empty)}


INDEXER = """
import sys
from tailwise.campaign.indexing import index
from tailwise.campaign.ledger import Ledger

def ask(share, _what):
    print(share, flush=True)
    sys.stdin.readline()

with Ledger.open(sys.argv[1]) as ledger:
    index(ledger, sys.argv[2], ask)
"""


def index_until_killed(home: Path, folder: Path, after: float) -> None:
    """Let a process index up to its first commit, and kill it that many seconds later, in the batch after it."""
    process = subprocess.Popen(
        [sys.executable, "-c", INDEXER, home, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    committed = False
    while not committed:
        committed = float(process.stdout.readline()) > 0
        process.stdin.write("go on\n")
        process.stdin.flush()
    time.sleep(after)
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_kill_9_in_the_middle_of_indexing_loses_nothing_and_doubles_nothing(empty: Ledger, tmp_path: Path) -> None:
    folder, home, total = tmp_path / "many", empty.folder, 6 * BATCH
    put(folder, {f"{n:05d}.bmp": shade(n) for n in range(total)})
    empty.close()
    dice = np.random.default_rng(1)
    counts, kills = [0], 0
    while counts[-1] < total and kills < 20:
        index_until_killed(home, folder, after=float(dice.uniform(0, 0.05)))
        kills += 1
        with Ledger.open(home) as ledger:
            assert ledger.read("PRAGMA integrity_check")[0][0] == "ok"
            counts.append(len(list_images(ledger)))
    assert counts == sorted(counts)
    assert len({count for count in counts if 0 < count < total}) > 1
    with Ledger.open(home) as ledger:
        index(ledger, folder)
        assert sorted(row.path for row in list_images(ledger, usable=True)) == sorted(
            file.name for file in folder.iterdir()
        )
        assert index(ledger, folder) == Indexed(known=total)
