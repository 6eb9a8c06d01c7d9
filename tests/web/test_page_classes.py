"""Classes, guidelines, flags and comments on the page: changed by the owner while others label, nothing lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

import tailwise
from tailwise.campaign.classes import COMMAND_KEYS
from tailwise.campaign.service import Campaign

from .api_client import Api, new_key, serving_api
from .conftest import TEN_AND_MANY

if TYPE_CHECKING:
    from .conftest import Page, Site

MakeSite = Callable[..., Any]
MARKUP = "<img src=x onerror=window.hacked=1>"
HOSTILE = f"{MARKUP}\u202egnp.exe"


def names(site: Site) -> list[str]:
    return [row[0] for row in site.rows("SELECT name FROM class WHERE retired_at IS NULL ORDER BY position")]


def shown_names(page: Page) -> list[str]:
    rows = "#classes-view .class-list[aria-label='Classes in use'] .row-name"
    return list(page.run("return [...document.querySelectorAll(arguments[0])].map((one) => one.value)", rows))


def keys_of(page: Page) -> list[str]:
    """Name and key of each class button of the label view."""
    script = (
        "const text = (one, part) => one.querySelector(part).innerText;"
        "const buttons = [...document.querySelectorAll('#classes .class')];"
        "return buttons.map((one) => `${text(one, '.cap')} ${text(one, '.name')}`)"
    )
    return list(page.run(script))


def many(count: int) -> tuple[str, ...]:
    return tuple(f"bird {number}" for number in range(1, count + 1))


@pytest.mark.parametrize("count", TEN_AND_MANY)
def test_the_owner_changes_classes_while_an_annotator_labels(
    page: Page, other_page: Page, make_site: MakeSite, count: int
) -> None:
    site = make_site(images=6, classes=many(count))
    guest = other_page.open(site, "Ben", annotator=True)
    first = guest.wait_shown()
    owner = page.open(site, "Ada", "classes")
    owner.until(lambda: shown_names(owner) == list(many(count)), "all classes are listed")

    owner.find("#new-class").send_keys("heron", Keys.ENTER)
    owner.until(lambda: shown_names(owner)[-1] == "heron", "it is added")
    second = owner.find(".class-row:nth-child(2)")
    box = second.find_element("css selector", ".row-name")
    box.send_keys(Keys.END, "b", Keys.ENTER)
    owner.until(lambda: names(site)[1] == "bird 2b", "it is renamed")
    second.find_element("css selector", "[data-act=up]").click()
    owner.until(lambda: names(site)[:2] == ["bird 2b", "bird 1"], "it is moved up")
    second.find_element("css selector", "[data-act=more]").click()
    second.find_element("css selector", ".row-key").send_keys("w", Keys.ENTER)
    owner.until(lambda: site.rows("SELECT hotkey FROM class WHERE name = 'bird 2b'") == [("w",)], "it has a key")
    third = owner.find(".class-row:nth-child(3)")
    third.find_element("css selector", "[data-act=more]").click()
    third.find_element("css selector", "[data-act=retire]").click()
    owner.until(lambda: "bird 3" not in names(site), "it is retired")

    wanted = ["w bird 2b", "2 bird 1", "3 bird 4"]
    guest.until(lambda: keys_of(guest)[:3] == wanted, lambda: f"the annotator sees {wanted}, but {keys_of(guest)[:3]}")
    guest.until(lambda: keys_of(guest)[-1].endswith("heron"), "and the new class, without a reload")
    assert guest.shown() == first  # the work under way is left alone
    guest.press("w")
    guest.wait_shown(other_than=first)
    guest.press("3")
    guest.until(
        lambda: [(w, c) for _, w, _, c in site.events()] == [("Ben", "bird 2b"), ("Ben", "bird 4")], "both are saved"
    )


def test_an_answer_under_way_survives_the_end_of_its_class(page: Page, other_page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    guest = other_page.open(site, "Ben", annotator=True)
    image = guest.wait_shown()
    guest.offline(yes=True)
    guest.press("3")
    guest.until(lambda: guest.saving() == "kept", "the answer waits")
    owner = page.open(site, "Ada", "classes")
    row = owner.find(".class-row:nth-child(3)")
    row.find_element("css selector", "[data-act=more]").click()
    row.find_element("css selector", "[data-act=retire]").click()
    owner.until(lambda: names(site) == ["cat", "dog"], "the class is retired")
    guest.offline(yes=False)
    guest.wait_saved()
    assert site.events() == [(image, "Ben", "label", "owl")]


def test_a_class_is_dragged_to_another_place(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=1, classes=many(5))
    page.open(site, "Ada", "classes")
    grip, last = page.find(".class-row:nth-child(1) .grip"), page.find(".class-row:nth-child(4)")
    down = int(last.rect["y"] + last.rect["height"] - grip.rect["y"])
    ActionChains(page.driver).click_and_hold(grip).move_by_offset(0, down).release().perform()
    page.until(
        lambda: names(site) == ["bird 2", "bird 3", "bird 4", "bird 1", "bird 5"], lambda: f"it is {names(site)}"
    )
    page.until(lambda: shown_names(page) == names(site), "and shown so")


def test_what_cannot_be_is_explained_next_to_its_class_and_changes_nothing(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=1)
    page.open(site, "Ada", "classes")
    row = page.find(".class-row:nth-child(1)")
    row.find_element("css selector", ".row-name").send_keys(Keys.CONTROL, "a")
    row.find_element("css selector", ".row-name").send_keys("dog", Keys.ENTER)
    page.wait_text("'dog' is there already", ".class-row:nth-child(1) .fault")
    row.find_element("css selector", ".row-name").send_keys(Keys.ESCAPE)
    assert shown_names(page) == ["cat", "dog", "owl"]
    row.find_element("css selector", "[data-act=more]").click()
    row.find_element("css selector", ".row-key").send_keys("u", Keys.ENTER)
    page.wait_text("is a command of the page", ".class-row:nth-child(1) .fault")
    assert site.rows("SELECT name, hotkey FROM class ORDER BY position") == [
        ("cat", None),
        ("dog", None),
        ("owl", None),
    ]


def test_typing_is_not_disturbed_by_what_others_change(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=1)
    page.open(site, "Ada", "classes")
    page.click(".class-row:nth-child(2) [data-act=more]")
    box = page.find(".class-row:nth-child(2) .row-description")
    box.send_keys("Barks, and")
    script = (
        "const { post } = await import('/static/js/api.js'); const { look } = await import('/static/js/link.js');"
        "await post('/api/classes/edit', { class_id: 3, place: 1, name: 'eagle' }); await look();"
    )
    page.ask(script)
    page.until(lambda: shown_names(page) == ["eagle", "cat", "dog"], "the other change is shown")
    page.press(" wags its tail")
    assert box.get_property("value") == "Barks, and wags its tail"
    page.press(Keys.TAB)
    page.until(
        lambda: site.rows("SELECT description FROM class WHERE id = 2") == [("Barks, and wags its tail",)], "saved"
    )


@pytest.mark.parametrize("count", TEN_AND_MANY)
def test_guidelines_and_examples_are_shown_next_to_the_keys(page: Page, make_site: MakeSite, count: int) -> None:
    site = make_site(images=6, classes=many(count), chosen=3)
    site.stop()
    with Campaign.open(site.folder) as campaign:
        for path in ("003_3.png", "004_4.png"):
            campaign.label(path, "bird 1")
    site.start()
    page.open(site, "Ada", "classes")
    page.click(".class-row:nth-child(1) [data-act=more]")
    page.find(".class-row:nth-child(1) .row-description").send_keys(MARKUP, Keys.TAB)
    page.until(
        lambda: site.rows("SELECT description FROM class WHERE id = 1") == [(MARKUP,)], "the description is saved"
    )
    page.click(".class-row:nth-child(1) [data-act=examples]")
    page.until(lambda: len(page.all(".example-tile")) == 2, "the labelled images of the class are offered")
    page.click(".example-tile")
    page.click("[data-act=save-examples]")
    page.until(lambda: site.rows("SELECT count(*) FROM class_example") == [(1,)], "the example is saved")

    page.run("location.hash = 'label'")
    page.wait_shown()
    ActionChains(page.driver).move_to_element(page.find("#classes .class")).perform()
    page.wait_text(MARKUP, "#guide-card")
    assert len(page.all("#guide-card .examples img")) == 1
    page.press("i")
    page.wait_text(MARKUP, "dialog.guide[open]")
    page.press("i")
    page.until(lambda: not page.all("dialog[open]"), "the same key closes it")
    assert page.run("return window.hacked ?? null") is None


def test_annotators_read_guidelines_and_cannot_change_them(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=1)
    page.open(site, "Ben", "classes", annotator=True)
    page.wait_text("The owner’s link changes the classes", "#classes-view")
    controls = "return [...document.querySelectorAll('#classes-view :is(button, input, textarea)')]"
    assert page.run(f"{controls}.filter((one) => one.checkVisibility()).length") == 0


@pytest.mark.parametrize("count", TEN_AND_MANY)
def test_own_keys_work_in_label_grid_and_conflicts(page: Page, make_site: MakeSite, count: int) -> None:
    site = make_site(images=4, classes=many(count), guessing=True, settings={"overlap": 2})
    site.stop()
    last = many(count)[-1]
    with Campaign.open(site.folder) as campaign:
        campaign.edit_class(last, hotkey="q")
        campaign.label("000_0.png", "bird 1", annotator="Ben")
    site.start()
    page.open(site, "Ada")
    image = page.answer("q")
    page.until(lambda: site.events()[1:] == [(image, "Ada", "label", last)], "label: the key answers")
    page.press("c")
    page.wait_text("1 conflict", "#conflicts")
    page.press("Q")
    page.until(lambda: site.events()[-1] == (image, "Ada", "settle-label", last), "conflicts: the key settles")
    page.press("g")
    page.until(lambda: page.all("#grid .tile"), "the grid has images")
    page.click("#grid .tile")
    page.press("q")
    page.wait_text(last, "#grid .tile .tile-mark")


def test_no_command_of_the_page_can_be_the_key_of_a_class() -> None:
    source = (Path(tailwise.__file__).parent / "web" / "static" / "js" / "keys.js").read_text(encoding="utf-8")
    table = re.search(r"const PLAIN = \{(.*?)\n\};", source, re.DOTALL)
    assert table is not None
    keys = re.findall(r"(?:^|[\s,{])'?([^\s'])'?: '", table[1])
    assert {"u", "?", "/", "f"} <= set(keys)
    assert set(keys) <= set(COMMAND_KEYS)


# Flags and comments.


@pytest.mark.parametrize("count", TEN_AND_MANY)
def test_flags_and_comments_are_kept_and_shown_with_their_author(
    page: Page, other_page: Page, make_site: MakeSite, count: int
) -> None:
    site = make_site(images=2, classes=many(count), settings={"overlap": 2})
    page.open(site, "Ada", annotator=True)
    image = page.wait_shown()
    page.press("f")
    assert page.attribute("[data-act=flag]", "aria-pressed") == "true"
    page.press("n")
    page.find("#comment-box").send_keys(MARKUP, Keys.ENTER, "second line")
    page.press_with(Keys.CONTROL, Keys.ENTER)
    page.wait_saved()
    notes = site.rows("SELECT i.key, n.annotator, n.kind, n.text FROM note AS n JOIN image AS i ON i.id = n.image_id")
    assert notes == [(image, "Ada", "flag", ""), (image, "Ada", "comment", f"{MARKUP}\nsecond line")]
    assert page.shown() == image  # a note is not an answer
    assert site.events() == []

    other_page.open(site, "Ben")
    assert other_page.wait_shown() == image
    other_page.until(lambda: other_page.attribute("[data-act=flag]", "aria-pressed") == "true", "Ben sees the flag")
    other_page.wait_text(MARKUP, ".newest-comment")
    other_page.press("n")
    other_page.wait_text("Ada", ".comments")
    other_page.wait_text("second line", ".comments")
    assert other_page.run("return window.hacked ?? null") is None
    other_page.press(Keys.ESCAPE)
    other_page.until(lambda: other_page.run("return document.activeElement.id") == "stage", "the comments are closed")
    other_page.press("f")
    other_page.until(lambda: site.rows("SELECT kind FROM note ORDER BY id DESC LIMIT 1") == [("unflag",)], "unflagged")


def test_a_comment_written_offline_is_sent_later_and_once(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    page.open(site, "Ada")
    image = page.wait_shown()
    page.offline(yes=True)
    page.press("n")
    page.find("#comment-box").send_keys("too dark")
    page.click("[data-act=save-comment]")
    page.press("1")
    page.until(lambda: page.saving() == "kept", "both wait in the browser")
    page.offline(yes=False)
    page.wait_saved()
    assert site.rows("SELECT text FROM note") == [("too dark",)]
    assert site.events() == [(image, "Ada", "label", "cat")]


# Requests of programs.


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving_api(tmp_path, images=2) as made:
        yield made


def note(api: Api, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    image = api.rows("SELECT key FROM image ORDER BY id")[0][0]
    return {"annotator": "ada", "key": new_key(), "image": image, "kind": "comment", "text": "fine", **changes}


def test_hostile_notes_are_refused_or_kept_as_text(api: Api) -> None:
    assert api.refused("/api/note", **note(api, text="x" * 10_000)) == (422, "invalid")
    assert api.refused("/api/note", **note(api, text="x" * 2_001)) == (400, "bad_input")
    assert api.refused("/api/note", **note(api, text="\u202e\u0000")) == (400, "bad_input")
    assert api.refused("/api/note", **note(api, image="0" * 16)) == (404, "unknown")
    assert api.refused("/api/note", **note(api, kind="flag")) == (400, "bad_input")
    body = b'{"annotator": "ada", "key": "12345678", "image": "%s", "kind": "comment", "text": "\\ud800"}'
    half = api.client.post(
        "/api/note", content=body % note(api)["image"].encode(), headers={"Content-Type": "application/json"}
    )
    assert (half.status_code, half.json()["error"]["code"]) == (400, "bad_json")
    assert api.rows("SELECT count(*) FROM note") == [(0,)]
    kept = api.post("/api/note", **note(api, text=HOSTILE))
    assert [one["text"] for one in kept["items"]] == [f"{MARKUP}gnp.exe"]


def test_the_same_note_twice_is_recorded_once(api: Api) -> None:
    body = note(api, kind="flag", text="")
    assert api.post("/api/note", **body) == api.post("/api/note", **body)
    assert api.get("/api/notes", image=body["image"])["flagged"] is True
    assert api.rows("SELECT count(*) FROM note") == [(1,)]


def test_hostile_classes_are_refused_and_leave_everything_as_it_was(api: Api) -> None:
    before = api.get("/api/classes")
    for body in (
        {"class_id": 1, "name": "x" * 10_000},
        {"class_id": 1, "name": "nice\u202egnp"},
        {"class_id": 1, "description": "x" * 2_001},
        {"class_id": 1, "description": "good", "hotkey": "u"},
        {"class_id": 1, "description": "good", "place": 99},
        {"class_id": 1, "description": "good", "examples": ["0" * 16]},
        {"class_id": 99, "name": "ghost"},
        {"class_id": 1, "unknown": 1},
    ):
        assert api.refused("/api/classes/edit", **body)[0] in (400, 404, 422), body
    assert api.get("/api/classes") == before


def test_a_description_of_markup_stays_text_and_moves_the_version(api: Api) -> None:
    before = api.get("/api/state")["classes_version"]
    edited = api.post("/api/classes/edit", class_id=1, description=HOSTILE, hotkey="W")
    assert (edited["items"][0]["description"], edited["items"][0]["key"]) == (f"{MARKUP}gnp.exe", "w")
    assert api.get("/api/state")["classes_version"] == edited["version"] == before + 2
