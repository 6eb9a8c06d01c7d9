"""What a person sees before answering: the image itself, the likeliest classes, and where one was before a reload."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from PIL import Image
from selenium.webdriver.common.keys import Keys

from tailwise.campaign.images import list_images
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign

from .test_page_looks import emulate

if TYPE_CHECKING:
    from .conftest import Page, Site

MakeSite = Callable[..., Any]


@contextmanager
def slow_line(site: Site, slow: str, go: threading.Event) -> Iterator[str]:
    """The site through a proxy that holds back requests with `slow` in their address until `go`; gives its link."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if slow in self.path:
                go.wait(60)
            size = int(self.headers.get("Content-Length", 0))
            line = http.client.HTTPConnection("127.0.0.1", site.port)
            line.request(self.command, self.path, self.rfile.read(size), dict(self.headers))
            answer = line.getresponse()
            body = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            line.close()

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site.link.replace(f":{site.port}/", f":{server.server_port}/")
    finally:
        go.set()
        server.shutdown()
        server.server_close()


def test_an_image_that_is_not_painted_cannot_be_answered_but_skipped(page: Page, make_site: MakeSite) -> None:
    site, go = make_site(images=3, guessing=True), threading.Event()
    with slow_line(site, "size=1280", go) as link:
        direct, site.link = site.link, link
        page.open(site)
        waiting = "return document.querySelector('#stage > .photo')?.dataset.key"
        first = page.until(lambda: page.run(waiting), "an image on its way")
        small = "const e = document.querySelector('#stage .preview'); return !e.hidden && e.naturalWidth > 0"
        page.until(lambda: page.run(small), "the small copy meanwhile")
        page.wait_text("Loading", "#stage")
        page.press(Keys.ENTER, "1", "o")
        page.click("#classes button")
        page.click(".note.guess")
        assert page.shown() == ""
        assert page.run(waiting) == first
        page.press("s")
        second = page.until(lambda: page.run(waiting) != first and page.run(waiting), "skipped")
        page.press("1")
        page.wait_saved()
        assert [(image, kind) for image, _, kind, _ in site.events()] == [(first, "skip")]
        go.set()
        assert page.wait_shown() == second
        page.press("1")
        page.until(lambda: len(site.events()) == 2, "now it is answered")
        assert site.events()[-1][:3] == (second, "Ada", "label")
        site.link = direct


def test_after_a_reload_the_same_image_is_shown_and_every_answer_can_be_reached(
    page: Page, make_site: MakeSite
) -> None:
    site = make_site(images=70, classes=("cat", "dog"))
    page.open(site)
    order = [page.answer("1") for _ in range(58)]  # more than are asked for at once
    page.wait_saved()
    on_show = "return document.querySelector('#stage > .photo')?.dataset.key"
    next_one = page.wait_shown()
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.until(lambda: page.run(on_show) != next_one, "farther on")
    here = page.run(on_show)
    page.reload()
    assert page.wait_shown() == here
    seen = []
    for _ in range(66):
        page.press(Keys.ARROW_LEFT)
        seen.append(page.run(on_show))
        if seen[-1] == order[0]:
            break
    assert set(order) <= set(seen)
    page.reload()
    assert page.wait_shown() == order[0]  # also one that was looked back at


def test_a_tiny_image_is_smoothed_and_enlarged_at_most_eight_times(page: Page, make_site: MakeSite) -> None:
    emulate(page, 2560, 1400)
    page.open(make_site(images=2))
    page.wait_shown()
    assert page.run("return document.getElementById('stage').clientWidth") > 8 * 96
    size = page.run(
        "const e = document.querySelector('#stage > .photo'); const at = getComputedStyle(e);"
        "return [e.naturalWidth, e.naturalHeight, parseFloat(at.width), parseFloat(at.height), at.imageRendering]"
    )
    assert size == [96, 72, 8 * 96, 8 * 72, "auto"]


def test_zooming_in_loads_every_pixel_that_the_image_has(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=1)
    Image.effect_noise((3000, 1500), 60).convert("RGB").save(site.folder.parent / "images" / "001_0.jpg")
    site.stop()
    with Campaign.open(site.folder) as campaign:
        campaign.index()
        rows = list_images(campaign.ledger, usable=True)
        open_round(campaign.ledger, [Pick(rows[-1].id)], budget=1, strategy="typiclust")
    site.start()
    page.open(site)
    page.wait_shown()
    pixels = "return document.querySelector('#stage > .photo').naturalWidth"
    assert page.run(pixels) == 1280
    page.press("z")
    page.until(lambda: page.run(pixels) == 2048, "the larger copy")
    for _ in range(6):
        page.run(
            "document.getElementById('stage').dispatchEvent(new WheelEvent('wheel', { deltaY: -400, bubbles: true }))"
        )
    page.until(lambda: page.run(pixels) == 3000, "all pixels")


def test_brightness_and_contrast_stay_for_the_next_image_until_they_are_reset(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=3))
    look = "return getComputedStyle(document.querySelector('#stage > .photo')).filter"
    page.wait_shown()
    assert page.run(look) == "none"
    page.press("v")
    page.press(*[Keys.ARROW_RIGHT] * 4)  # the first slider has the focus
    page.until(lambda: page.run(look) == "brightness(1.2) contrast(1)", "brighter")
    page.press("1")
    page.until(lambda: page.shown() != "", "the next image")
    assert page.run(look) == "brightness(1.2) contrast(1)"
    page.reload()
    page.wait_shown()
    assert page.run(look) == "brightness(1.2) contrast(1)"
    page.press("v")
    page.click(".adjust button")
    page.until(lambda: page.run(look) == "none", "as it is")


def test_the_three_likeliest_classes_are_pinned_with_their_own_keys(page: Page, make_site: MakeSite) -> None:
    classes = [f"kind {number:02}" for number in range(44)]
    site = make_site(images=3, classes=classes, guessing=True)
    page.open(site)
    image = page.wait_shown()
    page.ask(
        "const { store } = await import('/static/js/state.js'); const { line } = store.get();"
        "const top = [[7, 0.5], [31, 0.3], [12, 0.1]].map(([class_id, confidence]) => ({ class_id, confidence }));"
        "store.set({ line: { ...line, items: line.items.map((item) => ({ ...item, prelabel: { ...top[0], top } })) } })"
    )
    page.wait_text("kind 30", "#likely")
    assert [" ".join(line.split()) for line in page.text("#likely").split("kind")[1:]] == [
        "06 50 % , key 7", "30 30 % ⇧2", "11 10 % , key shift 2",
    ]  # fmt: skip
    page.click("#likely [data-class='31']")
    page.until(lambda: site.labels() == {image: "kind 30"}, "answered by a pinned class")
    page.press("b")
    page.until(lambda: page.attribute("#likely", "hidden") is not None, "hidden with the suggestions")


def test_the_page_says_that_features_are_plain_until_the_note_is_dismissed(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=2))
    page.wait_text("28 % of the suggestions were right this way, and 88 % with a net", "#features-card")
    page.click("#features-card button")
    page.until(lambda: page.attribute("#features-card", "hidden") is not None, "dismissed")
    page.reload()
    assert page.attribute("#features-card", "hidden") is not None


def test_names_that_are_cut_never_look_the_same(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=2))
    shorten = (
        "const { shortName } = await import('/static/js/state.js');"
        "const classes = values[0].map((name, at) => ({ id: at + 1, name, retired: false }));"
        "return classes.map(({ id }) => shortName(classes, id, 10))"
    )
    names = ["northern owl of the woods", "northern owls of the woods", "northern newts in the woods", "cat"]
    assert page.ask(shorten, names) == ["…owl of", "…owls of", "…newts in", "cat"]
    names = ["northern-owl-of-the-woods", "northern-ape-of-the-woods", "the big owl of Ulm", "the owl of big Ulm"]
    assert page.ask(shorten, names) == ["norther… 1", "norther… 2", "the b…Ulm", "the o…Ulm"]
    places = [
        f"broad-leaved tree {kind} of the {place} form" for kind in ("oak", "elm") for place in ("far", "dry low")
    ]
    assert page.ask(shorten, places) == ["…oak far", "…oak…low", "…elm far", "…elm…low"]
    assert (
        page.ask(
            "const { shortName } = await import('/static/js/state.js');"
            "return shortName([{ id: 1, name: 'northern long-eared bat', retired: false }], 1, 13)"
        )
        == "northe…ed bat"
    )


def test_the_page_is_small_and_is_not_asked_for_twice(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=2)
    measure = (
        "return performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".filter((e) => !/\\/(api|image)\\//.test(e.name)).map((e) => [e.name, e.transferSize, e.encodedBodySize])"
    )
    page.open(site)
    page.wait_shown()
    first = page.run(measure)
    assert sum(size for _, _, size in first) <= 70_000
    page.driver.get(site.link.partition("?")[0] + "#label")
    page.reload()
    page.wait_shown()
    asked = [name for name, sent, _ in page.run(measure) if sent]
    assert len(asked) <= 1, asked  # the page itself; all its files are kept
