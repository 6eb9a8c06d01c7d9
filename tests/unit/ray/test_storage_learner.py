"""Learners on the disk: found by their files, opened, and asked about pixels."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise.campaign import models
from tailwise.campaign.answers import Answer, record
from tailwise.errors import BadFile, BadInput
from tailwise.inference.storage import SavedLearner, find_learner, open_learner
from tailwise.learners import make_learner
from tailwise.learners.features import simple_features

from .conftest import CLASSES, picture

RNG = np.random.default_rng(3)
LABELS = np.arange(24) % 3


def pixels(size: int, count: int = 24) -> np.ndarray:
    return RNG.integers(0, 256, (count, size, size, 3)).astype(np.uint8)


def answers(saved: SavedLearner, images: np.ndarray) -> np.ndarray:
    return open_learner(saved).answer(images, embeddings=False)[0]


def test_a_head_on_simple_features_is_known_by_its_width(head: Path) -> None:
    saved = find_learner(head)
    assert (saved.kind, saved.backbone, saved.size, saved.classes) == ("linear", "simple", 64, CLASSES)
    images = pixels(64, 5)
    model = make_learner("linear").load(head)
    proba, embedded = open_learner(saved).answer(images, embeddings=True)
    np.testing.assert_allclose(proba, model.predict_proba(simple_features(images)), atol=1e-6)
    np.testing.assert_array_equal(embedded, model.embed(simple_features(images)))


def test_a_head_on_pixels_tells_their_size(tmp_path: Path) -> None:
    images = pixels(8)
    model = make_learner("mlp", width=8, least_steps=20).fit(images, LABELS, classes=3, seed=0)
    model.save(tmp_path)
    saved = find_learner(tmp_path)
    assert (saved.kind, saved.backbone, saved.size) == ("mlp", None, 8)
    np.testing.assert_allclose(answers(saved, images), model.predict_proba(images), atol=1e-6)
    with pytest.raises(BadInput, match="was fitted on images of 8 pixels a side, not 64"):
        find_learner(tmp_path, size=64)


def test_a_frozen_net_is_run_with_its_head(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    images = pixels(8)
    model = make_learner("frozen", backbone="torch.nn:Flatten", size=8).fit(images, LABELS, classes=3, seed=0)
    model.save(tmp_path)
    saved = find_learner(tmp_path)
    assert (saved.kind, saved.size) == ("frozen", 8)
    np.testing.assert_allclose(answers(saved, images), model.predict_proba(images), atol=1e-6)
    other = tmp_path / "other"
    make_learner("frozen", backbone="torch.nn:Flatten", size=0).fit(images, LABELS, classes=3, seed=0).save(other)
    with pytest.raises(BadInput, match="takes images of any size; say with --size"):
        find_learner(other)
    assert find_learner(other, size=8).size == 8


def test_a_head_that_was_saved_alone_is_told_its_backbone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    features = RNG.normal(size=(24, 100)).astype(np.float32)
    make_learner("linear").fit(features, LABELS, classes=3, seed=0).save(tmp_path)
    with pytest.raises(BadInput, match="was fitted on 100 features per image; say what made them with --backbone"):
        find_learner(tmp_path)
    saved = find_learner(tmp_path, backbone="torch.nn:Flatten")
    with pytest.raises(BadInput, match="the model learnt from 100"):
        answers(saved, pixels(224, 1))


def test_a_net_takes_the_size_that_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    settings = {"epochs": 1, "milestones": (), "width": 4, "batch": 16, "device": "cpu"}
    images = pixels(16)
    model = make_learner("resnet10", **settings).fit(images, LABELS, classes=3, seed=0)
    model.save(tmp_path)
    assert find_learner(tmp_path).size == 64
    np.testing.assert_allclose(answers(find_learner(tmp_path, size=16), images), model.predict_proba(images), atol=1e-5)
    with pytest.raises(BadInput, match="looks at pixels; leave --backbone out"):
        find_learner(tmp_path, backbone="simple")


def test_the_checksum_tells_models_and_sizes_apart_and_not_their_places(head: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(head, moved)
    assert find_learner(moved).checksum == find_learner(head).checksum
    other = tmp_path / "other"
    make_learner("linear").fit(simple_features(pixels(64)), LABELS, classes=CLASSES, seed=0).save(other)
    assert find_learner(other).checksum != find_learner(head).checksum


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A campaign of which a model was trained, with a class that has been renamed."""
    images = tmp_path / "images"
    images.mkdir()
    rng = np.random.default_rng(0)
    for number in range(12):
        picture(number % 3, rng).save(images / f"{number:02d}.png")
    home = tmp_path / "zoo"
    with tailwise.Campaign.create(home, images, ["cat", "dog", "eel"], backbone="simple") as made:
        ids = [row["id"] for row in made.ledger.read("SELECT id FROM image ORDER BY path")]
        said = [Answer(uuid.uuid4().hex, image, "ann", "label", at % 3 + 1) for at, image in enumerate(ids[:9])]
        record(made.ledger, said)
        made.next(2)
        made.rename_class("dog", "hound")
    return home


def test_a_campaign_gives_its_newest_model_with_names_and_calibration(campaign: Path) -> None:
    saved = find_learner(campaign)
    assert (saved.kind, saved.backbone, saved.size) == ("linear", "simple", 64)
    assert saved.class_names == ("cat", "hound", "eel")
    images = pixels(64, 6)
    with tailwise.Campaign.open(campaign, read_only=True) as opened:
        trained = models.load(opened.ledger)
        expected = trained.calibration.apply(trained.model.predict_proba(simple_features(images)))
    assert trained.calibration.kind == "temperature"
    assert trained.calibration.trained is not None
    np.testing.assert_allclose(answers(saved, images), expected, atol=1e-6)
    with pytest.raises(BadInput, match="is a campaign, which knows its own backbone and size"):
        find_learner(campaign, size=64)


def test_a_campaign_without_a_usable_model_says_so(campaign: Path, tmp_path: Path) -> None:
    version = find_learner(campaign).folder
    next(version.glob("*.safetensors")).write_bytes(b"damaged")
    with pytest.raises(BadFile, match=r"the newest model of .* cannot be used: .*; open the next round"):
        find_learner(campaign)
    with tailwise.Campaign.create(tmp_path / "new", tmp_path / "images", ["cat", "dog"]):
        pass
    with pytest.raises(BadInput, match="there is no model yet"):
        find_learner(tmp_path / "new")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "holds no saved learner .* and is not a campaign"),
        ("nonsense", "is not valid JSON of a model"),
        ("[1]", "is not valid JSON of a model"),
        (json.dumps({"kind": "training"}), "holds a 'training', which no learner can load"),
        (json.dumps({"kind": ["linear"]}), "which no learner can load"),
        (json.dumps({"kind": "linear"}), "is not a model of format 1"),
    ],
)
def test_a_folder_that_holds_no_learner_is_refused(tmp_path: Path, content: str | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "model.json").write_text(content)
    with pytest.raises(BadFile, match=complaint):
        find_learner(tmp_path)


def test_a_size_that_cannot_be_is_refused(head: Path) -> None:
    with pytest.raises(BadInput, match="size is 0; it must lie between 1 and 4096"):
        find_learner(head, size=0)


def test_answers_that_are_no_numbers_are_refused(head: Path, tmp_path: Path) -> None:
    from tailwise.learners.learner import StoredModel, load_model, save_model

    kept = load_model(head, "linear")
    weights = np.full_like(kept.tensors["weights"], np.nan)
    save_model(tmp_path, StoredModel("linear", kept.settings, kept.tensors | {"weights": weights}))
    with pytest.raises(BadInput, match="gives NaN or infinity"):
        answers(find_learner(tmp_path), pixels(64, 1))
