"""What a trial starts from: the worlds of the paper's presets, with the counts of the paper."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tailwise.bench.config import Experiment, PoolPart, read_experiment
from tailwise.bench.trial_run import World, open_world
from tailwise.bench.trials import trials_of

# PAPER: preset, classes, images per class; by imbalance factor the images of a frequent and a rare class in the pool,
# and of all images with the first set.
PAPER = [
    ("paper-cifar10", 10, 5000, {1.0: (4500, 4500, 50_000), 0.3: (4500, 1350, 34_250), 0.1: (4500, 450, 29_750)}),
    ("paper-cifar100", 100, 500, {1.0: (450, 450, 50_000), 0.3: (450, 135, 34_250), 0.1: (450, 45, 29_750)}),
    ("paper-tinyimagenet", 200, 500, {1.0: (450, 450, 100_000), 0.3: (450, 135, 68_500), 0.1: (450, 45, 59_500)}),
]


def on_labels_alone(preset: str, classes: int, each: int, folder: Path) -> Experiment:
    """A preset on as many images as the data set has, each a single number."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(classes), each))
    x = np.zeros((len(labels), 1), np.float32)
    few = np.arange(classes)
    np.savez(folder / "labels.npz", x_train=x, y_train=labels, x_test=x[:classes], y_test=few)
    pool = PoolPart(name="features", path=str(folder / "labels.npz"))
    return read_experiment(preset).model_copy(update={"pool": pool})


@pytest.mark.parametrize(("preset", "classes", "each", "wanted"), PAPER)
def test_the_worlds_of_a_paper_preset_have_the_counts_of_the_paper(
    preset: str, classes: int, each: int, wanted: dict[float, tuple[int, int, int]], tmp_path: Path
) -> None:
    experiment = on_labels_alone(preset, classes, each, tmp_path)
    assert experiment.imbalance.factors == tuple(wanted)
    assert experiment.start.initial == classes * each // 10
    assert experiment.budget == classes * each // 20
    worlds: dict[float, World] = {trial.factor: open_world(trial) for trial in first_of_each_factor(experiment)}
    for factor, (frequent, rare, total) in wanted.items():
        world = worlds[factor]
        left = world.left(world.split.labelled)
        assert world.train.take(world.split.labelled).counts().tolist() == [each // 10] * classes
        assert world.train.take(left).counts().tolist() == [frequent] * (classes // 2) + [rare] * (classes // 2)
        assert len(world.split.labelled) + len(left) == total
    assert len({world.split.labelled.tobytes() for world in worlds.values()}) == 1  # it depends on the seed alone


def first_of_each_factor(experiment: Experiment) -> list:
    found = {}
    for trial in trials_of(experiment):
        found.setdefault(trial.factor, trial)
    return list(found.values())
