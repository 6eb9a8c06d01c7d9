"""The map view: points are drawn where they belong, hovering shows the right image, a lasso selects what is inside."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
TEN = tuple(f"kind {number}" for number in range(10))
MANY = tuple(f"kind {number}" for number in range(44))
SIZES = pytest.mark.parametrize(
    ("classes", "images"),
    [pytest.param(TEN, 26, marks=pytest.mark.long), (MANY, 66)],
    ids=["10 classes", "44 classes"],
)
POINTS = """
const { readPoints } = await import('/static/js/map_points.js');
const points = readPoints(await (await fetch('/api/map/points')).arrayBuffer());
const list = (array) => Array.from(array);
const keys = Array.from({ length: points.count }, (_, at) => points.key(at));
return { keys, x: list(points.x), y: list(points.y), classes: list(points.klass), guesses: list(points.guess),
  header: points.header };
"""
PIXELS = """
const canvas = document.querySelector('.map-canvas');
return { width: canvas.width, height: canvas.height,
  pixels: Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data) };
"""
DRAW = """
const headers = { 'Content-Type': 'application/json' };
await fetch('/api/map/start', { method: 'POST', headers, body: '{"method": "pca"}' });
"""


@dataclass(frozen=True)
class Drawn:
    """The points as the server sends them, and where the page shows them."""

    keys: list[str]
    xy: np.ndarray  # (n, 2) px of the stage
    classes: list[int]
    guesses: list[int]
    header: dict[str, Any]


# The gallery takes the selection at once, so what is handed over is seen on the way.
WATCH = """
const set = Storage.prototype.setItem;
Storage.prototype.setItem = function (name, value) {
  if (name === 'tailwise.selection') window.handed = value;
  return set.call(this, name, value);
};
"""


def open_map(page: Page, site: Any) -> Page:  # noqa: ANN401 - a Site
    """The page with a map that is drawn by PCA."""
    page.open(site, view="label")
    page.ask(DRAW)
    page.run("location.hash = 'map'")
    count = site.rows("SELECT count(*) FROM image")[0][0]
    ready = "return document.getElementById('map').dataset.ready"
    page.until(lambda: page.run(ready) == str(count), "the map is drawn")
    page.until(lambda: page.attribute(".map-canvas", "data-camera"), "the points are painted")
    page.run(WATCH)
    return page


def camera(page: Page) -> dict[str, float]:
    found: dict[str, float] = json.loads(page.attribute(".map-canvas", "data-camera") or "null")
    return found


def drawn(page: Page) -> Drawn:
    found, view = page.ask(POINTS), camera(page)
    x = view["x"] + np.array(found["x"]) * view["scale"]
    y = view["y"] + (1 - np.array(found["y"])) * view["scale"]
    return Drawn(found["keys"], np.column_stack([x, y]), found["classes"], found["guesses"], found["header"])


def move(page: Page, *places: tuple[float, float], hold: bool = False) -> None:
    """The pointer to places of the stage, in px, with the button down in between where `hold`."""
    stage = page.find(".map-stage")
    width, height = page.run("const s = arguments[0]; return [s.offsetWidth, s.offsetHeight]", stage)
    chain = ActionChains(page.driver, duration=0)
    for number, (x, y) in enumerate(places):
        chain.move_to_element_with_offset(stage, round(x) - width // 2, round(y) - height // 2)
        if hold and number == 0:
            chain.click_and_hold()
    if hold:
        chain.release()
    chain.perform()


def pointer(page: Page) -> tuple[float, float]:
    """Where the browser says the pointer is, in px of the stage: it rounds."""
    x, y = page.run(
        "const r = document.querySelector('.map-stage').getBoundingClientRect();"
        "return [window.seen[0] - r.left, window.seen[1] - r.top]"
    )
    return x, y


def watch_pointer(page: Page) -> None:
    page.run(
        "window.seen = [0, 0]; window.path = [];"
        "addEventListener('pointermove', (e) => { window.seen = [e.clientX, e.clientY]; "
        "window.path.push(window.seen) }, true);"
        "addEventListener('pointerdown', (e) => { window.path = [[e.clientX, e.clientY]] }, true);"
    )


def choose_mode(page: Page, mode: str) -> None:
    page.run(
        "const s = document.querySelector('#map-mode'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
        mode,
    )


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def expected_pixels(
    points: Drawn, values: list[int], shape: tuple[int, int], radius: float, grey: tuple[int, ...]
) -> np.ndarray:
    """Discs drawn one after the other, those without a class first."""
    picture = np.zeros((*shape, 4), np.uint8)
    reach = max(1, math.floor(radius + 0.5))
    colours = [grey, *(rgb(one) for one in points.header["colours"]["light"])]
    order = sorted(range(len(values)), key=lambda at: (values[at] > 0, at))
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    for at in order:
        x, y = (math.floor(one + 0.5) for one in points.xy[at])
        if reach <= x < shape[1] - reach and reach <= y < shape[0] - reach:
            inside = (columns - x) ** 2 + (rows - y) ** 2 <= (reach + 0.3) ** 2
            picture[inside] = (*colours[values[at]], 255)
    return picture


@SIZES
def test_every_point_is_drawn_in_the_colour_of_its_class(
    page: Page, make_site: MakeSite, classes: tuple[str, ...], images: int
) -> None:
    site = make_site(images=images, classes=classes, guessing=True)
    page.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "light"}]}
    )
    open_map(page, site)
    choose_mode(page, "guess")
    page.wait_text("Model’s guess", ".map-side h2")
    legend = page.run(
        "return [...document.querySelectorAll('.map-legend button')].map((b) => [b.dataset.name,"
        " b.querySelector('.count').innerText, b.querySelector('.map-dot').style.background])"
    )
    points = drawn(page)
    counts = {name: points.guesses.count(place + 1) for place, name in enumerate(classes)}
    assert {name: int(count) for name, count, _ in legend} == {name: one for name, one in counts.items() if one}
    colours = {name: colour for name, _, colour in legend}
    for place, name in enumerate(classes):
        assert colours[name] == f"rgb({', '.join(map(str, rgb(points.header['colours']['light'][place])))})"
    found = page.ask(PIXELS)
    shape = (found["height"], found["width"])
    pixels = np.array(found["pixels"], np.uint8).reshape(*shape, 4)
    expected = expected_pixels(points, points.guesses, shape, 3.6, rgb("#b1b9c4"))
    assert expected.any()
    assert np.array_equal(pixels, expected)


@SIZES
def test_hovering_shows_the_nearest_image(
    page: Page, make_site: MakeSite, classes: tuple[str, ...], images: int
) -> None:
    site = make_site(images=images, classes=classes, guessing=True)
    open_map(page, site)
    watch_pointer(page)
    points = drawn(page)
    for at in range(0, images, images // 8):
        move(page, (5, 5), tuple(points.xy[at]))  # type: ignore[arg-type]
        here = np.array(pointer(page))
        apart = np.linalg.norm(points.xy - here, axis=1)
        near = {points.keys[one] for one in np.flatnonzero(apart <= apart.min() + 0.02)}
        assert page.until(lambda: page.attribute(".map-card", "data-key"), "a card is shown") in near
        assert page.run("return !document.querySelector('.map-card').hidden")
        name = classes[points.guesses[points.keys.index(page.attribute(".map-card", "data-key") or "")] - 1]
        assert name in page.text(".map-card")
    source = page.run("return document.querySelector('.map-card img').getAttribute('src')")
    assert page.attribute(".map-card", "data-key") in source
    move(page, (3, 3))
    page.until(lambda: page.run("return document.querySelector('.map-card').hidden"), "no card far from all points")


@SIZES
def test_a_lasso_selects_exactly_what_is_inside(
    page: Page, make_site: MakeSite, classes: tuple[str, ...], images: int
) -> None:
    site = make_site(images=images, classes=classes)
    open_map(page, site)
    watch_pointer(page)
    points = drawn(page)
    middle = np.median(points.xy, axis=0)
    star = [
        (float(middle[0] + r * math.cos(a)), float(middle[1] + r * math.sin(a)))
        for a, r in ((2 * math.pi * k / 10, (200, 90)[k % 2]) for k in range(10))
    ]  # not convex
    page.press("s")
    assert page.attribute("[data-act=lasso]", "aria-pressed") == "true"
    move(page, *star, hold=True)
    page.until(lambda: page.run("return document.getElementById('map').dataset.chosen"), "some are selected")
    left, top = page.run(
        "const r = document.querySelector('.map-stage').getBoundingClientRect(); return [r.left, r.top]"
    )
    corners = [(x - left, y - top) for x, y in page.run("return window.path")]
    expected = {key for key, place in zip(points.keys, points.xy, strict=True) if is_inside(place, corners)}
    assert 0 < len(expected) < images
    page.wait_text(f"{len(expected)} image", ".map-chosen")
    page.click("[data-act=gallery]")
    assert page.run("return location.hash") == "#gallery"
    assert set(json.loads(page.run("return window.handed"))) == expected


def is_inside(place: np.ndarray, corners: list[tuple[float, float]]) -> bool:
    """By the even-odd rule: how many edges a ray to the right crosses."""
    x, y = place
    crossed = 0
    for (x1, y1), (x2, y2) in zip(corners, [*corners[1:], corners[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (x2 - x1) * (y - y1) / (y2 - y1):
            crossed += 1
    return crossed % 2 == 1


def test_the_map_is_drawn_with_one_button_and_says_how_it_could_be_better(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12)
    page.open(site, view="map")
    page.wait_text("The map is not drawn yet", "#map")
    page.click("[data-act=draw]")
    page.until(lambda: page.run("return document.getElementById('map').dataset.ready") == "12", "it is drawn")
    page.wait_text("PCA of 12 images", "#map")
    page.reload()
    page.until(lambda: page.run("return document.getElementById('map').dataset.ready") == "12", "it is kept")


def test_a_class_that_is_hidden_is_neither_drawn_nor_found(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=20, classes=("cat", "dog"), guessing=True)
    open_map(page, site)
    choose_mode(page, "guess")
    points = drawn(page)
    before = np.array(page.ask(PIXELS)["pixels"]).reshape(-1, 4)[:, 3].sum()
    page.click(".map-legend button[data-name=cat]")
    page.until(lambda: page.attribute(".map-legend button[data-name=cat]", "aria-pressed") == "false", "it is hidden")
    page.until(lambda: np.array(page.ask(PIXELS)["pixels"]).reshape(-1, 4)[:, 3].sum() < before, "fewer are drawn")
    page.click("[data-act=images]")
    page.wait_text("10 images selected", ".map-chosen")
    page.click("[data-act=gallery]")
    dogs = {key for key, guess in zip(points.keys, points.guesses, strict=True) if guess == 2}
    assert set(json.loads(page.run("return window.handed"))) == dogs


def test_a_click_opens_the_image_in_the_gallery(page: Page, make_site: MakeSite) -> None:
    open_map(page, make_site(images=9))
    points = drawn(page)
    apart = np.linalg.norm(points.xy[:, None] - points.xy[None], axis=2) + 1e6 * np.eye(9)
    alone = int(apart.min(axis=1).argmax())
    move(page, tuple(points.xy[alone]), hold=True)  # type: ignore[arg-type]
    page.until(lambda: page.run("return location.hash") == "#gallery", "the gallery opens")
    assert json.loads(page.run("return window.handed")) == [points.keys[alone]]


def test_the_map_is_moved_and_zoomed_by_wheel_drag_and_keys(page: Page, make_site: MakeSite) -> None:
    open_map(page, make_site(images=9))
    whole = camera(page)
    move(page, (300, 200), (340, 230), hold=True)
    page.until(lambda: camera(page)["x"] == pytest.approx(whole["x"] + 40, abs=1.5), "it was dragged")
    assert camera(page)["y"] == pytest.approx(whole["y"] + 30, abs=1.5)
    page.press("z")
    page.until(lambda: camera(page) == whole, "the whole map again")
    page.press("+")
    page.until(lambda: camera(page)["scale"] == pytest.approx(whole["scale"] * 1.35), "zoomed in")
    page.press("-")
    page.until(lambda: camera(page)["scale"] == pytest.approx(whole["scale"]), "and out")
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: camera(page)["x"] < whole["x"] - 20, "to the right")
    page.press("z")
    page.until(lambda: camera(page) == whole, "the whole map once more")
    page.run(
        "const s = document.querySelector('.map-stage'); const r = s.getBoundingClientRect();"
        "s.dispatchEvent(new WheelEvent('wheel', { deltaY: -300, clientX: r.left + 100, clientY: r.top + 50,"
        " bubbles: true, cancelable: true }))"
    )
    page.until(lambda: camera(page)["scale"] > 1.5 * whole["scale"], "the wheel zooms")
    view = camera(page)
    kept = (100 - whole["x"]) / whole["scale"], (50 - whole["y"]) / whole["scale"]
    now = (100 - view["x"]) / view["scale"], (50 - view["y"]) / view["scale"]
    assert now == pytest.approx(kept, abs=0.003)  # what is under the pointer stays there; events round to whole px


def test_escape_leaves_the_lasso_then_the_selection_then_the_map(page: Page, make_site: MakeSite) -> None:
    open_map(page, make_site(images=9))
    page.click("[data-act=images]")
    page.wait_text("9 images selected", ".map-chosen")
    page.press("s", Keys.ESCAPE)
    assert page.attribute("[data-act=lasso]", "aria-pressed") == "false"
    assert page.run("return document.getElementById('map').dataset.chosen") == "9"
    page.press(Keys.ESCAPE)
    assert page.run("return document.getElementById('map').dataset.chosen") is None
    page.press(Keys.ESCAPE)
    page.until(lambda: page.run("return location.hash") == "#label", "the label view")


def test_where_people_label_blind_the_map_knows_no_guess(page: Page, make_site: MakeSite) -> None:
    open_map(page, make_site(images=9, guessing=True, settings={"blind": True}))
    modes = page.run("return [...document.querySelector('#map-mode').options].map((one) => one.value)")
    assert modes == ["class", "round"]
    assert set(drawn(page).guesses) == {0}


def test_a_label_that_is_given_is_counted_when_the_map_is_opened_again(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=9)
    open_map(page, site)
    assert page.run("return document.querySelector('.map-legend [data-name=cat] .count').innerText") == "0"
    page.press("l")
    page.answer("1")
    page.wait_saved()
    page.until(lambda: len(site.labels()) == 1, "it is on the disk")

    time.sleep(4)  # until then the points on show count as new

    def counted() -> bool:
        page.run("location.hash = 'label'")
        page.run("location.hash = 'map'")
        count = "return document.querySelector('.map-legend [data-name=cat] .count')?.innerText"
        time.sleep(0.3)
        return bool(page.run(count) == "1")

    page.until(counted, "the legend counts it")


def test_the_canvas_has_a_text_alternative(page: Page, make_site: MakeSite) -> None:
    open_map(page, make_site(images=9))
    assert page.attribute(".map-canvas", "role") == "img"
    assert "9 images as points, coloured by class" in (page.attribute(".map-canvas", "aria-label") or "")
    page.click(".map-table summary")
    rows = page.run("return [...document.querySelectorAll('.map-table tbody tr')].map((row) => row.innerText)")
    assert [" ".join(row.split()) for row in rows] == ["Not labelled 9", "cat 0", "dog 0", "owl 0", "All 9"]
    unnamed = page.run(
        "return [...document.querySelectorAll('#map button, #map select')]"
        ".filter((one) => !(one.innerText.trim() || one.getAttribute('aria-label') || one.labels?.length)).length"
    )
    assert unnamed == 0
