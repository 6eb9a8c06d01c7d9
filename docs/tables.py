"""Writes the tables in docs/ that follow from the registries: `make tables`.

A table stands between `<!-- NAME: made by MODULE.FUNCTION -->` and `<!-- end -->`; the function returns its Markdown.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

DOCS = Path(__file__).parent
TABLE = re.compile(r"(<!-- [\w-]+: made by (?P<module>[\w.]+)\.(?P<function>\w+) -->\n).*?(\n<!-- end -->)", re.DOTALL)


def current(page: str) -> str:
    """A page with every such table made again."""

    def made(table: re.Match[str]) -> str:
        markdown = getattr(importlib.import_module(table["module"]), table["function"])()
        return f"{table[1]}{markdown}{table[4]}"

    return TABLE.sub(made, page)


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text(encoding="utf-8")
        if (after := current(before)) != before:
            path.write_text(after, encoding="utf-8")
            print(f"written: {path.name}")  # noqa: T201 - a command
