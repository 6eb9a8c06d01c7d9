"""Several people, several tabs: nobody sees an image twice, conflicts are settled, names are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from selenium.webdriver.common.keys import Keys

from tailwise.campaign.service import Campaign

if TYPE_CHECKING:
    from .conftest import Page, Site

MakeSite = Callable[..., Any]


def test_the_first_visit_asks_for_a_name_and_keeps_it(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.driver.get(site.link)
    page.ready()
    page.wait_text("Who is labelling?", "dialog[open]")
    page.press(Keys.ESCAPE)
    page.wait_text("Who is labelling?", "dialog[open]")  # there must be a name
    page.press("   ", Keys.ENTER)
    page.wait_text("Please type a name", "dialog[open]")
    page.find("#name-box").clear()
    page.find("#name-box").send_keys("Zoë Łuk", Keys.ENTER)
    image = page.wait_shown()
    page.reload()
    assert page.all("dialog[open]") == []
    assert page.wait_shown() == image
    page.press("1")
    page.until(lambda: site.events() == [(image, "Zoë Łuk", "label", "cat")], "the name is with the answer")


def test_two_people_at_once_never_see_the_same_image(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=16)
    pages = {"Ada": page.open(site, "Ada"), "Ben": other_page.open(site, "Ben")}
    seen: dict[str, set[str]] = {"Ada": set(), "Ben": set()}
    turns = 0
    while len(seen["Ada"]) + len(seen["Ben"]) < 16:
        for name, one in pages.items():
            if one.shown():
                seen[name].add(one.answer("1"))
        turns += 1
        assert turns < 100, seen
    assert seen["Ada"].isdisjoint(seen["Ben"])
    page.wait_empty("complete")
    other_page.wait_empty("complete")
    assert len(site.labels()) == 16
    assert Counter(name for _, name, _, _ in site.events()) == Counter({name: len(keys) for name, keys in seen.items()})


def test_what_one_leaves_the_other_gets(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site, "Ada").wait_shown()  # holds all four
    other_page.open(site, "Ben")
    other_page.wait_empty("with others")
    page.driver.get("about:blank")
    assert other_page.wait_shown()


def test_two_tabs_of_one_person_share_the_work(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=20)
    page.open(site)
    here = page.driver.current_window_handle
    seen: list[str] = []
    page.driver.switch_to.new_window("tab")
    there = page.driver.current_window_handle
    page.driver.get(f"http://127.0.0.1:{site.port}/")
    page.ready()
    for turn in range(20):
        page.driver.switch_to.window(here if turn % 2 else there)
        if page.wait_shown():
            seen.append(page.answer("2"))
    assert len(set(seen)) == 20
    page.wait_empty("complete")
    page.wait_saved()
    assert Counter(key for key, _, _, _ in site.events()) == Counter(seen)


HOLD_ANSWERS = """
const real = window.fetch;
const go = new Promise((resolve) => { window.letGo = resolve; });
window.fetch = async (path, options) => {
  if (String(path).endsWith('/api/answers')) await go;
  return real(path, options);
};
"""


def answer_in_two_tabs(page: Page, site: Site) -> tuple[str, str, list[str]]:
    """One answer in each tab, both of two images; the first tab's is on its way. Gives the tabs and the images."""
    page.open(site)
    here = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    there = page.driver.current_window_handle
    page.driver.get(f"http://127.0.0.1:{site.port}/")
    page.ready().wait_shown()
    page.driver.switch_to.window(here)
    page.run(HOLD_ANSWERS)
    first = page.answer("2")
    page.driver.switch_to.window(there)
    second = page.answer("2")
    page.wait_saved()
    return here, there, [first, second]


def test_an_image_whose_answer_is_being_saved_in_one_tab_is_not_shown_in_another(
    page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=2)
    here, there, seen = answer_in_two_tabs(page, site)
    page.wait_empty("in another tab")
    page.driver.switch_to.window(here)
    page.wait_empty("soon")
    page.run("window.letGo()")
    page.wait_empty("complete")
    page.driver.switch_to.window(there)
    page.wait_empty("complete")
    assert Counter(key for key, _, _, _ in site.events()) == Counter(seen)


def test_an_answer_that_a_closed_tab_has_left_is_sent_and_its_image_not_shown_again(
    page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=2)
    here, there, seen = answer_in_two_tabs(page, site)
    page.wait_empty("in another tab")
    page.driver.switch_to.window(here)
    page.driver.close()
    page.driver.switch_to.window(there)
    page.until(lambda: page.shown() or len(site.events()) == 2, "the other tab has sent it")
    page.wait_empty("complete")
    assert Counter(key for key, _, _, _ in site.events()) == Counter(seen)


def test_undo_in_one_tab_takes_back_what_was_said_there(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=12)
    page.open(site)
    here = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    page.driver.get(f"http://127.0.0.1:{site.port}/")
    page.ready()
    first = page.answer("1")
    there = page.driver.current_window_handle
    page.driver.switch_to.window(here)
    second = page.answer("2")
    page.wait_saved()
    page.driver.switch_to.window(there)
    page.press("u")
    page.until(lambda: site.labels() == {second: "dog"}, f"only {first} is undone")


def disagree(site: Site, page: Page, other_page: Page) -> list[str]:
    """Two people answer two images, and differ in both; gives the images in order."""
    page.open(site, "Ada")
    first, second = page.answer("1"), page.answer("1")
    page.wait_empty("with others")
    other_page.open(site, "Ben")
    assert {other_page.answer("2"), other_page.answer("o")} == {first, second}
    other_page.wait_empty("complete")
    return [first, second]


def test_conflicts_are_settled_as_a_class_or_as_other(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, settings={"overlap": 2})
    images = disagree(site, page, other_page)
    page.until(lambda: page.text("#conflict-count") == "2", "the number beside the view's name")
    assert site.labels() == {}
    page.press("c")
    page.wait_text("2 conflicts", "#conflicts")
    page.wait_text("Cohen", "#conflicts")
    assert {"Ada", "Ben"} <= set(page.text("#conflicts .verdicts").split())
    first = page.attribute("#conflicts .photo", "data-key")
    page.press("3")  # two people, two answers: nothing has this key
    page.press("/")
    page.until(lambda: page.run("return document.activeElement.tagName") == "INPUT", "the box has the focus")
    page.press("owl", Keys.ENTER)
    page.wait_text("1 conflict", "#conflicts")
    page.click("#conflicts [data-verdict=another]")
    page.click("#conflicts [data-class=other]")
    page.wait_text("Nothing to settle", "#conflicts")
    page.until(lambda: len(site.events()) == 6, "both are settled on the disk")
    assert site.labels() == {first: "owl"}
    (second,) = set(images) - {first}
    assert [(key, kind) for key, _, kind, _ in site.events()][-2:] == [
        (first, "settle-label"),
        (second, "settle-other"),
    ]


def test_the_agreement_of_three_people_is_named_as_a_mean_and_shown_by_pairs(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, settings={"overlap": 3})
    with Campaign.open(site.folder) as campaign:
        for name, classes in (("Ada", (1, 2)), ("Ben", (1, 2)), ("Cleo", (2, 1))):
            for path, cls in zip(("000_0.png", "001_1.png"), classes, strict=True):
                campaign.label(path, cls, annotator=name)
    page.open(site, "Ada", view="conflicts")
    page.wait_text("−0.33 Cohen’s κ, mean of 3 pairs", "#conflicts .stats")
    page.wait_text("1.00 Ada – Ben", "#conflicts .stats")
    page.wait_text("−1.00 Ada – Cleo", "#conflicts .stats")


def test_a_click_on_what_somebody_said_settles_it_so(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2, settings={"overlap": 2})
    disagree(site, page, other_page)
    page.press("c")
    page.wait_text("2 conflicts", "#conflicts")
    image = page.attribute("#conflicts .photo", "data-key")
    page.click("#conflicts .verdict")
    page.until(lambda: site.labels() == {image: "cat"}, "as Ada said")


def test_undo_among_the_conflicts_takes_settlements_back_and_no_answers(
    page: Page, other_page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=2, settings={"overlap": 2})
    disagree(site, page, other_page)
    page.press("c")
    page.wait_text("2 conflicts", "#conflicts")
    page.press("u")
    page.wait_text("No settlement to undo", "#toasts")
    first = page.attribute("#conflicts .photo", "data-key")
    page.press("1")
    page.wait_text("1 conflict", "#conflicts")
    page.press("o")
    page.wait_text("Nothing to settle", "#conflicts")
    page.press("u")
    page.wait_text("Undone: settled as “other”", "#toasts")
    page.wait_text("1 conflict", "#conflicts")
    page.until(lambda: len(site.events()) == 7, "the undo is on the disk")
    page.reload()
    page.wait_text("1 conflict", "#conflicts")
    page.click("#conflicts [data-act=undo]")
    page.wait_text("2 conflicts", "#conflicts")
    page.until(lambda: page.attribute("#conflicts .photo", "data-key") == first, "the image is on show again")
    page.until(lambda: site.labels() == {}, "no decision is left")
    assert [kind for _, _, kind, _ in site.events()][-4:] == ["settle-label", "settle-other", "undo", "undo"]
    assert page.all("#conflicts [data-act=undo]") == []
    page.press("1")
    page.until(lambda: site.labels() == {first: "cat"}, "it is settled anew, as Ada said")


def test_undo_in_the_history_of_rounds_takes_nothing_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site)
    image = page.answer("1")
    page.wait_saved()
    page.press("r")
    page.wait_text("Round 1", "#rounds")
    page.press("u")
    page.wait_text("Nothing to undo here", "#toasts")
    page.press("l")
    assert page.wait_shown() != image
    assert site.labels() == {image: "cat"}


def test_a_change_of_name_gives_the_images_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site, "Ada")
    page.answer("1")
    page.wait_saved()
    page.click("#person")
    page.wait_text("Who is labelling?", "dialog[open]")
    page.press("Ben", Keys.ENTER)
    page.until(lambda: site.rows("SELECT DISTINCT annotator FROM lease") == [("Ben",)], "Ben holds it now")
    image = page.answer("2")
    page.wait_empty("complete")
    assert site.events()[-1] == (image, "Ben", "label", "dog")


def test_an_annotator_labels_and_leaves_training_and_settling_to_the_owner(
    page: Page, other_page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=2, settings={"overlap": 2})
    owner, guest = page.open(site, "Ada"), other_page.open(site, "Ben", annotator=True)
    for one, key in ((owner, "1"), (guest, "2")):
        one.answer(key)
        one.answer("3")
    owner.wait_empty("complete")
    guest.wait_empty("complete")
    guest.wait_text("The owner of this campaign starts the next round", "#empty")
    assert not guest.find("#empty [data-act=next]").is_displayed()
    assert owner.find("#empty [data-act=next]").is_displayed()

    guest.press("c")
    guest.wait_text("1 conflict", "#conflicts")
    guest.wait_text("Only the owner’s link can do this", "#conflicts")
    assert guest.all("#conflicts .classes") == []
    assert [one.is_enabled() for one in guest.all("#conflicts .verdict")] == [False, False]
    guest.press("1")
    guest.wait_text("Only the owner’s link can do this", "#toasts")
    owner.press("c")
    owner.wait_text("1 conflict", "#conflicts")
    owner.press("1")
    owner.wait_text("Nothing to settle", "#conflicts")
    owner.until(
        lambda: [kind for _, _, kind, _ in site.events()].count("settle-label") == 1, "the owner has settled it"
    )
    guest.press("m")  # nor does an annotator start what takes long: each view says so
    guest.wait_text("Only the owner’s link can do this", "#map")
    assert guest.all("#map [data-act=draw]") == []
    guest.run("location.hash = 'duplicates'")
    guest.wait_text("Nobody has looked for duplicates yet", "#duplicates")
    guest.press("d")
    guest.wait_text("How good the model is has not been measured yet.", "#dashboard .advice")
    assert guest.all("#dashboard [data-act=measure]") == []
    jobs = "return Promise.all(values[0].map(async (path) => (await (await fetch(path)).json()).job.state))"
    paths = ["/api/dashboard", "/api/map", "/api/review/duplicates"]
    assert guest.ask(jobs, paths) == ["idle", "idle", "idle"]
    guest.wait_text("cat or dog: people differ on 1 of 1", "[data-card=confused]")  # also when it is settled
    guest.click("[data-card=confused] button")
    guest.until(lambda: guest.attribute("#gallery", "data-ready") == "1", "the image that they differ on")
    assert guest.text("#banner") == ""


def test_what_the_server_refuses_an_annotator_does_not_lock_the_page(page: Page, make_site: MakeSite) -> None:
    """A settlement that waited in the outbox of a page that is opened by the annotators' link now."""
    site = make_site(images=1)
    page.open(site, "Ada", annotator=True)
    image = page.wait_shown()
    page.ask(
        "const { post } = await import('/static/js/api.js'); const { note } = await import('/static/js/link.js');"
        "await post('/api/settle', values[0]).catch(note);",
        {"annotator": "Ada", "key": "settlement-1", "image": image, "kind": "settle-other"},
    )
    assert page.run("return document.querySelector('#empty:not([hidden])')") is None
    assert page.answer("1") == image
    page.wait_empty("complete")
