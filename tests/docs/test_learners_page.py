"""docs/learners.md names every learner, and the settings of the heads with their defaults."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from tailwise.learners import LEARNERS, make_learner

PAGE = (Path(__file__).parents[2] / "docs" / "learners.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list(LEARNERS))
def test_every_learner_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize(("name", "column"), [("linear", 1), ("mlp", 2)])
def test_every_setting_of_a_head_is_on_the_page_with_its_default(name: str, column: int) -> None:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
    documented = {
        setting.strip(" `"): default.strip(" `")
        for row in rows if len(row) == 4
        for setting, default in zip(row[0].split(","), row[column].split(","), strict=False)
    }  # fmt: skip
    for field in fields(make_learner(name)):  # type: ignore[arg-type] # every learner is a dataclass
        assert documented[field.name] == repr(field.default).replace("'", '"')
