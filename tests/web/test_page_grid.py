"""Grid mode: one class is proposed, exceptions are clicked, the rest is accepted at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
CLASSES = ("cat", "dog")


def wait_tiles(page: Page, count: int) -> list[str]:
    """The keys of the images in the grid."""
    page.until(lambda: page.run("return document.getElementById('grid').dataset.ready") == str(count), f"{count} tiles")
    return [str(tile.get_attribute("data-key")) for tile in page.all("#grid .tile")]


def test_all_but_the_exceptions_are_accepted(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=16, classes=CLASSES, guessing=True, wrong=(2, 6))
    page.open(site, view="grid")
    truth = site.truth()
    keys = wait_tiles(page, 8 - 2)
    assert "Are these all" in page.text("#grid h1")
    assert "cat" in page.text("#grid h1")
    assert all(truth[key] == 0 for key in keys)
    page.press("g")
    page.click(f".tile[data-key='{keys[1]}']")
    page.click(f".tile[data-key='{keys[4]}']")
    page.wait_text("Accept 4 as cat", "[data-act=accept]")
    page.click("[data-act=accept]")
    accepted = {keys[at]: "cat" for at in (0, 2, 3, 5)}
    page.until(lambda: site.labels() == accepted, "the others are on the disk")
    wait_tiles(page, 8 + 2)  # the next class comes by itself
    assert "dog" in page.text("#grid h1")
    page.press("l")
    assert page.wait_shown() in {keys[1], keys[4]}  # what was taken out comes one by one


def test_the_grid_works_by_keyboard_and_gives_single_images_another_class(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=6, classes=CLASSES, guessing=True)
    page.open(site, view="grid")
    keys = wait_tiles(page, 3)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, "2")  # the first key brings the focus, the second moves it
    page.press(Keys.ARROW_RIGHT, "x")
    page.wait_text("Save 2 answers", "[data-act=accept]")
    page.press(Keys.ENTER)
    page.until(lambda: site.labels() == {keys[0]: "cat", keys[1]: "dog"}, "two are answered")


def test_space_takes_an_image_out_and_in_again(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4, classes=CLASSES, guessing=True)
    page.open(site, view="grid")
    wait_tiles(page, 2)
    page.press(Keys.ARROW_RIGHT, Keys.SPACE)
    page.wait_text("Accept 1", "[data-act=accept]")
    assert page.attribute("#grid .tile", "aria-selected") == "false"
    page.press(Keys.SPACE)
    page.wait_text("Accept 2", "[data-act=accept]")


def test_what_was_accepted_together_is_undone_together_also_after_a_reload(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=8, classes=CLASSES, guessing=True)
    page.open(site, view="grid")
    wait_tiles(page, 4)
    page.press(Keys.ENTER)
    page.until(lambda: len(site.labels()) == 4, "four are accepted")
    page.reload()
    wait_tiles(page, 4)
    page.press("u")
    page.wait_text("4 answers", "#toasts")
    page.until(lambda: site.labels() == {}, "all four are undone")
    assert len(site.events()) == 8


def test_without_a_model_the_grid_says_so(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=2), view="grid")
    page.wait_text("there is no model yet", "#grid")


def test_blind_people_are_proposed_nothing(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4, classes=CLASSES, guessing=True)
    page.open(site, view="grid")
    wait_tiles(page, 2)
    page.press("b")
    page.wait_text("You are labelling blind", "#grid")
    assert page.all("#grid .tile") == []
    page.press("b")
    wait_tiles(page, 2)


def test_where_all_label_blind_there_is_no_grid(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=4, classes=CLASSES, guessing=True, settings={"blind": True}), view="grid")
    page.wait_text("A grid would show what the model thinks", "#grid")


def test_a_grid_that_is_left_gives_its_images_back(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=64, classes=("cat",), guessing=True)
    page.open(site, view="grid")
    wait_tiles(page, 48)
    held = "SELECT count(*) FROM lease WHERE annotator = 'Ada'"
    assert site.rows(held)[0][0] >= 48
    page.press("l")
    page.wait_shown()
    page.until(lambda: site.rows(held)[0][0] <= 20, "only the images of the label view are held")
    other_page.open(site, "Ben", view="grid")
    page.until(lambda: len(other_page.all("#grid .tile")) >= 44, "the other person has them")
