"""The review views: planted label errors are shown, kept, changed and undone; look-alikes get one label; conflicts."""

from __future__ import annotations

import colorsys
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from tailwise.campaign.duplicates import find_duplicates
from tailwise.campaign.review import review_labels
from tailwise.campaign.service import Campaign

from .conftest import TEN_AND_MANY, Site, free_port

if TYPE_CHECKING:
    from .conftest import Page

PER_CLASS = 6
MakeReviewSite = Callable[..., Site]


def draw(cls: int, classes: int, number: int) -> Image.Image:
    """Blots that are chance; the class is the colour of the left and of the right half, equally bright."""
    rng = np.random.default_rng(1000 * cls + number)
    sides = max(2, math.ceil(math.sqrt(classes)))
    halves = [np.array(colorsys.hsv_to_rgb(part / sides, 0.9, 1.0)) for part in divmod(cls, sides)]
    halves = [colour / (colour @ [0.299, 0.587, 0.114]) for colour in halves]
    tint = np.where(np.arange(96)[None, :, None] < 48, *halves)  # (1, 96, 3)
    blots = Image.fromarray(rng.integers(40, 140, (6, 8)).astype(np.uint8)).resize((96, 72), Image.Resampling.BICUBIC)
    return Image.fromarray(np.clip(np.asarray(blots)[..., None] * tint, 0, 255).astype(np.uint8))


@pytest.fixture
def make_review_site(tmp_path: Path) -> Iterator[MakeReviewSite]:
    """A campaign whose images are all labelled by Eve, some as the next class; its server runs."""
    sites: list[Site] = []

    def make(classes: int = 10, wrong: int = 4, *, copies: int = 0, labelled: bool = True, blind: bool = False) -> Site:
        photos = tmp_path / "photos"
        photos.mkdir()
        names = [f"class {number:02}" for number in range(classes)]
        for cls in range(classes):
            for number in range(PER_CLASS):
                draw(cls, classes, number).save(photos / f"{number}_{cls}.png")
        for number in range(copies):
            draw(number % classes, classes, 0).resize((80, 60)).save(photos / f"copy{number}_{number % classes}.png")
        home = tmp_path / "campaign"
        with Campaign.create(home, photos, names, name="Birds", backbone="simple", blind=blind) as campaign:
            for cls in range(classes if labelled else 0):
                for number in range(PER_CLASS):
                    said = (cls + 1) % classes if number == 3 and cls < wrong else cls
                    campaign.label(f"{number}_{cls}.png", names[said], annotator="Eve")
        sites.append(Site(home, free_port()))
        sites[-1].start()
        return sites[-1]

    yield make
    for site in sites:
        site.stop()


def labels_by_path(site: Site) -> dict[str, str]:
    with Campaign.open(site.folder, read_only=True) as campaign:
        return campaign.labels()


def path_shown(page: Page, site: Site, view: str) -> str:
    """The path of the large image on show."""
    key = page.attribute(f"#{view} .photo", "data-key")
    return str(site.rows("SELECT path FROM image WHERE key = ?", key)[0][0])


def decisions(site: Site) -> list[tuple[str, str, str, str | None]]:
    return site.rows(  # type: ignore[return-value]
        "SELECT i.path, e.annotator, e.kind, c.name FROM event AS e JOIN image AS i ON i.id = e.image_id "
        "LEFT JOIN class AS c ON c.id = e.class_id WHERE e.annotator = 'Ada' ORDER BY e.id"
    )


@pytest.mark.parametrize("classes", TEN_AND_MANY)
def test_errors_are_shown_worst_first_and_kept_or_changed_with_one_key(
    page: Page, make_review_site: MakeReviewSite, classes: int
) -> None:
    site = make_review_site(classes)
    with Campaign.open(site.folder) as campaign:
        found = review_labels(campaign)  # is kept, and shown at once
    first, second, third = found.errors[:3]
    page.open(site, view="errors")
    page.wait_text(f"{found.likely} likely errors of {classes * PER_CLASS} labels", "#errors h1")
    assert path_shown(page, site, "errors") == first.path
    assert " ".join(page.text("#errors .finding").split()) == (
        f"Labelled {first.given} by Eve, looks like {first.suggested}."
    )
    assert len(page.all("#errors .verdicts .strip img")) == 4
    page.press(Keys.ENTER)
    page.wait_text(f"{found.likely - 1} likely error", "#errors h1")
    assert path_shown(page, site, "errors") == second.path
    page.press("k")
    page.until(lambda: len(decisions(site)) == 2, "both decisions are on the disk")
    assert decisions(site) == [
        (first.path, "Ada", "settle-label", first.suggested),
        (second.path, "Ada", "settle-label", second.given),
    ]
    assert site.rows("SELECT DISTINCT found_by FROM event WHERE annotator = 'Ada'") == [("review",)]
    assert path_shown(page, site, "errors") == third.path
    page.press("u")
    page.until(lambda: path_shown(page, site, "errors") == second.path, "the image is on show again")
    page.press("u")
    page.until(lambda: path_shown(page, site, "errors") == first.path, "the image is on show again")
    page.until(lambda: len(decisions(site)) == 4, "both are undone on the disk")
    assert labels_by_path(site)[first.path] == first.given
    assert page.all("#errors [data-act=undo]") == []


@pytest.mark.parametrize("classes", TEN_AND_MANY)
def test_an_error_is_changed_to_any_class_by_search_or_click_and_does_not_come_back(
    page: Page, make_review_site: MakeReviewSite, classes: int
) -> None:
    site = make_review_site(classes)
    page.open(site, view="errors")
    page.wait_text("likely error", "#errors h1")
    first = path_shown(page, site, "errors")
    last = f"class {classes - 1:02}"
    page.press("/")
    page.until(lambda: page.run("return document.activeElement.tagName") == "INPUT", "the box has the focus")
    page.press(last, Keys.ENTER)
    page.until(lambda: labels_by_path(site)[first] == last, "it is changed")
    second = path_shown(page, site, "errors")
    assert second != first
    page.click("#errors [data-verdict=another]")
    page.click("#errors [data-class=other]")
    page.until(lambda: second not in labels_by_path(site), "it is in none of the classes")
    third = path_shown(page, site, "errors")
    page.click("#errors [data-verdict=keep]")
    page.until(lambda: len(decisions(site)) == 3, "it is kept")
    page.wait_saved()
    page.reload()
    page.wait_text("likely error", "#errors h1")
    page.until(lambda: "checking again" not in page.text("#errors"), "the labels are checked again")
    left = page.attribute("#errors", "data-ready")
    with Campaign.open(site.folder, read_only=True) as campaign:
        found = review_labels(campaign)
    assert not {first, second, third} & {one.path for one in found.errors}
    assert left == str(len(found.errors))


def test_labels_that_change_are_checked_again_when_the_view_is_opened(
    page: Page, make_review_site: MakeReviewSite
) -> None:  # fmt: skip
    site = make_review_site(10, wrong=0)
    page.open(site, view="errors")
    page.wait_text("No label looks wrong", "#errors")
    page.wait_text("60 labels were checked", "#errors")
    with Campaign.open(site.folder) as campaign:
        campaign.label("3_4.png", "class 09", annotator="Eve")
    page.press("l")
    page.press("e")
    page.wait_text("1 likely error of 60 labels", "#errors h1")
    assert path_shown(page, site, "errors") == "3_4.png"


def test_without_enough_labels_the_view_says_what_to_do(page: Page, make_review_site: MakeReviewSite) -> None:
    page.open(make_review_site(10, labelled=False), view="errors")
    page.wait_text("Label at least 2 images in each of 2 classes first", "#errors")


def test_in_a_blind_campaign_errors_reveal_nothing(page: Page, make_review_site: MakeReviewSite) -> None:
    site = make_review_site(10, blind=True)
    with Campaign.open(site.folder) as campaign:
        review_labels(campaign)
    page.open(site, view="errors")
    page.wait_text("Suggestions are hidden", "#errors")
    status = "return await fetch('/api/review/errors').then((reply) => reply.status)"
    assert page.ask(status) == 409
    assert page.all("#errors .photo") == []


@pytest.mark.parametrize("classes", TEN_AND_MANY)
def test_a_group_of_look_alikes_is_labelled_at_once_and_undone_at_once(
    page: Page, make_review_site: MakeReviewSite, classes: int
) -> None:
    site = make_review_site(classes, wrong=0, copies=2)
    with Campaign.open(site.folder) as campaign:
        campaign.label("copy1_1.png", "class 00", annotator="Eve")
        groups = [{one.path for one in group.images} for group in find_duplicates(campaign)]
    assert {"copy0_0.png", "0_0.png"} in groups
    before = labels_by_path(site)
    page.open(site, view="duplicates")
    page.wait_text("2 groups of look-alikes, 1 with different labels", "#duplicates h1")
    shown = {
        site.rows("SELECT path FROM image WHERE key = ?", one.get_attribute("data-key"))[0][0]
        for one in page.all("#duplicates .look-alike img")
    }
    assert shown == {"copy1_1.png", "0_1.png"}  # labels that differ come first
    page.wait_text("2 images look alike, but are labelled differently", "#duplicates .finding")
    page.press("/")
    page.until(lambda: page.run("return document.activeElement.tagName") == "INPUT", "the box has the focus")
    page.press(f"class {classes - 1:02}", Keys.ENTER)
    page.wait_text("1 group of look-alikes", "#duplicates h1")
    page.until(lambda: labels_by_path(site)["0_1.png"] == f"class {classes - 1:02}", "both have the class")
    assert labels_by_path(site)["copy1_1.png"] == f"class {classes - 1:02}"
    page.wait_text("1 is unlabelled", "#duplicates .finding")
    page.press("1")
    page.wait_text("All groups have one label each", "#duplicates")
    assert labels_by_path(site)["copy0_0.png"] == "class 00"
    batches = site.rows("SELECT count(*), count(DISTINCT batch) FROM event WHERE found_by = 'duplicates'")
    assert batches == [(3, 2)]
    page.press("u")
    page.wait_text("1 group of look-alikes", "#duplicates h1")
    page.click("#duplicates [data-act=undo]")
    page.wait_text("2 groups of look-alikes, 1 with different labels", "#duplicates h1")
    assert labels_by_path(site) == before


def test_a_group_can_be_left_as_it_is(page: Page, make_review_site: MakeReviewSite) -> None:
    site = make_review_site(10, wrong=0, copies=1)
    page.open(site, view="duplicates")
    page.wait_text("1 group of look-alikes", "#duplicates h1")
    page.press("s")
    page.wait_text("All groups have one label each", "#duplicates")
    assert decisions(site) == []


@pytest.mark.parametrize("classes", TEN_AND_MANY)
def test_each_answer_of_a_conflict_is_a_button_with_its_people_and_a_key(
    page: Page, make_review_site: MakeReviewSite, classes: int
) -> None:
    site = make_review_site(classes, wrong=0)
    last = f"class {classes - 1:02}"
    with Campaign.open(site.folder) as campaign:
        for path in ("0_0.png", "1_0.png", "2_0.png"):
            campaign.label(path, "class 00", annotator="Ada")
            campaign.label(path, "class 01", annotator="Ben")
    page.open(site, view="conflicts")
    page.wait_text("3 conflicts", "#conflicts")
    said = [" ".join(one.text.split()) for one in page.all("#conflicts .verdict")]
    assert said == ["1 class 00 Ada, Eve", "2 class 01 Ben", "/ Another class"]  # most people first
    images = [path_shown(page, site, "conflicts")]
    page.press("2")
    page.wait_text("2 conflicts", "#conflicts")
    images.append(path_shown(page, site, "conflicts"))
    page.click("#conflicts .verdict")
    page.wait_text("1 conflict", "#conflicts")
    images.append(path_shown(page, site, "conflicts"))
    page.press("/")
    page.until(lambda: page.run("return document.activeElement.tagName") == "INPUT", "the box has the focus")
    page.press(last, Keys.ENTER)
    page.wait_text("Nothing to settle", "#conflicts")
    page.until(lambda: len(site.rows("SELECT 1 FROM event WHERE kind = 'settle-label'")) == 3, "all are settled")
    labels = labels_by_path(site)
    assert [labels[path] for path in images] == ["class 01", "class 00", last]


def test_where_an_extra_is_missing_the_views_name_the_command(
    page: Page, make_review_site: MakeReviewSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_review_site(10)
    real = sys.modules["tailwise.web.review"].find_spec  # type: ignore[attr-defined]
    gone = ("cleanlab", "imagehash")
    monkeypatch.setattr("tailwise.web.review.find_spec", lambda name: None if name in gone else real(name))
    page.open(site, view="errors")
    page.wait_text("pip install 'tailwise[review]'", "#errors code")
    page.open(site, view="duplicates")
    page.wait_text("pip install 'tailwise[review]'", "#duplicates code")
