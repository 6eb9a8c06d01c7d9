"""Finding images: neighbours and hunts against brute force, texts against the library itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.classes import find_class
from tailwise.campaign.features import embed
from tailwise.campaign.image_table import image_table
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.models import predict
from tailwise.campaign.relabelling import relabel
from tailwise.campaign.search import (
    FeatureIndex,
    NotReady,
    _best,
    find_text,
    hunt,
    known_index,
    make_index,
    more_like,
    text_direction,
    usual_text,
)
from tailwise.errors import BadInput

MakeStudio = Callable[..., Any]


def literal_neighbours(ledger: Ledger, images: list[int], count: int) -> list[tuple[int, float]]:
    """By a walk over all features."""
    found = embed(ledger, backbone="simple")
    unit = {
        int(number): row.astype(np.float64) / np.linalg.norm(row)
        for number, row in zip(found.ids, found.features, strict=True)
    }
    mean = np.mean([unit[one] for one in images], axis=0)
    mean /= np.linalg.norm(mean)
    scored = sorted(((-float(mean @ row), number) for number, row in unit.items() if number not in images))
    return [(number, -score) for score, number in scored[:count]]


@pytest.mark.parametrize("images", [[1], [2, 9, 17]])
def test_neighbours_are_those_of_a_walk_over_all_images(make_studio: MakeStudio, images: list[int]) -> None:
    studio = make_studio({"cat": 10, "dog": 10, "eel": 10}, noise=40)
    found = more_like(studio.ledger, images, 7)
    literal = literal_neighbours(studio.ledger, images, 7)
    assert [one.image for one in found] == [number for number, _ in literal]
    assert [one.score for one in found] == pytest.approx([score for _, score in literal], abs=1e-5)
    paths = [one.path for one in studio.campaign.find([_path(studio.ledger, one) for one in images], count=7)]
    assert paths == [_path(studio.ledger, number) for number, _ in literal]


def _path(ledger: Ledger, number: int) -> str:
    return str(ledger.read("SELECT path FROM image WHERE id = ?", (number,))[0][0])


def test_ties_are_broken_by_id_and_blocks_change_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(-2, 3, (20_000, 3)).astype(np.float32)  # many are equal
    index = FeatureIndex(np.arange(5, 20_005), rows, "simple", "")
    score = index.cosines(np.array([3.0, 0.0, 4.0]))
    literal = rows @ np.array([0.6, 0.0, 0.8], np.float32)
    assert score == pytest.approx(literal, abs=1e-6)
    allowed = rng.random(20_000) < 0.9
    for count in (1, 10, 999):
        expected = sorted(np.flatnonzero(allowed), key=lambda row: (-score[row], row))[:count]
        assert [one.image for one in _best(index.ids, score, allowed, count)] == [5 + int(row) for row in expected]


def test_the_index_is_kept_and_made_again_when_images_come(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 5, "dog": 5})
    assert known_index(studio.ledger) is None
    with pytest.raises(NotReady):
        more_like(studio.ledger, [1], make=False)
    first = make_index(studio.ledger)
    with Ledger.open(studio.ledger.folder, read_only=True) as other:
        kept = known_index(other)
        assert kept is not None
        assert isinstance(kept.rows, np.memmap)
        assert np.array_equal(kept.rows, first.rows)
    Image.new("RGB", (20, 20), (9, 9, 9)).save(studio.photos / "cat-999.png")
    studio.campaign.index()
    assert len(make_index(studio.ledger).ids) == len(first.ids) + 1
    assert len(list((studio.ledger.files / "search").glob("*.npy"))) == 2


def test_a_copy_is_like_what_its_original_is_like(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 5, "dog": 5})
    copy = studio.photos / "copy-of-first.png"
    copy.write_bytes((studio.photos / "cat-000.png").read_bytes())
    studio.campaign.index()
    original, twin = (studio.campaign.find(name, count=4) for name in ("cat-000.png", "copy-of-first.png"))
    assert [one.path for one in original] == [one.path for one in twin]
    assert "cat-000.png" not in [one.path for one in twin]


def test_a_hunt_gives_the_likeliest_images_that_nobody_has_looked_at(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 30, "dog": 6, "eel": 12}, spread=0.3, seed=1)
    studio.campaign.next(12)
    studio.say_round()
    studio.campaign.next(4)
    dog = find_class(studio.ledger, "dog")
    ids = np.array([row[0] for row in studio.ledger.read("SELECT id FROM image ORDER BY id")])
    literal = predict(studio.ledger, ids)
    proba = literal.proba[:, literal.class_ids.index(dog.id)]
    seen = {row[0] for row in studio.ledger.read("SELECT image_id FROM event")}
    expected = sorted((-float(share), int(one)) for one, share in zip(ids, proba, strict=True) if one not in seen)[:8]
    found = hunt(studio.ledger, dog, 8)
    assert found.how == "model"
    assert [one.image for one in found.matches] == [number for _, number in expected]
    assert [one.score for one in found.matches] == pytest.approx([-share for share, _ in expected], rel=1e-5)
    relabel(studio.ledger, [found.matches[0].image], dog.id, "ann", found_by="hunt")
    again = hunt(studio.ledger, dog, 8)
    assert found.matches[0].image not in [one.image for one in again.matches]
    assert again.labelled == found.labelled + 1


def test_a_class_that_the_model_does_not_know_is_hunted_by_its_images(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 8, "dog": 8, "eel": 8}, also=["fox"], spread=0.2)
    eel, fox = find_class(studio.ledger, "eel"), find_class(studio.ledger, "fox")
    with pytest.raises(BadInput, match="nothing is known of 'fox' yet"):
        hunt(studio.ledger, fox)
    studio.campaign.label("eel-000.png", "eel")
    found = hunt(studio.ledger, eel, 5)
    assert found.how == "examples"
    assert all(_path(studio.ledger, one.image).startswith("eel") for one in found.matches)
    with studio.ledger.writing() as connection:
        connection.execute("INSERT INTO class_example VALUES (?, (SELECT id FROM image WHERE path = 'cat-000.png'), 0)",
                           (fox.id,))  # fmt: skip
    by_example = hunt(studio.ledger, fox, 3)
    assert by_example.how == "examples"
    assert _path(studio.ledger, by_example.matches[0].image) == "cat-000.png"  # nobody has labelled it yet


def test_images_on_somebodys_screen_are_not_hunted(make_studio: MakeStudio) -> None:
    from tailwise.campaign.leases import lease

    studio = make_studio({"cat": 8, "dog": 8}, spread=0.2)
    opened = studio.campaign.next(5).round
    leased = {one.image for one in lease(studio.ledger, opened.id, "ben", 3)}
    studio.campaign.label("cat-000.png", "cat")
    found = {one.image for one in hunt(studio.ledger, find_class(studio.ledger, "cat"), 50).matches}
    table = image_table(studio.ledger)
    assert leased
    assert found == set(table.ids[table.unseen()].tolist()) - leased


def test_what_was_asked_for_must_be_said(make_studio: MakeStudio) -> None:
    studio = make_studio({"cat": 3, "dog": 3})
    for wrong in ({}, {"like": "cat-000.png", "text": "a cat"}, {"text": " "}):
        with pytest.raises(BadInput):
            studio.campaign.find(**wrong)
    with pytest.raises(BadInput, match="this backbone has no text tower"):
        studio.campaign.find(text="a cat")


def test_a_text_finds_the_images_that_the_library_itself_would(clip: Path, make_studio: MakeStudio) -> None:
    import torch
    import transformers

    studio = make_studio({"cat": 4, "dog": 4}, backbone=str(clip))
    found = find_text(studio.ledger, "a cat", 8)
    net = transformers.CLIPModel.from_pretrained(clip).eval()
    with torch.inference_mode():
        text = net.get_text_features(torch.tensor([[0, 2, 5, 1]]))
    text = text if isinstance(text, torch.Tensor) else text.pooler_output
    direction = text[0].numpy() / np.linalg.norm(text[0].numpy())
    images = embed(studio.ledger, backbone=str(clip))
    unit = images.features / np.linalg.norm(images.features, axis=1, keepdims=True)
    scores = unit @ direction
    order = np.argsort(-scores, kind="stable")
    assert [one.image for one in found] == images.ids[order].tolist()
    assert [one.score for one in found] == pytest.approx(scores[order].tolist(), abs=1e-4)
    assert [one.how for one in studio.campaign.find(text="a cat", count=2)] == ["text", "text"]
    hunted_by_text = hunt(studio.ledger, find_class(studio.ledger, "cat"), 3)  # nothing is labelled, no model yet
    assert hunted_by_text.how == "text"
    by_words = hunt(studio.ledger, find_class(studio.ledger, "dog"), 8, text="a cat")
    assert [(one.image, one.score) for one in by_words.matches] == [(one.image, one.score) for one in found]
    direction = text_direction(studio.ledger, "a cat")  # as the page does: made elsewhere, nothing else is computed
    again = hunt(studio.ledger, find_class(studio.ledger, "dog"), 8, text="a cat", direction=direction, make=False)
    assert again.matches == by_words.matches
    assert usual_text(studio.ledger, find_class(studio.ledger, "cat")) == "a photo of a cat"
    studio.say([1], cls=1)
    assert usual_text(studio.ledger, find_class(studio.ledger, "cat")) is None  # its image says more
    long = find_text(studio.ledger, "a cat of a dog of a cat of a dog", 2)  # cut to what the model takes
    assert len(long) == 2
