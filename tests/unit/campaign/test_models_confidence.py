"""What people see as the model's confidence is as often right as it says, also with many classes and few labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.choosing import choose_cold
from tailwise.campaign.models import head_named, predict
from tailwise.campaign.rounds import ModelRow, find_model, round_picks
from tailwise.campaign.service import Campaign
from tailwise.cycle import fit
from tailwise.learners.learner import fit_calibrated
from tailwise.pools.pool import LabelledImages

from .image_files import encoded, put

CLASSES = 44


@pytest.mark.parametrize("noise", [0.6, 1.0, 1.5, 2.0, 2.5])
def test_with_44_classes_and_few_labels_confidence_is_near_accuracy(noise: float) -> None:
    """Four labels a class; without calibration the model that is right in 92 of 100 says 28 %."""
    random = np.random.default_rng(3)
    centres = random.normal(size=(CLASSES, 64))

    def draw(labels: np.ndarray) -> np.ndarray:
        return (centres[labels] + noise * random.normal(size=(len(labels), 64))).astype(np.float32)

    labels, truth = np.repeat(np.arange(CLASSES), 4), random.integers(0, CLASSES, 2000)
    inputs, pool = draw(labels), draw(truth)
    learner = head_named("linear")
    model = fit(learner, LabelledImages(inputs, labels, tuple(map(str, range(CLASSES)))), seed=0)
    calibration = fit_calibrated(learner, inputs, labels, classes=CLASSES, kind="temperature", folds=5, seed=0)
    raw = np.asarray(model.predict_proba(pool))
    shown = calibration.apply(raw)
    accuracy = (shown.argmax(axis=1) == truth).mean()
    assert abs(shown.max(axis=1).mean() - accuracy) <= 0.10
    assert abs(raw.max(axis=1).mean() - accuracy) > 0.10  # what it is without


def test_guesses_after_a_first_batch_of_typical_images_are_not_of_the_few_classes_without_labels() -> None:
    """Nearly every class is seen once, which looks like a random draw that has missed half of the pool."""
    marks = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        truth = random.integers(0, CLASSES, 1500)
        pool = (random.normal(size=(CLASSES, 64))[truth] + 1.5 * random.normal(size=(1500, 64))).astype(np.float32)
        chosen = choose_cold(pool, pool[:0], CLASSES, strategy="boundary", classes=CLASSES, seed=seed).indices
        assert 0 < CLASSES - len(np.unique(truth[chosen])) < 12
        learner, rest = head_named("linear"), np.setdiff1d(np.arange(1500), chosen)
        fitted = fit_calibrated(learner, pool[chosen], truth[chosen], classes=CLASSES, kind="temperature", seed=seed)
        labelled = LabelledImages(pool[chosen], truth[chosen], tuple(map(str, range(CLASSES))))
        raw = np.asarray(fit(learner, labelled, seed=0).predict_proba(pool[rest]))
        for one in (fitted, fitted.shown()):
            proba = one.apply(raw)
            own = np.maximum(proba[np.arange(len(rest)), truth[rest]], 1e-5)
            marks.append(((proba.argmax(axis=1) == truth[rest]).mean(), -np.log(own).mean()))
    choosing, shown = np.mean(marks[::2], axis=0), np.mean(marks[1::2], axis=0)
    assert shown[0] > choosing[0] + 0.05  # accuracy
    assert shown[1] < choosing[1] - 0.2  # log loss


@pytest.mark.parametrize(
    ("counts", "rough"), [([29, 1, 1, 1], True), ([15, 14, 9], False), ([30, 1], False), ([1] * 44, True)]
)
def test_percentages_are_rough_while_fewer_than_thirty_labels_can_be_held_out(counts: list[int], rough: bool) -> None:
    assert ModelRow("m", "linear", {}, sum(counts), (1,), {"counts": counts}).rough is rough
    assert not ModelRow("m", "own", {}, 3, (1,)).rough  # nothing is known of it


def test_the_confidence_of_a_round_is_the_calibrated_probability_of_its_model(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    tones = {"red": (200, 40, 40), "green": (40, 200, 40), "blue": (40, 40, 200)}
    files = {}
    for name, tone in tones.items():
        for number in range(20):
            pixels = np.clip(random.normal(tone, 90, size=(12, 12, 3)), 0, 255).astype(np.uint8)
            files[f"{name}-{number:02}.png"] = encoded(Image.fromarray(pixels), "PNG")
    put(tmp_path / "images", files)
    with Campaign.create(tmp_path / "campaign", tmp_path / "images", list(tones), backbone="simple") as campaign:
        for name in tones:
            for number in range(6):
                campaign.label(f"{name}-{number:02}.png", name)
        opened = campaign.next(budget=10).round
        assert opened is not None
        picks = round_picks(campaign.ledger, opened.id)
        found = predict(campaign, np.array([pick.image for pick in picks]), opened.model_version)
        classes, confidence = found.best()
        assert [pick.predicted for pick in picks] == classes.tolist()
        assert np.allclose([pick.confidence for pick in picks], confidence, atol=1e-6)
        row = find_model(campaign.ledger, str(opened.model_version))
        assert row.summary["calibration"]["kind"] == "temperature"
