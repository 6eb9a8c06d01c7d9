"""Images for the page: an opaque key and a size in, a fresh JPEG out, from a cache where it was made before.

A few threads decode; when too many images wait, the next request is rejected, so that answers are never delayed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..campaign.images import SEAL_DIGITS, ImageRow, find_image, path_of
from ..campaign.ledger import Ledger
from ..errors import BadFile, TailwiseError
from ..files import open_regular
from ..pools.decode import read_page
from .views import Read

CACHE_BYTES = 96 << 20
DECODERS = 2
MOST_WAITING = 200

Wanted: TypeAlias = tuple[str, int, str | None]  # key, size, and seal of the bytes where it matters


class TooManyImages(TailwiseError):
    """More images are requested than can be decoded soon."""


@dataclass(frozen=True, slots=True)
class RenderedImage:
    """A JPEG as it is sent."""

    content: bytes
    etag: str


class ByteCache:
    """The images used last, as many as fit into a number of bytes.

    >>> cache = ByteCache(10)
    >>> cache.put(("a", 160, None), RenderedImage(b"123456", "a"))
    >>> cache.put(("b", 160, None), RenderedImage(b"123456", "b"))
    >>> cache.get(("a", 160, None)) is None, cache.bytes
    (True, 6)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.bytes = 0
        self._kept: OrderedDict[Wanted, RenderedImage] = OrderedDict()

    def get(self, wanted: Wanted) -> RenderedImage | None:
        """A cached image, which becomes the one used last."""
        found = self._kept.get(wanted)
        if found is not None:
            self._kept.move_to_end(wanted)
        return found

    def put(self, wanted: Wanted, image: RenderedImage) -> None:
        """Add an image, and drop the ones unused for longest."""
        if len(image.content) > self.most:
            return
        before = self._kept.pop(wanted, None)
        self.bytes += len(image.content) - (len(before.content) if before else 0)
        self._kept[wanted] = image
        while self.bytes > self.most:
            self.bytes -= len(self._kept.popitem(last=False)[1].content)


class ImageRenderer:
    """Makes and caches JPEGs; used from one event loop."""

    def __init__(self, read: Read, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._read = read
        self._cache = ByteCache(cache_bytes)
        self._under_way: dict[Wanted, Future[RenderedImage]] = {}
        self._threads = ThreadPoolExecutor(DECODERS, thread_name_prefix="tailwise-image")

    async def get(self, key: str, size: int, seal: str | None = None) -> RenderedImage:
        """One image; requests for one that is being made share it.

        With a seal it is made of the bytes that have this seal, or an error: so it never changes.
        """
        wanted = (key, size, seal)
        kept = self._cache.get(wanted)
        if kept is not None:
            return kept
        if wanted not in self._under_way and len(self._under_way) >= MOST_WAITING:
            raise TooManyImages(f"{MOST_WAITING} images are being prepared already; ask again in a moment")
        making = self._under_way.get(wanted) or self._threads.submit(self._make, key, size, seal)
        self._under_way[wanted] = making
        try:
            # Shielded: a client that disconnects must not cancel the image for the others.
            image = await asyncio.shield(asyncio.wrap_future(making))
        finally:
            self._under_way.pop(wanted, None)
        self._cache.put(wanted, image)
        return image

    def close(self) -> None:
        """End the threads; images that wait are not made."""
        self._threads.shutdown(cancel_futures=True)

    def _make(self, key: str, size: int, seal: str | None) -> RenderedImage:
        """Messages name the key alone: they do not reveal the user's folders."""
        image, path = self._read(lambda ledger: _find(ledger, key))
        if image.trouble is not None:
            raise BadFile(f"the image {key} is in quarantine; `tailwise doctor` says why")
        if seal not in (None, image.seal):
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
        return RenderedImage(content, f'"{found}-{size}"')


def _find(ledger: Ledger, key: str) -> tuple[ImageRow, Path]:
    image = find_image(ledger, key)
    try:
        return image, path_of(ledger, image)
    except BadFile as error:
        raise BadFile(f"the image {image.key} is missing, or leads out of its folder") from error
