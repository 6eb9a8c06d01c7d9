"""A campaign from a folder of images to a model that was trained elsewhere, through the real server, with an oracle."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.faults.stage import draw_stripes
from benchmarks.quality.campaign import Photos, Plan, School, Trial, campaign, everything, long_tail, make_photos
from benchmarks.quality.campaign_results import (
    EVERYTHING,
    RANDOM,
    TAILWISE,
    Measured,
    Result,
    keep,
    load,
    write_results,
)
from tailwise.campaign.service import Campaign
from tailwise.campaign.state import Settings
from tailwise.pools.pool import LabelledImages

CLASSES = ("ash", "beech", "cedar", "elm", "oak")
PLAN = Plan(images=150, rounds=2, budget=25)

pytestmark = pytest.mark.slow


def striped(count: int, seed: int) -> LabelledImages:
    """As many tiny pictures of each class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % len(CLASSES)
    pixels = np.stack([draw_stripes(int(label), len(CLASSES), rng) for label in labels])
    return LabelledImages(pixels, labels.astype(np.int64), CLASSES)


def digests(folder: Path) -> Counter[str]:
    return Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.png"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end-to-end")


@pytest.fixture(scope="module")
def photos(place: Path) -> Photos:
    return make_photos(striped(600, seed=0), PLAN.images, 3, place / "photos")


@pytest.fixture(scope="module")
def school() -> School:
    return School.of(striped(200, seed=1), "simple", images=200)


@pytest.fixture(scope="module")
def results(place: Path, photos: Photos, school: School) -> dict[str, list[Result]]:
    """What each way of choosing came to, round by round."""
    return {
        method: [result for _, result in campaign(photos, Trial(method, 3, PLAN, "simple"), school, place)]
        for method in (TAILWISE, RANDOM)
    }


def test_every_answer_is_exported_once_under_its_true_class(
    place: Path, photos: Photos, results: dict[str, list[Result]]
) -> None:
    for method, found in results.items():
        for number, result in enumerate(found, start=1):
            out = place / f"{method}-export-{number}"
            copies = list(out.rglob("*.png"))
            originals = {digest(photos.folder / name): shown for name, shown in photos.truth.items()}
            assert len(copies) == result.labels == number * PLAN.budget
            assert [path.parent.name for path in copies] == [originals[digest(path)] for path in copies]
            assert max(digests(out).values()) == 1
            assert result.counts == tuple(sum(path.parent.name == name for path in copies) for name in photos.classes)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_images_of_the_user_are_as_they_were(photos: Photos, results: dict[str, list[Result]]) -> None:
    assert set(results) == {TAILWISE, RANDOM}
    assert sorted(path.name for path in photos.folder.iterdir()) == sorted(photos.truth)
    fresh = make_photos(striped(600, seed=0), PLAN.images, 3, photos.folder.with_name("photos-again"))
    assert digests(photos.folder) == digests(fresh.folder)


def test_the_exported_folder_trains_a_model_elsewhere(results: dict[str, list[Result]]) -> None:
    for found in results.values():
        assert found[-1].accuracy > 0.7  # chance is 0.2


def test_the_labels_are_more_even_than_by_chance(results: dict[str, list[Result]]) -> None:
    ours, theirs = (Measured.of(("simple", name, 3, "", ""), 2, results[name][-1]) for name in (TAILWISE, RANDOM))
    assert ours.l1 < theirs.l1
    assert ours.fewest >= theirs.fewest
    assert sum(ours.counts[-2:]) > sum(theirs.counts[-2:])


def test_each_round_says_how_it_was_chosen(place: Path, results: dict[str, list[Result]]) -> None:
    del results  # they are made first
    for method, strategies in ((TAILWISE, ["typiclust", Settings().strategy]), (RANDOM, ["random", "random"])):
        with Campaign.open(place / f"{method}-campaign", read_only=True) as reader:
            assert [one.strategy for one in reader.rounds()] == strategies
            assert reader.status().labelled == PLAN.rounds * PLAN.budget
            assert [finding for finding in reader.doctor() if finding.severity != "note"] == []


def test_results_are_kept_shown_and_replaced(
    tmp_path: Path, photos: Photos, school: School, results: dict[str, list[Result]]
) -> None:
    rows = [
        Measured.of(Trial(method, seed, PLAN, "simple").words, number, result)
        for method, found in results.items() for seed in (3, 4) for number, result in enumerate(found, start=1)
    ]  # fmt: skip
    ((_, whole),) = everything(photos, school)
    rows.append(Measured.of(Trial(EVERYTHING, 3, PLAN, "simple").words, 0, whole))
    keep(rows, tmp_path)
    assert sorted(load(tmp_path), key=str) == sorted((rounded(row) for row in rows), key=str)
    keep([replace(rows[0], accuracy=0.125), rows[1]], tmp_path)
    assert len(load(tmp_path)) == len(rows)
    assert sum(row.accuracy == 0.125 for row in load(tmp_path)) == 1
    page = write_results(rows, tmp_path)
    shown = f"{100 * results[TAILWISE][1].accuracy:.1f} ± 0.0"
    assert f"| 50 | {shown} |" in page
    assert "| all 150 |" in page
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == page
    assert (tmp_path / "campaign.png").read_bytes().startswith(b"\x89PNG")


def rounded(row: Measured) -> Measured:
    """As a CSV keeps it."""
    accuracy, tail, l1 = (float(f"{number:.6g}") for number in (row.accuracy, row.tail_accuracy, row.l1))
    return replace(row, accuracy=accuracy, tail_accuracy=tail, l1=l1)


@pytest.mark.parametrize("size", [20, 150, 2000])
def test_a_long_tail_has_the_size_that_was_asked_for_and_falls(size: int) -> None:
    order = np.array([3, 1, 0, 2, 4])
    counts = long_tail(5, size, order)
    assert counts.sum() == size
    assert (np.diff(counts[order]) <= 0).all()
    assert counts[order[-1]] / counts[order[0]] == pytest.approx(0.05, abs=0.05)
