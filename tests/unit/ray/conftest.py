"""One real Ray cluster of two processes for these tests, and a small pool with all that goes wrong in one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.learners import make_learner
from tailwise.learners.features import simple_features
from tailwise.ray.cluster import Cluster, connect

CLASSES = 4


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Started once: everything that asks for the engine "ray" meanwhile is in it. An idle one costs time."""
    with connect("ray", cpus=2) as started:
        yield started


def raylet_of(cluster: Cluster) -> int:
    """The process that all workers of a cluster on this machine are children of."""
    import ray

    assert cluster.nodes
    return int(ray.get(ray.remote(lambda: os.getppid()).remote()))


def workers_of(raylet: int, doing: str) -> list[int]:
    """Processes of a cluster that are at some work now, by what Ray calls it."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # it has ended meanwhile
            lines = status.read_text().splitlines()
            parent = next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))
            command = (status.parent / "cmdline").read_bytes().decode(errors="replace")
            if parent == raylet and command.startswith(f"ray::{doing}"):
                found.append(int(status.parent.name))
    return found


def picture(cls: int, rng: np.random.Generator, side: int = 20) -> Image.Image:
    """Noise whose tint tells the class."""
    tint = np.eye(3)[cls % 3] * 90
    return Image.fromarray(np.clip(rng.normal(110, 30, (side, side + 4, 3)) + tint, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """150 images in folders with odd names, three that cannot be used, and two files that are none; never changed."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for number in range(150):
        home = root / ("", "été", "a b/ü")[number % 3]
        home.mkdir(parents=True, exist_ok=True)
        picture(number, rng).save(home / f"{number:03d} 図.png")
    (root / "broken.png").write_bytes(b"no image at all")
    (root / "été" / "cut.jpg").write_bytes(encoded(picture(0, rng, side=200), "JPEG")[:3000])
    (root / "empty.jpg").write_bytes(b"")
    (root / "notes.txt").write_text("not an image")
    (root / ".hidden.png").write_bytes(b"")
    return root


BAD = {"broken.png", "été/cut.jpg", "empty.jpg"}


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A head on simple features; its last class has no labels."""
    rng = np.random.default_rng(1)
    pixels = np.stack([np.asarray(picture(n, rng, 64).resize((64, 64))) for n in range(30)])
    folder = tmp_path_factory.mktemp("learner") / "head"
    features = simple_features(pixels)
    make_learner("linear").fit(features, np.arange(30) % 3, classes=CLASSES, seed=0).save(folder)
    return folder
