"""The tables in docs/ are those of the registries, and every command is in docs/cli.md."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import typer

from tailwise.cli.app import app
from tailwise.cli.output import CODES

DOCS = Path(__file__).parents[2] / "docs"


def tables_module() -> ModuleType:
    """docs/tables.py, which `make tables` runs."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every command with its whole name; those of a group one by one."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {own}", one) for own, one in inner.items())


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_the_tables_of_a_page_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables_module().current(text) == text, "run `make tables`"


def test_a_table_that_is_not_current_is_written_again() -> None:
    tables = tables_module()
    page = (DOCS / "strategies.md").read_text(encoding="utf-8")
    made = [match["function"] for match in tables.TABLE.finditer(page)]
    assert made == ["strategy_markdown", "score_markdown"]
    assert tables.current(page.replace("| `badge` |", "| `bagde` |")) == page


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
