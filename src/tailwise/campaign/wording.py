"""Numbers of things, in words: a count and a noun in, "1 image" or "2,000 images" out."""

from __future__ import annotations


def many(count: int, one: str, more: str = "") -> str:
    """A number of things; the verb may come along where it changes too.

    >>> many(1, "image"), many(2000, "image"), many(0, "class", "classes"), many(1, "file was", "files were")
    ('1 image', '2,000 images', '0 classes', '1 file was')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"
