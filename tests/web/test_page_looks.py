"""How the page looks and reads: on a phone, in the dark, to a screen reader, under the security policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import tailwise

from .conftest import TEN_AND_MANY, Page, new_browser

MakeSite = Callable[..., Any]
STATIC = Path(tailwise.__file__).parent / "web" / "static"
VIEWS = ("label", "grid", "conflicts", "rounds")
LONG = [
    "a rather long name of a class that does not fit into any button at all, whatever one does",
    "شجرة الأرز",
    "oak",
]


def emulate(page: Page, width: int, height: int, *, dark: bool = False, calm: bool = False) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": width < 800}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
    ]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def show(page: Page, view: str) -> None:
    page.run("location.hash = arguments[0]", view)
    page.until(lambda: page.run("return document.body.dataset.view") == view, view)
    page.until(
        lambda: page.run("return document.querySelector('section.view:not([hidden])').innerText.length > 3"), view
    )


@pytest.mark.parametrize(("width", "height"), [(320, 568), (390, 844), (844, 390)])
def test_on_a_phone_nothing_runs_over_and_fingers_find_the_buttons(
    width: int, height: int, page: Page, make_site: MakeSite
) -> None:
    emulate(page, width, height)
    page.open(make_site(images=8, classes=LONG, guessing=True))
    page.wait_shown()
    for view in VIEWS:
        show(page, view)
        assert page.run("return document.documentElement.scrollWidth") <= width, view
        small = page.run(
            "return [...document.querySelectorAll('button, .tabs a, input')]"
            ".filter((e) => e.offsetParent !== null && getComputedStyle(e).visibility === 'visible')"
            ".map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect()])"
            ".filter(([, box]) => box.width < 44 || (box.height < 44 && innerHeight > 500)).map(([html]) => html)"
        )
        assert small == [], view
    show(page, "label")
    stage = page.find("#stage").rect
    assert stage["height"] >= 0.25 * height
    first = page.find("#classes button").rect
    assert first["y"] + first["height"] <= height


@pytest.fixture
def large_text() -> Iterator[Page]:
    """The page in a browser whose default text is twice as large."""
    driver = new_browser(font=32)
    yield Page(driver)
    driver.quit()


OUTSIDE = """
return [...document.querySelectorAll('section.view:not([hidden]) button, .bar button, .tabs, #stage')]
  .filter((e) => e.offsetParent !== null && getComputedStyle(e).visibility === 'visible')
  .filter((e) => { const box = e.getBoundingClientRect(); return box.left < -1 || box.right > innerWidth + 1
    || (e.matches('button') && e.scrollWidth > e.clientWidth + 1); })
  .map((e) => e.outerHTML.slice(0, 120));
"""


@pytest.mark.parametrize("classes", TEN_AND_MANY)
def test_with_text_twice_as_large_nothing_is_cut_off(classes: int, large_text: Page, make_site: MakeSite) -> None:
    page = large_text
    names = [f"northern long-eared kind {number}" for number in range(classes)]
    site = make_site(images=2 * classes, classes=names, guessing=True)
    for width, height in ((1440, 900), (820, 1180), (390, 844)):
        emulate(page, width, height, calm=True)
        page.open(site)
        page.wait_shown()
        assert page.run("return getComputedStyle(document.body).fontSize") == "30px"
        for view in VIEWS:
            show(page, view)
            assert page.run("return document.documentElement.scrollWidth") <= width, (view, width)
            assert page.run(OUTSIDE) == [], (view, width)
        show(page, "label")
        assert page.find("#stage").rect["height"] >= 0.2 * height


def test_a_phone_is_swiped_to_look_back_and_forth(page: Page, make_site: MakeSite) -> None:
    emulate(page, 390, 844)
    page.open(make_site(images=4))
    first = page.answer("1")
    second = page.wait_shown()

    def swipe(start: int, end: int) -> None:
        for kind, x in (
            ("touchStart", start),
            ("touchMove", (start + end) // 2),
            ("touchMove", end),
            ("touchEnd", None),
        ):
            points = [] if x is None else [{"x": x, "y": 300}]
            page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    swipe(80, 300)
    page.until(lambda: page.shown() == first, "back")
    swipe(300, 80)
    page.until(lambda: page.shown() == second, "forth")
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_two_fingers_zoom(page: Page, make_site: MakeSite) -> None:
    emulate(page, 390, 844)
    page.open(make_site(images=2))
    page.wait_shown()
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})

    def touch(kind: str, half: int | None) -> None:
        points = [] if half is None else [{"x": 195 - half, "y": 300, "id": 0}, {"x": 195 + half, "y": 300, "id": 1}]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 30)
    for half in (40, 60, 90):
        touch("touchMove", half)
    touch("touchEnd", None)
    scale = "return new DOMMatrix(getComputedStyle(document.querySelector('#stage > .photo')).transform).a"
    page.until(lambda: page.run(scale) > 2, "enlarged")
    page.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_the_colours_follow_the_system_until_one_is_chosen(page: Page, make_site: MakeSite) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    emulate(page, 1280, 820, dark=True)
    page.open(make_site(images=2))
    dark = page.run(ground)
    emulate(page, 1280, 820)
    light = page.run(ground)
    assert brightness(dark) < 40 < 200 < brightness(light)
    page.press("t", "t")  # light, dark
    page.until(lambda: page.run(ground) == dark, "dark by choice")
    page.reload()
    assert page.run(ground) == dark


def brightness(colour: str) -> float:
    return sum(float(part) for part in re.findall(r"[\d.]+", colour)[:3]) / 3


CONTRASTS = """
const channel = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const colour = (text) => {
  const parts = (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  return parts.length > 3 ? parts : [...parts, 1];
};
const over = (top, low) => top.slice(0, 3).map((v, i) => v * top[3] + low[i] * (1 - top[3]));
function ground(e) {
  const layers = [];
  for (let at = e; at; at = at.parentElement) layers.push(colour(getComputedStyle(at).backgroundColor));
  return layers.reduceRight((low, top) => over(top, low), [255, 255, 255]);
}
const faint = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
  const at = getComputedStyle(e);
  if (!own || e.offsetParent === null || at.visibility !== 'visible') continue;
  if (e.closest(':disabled, .unseen, .leap, .stage, .thumb')) continue;
  const low = ground(e);
  const ink = over(colour(at.color), low);
  const [a, b] = [light(ink), light(low)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) faint.push(`${e.className || e.tagName}: ${e.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
}
return faint;
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_has_enough_contrast(dark: bool, page: Page, make_site: MakeSite) -> None:
    emulate(page, 1280, 820, dark=dark, calm=True)
    page.open(make_site(images=8, classes=LONG, guessing=True))
    page.answer("1")
    page.wait_saved()
    for view in VIEWS:
        show(page, view)
        assert page.run(CONTRASTS) == [], view
    page.press("?")
    page.find("dialog[open]")
    assert page.run(CONTRASTS) == []


def test_everything_that_can_be_pressed_has_a_name(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=8, guessing=True))
    page.wait_shown()
    nameless = (
        "const named = (e) => e.getAttribute('aria-label') ?? e.labels?.[0]?.textContent ?? e.innerText ?? '';"
        "const pictured = (e) => e.hasAttribute('alt') || e.querySelector('img[alt]:not([alt=\"\"])');"
        "return [...document.querySelectorAll('button, a, input, [role=option], img')]"
        ".filter((e) => e.offsetParent !== null && !named(e).trim() && !pictured(e))"
        ".map((e) => e.outerHTML.slice(0, 120))"
    )
    for view in VIEWS:
        show(page, view)
        assert page.run(nameless) == [], view


def test_the_focus_is_seen_and_the_whole_page_can_be_walked_by_tab(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=3))
    page.wait_shown()
    seen = set()
    for _ in range(40):
        page.press("\ue004")  # tab
        where, outline = page.run(
            "const e = document.activeElement;"
            "return [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle]"
        )
        if where == "BODY":
            break
        assert outline != "none", where
        seen.add(where)
    assert {"person", "theme", "help-open", "class", "tool tool-skip"} <= seen


def test_with_reduced_motion_nothing_moves(page: Page, make_site: MakeSite) -> None:
    emulate(page, 1280, 820, calm=True)
    page.open(make_site(images=3))
    page.answer("1")
    moving = "return document.getAnimations().filter((a) => a.effect.getComputedTiming().duration > 1).length"
    assert page.run(moving) == 0


def test_the_page_has_no_script_or_style_of_its_own_and_no_address_outside() -> None:
    html = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son\w+=|javascript:", html)
    for path in STATIC.rglob("*.*"):
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://|//cdn|@import", text), path


def test_no_two_views_that_load_later_style_the_same_class() -> None:
    """The style of a view stays when another one is opened, so a name that two of them use would mix both."""
    styled = {
        name: set(
            re.findall(r"^\.([\w-]+)(?=[ :{,\[])", (STATIC / "css" / f"{name}.css").read_text("utf-8"), re.MULTILINE)
        )
        for name in ("gallery", "map", "review", "dashboard")
    }
    assert all(len(names) > 5 for names in styled.values())
    for one, other in combinations(styled, 2):
        assert styled[one] & styled[other] == set(), (one, other)


def test_no_text_becomes_markup_and_modules_stay_small() -> None:
    scripts = sorted((STATIC / "js").glob("*.js"))
    assert len(scripts) > 20
    for path in scripts:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            path
        )
        assert len(text.splitlines()) <= 400, path  # the longest view, the map, tells one story in 400
        assert text.startswith("/**"), path
