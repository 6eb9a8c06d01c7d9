"""The classes of a campaign: added, renamed, retired and restored, never deleted; each change is kept as an event."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadInput, UnknownName
from ..inputs import shown
from .ledger import Ledger, now
from .names import MOST_CLASS, clean_name


@dataclass(frozen=True, slots=True)
class Klass:
    """A class that an image may be labelled as."""

    id: int
    name: str
    position: int  # from 0, in the order in which they were added
    retired: bool = False


def list_classes(ledger: Ledger, *, retired: bool = False) -> list[Klass]:
    """The classes by position; with `retired`, those too that were retired."""
    rows = ledger.read("SELECT id, name, position, retired_at FROM class ORDER BY position, id")
    classes = [Klass(row["id"], row["name"], row["position"], row["retired_at"] is not None) for row in rows]
    return [one for one in classes if retired or not one.retired]


def find_class(ledger: Ledger, name: str | int) -> Klass:
    """A class by its number or its name, whatever the case; retired ones too."""
    known = list_classes(ledger, retired=True)
    whole = isinstance(name, int) and not isinstance(name, bool)
    for one in known:
        if (whole and one.id == name) or (isinstance(name, str) and _same(one.name, name)):
            return one
    names = ", ".join(one.name for one in known[:20]) or "none"
    raise UnknownName(f"no class is called {shown(name)}; the classes are {names}{', …' if len(known) > 20 else ''}")


def add_class(ledger: Ledger, name: str) -> Klass:
    """Add a class behind the others."""
    return add_classes(ledger, [name])[0]


def add_classes(ledger: Ledger, names: Sequence[str]) -> list[Klass]:
    """Add several classes behind the others: all of them, or none where one cannot be."""
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


def rename_class(ledger: Ledger, name: str | int, new: str) -> Klass:
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


def retire_class(ledger: Ledger, name: str | int) -> Klass:
    """Offer a class no more, and train on it no more; its labels are kept."""
    return _set_retired(ledger, name, "retire")


def restore_class(ledger: Ledger, name: str | int) -> Klass:
    """Bring a retired class back, with its labels."""
    return _set_retired(ledger, name, "restore")


def _set_retired(ledger: Ledger, name: str | int, what: str) -> Klass:
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        if one.retired != (what == "retire"):
            at = now() if what == "retire" else None
            connection.execute("UPDATE class SET retired_at = ? WHERE id = ?", (at, one.id))
            _note(connection, one.id, what, one.name, one.name)
    return find_class(ledger, one.id)


def _check_new(known: dict[str, Klass], name: str) -> None:
    other = known.get(name.casefold())
    if other is not None and other.retired:
        raise BadInput(f"the class {other.name!r} is there and retired; restore it, or take another name than {name!r}")
    if other is not None:
        raise BadInput(f"the class {other.name!r} is there already; names must differ by more than their case")


def _insert(connection: sqlite3.Connection, name: str, position: int) -> Klass:
    at = now()
    cursor = connection.execute(
        "INSERT INTO class (name, position, added_at) VALUES (?, ?, ?)", (name, position, at)
    )  # fmt: skip
    number = int(cursor.lastrowid or 0)
    _note(connection, number, "add", None, name)
    return Klass(number, name, position)


def _note(connection: sqlite3.Connection, class_id: int, what: str, old: str | None, new: str) -> None:
    connection.execute(
        "INSERT INTO class_event (at, class_id, what, old, new) VALUES (?, ?, ?, ?, ?)",
        (now(), class_id, what, old, new),
    )


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.strip().casefold()
