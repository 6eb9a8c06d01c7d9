"""What faults are tried on: small images, campaigns of them in several states, and copies that may come to harm."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.images import list_images
from tailwise.campaign.rounds import Pick, open_round
from tailwise.campaign.service import Campaign
from tailwise.files import csv_bytes, write_whole

from .nursery import Nursery, nursery

CLASSES = ("ash", "beech", "cedar", "oak")
SIDE = 24
FIRST_LABELS = 24
AUTHORS = 12  # people whose answers are imported, each to every image


@dataclass(slots=True)
class Stage:
    """A place with pictures, campaigns to copy, and a nursery."""

    place: Path
    nursery: Nursery
    images: int
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def photos(self) -> Path:
        """The folder of the pictures."""
        return self.place / "photos"

    def copy(self, template: str) -> Path:
        """A campaign in a certain state: "round", "labelled" or "imported"."""
        made = self.place / "templates" / template
        if not made.exists():
            TEMPLATES[template](self, made)
        folder = self.place / f"{template}-{next(self._numbers)}"
        shutil.copytree(made, folder)
        return folder

    def table(self) -> Path:
        """A CSV with an answer of every author to every image."""
        path = self.place / "answers.csv"
        if not path.exists():
            write_whole(path, csv_bytes(("path", "label", "annotator"), self.claims()))
        return path

    def claims(self) -> list[tuple[str, str, str]]:
        """Path, class and author of each answer in the table, in its order."""
        names = sorted(path.name for path in self.photos.iterdir())
        return [(name, truth(name), f"author {number}") for number in range(AUTHORS) for name in names]


@contextmanager
def stage(images: int = 400, place: Path | None = None) -> Iterator[Stage]:
    """A stage, below a folder or a temporary one."""
    with TemporaryDirectory(prefix="tailwise-faults-", dir=place) as folder, nursery() as children:
        made = Stage(Path(folder), children, images)
        draw_pictures(made.photos, images)
        yield made


def draw_pictures(folder: Path, count: int) -> None:
    """Small pictures of stripes, with the class in the name."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(count):
        cls = number % len(CLASSES)
        picture = Image.fromarray(draw_stripes(cls, len(CLASSES), rng))
        picture.save(folder / f"{number:04d}-{CLASSES[cls]}.png")


def draw_stripes(cls: int, classes: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Pixels (24, 24, 3): the class is the direction of the stripes and their tint, all else is chance."""
    down, across = np.mgrid[:SIDE, :SIDE]
    angle = cls * np.pi / classes
    wave = np.sin((across * np.cos(angle) + down * np.sin(angle)) * rng.uniform(0.5, 0.9) + rng.uniform(0, 6))
    tint = np.array([1 + 0.5 * np.cos(cls), 1.0, 1 + 0.5 * np.sin(cls)])
    pixels = 125 + 40 * wave[..., None] * tint + rng.normal(0, 12, (SIDE, SIDE, 3))
    drawn: NDArray[np.uint8] = np.clip(pixels, 0, 255).astype(np.uint8)
    return drawn


def truth(path: str) -> str:
    """The class of a picture, by its name.

    >>> truth("0007-oak.png")
    'oak'
    """
    return Path(path).stem.split("-")[1]


def class_ids(campaign: Campaign) -> dict[str, int]:
    """Ids of the classes by their names."""
    return {one.name: one.id for one in campaign.classes()}


def truths(folder: Path) -> Mapping[str, int]:
    """The true class id of each image by its key."""
    with Campaign.open(folder, read_only=True) as campaign:
        ids = class_ids(campaign)
        return {image.key: ids[truth(image.path)] for image in list_images(campaign.ledger, usable=True)}


def _whole_round(stage: Stage, folder: Path) -> None:
    """All images in one open round: nobody who labels has to wait for another."""
    with Campaign.create(folder, stage.photos, CLASSES, backbone="simple") as campaign:
        picks = [Pick(image.id) for image in list_images(campaign.ledger, usable=True)]
        open_round(campaign.ledger, picks, budget=len(picks), strategy="random")


def _labelled(stage: Stage, folder: Path) -> None:
    """Some images have labels, none has features yet: the next round has to look at all of them, and to learn."""
    with Campaign.create(folder, stage.photos, CLASSES, backbone="simple") as campaign:
        ids = class_ids(campaign)
        first = list_images(campaign.ledger, usable=True)[:FIRST_LABELS]
        said = [Answer(f"first-{image.key}", image.id, "first", "label", ids[truth(image.path)]) for image in first]
        record(campaign.ledger, said)


def _imported(stage: Stage, folder: Path) -> None:
    """A ledger with thousands of events."""
    _labelled(stage, folder)
    with Campaign.open(folder) as campaign:
        campaign.import_labels(stage.table())


TEMPLATES = {"round": _whole_round, "labelled": _labelled, "imported": _imported}
