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
    """Every registered strategy, by name."""
    rows = []
    for name in sorted(STRATEGIES):
        kind: Any = STRATEGIES[name]
        settings = {field.name: field.default for field in fields(kind)}
        rows.append(StrategyRow(name, first_line(kind), tuple(kind.needs), settings))
    return rows


def score_rows() -> list[tuple[str, str]]:
    """Name and meaning of every score that `select` takes by name."""
    return [(name, first_line(SCORES[name])) for name in sorted(SCORES)]


def shared_settings(rows: list[StrategyRow]) -> dict[str, object]:
    """Settings that every strategy has, with the same default."""
    first, *others = rows
    return {
        name: default for name, default in first.settings.items()
        if all(name in row.settings and row.settings[name] == default for row in others)
    }  # fmt: skip


def own_settings(row: StrategyRow, shared: dict[str, object]) -> str:
    """What a strategy adds to the shared settings, as name=default."""
    return ", ".join(f"{name}={default!r}" for name, default in row.settings.items() if name not in shared)


def first_line(item: object) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(item) or "").split("\n")[0].removesuffix(".")


def strategy_markdown() -> str:
    """The table of docs/strategies.md."""
    rows = strategy_rows()
    shared = shared_settings(rows)
    lines = ["| strategy | what it picks | needs | settings of its own |", "|---|---|---|---|"]
    for row in rows:
        needs = ", ".join(f"`{need}`" for need in row.needs)
        own = own_settings(row, shared)
        lines.append(f"| `{row.name}` | {row.what} | {needs} | {f'`{own}`' if own else ''} |")
    every = ", ".join(f"`{name}={default!r}`" for name, default in shared.items())
    return "\n".join([*lines, "", f"Every strategy takes {every}."])


def score_markdown() -> str:
    """The table of scores of docs/strategies.md."""
    lines = ["| score | what it measures |", "|---|---|"]
    lines += [f"| `{name}` | {what} |" for name, what in score_rows()]
    return "\n".join(lines)
