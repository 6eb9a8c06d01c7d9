"""Labelling one image after the other: keys, undo, looking back, what the model thinks, many and strange classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from .conftest import Page, Site

MakeSite = Callable[..., Any]


def label_all(page: Page, site: Site) -> dict[str, int]:
    """Press the right key at every image; gives what was pressed."""
    truth = site.truth()
    done: dict[str, int] = {}
    for _ in range(len(truth)):
        image = page.answer(str(truth[page.wait_shown()] + 1))
        done[image] = truth[image]
    return done


def test_a_whole_round_is_labelled_by_keyboard(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=20)
    page.open(site)
    done = label_all(page, site)
    page.wait_empty("complete")
    page.wait_saved()
    names = ("cat", "dog", "owl")
    assert len(done) == 20
    assert site.labels() == {image: names[place] for image, place in done.items()}
    assert len(site.events()) == 20
    page.wait_text("Round 1 is complete")


def test_the_next_ten_classes_are_under_shift(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, classes=[f"class {n}" for n in range(1, 13)])
    page.open(site)
    assert [cap.text for cap in page.all("#classes .cap")] == [*"1234567890", "⇧1", "⇧2"]
    first = page.wait_shown()
    page.press_with(Keys.SHIFT, "2")
    second = page.wait_shown(other_than=first)
    page.press("0")
    page.wait_empty("complete")
    assert site.labels() == {first: "class 12", second: "class 10"}


def test_a_click_on_a_class_is_an_answer_and_gives_the_keys_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site)
    first = page.wait_shown()
    page.click("#classes button:nth-child(2)")
    second = page.wait_shown(other_than=first)
    page.press("3")
    page.wait_empty("complete")
    assert site.labels() == {first: "dog", second: "owl"}


def test_other_and_skip_are_answers_without_a_class(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site)
    first, second = page.answer("o"), page.answer("s")
    page.wait_empty("complete")
    assert site.events() == [(first, "Ada", "other", None), (second, "Ada", "skip", None)]


def test_a_key_that_is_held_down_answers_once(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    image = page.wait_shown()
    held = {"type": "keyDown", "key": "1", "code": "Digit1", "windowsVirtualKeyCode": 49}
    for repeated in (False, True, True):
        page.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {**held, "autoRepeat": repeated})
    page.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {**held, "type": "keyUp"})
    page.wait_shown(other_than=image)
    page.wait_saved()
    assert site.labels() == {image: "cat"}


@pytest.mark.parametrize("key", ["u", Keys.BACKSPACE, "ctrl+z"])
def test_undo_brings_the_image_back(key: str, page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    image = page.answer("1")
    if key == "ctrl+z":
        page.press_with(Keys.CONTROL, "z")
    else:
        page.press(key)
    page.until(lambda: page.shown() == image, "the image is back")
    page.until(lambda: len(site.events()) == 2, "the undo is on the disk")
    assert [kind for _, _, kind, _ in site.events()] == ["label", "undo"]
    assert site.labels() == {}


def test_undo_survives_a_reload_and_goes_further_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    first, second = page.answer("1"), page.answer("2")
    page.wait_saved()
    page.reload()
    assert page.wait_shown() not in (first, second)
    page.press("u")
    page.until(lambda: page.shown() == second, "the second image is back")
    page.press("u")
    page.until(lambda: page.shown() == first, "the first image is back")
    page.until(lambda: len(site.events()) == 4, "both are on the disk")
    assert site.labels() == {}
    page.press("3")
    page.until(lambda: site.labels() == {first: "owl"}, "the new answer is on the disk")


def test_undo_after_a_reload_brings_the_answer_before_a_change_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    first, second = page.answer("1"), page.answer("2")
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.until(lambda: page.shown() == first, "the first image")
    page.press("3")
    page.until(lambda: site.labels() == {first: "owl", second: "dog"}, "the change is on the disk")
    page.reload()
    page.wait_shown()
    page.press("u")
    page.until(lambda: page.shown() == first, "the image whose answer was changed")
    page.wait_text("cat", "#stage .note.answered")
    page.until(lambda: site.labels() == {first: "cat", second: "dog"}, "as on the disk")
    page.press("u")
    page.until(lambda: page.shown() == second, "the answer before that")
    page.press("u")
    page.until(lambda: page.shown() == first, "and the first one")
    page.until(lambda: site.labels() == {}, "nothing is left")


def test_an_answer_is_changed_by_looking_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    first, second = page.answer("1"), page.answer("2")
    third = page.wait_shown()
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    page.until(lambda: page.shown() == first, "the first image")
    assert page.attribute("#classes button:nth-child(1)", "aria-pressed") == "true"
    page.press("3")
    page.until(lambda: page.shown() == second, "the next one after it")
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: page.shown() == third, "where one was")
    page.until(lambda: site.labels() == {first: "owl", second: "dog"}, "the change is on the disk")
    assert len(site.events()) == 3


def test_an_image_that_is_passed_without_an_answer_comes_again(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site)
    first = page.wait_shown()
    page.press(Keys.ARROW_RIGHT)
    second = page.wait_shown(other_than=first)
    page.press("2")
    page.until(lambda: page.shown() == first, "the image that was passed")
    page.press("1")
    page.wait_empty("complete")
    assert site.labels() == {first: "cat", second: "dog"}


def test_what_the_model_thinks_is_shown_and_accepted_with_enter(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, guessing=True)
    page.open(site)
    first = page.wait_shown()
    page.wait_text("90", ".note.guess")
    assert "90" in page.text("#classes .guessed")
    page.press(Keys.ENTER)
    second = page.wait_shown(other_than=first)
    page.click(".note.guess")
    page.wait_empty("complete")
    assert site.labels() == {first: "cat", second: "dog"}


def test_blind_hides_the_model_and_is_remembered(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, guessing=True)
    page.open(site)
    image = page.wait_shown()
    page.find(".note.guess")
    page.press("b")
    page.until(lambda: not page.all(".note.guess") and not page.all("#classes .guessed"), "nothing of the model")
    assert "%" not in page.text("#classes")
    page.press(Keys.ENTER)
    page.reload()
    assert page.wait_shown() == image
    assert page.all(".note.guess") == []
    page.press("b")
    page.find(".note.guess")
    assert site.events() == []


def test_a_campaign_can_be_blind_for_all(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, guessing=True, settings={"blind": True})
    page.open(site)
    page.wait_shown()
    assert page.all(".note.guess") == []
    assert page.attribute(".tool-blind", "disabled") is not None
    page.press("b")
    page.wait_text("Suggestions are hidden in this campaign", "#toasts")


def test_more_classes_than_keys_are_found_by_typing(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, classes=[*(f"species {n}" for n in range(24)), "École"])
    page.open(site)
    first = page.wait_shown()
    page.press("/")
    page.press("ecol")
    page.until(lambda: len([b for b in page.all("#classes button") if b.is_displayed()]) == 1, "one class is left")
    page.press(Keys.ENTER)
    second = page.wait_shown(other_than=first)
    assert len([b for b in page.all("#classes button") if b.is_displayed()]) == 25
    page.press("1")  # the keys belong to the image again
    page.wait_empty("complete")
    assert site.labels() == {first: "École", second: "species 0"}


HOSTILE = "<img src=x onerror=\"document.title='broken in'\"><b>bold</b>"


def test_a_class_name_with_markup_is_shown_as_text(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, classes=[HOSTILE, "x" * 200, "ينابيع طويلة جدا", "&amp;"], guessing=True)
    page.open(site)
    image = page.answer("1")
    page.wait_saved()
    page.press(Keys.ARROW_LEFT)  # shows it on the image, too
    page.until(lambda: page.text(".note.answered") == HOSTILE, "the name on the image")
    names = [name.text for name in page.all("#classes .name")]
    assert names[0] == HOSTILE
    assert names[3] == "&amp;"
    for view in ("grid", "conflicts", "rounds"):
        page.run("location.hash = arguments[0]", view)
        page.until(lambda: page.run("return document.body.dataset.view") == view, view)  # noqa: B023 - asked at once
    assert page.run("return document.querySelectorAll('b:not(.figure b, .stat b), img[src=x]').length") == 0
    assert "broken" not in page.driver.title
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    assert site.labels() == {image: HOSTILE}


def test_zoom_by_key_wheel_and_back(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=2))
    page.wait_shown()
    scale = "return new DOMMatrix(getComputedStyle(document.querySelector('#stage > .photo')).transform).a"
    assert page.run(scale) == 1
    page.press("z")
    page.until(lambda: page.run(scale) == 2.5, "enlarged")
    assert page.attribute(".tool-zoom", "aria-pressed") == "true"
    page.press("z")
    page.until(lambda: page.run(scale) == 1, "whole again")
    box = page.find("#stage").rect
    wheel = {"type": "mouseWheel", "x": box["x"] + 50, "y": box["y"] + 50, "deltaX": 0, "deltaY": -300}
    page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    page.until(lambda: page.run(scale) > 1.5, "enlarged by the wheel")
    page.press("1")
    page.until(lambda: page.run(scale) == 1, "the next image is whole")


def test_the_next_images_are_loaded_before_they_are_asked_for(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12)
    page.open(site)
    page.wait_shown()
    loaded = (
        "const names = performance.getEntriesByType('resource').map((entry) => entry.name);"
        "return names.filter((name) => /image.*size=(512|1280)/.test(name)).length"
    )
    page.until(lambda: page.run(loaded) == 6, "the image on show and five more")
    page.answer("1")
    page.until(lambda: page.run(loaded) == 7, "one more")


def test_the_help_names_the_keys_of_every_view(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=2))
    page.press("?")
    page.find("dialog[open]")
    titles = page.run("return [...document.querySelectorAll('dialog[open] h3')].map((title) => title.textContent)")
    assert titles == ["Answer", "Look", "Grid", "Gallery", "Review", "Map", "Page"]
    page.wait_text("take the last decision back", "dialog[open]")


def test_the_help_opens_and_closes_and_keeps_the_keys_to_itself(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site)
    image = page.wait_shown()
    page.press("?")
    page.wait_text("Keys and gestures", "dialog[open]")
    page.press("1")
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"), "it is closed")
    assert page.shown() == image
    assert site.events() == []
