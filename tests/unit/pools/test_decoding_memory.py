"""Memory per image: bounded, whatever a header claims; strips give the bits that converting the whole image gives."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.errors import BadFile
from tailwise.pools import decode as shrink
from tailwise.pools.decode import MOST_MEMORY, fault, read_header, read_page, read_pixels

SHAPE = (5200, 3300)  # height, width: too many pixels to be converted at once
MOST_OF_THE_PNG = 400  # MB; it took 1,200
WHITE = (255, 255, 255, 255)

PEAK = """
import sys
from pathlib import Path
from PIL import Image, JpegImagePlugin, PngImagePlugin
from tailwise.pools.decode import fault, read_page, read_pixels

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

before = peak()
for read in (lambda file: read_pixels(file, 224, "x"), lambda file: read_page(file, 1600, "x"),
             lambda file: fault(file, decode=True)):
    with open(sys.argv[1], "rb") as file:
        read(file)
print(peak() - before)
"""


def megabytes_of(path: Path) -> float:
    """What a process takes at most to read an image in every way, above what it takes to start."""
    done = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    return float(done.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of memory by process")


@needs_proc
def test_a_small_file_with_sixteen_bits_and_many_pixels_takes_little_memory(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((9400, 9400), np.uint16)).save(tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < 200_000
    assert megabytes_of(tmp_path / "x.png") < MOST_OF_THE_PNG


@needs_proc
@pytest.mark.parametrize("progressive", [False, True])
def test_a_photo_of_a_hundred_megapixels_is_read_within_the_limit(tmp_path: Path, progressive: bool) -> None:
    Image.new("L", (11_648, 8_736), 90).save(tmp_path / "x.jpg", progressive=progressive)
    assert read_header_of((tmp_path / "x.jpg").read_bytes()) == (11_648, 8_736)
    assert megabytes_of(tmp_path / "x.jpg") < MOST_MEMORY >> 20


def read_header_of(content: bytes) -> tuple[int, int]:
    header = read_header(io.BytesIO(content))
    return header.width, header.height


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def with_sof(content: bytes, width: int, height: int, sampling: int = 0x22, marker: bytes = b"\xff\xc0") -> bytes:
    """A JPEG whose header claims another size and another sampling of its first component."""
    at = content.index(marker)
    head = bytearray(content)
    head[at + 5 : at + 9] = height.to_bytes(2) + width.to_bytes(2)
    head[at + 11] = sampling
    return bytes(head)


@pytest.mark.parametrize(
    "make",
    [
        lambda: encoded(Image.new("RGB", (6000, 6000)), "WEBP", lossless=True),  # few bytes; 16 per pixel to decode
        lambda: with_sof(
            encoded(Image.new("RGB", (64, 64)), "JPEG", progressive=True, subsampling=0),
            10_000, 10_000, sampling=0x11, marker=b"\xff\xc2",
        ),
        lambda: encoded(Image.new("RGBA", (9000, 9000)), "TIFF", compression="tiff_lzw", strip_size=1 << 30),
    ],
    ids=["webp", "progressive", "tiff"],
)  # fmt: skip
def test_what_would_take_too_much_memory_is_rejected_by_its_header(make: Callable[[], bytes]) -> None:
    content = make()
    reason = fault(io.BytesIO(content))
    assert reason is not None
    assert f"more than the {MOST_MEMORY >> 20} MB allowed" in reason
    for read in (lambda file: read_pixels(file, 8, "x"), lambda file: read_page(file, 8, "x"), read_header):
        with pytest.raises(BadFile, match="MB allowed; save it as a smaller image"):
            read(io.BytesIO(content))  # type: ignore[no-untyped-call]


def test_the_scans_of_a_jpeg_count_where_they_are_kept() -> None:
    """A baseline JPEG comes row by row; one whose first scan holds one component is kept until the last scan."""
    whole = with_sof(encoded(Image.new("RGB", (64, 64)), "JPEG", subsampling=0), 13_000, 13_000, sampling=0x11)
    assert read_header_of(whole) == (13_000, 13_000)
    at = whole.index(b"\xff\xda")
    (length,) = whole[at + 2 : at + 4][1:]
    one_component = b"\xff\xda\x00\x08\x01" + whole[at + 5 : at + 7] + whole[at + 2 + length - 3 : at + 2 + length]
    parted = whole[:at] + one_component + whole[at + 2 + length :]
    assert "MB allowed" in (fault(io.BytesIO(parted)) or "")


def test_an_index_that_accepts_a_long_photo_never_rejects_its_page() -> None:
    content = encoded(Image.new("L", (65_000, 2_700), 90), "JPEG")  # too narrow to be drafted for a page of 1600
    assert read_header_of(content) == (65_000, 2_700)
    page = Image.open(io.BytesIO(read_page(io.BytesIO(content), 1600, "x")))
    assert page.size == (1600, 66)


# The bits


def old_rgb(image: Image.Image) -> Image.Image:
    """The whole image as RGB, converted at once."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("RGB")
    page = Image.new("RGBA", image.size, WHITE)
    page.alpha_composite(image.convert("RGBA"))
    return page.convert("RGB")


def old_pixels(content: bytes, size: int) -> np.ndarray:
    image = Image.open(io.BytesIO(content))
    image.draft(None, (2 * size, 2 * size))
    image.load()
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(old_rgb(image).resize((size, size), Image.Resampling.BILINEAR, box=box))


def old_page(content: bytes, longest: int) -> bytes:
    image = Image.open(io.BytesIO(content))
    image.draft(None, (2 * longest, 2 * longest))
    image.load()
    scale = min(1.0, longest / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    page = old_rgb(image).resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
    page.info.clear()
    return encoded(page, "JPEG", quality=88)


def noise(shape: tuple[int, int], mode: str) -> Image.Image:
    rng = np.random.default_rng(0)
    if mode == "I;16":
        return Image.fromarray(rng.integers(0, 65_536, shape, dtype=np.uint16))
    image = Image.fromarray(rng.integers(0, 256, (*shape, 4), dtype=np.uint8))
    if mode == "P":
        grey = image.getchannel("R")
        grey.putpalette(rng.bytes(768))
        return grey
    return image if mode == "RGBA" else image.convert("RGB").convert(mode) if mode == "CMYK" else image.convert(mode)


CASES = {
    "L": ("L", "PNG", {}),
    "L with a transparent level": ("L", "PNG", {"transparency": 77}),
    "LA": ("LA", "PNG", {}),
    "1": ("1", "PNG", {}),
    "RGB": ("RGB", "PNG", {}),
    "RGB with a transparent colour": ("RGB", "PNG", {"transparency": (64, 64, 64)}),
    "RGBA": ("RGBA", "PNG", {}),
    "P": ("P", "PNG", {}),
    "P with transparency": ("P", "PNG", {"transparency": bytes(range(256))}),
    "GIF": ("P", "GIF", {"transparency": 3}),
    "16 bit": ("I;16", "PNG", {}),
    "16 bit TIFF": ("I;16", "TIFF", {}),
    "CMYK": ("CMYK", "TIFF", {}),
    "JPEG": ("RGB", "JPEG", {}),
    "CMYK JPEG": ("CMYK", "JPEG", {}),
}


def assert_same(content: bytes, sizes: tuple[int, ...], longest: tuple[int, ...]) -> None:
    for size in sizes:
        assert np.array_equal(read_pixels(io.BytesIO(content), size, "x"), old_pixels(content, size)), size
    for side in longest:
        assert read_page(io.BytesIO(content), side, "x") == old_page(content, side), side


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(90, 130), (300, 70), (60, 400), (1, 900)])
@pytest.mark.parametrize("strips", [False, True])
def test_pixels_are_those_of_converting_the_whole_image(
    case: str, shape: tuple[int, int], strips: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if strips:
        monkeypatch.setattr(shrink, "WHOLE_PIXELS", 100)
        monkeypatch.setattr(shrink, "STRIP_PIXELS", 1000)
    mode, kind, options = CASES[case]
    assert_same(encoded(noise(shape, mode), kind, **options), (1, 32, 64, 200), (7, 20, 64, 512))


def test_a_large_image_gives_the_same_pixels() -> None:
    assert SHAPE[0] * SHAPE[1] > shrink.WHOLE_PIXELS
    assert_same(encoded(noise(SHAPE, "I;16"), "PNG", compress_level=1), (64,), (160,))
