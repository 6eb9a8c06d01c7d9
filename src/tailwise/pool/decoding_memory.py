"""How much memory Pillow needs to decode an image, by its header: an open image in, bytes out.

A file of 3 kB can claim so many pixels that decoding it takes gigabytes. The numbers were measured.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

JPEG_KINDS = frozenset({"JPEG", "MPO"})
PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # all others have 4
WEBP_BYTES = 16  # per pixel: the frame, the one before, a copy as bytes, and the image
COEFFICIENT_BYTES = 2  # of a JPEG
START_OF_SCAN, STAND_ALONE = 0xDA, frozenset({0x01, *range(0xD0, 0xDA)})
BITS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, TILE_WIDTH, TILE_LENGTH = 258, 274, 277, 278, 322, 323  # tags of TIFF


def image_bytes(image: ImageFile) -> int:
    """Bytes of the decoded image at its present size, with what its decoder holds beside it, but for a JPEG's scans."""
    pixels = image.width * image.height
    if image.format == "WEBP":
        return WEBP_BYTES * pixels
    needed = PIXEL_BYTES.get(image.mode, 4) * pixels
    return needed + _tiff_bytes(image, needed) if image.format == "TIFF" else needed


def scan_bytes(image: ImageFile, file: IO[bytes]) -> int:
    """Bytes that the scans of a JPEG need before any pixel is made, at any scale; 0 where they come one by one."""
    if image.format not in JPEG_KINDS:
        return 0
    layers: list[tuple[int, int, int, int]] = image.layer  # type: ignore[attr-defined]  # of a JPEG: id, h, v, table
    if "progressive" not in image.info and _components_of_first_scan(file) == len(layers):
        return 0
    widest, tallest = max(layer[1] for layer in layers), max(layer[2] for layer in layers)
    share = sum(layer[1] * layer[2] for layer in layers) / max(1, widest * tallest)
    return int(COEFFICIENT_BYTES * share * image.width * image.height)


def _components_of_first_scan(file: IO[bytes]) -> int:
    """How many colour components a JPEG's first scan holds; 0 where the file is damaged."""
    at = file.tell()
    try:
        file.seek(2)
        while True:
            prefix, marker = struct.unpack("BB", file.read(2))
            while prefix == 0xFF and marker == 0xFF:  # fill bytes
                (marker,) = struct.unpack("B", file.read(1))
            if prefix != 0xFF:
                return 0
            if marker in STAND_ALONE:
                continue
            (length,) = struct.unpack(">H", file.read(2))
            if marker == START_OF_SCAN:
                (components,) = struct.unpack("B", file.read(1))
                return int(components)
            file.seek(max(0, length - 2), 1)
    except struct.error:
        return 0
    finally:
        file.seek(at)


def _tiff_bytes(image: ImageFile, needed: int) -> int:
    """A compressed strip or tile is unpacked as a whole; an image that is not upright is copied as it is turned."""
    tags = image.tag_v2  # type: ignore[attr-defined]  # of a TIFF
    turned = needed if tags.get(ORIENTATION, 1) != 1 else 0
    if not image.tile or image.tile[0][0] != "libtiff":
        return turned
    bits = tags.get(BITS, (1,))
    rows = tags.get(ROWS_PER_STRIP, image.height)
    width = tags.get(TILE_WIDTH, image.width)
    height = tags.get(TILE_LENGTH, rows if 0 < rows < image.height else image.height)
    return int(turned + width * height * max(bits) * max(len(bits), tags.get(SAMPLES, 1)) // 8)
