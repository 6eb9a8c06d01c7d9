"""Photographs of leaves that were never taken: a kind and a generator in, a picture out, with Pillow and numpy alone.

Equal generators give equal pictures.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from tailwise.files import write_whole

from .shapes import Points, Shape, shape

Mask = NDArray[np.floating]  # (h, w), 0 to 1
Pixels = NDArray[np.floating]  # (h, w, 3), 0 to 255
Colour = tuple[int, int, int]

FORMATS = ((840, 560), (840, 560), (560, 840), (700, 700))  # pixels: wide, wide, tall, square
FINE = 2  # outlines are drawn so many times larger, then made smaller
GROUNDS: Sequence[Colour] = (
    (221, 212, 199), (206, 214, 222), (215, 222, 208), (226, 210, 207), (214, 209, 222), (229, 224, 214),
    (200, 206, 208),
)  # fmt: skip
TINTS: Mapping[str, Sequence[Colour]] = {
    "Oak": ((150, 92, 40), (128, 74, 38), (164, 116, 48), (112, 108, 44)),
    "Maple": ((184, 44, 30), (204, 78, 28), (158, 36, 38), (214, 112, 36)),
    "Birch": ((196, 172, 48), (142, 156, 52), (212, 188, 70)),
    "Willow": ((122, 142, 84), (146, 156, 92), (104, 128, 88)),
    "Ginkgo": ((226, 186, 44), (212, 190, 60), (170, 178, 66)),
    "Clover": ((74, 136, 62), (92, 148, 66), (58, 118, 58)),
    "Linden": ((110, 146, 58), (136, 158, 62), (168, 166, 62)),
    "Holly": ((30, 84, 50), (38, 98, 54), (28, 72, 48)),
    "Aspen": ((222, 170, 40), (202, 182, 58), (150, 160, 60)),
    "Ivy": ((44, 88, 56), (58, 102, 60), (66, 92, 72)),
}
SIZES = {"Maple": 0.9, "Willow": 1.12, "Ginkgo": 0.9, "Clover": 0.92, "Aspen": 0.88, "Ivy": 0.9}  # beside an oak
SPOTTED = {"Oak": 26, "Maple": 16, "Birch": 12, "Linden": 6, "Aspen": 14, "Ginkgo": 5}  # dark spots, at most
GLOSSY = {"Holly": 0.34, "Ivy": 0.14}  # how much light comes back


@dataclass(frozen=True, slots=True)
class Placing:
    """Where a leaf lies in its picture."""

    middle: tuple[float, float]
    scale: float  # pixels from stalk to tip
    angle: float

    def pixels(self, points: Points) -> Points:
        """Leaf coordinates to pixels, y downwards."""
        turned = (points - [0, 0.45]) @ np.array(
            [[np.cos(self.angle), np.sin(self.angle)], [np.sin(self.angle), -np.cos(self.angle)]]
        )
        return np.asarray(turned * self.scale + self.middle)


def write_leaf(path: Path, kind: str, rng: np.random.Generator) -> None:
    """Draw one and store it as a JPEG."""
    buffer = io.BytesIO()
    draw_leaf(kind, rng).save(buffer, "JPEG", quality=90)
    write_whole(path, buffer.getvalue())


def draw_leaf(kind: str, rng: np.random.Generator) -> Image.Image:
    """A leaf on paper, lit from the upper left.

    >>> draw_leaf("Oak", np.random.default_rng(1)).mode
    'RGB'
    """
    size = FORMATS[int(rng.integers(len(FORMATS)))]
    leaf, place = shape(kind, rng), _placing(kind, size, rng)
    blade = np.max([_filled(size, place.pixels(part)) for part in leaf.blades], axis=0)
    stalk = _stalk(size, leaf, place, rng)
    tint = _one_of(TINTS[kind], rng) + rng.normal(0, 7, 3)
    ground = _shadowed(_ground(size, rng), np.maximum(blade, stalk), place.scale)
    body = _flesh(kind, size, leaf, place, blade, tint, rng)
    wood = np.broadcast_to(0.62 * tint + [22, 10, 4], body.shape)
    whole = _over(_over(ground, wood, stalk), body, blade)
    grain = rng.normal(0, 1.5, whole.shape[:2])[..., None]
    return Image.fromarray(np.clip(whole + grain, 0, 255).astype(np.uint8))


def _placing(kind: str, size: tuple[int, int], rng: np.random.Generator) -> Placing:
    """Near the middle, mostly upright where the picture is tall."""
    short = min(size)
    scale = short * rng.uniform(0.56, 0.73) * SIZES.get(kind, 1.0)
    angle = rng.normal(0, 0.35) if size[1] > size[0] else rng.choice([-1, 1]) * rng.uniform(0.2, 1.3)
    jitter = rng.normal(0, 0.035, 2) * short
    return Placing((size[0] / 2 + jitter[0], size[1] / 2 + jitter[1]), scale, float(angle))


def _ground(size: tuple[int, int], rng: np.random.Generator) -> Pixels:
    """Paper: a colour, soft clouds, darker corners, (h, w, 3)."""
    colour = _one_of(GROUNDS, rng)
    clouds = 9 * _clouds(size, 5, rng) + 3 * _clouds(size, 24, rng)
    down, across = np.mgrid[-1 : 1 : size[1] * 1j, -1 : 1 : size[0] * 1j]
    light = 10 - 20 * (0.45 * (across + down) / 2 + 0.5) - 12 * (across**2 + down**2) ** 1.5 / 2.8
    return np.asarray(colour + (clouds + light)[..., None], np.float32)


def _shadowed(ground: Pixels, leaf: Mask, scale: float) -> Pixels:
    """A wide soft shadow and a narrow one below the edge."""
    dark = np.zeros_like(leaf)
    for shift, blur, depth in ((0.028, 0.028, 0.34), (0.008, 0.008, 0.3)):
        moved = np.roll(leaf, (round(shift * scale), round(shift * scale)), (0, 1))
        dark = 1 - (1 - dark) * (1 - depth * _blurred(moved, blur * scale))
    return np.asarray(ground * (1 - dark[..., None] * np.array([1.0, 0.97, 0.9], np.float32)), np.float32)


def _flesh(
    kind: str, size: tuple[int, int], leaf: Shape, place: Placing, blade: Mask, tint: NDArray[np.floating],
    rng: np.random.Generator,
) -> Pixels:  # fmt: skip
    """The blade's own colours, (h, w, 3)."""
    along, across = _leaf_coordinates(size, place)
    second = _one_of(TINTS[kind], rng)
    mix = np.clip(0.5 + 0.4 * _clouds(size, 4, rng) + 0.5 * (along - 0.5), 0, 1)[..., None]
    colour = tint * (1 - 0.55 * mix) + second * 0.55 * mix
    fold = 0.07 * np.tanh(across * 14) * (1 if rng.random() < 0.5 else -1)
    light = 1.03 + fold + 0.06 * _clouds(size, 14, rng) + 0.035 * _clouds(size, 70, rng)
    rim = blade - _blurred(blade, 0.022 * place.scale)
    light -= 0.24 * np.clip(rim, 0, 1) * blade  # the edge turns away
    colour = colour * light[..., None]
    colour = _over(colour, 0.4 * colour, _spots(size, leaf, place, SPOTTED.get(kind, 0), rng))
    colour = _over(colour, np.minimum(1.25 * colour + 26, 255), _veins(size, kind, leaf, place))
    shine = GLOSSY.get(kind, 0.03) * np.clip(_clouds(size, 8, rng) + 0.5 * np.sin(across * 16), 0, 2) * 90
    return np.asarray(colour + shine[..., None], np.float32)


def _veins(size: tuple[int, int], kind: str, leaf: Shape, place: Placing) -> Mask:
    """Thin and pale, the main ones stronger; and the pale bands of clover."""
    main = 0 if kind == "Ginkgo" else len(leaf.veins) if kind in ("Maple", "Ivy", "Clover") else 1
    strong = _stroked(size, [place.pixels(vein) for vein in leaf.veins[:main]], 0.012 * place.scale)
    thin = _stroked(size, [place.pixels(vein) for vein in leaf.veins[main:]], 0.006 * place.scale)
    found = _blurred(np.maximum(0.62 * strong, (0.5 if main else 0.3) * thin), 0.8)
    bands = _stroked(size, [place.pixels(band) for band in leaf.bands], 0.035 * place.scale)
    return np.asarray(np.maximum(found, 0.5 * _blurred(bands, 3)))


def _spots(
    size: tuple[int, int], leaf: Shape, place: Placing, most: int, rng: np.random.Generator
) -> Mask:  # fmt: skip
    """Where it has begun to wither."""
    canvas = Image.new("L", size)
    pen = ImageDraw.Draw(canvas)
    for _ in range(int(rng.integers(0, most + 1))):
        where = leaf.blades[0][rng.integers(len(leaf.blades[0]))] * [rng.uniform(0, 0.9), 1]
        (x, y), radius = place.pixels(where[None])[0], rng.uniform(1.0, 4.2)
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=int(rng.uniform(90, 200)))
    return _blurred(np.asarray(canvas, np.float32) / 255, 1.0)


def _stalk(size: tuple[int, int], leaf: Shape, place: Placing, rng: np.random.Generator) -> Mask:
    steps = np.linspace(0, 1, 40)[:, None]
    length, swing = rng.uniform(0.24, 0.36) + leaf.foot[1], rng.uniform(-0.14, 0.14)
    path = np.array(leaf.foot) + np.concatenate([swing * steps**2, -length * steps], axis=1)
    return _stroked(size, [place.pixels(path)], 0.017 * place.scale)


def _leaf_coordinates(size: tuple[int, int], place: Placing) -> tuple[Mask, Mask]:
    """How far along the leaf, and how far from its midrib, each pixel is."""
    down, across = np.mgrid[: size[1], : size[0]].astype(np.float32)
    x, y = (across - place.middle[0]) / place.scale, (down - place.middle[1]) / place.scale
    sideways = x * np.cos(place.angle) + y * np.sin(place.angle)
    up = x * np.sin(place.angle) - y * np.cos(place.angle) + 0.45
    return up, sideways


def _filled(size: tuple[int, int], outline: Points) -> Mask:
    canvas = Image.new("L", (size[0] * FINE, size[1] * FINE))
    ImageDraw.Draw(canvas).polygon([(x * FINE, y * FINE) for x, y in outline], fill=255)
    return np.asarray(canvas.reduce(FINE), np.float32) / 255


def _stroked(size: tuple[int, int], paths: Sequence[Points], width: float) -> Mask:
    canvas = Image.new("L", (size[0] * FINE, size[1] * FINE))
    pen = ImageDraw.Draw(canvas)
    for path in paths:
        line = [(x * FINE, y * FINE) for x, y in path]
        pen.line(line, fill=255, width=max(1, round(width * FINE)), joint="curve")
    return np.asarray(canvas.reduce(FINE), np.float32) / 255


def _blurred(mask: Mask, radius: float) -> Mask:
    picture = Image.fromarray((np.clip(mask, 0, 1) * 255).astype(np.uint8))
    return np.asarray(picture.filter(ImageFilter.GaussianBlur(radius)), np.float32) / 255


def _clouds(size: tuple[int, int], fineness: int, rng: np.random.Generator) -> Mask:
    """Smooth noise of mean 0 and deviation about 1, with so many grains across."""
    rows = max(2, round(fineness * size[1] / size[0]))
    grains = Image.fromarray(rng.normal(0, 1, (rows, fineness)).astype(np.float32))
    return np.asarray(grains.resize(size, Image.Resampling.BICUBIC), np.float32)


def _one_of(colours: Sequence[Colour], rng: np.random.Generator) -> NDArray[np.float32]:
    return np.array(colours[int(rng.integers(len(colours)))], np.float32)


def _over(below: Pixels, above: Pixels, mask: Mask) -> Pixels:
    share = mask[..., None]
    return np.asarray(below * (1 - share) + above * share, np.float32)
