"""The classes of a campaign, never deleted: their names, order, keys and guidelines; each change is kept as an event.

Names of classes and of annotators, and texts that people write, are checked here.
"""

from __future__ import annotations

import sqlite3
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath

from ..errors import BadInput, UnknownName
from ..inputs import listed, shown
from ..inputs import shown as as_shown
from .images import SEAL_DIGITS, locate
from .ledger import Ledger, now

MOST_CLASS = 200
MOST_ANNOTATOR = 60
MOST_DESCRIPTION = 2000
MOST_EXAMPLES = 12  # of one class
COMMAND_KEYS = "abcdefgiklmnoprstuvxz?/+=-−"  # what single characters already do on the page (js/keys.js)
HOTKEY_SIGNS = ",.;"  # in addition to letters; other signs share a key with a digit on some keyboards
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


def clean_text(kind: str, text: str, most: int) -> str:
    r"""A text of several lines in one normal form, without what cannot be shown or turns the text around it.

    >>> clean_text("comment", " blurred\r\nand\x07 dark\u202e ", 2000)
    'blurred\nand dark'
    """
    given: object = text
    if not isinstance(given, str):
        raise BadInput(f"the {kind} is {as_shown(given)}; it must be text")
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = lines.replace("\u2028", "\n").replace("\u2029", "\n")
    kept = (one for one in lines if one in "\n\t" or unicodedata.category(one) not in ("Cc", "Cs"))
    cleaned = "".join(one for one in kept if one not in TURNS).strip()
    if len(cleaned) > most:
        raise BadInput(f"the {kind} has {len(cleaned):,} characters; at most {most:,} are allowed")
    return cleaned


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
    position: int  # from 0, retired ones included
    retired: bool = False
    description: str = ""  # what belongs to it, for those who label
    hotkey: str | None = None  # its own key on the page, in addition to the digit of its place


@dataclass(frozen=True, slots=True)
class ExampleImage:
    """An image that shows what a class looks like."""

    class_id: int
    key: str
    seal: str  # of its bytes
    path: str


def list_classes(ledger: Ledger, *, retired: bool = False) -> list[ClassRow]:
    """The classes by position; with `retired`, those too that were retired."""
    rows = ledger.read("SELECT * FROM class ORDER BY position, id")
    classes = [
        ClassRow(
            row["id"], row["name"], row["position"], row["retired_at"] is not None, row["description"], row["hotkey"]
        )
        for row in rows
    ]  # fmt: skip
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
            if restore and one.hotkey is not None and _users_of(ledger, one.hotkey, one.id):
                _set_hotkey(connection, one, None)  # another class has taken its key meanwhile
    return find_class(ledger, one.id)


def edit_class(
    ledger: Ledger, name: str | int, *, description: str | None = None, place: int | None = None,
    hotkey: str | None = None, examples: Sequence[str | PurePath] | None = None,
) -> ClassRow:  # fmt: skip
    """Change what is given, all or nothing; `hotkey=""` takes its key away, `examples` are all that it has then."""
    with ledger.writing():
        one = find_class(ledger, name)
        if description is not None:
            describe_class(ledger, one.id, description)
        if place is not None:
            move_class(ledger, one.id, place)
        if hotkey is not None:
            set_hotkey(ledger, one.id, hotkey)
        if examples is not None:
            _set_examples(ledger, one.id, listed(examples, "the examples", "a list of images"))
    return find_class(ledger, one.id)


def describe_class(ledger: Ledger, name: str | int, text: str) -> ClassRow:
    """Say what belongs to a class, for those who label; an empty text takes it away."""
    cleaned = clean_text("description", text, MOST_DESCRIPTION)
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        if cleaned != one.description:
            connection.execute("UPDATE class SET description = ? WHERE id = ?", (cleaned, one.id))
            _note(connection, one.id, "describe", one.description, cleaned)
    return find_class(ledger, one.id)


def move_class(ledger: Ledger, name: str | int, place: int) -> ClassRow:
    """Put a class at a place among those in use, the first is 1; retired ones stay where they are."""
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        used = list_classes(ledger)
        given: object = place
        whole = isinstance(given, int) and not isinstance(given, bool)
        if one.retired:
            raise BadInput(f"the class {one.name!r} is retired; restore it to move it")
        if not whole or not 1 <= place <= len(used):
            raise BadInput(f"the place {shown(place)} is not there; give a whole number from 1 to {len(used)}")
        before = next(at for at, other in enumerate(used, 1) if other.id == one.id)
        others = [other for other in used if other.id != one.id]
        order = [*others[: place - 1], one, *others[place - 1 :]]
        for old, new in zip(used, order, strict=True):
            connection.execute("UPDATE class SET position = ? WHERE id = ?", (old.position, new.id))
        if place != before:
            _note(connection, one.id, "move", str(before), str(place))
    return find_class(ledger, one.id)


def set_hotkey(ledger: Ledger, name: str | int, key: str) -> ClassRow:
    """Give a class a key of its own on the page, or take it away with an empty text; digits go by place as before."""
    hotkey = check_hotkey(key)
    with ledger.writing() as connection:
        one = find_class(ledger, name)
        if hotkey is not None and (users := _users_of(ledger, hotkey, one.id)):
            raise BadInput(
                f"the key {hotkey!r} belongs to the class {users[0].name!r}; take another, or change that first"
            )
        if hotkey != one.hotkey:
            _set_hotkey(connection, one, hotkey)
    return find_class(ledger, one.id)


def check_hotkey(text: str) -> str | None:
    """The key as it is stored; None for an empty text.

    >>> check_hotkey(" W "), check_hotkey("")
    ('w', None)
    >>> check_hotkey("u")
    Traceback (most recent call last):
    tailwise.errors.BadInput: the key 'u' is a command of the page; free letters are h, j, q, w, y
    """
    given: object = text
    key = text.strip().lower() if isinstance(given, str) else ""
    if not isinstance(given, str) or len(key) > 1:
        raise BadInput(f"the key {shown(given)} is not valid; give one character, or none to take it away")
    if not key:
        return None
    letter = key.isalpha() and (key.isascii() or not unicodedata.name(key, "LATIN").startswith("LATIN"))
    free = ", ".join(one for one in "abcdefghijklmnopqrstuvwxyz" if one not in COMMAND_KEYS)
    if key in COMMAND_KEYS:
        raise BadInput(f"the key {key!r} is a command of the page; free letters are {free}")
    if not letter and key not in HOTKEY_SIGNS:
        raise BadInput(
            f"the key {key!r} cannot be a class's own: digits go by place, and on some keyboards signs and accented "
            f"letters share a key with a digit; free are {free} and {' '.join(HOTKEY_SIGNS)}"
        )
    return key


def add_example(ledger: Ledger, name: str | int, image: str | PurePath) -> ClassRow:
    """Show an image as an example of a class; it is named by its path or its key."""
    with ledger.writing() as connection:
        one, row = find_class(ledger, name), locate(ledger, image)
        known = [example.key for example in list_examples(ledger, one.id)]
        if row.trouble is not None:
            raise BadInput(f"the image {row.path} cannot be shown: {row.trouble}; take another as an example")
        if row.key not in known:
            if len(known) >= MOST_EXAMPLES:
                raise BadInput(
                    f"the class {one.name!r} has {len(known)} examples, the most there can be; remove one first"
                )
            connection.execute("INSERT OR IGNORE INTO class_example VALUES (?, ?, ?)", (one.id, row.id, now()))
            _note(connection, one.id, "add-example", None, row.key)
    return one


def remove_example(ledger: Ledger, name: str | int, image: str | PurePath) -> ClassRow:
    """Show an image no more as an example of a class; its labels stay."""
    with ledger.writing() as connection:
        one, row = find_class(ledger, name), locate(ledger, image)
        gone = connection.execute("DELETE FROM class_example WHERE class_id = ? AND image_id = ?", (one.id, row.id))
        if not gone.rowcount:
            raise BadInput(f"the image {row.path} is not an example of the class {one.name!r}")
        _note(connection, one.id, "remove-example", row.key, None)
    return one


def list_examples(ledger: Ledger, class_id: int | None = None) -> list[ExampleImage]:
    """The examples of all classes, or of one, in the order in which they were added; those that can be shown."""
    rows = ledger.read(
        "SELECT e.class_id, i.key, substr(coalesce(i.sha256, ''), 1, ?) AS seal, i.path FROM class_example AS e "
        "JOIN image AS i ON i.id = e.image_id WHERE i.trouble IS NULL AND (? IS NULL OR e.class_id = ?) "
        "ORDER BY e.class_id, e.at, e.image_id",
        (SEAL_DIGITS, class_id, class_id),
    )
    return [ExampleImage(row["class_id"], row["key"], row["seal"], row["path"]) for row in rows]


def _set_examples(ledger: Ledger, class_id: int, images: Sequence[str | PurePath]) -> None:
    wanted = dict.fromkeys(locate(ledger, image).key for image in images)
    known = [one.key for one in list_examples(ledger, class_id)]
    for key in known:
        if key not in wanted:
            remove_example(ledger, class_id, key)
    for key in wanted:
        if key not in known:
            add_example(ledger, class_id, key)


def _users_of(ledger: Ledger, hotkey: str, but: int) -> list[ClassRow]:
    """Classes in use that have a key, without one of them."""
    return [one for one in list_classes(ledger) if one.hotkey == hotkey and one.id != but]


def _set_hotkey(connection: sqlite3.Connection, one: ClassRow, hotkey: str | None) -> None:
    connection.execute("UPDATE class SET hotkey = ? WHERE id = ?", (hotkey, one.id))
    _note(connection, one.id, "hotkey", one.hotkey, hotkey)


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


def _note(connection: sqlite3.Connection, class_id: int, what: str, old: str | None, new: str | None) -> None:
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
