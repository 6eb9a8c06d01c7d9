"""Image files without trust: an open file in; square RGB pixels, a size or a JPEG for a page out, or why there is none.

Pillow is loaded with the first image, and is given a fixed list of formats.
"""

from __future__ import annotations

import io
import os
import struct
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import BadFile

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"}
MODES_16_BIT = {"I;16", "I;16L", "I;16B", "I;16N"}
MOST_PIXELS = 89_478_485  # a quarter of a gigabyte as RGB; ours, whatever Pillow's global setting is
ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
TAIL_BYTES = 4096  # some cameras pad their files with zeros
ORIENTATION = 0x0112
WHITE = (255, 255, 255, 255)
QUALITY = 88  # of a JPEG for a page
PNG_NOTES = {b"eXIf", b"tEXt", b"zTXt", b"iTXt"}  # the chunks that can hold an orientation


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
        with _opened(file) as image:
            return _square(image, size)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(f"cannot use the image {name}: {_reason(error)}; mend it or take it out") from error


def fault(file: IO[bytes], *, decode: bool = False) -> str | None:
    """Why an image cannot be used, by its header and its last bytes, or by decoding it; None where it can.

    A file whose end looks cut is decoded in any case: decoding decides, so no image is refused on a suspicion.
    """
    try:
        with _opened(file) as image:
            if decode or not _has_its_end(file, image.format or ""):
                image.load()
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
            if not _has_its_end(file, image.format or "") or (image.format == "PNG" and _has_late_notes(file)):
                image.load()
            width, height = image.size
            orientation = _noted_orientation(image)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(_reason(error)) from error
    return Header(height, width, orientation) if orientation >= 5 else Header(width, height, orientation)


def read_page(file: IO[bytes], longest: int, name: str) -> bytes:
    """An image for a browser: a JPEG without any metadata, upright, RGB, its longer side at most `longest` pixels."""
    try:
        with _opened(file) as image:
            page = _fitted(image, longest)
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of damaged bytes
        raise BadFile(f"cannot show the image {name}: {_reason(error)}; mend it or take it out") from error
    buffer = io.BytesIO()
    page.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def _opened(file: IO[bytes]) -> ImageFile:
    """The header of an image, refused where it asks for too much."""
    from PIL import Image, UnidentifiedImageError

    start = file.read(512)
    if not start:
        raise BadFile("the file is empty")
    file.seek(0)
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        kind = " but text such as SVG or HTML" if start.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else ""
        raise BadFile(f"it is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]} image{kind}") from None
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise BadFile(f"it claims {width} × {height} pixels, more than the {MOST_PIXELS:,} allowed")
    if image.mode not in MODES | MODES_16_BIT:
        raise BadFile(f"its pixels are of the kind {image.mode!r}, which has no agreed range; save it as 8-bit RGB")
    return image


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

    image.draft(None, (2 * size, 2 * size))  # a JPEG decodes at 1/2, 1/4 or 1/8 where that leaves twice the detail
    image.load()
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    square = _to_rgb(image).resize((size, size), Resampling.BILINEAR, box=(left, top, left + side, top + side))
    return np.asarray(_upright(square, _orientation(image)))


def _fitted(image: ImageFile, longest: int) -> Image:
    from PIL.Image import Resampling

    image.draft(None, (2 * longest, 2 * longest))
    image.load()
    scale = min(1.0, longest / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    page = _upright(_to_rgb(image).resize(size, Resampling.LANCZOS, reducing_gap=3.0), _orientation(image))
    page.info.clear()  # Pillow would write a comment of the file into the new one
    return page


def _noted_orientation(image: ImageFile) -> int:
    """EXIF's orientation, without decoding a PNG, which Pillow would do to look for notes behind the pixels."""
    if image.format == "PNG" and not {"exif", "Raw profile type exif"} & set(image.info):
        image.info["exif"] = b""  # _has_late_notes has said that there are none
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


def _to_rgb(image: Image) -> Image:
    from PIL import Image as pil

    if image.mode in MODES_16_BIT:
        deep = np.asarray(image).astype(np.uint32)
        image = pil.fromarray(((deep + 128) // 257).astype(np.uint8))  # 65,535 is 255: Pillow would cut at 255
    if not image.has_transparency_data:
        return image.convert("RGB")
    page = pil.new("RGBA", image.size, WHITE)  # what lies hidden under transparent pixels is arbitrary
    page.alpha_composite(image.convert("RGBA"))
    return page.convert("RGB")


def _orientation(image: Image) -> int:
    """EXIF's orientation of a loaded image; 1, upright, where there is none or it is damaged."""
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the pixels are good: a damaged note beside them is no reason to refuse them
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
