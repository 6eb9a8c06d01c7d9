from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from tailwise.campaign.images import KnownImage, Matcher
from tailwise.campaign.service import Campaign
from tailwise.formats import Record

PATHS = ("a/1.png", "b/1.png", "b/deep/2.png", "only.png", "caf\u00e9.png", "x y.png")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Campaign]]:
    """A campaign over folders of pictures: {"photos": {"a/1.png": shade}}."""
    made: list[Campaign] = []

    def campaign(**folders: dict[str, int]) -> Campaign:
        for folder, files in folders.items():
            for path, shade in files.items():
                place = tmp_path / folder / path
                place.parent.mkdir(parents=True, exist_ok=True)
                Image.new("L", (4, 4), shade).save(place)
        made.append(Campaign.create(tmp_path / "campaign", [tmp_path / folder for folder in folders], ["cat", "dog"]))
        return made[-1]

    yield campaign
    for one in made:
        one.close()


@pytest.fixture
def campaign(make: Callable[..., Campaign]) -> Campaign:
    return make(photos={path: number for number, path in enumerate(PATHS)})


def found(campaign: Campaign, path: str, sha256: str = "", *, by_name: bool = False) -> str:
    """The path of the image that is found, or why there is none."""
    match = Matcher(campaign.ledger).find(Record(path, "cat", sha256=sha256), by_name=by_name)
    return match.path if isinstance(match, KnownImage) else match


def hash_of(campaign: Campaign, path: str) -> str:
    return str(campaign.ledger.read("SELECT sha256 FROM image WHERE path = ?", (path,))[0]["sha256"])


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("a/1.png", "a/1.png"),
        ("./a//1.png", "a/1.png"),
        ("b/../a/1.png", "a/1.png"),
        ("a\\1.png", "a/1.png"),
        ("C:\\photos\\b\\1.png", "b/1.png"),
        ("elsewhere/photos/b/1.png", "b/1.png"),
        ("only.png", "only.png"),
        ("/somewhere/else/only.png", "only.png"),
        ("cafe\u0301.png", "caf\u00e9.png"),
        ("/data/upload/1/3f2c1a9b-only.png", "only.png"),
        ("s3://bucket/photos/x%20y.png", "x y.png"),
        ("https://[broken/only.png", "only.png"),
        ("only", "only.png"),  # a name without its ending
        ("deep/2", "b/deep/2.png"),
        ("1.png", "2 images are called so; give the path below the images' folder, or the sha256"),
        ("c/1.png", "2 images are called so; give the path below the images' folder, or the sha256"),
        ("none.png", "no image has that name"),
        ("only.jpg", "no image has that name"),
        ("", "no image has that name"),
        ("..", "no image has that name"),
        ("a\0b.png", "no image has that name"),
    ],
)
def test_a_path_is_found_whole_or_by_its_end(path: str, wanted: str, campaign: Campaign) -> None:
    assert found(campaign, path) == wanted


def test_an_absolute_path_is_found(campaign: Campaign, tmp_path: Path) -> None:
    assert found(campaign, str(tmp_path / "photos" / "b" / "1.png")) == "b/1.png"


def test_the_bytes_decide_where_the_hash_is_known(campaign: Campaign) -> None:
    second = hash_of(campaign, "b/1.png")
    assert found(campaign, "a/1.png", second) == "b/1.png"
    assert found(campaign, "renamed.jpg", second) == "b/1.png"
    assert found(campaign, "1.png", second) == "b/1.png"


def test_a_name_with_other_bytes_is_no_match_unless_names_are_trusted(campaign: Campaign) -> None:
    assert found(campaign, "only.png", "0" * 64) == "an image of that name has other bytes"
    assert found(campaign, "none.png", "0" * 64) == "no image has that name or these bytes"
    assert found(campaign, "only.png", "0" * 64, by_name=True) == "only.png"


def test_the_same_path_in_two_folders_needs_the_whole_path_or_the_hash(
    make: Callable[..., Campaign], tmp_path: Path
) -> None:
    campaign = make(one={"1.png": 1}, two={"1.png": 2})
    assert found(campaign, "1.png").startswith("2 images are called so")
    rows = {row["folder"]: row for row in campaign.ledger.read(
        "SELECT f.path AS folder, i.* FROM image AS i JOIN folder AS f ON f.id = i.folder_id"
    )}  # fmt: skip
    for folder in ("one", "two"):
        row = rows[str(tmp_path / folder)]
        by_path = Matcher(campaign.ledger).find(Record(str(tmp_path / folder / "1.png"), "cat"))
        by_hash = Matcher(campaign.ledger).find(Record("1.png", "cat", sha256=row["sha256"]))
        assert isinstance(by_path, KnownImage)
        assert isinstance(by_hash, KnownImage)
        assert by_path.id == by_hash.id == row["id"]


def test_the_same_path_in_two_folders_is_told_apart_by_the_name_of_the_folder(make: Callable[..., Campaign]) -> None:
    campaign = make(one={"1.png": 1, "3.png": 3}, two={"1.png": 2})
    assert "in different folders; give the path with its folder, such as one/1.png, or" in found(campaign, "1.png")
    for name in ("one/1.png", "two/1.png", "one/3.png", "elsewhere/3.png", "3.png"):
        place = Matcher(campaign.ledger).find(Record(name, "cat"))
        assert isinstance(place, KnownImage)
        assert place.name == (name if name in ("one/1.png", "two/1.png") else "one/3.png")


def test_of_images_with_the_same_bytes_the_first_is_meant(make: Callable[..., Campaign]) -> None:
    campaign = make(photos={"a.png": 1, "b.png": 1})
    assert found(campaign, "b.png") == found(campaign, "b.png", hash_of(campaign, "b.png")) == "a.png"


def test_a_duplicate_that_was_answered_keeps_its_answers(make: Callable[..., Campaign]) -> None:
    campaign = make(photos={"a.png": 1, "b.png": 1})
    campaign.label("b.png", "cat")
    assert found(campaign, "b.png") == found(campaign, "b.png", hash_of(campaign, "b.png")) == "b.png"
    assert found(campaign, "a.png", hash_of(campaign, "a.png")) == "a.png"


def test_every_image_is_found_by_what_an_export_says_of_it(campaign: Campaign) -> None:
    for path in PATHS:
        assert found(campaign, path, hash_of(campaign, path)) == found(campaign, path) == path


def test_a_campaign_without_images_finds_none(make: Callable[..., Campaign], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert found(make(empty={}), "1.png", "0" * 64) == "no image has that name or these bytes"


def test_the_longest_shared_end_wins_as_a_plain_search_finds_it(make: Callable[..., Campaign]) -> None:
    rng = random.Random(0)
    paths = sorted({"/".join([*rng.choices("abc", k=rng.randrange(3)), f"{rng.randrange(3)}.png"]) for _ in range(40)})
    campaign = make(photos={path: number for number, path in enumerate(paths)})
    matcher = Matcher(campaign.ledger)
    for _ in range(300):
        asked = "/".join([*rng.choices("abcd", k=rng.randrange(5)), f"{rng.randrange(4)}.png"])
        shared = {path: common_end(asked, path) for path in paths}
        best = [path for path in paths if shared[path] == max(shared.values()) > 0]
        if asked in paths:
            best = [asked]
        match = matcher.find(Record(asked, "cat"))
        if len(best) == 1:
            assert isinstance(match, KnownImage)
            assert match.path == best[0]
        else:
            assert match == (f"{len(best)} images are called so; give the path below the images' folder, or the sha256"
                             if best else "no image has that name")  # fmt: skip


def common_end(one: str, other: str) -> int:
    count = 0
    while one.split("/")[-1 - count :] == other.split("/")[-1 - count :] and count < min(len(one), len(other)):
        count += 1
        if count >= len(one.split("/")) or count >= len(other.split("/")):
            break
    return count


@pytest.mark.parametrize(
    "address",
    [
        "x_y.png",
        "/data/upload/7/1f0c2a9b-x_y.png",
        "upload/7/1f0c2a9b-x_y.png",
        "http://lab/data/upload/7/1f0c2a9b-x_y.png",
    ],
)
def test_a_file_that_label_studio_renamed_at_its_upload_is_found(campaign: Campaign, address: str) -> None:
    assert found(campaign, address) == "x y.png"


def test_two_files_that_an_upload_calls_the_same_are_ambiguous(make: Callable[..., Campaign]) -> None:
    campaign = make(photos={"x y.png": 1, "x_y.png": 2, "a (1).png": 3, "a [1].png": 4})
    assert found(campaign, "/data/upload/7/1f0c2a9b-x_y.png") == "x_y.png"
    assert found(campaign, "/data/upload/7/1f0c2a9b-a_1.png").startswith("2 images are called so")
