"""axe-core finds nothing to object to, in any view, light and dark; `make axe` installs it into .venv/axe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .test_page_looks import emulate

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
AXE = Path(__file__).parents[2] / ".venv" / "axe" / "axe_playwright_python" / "axe.min.js"
VIEWS = (
    "label", "grid", "gallery", "map", "errors", "duplicates", "conflicts", "dashboard", "rounds", "classes",
)  # fmt: skip
RULES = {"rules": {"label-content-name-mismatch": {"enabled": True}}}  # the one that is off by default
RUN = """
const { violations } = await axe.run(document, values[0]);
return violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 4).map((node) => node.html.slice(0, 160)
  + ' ' + (node.any[0]?.message ?? '')).join(' | ')}`);
"""


def violations(page: Page) -> list[str]:
    """What axe-core objects to; an error where it is not installed."""
    assert AXE.is_file(), f"the test needs axe-core at {AXE}; run `make axe`"
    page.run(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.ask(RUN, RULES)
    return found


def opened(page: Page, view: str) -> None:
    """Wait until a view shows something, and nothing moves any more."""
    page.run("location.hash = arguments[0]", view)
    filled = (
        "const open = document.querySelector('section.view:not([hidden])');"
        "return document.body.dataset.view === arguments[0] && open.innerText.length > 2 && !open.ariaBusy"
    )
    page.until(lambda: page.run(filled, view), view)
    page.until(lambda: not page.run("return document.getAnimations().length"), "nothing moves")


@pytest.fixture(params=[False, True], ids=["light", "dark"])
def shown(page: Page, make_site: MakeSite, request: pytest.FixtureRequest) -> Page:
    """A page at work: suggestions, answers, two people, one of whom differs."""
    classes = [f"kind of thing {number}" for number in range(10)]
    site = make_site(images=30, classes=classes, guessing=True, settings={"overlap": 2})
    emulate(page, 1280, 820, dark=request.param, calm=True)
    page.open(site, "Ben")
    page.answer("1")
    page.wait_saved()
    page.open(site, "Ada")
    page.answer("2")
    page.wait_saved()
    return page


def test_axe_finds_nothing_in_any_view(shown: Page) -> None:
    found = {}
    for view in VIEWS:
        opened(shown, view)
        found[view] = violations(shown)
        heads = "return [...document.querySelectorAll('h1')].filter((e) => e.offsetParent !== null).length"
        if shown.run(heads) != 1:
            found[view] += [f"{shown.run(heads)} h1"]
    shown.press("l", "?")
    shown.find("dialog.help[open]")
    found["help"] = violations(shown)
    assert {view: faults for view, faults in found.items() if faults} == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_where_there_is_no_image_and_in_dialogs(dark: bool, page: Page, make_site: MakeSite) -> None:
    emulate(page, 1280, 820, dark=dark, calm=True)
    page.open(make_site(images=4, chosen=0))
    page.wait_empty("no round")
    assert violations(page) == []
    page.click("#person")
    page.find("dialog.name-prompt[open]")
    assert violations(page) == []
    page.open(make_site(images=30, classes=[f"kind {number}" for number in range(25)], guessing=True), view="grid")
    page.find("#grid .tile")
    page.press("z")
    page.find("dialog.enlarge[open]")
    assert violations(page) == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_on_the_page_for_a_wrong_token(dark: bool, page: Page, make_site: MakeSite) -> None:
    emulate(page, 1280, 820, dark=dark)
    site = make_site(images=1)
    page.driver.get(site.link.partition("?")[0] + "?token=wrong")
    assert page.text("h1") == "This link is not valid"
    assert violations(page) == []
    page.find("input").send_keys(site.link)
    page.click("button")
    page.ready()
