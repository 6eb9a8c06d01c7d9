"""The gallery: few of its tiles are in the document; many labels at once; hunts; with 10 and with 44 classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from tailwise.campaign.ledger import Ledger
from tailwise.campaign.service import Campaign

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
TEN = tuple(f"bird {number}" for number in range(10))
# As if the backbone knew texts, of which the API's own tests have a real one: keeps the texts that the page sends.
KNOWS_TEXTS = """
const real = window.fetch;
window.asked = [];
window.fetch = async (url, init) => {
  if (!String(url).includes('/api/hunt')) return real(url, init);
  const body = JSON.parse(init.body);
  window.asked.push(body.text);
  const response = await real(url, { ...init, body: JSON.stringify({ ...body, text: '' }) });
  return new Response(JSON.stringify({ ...(await response.json()), text: true, how: 'text' }), response);
};
"""
MANY = tuple(f"bird {number}" for number in range(44))
FEW_OR_MANY = pytest.mark.parametrize(
    "classes", [pytest.param(TEN, marks=pytest.mark.long), MANY], ids=["10 classes", "44 classes"]
)


def open_gallery(page: Page, site: Any, count: int) -> list[str]:  # noqa: ANN401 - a Site
    """The keys of all images, in the order of their files."""
    page.open(site, view="gallery")
    wait_total(page, count)
    return [row[0] for row in site.rows("SELECT key FROM image ORDER BY path")]


def wait_total(page: Page, count: int) -> None:
    page.until(lambda: page.attribute("#gallery", "data-ready") == str(count), f"{count} images are listed")


def shown(page: Page) -> list[str]:
    """Keys of the tiles in the document, by their place."""
    script = (
        "return [...document.querySelectorAll('#gallery .gallery-body .gtile[data-key]')]"
        ".sort((a, b) => a.dataset.at - b.dataset.at).map((one) => one.dataset.key)"
    )
    return list(page.run(script))


def wait_shown(page: Page, keys: list[str]) -> None:
    page.until(lambda: shown(page) == keys, lambda: f"{keys} are shown, not {shown(page)}")


def choose(page: Page, pick: str, value: str) -> None:
    page.run(
        "const box = document.querySelector(`#gallery [data-pick=${arguments[0]}]`); box.value = arguments[1];"
        "box.dispatchEvent(new Event('change'))",
        pick,
        value,
    )


@FEW_OR_MANY
def test_images_are_selected_labelled_together_and_undone(
    page: Page, make_site: MakeSite, classes: tuple[str, ...]
) -> None:
    site = make_site(images=12, classes=classes, chosen=0)
    keys = open_gallery(page, site, 12)
    wait_shown(page, keys)
    page.click(f".gtile[data-key='{keys[1]}']")
    ActionChains(page.driver).key_down(Keys.SHIFT).click(page.find(f".gtile[data-key='{keys[4]}']")).key_up(
        Keys.SHIFT
    ).perform()
    page.wait_text("4 images selected", ".gallery-bar")
    page.press("/")
    page.find("dialog.class-picker[open]")
    page.press(*"bird 7", Keys.ENTER)
    page.until(lambda: site.labels() == dict.fromkeys(keys[1:5], "bird 7"), "four images are labelled")
    assert site.rows("SELECT DISTINCT found_by, count(DISTINCT batch), annotator FROM event") == [("gallery", 1, "Ada")]
    page.wait_text("4 images labelled “bird 7”", ".gallery-undo")
    page.until(lambda: "bird 7" in page.text(f".gtile[data-key='{keys[2]}']"), "the tiles show it")
    choose(page, "state", "labelled")
    wait_total(page, 4)
    wait_shown(page, keys[1:5])
    page.press("u")
    page.until(lambda: site.labels() == {}, "all four are undone")


def test_the_keyboard_moves_selects_and_opens(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12, classes=TEN, chosen=3, guessing=True)
    keys = open_gallery(page, site, 12)
    wait_shown(page, keys)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.SPACE, Keys.ARROW_RIGHT, Keys.SPACE)
    page.wait_text("2 images selected", ".gallery-bar")
    selected = "return [...document.querySelectorAll('.gtile[aria-selected=true]')].map((one) => one.dataset.key)"
    assert sorted(page.run(selected)) == sorted(keys[1:3])
    page.press("2")
    page.until(lambda: site.labels() == dict.fromkeys(keys[1:3], "bird 1"), "a digit labels the selection")
    page.press(Keys.ENTER)
    page.until(lambda: page.attribute("dialog.image-detail", "data-ready") == keys[2], "the image is open")
    page.wait_text("bird 1", ".detail-events")
    page.wait_text("Round 1, place 3 of 3: the model took it for bird 2", ".detail-facts")
    page.press(Keys.ESCAPE)
    ActionChains(page.driver).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
    page.wait_text("12 images selected", ".gallery-bar")
    page.press(Keys.ESCAPE)
    page.wait_text("Click images to select them", ".gallery-bar")


def test_an_image_is_flagged_and_commented_on_in_its_dialog(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=6, classes=TEN, chosen=0)
    keys = open_gallery(page, site, 6)
    wait_shown(page, keys)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ENTER)
    page.until(lambda: page.attribute("dialog.image-detail", "data-ready") == keys[1], "the image is open")
    page.click("[data-act=detail-flag]")
    page.until(lambda: page.attribute("[data-act=detail-flag]", "aria-pressed") == "true", "the flag is shown")
    page.click("[data-act=detail-comment]")
    page.find("#comment-box").send_keys("two birds")
    page.click("[data-act=save-comment]")
    noted = (
        "SELECT i.key, n.annotator, n.kind, n.text FROM note AS n JOIN image AS i ON i.id = n.image_id ORDER BY n.id"
    )
    said = [(keys[1], "Ada", "flag", ""), (keys[1], "Ada", "comment", "two birds")]
    page.until(lambda: site.rows(noted) == said, lambda: f"the ledger has both: {site.rows(noted)}")
    page.wait_text("two birds", "dialog.image-detail[open] .notes-list")  # which is open still
    page.until(lambda: page.all(f".gtile[data-key='{keys[1]}'] .gtile-flag"), "the tile has a flag")
    page.press(Keys.ESCAPE)
    choose(page, "state", "flagged")
    wait_shown(page, [keys[1]])
    page.reload()
    choose(page, "state", "flagged")
    wait_shown(page, [keys[1]])
    page.press(Keys.ARROW_RIGHT, Keys.ENTER)
    page.wait_text("flagged this image", "dialog.image-detail[open] .notes-list")
    page.wait_text("two birds", "dialog.image-detail[open] .notes-list")
    page.click("[data-act=detail-flag]")
    page.until(lambda: site.rows(noted)[-1][2:] == ("unflag", ""), "the flag is removed")


def test_more_like_this_puts_the_nearest_first(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12, classes=TEN, chosen=0)
    with Campaign.open(site.folder, read_only=True) as campaign:
        row = campaign.ledger.read("SELECT key, path FROM image ORDER BY path")[5]
        nearest = [row["key"], *(one.key for one in campaign.find(row["path"], count=11))]
    open_gallery(page, site, 12)
    page.until(lambda: "prepared" not in page.text(".gallery-total"), "the search is ready")
    page.click(f".gtile[data-key='{nearest[0]}']")
    page.click("[data-act=like]")
    page.wait_text("Like 1 image", ".picked")
    wait_shown(page, nearest)
    page.click("[data-act=clear]")
    page.until(lambda: shown(page) != nearest, "the usual order is back")


def test_a_selection_of_another_view_is_a_filter(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12, classes=TEN)
    page.open(site)
    keys = [row[0] for row in site.rows("SELECT key FROM image ORDER BY path")]
    page.run(
        "sessionStorage.setItem('tailwise.selection', arguments[0]); location.hash = 'gallery'", json.dumps(keys[2:5])
    )
    wait_total(page, 3)
    wait_shown(page, keys[2:5])
    page.wait_text("Selection (3)", ".picked")
    page.click("[data-chip=selection]")
    wait_total(page, 12)


@FEW_OR_MANY
def test_a_hunt_accepts_the_likeliest_with_one_key(page: Page, make_site: MakeSite, classes: tuple[str, ...]) -> None:
    site = make_site(images=2 * len(classes) + 6, classes=classes, chosen=0)
    site.stop()
    with Campaign.open(site.folder) as campaign:
        names = [row[0] for row in campaign.ledger.read("SELECT path FROM image ORDER BY path")]
        for name in names[: len(classes)]:
            campaign.label(name, classes[int(name.split("_")[1].split(".")[0])])
        for name in names[len(classes) : 2 * len(classes)][: len(classes) // 2 + 1]:
            campaign.label(name, classes[0])  # more than 1.5 labels a class now: the others are short of one
        campaign.find(names[0])  # makes the features
    site.start()
    page.open(site, view="gallery")
    page.click("#gallery [data-hunt]")
    page.until(lambda: page.attribute(".hunt", "data-ready") not in (None, "0"), "there are candidates")
    number = page.run("return document.querySelector('.hunt .gtile').getAttribute('aria-setsize')")
    unseen = len(names) - len(classes) - len(classes) // 2 - 1
    assert int(number) == unseen  # all that nobody has looked at, up to 48
    page.wait_text("short: here are the likeliest", ".hunt-title")
    assert page.all(".hunt .gtile[aria-selected=true]") == []  # no model: nothing is taken for granted
    page.press(Keys.ARROW_RIGHT, Keys.SPACE, Keys.ARROW_RIGHT, Keys.SPACE, Keys.ENTER)
    hunted = "SELECT count(*), count(DISTINCT class_id) FROM event WHERE found_by = 'hunt'"
    page.until(lambda: site.rows(hunted) == [(2, 1)], "two labels are found by hunting")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.run("return document.querySelector('.gallery-body').hidden"), "the gallery is back")
    assert page.run("return document.querySelector('.hunt .find-box').hidden")  # the backbone knows no texts
    if classes is MANY:  # once is enough
        page.run(KNOWS_TEXTS)
        page.click("#gallery [data-hunt]")
        page.until(lambda: not page.run("return document.querySelector('.hunt .find-box').hidden"), "a box for a text")
        page.find(".hunt .find-box").send_keys("a red bird", Keys.ENTER)
        page.wait_text("These fit “a red bird” best.", ".hunt-head")
        assert page.run("return window.asked.at(-1)") == "a red bird"


def test_of_many_images_few_are_in_the_document(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3, classes=TEN, chosen=0)
    site.stop()
    with Ledger.open(site.folder) as ledger, ledger.writing() as connection:
        connection.executemany(
            "INSERT INTO image (key, folder_id, path, sha256, bytes, width, height, orientation, added_at) "
            "VALUES (?, 1, ?, ?, 9, 8, 8, 1, 0)",
            [(f"{number:016x}", f"z{number:06}.png", f"{number:064x}") for number in range(1, 601)],
        )
    site.start()
    keys = open_gallery(page, site, 603)
    assert 0 < len(page.all("#gallery .gtile")) < 200
    page.run("const box = document.querySelector('.gallery-body .gallery-tiles'); box.scrollTop = box.scrollHeight")
    page.until(lambda: keys[-1] in shown(page), "the last image is shown")
    assert len(page.all("#gallery .gtile")) < 200
    assert shown(page) == [key for key in keys if key in set(shown(page))]


def test_where_people_label_blind_the_gallery_says_nothing_of_the_model(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=6, classes=TEN, guessing=True, settings={"blind": True})
    keys = open_gallery(page, site, 6)
    wait_shown(page, keys)
    assert page.all("#gallery [data-pick=guess]") == page.all("#gallery [data-pick=sure]") == []
    assert "%" not in page.text("#gallery")
    assert "Hardest" not in page.text("#gallery [data-pick=sort]")
