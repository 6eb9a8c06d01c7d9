"""Nothing is lost and nothing is doubled: the server killed, the network gone, the answer late, the token changed."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from PIL import Image

from tailwise.campaign.service import Campaign

if TYPE_CHECKING:
    from .conftest import Page, Site

MakeSite = Callable[..., Any]
NAMES = ("cat", "dog", "owl")


def label(page: Page, site: Site, count: int) -> dict[str, str]:
    """Answer some images rightly; gives what was said."""
    truth = site.truth()
    said = {}
    for _ in range(count):
        image = page.wait_shown()
        assert page.answer(str(truth[image] + 1)) == image
        said[image] = NAMES[truth[image]]
    return said


def open_images(page: Page) -> int:
    script = "const { store } = await import('/static/js/state.js');"
    return int(page.ask(f"{script} return store.get().line.items.filter((item) => !item.answers.length).length"))


def test_a_server_killed_in_the_middle_of_a_round_loses_and_doubles_nothing(
    page: Page, make_process_site: MakeSite
) -> None:
    site = make_process_site(images=16)
    page.open(site)
    said = label(page, site, 2)
    page.until(lambda: open_images(page) >= 7, "enough images are at hand")
    said |= label(page, site, 2)
    site.stop(signal.SIGKILL)  # with answers under way
    said |= label(page, site, 4)  # images that are loaded already
    page.until(lambda: page.saving() == "kept", "the answers are kept here")
    page.wait_text("The server is away", "#banner")
    site.start()
    page.wait_saved()
    said |= label(page, site, 8)
    page.wait_empty("complete")
    page.wait_saved()
    assert len(said) == 16
    assert site.labels() == said
    assert Counter(key for key, _, _, _ in site.events()) == dict.fromkeys(said, 1)


def test_answers_given_without_a_network_are_sent_when_it_is_back(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=8)
    page.open(site)
    page.wait_shown()
    page.offline(yes=True)
    said = label(page, site, 3)
    page.until(lambda: page.saving() == "kept", "the answers are kept here")
    assert "3" in page.text("#saving")
    assert site.events() == []
    page.offline(yes=False)
    page.reload()
    page.until(lambda: site.labels() == said, "all three are on the disk")
    # The page before the reload may have been faster; then the new one has nothing to save.
    page.until(lambda: page.saving() in ("saved", "ready"), "nothing waits")
    assert len(site.events()) == 3
    assert page.wait_shown() not in said


def test_answers_that_were_kept_are_sent_when_the_page_is_opened_again(page: Page, make_process_site: MakeSite) -> None:
    site = make_process_site(images=8)
    page.open(site)
    page.wait_shown()
    loaded = (
        "const { isDecoded, picture } = await import('/static/js/preload.js');"
        "const { store } = await import('/static/js/state.js');"
        "return store.get().line.items.slice(0, 6).every((item) => isDecoded(picture(item)))"
    )
    page.until(lambda: page.ask(loaded), "images are there before the server is away")
    page.until(lambda: open_images(page) >= 4, "enough images are at hand")
    site.stop(signal.SIGKILL)
    said = label(page, site, 3)
    page.until(lambda: page.saving() == "kept", "the answers are kept here")
    page.driver.get("about:blank")
    site.start()
    assert site.events() == []
    page.open(site)
    page.wait_saved()
    assert site.labels() == said
    assert len(site.events()) == 3
    assert page.wait_shown() not in said


def test_an_undo_without_a_network_undoes_what_was_not_yet_sent(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.wait_shown()
    page.offline(yes=True)
    said = label(page, site, 2)
    last = list(said)[-1]
    page.press("u")
    page.until(lambda: page.shown() == last, "the last image is back")
    page.offline(yes=False)
    page.until(lambda: len(site.events()) == 3, "two answers and the undo are on the disk")
    del said[last]
    assert site.labels() == said
    page.wait_saved()


def test_a_lost_reply_does_not_double_the_answer(page: Page, make_site: MakeSite) -> None:
    """The server commits, but its reply never arrives: the page sends the same key again."""
    site = make_site(images=3)
    page.open(site)
    image = page.wait_shown()
    page.run(
        "const real = window.fetch; window.lost = 0;"
        "window.fetch = async (path, options) => { const reply = await real(path, options);"
        "  if (String(path).endsWith('/api/answers') && window.lost++ < 2) throw new TypeError('cut');"
        "  return reply; };"
    )
    page.press("2")
    page.wait_saved()
    assert page.run("return window.lost") == 3
    assert site.events() == [(image, "Ada", "label", "dog")]


def test_saved_is_not_shown_before_the_commit(page: Page, make_process_site: MakeSite) -> None:
    site = make_process_site(images=20)
    page.open(site)
    label(page, site, 1)
    page.wait_saved()
    time.sleep(0.5)  # the server is idle: it is not to be stopped in the middle of a write, which locks the file
    site.send(signal.SIGSTOP)
    image = page.answer("2")
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        assert page.saving() in ("saving", "kept")
        assert "Saved" not in page.text("#saving")
    assert image not in site.labels()
    site.send(signal.SIGCONT)
    page.wait_saved()
    assert site.labels()[image] == "dog"
    assert len(site.events()) == 2


def test_an_answer_that_the_server_refuses_is_kept_and_said(page: Page, make_site: MakeSite) -> None:
    """Answers to a class that is unknown, as after another copy of the ledger was put in place."""
    site = make_site(images=4)
    page.open(site)
    page.wait_shown()
    page.ask(
        "const { store } = await import('/static/js/state.js'); const { server } = store.get();"
        "store.set({ server: { ...server, classes: [{ id: 99, name: 'gone', retired: false }] } });"
    )
    page.press("1")
    page.until(lambda: page.saving() == "refused", "it says so")
    page.wait_text("1 answer was refused", "#banner")
    page.reload()
    page.wait_text("1 answer was refused", "#banner")
    page.click("#banner .link:last-child")
    page.until(lambda: page.saving() == "ready", "discarded")
    assert site.events() == []
    page.reload()
    assert page.saving() == "ready"


def test_one_refused_answer_does_not_hold_up_the_others(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.wait_shown()
    page.offline(yes=True)
    said = label(page, site, 2)
    page.ask(
        "const { store } = await import('/static/js/state.js'); const { campaign } = store.get().server;"
        "const opened = indexedDB.open(`tailwise-${campaign.id}`);"
        "await new Promise((done) => { opened.onsuccess = done; });"
        "const ops = opened.result.transaction('ops', 'readwrite').objectStore('ops');"
        "const all = ops.getAll(); await new Promise((done) => { all.onsuccess = done; });"
        "ops.put({ ...all.result[0], image: 'no image' });"
    )
    page.offline(yes=False)
    page.until(lambda: page.saving() == "refused", "one is refused")
    _, second = said
    assert site.labels() == {second: said[second]}


def test_a_new_token_is_asked_for_and_the_answers_are_kept(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.wait_shown()
    site.stop()
    said = label(page, site, 1)
    (site.folder / "token").unlink()
    site.start()
    page.wait_empty("denied")
    assert site.events() == []
    page.find(".token input").send_keys(site.link)
    page.click(".token button")
    page.until(lambda: site.labels() == said, "what was kept is sent")
    page.ready()
    assert page.wait_shown() not in said


def test_a_browser_without_a_disk_warns_and_still_sends(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    source = {"source": "Object.defineProperty(window, 'indexedDB', { value: undefined })"}
    kept = page.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    page.open(site)
    page.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", kept)
    said = label(page, site, 1)
    page.wait_saved()
    assert site.labels() == said
    page.offline(yes=True)
    label(page, site, 1)
    page.wait_text("Do not close this page", "#banner")
    page.offline(yes=False)
    page.wait_saved()
    assert len(site.labels()) == 2


PIXEL = """
const photo = document.querySelector('#stage > .photo');
if (!photo?.complete || !photo.naturalWidth) return null;
const paper = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d');
paper.drawImage(photo, 2, 2, 1, 1, 0, 0, 1, 1);
return [...paper.getImageData(0, 0, 1, 1).data].slice(0, 3);
"""


def replace_image(site: Site, key: str) -> None:
    """Other bytes, all green, under the same name, while no server runs."""
    ((path,),) = site.rows("SELECT path FROM image WHERE key = ?", key)
    Image.new("RGB", (96, 72), (0, 250, 0)).save(site.folder.parent / "images" / path)
    with Campaign.open(site.folder) as campaign:
        assert campaign.index().changed == (path,)


def test_an_image_that_got_other_bytes_is_shown_with_these(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    image = page.wait_shown()
    before = page.until(lambda: page.run(PIXEL), "the image is loaded")
    assert before[1] < 200
    site.stop()
    replace_image(site, image)
    site.start()
    page.until(lambda: (page.run(PIXEL) or before)[1] > 200, "the page that was open shows the new bytes")
    page.reload()
    assert page.wait_shown() == image
    assert page.until(lambda: page.run(PIXEL), "the image is loaded")[1] > 200
    page.press("1")
    page.until(lambda: site.labels() == {image: "cat"}, "and they are labelled")


def test_an_answer_that_waited_is_not_given_to_other_bytes(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=3)
    page.open(site)
    page.wait_shown()
    site.stop()
    image = page.answer("1")
    replace_image(site, image)
    site.start()
    page.wait_text("1 answer was refused", "#banner")
    page.wait_text("look again", "#banner")
    assert site.events() == []


REFUSED_WHILE_TRYING_AGAIN = """
const { openDisk } = await import('/static/js/disk.js');
const { makeOutbox } = await import('/static/js/outbox.js');
const disk = await openDisk(`test-${crypto.randomUUID()}`);
const op = (key) => ({ type: 'answer', key, annotator: 'Ada', tab: 'a', image: key, kind: 'skip' });
const refusal = (key) => ({ op: { ...op(key), seq: 1000 }, message: 'no' });
await disk.refuse([refusal('first')]);
if (values[0] === 'forget') await disk.refuse([refusal('unseen')]);
// Another tab's answer is refused between any two steps of the one who tries again.
let late = 0;
const busy = new Proxy(disk, { get: (target, name) => async (...values) => {
  const result = await target[name](...values);
  if (late < 3 && name !== 'all') await disk.refuse([refusal(`late ${late++}`)]);
  return result;
} });
const sent = [];
const post = async (path, { answers }) => {
  sent.push(...answers.map((one) => one.key));
  return { results: answers.map(({ key }) => ({ key, saved: true })) };
};
let done;
const quiet = new Promise((resolve) => { done = resolve; });
const heard = { saved: () => {}, refused: () => {}, changed: (waiting) => waiting || done() };
const outbox = makeOutbox({ disk: busy, post, tab: 'a', ...heard });
await outbox[values[0]](...(values[0] === 'forget' ? [[refusal('first')]] : []));
if (values[0] === 'retry') await quiet;
const left = (await disk.refused()).map(({ op: { key } }) => key);
return { sent, left, late };
"""


def test_a_refusal_that_arrives_while_others_are_tried_again_is_kept(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=1))
    found = page.ask(REFUSED_WHILE_TRYING_AGAIN, "retry")
    assert found["late"] > 0
    assert sorted([*found["sent"], *found["left"]]) == ["first", *(f"late {n}" for n in range(found["late"]))]
    assert "first" in found["sent"]


def test_a_refusal_that_nobody_has_seen_is_not_discarded_with_others(page: Page, make_site: MakeSite) -> None:
    page.open(make_site(images=1))
    found = page.ask(REFUSED_WHILE_TRYING_AGAIN, "forget")
    assert found["left"] == ["unseen", *(f"late {n}" for n in range(found["late"]))]


def test_what_was_refused_is_sent_again_once_and_the_page_says_what_is_left(page: Page, make_site: MakeSite) -> None:
    """Two answers are refused; one of them would be taken now, the other is refused again."""
    site = make_site(images=4)
    page.open(site)
    page.until(lambda: open_images(page) >= 4, "the images are at hand")
    page.run(
        "const real = window.fetch; window.refusing = true;"
        "window.fetch = async (path, options) => {"
        "  if (!String(path).endsWith('/api/answers')) return real(path, options);"
        "  const { answers, annotator } = JSON.parse(options.body);"
        "  const bad = (one) => window.refusing || one.class_id === 3;"
        "  const error = { code: 'x', message: 'no' };"
        "  const no = answers.filter(bad).map(({ key }) => ({ key, saved: false, error }));"
        "  const good = answers.filter((one) => !bad(one));"
        "  const body = JSON.stringify({ annotator, answers: good });"
        "  const yes = good.length ? (await (await real(path, { ...options, body })).json()).results : [];"
        "  return new Response(JSON.stringify({ results: [...no, ...yes] }));"
        "};"
    )
    first = page.answer("1")
    page.answer("3")
    page.wait_text("2 answers were refused", "#banner")
    page.run("window.refusing = false")
    page.click("#banner .link:first-of-type")
    page.wait_text("1 answer was refused", "#banner")
    assert site.labels() == {first: "cat"}
    page.reload()
    page.wait_text("1 answer was refused", "#banner")
    assert len(site.events()) == 1


CLOSE_DATABASE = """
const { store } = await import('/static/js/state.js');
const gone = indexedDB.deleteDatabase(`tailwise-${store.get().server.campaign.id}`); // as when site data are cleared
await new Promise((resolve, reject) => { gone.onsuccess = resolve; gone.onerror = reject; });
"""
BLOCK_DATABASE = """
const { store } = await import('/static/js/state.js');
const opened = indexedDB.open(`tailwise-${store.get().server.campaign.id}`);
await new Promise((resolve) => { opened.onsuccess = resolve; });
const ops = opened.result.transaction('ops', 'readwrite').objectStore('ops');
const again = () => { ops.count().onsuccess = again; }; // a transaction that never ends
again();
"""
HURRY = """
const later = window.setTimeout; // the patience with the database, 5 s, is over in half a second
window.setTimeout = (what, wait, ...more) => later(what, wait === 5_000 ? 500 : wait, ...more);
"""


def test_answers_are_kept_and_saved_after_the_browser_has_closed_the_database(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.until(lambda: open_images(page) >= 4, "the images are at hand")
    page.ask(CLOSE_DATABASE)
    said = label(page, site, 1)
    page.wait_saved()
    page.ask(CLOSE_DATABASE)
    page.offline(yes=True)
    said |= label(page, site, 1)
    page.until(lambda: page.saving() == "kept", "the answer is kept here")
    page.offline(yes=False)
    page.reload()
    page.until(lambda: site.labels() == said, "both are on the server's disk")


def test_a_transaction_that_never_ends_does_not_stop_answers_from_being_saved(page: Page, make_site: MakeSite) -> None:
    site = make_site(images=4)
    page.open(site)
    page.until(lambda: open_images(page) >= 4, "the images are at hand")
    page.ask(BLOCK_DATABASE)
    page.run(HURRY)
    said = label(page, site, 1)
    page.wait_saved()
    assert site.labels() == said
    assert len(site.events()) == 1


def test_a_page_without_images_says_that_the_server_does_not_answer(page: Page, make_site: MakeSite) -> None:
    """Also while answers wait: "Saving …" would promise what nobody can keep."""
    site = make_site(images=2)
    page.open(site)
    page.until(lambda: open_images(page) >= 2, "the images are at hand")
    site.stop()
    said = label(page, site, 2)
    page.wait_empty("away")
    page.wait_text("2 answers are kept in this browser", "#banner")
    site.start()
    page.wait_empty("complete")
    assert site.labels() == said
