"""What a format is: how it is registered and guessed, its records, and names that every file system accepts."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, TypeVar

from ..errors import BadFile, BadInput
from ..files import open_regular
from ..inputs import Registry
from .reading import CLASSES_FILE, files_below, opened_zip, read_classes_file, read_json

Kind: TypeAlias = Literal["label", "other", "skip"]
KINDS: tuple[Kind, ...] = ("label", "other", "skip")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEAD_BYTES = 4096  # of a file, in which an export shows that it is one of ours
OTHER = "_other"
UNLABELLED = "_unlabelled"
# Folders that we and other tools keep for images without a class: a class of such a name gets another folder.
NO_CLASS = {OTHER, UNLABELLED, "_unlabeled", "no_label"}
WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
FORBIDDEN = re.compile(r'[/\\:*?"<>|\x00-\x1f\x7f]')
MOST_BYTES = 180  # file systems take 255: this leaves space for a number and an ending
MOST_ENDING = 20


@dataclass(frozen=True, slots=True)
class Record:
    """One answer to one image; of kind "label" without a label, an image that nobody has answered.

    Attributes
    ----------
    path: of the image, below its folder, with /; begins with the folder's name where two folders hold images that are
        called alike. What a foreign tool says may be anything.
    at: microseconds since 1970, UTC.
    proba: class name → probability, by the model `model_version`.
    sha256: of the image's bytes; empty where it is not known.
    within: the path below the folder, where `path` begins with its name; else empty.
    round: the open round that asks for the image, with its rank there from 1; None where no open round does.
    flagged, comments: what people have noted about the image, one line "name: text" per comment.
    """

    path: str
    label: str | None
    split: str = ""
    annotator: str = ""
    at: int | None = None
    model_version: str = ""
    proba: Mapping[str, float] | None = None
    kind: Kind = "label"
    sha256: str = ""
    within: str = field(default="", compare=False)
    round: int | None = field(default=None, compare=False)
    rank: int | None = field(default=None, compare=False)
    flagged: bool = field(default=False, compare=False)
    comments: str = field(default="", compare=False)

    @property
    def answered(self) -> bool:
        """Whether anybody has answered."""
        return self.kind != "label" or self.label is not None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds; `classes` in its own order, also those that no record has."""

    records: list[Record]
    problems: list[str] = field(default_factory=list)  # what was left out, and why
    classes: tuple[str, ...] = ()


Source: TypeAlias = Callable[[Record], Path]
"""Where the image of a record lies."""


class Sample:
    """A file or a folder whose format is to be guessed; what is read of it is read once."""

    def __init__(self, path: Path) -> None:
        self.path, self.is_folder = path, path.is_dir()
        self.suffix = "" if self.is_folder else path.suffix.lower()  # in small letters
        self._read: dict[str, object] = {}

    @cached_property
    def files(self) -> list[str]:
        """Every file below a folder; the names in a .zip."""
        if self.is_folder:
            return files_below(self.path)[0]
        with opened_zip(self.path) as archive:
            return archive.namelist()

    @cached_property
    def json(self) -> object:
        """The content of a JSON file."""
        return read_json(self.path)

    def json_in(self, name: str) -> object:
        """The content of a JSON file in the folder; None where it is not valid JSON."""
        if name not in self._read:
            try:
                self._read[name] = read_json(self.path / name)
            except BadFile:  # what reads it later says what is wrong
                self._read[name] = None
        return self._read[name]

    def has(self, name: str) -> bool:
        """Whether it is a folder that holds this file."""
        return self.is_folder and (self.path / name).is_file()


class Format(Protocol):
    """A way to write labels down, and to read them back."""

    name: str
    about: str  # in one line
    suffix: str  # of the file that it writes; empty where it writes a folder
    copies: bool  # whether it copies the images
    priority: int  # of several formats that recognise a file, the one with the highest is guessed

    def recognises(self, sample: Sample) -> bool:
        """Whether a file or a folder looks like this format."""
        ...

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read a file or a folder, also as other tools write it; `classes` are those already known."""
        ...

    def check(self, out: Path) -> None:
        """Reject a place that `write` could not write to: one that is taken, of the wrong kind or missing."""
        ...

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Write a file or a folder, whole or not at all; `classes` in order, also those without images."""
        ...


FORMATS: Registry[Format] = Registry("format", "tailwise.formats")
AnyFormat = TypeVar("AnyFormat", bound=Format)


def label_format(cls: type[AnyFormat]) -> type[AnyFormat]:
    """Decorate the class of a format to register it under its `name`."""
    FORMATS.register(cls.name)(cls())
    return cls


def guess_format(path: Path) -> str:
    """The name of the format of a file or a folder, by its names and as little of its content as is needed."""
    if not path.exists():
        raise BadFile(f"there is no file or folder {path}")
    if path.is_dir():
        about = read_classes_file(path / CLASSES_FILE)
        if about is not None and about.format in FORMATS:
            return about.format
    sample = Sample(path)
    FORMATS.load_plugins()
    for name in sorted(FORMATS, key=lambda name: -FORMATS[name].priority):
        if FORMATS[name].recognises(sample):
            return name
    kind = "the folder " if path.is_dir() else ""
    raise BadFile(f"the format of {kind}{path} is not recognised; name it: {', '.join(FORMATS)}")


class FileFormat:
    """A format that writes one file."""

    suffix: str
    suffixes: tuple[str, ...]  # of files that it reads
    mark: bytes  # in the first bytes of the files that it writes

    def recognises(self, sample: Sample) -> bool:
        """A file with one of the usual endings."""
        return sample.suffix in self.suffixes

    def check(self, out: Path) -> None:
        """Reject a place that cannot be written, or a file that we did not write."""
        check_file(out, self.suffix, self.mark)


def check_file(out: Path, suffix: str, ours: bytes) -> None:
    """Reject a place that cannot be written, or a file that we did not write: `ours` must be in its first bytes."""
    if out.suffix.lower() != suffix:
        raise BadInput(f"cannot write {out.name!r}: its name must end in {suffix}")
    try:
        with open_regular(out) as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        head = b""
    except IsADirectoryError as error:
        raise BadFile(f"cannot write {out}: there is a folder of that name") from error
    except OSError as error:
        raise BadFile(f"cannot write {out}: {error.strerror or error}") from error
    if not out.parent.is_dir():
        raise BadFile(f"cannot write {out}: there is no folder {out.parent}; make it first")
    if head and ours not in head:
        raise BadFile(f"{out} is there already, and no export has written it; name another file or move it away")


# Answers that another tool gives back.

ANSWERS = "answers"  # in the note of an exported image: what was answered before; annotations refer to it by number
ANY = -1  # a number that is not known


def as_exported(record: Record, note: object, number: object) -> Record:
    """A record under the annotator and time of the exported answer that it is; unchanged where it says another thing.

    >>> note = {"answers": [{"annotator": "ben", "kind": "label", "label": "owl"}]}
    >>> [as_exported(Record("1.jpg", label, annotator="user 1"), note, 1).annotator for label in ("owl", "kite")]
    ['ben', 'user 1']
    """
    known = note.get(ANSWERS) if isinstance(note, dict) else None
    if not isinstance(known, list) or not isinstance(number, int):
        return record
    for said in known if number == ANY else known[max(number - 1, 0) : max(number, 0)]:
        if isinstance(said, dict) and (said.get("kind"), said.get("label")) == (record.kind, record.label):
            who, at = said.get("annotator"), said.get("time")
            return replace(
                record,
                annotator=who if isinstance(who, str) else record.annotator,
                at=from_iso(at) if isinstance(at, str) else record.at,
            )
    return record


# Times, classes and images of records.


def to_iso(at: int) -> str:
    """A time as text.

    >>> to_iso(1_700_000_000_000_001)
    '2023-11-14T22:13:20.000001Z'
    """
    return (EPOCH + timedelta(microseconds=at)).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def from_iso(text: str) -> int:
    """The time that a text names, in UTC where it names no zone.

    >>> from_iso("2023-11-14T23:13:20.000001+01:00")
    1700000000000001
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (zoned - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{text!r} is not a time like 2023-11-14T22:13:20Z") from error


def all_classes(classes: Sequence[str], records: Iterable[Record]) -> tuple[str, ...]:
    """The classes in order, and after them those that only records have.

    >>> all_classes(("dog", "cat"), [Record("1.jpg", "owl"), Record("2.jpg", "cat"), Record("3.jpg", None)])
    ('dog', 'cat', 'owl')
    """
    labels = (record.label for record in records)
    return tuple(dict.fromkeys([*classes, *(label for label in labels if label is not None)]))


def by_image(records: Iterable[Record]) -> list[list[Record]]:
    """Records in groups of one image each, in the order in which images first appear.

    >>> [len(group) for group in by_image([Record("1.jpg", "cat"), Record("2.jpg", "cat"), Record("1.jpg", "dog")])]
    [2, 1]
    """
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        shares = tuple((record.proba or {}).items())
        # An image without an answer stands alone: as part of a group it would vanish.
        key = (record.path, record.sha256, record.split, shares, record.answered)
        groups.setdefault(key, []).append(record)
    return list(groups.values())


# Names that every file system accepts.


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


class UniqueNames:
    """Names given so far in one folder; the next of the same name gets a number."""

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self._names = {folded(name) for name in reserved}
        self._numbers: defaultdict[str, int] = defaultdict(lambda: 1)

    def give(self, stem: str, ending: str = "", *, apart: bool = False) -> str:
        """A free name; `apart` keeps names apart by their stems alone, whatever their endings.

        >>> taken = UniqueNames()
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
    taken = UniqueNames(sorted(NO_CLASS))
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
