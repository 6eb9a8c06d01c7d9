from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tailwise.errors import BadFile
from tailwise.pools.decode import FORMATS, fault, read_header, read_page, read_pixels

LOSSLESS = ("PNG", "BMP", "TIFF")


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def pixels_of(content: bytes, size: int = 8) -> np.ndarray:
    return read_pixels(io.BytesIO(content), size, "x")


def fault_of(content: bytes, *, decode: bool = False) -> str | None:
    return fault(io.BytesIO(content), decode=decode)


def noise(height: int = 40, width: int = 30) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def smooth(height: int, width: int) -> Image.Image:
    rows, columns = np.mgrid[0:height, 0:width]
    planes = (255 * rows / height, 255 * columns / width, 127 + 100 * np.sin(rows / height * 9 + columns / width * 5))
    return Image.fromarray(np.stack(planes, axis=-1).astype(np.uint8))


def test_an_image_of_the_right_size_comes_back_bit_for_bit() -> None:
    image = noise(8, 8)
    for kind in LOSSLESS:
        assert np.array_equal(pixels_of(encoded(image, kind)), np.asarray(image))
    assert np.array_equal(pixels_of(encoded(image, "WEBP", lossless=True)), np.asarray(image))


@pytest.mark.parametrize("shape", [(64, 64), (200, 128), (96, 160), (20, 16), (1, 1), (3, 500)])
def test_scaling_is_the_shorter_side_then_the_centre(shape: tuple[int, int]) -> None:
    image = smooth(*shape)
    scale = 32 / min(image.size)
    whole = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (whole.width - 32) / 2, (whole.height - 32) / 2
    reference = whole.transform((32, 32), Image.Transform.AFFINE, (1, 0, left, 0, 1, top), Image.Resampling.BILINEAR)
    got = pixels_of(encoded(image, "PNG"), 32).astype(int)
    assert np.abs(got - np.asarray(reference, dtype=int))[1:-1, 1:-1].max() <= 3


def test_a_large_jpeg_decoded_at_a_fraction_looks_the_same() -> None:
    image = smooth(1024, 768)
    content = encoded(image, "JPEG", quality=95)
    reference = ImageOps.fit(Image.open(io.BytesIO(content)), (32, 32), Image.Resampling.BILINEAR)
    assert np.abs(pixels_of(content, 32).astype(int) - np.asarray(reference, dtype=int)).max() <= 4


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_that_the_camera_noted_is_applied(kind: str, orientation: int) -> None:
    image = smooth(48, 48)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if kind in ("JPEG", "WEBP") else {}
    content = encoded(image, kind, exif=exif, **options)
    turned = Image.open(io.BytesIO(encoded(image, "JPEG", exif=exif, quality=95)))
    reference = ImageOps.exif_transpose(turned)
    assert np.abs(pixels_of(content, 48).astype(int) - np.asarray(reference, dtype=int)).max() <= 24


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow says so, and goes on
def test_damaged_exif_does_not_cost_the_image() -> None:
    content = encoded(noise(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff broken")
    assert pixels_of(content).shape == (8, 8, 3)


def flat(mode: str, colour: float | tuple[int, ...]) -> Image.Image:
    return Image.new(mode, (9, 9), colour)


def palette(transparent: bool) -> tuple[Image.Image, dict[str, Any]]:
    image = Image.new("P", (9, 9), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    return image, {"transparency": 1} if transparent else {}


@pytest.mark.parametrize(
    ("image", "kind", "colour"),
    [
        (flat("L", 77), "PNG", (77, 77, 77)),
        (flat("1", 1), "PNG", (255, 255, 255)),
        (flat("L", 77), "JPEG", (77, 77, 77)),
        (flat("RGBA", (200, 100, 50, 255)), "PNG", (200, 100, 50)),
        (flat("RGBA", (0, 0, 0, 0)), "PNG", (255, 255, 255)),
        (flat("RGBA", (0, 0, 0, 51)), "PNG", (204, 204, 204)),
        (flat("LA", (10, 0)), "PNG", (255, 255, 255)),
        (flat("RGBA", (0, 0, 0, 0)), "WEBP", (255, 255, 255)),
        (flat("CMYK", (0, 255, 255, 0)), "JPEG", (255, 0, 0)),
        (flat("CMYK", (255, 0, 255, 0)), "TIFF", (0, 255, 0)),
        (flat("YCbCr", (128, 128, 128)), "JPEG", (128, 128, 128)),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(image: Image.Image, kind: str, colour: tuple[int, int, int]) -> None:
    content = encoded(image, kind)
    assert fault_of(content) is None
    got = pixels_of(content)
    assert got.dtype == np.uint8
    assert np.abs(got.astype(int) - np.array(colour)).max() <= 3


@pytest.mark.parametrize(("transparent", "colour"), [(False, [10, 200, 30]), (True, [255, 255, 255])])
@pytest.mark.parametrize("kind", ["PNG", "GIF"])
def test_palettes_give_their_colours_and_white_where_transparent(
    kind: str, transparent: bool, colour: list[int]
) -> None:
    image, options = palette(transparent)
    assert pixels_of(encoded(image, kind, **options))[4, 4].tolist() == colour


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_not_cut(kind: str) -> None:
    levels = np.repeat(np.array([0, 257, 128 * 257, 65_535], dtype=np.uint16), 2)
    content = encoded(Image.fromarray(np.tile(levels, (8, 1))), kind)
    assert fault_of(content) is None
    assert pixels_of(content)[0, ::2, 0].tolist() == [0, 1, 128, 255]


def test_an_animation_gives_its_first_frame() -> None:
    frames = [flat("RGB", (250, 0, 0)), flat("RGB", (0, 250, 0)), flat("RGB", (0, 0, 250))]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True})):
        content = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert pixels_of(content)[4, 4].tolist() == [250, 0, 0]


def png_claiming(width: int, height: int) -> bytes:
    """A PNG of some hundred bytes whose header claims any size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [65_535, 12_000, 9_600])
def test_an_image_that_claims_too_many_pixels_is_refused_unread(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (Image.MAX_IMAGE_PIXELS, None):  # also where someone has switched Pillow's own guard off
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        reason = fault_of(png_claiming(side, side))
        assert reason is not None
        assert "more" in reason
        assert "89,478,485" in reason
        with pytest.raises(BadFile, match="89,478,485"):
            pixels_of(png_claiming(side, side))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "but text such as SVG or HTML"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><html>404</html>", "but text such as SVG or HTML"),
        (b"GIF89", "it is no JPEG, PNG, GIF, BMP, TIFF or WEBP image"),
        (b"\xff\xd8\xff\xe0 no more", "it "),
        (b"%PDF-1.7 hello", "it is no JPEG"),
        (encoded(noise(), "PPM"), "it is no JPEG"),
        (encoded(noise(), "ICO"), "it is no JPEG"),
        (encoded(Image.new("F", (9, 9), 0.5), "TIFF"), "of the kind 'F', which has no agreed range"),
        (encoded(Image.new("I", (9, 9), 70_000), "TIFF"), "of the kind 'I'"),
    ],
)
def test_what_is_no_usable_image_has_a_reason(content: bytes, says: str) -> None:
    for decode in (False, True):
        assert says in (fault_of(content, decode=decode) or "")
    with pytest.raises(BadFile, match=r"cannot use the image photo\.jpg: (it |its |the file )"):
        read_pixels(io.BytesIO(content), 8, "photo.jpg")


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_truncated_file_is_found_by_the_quick_check(kind: str, kept: float) -> None:
    content = encoded(noise(200, 200), kind)
    assert fault_of(content) is None
    assert fault_of(content[: int(kept * len(content))]) is not None


def test_padding_behind_a_jpeg_is_no_fault() -> None:
    content = encoded(noise(), "JPEG")
    assert fault_of(content + bytes(3000)) is None
    assert fault_of(content + b"trailer of some camera") is None  # looks cut, is decoded, is whole


def test_damage_in_the_middle_is_found_by_decoding_alone() -> None:
    content = bytearray(encoded(noise(200, 200), "PNG"))
    content[len(content) // 2] ^= 0xFF
    assert fault_of(bytes(content)) is None
    assert "cannot be decoded" in (fault_of(bytes(content), decode=True) or "")
    with pytest.raises(BadFile, match="cannot use the image x: it cannot be decoded"):
        pixels_of(bytes(content))


def test_noise_behind_every_magic_number_never_raises_anything_else() -> None:
    rng = np.random.default_rng(0)
    for kind in FORMATS:
        whole = encoded(noise(), kind)
        for trial in range(40):
            cut = int(rng.integers(2, 60))
            content = whole[:cut] + rng.bytes(300) if trial % 2 else damaged(whole, rng)
            fault_of(content, decode=True)


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    mutable = bytearray(content)
    for at in rng.integers(0, min(len(content), 200), 5):
        mutable[at] = int(rng.integers(0, 256))
    return bytes(mutable)


# Headers


def header_of(content: bytes) -> tuple[int, int, int]:
    header = read_header(io.BytesIO(content))
    return header.width, header.height, header.orientation


def noted(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


@pytest.mark.parametrize("kind", FORMATS)
def test_a_header_gives_the_size(kind: str) -> None:
    assert header_of(encoded(noise(40, 30), kind)) == (30, 40, 1)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_header_gives_the_size_of_the_upright_image(kind: str, orientation: int) -> None:
    content = encoded(noise(40, 30), kind, exif=noted(orientation))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    width, height, found = header_of(content)
    assert (width, height) == upright.size == ((40, 30) if orientation >= 5 else (30, 40))
    assert found == (1 if kind == "TIFF" else orientation)  # Pillow turns a TIFF itself, as it decodes it


def chunks(png: bytes) -> list[bytes]:
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        found.append(png[at : at + length + 12])
        at += length + 12
    return found


def test_an_orientation_behind_the_pixels_of_a_png_is_found() -> None:
    parts = chunks(encoded(noise(40, 30), "PNG", exif=noted(6)))
    note = next(part for part in parts if part[4:8] == b"eXIf")
    others = [part for part in parts if part is not note]
    late = b"\x89PNG\r\n\x1a\n" + b"".join([*others[:-1], note, others[-1]])
    assert late.index(b"eXIf") > late.index(b"IDAT")
    assert header_of(late) == (40, 30, 6)


def test_a_whole_png_is_not_decoded_for_its_header() -> None:
    content = bytearray(encoded(noise(200, 200), "PNG"))
    content[len(content) // 2] ^= 0xFF  # damage that decoding would find
    assert header_of(bytes(content)) == (200, 200, 1)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow says so, and goes on
@pytest.mark.parametrize("damage", [b"Exif\0\0MM\0*\0\0\0\x08\xff\xff broken", noted(77).tobytes(), noted(0).tobytes()])
def test_a_damaged_orientation_counts_as_upright(damage: bytes) -> None:
    assert header_of(encoded(noise(40, 30), "JPEG", exif=damage)) == (30, 40, 1)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "but text such as SVG or HTML"),
        (png_claiming(65_535, 65_535), "89,478,485"),
        (encoded(noise(200, 200), "JPEG")[:-3000], "it cannot be decoded"),
        (encoded(noise(200, 200), "PNG")[:-3000], "it cannot be decoded"),
    ],
)
def test_a_header_of_what_is_no_usable_image_is_its_reason(content: bytes, says: str) -> None:
    with pytest.raises(BadFile, match=says) as told:
        header_of(content)
    assert str(told.value) == fault_of(content)


# Pages


def page_of(content: bytes, longest: int = 100) -> Image.Image:
    page = Image.open(io.BytesIO(read_page(io.BytesIO(content), longest, "x")))
    page.load()
    return page


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((40, 30), (30, 40)),
        ((400, 300), (75, 100)),
        ((300, 400), (100, 75)),
        ((1, 3000), (100, 1)),
        ((100, 1), (1, 100)),
    ],
)
def test_a_page_is_shrunk_to_fit_and_never_enlarged(shape: tuple[int, int], size: tuple[int, int]) -> None:
    for kind in ("JPEG", "PNG"):
        assert page_of(encoded(noise(*shape), kind)).size == size


def test_a_page_carries_no_metadata() -> None:
    exif = noted(6)
    exif[0x010F] = "secret camera"
    content = encoded(
        smooth(40, 30), "JPEG", exif=exif, comment=b"secret comment", icc_profile=b"secret profile" * 10, dpi=(300, 300)
    )
    assert content.count(b"secret") > 3
    page = read_page(io.BytesIO(content), 100, "x")
    assert b"secret" not in page
    opened = Image.open(io.BytesIO(page))
    assert (opened.format, opened.mode, opened.size) == ("JPEG", "RGB", (40, 30))
    assert len(opened.getexif()) == 0
    assert set(opened.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_page_is_upright(orientation: int) -> None:
    content = encoded(smooth(48, 64), "JPEG", exif=noted(orientation), quality=95)
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    page = page_of(content)
    assert page.size == reference.size
    assert np.abs(np.asarray(page, dtype=int) - np.asarray(reference, dtype=int)).max() <= 24


@pytest.mark.parametrize(
    ("image", "kind", "colour"),
    [
        (flat("RGBA", (0, 0, 0, 0)), "PNG", (255, 255, 255)),
        (flat("CMYK", (0, 255, 255, 0)), "JPEG", (255, 0, 0)),
        (flat("L", 77), "GIF", (77, 77, 77)),
        (palette(False)[0], "PNG", (10, 200, 30)),
        (Image.fromarray(np.full((9, 9), 128 * 257, np.uint16)), "PNG", (128, 128, 128)),
    ],
)
def test_a_page_of_every_kind_of_pixel_is_rgb(image: Image.Image, kind: str, colour: tuple[int, int, int]) -> None:
    page = page_of(encoded(image, kind))
    assert np.abs(np.asarray(page, dtype=int)[4, 4] - np.array(colour)).max() <= 4


def test_a_large_photo_is_shown_small_and_looks_the_same() -> None:
    image = smooth(1024, 768)
    page = page_of(encoded(image, "JPEG", quality=95), 160)
    reference = image.resize(page.size, Image.Resampling.LANCZOS)
    assert page.size == (120, 160)
    assert np.abs(np.asarray(page, dtype=int) - np.asarray(reference, dtype=int)).mean() < 3


def test_a_page_of_what_is_no_image_says_so() -> None:
    with pytest.raises(BadFile, match=r"cannot show the image x: the file is empty; repair or remove it"):
        page_of(b"")
    with pytest.raises(BadFile, match="cannot be decoded"):
        page_of(encoded(noise(200, 200), "JPEG")[:-3000])
