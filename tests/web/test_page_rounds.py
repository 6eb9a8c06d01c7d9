"""Rounds from the page: the first batch, the next one, their history, and what is said when there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .conftest import Page

MakeSite = Callable[..., Any]
TRAINING = 600.0  # seconds


def test_the_first_batch_is_chosen_from_the_page(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12, chosen=0, settings={"budget": 5})
    page.open(site)
    page.wait_empty("no round")
    page.click("[data-act=next]")
    page.until(page.shown, "the first image of round 1", TRAINING)
    page.wait_text("Round 1", "#round-card")
    page.wait_text("0 of 5", "#round-card")
    assert site.rows("SELECT count(*) FROM round_image") == [(5,)]


def test_a_small_pool_is_chosen_whole_and_the_page_says_so(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=7, chosen=0)  # of the usual hundred
    page.open(site)
    page.wait_text("All 7 images that are left will be chosen", "#empty")
    assert page.attribute("#empty .budget", "placeholder") == "7"
    page.find("#empty .budget").send_keys("5")
    page.wait_text("5 of 7 images will be chosen", "#empty")
    page.find("#empty .budget").send_keys("0")
    page.wait_text("Only 7 images are left to choose from", "#empty")
    page.find("#empty .budget").clear()
    page.click("#empty [data-act=next]")
    page.until(page.shown, "the first image of round 1", TRAINING)
    page.wait_text("0 of 7 answered", "#round-card")
    assert site.rows("SELECT count(*) FROM round_image") == [(7,)]


def test_without_images_the_page_says_how_to_add_some(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=0, chosen=0)
    page.open(site)
    page.wait_empty("no images")
    page.wait_text("No images yet", "#empty")
    page.wait_text("tailwise init CAMPAIGN --images FOLDER", "#empty")
    assert page.all("#empty [data-act=next]") == []


def test_the_next_round_is_trained_and_chosen_from_the_page(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=30, chosen=9)
    page.open(site)
    truth = site.truth()
    for _ in range(9):
        page.answer(str(truth[page.wait_shown()] + 1))
    page.wait_empty("complete")
    page.find(".budget").send_keys("7")
    page.click("[data-act=next]")
    first = page.until(page.shown, "the first image of round 2", TRAINING)
    page.wait_text("Round 2", "#round-card")
    assert site.rows("SELECT count(*) FROM round_image WHERE round_id = 2") == [(7,)]
    assert site.rows("SELECT closed_at IS NULL FROM round ORDER BY id") == [(0,), (1,)]
    page.find(".note.guess")  # now there is a model
    page.press("r")
    page.wait_text("Round 1", "#rounds")
    page.wait_text("closed", "#rounds")
    page.wait_text("certified", "#rounds")
    assert "λ" not in page.text("#rounds")
    page.click("#rounds .details summary")
    page.wait_text("Strategy", "#rounds .details[open]")
    page.wait_text("0 of 7 images", "#rounds")
    page.press("l")
    assert page.wait_shown() == first
    page.press("1")
    page.until(lambda: first in site.labels(), "labelling goes on")


def test_a_batch_that_cannot_be_chosen_says_why(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    for key in "123":
        page.answer(key)
    page.wait_empty("complete")
    page.click("[data-act=next]")
    page.until(lambda: page.text("#empty .fault"), "a reason", TRAINING)
    page.until(lambda: page.attribute("[data-act=next]", "disabled") is None, "one can try again")
    assert "images" in page.text("#empty .fault")
    assert site.rows("SELECT count(*) FROM round") == [(1,)]


def test_skips_are_counted_apart_and_do_not_come_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    first = page.answer("s")
    page.wait_text("0 of 3 answered", "#round-card")
    page.wait_text("1 skipped · 0 answers by you", "#round-card")
    page.wait_saved()
    page.reload()
    assert page.wait_shown() != first
    assert {page.answer("1"), page.answer("2")} == set(site.truth()) - {first}
    page.wait_text("2 images are answered, 1 skipped", "#empty")


def test_what_was_skipped_is_chosen_again_where_it_is_asked_for(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    first = page.answer("s")
    page.answer("1")
    page.answer("2")
    page.wait_empty("complete")
    page.wait_text("No image is left to choose from", "#empty")
    page.wait_text("Also choose from 1 image that was skipped", "#empty")
    page.click("#empty [data-act=skipped-too]")
    page.wait_text("The one image that is left will be chosen", "#empty")
    page.click("#empty [data-act=next]")
    page.until(page.shown, "the first image of round 2", TRAINING)
    assert page.wait_shown() == first
    page.answer("3")
    page.until(lambda: len(site.labels()) == 3, "what was skipped is labelled")


def test_progress_and_balance_follow_the_answers(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.wait_text("0 of 4", "#round-card")
    page.answer("1")
    page.answer("1")
    page.answer("3")
    page.wait_text("3 of 4", "#round-card")
    bar = "#round-card [role=progressbar]"
    assert (page.attribute(bar, "aria-valuenow"), page.attribute(bar, "aria-valuemax")) == ("3", "4")
    page.until(lambda: page.text("#balance-card").split()[-6:] == ["cat", "2", "dog", "0", "owl", "1"], "the balance")
    page.press("u")
    page.wait_text("2 of 4", "#round-card")


def test_a_page_in_the_background_notifies_when_a_batch_is_ready(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=4))
    page.wait_shown()
    page.run(
        "window.notes = []; window.Notification = class { static permission = 'granted';"
        "constructor(title, { body }) { window.notes.push(`${title}: ${body}`); } };"
    )
    ready = (
        "const { store } = await import('/static/js/state.js'); const { server } = store.get();"
        "store.set({ server: { ...server, round: { ...server.round, id: values[0] } } });"
    )
    page.ask(ready, 2)
    page.wait_text("Round 2 is ready", "#toasts")
    assert page.run("return window.notes") == []  # it is in front: a note on the page is enough
    page.run("Object.defineProperty(document, 'hidden', { value: true })")
    page.ask(ready, 3)
    page.until(lambda: "Birds · Tailwise: Round 3 is ready" in page.run("return window.notes"), "a notification")
