"""Chromium without a window: an address in, pictures of the page out, when all of it is there."""

from __future__ import annotations

import base64
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService

from tailwise.files import write_whole

from .colours import few_colours

PATIENCE = 120.0  # seconds until a wait is a failure, on a machine that does much else
SETTLED = 0.6  # seconds after the last image has come
DESK = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 780, "deviceScaleFactor": 1.5, "mobile": True}
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage",
    "--disable-extensions", "--no-first-run", "--hide-scrollbars", "--lang=en-US", "--window-size=1280,900",
)  # fmt: skip
PICTURES_CAME = """
const seen = [...document.images].filter((one) => one.offsetParent !== null);
return document.fonts.status === 'loaded' && seen.every((one) => one.complete && one.naturalWidth > 0);
"""
HAS_INTER = """
const pen = document.createElement('canvas').getContext('2d');
const width = (font) => { pen.font = font; return pen.measureText('Leaves of the arboretum').width; };
return width('60px Inter, monospace') !== width('60px monospace');
"""


class Page:
    """The labelling page, as a person uses it."""

    def __init__(self, driver: Chrome, link: str) -> None:
        self._driver = driver
        self._link = link

    def open(self, name: str, view: str = "label", *, dark: bool = False, phone: bool = False) -> None:
        """Enter by the link as somebody whose name is known from an earlier visit."""
        self.leave()
        self._devtools("Emulation.setDeviceMetricsOverride", PHONE if phone else DESK)
        self._devtools("Emulation.setEmulatedMedia", {"features": _features(dark=dark)})
        source = f"localStorage.setItem('tailwise.annotator', {json.dumps(name)})"
        kept = self._devtools("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        self._driver.get(f"{self._link}#{view}")
        self._devtools("Page.removeScriptToEvaluateOnNewDocument", kept)
        self.until(lambda: self.run("return document.documentElement.dataset.ready"), "the page is ready")

    def leave(self) -> None:
        """Close the page; whoever was there gives images back."""
        self._driver.get("about:blank")

    def go(self, view: str) -> None:
        """To another view of the page."""
        self.run("location.hash = arguments[0]", view)
        self.until(lambda: self.run("return document.body.dataset.view") == view, f"the view {view}")

    def run(self, script: str, *values: Any) -> Any:  # noqa: ANN401 - whatever JavaScript has
        """The result of a script."""
        return self._driver.execute_script(script, *values)

    def wait_for(self, script: str, *values: Any) -> Any:  # noqa: ANN401 - whatever JavaScript has
        """What an asynchronous script gives to its last argument."""
        self._driver.set_script_timeout(PATIENCE)
        return self._driver.execute_async_script(script, *values)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        ActionChains(self._driver, duration=0).send_keys(*keys).perform()

    def click(self, selector: str) -> None:
        """Click the first element that fits, in one go: the page may just be drawing it anew."""
        script = "const one = document.querySelector(arguments[0]); one?.click(); return Boolean(one)"
        self.until(lambda: self.run(script, selector), selector)

    def until(self, question: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - whatever is asked for
        """The first true answer to a question that is asked again and again."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if answer := question():
                return answer
            time.sleep(0.05)
        raise TimeoutError(f"not within {PATIENCE:g} s: {what}")

    def picture(self, path: Path) -> None:
        """Store what is to be seen, when all images have come."""
        self.until(lambda: self.run(PICTURES_CAME), "all images")
        time.sleep(SETTLED)
        taken = self._devtools("Page.captureScreenshot", {"format": "png"})["data"]
        write_whole(path, few_colours(base64.b64decode(taken)))
        print(path)

    def _devtools(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = self._driver.execute_cdp_cmd(name, values)
        return told


@contextmanager
def browsing(link: str) -> Iterator[Page]:
    """A browser with a profile of its own."""
    with TemporaryDirectory(prefix="tailwise-profile-", ignore_cleanup_errors=True) as profile:
        driver = _start(profile)
        try:
            page = Page(driver, link)
            if not page.run(HAS_INTER):
                print("The page likes the font Inter, which is not installed (Debian: fonts-inter).", file=sys.stderr)
            yield page
        finally:
            driver.quit()


def _start(profile: str) -> Chrome:
    names = ("chromium", "chromium-browser", "google-chrome")
    binary = next((found for name in names if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        raise SystemExit("the pictures need Chromium and chromedriver; run `make browser`, or install both")
    options = ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return Chrome(options=options, service=ChromeService(driver))


def _features(*, dark: bool) -> list[dict[str, str]]:
    return [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
