"""Simple features: fixed, the same whatever stands beside an image, and good enough to tell classes apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.learners import make_learner
from tailwise.learners.features import (  # fmt: skip
    CELLS,
    CHUNK,
    DIRECTIONS,
    FILTERS,
    FLAT,
    PATCH,
    SIDE,
    THRESHOLD,
    WIDTH,
    filter_bank,
    simple_features,
)


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)


def test_features_of_an_image_do_not_depend_on_its_neighbours_to_the_last_bit() -> None:
    images = noise(CHUNK + 5)
    together = simple_features(images)
    alone = np.concatenate([simple_features(images[[row]]) for row in range(len(images))])
    assert together.shape == (CHUNK + 5, WIDTH)
    assert together.dtype == np.float32
    assert together.tobytes() == alone.tobytes()


def test_the_filters_are_the_same_in_every_run() -> None:
    rounded = (filter_bank() * 1000).round().astype(np.int64)
    assert hashlib.sha256(rounded.tobytes()).hexdigest()[:16] == "e3dd1f733abe437c"


def test_filter_responses_are_those_of_the_definition() -> None:
    images = noise(2, seed=3)
    halved = images.reshape(2, 32, 2, 32, 2, 3).astype(np.float64).mean(axis=(2, 4))
    features = simple_features(images)[:, : 2 * FILTERS]  # the upper left quadrant
    sums = np.zeros((2, 2, FILTERS))
    for image in range(2):
        for row in range(13):
            for column in range(13):
                patch = halved[image, row : row + PATCH, column : column + PATCH].ravel()
                patch = (patch - patch.mean()) / np.sqrt(patch.var() + FLAT)
                answer = patch @ filter_bank()
                sums[image, 0] += np.maximum(answer - THRESHOLD, 0)
                sums[image, 1] += np.maximum(-answer - THRESHOLD, 0)
    np.testing.assert_allclose(features, np.sqrt(sums / 13**2).reshape(2, -1), rtol=2e-3, atol=2e-3)


def test_gradients_point_where_grey_rises() -> None:
    ramp = np.broadcast_to(np.linspace(10, 250, SIDE).astype(np.uint8)[None, :, None], (SIDE, SIDE, 3))
    images = np.stack([ramp, ramp[:, ::-1], ramp.transpose(1, 0, 2), ramp.transpose(1, 0, 2)[::-1]])
    start = 8 * FILTERS
    cells = simple_features(images)[:, start : start + DIRECTIONS * CELLS**2].reshape(4, CELLS, CELLS, DIRECTIONS)
    quarter = DIRECTIONS // 4
    assert cells.sum(axis=(1, 2)).argmax(axis=1).tolist() == [0, 2 * quarter, quarter, 3 * quarter]


def test_colours_are_mean_and_spread_of_each_cell() -> None:
    images = noise(2, seed=5)
    cells = (images / 255).reshape(2, CELLS, 16, CELLS, 16, 3)
    expected = np.concatenate([cells.mean(axis=(2, 4)).reshape(2, -1), cells.std(axis=(2, 4)).reshape(2, -1)], axis=1)
    np.testing.assert_allclose(simple_features(images)[:, -6 * CELLS**2 :], expected, atol=1e-5)


def test_flat_images_have_finite_features() -> None:
    flat = np.stack([np.full((SIDE, SIDE, 3), level, np.uint8) for level in (0, 128, 255)])
    assert np.isfinite(simple_features(flat)).all()


def test_no_images_have_no_features() -> None:
    assert simple_features(noise(0)).shape == (0, WIDTH)


@pytest.mark.parametrize(
    "images", [np.zeros((2, 32, 32, 3), np.uint8), np.zeros((2, 64, 64, 3)), np.zeros((2, 64, 64), np.uint8)]
)
def test_other_images_are_refused(images: np.ndarray) -> None:
    with pytest.raises(BadInput, match="simple features need uint8"):
        simple_features(images)


def test_a_linear_head_tells_textures_apart_with_few_labels() -> None:
    rng = np.random.default_rng(0)
    images, labels = textures(rng, 400)
    features = simple_features(images)
    model = make_learner("linear").fit(features[:100], labels[:100], classes=4, seed=0)
    right = model.predict_proba(features[100:]).argmax(axis=1) == labels[100:]
    assert right.mean() > 0.95


def textures(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Stripes of four directions, of random length, phase, colour and contrast, in noise as strong as they are."""
    labels = rng.integers(4, size=count)
    down, across = np.mgrid[:SIDE, :SIDE]
    angles = (labels * np.pi / 4)[:, None, None]
    length, phase = rng.uniform(8, 20, (count, 1, 1)), rng.uniform(0, 6.28, (count, 1, 1))
    wave = np.sin(2 * np.pi / length * (across * np.cos(angles) + down * np.sin(angles)) + phase)
    grey = 128 + 30 * wave[..., None] * rng.uniform(0.5, 1, (count, 1, 1, 3)) + rng.normal(0, 30, (count, 64, 64, 3))
    return np.clip(grey, 0, 255).astype(np.uint8), labels.astype(np.int64)


def test_the_module_needs_neither_torch_nor_scipy_nor_sklearn() -> None:
    import subprocess
    import sys

    probe = "import sys, numpy as np; from tailwise.learners.features import simple_features as f;"
    probe += "f(np.zeros((1, 64, 64, 3), np.uint8)); print({'torch', 'scipy', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=Path("/"))
    assert done.stdout.strip() == "set()"
