"""Near-duplicates: close hashes as by brute force, groups of altered copies, and one label for all of a group."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagehash
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from tailwise.campaign import duplicates
from tailwise.campaign.duplicates import (
    MOST_BITS,
    are_alike,
    as_hashes,
    close_features,
    close_pairs,
    find_duplicates,
    hash_extractor,
)
from tailwise.campaign.service import Campaign
from tailwise.errors import BadInput, MissingExtra


def pairs_by_brute_force(hashes: list[int], most: int) -> list[list[int]]:
    return [
        [one, two]
        for one in range(len(hashes))
        for two in range(one + 1, len(hashes))
        if (hashes[one] ^ hashes[two]).bit_count() <= most
    ]


@given(
    st.lists(st.integers(0, 2**64 - 1), max_size=12),
    st.lists(st.tuples(st.integers(0, 11), st.sets(st.integers(0, 63), max_size=9)), max_size=12),
    st.integers(0, MOST_BITS),
)
def test_close_pairs_are_those_of_brute_force(
    hashes: list[int], changed: list[tuple[int, set[int]]], most: int
) -> None:  # fmt: skip
    near = [hashes[at % len(hashes)] ^ sum(1 << bit for bit in bits) for at, bits in changed if hashes]
    every = hashes + near
    assert close_pairs(np.array(every, np.uint64), most).tolist() == pairs_by_brute_force(every, most)


@pytest.mark.parametrize("block", [1, 7, 1 << 21])
def test_close_pairs_of_many_are_those_of_brute_force(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", block)
    rng = np.random.default_rng(0)
    few = rng.integers(0, 2**64, 12, dtype=np.uint64)
    flips = np.array([sum(1 << int(bit) for bit in rng.choice(64, 4, replace=False)) for _ in range(90)], np.uint64)
    every = np.concatenate([few, rng.choice(few, 90) ^ flips])
    assert close_pairs(every).tolist() == pairs_by_brute_force(every.tolist(), MOST_BITS)


def test_a_crowd_of_equal_hashes_is_one_chain_and_not_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "CROWD", 10)
    monkeypatch.setattr(duplicates, "NEIGHBOURS", 2)
    pairs = close_pairs(np.full(100, 5, np.uint64))
    assert pairs.tolist() == sorted([[at, at + 1] for at in range(99)] + [[at, at + 2] for at in range(98)])


def test_more_bits_than_can_be_found_are_an_error() -> None:
    with pytest.raises(BadInput, match="from 0 to 7"):
        close_pairs(np.zeros(2, np.uint64), 8)


def test_close_features_are_those_of_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", 200)
    rng = np.random.default_rng(0)
    some = rng.normal(size=(60, 200)).astype(np.float32) + 1
    features = np.concatenate(
        [some, some + rng.uniform(0.05, 0.5, (60, 1)).astype(np.float32) * rng.normal(size=(60, 200))]
    )
    hashes = rng.integers(0, 2**64, 120, dtype=np.uint64)
    flips = [sum(1 << int(bit) for bit in rng.choice(64, rng.integers(10, 30), replace=False)) for _ in range(60)]
    hashes[60:] = hashes[:60] ^ np.array(flips, np.uint64)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    expected = [
        [one, two]
        for one in range(120)
        for two in range(one + 1, 120)
        if unit[one] @ unit[two] >= duplicates.CLOSE_COSINE
        and int(hashes[one] ^ hashes[two]).bit_count() <= duplicates.CLOSE_BITS
    ]
    assert 5 < len(expected) < 50
    assert sorted(close_features(features.astype(np.float32), hashes).tolist()) == expected


def test_a_hundred_thousand_hashes_take_seconds_and_not_a_comparison_of_all() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 100_000, dtype=np.uint64)
    planted = np.arange(0, 2000, 2)
    hashes[planted + 1] = hashes[planted] ^ np.uint64(0b1011 << 20)
    started = time.process_time()
    pairs = close_pairs(hashes)
    seconds = time.process_time() - started
    assert {tuple(pair) for pair in pairs.tolist()} == {(int(at), int(at) + 1) for at in planted}
    assert seconds < 30  # about 1; all pairs would be 5 thousand millions


def test_alike_is_a_cosine_above_the_threshold() -> None:
    features = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    pairs = np.array([(one, two) for one in range(30) for two in range(one)])
    expected = [
        float(features[one] @ features[two] / np.linalg.norm(features[one]) / np.linalg.norm(features[two])) >= 0.4
        for one, two in pairs
    ]
    assert are_alike(features, pairs, 0.4).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_hashes_are_those_of_imagehash() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 64, 64, 3)).astype(np.uint8)
    expected = [int(str(imagehash.phash(Image.fromarray(one))), 16) for one in images]
    assert as_hashes(hash_extractor().features(images)).tolist() == expected


# -- groups in a campaign ---------------------------------------------------------------------------------------------


def scene(number: int) -> Image.Image:
    """A smooth picture, another for each number."""
    rng = np.random.default_rng(number)
    return Image.fromarray(rng.integers(0, 256, (6, 6, 3)).astype(np.uint8)).resize((120, 96), Image.Resampling.BICUBIC)


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    """Eight different pictures; a small and a bright version of 0, a JPEG of 1, an exact copy of 2, a crop of 3."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(8):
        scene(number).save(photos / f"{number}.png")
    scene(0).resize((60, 48)).save(photos / "0-small.png")
    ImageEnhance.Brightness(scene(0)).enhance(1.05).save(photos / "0-bright.png")
    scene(1).save(photos / "1.jpg", quality=60)
    scene(3).crop((5, 4, 115, 92)).save(photos / "3-crop.png")
    (photos / "2-copy.png").write_bytes((photos / "2.png").read_bytes())
    with Campaign.create(tmp_path / "home", photos, ["owl", "kite", "heron"], backbone="simple") as made:
        yield made


def paths(groups: list[duplicates.DuplicateGroup]) -> list[set[str]]:
    return [{one.path for one in group.images} for group in groups]


ZERO, ONE = {"0.png", "0-small.png", "0-bright.png"}, {"1.png", "1.jpg"}
THREE = {"3.png", "3-crop.png"}  # their hashes differ in too many bits


def test_altered_copies_are_groups_and_different_pictures_are_not(campaign: Campaign) -> None:
    groups = campaign.duplicates()
    assert paths(groups) == [ZERO, ONE, THREE]  # the largest first
    assert [(group.labels, group.disagree, group.unlabelled) for group in groups] == [
        ((), False, 3),
        ((), False, 2),
        ((), False, 2),
    ]


def test_hashes_are_made_once(campaign: Campaign) -> None:
    campaign.duplicates()
    folder = campaign.folder / "features" / duplicates.HASH
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert before
    campaign.duplicates()
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_labels_that_differ_come_first_then_groups_that_are_labelled_in_part(campaign: Campaign) -> None:
    campaign.label("0.png", "owl")
    campaign.label("1.png", "owl")
    campaign.label("1.jpg", "kite")
    first, second, _ = campaign.duplicates()
    assert ({one.path for one in first.images}, set(first.labels), first.disagree) == (ONE, {"owl", "kite"}, True)
    assert (second.labels, second.disagree, second.unlabelled) == (("owl",), False, 2)
    campaign.label("0-small.png", None)
    assert campaign.duplicates()[0].disagree


def test_an_exact_copy_is_listed_where_it_has_an_answer_of_its_own(campaign: Campaign) -> None:
    campaign.label("2.png", "owl")
    copy = campaign.ledger.read("SELECT id FROM image WHERE duplicate_of IS NOT NULL")
    assert len(copy) == 1
    campaign.label("2-copy.png", "kite")
    assert {"2.png", "2-copy.png"} in paths([group for group in campaign.duplicates() if group.disagree])


def events(campaign: Campaign) -> list[tuple[Any, ...]]:
    rows = campaign.ledger.read(
        "SELECT i.path, e.annotator, e.kind, c.name, e.found_by, e.batch FROM event AS e "
        "JOIN image AS i ON i.id = e.image_id LEFT JOIN class AS c ON c.id = e.class_id ORDER BY e.id"
    )
    return [tuple(row) for row in rows]


def test_one_answer_labels_a_group_and_one_undo_takes_it_back(campaign: Campaign) -> None:
    campaign.label("0.png", "owl", annotator="ada")
    before = campaign.labels()
    done = campaign.relabel(sorted(ZERO), "kite", annotator="eve", batch="batch-one", found_by="duplicates")
    assert (len(done.changed), done.settled) == (3, 1)
    assert campaign.labels() == dict.fromkeys(ZERO, "kite")
    assert events(campaign)[1:] == [
        ("0-bright.png", "eve", "label", "kite", "duplicates", "batch-one"),
        ("0-small.png", "eve", "label", "kite", "duplicates", "batch-one"),
        ("0.png", "eve", "settle-label", "kite", "duplicates", "batch-one"),
    ]
    assert campaign.undo_batch("batch-one", annotator="eve") == 3
    assert campaign.labels() == before
    assert campaign.undo_batch("batch-one", annotator="eve") == 0
    assert [kind for _, _, kind, *_ in events(campaign)][4:] == ["undo"] * 3


def test_without_imagehash_the_error_names_the_command(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagehash", None)
    with pytest.raises(MissingExtra, match=r"imagehash.*pip install 'tailwise\[review\]'"):
        find_duplicates(campaign)
