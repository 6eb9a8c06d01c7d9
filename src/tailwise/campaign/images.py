"""The images of a campaign: their rows in the ledger, their files, and the search for the image that a record names.

Files are read and never touched. A hash identifies an image; a path may be absolute, below a folder, or share only its
end.
"""

from __future__ import annotations

import os
import posixpath
import sqlite3
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import permutations
from pathlib import Path, PurePath
from typing import Any

from ..errors import BadFile, BadInput, UnknownName
from ..files import usable, with_home
from ..formats.base import Record
from ..formats.label_studio import path_of_address, uploaded_name
from ..inputs import listed, shown
from ..matrix.stores import reject_url
from .database import LEDGER_FILE
from .ledger import Ledger

# -- rows --------------------------------------------------------------------------------------------------------------

SEAL_DIGITS = 16  # of an image's SHA-256


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

    @property
    def seal(self) -> str:
        """The first digits of the SHA-256; an answer that carries it is rejected once the bytes are others.

        Empty where the bytes could never be read.
        """
        return (self.sha256 or "")[:SEAL_DIGITS]


def image_row(row: sqlite3.Row) -> ImageRow:
    """The row of a query for all columns."""
    return ImageRow(*(row[field.name] for field in fields(ImageRow)))


def list_images(ledger: Ledger, *, usable: bool = False) -> list[ImageRow]:
    """All images by id; or those alone that can be chosen: neither in quarantine nor duplicates."""
    where = "WHERE trouble IS NULL AND duplicate_of IS NULL" if usable else ""
    return [image_row(row) for row in ledger.read(f"SELECT * FROM image {where} ORDER BY id")]


def quarantine(ledger: Ledger, troubles: Sequence[tuple[int, str]]) -> None:
    """Take images out of use: pairs of id and reason."""
    with ledger.writing() as connection:
        connection.executemany("UPDATE image SET trouble = ? WHERE id = ?", [(why, image) for image, why in troubles])


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
            f"{text[:200]!r} is not an image of this campaign; name one by its path or its key, or index its folder"
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


# -- folders and files -------------------------------------------------------------------------------------------------


def list_folders(ledger: Ledger) -> dict[int, Path]:
    """The folders that were indexed, by id."""
    return {row["id"]: Path(row["path"]) for row in ledger.read("SELECT id, path FROM folder ORDER BY id")}


def image_folders(images: str | Path | Sequence[str | Path], home: Path) -> list[Path]:
    """The folders of images, each there and none of them the campaign's own."""
    several = not isinstance(images, str | os.PathLike)
    named: list[Any] = listed(images, "images", "the folder of your images, or a list of such") if several else [images]
    for one in named:
        reject_url(one, "images")
    roots = [usable(one).resolve() for one in named]
    for root in roots:
        if not root.is_dir():
            raise BadFile(f"no folder at {root}; name the folder of your images")
        if root == home or (root / LEDGER_FILE).exists():
            raise BadInput(
                f"{root} is to be a campaign and holds the images; put the campaign into a folder of its own"
            )
    return roots


def folders_in_use(ledger: Ledger) -> list[Path]:
    """The folders that were indexed, but for those that are gone and of which no image is expected.

    Their images have moved elsewhere, are known to be missing, or could never be read.
    """
    used = {row[0] for row in ledger.read("SELECT DISTINCT folder_id FROM image WHERE trouble IS NULL")}
    return [path for number, path in list_folders(ledger).items() if number in used or path.is_dir()]


def folder_names(ledger: Ledger) -> dict[int, str]:
    """What a path begins with, by the id of its folder: nothing, unless two folders hold images of the same name.

    Then it is the name of the folder; where two are called alike, as many parts of their paths as are needed.
    """
    rows = ledger.read("SELECT path FROM image GROUP BY path HAVING count(DISTINCT folder_id) > 1 LIMIT 1")
    folders = list_folders(ledger)
    if not rows:
        return dict.fromkeys(folders, "")
    return dict(zip(folders, short_names(list(folders.values())), strict=True))


def short_names(folders: Sequence[Path]) -> list[str]:
    """The ends of paths, of equally many parts and as few as make them differ; none begins like another.

    >>> short_names([Path("/data/one"), Path("/data/two")]), short_names([Path("/a/photos"), Path("/b/photos")])
    (['one', 'two'], ['a/photos', 'b/photos'])
    """
    parts = [folder.parts[1:] for folder in folders]
    for count in range(1, max(map(len, parts), default=0)):
        ends = ["/".join(one[-count:]) for one in parts]
        if not any(f"{one}/".startswith(f"{other}/") for one, other in permutations(ends, 2)):
            return ends
    return ["/".join(one) for one in parts]


def path_of(ledger: Ledger, image: ImageRow) -> Path:
    """Where the file of an image is; a link that leads out of its folder is refused."""
    rows = ledger.read("SELECT path FROM folder WHERE id = ?", (image.folder_id,))
    return real_path(Path(rows[0]["path"]), image.path)


def real_path(root: Path, path: str) -> Path:
    """Where a file below a folder really is; BadFile where a link leads out of the folder."""
    try:
        real = (root / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise BadFile(f"{root / path} leads nowhere: {error}") from error
    if not real.is_relative_to(root.resolve()):
        raise BadFile(f"{root / path} leads out of the folder; it is not read")
    return real


@dataclass(frozen=True, slots=True)
class FileStat:
    """Identifies an unchanged file without reading it; a rename changes the last field."""

    bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStat:
        """From what the system says of a file."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def file_stat(path: Path) -> FileStat | None:
    """Size and times of a file, links followed; None without a regular file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return FileStat.of(found) if stat.S_ISREG(found.st_mode) else None


def is_unchanged(ledger: Ledger, image: ImageRow) -> bool:
    """Whether the file is there, with the size and the time of change that it was indexed with."""
    try:
        found = file_stat(path_of(ledger, image))
    except BadFile:
        return False
    return found is not None and (found.bytes, found.mtime_ns) == (image.bytes, image.mtime_ns)


def name_is_unicode(path: str) -> bool:
    r"""Whether a path can be written as UTF-8.

    >>> name_is_unicode("café.jpg"), name_is_unicode("caf\udce9.jpg")
    (True, False)
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- the image that a record of another program names ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownImage:
    """An image of the campaign, as far as matching goes."""

    id: int
    key: str
    folder: str
    path: str
    name: str  # as exports call it: the path, after the name of the folder where two hold images of the same name
    shown: str  # in messages: the name, and that of the copy that was asked for, where that is another image
    sha256: str
    duplicate_of: int | None
    answered: bool  # whether anybody has ever answered it


_IMAGES = """
SELECT i.id, i.key, i.folder_id, f.path AS folder, i.path, i.sha256, i.duplicate_of,
    EXISTS (SELECT 1 FROM event AS e WHERE e.image_id = i.id) AS answered
FROM image AS i JOIN folder AS f ON f.id = i.folder_id ORDER BY i.id
"""


class Matcher:
    """All images of a campaign, to be found by what a record says."""

    def __init__(self, ledger: Ledger) -> None:
        names = folder_names(ledger)
        rows = []
        for row in ledger.read(_IMAGES):
            name = f"{names[row['folder_id']]}/{row['path']}".lstrip("/")
            rows.append(
                KnownImage(row["id"], row["key"], row["folder"], row["path"], name, name, row["sha256"] or "",
                           row["duplicate_of"], bool(row["answered"]))
            )  # fmt: skip
        self._rows = rows
        self._by_id = {row.id: row for row in rows}
        self._folders = sorted({row.folder for row in rows}, key=len, reverse=True)
        self._by_sha256 = _grouped((row.sha256, row) for row in rows if row.sha256)
        self._by_path = _grouped((_normal(row.path), row) for row in rows)
        self._by_name = _grouped((_normal(row.name), row) for row in rows if row.name != row.path)
        self._by_end: dict[bool, dict[str, list[KnownImage]]] = {}

    def find(self, record: Record, *, by_name: bool = False) -> KnownImage | str:
        """The image, or why it is not found; `by_name` does not ask for the bytes."""
        if record.sha256 and not by_name:
            return self._with_bytes(record)
        named = self._named(record.path)
        if len({row.sha256 or row.id for row in named}) > 1:
            return _ambiguous(named)
        return self._original(named[0]) if named else "no image has that name"

    def _with_bytes(self, record: Record) -> KnownImage | str:
        """The image with these bytes, of several the one that is called so; one whose bytes were never read will do."""
        same = self._by_sha256.get(record.sha256, [])
        if len(same) == 1:
            return self._original(same[0])
        named = self._named(record.path)
        ids = {row.id for row in named}
        best = [row for row in same if row.id in ids] or same or [row for row in named if not row.sha256]
        if best:
            return self._original(best[0])
        return "an image of that name has other bytes" if named else "no image has that name or these bytes"

    def _original(self, row: KnownImage) -> KnownImage:
        """Of images with the same bytes the first one is asked about; another keeps what was said of it before."""
        if row.duplicate_of is None or row.answered:
            return row
        original = self._by_id[row.duplicate_of]
        return replace(original, shown=f"{row.name} (a copy of {original.name})")

    def _named(self, path: str) -> list[KnownImage]:
        """The images that a path fits best, tried as it is, as Windows writes it, and as an address."""
        for form in dict.fromkeys((path, path.replace("\\", "/"), path_of_address(path))):
            found = self._with_path(form) or self._with_end(_normal(form))
            if found:
                return found
        return self._uploaded.get(posixpath.basename(path_of_address(path)), [])

    @cached_property
    def _uploaded(self) -> dict[str, list[KnownImage]]:
        """By the names that Label Studio gives to uploaded files."""
        return _grouped((uploaded_name(row.path), row) for row in self._rows)

    def _with_path(self, path: str) -> list[KnownImage]:
        """Those whose path below a folder, or whose whole path, is this one."""
        normal = _normal(path)
        inside = [(folder, normal[len(folder) + 1 :]) for folder in self._folders if normal.startswith(f"{folder}/")]
        rows = [row for folder, below in inside for row in self._by_path.get(below, []) if row.folder == folder]
        rows = rows or self._by_name.get(normal) or self._by_path.get(normal, [])
        exact = [row for row in rows if path in (row.path, row.name, Path(row.folder, row.path).as_posix())]
        return exact or rows

    def _with_end(self, path: str) -> list[KnownImage]:
        """Those that share the most last parts with the path; of a name without a suffix, those of that stem."""
        for end in _ends(path):
            found = self._ends_of_paths(stems=False).get(end)
            if not found and "." not in end.rsplit("/", 1)[-1]:
                found = self._ends_of_paths(stems=True).get(end)
            if found:
                return found
        return []

    def _ends_of_paths(self, *, stems: bool) -> dict[str, list[KnownImage]]:
        """Every end of every path, or of its stem; made when the first path does not fit as it is."""
        if stems not in self._by_end:
            paths = ((_normal(row.path), row) for row in self._rows)
            named = ((posixpath.splitext(path)[0] if stems else path, row) for path, row in paths)
            self._by_end[stems] = _grouped((end, row) for path, row in named for end in _ends(path))
        return self._by_end[stems]


def _ambiguous(rows: Sequence[KnownImage]) -> str:
    called = f"{len(rows)} images are called so"
    if len({row.path for row in rows}) == 1 and len({row.folder for row in rows}) > 1:
        return f"{called}, in different folders; give the path with its folder, such as {rows[0].name}, or the sha256"
    return f"{called}; give the path below the images' folder, or the sha256"


def _grouped(pairs: Iterable[tuple[str, KnownImage]]) -> dict[str, list[KnownImage]]:
    groups: defaultdict[str, list[KnownImage]] = defaultdict(list)
    for key, row in pairs:
        groups[key].append(row)
    return dict(groups)


def _normal(path: str) -> str:
    """A path in one form: composed letters, no empty parts and no dots.

    >>> _normal("./a//b/../1.jpg")
    'a/1.jpg'
    """
    return posixpath.normpath(unicodedata.normalize("NFC", path)) if path else ""


def _ends(path: str) -> Iterator[str]:
    """The path, and what is left of it without its first part, its first two, and so on to its name.

    >>> list(_ends("a/b/1.jpg"))
    ['a/b/1.jpg', 'b/1.jpg', '1.jpg']
    """
    while path:
        yield path
        _, _, path = path.partition("/")
