"""Which image a record speaks of: a path or a hash from elsewhere in, an image of the campaign out, or why none.

A hash, where there is one, is what counts; a path may be absolute, below a folder, or share only its end.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from .formats.base import Record
from .formats.label_studio_tasks import path_of
from .images import folder_names
from .ledger import Ledger

_IMAGES = """
SELECT i.id, i.key, i.folder_id, f.path AS folder, i.path, i.sha256, i.duplicate_of,
    EXISTS (SELECT 1 FROM event AS e WHERE e.image_id = i.id) AS spoken_of
FROM image AS i JOIN folder AS f ON f.id = i.folder_id ORDER BY i.id
"""


@dataclass(frozen=True, slots=True)
class Place:
    """An image of the campaign, as far as matching goes."""

    id: int
    key: str
    folder: str
    path: str
    name: str  # as exports call it: the path, after the name of the folder where two hold images of the same name
    sha256: str
    duplicate_of: int | None
    spoken_of: bool  # whether anybody has ever answered it
    called: str = ""  # the name of the copy that was asked for, where this is the one that people are asked about

    def __str__(self) -> str:
        return f"{self.called} (a copy of {self.name})" if self.called else self.name

    @property
    def file(self) -> Path:
        """Where it lies."""
        return Path(self.folder, self.path)


class Matcher:
    """All images of a campaign, to be found by what a record says."""

    def __init__(self, ledger: Ledger) -> None:
        names = folder_names(ledger)
        rows = [
            Place(row["id"], row["key"], row["folder"], row["path"],
                  f"{names[row['folder_id']]}/{row['path']}".lstrip("/"), row["sha256"] or "", row["duplicate_of"],
                  bool(row["spoken_of"]))
            for row in ledger.read(_IMAGES)
        ]  # fmt: skip
        self._rows = rows
        self._by_id = {row.id: row for row in rows}
        self._folders = sorted({row.folder for row in rows}, key=len, reverse=True)
        self._by_sha256 = _grouped((row.sha256, row) for row in rows if row.sha256)
        self._by_path = _grouped((_normal(row.path), row) for row in rows)
        self._by_name = _grouped((_normal(row.name), row) for row in rows if row.name != row.path)

    def find(self, record: Record, *, by_name: bool = False) -> Place | str:
        """The image, or why there is none; `by_name` does not ask for the bytes."""
        if record.sha256 and not by_name:
            return self._by_bytes(record)
        named = self._named(record.path)
        if len({row.sha256 or row.id for row in named}) > 1:
            return _ambiguous(named)
        return self._original(named[0]) if named else "no image has that name"

    def _by_bytes(self, record: Record) -> Place | str:
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

    def _original(self, row: Place) -> Place:
        """Of images with the same bytes the first one is asked about; another keeps what was said of it before."""
        if row.duplicate_of is None or row.spoken_of:
            return row
        return replace(self._by_id[row.duplicate_of], called=row.name)

    def _named(self, path: str) -> list[Place]:
        """The images that a path fits best, tried as it is, as Windows writes it, and as an address."""
        for form in dict.fromkeys((path, path.replace("\\", "/"), path_of(path))):
            found = self._whole(form) or self._ending(_normal(form))
            if found:
                return found
        return []

    def _whole(self, path: str) -> list[Place]:
        """Those whose path below a folder, or whose whole path, is this one."""
        normal = _normal(path)
        inside = [(folder, normal[len(folder) + 1 :]) for folder in self._folders if normal.startswith(f"{folder}/")]
        rows = [row for folder, below in inside for row in self._by_path.get(below, []) if row.folder == folder]
        rows = rows or self._by_name.get(normal) or self._by_path.get(normal, [])
        exact = [row for row in rows if path in (row.path, row.name, row.file.as_posix())]
        return exact or rows

    def _ending(self, path: str) -> list[Place]:
        """Those that share the most last parts with the path; of a name without an ending, those of that stem."""
        for end in _ends(path):
            found = self._by_end.get(end) or ([] if "." in end.rsplit("/", 1)[-1] else self._by_bare_end.get(end))
            if found:
                return found
        return []

    @cached_property
    def _by_end(self) -> dict[str, list[Place]]:
        """Every end of every path, made when the first path does not fit as it is."""
        return _grouped((end, row) for row in self._rows for end in _ends(_normal(row.path)))

    @cached_property
    def _by_bare_end(self) -> dict[str, list[Place]]:
        return _grouped((end, row) for row in self._rows for end in _ends(posixpath.splitext(_normal(row.path))[0]))


def _ambiguous(rows: Sequence[Place]) -> str:
    called = f"{len(rows)} images are called so"
    if len({row.path for row in rows}) == 1 and len({row.folder for row in rows}) > 1:
        return f"{called}, in different folders; give the path with its folder, such as {rows[0].name}, or the sha256"
    return f"{called}; give the path below the images' folder, or the sha256"


def _grouped(pairs: Iterable[tuple[str, Place]]) -> dict[str, list[Place]]:
    groups: defaultdict[str, list[Place]] = defaultdict(list)
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
