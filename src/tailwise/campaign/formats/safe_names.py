"""Names that any file system takes: a class or a file name in, a name for a folder or a copy out, no two alike."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence

OTHER = "_other"
UNLABELLED = "_unlabelled"
# Folders that we and other tools keep for images without a class: a class of such a name gets another folder.
NO_CLASS = {OTHER, UNLABELLED, "_unlabeled", "no_label"}
WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
MOST_BYTES = 180  # file systems take 255: this leaves room for a number and an ending
MOST_ENDING = 20


def safe_name(text: str) -> str:
    """A name without anything that a file system refuses or takes for a path.

    >>> safe_name("cats/dogs"), safe_name(".."), safe_name("con.x"), safe_name("Dr."), safe_name("été")
    ('cats_dogs', '_', '_con.x', 'Dr', 'été')
    """
    name = FORBIDDEN.sub("_", unicodedata.normalize("NFC", text)).strip().rstrip(". ")
    name = name.encode()[:MOST_BYTES].decode(errors="ignore").rstrip(". ")
    if name.startswith("."):
        name = "_" + name[1:]  # hidden files are passed over
    if not name:
        return "_"
    return f"_{name}" if WINDOWS.fullmatch(name) else name


def folded(name: str) -> str:
    """What two names have in common on a file system that knows no case.

    >>> folded("Straße") == folded("STRASSE")
    True
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


class Taken:
    """Names given so far in one folder; the next of the same name gets a number."""

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self._names = {folded(name) for name in reserved}
        self._numbers: defaultdict[str, int] = defaultdict(lambda: 1)

    def give(self, stem: str, ending: str = "", *, apart: bool = False) -> str:
        """A free name; `apart` keeps names apart by their stems alone, whatever their endings.

        >>> taken = Taken()
        >>> taken.give("a", ".jpg"), taken.give("A", ".jpg"), taken.give("a", ".png"), taken.give("a-2", ".jpg")
        ('a.jpg', 'A-2.jpg', 'a.png', 'a-2-2.jpg')
        """
        tail = "" if apart else ending
        name = stem
        while folded(name + tail) in self._names:
            self._numbers[folded(stem + tail)] += 1
            name = f"{stem}-{self._numbers[folded(stem + tail)]}"
        self._names.add(folded(name + tail))
        return name + ending


def class_folders(classes: Sequence[str]) -> dict[str, str]:
    """A folder for each class, in order.

    >>> class_folders(["cat", "a/b", "a_b", "..", "Cat.", "_other"])
    {'cat': 'cat', 'a/b': 'a_b', 'a_b': 'a_b-2', '..': '_', 'Cat.': 'Cat-2', '_other': '_other-2'}
    """
    taken = Taken(sorted(NO_CLASS))
    return {name: taken.give(safe_name(name)) for name in classes}


def stem_and_ending(path: str) -> tuple[str, str]:
    """The last part of a path as a safe stem and its ending; the ending is kept as it is.

    >>> stem_and_ending("a/b:c.tar.JPG")
    ('b_c.tar', '.JPG')
    """
    name = path.rsplit("/", 1)[-1]
    stem, dot, ending = name.rpartition(".")
    if not stem or not re.fullmatch(r"\w+", ending) or len(ending.encode()) > MOST_ENDING:
        return safe_name(name), ""
    return safe_name(stem), dot + ending
