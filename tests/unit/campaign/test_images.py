from __future__ import annotations

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PureWindowsPath
from tempfile import mkdtemp

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.images import (
    find_image,
    is_unchanged,
    list_folders,
    list_images,
    locate,
    path_of,
    quarantine,
)
from tailwise.campaign.indexing import Indexed, index
from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadFile, UnknownName

from .image_files import encoded, put, rows, shade


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(file): (file.lstat().st_mtime_ns, file.lstat().st_mode, file.read_bytes())
        for file in sorted(folder.rglob("*")) if file.is_file()
    }  # fmt: skip


def test_images_are_found_where_they_lie_and_are_not_touched(empty: Ledger, photos: Path) -> None:
    before = snapshot(photos)
    found = index(empty, photos)
    assert found == Indexed(added=3)
    assert snapshot(photos) == before
    row = rows(empty)["deep/er/c.bmp"]
    assert (row.width, row.height, row.orientation, row.bytes) == (6, 4, 1, len(shade(3)))
    assert row.sha256 == hashlib.sha256(shade(3)).hexdigest()
    assert row.usable
    assert find_image(empty, row.key) == find_image(empty, row.id) == row
    assert path_of(empty, row) == photos / "deep/er/c.bmp"
    assert list_folders(empty) == {1: photos}
    assert len({one.key for one in list_images(empty)}) == 3
    assert all(len(one.key) == 16 and set(one.key) <= set("0123456789abcdef") for one in list_images(empty))


def test_indexing_again_finds_nothing_new_and_changes_nothing(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    before = list_images(empty)
    assert index(empty, photos) == Indexed(known=3)
    (photos / "a.bmp").touch()  # read again, and the same
    assert index(empty, photos) == Indexed(known=3)
    assert [(row.id, row.key, row.sha256) for row in list_images(empty)] == [
        (row.id, row.key, row.sha256) for row in before
    ]
    assert index(empty, photos) == Indexed(known=3)


def test_new_files_are_added_and_an_empty_folder_is_no_fault(empty: Ledger, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert index(empty, tmp_path / "nothing") == Indexed()
    index(empty, photos)
    put(photos, {"d.bmp": shade(4)})
    assert index(empty, photos) == Indexed(added=1, known=3)


def test_progress_is_reported_from_nothing_to_all(empty: Ledger, photos: Path) -> None:
    heard: list[tuple[float, str]] = []
    index(empty, photos, lambda share, what: heard.append((share, what)))
    assert heard[0][0] == 0.0
    assert heard[-1] == (1.0, "indexing 3 images")


# Duplicates


def test_the_same_bytes_are_one_image_and_its_duplicates(empty: Ledger, photos: Path) -> None:
    put(photos, {"z/copy.bmp": shade(1), "y.bmp": shade(1)})
    found = index(empty, photos)
    assert (found.added, found.duplicates) == (5, 2)
    first = rows(empty)["a.bmp"]
    assert {path for path, row in rows(empty).items() if row.duplicate_of == first.id} == {"y.bmp", "z/copy.bmp"}
    assert [row.path for row in list_images(empty, usable=True)] == ["a.bmp", "b.bmp", "deep/er/c.bmp"]


def test_duplicates_are_found_across_runs_and_folders(empty: Ledger, photos: Path, tmp_path: Path) -> None:
    index(empty, photos)
    put(tmp_path / "more", {"again.bmp": shade(2), "new.bmp": shade(9)})
    found = index(empty, tmp_path / "more")
    assert (found.added, found.duplicates) == (2, 1)
    assert rows(empty)["again.bmp"].duplicate_of == rows(empty)["b.bmp"].id


# Quarantine


def png_claiming(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


def noise(height: int = 64, width: int = 48) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


BAD = {
    "truncated.jpg": (encoded(noise(), "JPEG")[:-900], "cannot be decoded"),
    "huge.png": (png_claiming(65_535, 65_535), "89,478,485"),
    "drawing.jpg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "but text such as SVG or HTML"),
    "page.jpg": (b"<!DOCTYPE html><html>404</html>", "but text such as SVG or HTML"),
    "nothing.png": (b"", "the file is empty"),
    "float.tif": (encoded(Image.new("F", (9, 9), 0.5), "TIFF"), "no agreed range"),
    "text.webp": (b"hello", "it is no JPEG"),
}


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(noise(), "JPEG", exif=exif)


def animation() -> bytes:
    frames = [Image.new("RGB", (9, 9), (250, n, 0)) for n in range(3)]
    return encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])


GOOD = {
    "animated.gif": animation(),
    "cmyk.jpg": encoded(noise().convert("CMYK"), "JPEG"),
    "deep.png": encoded(Image.fromarray(np.arange(81, dtype=np.uint16).reshape(9, 9)), "PNG"),
    "palette.png": encoded(noise().quantize(8), "PNG"),
    "turned.JPG": turned(),
    "name with ünïcode 🦉 and\nnewline.png": encoded(noise(9, 9), "PNG"),
}


def test_bad_images_are_quarantined_with_a_reason_and_the_work_goes_on(empty: Ledger, tmp_path: Path) -> None:
    put(tmp_path / "mixed", {**{name: data for name, (data, _) in BAD.items()}, **GOOD})
    found = index(empty, tmp_path / "mixed")
    assert found.added == len(BAD) + len(GOOD)
    reasons = dict(found.quarantined)
    assert set(reasons) == set(BAD)
    for name, (_, says) in BAD.items():
        assert says in reasons[name]
        assert rows(empty)[name].trouble == reasons[name]
    assert {row.path for row in list_images(empty, usable=True)} == set(GOOD)
    one = rows(empty)["turned.JPG"]
    assert (one.width, one.height, one.orientation) == (64, 48, 6)


def test_a_quarantined_file_that_was_mended_is_used(empty: Ledger, photos: Path) -> None:
    put(photos, {"d.jpg": BAD["truncated.jpg"][0]})
    assert len(index(empty, photos).quarantined) == 1
    before = rows(empty)["d.jpg"]
    assert len(index(empty, photos).quarantined) == 1  # told again while it lasts
    put(photos, {"d.jpg": encoded(noise(), "JPEG")})
    found = index(empty, photos)
    assert (found.quarantined, found.changed, found.added) == ((), ("d.jpg",), 0)
    after = rows(empty)["d.jpg"]
    assert (after.id, after.key, after.usable) == (before.id, before.key, True)


def test_a_mended_file_with_known_bytes_is_a_duplicate(empty: Ledger, photos: Path) -> None:
    put(photos, {"d.jpg": b""})
    index(empty, photos)
    put(photos, {"d.jpg": shade(1)})
    index(empty, photos)
    assert rows(empty)["d.jpg"].duplicate_of == rows(empty)["a.bmp"].id


@contextmanager
def somebody_else() -> Iterator[Path]:
    """A folder that all may use; inside, root is nobody in particular, so that permissions mean something."""
    folder = Path(mkdtemp())
    folder.chmod(0o777)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)
        yield folder
    finally:
        os.seteuid(me)
        shutil.rmtree(folder)


def test_what_may_not_be_read_is_quarantined_until_it_may() -> None:
    with somebody_else() as folder:
        put(folder / "photos", {"a.bmp": shade(1), "locked.bmp": shade(2), "closed/c.bmp": shade(3)})
        (folder / "photos/locked.bmp").chmod(0)
        (folder / "photos/closed").chmod(0)
        with Ledger.create(folder / "campaign") as ledger:
            found = index(ledger, folder / "photos")
            assert dict(found.quarantined) == {
                "closed": "the folder cannot be listed (Permission denied)",
                "locked.bmp": "it cannot be read (Permission denied)",
            }
            assert [row.path for row in list_images(ledger, usable=True)] == ["a.bmp"]
            (folder / "photos/locked.bmp").chmod(0o644)  # which changes neither its size nor its time
            (folder / "photos/closed").chmod(0o755)
            assert index(ledger, folder / "photos") == Indexed(added=1, known=2)
            assert len(list_images(ledger, usable=True)) == 3


def test_links_are_followed_inside_the_folder_alone(empty: Ledger, photos: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside", {"secret.bmp": shade(50), "folder/d.bmp": shade(51)})
    (photos / "out.bmp").symlink_to(tmp_path / "outside/secret.bmp")
    (photos / "up.bmp").symlink_to("../outside/secret.bmp")
    (photos / "nowhere.bmp").symlink_to("not there.bmp")
    (photos / "circle.bmp").symlink_to("circle.bmp")
    (photos / "linked").symlink_to(tmp_path / "outside/folder")
    (photos / "inside.bmp").symlink_to("deep/er/c.bmp")
    found = index(empty, photos)
    reasons = dict(found.quarantined)
    assert set(reasons) == {"out.bmp", "up.bmp", "nowhere.bmp", "circle.bmp", "linked"}
    assert "leads out of the folder" in reasons["out.bmp"]
    assert "leads out of the folder" in reasons["up.bmp"]
    assert "cannot be read" in reasons["nowhere.bmp"]
    assert "a linked folder" in reasons["linked"]
    assert rows(empty)["inside.bmp"].duplicate_of == rows(empty)["deep/er/c.bmp"].id
    assert all(row.sha256 is None for path, row in rows(empty).items() if path in reasons)


def test_a_link_that_leads_out_later_is_not_followed_either(empty: Ledger, photos: Path, tmp_path: Path) -> None:
    index(empty, photos)
    row = rows(empty)["a.bmp"]
    put(tmp_path / "outside", {"secret.bmp": shade(50)})
    (photos / "a.bmp").unlink()
    (photos / "a.bmp").symlink_to(tmp_path / "outside/secret.bmp")
    with pytest.raises(BadFile, match="leads out of the folder"):
        path_of(empty, row)
    assert not is_unchanged(empty, row)
    assert dict(index(empty, photos).quarantined)["a.bmp"] == "a link that leads out of the folder"


def test_names_that_are_no_text_are_quarantined(empty: Ledger, photos: Path) -> None:
    odd = os.fsencode(photos) + b"/caf\xe9.bmp"
    with open(odd, "wb") as file:  # noqa: PTH123 - a Path takes no bytes
        file.write(shade(7))
    os.mkdir(os.fsencode(photos) + b"/d\xff")  # noqa: PTH102 - the same
    with open(os.fsencode(photos) + b"/d\xff/x.bmp", "wb") as file:  # noqa: PTH123 - the same
        file.write(shade(8))
    put(photos, {"plain caf\\xe9.bmp": shade(9)})
    for _ in range(2):
        found = index(empty, photos)
        assert dict(found.quarantined) == {
            "caf\\xe9.bmp": "its name is not valid UTF-8; rename it",
            "d\\xff/x.bmp": "its name is not valid UTF-8; rename it",
        }
    assert [row.path for row in list_images(empty, usable=True)][-1] == "plain caf\\xe9.bmp"


def test_pipes_do_not_stop_it_and_folders_may_be_called_like_images(empty: Ledger, photos: Path) -> None:
    os.mkfifo(photos / "pipe.jpg")
    put(photos, {"folder.jpg/x.bmp": shade(8)})
    assert dict(index(empty, photos).quarantined) == {"pipe.jpg": "it is not a regular file"}
    assert rows(empty)["folder.jpg/x.bmp"].usable


def test_other_files_are_counted_and_hidden_ones_passed_over(empty: Ledger, photos: Path) -> None:
    put(photos, {
        "read me.txt": b"", "x.HEIC": b"", "y.heic": b"", "no suffix": b"", ".hidden.jpg": b"", ".git/x.jpg": b"",
        "._a.jpg": b"",
    })  # fmt: skip
    found = index(empty, photos)
    assert (found.added, found.quarantined) == (3, ())
    assert found.passed_over == (("", 1), (".heic", 2), (".txt", 1))


def test_a_campaign_inside_the_images_is_not_indexed(photos: Path) -> None:
    with Ledger.create(photos / "my campaign") as ledger:
        put(photos / "my campaign", {"report/figure.png": encoded(noise(), "PNG"), "models/x.jpg": b""})
        Ledger.create(photos / "deep" / "another").close()
        put(photos / "deep" / "another", {"report/figure.png": encoded(noise(9, 9), "PNG")})
        assert index(ledger, photos) == Indexed(added=3)
        with pytest.raises(BadFile, match="is a campaign; keep the images in another folder"):
            index(ledger, photos / "my campaign")


def test_images_inside_the_campaign_s_folder_are_images(empty: Ledger, home: Path) -> None:
    put(home / "photos", {"a.bmp": shade(1)})
    assert index(empty, home / "photos") == Indexed(added=1)


def test_a_folder_that_is_not_there_is_told(empty: Ledger, photos: Path) -> None:
    for missing in (photos / "none", photos / "a.bmp"):
        with pytest.raises(BadFile, match="no folder at"):
            index(empty, missing)
    assert list_folders(empty) == {}


# Finding


def test_images_are_located_by_paths_as_windows_writes_them(empty: Ledger, tmp_path: Path) -> None:
    put(tmp_path / "photos", {"left/a.bmp": shade(1)})
    index(empty, tmp_path / "photos")
    (row,) = list_images(empty)
    assert row.path == "left/a.bmp"
    for name in ("left/a.bmp", "left\\a.bmp", PureWindowsPath("left", "a.bmp")):
        assert locate(empty, name) == row


def test_images_are_located_by_key_by_path_and_by_whole_path(
    empty: Ledger, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index(empty, photos)
    row = rows(empty)["deep/er/c.bmp"]
    monkeypatch.chdir(photos / "deep")
    (tmp_path / "alias").symlink_to(photos)
    for name in (row.key, row.path, photos / row.path, "er/c.bmp", tmp_path / "alias" / row.path):
        assert locate(empty, name) == row
    for name in ("c.bmp", "nothing", "../../../etc/passwd", "/etc/passwd", "", "\0", "a" * 10_000, "caf\udce9"):
        with pytest.raises(UnknownName, match="is not an image of this campaign"):
            locate(empty, name)
    for key in ("0" * 16, 99, "\udce9", 10**30):
        with pytest.raises(UnknownName, match="no image has the"):
            find_image(empty, key)


def test_a_path_that_two_folders_have_must_be_given_whole(empty: Ledger, photos: Path, tmp_path: Path) -> None:
    put(tmp_path / "more", {"a.bmp": shade(5)})
    index(empty, photos)
    index(empty, tmp_path / "more")
    with pytest.raises(UnknownName, match="is the name of 2 images"):
        locate(empty, "a.bmp")
    assert locate(empty, tmp_path / "more" / "a.bmp").sha256 == hashlib.sha256(shade(5)).hexdigest()


def test_what_others_found_unusable_is_quarantined(empty: Ledger, photos: Path) -> None:
    index(empty, photos)
    row = rows(empty)["a.bmp"]
    quarantine(empty, [(row.id, "it cannot be decoded")])
    assert find_image(empty, row.id).trouble == "it cannot be decoded"
    assert len(list_images(empty, usable=True)) == 2
