"""A real campaign, a real server in a process of its own, and real browsers that look at its page.

Every server has its own port, so that one browser can serve all tests: what it stores belongs to host and port.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.remote.webelement import WebElement

from tailwise.campaign.classes import list_classes
from tailwise.campaign.images import list_images
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign
from tailwise.web.serve import Options, Serving, running

TEN_AND_MANY = [pytest.param(10, marks=pytest.mark.long), 44]  # classes of a campaign; more are harder to show
PATIENCE = 120.0  # seconds until a wait is a failure, on a machine that does much else
REPORT = """
const { store } = await import('/static/js/state.js');
const { openDisk } = await import('/static/js/disk.js');
const { line, server, annotator, view, begun, dry, elsewhere, waiting, saved, seen, link, trouble } = store.get();
const disk = server && await openDisk(server.campaign.id);
const shown = document.querySelector('#stage > .photo')?.dataset.key;
const why = document.querySelector('#empty:not([hidden]) .message')?.dataset.why;
const items = line.items.map(({ key, answers }) => [key, ...answers.map((one) => `${one.key} ${one.saved}`)].join(' '));
return JSON.stringify({
  annotator, view, shown, why, waiting, saved, seen, link, trouble, begun, dry, elsewhere, round: server?.round,
  hidden: document.hidden, items, cursor: line.cursor, outbox: await disk?.all(), refused: await disk?.refused(),
});
"""
SERVE = (
    "import sys\n"
    "from tailwise.web.serve import Options, run\n"
    "run(sys.argv[1], Options(port=int(sys.argv[2])), lambda up: print(up.link, flush=True))\n"
)


def until(question: Callable[[], Any], what: str | Callable[[], str], patience: float = PATIENCE) -> Any:  # noqa: ANN401 - whatever is asked for
    """The first true answer to a question that is asked again and again; `what` may say how it is at the end."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(0.03)
    raise AssertionError(f"not within {patience:g} s: {what if isinstance(what, str) else what()}")


@dataclass
class Site:
    """A campaign and its server, in a thread of this process."""

    folder: Path
    port: int
    link: str = ""
    annotator_link: str = ""
    _server: AbstractContextManager[Serving] | None = None
    _truth: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        self._server = running(self.folder, Options(port=self.port))
        serving = self._server.__enter__()
        self.link, self.annotator_link = serving.link, serving.annotator_link or ""

    def stop(self) -> None:
        if self._server is not None:
            self._server.__exit__(None, None, None)
            self._server = None

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Asked of the file itself, beside the server."""
        with closing(sqlite3.connect(f"file:{self.folder}/campaign.sqlite?mode=ro", uri=True, timeout=5)) as file:
            return [tuple(row) for row in file.execute(sql, values)]

    def labels(self) -> dict[str, str]:
        """The decided class by image key."""
        return dict(
            self.rows(
                "SELECT i.key, c.name FROM current_label AS l JOIN image AS i ON i.id = l.image_id "
                "JOIN class AS c ON c.id = l.class_id"
            )
        )

    def events(self) -> list[tuple[Any, ...]]:
        """(image key, annotator, kind, class name) in the order in which they came."""
        return self.rows(
            "SELECT i.key, e.annotator, e.kind, c.name FROM event AS e JOIN image AS i ON i.id = e.image_id "
            "LEFT JOIN class AS c ON c.id = e.class_id ORDER BY e.id"
        )

    def truth(self) -> dict[str, int]:
        """The place of the true class by image key, from the file's name; known also while no server can be asked."""
        if not self._truth:
            rows = self.rows("SELECT key, path FROM image")
            self._truth = {key: int(Path(path).stem.split("_")[1]) for key, path in rows}
        return self._truth


@dataclass
class ProcessSite(Site):
    """A campaign whose server is a process of its own, which can be killed or held."""

    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-c", SERVE, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().strip()
        assert self.link, "the server did not start"

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
            self.process.wait(PATIENCE)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


def draw_images(folder: Path, count: int, classes: int) -> None:
    """Small pictures that all differ; the name says the number and the class."""
    folder.mkdir()
    for number in range(count):
        picture = Image.new("RGB", (96, 72), (40 + 60 * (number % classes) % 200, 60 + 7 * number % 180, 120))
        picture.paste((250, 250, 250), (number % 80, 10, number % 80 + 12, 30 + number % 30))
        picture.save(folder / f"{number:03}_{number % classes}.png")


@dataclass(frozen=True)
class Plan:
    """What a campaign of a test looks like."""

    images: int = 6
    classes: Sequence[str] = ("cat", "dog", "owl")
    chosen: int | None = None  # images of the first round; None: all, 0: no round
    wrong: Sequence[int] = ()  # images that the model takes for the next class
    guessing: bool = False  # whether there are pre-labels
    settings: dict[str, Any] = field(default_factory=dict)


def make_campaign(folder: Path, plan: Plan) -> None:
    """A campaign on fresh images, with one round that was chosen by hand, in the order of the files."""
    draw_images(folder / "images", plan.images, len(plan.classes))
    settings = {"name": "Birds", "backbone": "simple", **plan.settings}
    with Campaign.create(folder / "campaign", folder / "images", plan.classes, **settings) as campaign:
        rows = sorted(list_images(campaign.ledger, usable=True), key=lambda row: row.path)
        ids = [one.id for one in list_classes(campaign.ledger)]
        chosen = rows[: plan.images if plan.chosen is None else plan.chosen]
        picks = []
        for number, row in enumerate(chosen):
            place = (number + (number in plan.wrong)) % len(ids)
            guess = (ids[place], 0.9 - 0.01 * number) if plan.guessing else (None, None)
            picks.append(Pick(row.id, *guess, wanted=campaign.settings.overlap))
        if picks:
            open_round(campaign.ledger, picks, budget=len(picks), strategy="typiclust")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Makes campaigns, each with a running server; all are stopped at the end."""
    sites: list[Site] = []

    def make(kind: type[Site] = Site, **plan: Any) -> Site:  # noqa: ANN401 - the fields of Plan
        home = tmp_path / str(len(sites))
        home.mkdir()
        make_campaign(home, Plan(**plan))
        site = kind(home / "campaign", free_port())
        sites.append(site)
        site.start()
        return site

    yield make
    for site in sites:
        site.stop()


@pytest.fixture
def make_process_site(make_site: Callable[..., Site]) -> Callable[..., Site]:
    """Like make_site, for tests that kill the server."""
    return partial(make_site, ProcessSite)


class Page:
    """The page in one browser, as a person uses it."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, site: Site, name: str = "Ada", view: str = "label", *, annotator: bool = False) -> Page:
        """Enter by the owner's link or by the annotators'; the name is known from an earlier visit."""
        source = f"localStorage.setItem('tailwise.annotator', {json.dumps(name)})"
        kept = self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        self.driver.get(f"{site.annotator_link if annotator else site.link}#{view}")
        self.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", kept)
        return self.ready()

    def until(self, question: Callable[[], Any], what: str | Callable[[], str], patience: float = PATIENCE) -> Any:  # noqa: ANN401
        """Like the function; a failure reports the state of the page at its end."""

        def report() -> str:
            return f"{what if isinstance(what, str) else what()}; the page: {self.report()}"

        return until(question, report, patience)

    def report(self) -> str:
        """The page's state and outbox, and what the browser has logged."""
        try:
            return f"{self.ask(REPORT)} {self.driver.get_log('browser')[-10:]}"
        except (WebDriverException, AssertionError) as error:
            return f"cannot be asked: {error}"

    def offline(self, *, yes: bool) -> None:
        offline(self.driver, yes=yes)

    def ready(self) -> Page:
        script = "return document.documentElement.dataset.ready"
        self.until(lambda: self.run(script), lambda: f"the page is ready: {self.text('body')[:200]!r}")
        return self

    def reload(self) -> Page:
        self.driver.refresh()
        return self.ready()

    def run(self, script: str, *values: Any) -> Any:  # noqa: ANN401 - whatever JavaScript has
        return self.driver.execute_script(script, *values)

    def ask(self, script: str, *values: Any) -> Any:  # noqa: ANN401
        """The result of an asynchronous function's body; it imports the modules that the page has loaded."""
        main = self.run("return document.querySelector('script[type=module]')?.getAttribute('src') ?? ''")
        script = script.replace("/static/js/", main.removesuffix("main.js") or "/static/js/")
        wrapped = (
            "const done = arguments[arguments.length - 1];"
            f"(async (...values) => {{ {script} }})(...arguments)"
            ".then((value) => done({ value }), (error) => done({ error: String(error) }));"
        )
        answer = self.driver.execute_async_script(wrapped, *values)
        assert "error" not in answer, answer
        return answer.get("value")

    def press(self, *keys: str) -> None:
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def press_with(self, held: str, key: str) -> None:
        ActionChains(self.driver, duration=0).key_down(held).send_keys(key).key_up(held).perform()

    def find(self, selector: str) -> WebElement:
        return self.until(lambda: self.all(selector), f"the page has {selector}")[0]

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def click(self, selector: str) -> None:
        """Press what is there now; the page may just be drawing it anew."""

        def pressed() -> bool:
            try:
                self.find(selector).click()
            except StaleElementReferenceException:
                return False
            return True

        self.until(pressed, f"{selector} can be clicked")

    def attribute(self, selector: str, name: str) -> str | None:
        """Of the first element that fits, None where it has none."""
        self.find(selector)
        value = self.run("return document.querySelector(arguments[0])?.getAttribute(arguments[1])", selector, name)
        return None if value is None else str(value)

    def text(self, selector: str) -> str:
        return str(self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector))

    def shown(self) -> str:
        """The key of the image that can be seen, '' where there is none."""
        photo = ".label-view:not([hidden]) #stage > .photo[data-painted]"
        return str(self.run("return document.querySelector(arguments[0])?.dataset.key ?? ''", photo))

    def wait_shown(self, *, other_than: str = "") -> str:
        def other() -> str:
            shown = self.shown()
            return "" if shown == other_than else shown

        return str(self.until(other, f"an image other than {other_than!r} is shown"))

    def saving(self) -> str:
        """What the word in the corner says, as the page names it."""
        return str(self.run("return document.getElementById('saving').dataset.state"))

    def wait_saved(self) -> None:
        self.until(lambda: self.saving() == "saved", lambda: f"saved, but it is {self.saving()}")

    def wait_empty(self, why: str) -> None:
        script = "return document.querySelector('#empty:not([hidden]) .message')?.dataset.why ?? ''"
        self.until(lambda: self.run(script) == why, lambda: f"the page says {why!r}, not {self.run(script)!r}")

    def wait_text(self, text: str, selector: str = "body") -> None:
        def said() -> str:
            return " ".join(self.text(selector).split())

        self.until(lambda: text in said(), lambda: f"{selector} says {text!r}, but: {said()[:300]!r}")

    def answer(self, key: str) -> str:
        """Press a key at the image on show, and give the image that was answered."""
        image = self.wait_shown()
        self.press(key)
        self.until(lambda: self.shown() != image, f"the page goes on after {key!r}")
        return image

    def trouble(self) -> list[str]:
        """What the browser complained about: faults of scripts, and what the security policy stopped."""
        entries = self.driver.get_log("browser")
        return [
            e["message"] for e in entries if e["level"] == "SEVERE" and "Failed to load resource" not in e["message"]
        ]


def new_browser(font: int = 16) -> Chrome:
    """Chromium with a fresh profile; `font` is the default size of text, in pixels."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    assert binary, "the tests of the page need Chromium; run `make browser`, or install Debian's chromium"
    assert driver, "the tests of the page need chromedriver; run `make browser`, or install Debian's chromium-driver"
    options = ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
        "--window-size=1280,820", "--disable-extensions", "--no-first-run",
    ):  # fmt: skip
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"webkit.webprefs.default_font_size": font})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = Chrome(options=options, service=ChromeService(driver))
    browser.set_script_timeout(PATIENCE)
    return browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    driver = new_browser()
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def other_browser() -> Iterator[Chrome]:
    driver = new_browser()
    yield driver
    driver.quit()


def rest(driver: Chrome) -> None:
    """Back to how it was: one empty tab, the usual size."""
    for handle in driver.window_handles[1:]:
        driver.switch_to.window(handle)
        driver.close()
    driver.switch_to.window(driver.window_handles[0])
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    offline(driver, yes=False)
    driver.get("about:blank")
    driver.get_log("browser")


def offline(driver: Chrome, *, yes: bool) -> None:
    """Cut the browser off from every network, this machine included."""
    line = {"offline": yes, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    driver.execute_cdp_cmd("Network.enable", {})  # or pages are told that they are offline, and are not
    driver.execute_cdp_cmd("Network.emulateNetworkConditions", line)


@pytest.fixture
def page(browser: Chrome) -> Iterator[Page]:
    """The page in a browser; whatever a test does, no script may have failed."""
    page = Page(browser)
    yield page
    trouble = page.trouble()
    rest(browser)
    assert trouble == []


@pytest.fixture
def other_page(other_browser: Chrome) -> Iterator[Page]:
    """The page in another person's browser."""
    page = Page(other_browser)
    yield page
    trouble = page.trouble()
    rest(other_browser)
    assert trouble == []
