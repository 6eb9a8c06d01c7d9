"""`python -m benchmarks.screens [--out docs/images] [--seed N]`: make the pictures of the labelling page again."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.labeller import Line, open_next_round
from tailwise.web.serve import Options, running

from .browser import Page, browsing
from .campaign import Show, answer, make_show, odd_class, settle_one, skip_one

OUT = Path(__file__).parents[2] / "docs" / "images"
THINKING = (2.2, 4.4)  # seconds that a person looks at a leaf, so that the pace on the page is one of people
FEWEST, MOST = 5, 14  # answers of one person; from five on the page knows the pace
LARGE = 120  # images of the fourth round, for a grid that is full
TILES_SEEN = 30  # of a grid, without scrolling
SHOWN = "return document.querySelector('.label-view:not([hidden]) #stage > .photo')?.dataset.key ?? ''"
SAVING = "return document.getElementById('saving').dataset.state"
TEXT = "return document.getElementById(arguments[0]).innerText"


def main() -> int:
    """Draw, label, serve and look."""
    given = _parse()
    given.out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="tailwise-screens-") as home:
        print("Drawing leaves and labelling two rounds …", file=sys.stderr, flush=True)
        show = make_show(Path(home), given.seed)
        with running(show.folder, Options(port=0)) as serving, browsing(serving.link) as page:
            Tour(page, lambda: Line(serving.url, serving.token), show, given.out).take_all()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.screens", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help="the folder of the pictures; docs/images")
    parser.add_argument("--seed", type=int, default=0, help="of the leaves")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Tour:
    """All pictures, in the order in which a round goes."""

    page: Page
    connect: Callable[[], Line]  # anew for each deed: a server hangs up on those who are silent for long
    show: Show
    out: Path

    def take_all(self) -> None:
        """From the third round, which is half done, to the fourth."""
        with self.connect() as line:
            settle_one(line, self.show, "Ana", "Linden")
            answer(line, self.show, "Mei", 9)
            answer(line, self.show, "Tomás", 6)
        self.label("label", "Ana", ("Maple", "Oak"))
        self.conflicts()
        self.label("label-dark", "Tomás", ("Ginkgo", "Aspen"), dark=True)
        self.label("phone", "Mei", ("Clover", "Holly", "Ivy", "Ginkgo"), phone=True)
        self.round_complete()
        self.rounds()
        self.views()
        self.grid()

    def grid(self) -> None:
        """A larger round; of the proposals for a class one that is wrong is crossed out, others get their class."""
        with self.connect() as line:
            open_next_round(line, budget=LARGE)
            proposed, seen = odd_class(line, self.show, "Ana", TILES_SEEN)
        self.page.open("Ana", "grid")
        chip = f".chip[data-class='{self.show.class_ids[proposed]}']"
        self.page.click(f"#grid:not([aria-busy]) {chip}")
        loaded = f"return document.querySelector(\"#grid:not([aria-busy]) {chip}[aria-pressed='true']\") !== null"
        self.page.until(lambda: self.page.run(loaded), f"the grid of {proposed}")
        wrong = [key for key in seen if self.show.kinds[key] != proposed]
        right = [key for key in seen if key not in wrong]
        crossed_out = wrong.pop(1) if len(wrong) > 1 else right[-1]
        self.page.click(f".tile[data-key='{crossed_out}']")
        for key in wrong:
            self.page.click(f".tile[data-key='{key}']")
            self.page.press(self._digit(key))
        self._picture("grid")

    def label(self, name: str, person: str, kinds: Sequence[str], *, dark: bool = False, phone: bool = False) -> None:
        """Somebody labels with the keys until a leaf that looks well is on show."""
        self.page.open(person, dark=dark, phone=phone)
        self.page.run("document.querySelector('#features-card:not([hidden]) button')?.click()")  # read, and dismissed
        shown = self._shown("")
        for done in range(MOST):
            if done >= FEWEST and self._guessed_right(shown, kinds):
                break
            time.sleep(random.uniform(*THINKING))
            self.page.press(self._digit(shown))
            shown = self._shown(shown)
        self.page.until(lambda: self.page.run(SAVING) == "saved", "saved")
        self._picture(name)

    def conflicts(self) -> None:
        """As the person who labelled last."""
        self.page.go("conflicts")
        self._wait_text("Whose answer is right?", "conflicts")
        self._picture("conflicts")

    def round_complete(self) -> None:
        """Everybody answers what is left, but for one image."""
        self.page.leave()  # and nobody holds images any more
        with self.connect() as line:
            skip_one(line, ("Mei", "Ana"))
            while answer(line, self.show, "Mei", 4) + answer(line, self.show, "Ana", 4):
                pass
        self.page.open("Ana")
        self._wait_text("is complete", "empty")
        self._picture("round-complete")

    def rounds(self) -> None:
        """What was expected of each round, and what came."""
        self.page.open("Tomás", "rounds", dark=True)
        self._wait_text("Round 1", "rounds")
        self._picture("rounds")

    def views(self) -> None:
        """The views around labelling; what is computed in the background is waited for."""
        self.view("gallery")
        self.page.click("#gallery .hunt-offer button[data-hunt]")
        self._wait_ready("gallery .hunt")
        self._picture("hunt")
        self.page.open("Ana", "map")
        self.page.click("#map button[data-act=draw]")
        self._wait_ready("map")
        self._picture("map")
        self.view("errors", dark=True)
        self.view("duplicates")
        self.page.open("Ana", "dashboard")
        measured = "return document.querySelector('#dashboard').dataset.ready === 'measured'"
        self.page.until(lambda: self.page.run(measured), "the model is measured")
        self._picture("dashboard")
        self.view("classes", "classes-view")

    def view(self, name: str, place: str = "", *, dark: bool = False) -> None:
        """A view that is ready by itself."""
        self.page.open("Ana", name, dark=dark)
        self._wait_ready(place or name)
        again = "return /(checking|looking) again/.test(document.getElementById(arguments[0]).innerText)"
        self.page.until(lambda: not self.page.run(again, place or name), f"{name} is up to date")
        self._picture(name)

    def _wait_ready(self, place: str) -> None:
        """Until a part of the page shows at least one thing."""
        script = "return Number(document.querySelector(arguments[0])?.dataset.ready) > 0"
        self.page.until(lambda: self.page.run(script, f"#{place}"), f"{place} is ready")

    def _shown(self, before: str) -> str:
        """The key of the image on show, when it is another one than before."""
        return str(self.page.until(lambda: (now := self.page.run(SHOWN)) != before and now, "the next image"))

    def _guessed_right(self, image: str, kinds: Sequence[str]) -> bool:
        """Whether an image is of one of these kinds, and the model says so."""
        kind = self.show.kinds[image]
        return kind in kinds and kind in self.page.run(TEXT, "stage")

    def _digit(self, image: str) -> str:
        """The key to press for what an image is."""
        return str((list(self.show.class_ids).index(self.show.kinds[image]) + 1) % 10)

    def _wait_text(self, text: str, view: str) -> None:
        self.page.until(lambda: text in self.page.run(TEXT, view), f"{view} says {text!r}")

    def _picture(self, name: str) -> None:
        self.page.picture(self.out / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
