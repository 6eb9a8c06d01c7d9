"""Reads our docstrings for the API reference: numpy's headings with `name: text` below them, and bare doctests.

Griffe knows both parts, but not together, so a docstring is rewritten into the form that it knows as "google".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

HEADINGS = ("Parameters", "Attributes", "Examples")
RULE = re.compile(r"-{4,}")
ITEM = re.compile(r"(?P<names>[*\w]+(, [*\w]+)*): (?P<text>.*)")


def rewritten(docstring: str) -> str:
    """The same docstring with google's sections."""
    return "\n".join(_lines(docstring.splitlines()))


def _lines(lines: list[str]) -> Iterator[str]:
    section = ""  # the heading that we are below
    for at, line in enumerate(lines):
        following = lines[at + 1] if at + 1 < len(lines) else ""
        if line in HEADINGS and RULE.fullmatch(following):
            section = line
            yield from ("", f"{line}:")
        elif RULE.fullmatch(line) and section:
            continue
        elif line.startswith(">>> ") and not section:
            section = "Doctest"
            yield from ("", "Examples:", f"    {line}")
        elif not line:
            section = "" if section == "Doctest" else section
            yield ""
        elif section in ("Parameters", "Attributes") and (item := ITEM.fullmatch(line)):
            yield from (f"    {name}: {item['text']}" for name in item["names"].split(", "))
        else:
            yield f"    {line}" if section else line


class OurDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401 - as Griffe calls it
        """Once for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)
