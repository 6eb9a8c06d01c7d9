"""Outlines of ten kinds of leaves: a name and a generator in, polygons and veins out.

A leaf stands upright: its stalk ends at (0, 0), its tip is at (0, 1), x goes to the right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (n, 2)
Numbers = NDArray[np.float64]  # (n,)

ALONG: Numbers = np.linspace(0, 1, 420)  # t: from the stalk to the tip
ROUND: Numbers = np.linspace(-np.pi, np.pi, 720)  # φ: once around, 0 at the tip


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A leaf without colours."""

    blades: tuple[Points, ...]
    veins: tuple[Points, ...]
    foot: tuple[float, float] = (0.0, 0.0)  # where the stalk begins
    bands: tuple[Points, ...] = ()  # pale marks across the blade


def shape(kind: str, rng: np.random.Generator) -> Shape:
    """One leaf of a kind, a little different each time.

    >>> len(shape("Clover", np.random.default_rng(0)).blades)
    3
    """
    return SHAPES[kind](rng)


def _oak(rng: np.random.Generator) -> Shape:
    """Round lobes with narrow bays between them, widest beyond the middle."""
    count, shift = rng.uniform(4.2, 4.9), rng.uniform(-0.1, 0.1)

    def side(phase: float) -> tuple[Numbers, Numbers]:
        lobe = np.abs(np.sin(np.pi * (count * ALONG + phase))) ** 0.8
        width = 0.36 * np.sin(np.pi * ALONG**1.25) ** 0.75 * (0.42 + 0.58 * lobe)
        return width, ALONG + 0.05 * lobe * np.sin(np.pi * ALONG)

    return Shape((_two_sided(side(shift), side(shift + rng.uniform(-0.12, 0.12))),), _feathered(0.2, 5, rng))


def _maple(rng: np.random.Generator) -> Shape:
    """Five pointed lobes with a few large teeth."""
    half = [
        (0, 1), (0.055, 0.89), (0.16, 0.86), (0.135, 0.75), (0.165, 0.60), (0.29, 0.70), (0.33, 0.81), (0.42, 0.755),
        (0.62, 0.82), (0.56, 0.68), (0.64, 0.61), (0.53, 0.545), (0.36, 0.43), (0.49, 0.415), (0.68, 0.38),
        (0.54, 0.27), (0.56, 0.17), (0.38, 0.19), (0.2, 0.1), (0.06, 0.06), (0, 0.09),
    ]  # fmt: skip
    return _palmate(half, [(0, 0.95), (0.57, 0.78), (0.6, 0.36)], rng, softness=1, cut=0.07, foot=0.09)


def _birch(rng: np.random.Generator) -> Shape:
    """A triangle with a drawn-out tip and a saw for an edge."""
    width = _bell(ALONG, 0.62, 1.45, rng.uniform(0.28, 0.33))
    edge = _toothed(width, teeth=int(rng.integers(17, 22)), depth=0.03)
    return Shape((_two_sided((edge, ALONG), (edge[:], ALONG)),), _feathered(0.25, 7, rng, reach=0.8))


def _willow(rng: np.random.Generator) -> Shape:
    """A lance, slightly bent."""
    width = _toothed(_bell(ALONG, 0.85, 1.0, rng.uniform(0.075, 0.1)), teeth=40, depth=0.003)
    bend = rng.uniform(-0.12, 0.12)
    veins = _feathered(0.07, 12, rng, reach=0.8)
    return Shape((_bent(_two_sided((width, ALONG), (width, ALONG)), bend),), tuple(_bent(vein, bend) for vein in veins))


def _ginkgo(rng: np.random.Generator) -> Shape:
    """A fan with a notch, its veins like rays."""
    half = rng.uniform(0.95, 1.15)
    angle = np.linspace(-half, half, 300)
    waves = 0.02 * np.sin(angle * rng.uniform(9, 13) + rng.uniform(0, 6)) + 0.012 * np.sin(angle * 31)
    notch = rng.uniform(0.25, 0.42) * np.exp(-(((angle - rng.uniform(-0.06, 0.06)) / 0.045) ** 2))
    shoulders = 0.12 * (np.abs(angle) / half) ** 6
    radius = 0.86 + waves - notch - shoulders
    arc = np.column_stack([np.sin(angle), np.cos(angle)]) * radius[:, None]
    inner = np.linspace(0.02, 0.9, 40)[:, None]
    swing = 0.06 * np.sin(np.pi * inner) * np.array([[0.0, 1.0]])
    blade = np.concatenate([arc[0] * inner - swing, arc, (arc[-1] * inner - swing)[::-1]])
    rays = tuple(
        _line((0, 0), 0.93 * np.array([np.sin(a), np.cos(a)]) * 0.86) for a in np.linspace(-0.9, 0.9, 23) * half
    )
    return Shape((blade,), rays)


def _clover(rng: np.random.Generator) -> Shape:
    """Three hearts with their points together, each with a pale mark."""
    heart, middle = _heart(ROUND), np.array([0, 0.48])  # the point of each heart is in the middle
    marks = np.column_stack([np.linspace(-0.17, 0.17, 21), 0.23 + 0.13 * np.cos(np.linspace(-1.5, 1.5, 21))])
    blades, veins, bands = [], [], []
    for turn in (0.0, 2.0, -2.0):
        angle = turn + rng.normal(0, 0.06)
        size = rng.uniform(0.94, 1.06)
        blades.append(middle + _turned(heart * [0.56, 0.53] * size, angle))
        veins.append(middle + _turned(_line((0, 0), (0, 0.42)) * size, angle))
        bands.append(middle + _turned(marks * size, angle))
    return Shape(tuple(blades), tuple(veins), (0.0, 0.48), tuple(bands))


def _linden(rng: np.random.Generator) -> Shape:
    """A heart with its point up, one half larger, finely toothed."""
    heart = _heart(ROUND) * [0.86, -0.86] + [0, 0.9]
    lean = rng.choice([-1, 1]) * rng.uniform(0.03, 0.09)
    heart[:, 0] *= 1 + lean * np.sign(heart[:, 0])
    heart = heart[heart[:, 1].argmax() :].tolist() + heart[: heart[:, 1].argmax()].tolist()
    blade = _crenate(np.array(heart), teeth=54, depth=0.012)
    blade = np.concatenate([blade, [[0.0, 1.0]]])
    return Shape((blade,), _feathered(0.38, 6, rng, first=0.14, reach=0.8), (0.0, 0.16))


def _holly(rng: np.random.Generator) -> Shape:
    """Spines with round bays between them."""
    count, depth = int(rng.integers(4, 6)), rng.uniform(0.4, 0.5)
    bays = np.abs(np.sin(np.pi * (count * ALONG + 0.5)))
    envelope = np.sin(np.pi * ALONG) ** 0.55 * np.minimum(1, (1 - ALONG) / 0.1)  # the tip is a spine, too
    width = rng.uniform(0.25, 0.29) * envelope * (1 - depth * bays**0.9) / (1 - 0.2 * depth)
    return Shape((_two_sided((width, ALONG), (width, ALONG)),), _feathered(0.13, count, rng, reach=0.8))


def _aspen(rng: np.random.Generator) -> Shape:
    """A coin with blunt teeth and a short tip."""
    teeth = int(rng.integers(19, 24))
    radius = 0.46 * (1 + 0.028 * np.cos(teeth * ROUND)) + 0.1 * np.exp(-((ROUND / 0.11) ** 2))
    radius -= 0.035 * np.exp(-(((np.abs(ROUND) - np.pi) / 0.4) ** 2))
    blade = np.column_stack([np.sin(ROUND) * 1.04, np.cos(ROUND)]) * radius[:, None] + [0, 0.45]
    return Shape((blade,), _feathered(0.34, 4, rng, first=0.03, reach=0.75), (0.0, 0.03))


def _ivy(rng: np.random.Generator) -> Shape:
    """Five smooth triangles."""
    half = [
        (0, 1), (0.07, 0.86), (0.2, 0.64), (0.32, 0.64), (0.6, 0.66), (0.5, 0.48), (0.42, 0.36), (0.5, 0.26),
        (0.52, 0.08), (0.36, 0.04), (0.2, 0.0), (0.08, 0.06), (0, 0.14),
    ]  # fmt: skip
    return _palmate(half, [(0, 0.93), (0.52, 0.62), (0.45, 0.12)], rng, softness=3, cut=0.14, foot=0.14)


SHAPES: Mapping[str, Callable[[np.random.Generator], Shape]] = {
    "Oak": _oak, "Maple": _maple, "Birch": _birch, "Willow": _willow, "Ginkgo": _ginkgo, "Clover": _clover,
    "Linden": _linden, "Holly": _holly, "Aspen": _aspen, "Ivy": _ivy,
}  # fmt: skip


def _two_sided(right: tuple[Numbers, Numbers], left: tuple[Numbers, Numbers]) -> Points:
    """A blade from the widths and heights of its two sides."""
    return np.concatenate([np.column_stack(right), (np.column_stack(left) * [-1, 1])[::-1]])


def _palmate(
    half: Sequence[tuple[float, float]], tips: Sequence[tuple[float, float]], rng: np.random.Generator, *,
    softness: int, cut: float, foot: float,
) -> Shape:  # fmt: skip
    """A blade from the corners of its right half, from the tip to the foot, and a vein into each lobe."""
    right = np.array(half, float)
    mirrored = right[-2:0:-1] * [-1, 1]
    corners = np.concatenate([right, mirrored])
    blade = _softened(corners + rng.normal(0, 0.008, corners.shape), softness, cut)
    both = [*tips, *((-x, y) for x, y in tips if x)]
    return Shape((blade,), tuple(_line((0, foot), tip) for tip in both), (0.0, foot))


def _feathered(
    width: float, pairs: int, rng: np.random.Generator, *, first: float = 0.12, reach: float = 0.7
) -> tuple[Points, ...]:
    """The midrib, and pairs of veins that rise from it."""
    veins = [_line((0, max(0.0, first - 0.12)), (0, 0.97))]
    for height in np.linspace(first, 0.78, pairs):
        span = reach * width * np.sin(np.pi * np.clip(height + 0.15, 0, 1)) ** 0.6 + 0.02
        for side in (-1, 1):
            start = height + rng.normal(0, 0.008)
            veins.append(_line((0, start), (side * span, start + 0.55 * span + 0.03), sag=0.12 * span))
    return tuple(veins)


def _bell(along: Numbers, rise: float, fall: float, width: float) -> Numbers:
    """Zero at both ends, as wide as `width` between."""
    curve = along**rise * (1 - along) ** fall
    return np.asarray(width * curve / curve.max())


def _toothed(width: Numbers, *, teeth: int, depth: float) -> Numbers:
    """Teeth that point to the tip."""
    saw = (ALONG * teeth) % 1.0
    return np.asarray(width + depth * (saw - 0.4) * np.sin(np.pi * ALONG) ** 0.7)


def _crenate(blade: Points, *, teeth: int, depth: float) -> Points:
    """Blunt teeth around a closed blade."""
    middle = blade.mean(axis=0)
    wave = 1 + depth * np.cos(np.linspace(0, 2 * np.pi * teeth, len(blade)))
    return np.asarray((blade - middle) * wave[:, None] + middle)


def _heart(angle: Numbers) -> Points:
    """Pointed at (0, 0), its lobes up to about y = 1."""
    across = 16 * np.sin(angle) ** 3
    up = 13 * np.cos(angle) - 5 * np.cos(2 * angle) - 2 * np.cos(3 * angle) - np.cos(4 * angle)
    return np.column_stack([across / 29, (up + 17) / 29])


def _softened(corners: Points, times: int, cut: float) -> Points:
    """Corners cut off, again and again (Chaikin)."""
    for _ in range(times):
        following = np.roll(corners, -1, axis=0)
        pairs = [(1 - cut) * corners + cut * following, cut * corners + (1 - cut) * following]
        corners = np.stack(pairs, axis=1).reshape(-1, 2)
    return corners


def _line(start: Sequence[float], end: Sequence[float] | Points, sag: float = 0.0) -> Points:
    steps = np.linspace(0, 1, 24)[:, None]
    straight = np.asarray(start, float) * (1 - steps) + np.asarray(end, float) * steps
    return np.asarray(straight - sag * np.sin(np.pi * steps) * np.array([[0.0, 1.0]]))


def _turned(points: Points, angle: float) -> Points:
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.asarray(points @ np.array([[cosine, sine], [-sine, cosine]]))


def _bent(points: Points, bend: float) -> Points:
    return np.asarray(points + np.column_stack([bend * points[:, 1] ** 2, np.zeros(len(points))]))
