"""What a format is: labels as records in, files out, and back. Nothing here knows a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from ...errors import BadInput
from ...registry import Registry

Kind: TypeAlias = Literal["label", "other", "skip"]
KINDS: tuple[Kind, ...] = ("label", "other", "skip")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    @property
    def answered(self) -> bool:
        """Whether anybody has said anything."""
        return self.kind != "label" or self.label is not None


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file holds; `classes` in its own order, also those that no record has."""

    records: list[Record]
    problems: list[str] = field(default_factory=list)  # what was left out, and why
    classes: tuple[str, ...] = ()


Source: TypeAlias = Callable[[Record], Path]
"""Where the image of a record lies."""


class Format(Protocol):
    """A way to write labels down, and to read them back."""

    name: str
    about: str  # in one line
    suffix: str  # of the file that it writes; empty where it writes a folder
    copies: bool  # whether it copies the images

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read a file or a folder, also as the foreign tool writes it; `classes` are those already known."""
        ...

    def check(self, out: Path) -> None:
        """Refuse a place where `write` would write nothing: one that is taken, of the wrong kind or not there."""
        ...

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Write a file or a folder, whole or not at all; `classes` in order, also those without images."""
        ...


FORMATS: Registry[Format] = Registry("format")


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
        raise BadInput(f"{text!r} is no time such as 2023-11-14T22:13:20Z") from error


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
