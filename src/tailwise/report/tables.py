"""What there is to choose from, read off the registries: one row per strategy and per score, and a Markdown table."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from typing import Any

from ..score.softmax import SCORES
from ..strategies import STRATEGIES


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One registered strategy, as people read it."""

    name: str
    what: str
    needs: tuple[str, ...]
    settings: dict[str, object]  # name → default


def strategy_rows() -> list[StrategyRow]:
    """Every registered strategy, in the order of registration."""
    rows = []
    for name in STRATEGIES:
        kind: Any = STRATEGIES[name]
        settings = {field.name: field.default for field in fields(kind)}
        rows.append(StrategyRow(name, first_line(kind), tuple(kind.needs), settings))
    return rows


def score_rows() -> list[tuple[str, str]]:
    """Name and meaning of every score that `select` takes by name."""
    return [(name, first_line(SCORES[name])) for name in SCORES]


def first_line(item: object) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(item) or "").split("\n")[0].removesuffix(".")


def strategy_markdown() -> str:
    """The table of docs/strategies.md."""
    lines = ["| strategy | what it picks | needs | settings |", "|---|---|---|---|"]
    for row in strategy_rows():
        needs = ", ".join(f"`{need}`" for need in row.needs)
        settings = ", ".join(f"`{name}={default!r}`" for name, default in row.settings.items())
        lines.append(f"| `{row.name}` | {row.what} | {needs} | {settings} |")
    return "\n".join(lines)


def score_markdown() -> str:
    """The table of scores of docs/strategies.md."""
    lines = ["| score | what it measures |", "|---|---|"]
    lines += [f"| `{name}` | {what} |" for name, what in score_rows()]
    return "\n".join(lines)
