"""Pictures: made once, kept while there is room, never from outside the campaign, never more at once than allowed."""

from __future__ import annotations

import asyncio
import io
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tailwise.campaign.images import list_images, quarantine
from tailwise.campaign.service import Campaign
from tailwise.errors import BadFile, UnknownName
from tailwise.web import images as web_images
from tailwise.web.images import ByteCache, ImageRenderer, RenderedImage, TooManyImages
from tailwise.web.views import seals_of


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.booleans()), max_size=60))
def test_the_cache_keeps_what_was_used_last_and_fits(steps: list[tuple[int, int, bool]]) -> None:
    """Compared with a list that is cut from its old end until it fits."""
    cache, expected = ByteCache(10), OrderedDict[int, int]()
    for name, size, put in steps:
        wanted = (str(name), 160, None)
        if not put:
            found = cache.get(wanted)
            assert (len(found.content) if found else None) == expected.get(name)
            if name in expected:
                expected.move_to_end(name)
        else:
            cache.put(wanted, RenderedImage(b"x" * size, "e"))
            if size <= 10:
                expected.pop(name, None)
                expected[name] = size
                while sum(expected.values()) > 10:
                    expected.popitem(last=False)
        assert cache.bytes == sum(expected.values()) <= 10


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    (tmp_path / "images").mkdir()
    for number in range(4):
        Image.new("RGB", (300, 200), (number * 60, 10, 10)).save(tmp_path / "images" / f"{number}.png")
    with Campaign.create(tmp_path / "campaign", tmp_path / "images", ["a"]) as made:
        yield made


@pytest.fixture
def made(campaign: Campaign) -> Iterator[ImageRenderer]:
    found = ImageRenderer(lambda query: query(campaign.ledger))
    yield found
    found.close()


def keys(campaign: Campaign) -> list[str]:
    return [image.key for image in list_images(campaign.ledger)]


def test_a_picture_fits_into_its_size(campaign: Campaign, made: ImageRenderer) -> None:
    picture = asyncio.run(made.get(keys(campaign)[0], 160))
    image = Image.open(io.BytesIO(picture.content))
    assert (image.format, image.size) == ("JPEG", (160, 107))


def test_a_picture_that_was_made_is_not_made_again(campaign: Campaign, made: ImageRenderer, tmp_path: Path) -> None:
    async def twice() -> tuple[RenderedImage, RenderedImage]:
        first = await made.get(keys(campaign)[0], 160)
        (tmp_path / "images" / "0.png").unlink()
        return first, await made.get(keys(campaign)[0], 160)

    first, second = asyncio.run(twice())
    assert first is second


def test_with_a_seal_a_picture_is_made_of_these_bytes_or_not_at_all(
    campaign: Campaign, made: ImageRenderer, tmp_path: Path
) -> None:
    image = list_images(campaign.ledger)[0]
    before = image.seal
    old = asyncio.run(made.get(image.key, 160, before))
    Image.new("RGB", (300, 200), (0, 250, 0)).save(tmp_path / "images" / "0.png")
    with pytest.raises(BadFile, match="has changed; run `tailwise init`"):
        asyncio.run(made.get(image.key, 512, before))
    campaign.index()
    after = list_images(campaign.ledger)[0].seal
    assert after != before
    with pytest.raises(BadFile, match="they have changed; load the page anew"):
        asyncio.run(made.get(image.key, 512, before))
    new = asyncio.run(made.get(image.key, 160, after))
    assert (new.content, new.etag) != (old.content, old.etag)
    assert asyncio.run(made.get(image.key, 160, before)) is old, "these bytes never look different"


def test_the_seals_of_many_are_those_of_each(campaign: Campaign) -> None:
    images = list_images(campaign.ledger)[1:]
    assert seals_of(campaign.ledger, [image.id for image in images]) == {image.id: image.seal for image in images}
    assert seals_of(campaign.ledger, []) == {}


def test_many_who_ask_for_the_same_get_the_same(campaign: Campaign, made: ImageRenderer) -> None:
    async def ask() -> list[RenderedImage]:
        return await asyncio.gather(*(made.get(keys(campaign)[0], 160) for _ in range(20)))

    assert len({id(picture) for picture in asyncio.run(ask())}) == 1


def test_when_too_many_wait_the_next_is_turned_away(
    campaign: Campaign, made: ImageRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_images, "MOST_WAITING", 2)

    async def ask() -> list[RenderedImage | BaseException]:
        return await asyncio.gather(*(made.get(key, 160) for key in keys(campaign)), return_exceptions=True)

    found = asyncio.run(ask())
    assert sum(isinstance(one, RenderedImage) for one in found) == 2
    assert sum(isinstance(one, TooManyImages) for one in found) == 2
    assert all(isinstance(one, RenderedImage) for one in asyncio.run(ask())[:2]), "afterwards there is room again"


def test_one_who_goes_away_does_not_take_the_picture_from_the_others(campaign: Campaign, made: ImageRenderer) -> None:
    async def ask() -> RenderedImage:
        key = keys(campaign)[0]
        impatient = asyncio.ensure_future(made.get(key, 160))
        patient = asyncio.ensure_future(made.get(key, 160))
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert asyncio.run(ask()).content


@pytest.mark.parametrize("damage", [b"", b"<svg/>", b"\x89PNG\r\n\x1a\n" + b"x" * 50])
def test_a_damaged_file_gives_a_reason_without_its_place(
    campaign: Campaign, made: ImageRenderer, tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / "images" / "0.png").write_bytes(damage)
    with pytest.raises(BadFile) as caught:
        asyncio.run(made.get(keys(campaign)[0], 160))
    assert str(tmp_path) not in str(caught.value)


def test_what_is_unknown_quarantined_or_gone_is_not_shown(
    campaign: Campaign, made: ImageRenderer, tmp_path: Path
) -> None:
    first, second, third, _ = keys(campaign)
    quarantine(campaign.ledger, [(list_images(campaign.ledger)[0].id, f"{tmp_path} is odd")])
    (tmp_path / "images" / "1.png").unlink()
    (tmp_path / "images" / "2.png").unlink()
    (tmp_path / "images" / "2.png").symlink_to("/dev/zero")
    with pytest.raises(UnknownName):
        asyncio.run(made.get("f" * 16, 160))
    for key in (first, second, third):
        with pytest.raises(BadFile) as caught:
            asyncio.run(made.get(key, 160))
        assert str(tmp_path) not in str(caught.value)


def test_closing_ends_the_threads(campaign: Campaign) -> None:
    before = threading.active_count()
    found = ImageRenderer(lambda query: query(campaign.ledger))
    asyncio.run(found.get(keys(campaign)[0], 160))
    assert threading.active_count() > before
    found.close()
    assert threading.active_count() == before
