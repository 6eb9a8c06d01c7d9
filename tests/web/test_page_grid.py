"""Grid mode: one class is proposed, exceptions are clicked, the rest is accepted at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from selenium.webdriver import ActionChains
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
    wait_tiles(page, 8 + 2)  # the class with the most images first
    assert "Are these all" in page.text("#grid h1")
    assert "dog" in page.text("#grid h1")
    assert page.text("#grid .chips").split() == ["dog", "10", "cat", "6"]
    page.click("#grid .chip[data-class='1']")
    keys = wait_tiles(page, 8 - 2)
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
    page.wait_text("Suggestions are hidden", "#grid")
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


def states(page: Page) -> list[str]:
    return [str(tile.get_attribute("data-state")) for tile in page.all("#grid .tile")]


def test_images_below_sixty_percent_are_not_selected_until_somebody_takes_them_in(
    page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=34, classes=("cat",), guessing=True)  # 90 %, 89 % … 57 %
    page.open(site, view="grid")
    keys = wait_tiles(page, 34)
    assert states(page) == ["in"] * 31 + ["unsure"] * 3
    page.wait_text("3 images below 60 % are not selected", "#grid .grid-foot")
    page.click(f".tile[data-key='{keys[32]}']")
    page.wait_text("Accept 32 as cat", "[data-act=accept]")
    page.press(Keys.ENTER)
    page.until(lambda: set(site.labels()) == {*keys[:31], keys[32]}, "those below 60 % are left")


def test_a_range_is_taken_out_with_shift_and_the_choice_is_inverted(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=6, classes=("cat",), guessing=True), view="grid")
    keys = wait_tiles(page, 6)
    page.click(f".tile[data-key='{keys[1]}']")
    tile = page.find(f".tile[data-key='{keys[4]}']")
    ActionChains(page.driver).key_down(Keys.SHIFT).click(tile).key_up(Keys.SHIFT).perform()
    assert states(page) == ["in", "out", "out", "out", "out", "in"]
    page.click("[data-act=invert]")
    assert states(page) == ["out", "in", "in", "in", "in", "out"]
    page.wait_text("Accept 4 as cat", "[data-act=accept]")


def test_crossing_out_every_tile_is_not_a_dead_end_and_another_class_keeps_the_crosses(
    page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=6, classes=CLASSES, guessing=True)
    page.open(site, view="grid")
    keys = wait_tiles(page, 3)
    page.click(f".tile[data-key='{keys[0]}']")
    page.click("#grid .chip[data-class='2']")
    page.until(lambda: "dog" in page.text("#grid h1"), "the other class")
    page.click("#grid .chip[data-class='1']")
    page.until(lambda: "cat" in page.text("#grid h1"), "the first class")
    assert states(page) == ["out", "in", "in"]
    for key in keys[1:]:
        page.click(f".tile[data-key='{key}']")
    page.wait_text("Leave all for later", "[data-act=accept]")
    page.click("[data-act=accept]")
    page.until(lambda: "dog" in page.text("#grid h1"), "the next class")
    assert site.events() == []
    page.press("l")
    assert page.wait_shown() in keys


def test_with_44_classes_every_class_is_found_by_typing(page: Page, make_site: MakeSite) -> None:
    classes = [f"kind {number:02}" for number in range(44)]
    site = make_site(images=88, classes=classes, guessing=True)
    page.open(site, view="grid")
    keys = wait_tiles(page, 2)
    assert len(page.all("#grid .chip")) == 44
    page.press("/", "41", Keys.ENTER)  # no tile is in focus: the proposed class
    page.until(lambda: "kind 41" in page.text("#grid h1"), "the class that was typed")
    keys = wait_tiles(page, 2)
    page.press(Keys.ARROW_RIGHT, "/")  # the tile in focus, which is the last
    page.find("dialog.enlarge[open] input").send_keys("37", Keys.ENTER)
    page.until(lambda: not page.all("dialog[open]"), "closed")
    page.press(Keys.ENTER)
    page.until(lambda: site.labels() == {keys[1]: "kind 37"}, "the tile has the class that was typed")
