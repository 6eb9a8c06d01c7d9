"""What people see as the model's confidence is as often right as it says, also with many classes and few labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.models import head_named, predict
from tailwise.campaign.rounds import find_model, round_picks
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
