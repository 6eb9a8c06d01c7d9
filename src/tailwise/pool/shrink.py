"""Scales an image to RGB of a given size. Large images are converted in strips and scaled colour by colour.

So the memory is little more than that of the decoded image. The pixels are exactly those of converting the whole image
to RGB and scaling that: Pillow scales each colour by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling

MODES_16_BIT = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
WHOLE_PIXELS = 1 << 24  # of an image that is converted at once, which takes at most a quarter of a gigabyte
STRIP_PIXELS = 1 << 20
WHITE = (255, 255, 255, 255)

Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom


def shrink(
    image: Image, size: tuple[int, int], resample: Resampling, box: Box | None = None, reducing_gap: float | None = None
) -> Image:  # fmt: skip
    """A part of a loaded image (default: all of it), scaled and as RGB; see `PIL.Image.Image.resize`."""
    from PIL import Image as pil

    if image.mode in ("L", "RGB") and not image.has_transparency_data:
        return image.resize(size, resample, box, reducing_gap).convert("RGB")
    if image.width * image.height <= WHOLE_PIXELS:
        return to_rgb(image).resize(size, resample, box, reducing_gap)
    if image.mode == "1" or image.mode in MODES_16_BIT:
        return _band(image, "R").resize(size, resample, box, reducing_gap).convert("RGB")
    return pil.merge("RGB", [_band(image, band).resize(size, resample, box, reducing_gap) for band in "RGB"])


def to_rgb(image: Image) -> Image:
    """Every kind of pixel as RGB; what is transparent becomes white."""
    from PIL import Image as pil

    if image.mode in MODES_16_BIT:
        deep = np.asarray(image).astype(np.uint32)
        image = pil.fromarray(((deep + 128) // 257).astype(np.uint8))  # 65,535 is 255: Pillow would cut at 255
    if not image.has_transparency_data:
        return image.convert("RGB")
    page = pil.new("RGBA", image.size, WHITE)  # what lies hidden under transparent pixels is arbitrary
    page.alpha_composite(image.convert("RGBA"))
    return page.convert("RGB")


def _band(image: Image, band: str) -> Image:
    """One colour of an image as RGB, converted strip by strip."""
    from PIL import Image as pil

    plane = pil.new("L", image.size)
    rows = max(1, STRIP_PIXELS // image.width)
    for start in range(0, image.height, rows):
        strip = image.crop((0, start, image.width, min(start + rows, image.height)))
        plane.paste(to_rgb(strip).getchannel(band), (0, start))
    return plane
