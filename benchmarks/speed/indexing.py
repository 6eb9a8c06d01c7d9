"""Indexing a folder: 100,000 small images are read, hashed and written to the ledger; then nothing has changed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart
from .measured import Measured, Row, Run, Sheet

NAME = "indexing"
IMAGES, QUICK = (50_000, 100_000), (5_000,)
SIDE = 48
PER_FOLDER = 1_000
SECONDS = 300.0
WALL = 1_800.0


def measure(run: Run) -> Iterator[Measured]:
    """Each size in its turn."""
    for size in QUICK if run.quick else IMAGES:
        yield from measure_size(size, run)


def measure_size(size: int, run: Run) -> Iterator[Measured]:
    """Made by one process, indexed by another, indexed again by a third."""
    sheet = Sheet(NAME, f"{size:,} JPEG of {SIDE}×{SIDE}")
    with tempfile.TemporaryDirectory() as folder:
        answer = call_apart("indexing:prepare", WALL, folder=folder, size=size)
        for what in ("seconds", "seconds when nothing has changed"):
            if "error" not in answer:
                answer = call_apart("indexing:index", WALL, folder=folder, size=size)
            yield _judged(sheet, what, answer, run)


def _judged(sheet: Sheet, what: str, answer: Answer, run: Run) -> Measured:
    if "error" in answer:
        return sheet.failed(what, f"<= {SECONDS:g}", answer["error"])
    note = f"{answer['processor']:.3g} of the processors"
    if run.quick or what != "seconds":
        return sheet.tell(what, answer["seconds"], note)
    return sheet.at_most(what, answer["seconds"], SECONDS, note)


def prepare(folder: str, size: int) -> Answer:
    """Pictures that all differ, a thousand to a folder."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(size):
        home = Path(folder) / "photos" / f"{number // PER_FOLDER:03d}"
        if number % PER_FOLDER == 0:
            home.mkdir(parents=True)
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
        coarse.resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(home / f"{number:06d}.jpg")
    return {}


def index(folder: str, size: int) -> Answer:
    """As `tailwise init` does it, and `tailwise index` afterwards."""
    from tailwise.campaign.service import Campaign

    home, photos = Path(folder) / "campaign", Path(folder) / "photos"
    clock, processors = time.perf_counter(), time.process_time()
    if home.exists():
        with Campaign.open(home) as campaign:
            campaign.index()
    else:
        campaign = Campaign.create(home, photos, ["cat", "dog"])
        campaign.close()
    spent = {"seconds": time.perf_counter() - clock, "processor": time.process_time() - processors}
    with Campaign.open(home, read_only=True) as campaign:
        usable = campaign.status().usable
    return spent if usable == size else {"error": f"{usable:,} images are usable, not {size:,}"}


ROW = Row(NAME, "50,000 and 100,000 small images in ≤ 300 s each", measure)
