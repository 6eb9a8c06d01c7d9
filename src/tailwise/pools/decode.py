"""Decodes image files that are not trusted: an open file in; square RGB pixels, a header or a JPEG for a page out.

Pillow is loaded with the first image and is given a fixed list of formats. A file of 3 kB can claim so many pixels
that decoding takes gigabytes: the memory is estimated from the header, and an image that needs too much is rejected.
Large images are converted in strips and scaled band by band; the pixels are those of scaling the whole image in RGB.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile

if TYPE_CHECKING:
    from PIL.Image import Image, Resampling
    from PIL.ImageFile import ImageFile


FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"}
MOST_PIXELS = 89_478_485  # Pillow's own limit; ours, whatever its global setting is
MOST_JPEG_PIXELS = 2 * MOST_PIXELS  # large photos are JPEGs, which are decoded at a fraction of their size
MOST_MEMORY = 512 << 20  # bytes to decode one image
ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
TAIL_BYTES = 4096  # some cameras pad their files with zeros
QUALITY = 88  # of a JPEG for a page
PNG_NOTES = {b"eXIf", b"tEXt", b"zTXt", b"iTXt"}  # the chunks that can hold an orientation
JPEG_KINDS = frozenset({"JPEG", "MPO"})
PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # all others have 4
WEBP_BYTES = 16  # per pixel: the frame, the one before, a copy as bytes, and the image
COEFFICIENT_BYTES = 2  # of a JPEG
START_OF_SCAN, STAND_ALONE = 0xDA, frozenset({0x01, *range(0xD0, 0xDA)})
BITS, ORIENTATION, SAMPLES, ROWS_PER_STRIP, TILE_WIDTH, TILE_LENGTH = 258, 274, 277, 278, 322, 323  # tags of TIFF
MODES_16_BIT = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
WHOLE_PIXELS = 1 << 24  # of an image that is converted at once, which takes at most a quarter of a gigabyte
STRIP_PIXELS = 1 << 20
WHITE = (255, 255, 255, 255)

Box: TypeAlias = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Header:
    """What an image says of itself."""

    width: int  # upright
    height: int
    orientation: int  # EXIF's, 1 to 8; 1 is upright


def read_pixels(file: IO[bytes], size: int, name: str) -> NDArray[np.uint8]:
    """The largest centred square, scaled to (size, size, 3): upright, RGB, transparent parts white, first frame.

    That is the shorter side scaled to `size` and a centre crop, without the long strip in between.
    """
    try:
        with _opened(file, 2 * size) as image:
            return _square(image, size)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(f"cannot use the image {name}: {_reason(error)}; repair or remove it") from error


def fault(file: IO[bytes], *, decode: bool = False) -> str | None:
    """Why an image cannot be used, by its header and its last bytes, or by decoding it; None where it can.

    A file whose end looks cut is decoded in any case: decoding decides, so no image is refused on a suspicion.
    """
    try:
        with _opened(file) as image:
            if decode or not _has_its_end(file, image.format or ""):
                _load_to_check(image)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        return _reason(error)
    return None


def read_header(file: IO[bytes]) -> Header:
    """The upright size of an image that can be used; BadFile with the bare reason where it cannot.

    Checks as much as `fault` does, which is quick: pixels are decoded only where the end of the file looks cut.
    """
    try:
        with _opened(file) as image:
            width, height = image.size
            if not _has_its_end(file, image.format or "") or (image.format == "PNG" and _has_late_notes(file)):
                _load_to_check(image)
            orientation = _noted_orientation(image)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(_reason(error)) from error
    return Header(height, width, orientation) if orientation >= 5 else Header(width, height, orientation)


def read_page(file: IO[bytes], longest: int, name: str) -> bytes:
    """An image for a browser: a JPEG without any metadata, upright, RGB, its longer side at most `longest` pixels."""
    try:
        with _opened(file, 2 * longest) as image:
            page = _fitted(image, longest)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(f"cannot show the image {name}: {_reason(error)}; repair or remove it") from error
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _opened(file: IO[bytes], detail: int | None = None) -> ImageFile:
    """The header of an image, rejected where it asks for too much.

    With `detail`, a JPEG will be decoded at 1/2, 1/4 or 1/8 where that leaves so many pixels of its shorter side, or
    where it would take too much memory otherwise.
    """
    start = file.read(512)
    if not start:
        raise BadFile("the file is empty")
    file.seek(0)
    image = _identified(file, start)
    width, height = image.size
    most = MOST_JPEG_PIXELS if image.format in JPEG_KINDS else MOST_PIXELS
    if width * height > most:
        raise BadFile(f"it claims {width} × {height} pixels, more than the {most:,} allowed")
    if image.mode not in MODES | MODES_16_BIT:
        raise BadFile(f"its pixels are of the kind {image.mode!r}, which has no agreed range; save it as 8-bit RGB")
    scale, needed = _scale(image, file, detail)
    if needed > MOST_MEMORY:
        raise BadFile(
            f"decoding its {width} × {height} pixels takes {needed >> 20:,} MB of memory, more than the "
            f"{MOST_MEMORY >> 20:,} MB allowed; save it as a smaller image or as a baseline JPEG"
        )
    if detail is not None:
        image.draft(None, (width // scale, height // scale))
    return image


def _scale(image: ImageFile, file: IO[bytes], detail: int | None) -> tuple[int, int]:
    """The divisor of an image's size at which to decode it, 1 but for a JPEG, and the bytes that this takes."""
    if image.format not in JPEG_KINDS:
        return 1, image_bytes(image)
    scans, whole = scan_bytes(image, file), image_bytes(image)
    scale = 8 if detail is None else 1
    while scale < 8 and (min(image.size) // (2 * scale) >= (detail or 1) or scans + whole // scale**2 > MOST_MEMORY):
        scale *= 2
    return scale, scans + whole // scale**2


def _identified(file: IO[bytes], start: bytes) -> ImageFile:
    """What Pillow takes a file for; BadFile for other formats."""
    from PIL import Image, UnidentifiedImageError
    from PIL.JpegImagePlugin import jpeg_factory

    try:
        if start.startswith(b"\xff\xd8\xff"):  # Image.open would warn of a large photo
            return jpeg_factory(file)
        return Image.open(file, formats=FORMATS)
    except (UnidentifiedImageError, SyntaxError, IndexError, TypeError, struct.error):
        kind = " but text such as SVG or HTML" if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else ""
        raise BadFile(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image{kind}") from None


def _load_to_check(image: ImageFile) -> None:
    """Decode an image, a JPEG at 1/8: its bytes are all read, and its pixels are not wanted."""
    image.draft(None, (1, 1))
    image.load()


def _reason(error: Exception) -> str:
    from PIL import Image

    if isinstance(error, BadFile):
        return str(error)
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"it claims more pixels than the {MOST_PIXELS:,} allowed"
    return f"it cannot be decoded ({str(error) or type(error).__name__})"


def _has_its_end(file: IO[bytes], kind: str) -> bool:
    """Whether the last bytes are those of a whole file; False too where the format does not show it."""
    at = file.tell()
    length = file.seek(0, os.SEEK_END)
    file.seek(max(length - TAIL_BYTES, 0))
    tail = file.read(TAIL_BYTES).rstrip(b"\0\r\n")
    file.seek(0)
    start = file.read(8)
    file.seek(at)
    if kind == "WEBP":
        return int.from_bytes(start[4:], "little") + 8 <= length
    return kind in ENDS and tail.endswith(ENDS[kind])


def _square(image: ImageFile, size: int) -> NDArray[np.uint8]:
    from PIL.Image import Resampling

    image.load()
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    square = shrink(image, (size, size), Resampling.BILINEAR, (left, top, left + side, top + side))
    return np.asarray(_upright(square, _orientation(image)))


def _fitted(image: ImageFile, longest: int) -> Image:
    from PIL.Image import Resampling

    image.load()
    scale = min(1.0, longest / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    page = _upright(shrink(image, size, Resampling.LANCZOS, reducing_gap=3.0), _orientation(image))
    page.info.clear()  # Pillow would write a comment of the file into the new one
    return page


def _noted_orientation(image: ImageFile) -> int:
    """EXIF's orientation, without decoding a PNG, which Pillow would do to look for notes behind the pixels."""
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & set(image.info):
        image.info["exif"] = b""  # _has_late_notes has found no late notes
    orientation = _orientation(image)
    return orientation if 1 <= orientation <= 8 else 1


def _has_late_notes(file: IO[bytes]) -> bool:
    """Whether a PNG has notes behind its pixels; damage counts as yes, so that decoding decides."""
    at = file.tell()
    try:
        file.seek(8)
        late = False
        while True:
            length, kind = struct.unpack(">I4s", file.read(8))
            if kind == b"IEND":
                return False
            if late and kind in PNG_NOTES:
                return True
            late = late or kind == b"IDAT"
            file.seek(length + 4, os.SEEK_CUR)
    except struct.error:
        return True
    finally:
        file.seek(at)


def _orientation(image: Image) -> int:
    """EXIF's orientation of a loaded image; 1, upright, where it is missing or damaged."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the pixels are good: damaged metadata does not matter
        return 1


def _upright(image: Image, orientation: int) -> Image:
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    return image.transpose(turns[orientation]) if orientation in turns else image


# Scaling.


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


# How much memory decoding takes.


def image_bytes(image: ImageFile) -> int:
    """Bytes of the decoded image at its present size, with what its decoder holds, except for a JPEG's scans."""
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
