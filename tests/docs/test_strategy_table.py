"""The tables in docs/strategies.md are those of the registries, and every command stands in docs/cli.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import typer

from tailwise.cli.app import app
from tailwise.cli.output import CODES
from tailwise.report.tables import score_markdown, strategy_markdown

DOCS = Path(__file__).parents[2] / "docs"


def between_marks(name: str) -> str:
    page = (DOCS / "strategies.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}: .*? -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert found is not None, f"docs/strategies.md has no part marked {name}"
    return found[1]


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every command with its whole name; those of a group one by one."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {own}", one) for own, one in inner.items())


def test_the_strategy_table_is_current() -> None:
    assert between_marks("strategies") == strategy_markdown()


def test_the_score_table_is_current() -> None:
    assert between_marks("scores") == score_markdown()


def test_every_command_and_every_option_is_documented() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, command in commands():
        assert f"## tailwise {name.split()[0]}\n" in page
        assert f"$ tailwise {name}" in page or f"| `{name}" in page
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option != "--help" and f"`{option}" not in page] == []


def test_every_command_has_help_with_an_example() -> None:
    for name, command in commands():
        assert f"tailwise {name}" in (command.help or "")


def test_every_exit_code_is_documented() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    program = typer.main.get_command(app).help or ""
    for code in {0, 1, 2, 130} | {code for _, code in CODES}:
        assert f"\n| {code} | " in page
        assert re.search(rf"^ *{code}  ", program, re.MULTILINE)
