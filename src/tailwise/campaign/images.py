"""The images of a campaign: a folder in, rows in the ledger out, which follow their files by content when they move.

Files are read and never touched. What cannot be used gets a row with its trouble, and the work goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import permutations
from pathlib import Path, PurePath

from ..errors import BadFile, UnknownName
from ..files import resolved, with_home
from ..inputs import shown
from ..types import Progress, unheard
from .ledger import Ledger
from .scanning import name_is_unicode, real_path, stamp_of


@dataclass(frozen=True, slots=True)
class ImageRow:
    """What the ledger knows of an image."""

    id: int
    key: str  # the only name that leaves the machine
    folder_id: int
    path: str  # below its folder, with /
    sha256: str | None
    bytes: int | None
    mtime_ns: int | None
    ctime_ns: int | None
    width: int | None  # upright
    height: int | None
    orientation: int | None
    duplicate_of: int | None
    trouble: str | None
    added_at: int

    @property
    def usable(self) -> bool:
        """Neither in quarantine nor a duplicate."""
        return self.trouble is None and self.duplicate_of is None


@dataclass(frozen=True, slots=True)
class Indexed:
    """What indexing a folder found."""

    added: int = 0  # new rows, duplicates and quarantined ones among them
    known: int = 0  # files that can be used and whose row has stayed theirs
    moved: int = 0  # rows that followed their files to new names
    changed: tuple[str, ...] = ()  # files whose bytes are others than those that were there
    missing: tuple[str, ...] = ()  # files that are not there any more
    duplicates: int = 0  # of the added
    quarantined: tuple[tuple[str, str], ...] = ()  # path and reason of all files that are there and cannot be used
    passed_over: tuple[tuple[str, int], ...] = ()  # suffixes that are no image's, with how many files


def index(ledger: Ledger, folder: str | Path, report: Progress = unheard) -> Indexed:
    """Bring the ledger up to date with a folder; may be interrupted at any time, and repeated."""
    from .indexing import index_folder

    return index_folder(ledger, resolved(folder), report)


def list_folders(ledger: Ledger) -> dict[int, Path]:
    """The folders that were indexed, by id."""
    return {row["id"]: Path(row["path"]) for row in ledger.read("SELECT id, path FROM folder ORDER BY id")}


def folder_names(ledger: Ledger) -> dict[int, str]:
    """What a path begins with, by the id of its folder: nothing, unless two folders hold images of the same name.

    Then it is the name of the folder; where two are called alike, as many parts of their paths as tell them apart.
    """
    rows = ledger.read("SELECT path FROM image GROUP BY path HAVING count(DISTINCT folder_id) > 1 LIMIT 1")
    folders = list_folders(ledger)
    if not rows:
        return dict.fromkeys(folders, "")
    return dict(zip(folders, short_names(list(folders.values())), strict=True))


def short_names(folders: Sequence[Path]) -> list[str]:
    """The ends of paths, of equally many parts and as few as tell them apart; none begins like another.

    >>> short_names([Path("/data/one"), Path("/data/two")]), short_names([Path("/a/photos"), Path("/b/photos")])
    (['one', 'two'], ['a/photos', 'b/photos'])
    """
    parts = [folder.parts[1:] for folder in folders]
    for count in range(1, max(map(len, parts), default=0)):
        ends = ["/".join(one[-count:]) for one in parts]
        if not any(f"{one}/".startswith(f"{other}/") for one, other in permutations(ends, 2)):
            return ends
    return ["/".join(one) for one in parts]


def folders_in_use(ledger: Ledger) -> list[Path]:
    """The folders that were indexed, but for those that are gone and of which no image is expected.

    Their images have moved elsewhere, are known to be missing, or could never be read.
    """
    used = {row[0] for row in ledger.read("SELECT DISTINCT folder_id FROM image WHERE trouble IS NULL")}
    return [path for number, path in list_folders(ledger).items() if number in used or path.is_dir()]


def list_images(ledger: Ledger, *, usable: bool = False) -> list[ImageRow]:
    """All images by id; or those alone that can be used: no quarantine, no duplicates."""
    where = "WHERE trouble IS NULL AND duplicate_of IS NULL" if usable else ""
    return [image_row(row) for row in ledger.read(f"SELECT * FROM image {where} ORDER BY id")]


def usable_images(ledger: Ledger) -> list[ImageRow]:
    """The images that can be chosen, by id."""
    return list_images(ledger, usable=True)


def count_usable(ledger: Ledger) -> int:
    """How many images can be chosen."""
    return int(ledger.read("SELECT count(*) FROM image WHERE trouble IS NULL AND duplicate_of IS NULL")[0][0])


def find_image(ledger: Ledger, key: str | int) -> ImageRow:
    """An image by its key, or by its id."""
    column = "id" if isinstance(key, int) else "key"
    try:
        rows = ledger.read(f"SELECT * FROM image WHERE {column} = ?", (key,))
    except (OverflowError, UnicodeEncodeError):  # a number or a text that no row can hold
        rows = []
    if not rows:
        raise UnknownName(f"no image has the {column} {key!r}")
    return image_row(rows[0])


def locate(ledger: Ledger, name: str | PurePath) -> ImageRow:
    """An image by its key, by its path below a folder of the campaign, or by its absolute path.

    Where two folders hold images of the same name, the path may begin with the folder's, as in exports. Paths may be
    written with slashes or, as on Windows, with backslashes.
    """
    given: object = name
    if not isinstance(given, str | PurePath):
        raise UnknownName(f"{shown(given)} is not an image of this campaign; name one by its path or its key")
    text = name.as_posix() if isinstance(name, PurePath) else name
    rows = _located(ledger, text) or (_located(ledger, text.replace("\\", "/")) if "\\" in text else [])
    if len({row["id"] for row in rows}) > 1:
        raise UnknownName(f"{text} is the name of {len(rows)} images, in different folders; give the whole path")
    if not rows:
        raise UnknownName(
            f"{text[:200]!r} is no image of this campaign; name one by its path or its key, or index its folder"
        )
    return image_row(rows[0])


def _located(ledger: Ledger, text: str) -> list[sqlite3.Row]:
    if not name_is_unicode(text):
        return []
    rows = ledger.read("SELECT * FROM image WHERE key = ? OR path = ? ORDER BY id", (text, text))
    return rows or _by_folder_name(ledger, text) or _by_whole_path(ledger, text)


def _by_folder_name(ledger: Ledger, name: str) -> list[sqlite3.Row]:
    """Rows of a path that begins with the name of a folder."""
    return [
        row
        for number, folder in folder_names(ledger).items() if folder and name.startswith(f"{folder}/")
        for row in ledger.read(
            "SELECT * FROM image WHERE folder_id = ? AND path = ?", (number, name.removeprefix(f"{folder}/"))
        )
    ]  # fmt: skip


def _by_whole_path(ledger: Ledger, name: str) -> list[sqlite3.Row]:
    """Rows of the file that a path leads to, as it is written or with its links resolved."""
    try:
        whole = with_home(name).absolute()
        paths = {whole, whole.resolve()}
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a NUL: no path at all
        return []
    return [
        row
        for number, folder in list_folders(ledger).items()
        for path in paths if path.is_relative_to(folder)
        for row in ledger.read(
            "SELECT * FROM image WHERE folder_id = ? AND path = ?", (number, path.relative_to(folder).as_posix())
        )
    ]  # fmt: skip


def path_of(ledger: Ledger, image: ImageRow) -> Path:
    """Where the file of an image is; a link that leads out of its folder is refused."""
    rows = ledger.read("SELECT path FROM folder WHERE id = ?", (image.folder_id,))
    return real_path(Path(rows[0]["path"]), image.path)


def is_as_it_was(ledger: Ledger, image: ImageRow) -> bool:
    """Whether the file is there, with the size and the times that it was indexed with."""
    try:
        stamp = stamp_of(path_of(ledger, image))
    except BadFile:
        return False
    return stamp is not None and (stamp.bytes, stamp.mtime_ns) == (image.bytes, image.mtime_ns)


def quarantine(ledger: Ledger, troubles: Sequence[tuple[int, str]]) -> None:
    """Take images out of use: pairs of id and reason."""
    with ledger.writing() as connection:
        connection.executemany("UPDATE image SET trouble = ? WHERE id = ?", [(why, image) for image, why in troubles])


def image_row(row: sqlite3.Row) -> ImageRow:
    """The row of a query for all columns."""
    return ImageRow(*(row[field.name] for field in fields(ImageRow)))
