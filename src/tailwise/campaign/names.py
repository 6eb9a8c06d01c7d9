"""Names that people give, to classes and to themselves: any text in, the same text cleaned out, or why it cannot be.

Numbers and choices in words: "1 image" or "2,000 images"; how the images of a round were chosen.
"""

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


def many(count: int, one: str, more: str = "") -> str:
    """A number of things; the verb may come along where it changes too.

    >>> many(1, "image"), many(2000, "image"), many(0, "class", "classes"), many(1, "file was", "files were")
    ('1 image', '2,000 images', '0 classes', '1 file was')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def how_chosen(strategy: str, status: str, balance: str, lam: float | None) -> str:
    """How the images of a round were chosen, in a few words.

    Boundary covers the pool while labels are few, and fills exact quotas then; its λ says little of either.

    >>> how_chosen("boundary", "greedy", "auto", 0.0), how_chosen("boundary", "optimal chunks", "auto", 0.4)
    ('boundary, covering the pool', 'boundary, exact class quotas')
    >>> how_chosen("boundary", "optimal chunks", "0.5", 0.5), how_chosen("typiclust", "greedy", "none", 0.0)
    ('boundary, λ = 0.5', 'typiclust')
    """
    if strategy == "boundary" and status == "greedy":
        return f"{strategy}, covering the pool"
    if status == "optimal chunks" and balance == "auto":
        return f"{strategy}, exact class quotas"
    return strategy if balance in ("none", "0") or lam is None else f"{strategy}, λ = {lam:.4g}"


def why_counts_differ(strategy: str, status: str) -> str:
    """Why the expected counts of a round may be far from its target; "" where they are chosen to be near it."""
    if strategy == "boundary" and status == "greedy":
        return "While labels are few, or the model is unsure of most images, images are chosen to cover the pool."
    if status == "optimal chunks":
        return "The target gives each class places for images at its border, and some of these are of other classes."
    return ""
