"""Small image files and what the ledger makes of them, for the tests of indexing and of images."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.images import ImageRow, list_images
from tailwise.campaign.ledger import Ledger


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def shade(number: int) -> bytes:
    """A small image, another for each number."""
    return encoded(Image.new("RGB", (6, 4), (number % 256, number // 256 % 256, 9)), "BMP")


def put(folder: Path, content: dict[str, bytes]) -> None:
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def rows(ledger: Ledger) -> dict[str, ImageRow]:
    return {row.path: row for row in list_images(ledger)}


def say(ledger: Ledger, path: str) -> ImageRow:
    """Somebody labels an image; gives its row."""
    row = rows(ledger)[path]
    record(ledger, [Answer(f"key-{row.id:05d}", row.id, "ann", "label", 1)])
    return row
