"""Image files without trust: an open file in; square RGB pixels, a size or a JPEG for a page out, or why there is none.

Pillow is loaded with the first image, and is given a fixed list of formats. Images whose header asks for too many
pixels or too much memory are rejected before they are decoded.
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
from .decoding_memory import JPEG_KINDS, image_bytes, scan_bytes
from .shrink import MODES_16_BIT, shrink

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP")
MODES = {"1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV"}
MOST_PIXELS = 89_478_485  # Pillow's own limit; ours, whatever its global setting is
MOST_JPEG_PIXELS = 2 * MOST_PIXELS  # large photos are JPEGs, which are decoded at a fraction of their size
MOST_MEMORY = 512 << 20  # bytes to decode one image
ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82", "GIF": b";"}
TAIL_BYTES = 4096  # some cameras pad their files with zeros
ORIENTATION = 0x0112
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
        with _opened(file, 2 * size) as image:
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
        raise BadFile(f"cannot show the image {name}: {_reason(error)}; mend it or take it out") from error
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
    """What Pillow takes a file for; BadFile where it is none of our formats."""
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
