"""Images for the page: an opaque key and a size in, a fresh JPEG out, from memory where it was made before.

A few threads decode; when too many wait, the next is turned away, so that nobody's answer is stuck behind pictures.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..campaign.images import ImageRow, find_image, path_of
from ..campaign.ledger import Ledger
from ..errors import BadFile, TailwiseError
from ..files import open_regular
from ..pools.decode import read_page
from .schemas import SEAL_DIGITS
from .writer import Gate

CACHE_BYTES = 96 << 20
DECODERS = 2
MOST_WAITING = 200

Wanted: TypeAlias = tuple[str, int, str | None]  # key, size, and seal of the bytes where it matters


class TooManyPictures(TailwiseError):
    """More images are waited for than can be decoded soon."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An image as it is sent."""

    content: bytes
    etag: str


class ByteCache:
    """The pictures used last, as many as fit into a number of bytes.

    >>> cache = ByteCache(10)
    >>> cache.put(("a", 160, None), Picture(b"123456", "a")); cache.put(("b", 160, None), Picture(b"123456", "b"))
    >>> cache.get(("a", 160, None)) is None, cache.bytes
    (True, 6)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._kept: OrderedDict[Wanted, Picture] = OrderedDict()

    def get(self, wanted: Wanted) -> Picture | None:
        """A picture that is there, and now the one used last."""
        found = self._kept.get(wanted)
        if found is not None:
            self._kept.move_to_end(wanted)
        return found

    def put(self, wanted: Wanted, picture: Picture) -> None:
        """Keep a picture, and let go of the ones unused for longest."""
        if len(picture.content) > self.most:
            return
        before = self._kept.pop(wanted, None)
        self.bytes += len(picture.content) - (len(before.content) if before else 0)
        self._kept[wanted] = picture
        while self.bytes > self.most:
            self.bytes -= len(self._kept.popitem(last=False)[1].content)


class Pictures:
    """Makes and keeps pictures; used from one event loop."""

    def __init__(self, ledger: Ledger, gate: Gate, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._ledger = ledger
        self._gate = gate
        self._cache = ByteCache(cache_bytes)
        self._under_way: dict[Wanted, Future[Picture]] = {}
        self._threads = ThreadPoolExecutor(DECODERS, thread_name_prefix="tailwise-picture")

    async def get(self, key: str, size: int, seal: str | None = None) -> Picture:
        """One picture; who asks for one that is being made waits for that one.

        With a seal it is made of the bytes that have it, or refused: so it is the same for ever.
        """
        wanted = (key, size, seal)
        kept = self._cache.get(wanted)
        if kept is not None:
            return kept
        if wanted not in self._under_way and len(self._under_way) >= MOST_WAITING:
            raise TooManyPictures(f"{MOST_WAITING} images are being prepared already; ask again in a moment")
        making = self._under_way.get(wanted) or self._threads.submit(self._make, key, size, seal)
        self._under_way[wanted] = making
        try:
            # Shielded: one who goes away must not take the picture from those who stay.
            picture = await asyncio.shield(asyncio.wrap_future(making))
        finally:
            self._under_way.pop(wanted, None)
        self._cache.put(wanted, picture)
        return picture

    def close(self) -> None:
        """End the threads; pictures that wait are not made."""
        self._threads.shutdown(cancel_futures=True)

    def _make(self, key: str, size: int, seal: str | None) -> Picture:
        """Messages name the key alone: where the user's files lie is nobody's business."""
        with self._gate.shared():
            image = find_image(self._ledger, key)
            path = _path(self._ledger, image)
        if image.trouble is not None:
            raise BadFile(f"the image {key} is in quarantine; `tailwise doctor` says why")
        if seal not in (None, seal_of(image)):
            raise BadFile(f"asked for the image {key} with the bytes {seal}, but they have changed; load the page anew")
        try:
            with open_regular(path) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()[:SEAL_DIGITS]
                if seal not in (None, found):
                    raise BadFile(f"the file of the image {key} has changed; run `tailwise init` on the campaign again")
                file.seek(0)
                content = read_page(file, size, key)
        except OSError as error:
            raise BadFile(f"cannot read the image {key}: {error.strerror or 'unreadable'}; was it moved?") from error
        return Picture(content, f'"{found}-{size}"')


def seal_of(image: ImageRow) -> str:
    """What tells the bytes of an image from others; empty where they could never be read."""
    return (image.sha256 or "")[:SEAL_DIGITS]


def seals_of(ledger: Ledger, images: Sequence[int]) -> dict[int, str]:
    """Those of many images by their ids, with one question."""
    rows = ledger.read(
        "SELECT id, substr(coalesce(sha256, ''), 1, ?) FROM image WHERE id IN (SELECT value FROM json_each(?))",
        (SEAL_DIGITS, json.dumps(list(images))),
    )
    return {row[0]: row[1] for row in rows}


def _path(ledger: Ledger, image: ImageRow) -> Path:
    try:
        return path_of(ledger, image)
    except BadFile as error:
        raise BadFile(f"the image {image.key} is not there, or leads out of its folder") from error
