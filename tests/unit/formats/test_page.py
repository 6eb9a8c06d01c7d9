from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

from tailwise.campaign.exporting import export
from tailwise.campaign.importing import Imported, import_file
from tailwise.formats import FORMATS

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
NOT_OPTIONS = {"campaign", "out", "path", "format", "report"}


def test_the_page_has_a_row_for_every_format_that_says_whether_images_are_copied() -> None:
    rows = [
        line for line in PAGE.splitlines() if line.startswith("| `") and line.endswith(("| copied |", "| not copied |"))
    ]
    shown = {line.split("`")[1]: line.endswith(" | copied |") for line in rows}
    assert shown == {name: FORMATS[name].copies for name in FORMATS}


def test_the_page_names_every_option_and_every_field_of_the_answer() -> None:
    options = {*inspect.signature(export).parameters, *inspect.signature(import_file).parameters} - NOT_OPTIONS
    answers = {field.name for field in fields(Imported)} - {"unanswered", "new_classes"}
    assert [name for name in sorted(options | answers) if f"`{name}`" not in PAGE] == []
