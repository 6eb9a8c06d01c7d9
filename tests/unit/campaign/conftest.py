"""A ledger on the disk with three classes and twelve images that were never files; and campaigns over real ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.classes import add_classes, find_class
from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import current_round, round_picks
from tailwise.campaign.service import Campaign
from tailwise.learners.features import FeatureCache

from .image_files import put, shade

IMAGES = 12


def add_images(ledger: Ledger, how_many: int) -> None:
    with ledger.writing() as connection:
        connection.execute("INSERT OR IGNORE INTO folder (id, path) VALUES (1, '/photos')")
        first = connection.execute("SELECT count(*) FROM image").fetchone()[0] + 1
        connection.executemany(
            "INSERT INTO image (key, folder_id, path, sha256, bytes, width, height, orientation, added_at) "
            "VALUES (?, 1, ?, ?, 9, 8, 8, 1, 0)",
            [(f"{n:016x}", f"{n}.jpg", f"{n:064x}") for n in range(first, first + how_many)],
        )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "campaign"


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of the ledger below: made once, as each commit waits for the disk."""
    folder = tmp_path_factory.mktemp("template")
    with Ledger.create(folder) as made:
        add_classes(made, ["cat", "dog", "eel"])
        add_images(made, IMAGES)
    return (folder / LEDGER_FILE).read_bytes()


@pytest.fixture
def ledger(home: Path, template: bytes) -> Iterator[Ledger]:
    """Classes 1 cat, 2 dog, 3 eel; images 1 to 12."""
    home.mkdir()
    (home / LEDGER_FILE).write_bytes(template)
    with Ledger.open(home) as made:
        yield made


@pytest.fixture
def empty(home: Path) -> Iterator[Ledger]:
    """A ledger with one class and no image."""
    with Ledger.create(home) as made:
        add_classes(made, ["cat"])
        yield made


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of three small images, one of them deep in it."""
    folder = tmp_path / "photos"
    put(folder, {"a.bmp": shade(1), "b.bmp": shade(2), "deep/er/c.bmp": shade(3)})
    return folder


@dataclass(frozen=True)
class Studio:
    """A campaign over small pictures whose names tell their class, and people who can read them."""

    campaign: Campaign
    photos: Path

    @property
    def ledger(self) -> Ledger:
        return self.campaign.ledger

    def truth(self, image: int) -> int:
        path = self.ledger.read("SELECT path FROM image WHERE id = ?", (image,))[0]["path"]
        return find_class(self.ledger, path.split("-")[0]).id

    def say(self, images: Sequence[int], annotator: str = "ann", kind: str = "label", cls: int | None = None) -> None:
        """Answer images, by their names unless a class is given."""
        current = current_round(self.ledger)
        record(self.ledger, [
            Answer(uuid.uuid4().hex, image, annotator, kind, (cls or self.truth(image)) if kind == "label" else None,
                   round_id=None if current is None else current.id)
            for image in images
        ])  # fmt: skip

    def say_round(self, how_many: int | None = None, annotator: str = "ann") -> None:
        """Answer the images of the open round, or the first of them."""
        current = current_round(self.ledger)
        assert current is not None
        self.say([pick.image for pick in round_picks(self.ledger, current.id)][:how_many], annotator)


def draw(cls: int, rng: np.random.Generator, noise: float) -> Image.Image:
    """Stripes: the class is their direction and tint, all else is chance."""
    down, across = np.mgrid[:24, :24]
    angle = cls * np.pi / 5
    wave = np.sin((across * np.cos(angle) + down * np.sin(angle)) * rng.uniform(0.5, 0.9) + rng.uniform(0, 6))
    tint = np.array([1 + 0.6 * np.cos(2 * cls), 1.0, 1 + 0.6 * np.sin(2 * cls)])
    pixels = 120 + 35 * wave[..., None] * tint + 25 * tint + rng.normal(0, noise, (24, 24, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def keep_features(studio: Studio, spread: float, rng: np.random.Generator) -> None:
    """Put features into the campaign's cache that say the class, more or less."""
    rows = studio.ledger.read("SELECT id, sha256 FROM image ORDER BY id")
    places = np.array([studio.truth(row["id"]) for row in rows])
    features = np.eye(12)[places % 12] + spread * rng.normal(size=(len(rows), 12))
    keys = [bytes.fromhex(row["sha256"])[:16] for row in rows]
    FeatureCache(studio.ledger.folder / "features" / "simple-1").add(keys, features.astype(np.float32))


@pytest.fixture
def make_studio(tmp_path: Path) -> Iterator[Callable[..., Studio]]:
    """Call it with how many pictures there are of each class, by name; `also` names classes without pictures.

    With `spread` the features are not made of the pixels: they are few, and lie so far around the centre of a class.
    """
    made: list[Studio] = []

    def make(
        counts: dict[str, int], *, also: Sequence[str] = (), seed: int = 0, noise: float = 10.0,
        spread: float | None = None, **settings: object,
    ) -> Studio:  # fmt: skip
        rng, photos = np.random.default_rng(seed), tmp_path / "photos"
        photos.mkdir()
        for cls, (name, count) in enumerate(counts.items()):
            for number in range(count):
                draw(cls, rng, noise).save(photos / f"{name}-{number:03d}.png")
        home = tmp_path / "learning"
        made.append(
            Studio(Campaign.create(home, photos, [*counts, *also], **{"backbone": "simple"} | settings), photos)
        )
        if spread is not None:
            keep_features(made[-1], spread, rng)
        return made[-1]

    yield make
    for studio in made:
        studio.campaign.close()
