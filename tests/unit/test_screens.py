"""What `make screens` draws and stores: leaves, equal for equal generators, and pictures of few colours."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from benchmarks.screens.campaign import COUNTS, SLIPS
from benchmarks.screens.colours import few_colours
from benchmarks.screens.leaves import FORMATS, TINTS, draw_leaf
from benchmarks.screens.shapes import SHAPES, shape


def drawn(kind: str, seed: int) -> np.ndarray:
    return np.asarray(draw_leaf(kind, np.random.default_rng(seed)))


def test_every_class_of_the_campaign_can_be_drawn() -> None:
    assert list(COUNTS) == list(SHAPES) == list(TINTS)
    assert {*SLIPS, *SLIPS.values()} <= set(COUNTS)


def test_equal_generators_draw_equal_leaves_and_others_do_not() -> None:
    first = drawn("Maple", 3)
    assert first.shape[1::-1] in FORMATS
    assert np.array_equal(first, drawn("Maple", 3))
    assert not np.array_equal(first, drawn("Maple", 8))


@pytest.mark.parametrize("kind", list(SHAPES))
def test_a_leaf_is_about_as_long_as_it_should_be_and_its_veins_lie_within(kind: str) -> None:
    leaf = shape(kind, np.random.default_rng(1))
    corners = np.concatenate(leaf.blades)
    low, high = corners.min(axis=0), corners.max(axis=0)
    assert 0.8 <= high[1] - low[1] <= 1.2
    assert high[0] - low[0] <= 1.8
    for vein in leaf.veins:
        assert (vein >= low - 0.05).all()
        assert (vein <= high + 0.05).all()


def test_small_spots_and_flat_grounds_keep_their_colour_in_a_picture_of_few_colours() -> None:
    shades = np.random.default_rng(0).integers([150, 60, 0], [250, 140, 60], (200, 200, 3)).astype(np.uint8)
    shades[90:96, 90:96] = (20, 120, 60)
    shades[:20] = (254, 255, 253)
    buffer = io.BytesIO()
    Image.fromarray(shades).save(buffer, "PNG")
    stored = Image.open(io.BytesIO(few_colours(buffer.getvalue())))
    assert stored.mode == "P"
    pixels = np.asarray(stored.convert("RGB")).astype(int)
    assert np.abs(pixels[90:96, 90:96] - [20, 120, 60]).mean() < 8
    assert (pixels[:20] == [254, 255, 253]).all()
