"""The classes of a campaign: added, renamed, retired and restored, never deleted; each change is kept as an event.

Names of classes and of annotators are checked here.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..errors import BadInput, UnknownName
from ..inputs import listed, shown
from ..inputs import shown as as_shown
from .ledger import Ledger, now

MOST_CLASS = 200
MOST_ANNOTATOR = 60
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}
TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # turn the text around them


def clean_name(kind: str, text: str, most: int) -> str:
    """A name in one normal form, without outer spaces.

    >>> clean_name("class", "  Cafe\u0301 ", MOST_CLASS)
    'Café'
    >>> clean_name("class", " ", MOST_CLASS)
    Traceback (most recent call last):
    tailwise.errors.BadInput: the class name ' ' is empty; give it at least one visible character
    """
    given: object = text
    if not isinstance(given, str):
        raise BadInput(f"the {kind} name is {as_shown(given)}; it must be text")
    name = unicodedata.normalize("NFC", text).strip()
    shown = repr(text if len(text) <= 40 else text[:40] + "…")
    kinds = {character: unicodedata.category(character) for character in name}
    if all(category in INVISIBLE for category in kinds.values()):
        raise BadInput(f"the {kind} name {shown} is empty; give it at least one visible character")
    if len(name) > most:
        raise BadInput(f"the {kind} name {shown} has {len(name)} characters; at most {most} are allowed")
    bad = [character for character in name if kinds[character] in ("Cc", "Cs", "Zl", "Zp") or character in TURNS]
    if bad:
        raise BadInput(f"the {kind} name {shown} holds U+{ord(bad[0]):04X}, which cannot be shown; leave it out")
    return name


def clean_annotator(text: str) -> str:
    """The name of somebody who labels."""
    given: object = text
    return (_cached_name if isinstance(given, str) else clean_name)("annotator", text, MOST_ANNOTATOR)


_cached_name = lru_cache(maxsize=1024)(clean_name)  # the same few names come with every answer


@dataclass(frozen=True, slots=True)
class ClassRow:
    """A class that an image may be labelled as."""

    id: int
    name: str
    position: int  # from 0, in the order in which they were added
    retired: bool = False


def list_classes(ledger: Ledger, *, retired: bool = False) -> list[ClassRow]:
    """The classes by position; with `retired`, those too that were retired."""
    rows = ledger.read("SELECT id, name, position, retired_at FROM class ORDER BY position, id")
    classes = [ClassRow(row["id"], row["name"], row["position"], row["retired_at"] is not None) for row in rows]
    return [one for one in classes if retired or not one.retired]


def find_class(ledger: Ledger, name: str | int) -> ClassRow:
    """A class by its number or its name, whatever the case; retired ones too."""
    known = list_classes(ledger, retired=True)
    whole = isinstance(name, int) and not isinstance(name, bool)
    for one in known:
        if (whole and one.id == name) or (isinstance(name, str) and one.name.casefold() == name.strip().casefold()):
            return one
    names = ", ".join(one.name for one in known[:20]) or "none"
    raise UnknownName(f"no class is called {shown(name)}; the classes are {names}{', …' if len(known) > 20 else ''}")


def add_classes(ledger: Ledger, names: Sequence[str]) -> list[ClassRow]:
    """Add classes behind the others: all of them, or none where one cannot be."""
    cleaned = [clean_name("class", name, MOST_CLASS) for name in names]
    with ledger.writing() as connection:
        added = []
        known = {one.name.casefold(): one for one in list_classes(ledger, retired=True)}
        for name in cleaned:
            _check_new(known, name)
            klass = _insert(connection, name, len(known))
            known[name.casefold()] = klass
            added.append(klass)
    return added


def rename_class(ledger: Ledger, name: str | int, new: str) -> ClassRow:
    """Give a class another name; its labels stay with it."""
    cleaned = clean_name("class", new, MOST_CLASS)
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        known = {other.name.casefold(): other for other in list_classes(ledger, retired=True) if other.id != one.id}
        _check_new(known, cleaned)
        if cleaned != one.name:
            connection.execute("UPDATE class SET name = ? WHERE id = ?", (cleaned, one.id))
            _note(connection, one.id, "rename", one.name, cleaned)
    return find_class(ledger, one.id)


def retire_class(ledger: Ledger, name: str | int, *, restore: bool = False) -> ClassRow:
    """Offer a class no more, and train on it no more; its labels are kept. `restore` brings it back with them."""
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        if one.retired == restore:
            at = None if restore else now()
            connection.execute("UPDATE class SET retired_at = ? WHERE id = ?", (at, one.id))
            _note(connection, one.id, "restore" if restore else "retire", one.name, one.name)
    return find_class(ledger, one.id)


def _check_new(known: dict[str, ClassRow], name: str) -> None:
    other = known.get(name.casefold())
    if other is not None and other.retired:
        raise BadInput(f"the class {other.name!r} is there and retired; restore it, or take another name than {name!r}")
    if other is not None:
        raise BadInput(f"the class {other.name!r} is there already; names must differ by more than their case")


def _insert(connection: sqlite3.Connection, name: str, position: int) -> ClassRow:
    at = now()
    cursor = connection.execute(
        "INSERT INTO class (name, position, added_at) VALUES (?, ?, ?)", (name, position, at)
    )  # fmt: skip
    number = int(cursor.lastrowid or 0)
    _note(connection, number, "add", None, name)
    return ClassRow(number, name, position)


def _note(connection: sqlite3.Connection, class_id: int, what: str, old: str | None, new: str) -> None:
    connection.execute(
        "INSERT INTO class_event (at, class_id, what, old, new) VALUES (?, ?, ?, ?, ?)",
        (now(), class_id, what, old, new),
    )


def check_class_names(classes: Sequence[str]) -> list[str]:
    """Before anything is made; a list, as an iterator could be gone through only once."""
    names, seen = listed(classes, "the classes", "a list of names"), set[str]()
    for name in names:
        cleaned = clean_name("class", name, MOST_CLASS)
        if cleaned.casefold() in seen:
            raise BadInput(f"the class {cleaned!r} is named twice; names must differ by more than their case")
        seen.add(cleaned.casefold())
    return names
