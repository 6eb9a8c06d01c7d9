"""axe-core finds nothing to object to, in any view, light and dark; `make axe` installs it into .venv/axe."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.images import find_image
from tailwise.campaign.service import Campaign

from .conftest import Site, free_port
from .test_page_looks import emulate

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
AXE = Path(__file__).parents[2] / ".venv" / "axe" / "axe_playwright_python" / "axe.min.js"
CLASSES = 10
RULES = {"rules": {"label-content-name-mismatch": {"enabled": True}}}  # the one that is off by default
RUN = """
const { violations } = await axe.run(document, values[0]);
return violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 4).map((node) => node.html.slice(0, 160)
  + ' ' + (node.any[0]?.message ?? '')).join(' | ')}`);
"""


COLOURS = {"runOnly": ["color-contrast"]}  # all that dark colours change


def violations(page: Page, rules: dict[str, Any] = RULES) -> list[str]:
    """What axe-core objects to; an error where it is not installed."""
    assert AXE.is_file(), f"the test needs axe-core at {AXE}; run `make axe`"
    if page.run("return !window.axe"):
        page.run(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.ask(RUN, rules)
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


def draw(cls: int, number: int) -> Image.Image:
    """A picture whose colour says its class, with noise of its own."""
    noise = np.random.default_rng(100 * cls + number).integers(-25, 25, (72, 96, 1))
    colour = np.array(colorsys.hsv_to_rgb(cls / CLASSES, 0.8, 0.8)) * 255
    return Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two rounds of three people, with an audit, wrong labels, look-alikes, a conflict, notes, guidelines and a map."""
    home = tmp_path_factory.mktemp("filled")
    names = [f"kind of thing {number}" for number in range(CLASSES)]
    (home / "photos").mkdir()
    for cls in range(CLASSES):
        for number in range(8):
            draw(cls, number).save(home / "photos" / f"{cls}_{number}.png")
        if cls < 2:
            draw(cls, 0).resize((80, 60)).save(home / "photos" / f"{cls}_copy.png")
    with Campaign.create(home / "campaign", home / "photos", names, backbone="simple", name="Things") as campaign:
        picks = campaign.next(20, audit=0.3).picks
        paths = [find_image(campaign.ledger, pick.image).path for pick in picks]
        paths += [f"{cls}_{number}.png" for cls in range(CLASSES) for number in range(4)]
        for path in dict.fromkeys(paths):
            cls, number = path.removesuffix(".png").split("_")
            wrong = number == "3" and cls in "0123"
            campaign.label(path, names[(int(cls) + wrong) % CLASSES], annotator="Eve")
            campaign.label(path, names[(int(cls) + wrong) % CLASSES], annotator="Ada")
        campaign.label("1_0.png", names[2], annotator="Ben")
        campaign.flag("0_0.png", annotator="Ben")
        campaign.comment("0_0.png", "Is it one?", annotator="Ben")
        campaign.edit_class(names[0], description="All of them are red.")
        campaign.map("pca")
        campaign.next(12, audit=0.2)
    site = Site(home / "campaign", free_port())
    site.start()
    yield site
    site.stop()


def faults(page: Page, *, dark: bool) -> list[str]:
    """What axe-core objects to, the wrong number of titles, and what runs over the edge."""
    page.until(lambda: not page.run("return document.getAnimations().length"), "nothing moves")
    found = violations(page, COLOURS if dark else RULES)
    heads = page.run("return [...document.querySelectorAll('h1')].filter((e) => e.offsetParent !== null).length")
    wide = page.run(
        "const v = document.querySelector('section.view:not([hidden])'); return v.scrollWidth - v.clientWidth"
    )
    return found + ([] if heads == 1 else [f"{heads} h1"]) + ([] if wide <= 0 else [f"{wide} pixels too wide"])


@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.long)], ids=["light", "dark"])
def test_axe_finds_nothing_in_any_filled_view(dark: bool, page: Page, filled: Site) -> None:
    found: dict[str, list[str]] = {}

    def look(name: str, *parts: str) -> None:
        for part in parts:
            page.find(part)
        found[name] = faults(page, dark=dark)

    def close() -> None:
        page.run("document.querySelector('dialog[open]').close()")

    emulate(page, 1280, 820, dark=dark, calm=True)
    page.open(filled, "Ada")
    page.wait_shown()
    look("label", "#likely:not([hidden]) .class", ".guide-open:not([hidden])")
    page.press("i")
    look("guidelines", "dialog.guide[open] .guide-row")
    close()
    page.press("?")
    look("help", "dialog.help[open]")
    close()
    opened(page, "grid")
    look("grid", "#grid .tile[data-state=in]", "#grid .chip")
    opened(page, "dashboard")
    page.until(lambda: page.attribute("#dashboard", "data-ready") == "measured", "the measures")
    look("dashboard", ".curve", ".dash-audit .range", ".dash-people .workers", ".find-more")
    opened(page, "gallery")
    kinds = [f".gtile-text[data-kind={kind}]" for kind in ("labelled", "guess", "conflict")]
    look("gallery", *kinds, ".gtile-flag", ".hunt-offer .chip")
    page.click("#gallery .gtile:has(.gtile-flag)")
    look("gallery with a selection", ".gallery-bar [data-act=label]", ".gtile[aria-selected=true]")
    page.click(".gallery-bar [data-act=open]")
    look("one image", "dialog.image-detail[data-ready] .detail-near", ".image-detail .detail-events")
    close()
    page.click(".gallery-bar [data-act=label]")
    look("choosing a class", "dialog.class-picker[open] .chip")
    close()
    page.click("#gallery [data-hunt]")
    look("hunt", ".hunt:not([hidden]) .gtile")
    opened(page, "map")
    look("map", "#map[data-ready] .map-canvas[data-camera]", ".map-legend button")
    for view in ("errors", "duplicates", "conflicts"):
        opened(page, view)
        look(view, f"#{view} .verdict")
    opened(page, "rounds")
    look("rounds", "#rounds .round .balance li")
    opened(page, "classes")
    page.click("#classes-view .row-more")
    look("classes", "#classes-view .row-editor:not([hidden]) textarea")
    assert {name: those for name, those in found.items() if those} == {}


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
