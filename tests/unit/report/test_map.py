"""The colours of classes on the map: seen on their ground, and different also for colour-blind people."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.campaign.projection import Projection
from tailwise.report.figures import figure_bytes
from tailwise.report.map import DARK_GROUND, LIGHT_GROUND, class_colours, map_figure

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIGHTS = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
GROUNDS = pytest.mark.parametrize(("colours", "ground"), [(LIGHT_GROUND, "#ffffff"), (DARK_GROUND, "#181c21")])


def linear(colours: tuple[str, ...]) -> np.ndarray:
    """Linear RGB, (n, 3)."""
    values = np.array([[int(one[at : at + 2], 16) / 255 for at in (1, 3, 5)] for one in colours])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """OKLab of linear RGB, by Ottosson's matrices."""
    cones = np.array(
        [[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
         [0.0883024619, 0.2817188376, 0.6299787005]]
    )  # fmt: skip
    lab = np.array(
        [[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
         [0.0259040371, 0.7827717662, -0.8086757660]]
    )  # fmt: skip
    return np.asarray(np.cbrt(np.clip(rgb @ cones.T, 0, None)) @ lab.T)


def least_apart(rgb: np.ndarray) -> float:
    lab = oklab(np.clip(rgb, 0, 1))
    apart = np.linalg.norm(lab[:, None] - lab[None], axis=2) + 9 * np.eye(len(lab))
    return float(apart.min())


@GROUNDS
def test_every_colour_stands_out_from_its_ground(colours: tuple[str, ...], ground: str) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    own, below = linear(colours) @ weights, (linear((ground,)) @ weights)[0]
    contrast = (np.maximum(own, below) + 0.05) / (np.minimum(own, below) + 0.05)
    assert contrast.min() >= 3


@GROUNDS
def test_ten_colours_differ_for_everyone_and_44_for_most(colours: tuple[str, ...], ground: str) -> None:
    assert ground
    assert least_apart(linear(colours[:10])) > 0.15
    for matrix in SIGHTS.values():
        assert least_apart(linear(colours[:10]) @ np.array(matrix).T) > 0.06
    assert least_apart(linear(colours[:44])) > 0.07


def test_after_48_classes_colours_begin_again() -> None:
    assert class_colours(50)[48:] == class_colours(2)
    assert class_colours(1, dark=True) == [DARK_GROUND[0]]


def test_a_figure_names_the_classes_it_shows_with_their_counts() -> None:
    xy = np.random.default_rng(0).uniform(size=(6, 2)).astype(np.float32)
    projection = Projection(np.arange(6), xy, "pca", "simple")
    figure = map_figure(projection, np.array([0, 0, 1, -1, -1, -1]), ["owl", "kite", "heron"], "Birds")
    (legend,) = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["kite (1)", "owl (2)", "without a class (3)"]
    drawn = np.concatenate([np.asarray(one.get_offsets()) for one in figure.axes[0].collections])
    assert sorted(map(tuple, drawn.round(6).tolist())) == sorted(
        map(tuple, xy.round(6).astype(float).round(6).tolist())
    )
    assert figure_bytes(figure, "png").startswith(b"\x89PNG")
