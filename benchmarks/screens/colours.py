"""Screenshots of 256 colours: a PNG in, one of about half the bytes out that looks the same."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.cluster import KMeans

COLOURS = 256
EXACT = 32  # the commonest colours stay as they are: the flat ones of a page
BITS = 2  # colours that differ in these alone are counted together


def few_colours(png: bytes) -> bytes:
    """The same picture with a palette of its own, dithered."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    colours = best_palette(np.asarray(picture).reshape(-1, 3))
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours.tobytes())
    dithered = picture.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)
    buffer = io.BytesIO()
    _exactly(picture, dithered, colours[:EXACT]).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _exactly(picture: Image.Image, dithered: Image.Image, exact: NDArray[np.uint8]) -> Image.Image:
    """Pillow takes a colour that is near; where there is the very one, it is taken."""
    pixels, places = np.asarray(picture), np.array(dithered)
    for place, colour in enumerate(exact):
        places[(pixels == colour).all(axis=2)] = place
    mended = Image.fromarray(places)  # grey, until it has a palette
    mended.putpalette(dithered.getpalette() or [])
    return mended


def best_palette(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Up to 256 colours (k, 3) for pixels (n, 3): the commonest, and k-means of all.

    A colour counts by the root of its number, or a small green leaf beside a large red one would turn grey.

    >>> best_palette(np.array([[0, 0, 0], [255, 255, 255], [0, 0, 0]], np.uint8)).tolist()
    [[0, 0, 0], [255, 255, 255]]
    """
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    exact = colours[np.argsort(-counts, kind="stable")[:EXACT]]
    if len(colours) <= EXACT:
        return exact
    bins, which = np.unique(colours >> BITS, axis=0, return_inverse=True)
    weights = np.sqrt(np.bincount(which.ravel(), counts))
    means = KMeans(min(len(bins), COLOURS - EXACT), n_init=1, max_iter=30, random_state=0).fit(
        bins * 2.0**BITS + 2.0 ** (BITS - 1), sample_weight=weights
    )
    return np.concatenate([exact, means.cluster_centers_.round().astype(np.uint8)])
