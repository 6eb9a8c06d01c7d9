"""Names that people give, to classes and to themselves: any text in, the same text cleaned out, or why it cannot be."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from ..errors import BadInput
from ..inputs import shown as as_shown

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
    return _known_annotator(text) if isinstance(given, str) else clean_name("annotator", text, MOST_ANNOTATOR)


@lru_cache(maxsize=1024)  # the same few names come with every answer
def _known_annotator(text: str) -> str:
    return clean_name("annotator", text, MOST_ANNOTATOR)
