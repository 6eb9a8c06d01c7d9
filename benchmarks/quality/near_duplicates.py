"""`python -m benchmarks.quality.near_duplicates --data FOLDER`: which altered copies are found as near-duplicates.

Different images are the 10,000 test images of CIFAR-10, four times as large; altered copies are made of some of them.
A copy is found if it and its original are a pair as on the page: by close hashes, or by very close features. The table
goes to docs/results/near-duplicates.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from tailwise.campaign.duplicates import (
    CLOSE_BITS,
    CLOSE_COSINE,
    LEAST_COSINE,
    MOST_BITS,
    are_alike,
    as_hashes,
    close_features,
    close_pairs,
    hash_extractor,
)
from tailwise.campaign.features import Extractor, find_extractor
from tailwise.files import write_whole
from tailwise.pools.datasets import cifar10
from tailwise.pools.decode import read_pixels
from tailwise.processes import one_blas_thread
from tailwise.types import FloatArray

RESULTS = Path("docs/results/near-duplicates")
ENLARGED = 4
BATCH = 256
IMAGES, COPIED = 10_000, 300
Edit = Callable[[Image.Image, np.random.Generator], bytes]


def _bytes(image: Image.Image, kind: str = "PNG", **options: int) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def _crop(image: Image.Image, rng: np.random.Generator, share: float) -> bytes:
    """Cut this share of the width and of the height, somewhere."""
    wide, high = image.size
    left, top = (rng.uniform(0, share * side) for side in (wide, high))
    box = (left, top, left + (1 - share) * wide, top + (1 - share) * high)
    return _bytes(image.resize((round((1 - share) * wide), round((1 - share) * high)), Image.Resampling.BICUBIC, box))


def _rotate(image: Image.Image, rng: np.random.Generator, degrees: float) -> bytes:
    sign = rng.choice([-1, 1])
    return _bytes(image.rotate(sign * degrees, Image.Resampling.BICUBIC, fillcolor=(128, 128, 128)))


EDITS: Mapping[str, Edit] = {
    "half the size": lambda image, _: _bytes(image.resize((image.width // 2, image.height // 2))),
    "JPEG, quality 75": lambda image, _: _bytes(image, "JPEG", quality=75),
    "JPEG, quality 30": lambda image, _: _bytes(image, "JPEG", quality=30),
    "20 % brighter": lambda image, _: _bytes(ImageEnhance.Brightness(image).enhance(1.2)),
    "30 % more contrast": lambda image, _: _bytes(ImageEnhance.Contrast(image).enhance(1.3)),
    "grey": lambda image, _: _bytes(image.convert("L").convert("RGB")),
    "2 % cropped": partial(_crop, share=0.02),
    "5 % cropped": partial(_crop, share=0.05),
    "10 % cropped": partial(_crop, share=0.10),
    "rotated by 2°": partial(_rotate, degrees=2),
    "rotated by 5°": partial(_rotate, degrees=5),
    "mirrored": lambda image, _: _bytes(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)),
}


def outputs(extractors: Sequence[Extractor], files: Sequence[bytes]) -> list[FloatArray]:
    """What each extractor makes of image files, (n, d) each; they see the pixels that a campaign shows them."""
    made: list[list[FloatArray]] = [[] for _ in extractors]
    for start in range(0, len(files), BATCH):
        for extractor, rows in zip(extractors, made, strict=True):
            part = files[start : start + BATCH]
            pixels = np.stack([read_pixels(io.BytesIO(file), extractor.side, "an image") for file in part])
            rows.append(extractor.features(pixels))
    return [np.concatenate(rows) for rows in made]


def enlarged(pixels: NDArray[np.uint8]) -> Image.Image:
    """A small image as a larger one."""
    image = Image.fromarray(pixels)
    return image.resize((ENLARGED * image.width, ENLARGED * image.height), Image.Resampling.BICUBIC)


def table(backbone: str, images: Sequence[NDArray[np.uint8]]) -> str:
    """How many copies are found, edit by edit, and how many pairs of different images."""
    extractors = [find_extractor(backbone), hash_extractor()]
    larger, rng = [enlarged(one) for one in images], np.random.default_rng(0)
    copied = np.sort(rng.choice(len(images), COPIED, replace=False))
    features, words = outputs(extractors, [_bytes(one, "BMP") for one in larger])
    hashes = as_hashes(words)
    lines = [f"| copy ({extractors[0].name} features) | by hashes | with close features |", "|---|---|---|"]
    for name, edit in EDITS.items():
        copies, their_words = outputs(extractors, [edit(larger[at], rng) for at in copied.tolist()])
        both = np.concatenate([features[copied], copies])
        pairs = np.stack([np.arange(COPIED), COPIED + np.arange(COPIED)], axis=1)
        bits = np.bitwise_count(hashes[copied] ^ as_hashes(their_words))
        by_hash = (bits <= MOST_BITS) & are_alike(both, pairs, LEAST_COSINE)
        close = (bits <= CLOSE_BITS) & are_alike(both, pairs, CLOSE_COSINE)
        lines.append(f"| {name} | {by_hash.mean():.0%} | {(by_hash | close).mean():.0%} |")
    pairs = close_pairs(hashes)
    pairs = pairs[are_alike(features, pairs)]
    every = np.unique(np.concatenate([pairs, close_features(features, hashes)]), axis=0)
    lines.append(f"| pairs among {len(images):,} different images | {len(pairs)} | {len(every)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure with one kind of features or more, and write the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.near_duplicates", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the binary files of CIFAR-10")
    parser.add_argument("--backbone", action="append", help="simple, where it is not given")
    given = parser.parse_args()
    images = list(cifar10(given.data).test.inputs[np.arange(IMAGES)])
    with one_blas_thread():
        text = "\n".join(table(backbone, images) for backbone in given.backbone or ["simple"])
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_whole(RESULTS / "table.md", text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
