"""The report of a campaign: one whole page that needs nothing else, whose numbers are those of the ledger."""

from __future__ import annotations

import csv
import hashlib
import re
import uuid
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.classes import add_classes, retire_class
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import list_rounds, round_picks
from tailwise.campaign.state import write_settings
from tailwise.learners.features import FeatureCache
from tailwise.report.campaign_figures import (
    DARK,
    LIGHT,
    campaign_figure_specs,
    few,
    name_classes,
    new_page,
    shades_of,
    shown_names,
)
from tailwise.report.campaign_page import write_campaign_report
from tailwise.report.campaign_summary import CampaignSummary, format_time, read_summary

pytestmark = pytest.mark.usefixtures("quick_figures")

VOID = {"meta", "img", "br", "source"}
AT = 1_800_000_000_000_000


class Checker(HTMLParser):
    """Every tag is closed in its order; addresses, ids and text are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(path: Path) -> Checker:
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    assert checker.open == []
    return checker


class Gallery:
    """A campaign of images that were never files: their features are in its cache."""

    def __init__(self, home: Path, names: Sequence[str], images: int = 240) -> None:
        self.ledger, rng = Ledger.create(home), np.random.default_rng(0)
        add_classes(self.ledger, names)
        write_settings(self.ledger, backbone="simple", name="Birds & <b>bees</b>")
        self.truth = rng.integers(max(len(names), 1), size=images) + 1
        keys = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(images)]
        centres = rng.normal(size=(len(names) + 2, 12)) * 1.2
        features = centres[self.truth] + rng.normal(size=(images, 12))
        with self.ledger.writing() as connection:
            connection.execute("INSERT INTO folder (id, path) VALUES (1, ?)", (str(home),))
            connection.executemany(
                "INSERT INTO image (key, folder_id, path, sha256, bytes, width, height, orientation, added_at) "
                "VALUES (?, 1, ?, ?, 9, 8, 8, 1, 0)",
                [(f"{number:016x}", f"{number}.png", key) for number, key in enumerate(keys)],
            )
        folder = home / "features" / "simple-1"
        FeatureCache(folder).add([bytes.fromhex(key)[:16] for key in keys], features.astype(np.float32))

    def say(self, images: Sequence[int], annotator: str = "ann", cls: int | None = None) -> None:
        answers = [
            Answer(uuid.uuid4().hex, image, annotator, "label", cls or int(self.truth[image - 1]), at=AT, seconds=2.5)
            for image in images
        ]
        record(self.ledger, answers)

    def live(self, rounds: int, budget: int = 20) -> None:
        for _ in range(rounds):
            made = next_round(self.ledger, RoundOptions(budget))
            picks = [pick.image for pick in made.picks]
            self.say(picks)
            self.say(picks[::3], "böb <script>")

    def summary(self) -> CampaignSummary:
        return read_summary(self.ledger, at=AT)


@pytest.fixture
def gallery(tmp_path: Path) -> Iterator[Gallery]:
    made = Gallery(tmp_path / "campaign", ["owl", "kite", "<i>wren</i>", "never seen"])
    made.truth[made.truth == 4] = 1
    yield made
    made.ledger.close()


def test_the_page_is_whole_and_needs_nothing_else(gallery: Gallery) -> None:
    gallery.live(3)
    path = write_campaign_report(gallery.ledger, at=AT)
    assert path == gallery.ledger.folder / "report" / "report.html"
    page = read_page(path)
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in page.addresses)
    assert {address[1:] for address in page.addresses if address.startswith("#")} == set(page.ids)
    assert set(page.ids) == {"curve", "balance", "rounds", "confusion", "people", "made"}
    assert not {"script", "link", "iframe", "i", "object"} & page.tags
    assert "Birds & <b>bees</b>" in page.text
    assert "<i>wren</i>" in page.text
    assert "böb <script>" in page.text
    assert "as of 2027-01-15 08:00 UTC" in page.text
    assert sum(address.startswith("data:") for address in page.addresses) == 8  # four figures on two grounds


def test_figures_and_tables_lie_beside_the_page(gallery: Gallery, tmp_path: Path) -> None:
    gallery.live(2)
    with Ledger.open(gallery.ledger.folder, read_only=True) as reader:  # reading is enough
        write_campaign_report(reader, tmp_path / "elsewhere", at=AT)
    names = {"learning-curve", "class-balance", "expected-realised", "confusion"}
    figures = {path.name for path in (tmp_path / "elsewhere" / "figures").iterdir()}
    assert figures == {f"{name}.{kind}" for name in names for kind in ("png", "svg", "pdf")}
    tables = {path.stem for path in (tmp_path / "elsewhere" / "tables").iterdir()}
    assert tables == {"learning-curve", "classes", "rounds", "certificates", "people", "pairs"}
    assert not (gallery.ledger.folder / "report").exists()


def test_the_numbers_are_those_of_the_ledger(gallery: Gallery) -> None:
    gallery.say([1, 2, 3])
    gallery.live(3)
    gallery.say([5], "cy", cls=2)
    summary = gallery.summary()
    for one in summary.rounds:
        picks = [pick.image for pick in round_picks(gallery.ledger, one.id)]
        literal = np.bincount(gallery.truth[np.array(picks) - 1], minlength=5)[1:]
        assert one.realised.tolist() == literal.tolist()
    assert summary.by_round.sum(axis=0).tolist() == summary.counts.tolist()
    assert summary.by_round[0].sum() in (3, 4)  # what was labelled outside of rounds
    why = list_rounds(gallery.ledger)[-1].why
    assert summary.rounds[-1].expected.tolist() == why["expected_counts"]
    assert (summary.rounds[-1].gap, summary.rounds[-1].lam) == (why["gap"], why["lam"])
    people = {one.name: one for one in summary.people}
    assert (people["ann"].labels, people["ann"].seconds, people["ann"].first) == (63, 2.5, AT)
    assert summary.agreement.alpha.value == 1.0
    path = write_campaign_report(gallery.ledger, at=AT)
    with (path.parent / "tables" / "classes.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["labels"]) for row in rows] == summary.counts.tolist()


def test_the_same_moment_gives_the_same_bytes(gallery: Gallery) -> None:
    gallery.live(2)
    first = write_campaign_report(gallery.ledger, at=AT).read_bytes()
    assert write_campaign_report(gallery.ledger, at=AT).read_bytes() == first


def test_advice_opens_the_page(gallery: Gallery) -> None:
    gallery.live(1)
    page = read_page(write_campaign_report(gallery.ledger, at=AT))
    assert "Is another round worth it? Yes" in page.text
    assert "never seen has no label yet, so the model cannot name it." in page.text


@pytest.mark.parametrize("state", ["empty", "opened", "one label", "one class"])
def test_a_campaign_that_has_hardly_begun_has_a_page_too(gallery: Gallery, state: str) -> None:
    if state == "opened":
        next_round(gallery.ledger, RoundOptions(5))
    elif state == "one label":
        gallery.say([1])
    elif state == "one class":
        gallery.say((np.flatnonzero(gallery.truth == 1)[:6] + 1).tolist())
    page = read_page(write_campaign_report(gallery.ledger, at=AT))
    assert "Is another round worth it?" in page.text
    assert ("Nobody has answered yet." in page.text) == (state in ("empty", "opened"))


def test_without_classes_or_images_there_is_a_page(tmp_path: Path) -> None:
    nothing = Gallery(tmp_path / "campaign", [], images=1)
    page = read_page(write_campaign_report(nothing.ledger, at=AT))
    assert "of 1 images labelled" in page.text
    nothing.ledger.close()


def test_classes_in_letters_that_the_font_lacks_are_numbered_as_in_the_table(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path / "campaign", ["梟", "🦅 eagle", "$x_1$"])
    gallery.live(2)
    page = read_page(write_campaign_report(gallery.ledger, at=AT))  # a missing letter would be a warning, an error here
    assert "🦅 eagle" in page.text
    assert shown_names(["梟", "🦅 eagle", "$x_1$"]) == ["1", "2", "3"]
    gallery.ledger.close()


def test_many_classes_and_rounds_are_drawn(tmp_path: Path) -> None:
    gallery = Gallery(tmp_path / "campaign", [f"class {number}" for number in range(26)], images=500)
    gallery.live(7, budget=30)
    specs = campaign_figure_specs(gallery.summary())
    assert [spec.name for spec in specs] == ["learning-curve", "class-balance", "expected-realised", "confusion"]
    for spec in specs:
        figure = spec.draw(DARK)
        assert figure.get_facecolor()[:3] != (1.0, 1.0, 1.0)
    assert len(specs[2].draw(LIGHT).axes) == 6  # the last six rounds
    gallery.ledger.close()


def test_retired_classes_keep_their_labels_in_the_table(gallery: Gallery) -> None:
    gallery.live(2)
    retire_class(gallery.ledger, "kite")
    page = read_page(write_campaign_report(gallery.ledger, at=AT))
    assert "kite (retired)" in page.text
    assert len(gallery.summary().classes) == 3


def test_agreement_that_cannot_be_measured_says_why(gallery: Gallery) -> None:
    gallery.say([1, 2, 3, 4])
    page = read_page(write_campaign_report(gallery.ledger, at=AT))
    assert "cannot be measured: no image was answered by two people." in page.text


def test_a_folder_that_cannot_be_made_is_an_error(gallery: Gallery, tmp_path: Path) -> None:
    from tailwise.errors import BadFile

    (tmp_path / "file").write_text("")
    with pytest.raises(BadFile, match="cannot make the folder"):
        write_campaign_report(gallery.ledger, tmp_path / "file" / "report")


def test_drawn_bars_are_the_labels(gallery: Gallery) -> None:
    gallery.live(2)
    summary = gallery.summary()
    axes = campaign_figure_specs(summary)[1].draw(LIGHT).axes[0]
    tops = [bar.get_y() + bar.get_height() for bar in axes.patches]
    assert max(tops) == summary.counts.max()
    assert [label.get_text() for label in axes.get_xticklabels()] == ["owl", "kite", "<i>wren</i>", "never seen"]


def test_small_parts() -> None:
    assert format_time(None) == "–"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", format_time(AT))
    assert [place for place, _ in few([(number, "") for number in range(30)], 4)] == [0, 10, 19, 29]
    shades = shades_of("#000000", 3, LIGHT)
    assert shades[-1] == "#000000"
    assert len(set(shades)) == 3
    axes = new_page(3, 3, LIGHT).subplots()
    name_classes(axes, [f"c{number}" for number in range(30)])
    assert axes.get_xlabel() == "class"
