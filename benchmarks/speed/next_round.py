"""The next round of a large campaign: 50,000 images whose features are kept, ten classes, with labels and without."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart, peak_memory
from .measured import Measured, Row, Run, Sheet

NAME = "next"
IMAGES, CLASSES, FEATURES = 50_000, 10, 928  # as many numbers as the simple features have
LABELS, BUDGET, SHARD = 500, 100, 2_048
TAIL = 0.05  # the rarest class is so much as common as the commonest
NOISE = 4.0  # of the features beside class centres of length about √d
SECONDS = 15.0
WALL = 900.0


def measure(run: Run) -> Iterator[Measured]:
    """The first round, chosen without a model, and the next, after 500 labels; each in a process of its own."""
    for seed in run.seeds(full=3):
        sheet = Sheet(NAME, f"N {IMAGES:,}, d {FEATURES}, C {CLASSES}, b {BUDGET}", seed)
        with tempfile.TemporaryDirectory() as folder:
            answer = call_apart("next_round:prepare", WALL, folder=folder, seed=seed)
            for what in ("without labels", f"after {LABELS} labels"):
                if "error" not in answer:
                    answer = call_apart("next_round:choose", WALL, folder=folder)
                yield from _judged(sheet, what, answer)
                if "error" not in answer:
                    answer = call_apart("next_round:label", WALL, folder=folder, seed=seed)


def _judged(sheet: Sheet, what: str, answer: Answer) -> Iterator[Measured]:
    quantity = f"seconds, {what}"
    if "error" in answer:
        yield sheet.failed(quantity, f"<= {SECONDS:g}", answer["error"])
        return
    stages = ", ".join(f"{name} {seconds:.2g}" for name, seconds in answer["stages"].items())
    yield sheet.at_most(quantity, answer["seconds"], SECONDS, stages)
    yield sheet.tell(f"processor seconds, {what}", answer["processor"])
    yield sheet.tell(f"peak memory in MB, {what}", answer["memory"] / 1e6)


def prepare(folder: str, seed: int) -> Answer:
    """A campaign whose images were never files: rows in the ledger, and features under their checksums."""
    from tailwise.campaign.features import FOLDER, SIMPLE, find_extractor
    from tailwise.campaign.service import Campaign
    from tailwise.learners.features import FeatureCache

    photos = Path(folder) / "photos"
    photos.mkdir()
    names = [f"class {number}" for number in range(CLASSES)]
    checksums = [hashlib.sha256(f"{seed} {number}".encode()).hexdigest() for number in range(IMAGES)]
    with Campaign.create(Path(folder) / "campaign", photos, names, backbone=SIMPLE) as campaign:
        cache = FeatureCache(campaign.folder / FOLDER / find_extractor(SIMPLE).folder)
        with campaign.ledger.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO folder (id, path) VALUES (1, ?)", (str(photos),))
            connection.executemany(
                "INSERT INTO image (key, folder_id, path, sha256, bytes, width, height, orientation, added_at) "
                "VALUES (?, 1, ?, ?, 9, 32, 32, 1, 0)",
                [(f"{number:016x}", f"{number:06d}.jpg", checksum) for number, checksum in enumerate(checksums)],
            )
        for start, rows in _features(seed):
            keys = [bytes.fromhex(checksum)[:16] for checksum in checksums[start : start + len(rows)]]
            cache.add(keys, rows)
    return {}


def _truth(seed: int) -> np.ndarray:
    """The class of each image, (N,): a long tail."""
    shares = TAIL ** (np.arange(CLASSES) / (CLASSES - 1))
    return np.random.default_rng(seed).choice(CLASSES, IMAGES, p=shares / shares.sum())


def _features(seed: int) -> Iterator[tuple[int, np.ndarray]]:
    """Shards of features, each with its first row: class centres and noise."""
    rng, truth = np.random.default_rng((seed, 1)), _truth(seed)
    centres = rng.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    for start in range(0, IMAGES, SHARD):
        shown = truth[start : start + SHARD]
        noise = rng.standard_normal((len(shown), FEATURES), dtype=np.float32)
        yield start, centres[shown] + NOISE * noise


def choose(folder: str) -> Answer:
    """`tailwise next`, without the start of the interpreter."""
    from tailwise.campaign.service import Campaign

    clock, processors = time.perf_counter(), time.process_time()
    with Campaign.open(Path(folder) / "campaign") as campaign:
        proposal = campaign.next(BUDGET)
    return {
        "seconds": time.perf_counter() - clock, "processor": time.process_time() - processors,
        "stages": dict(proposal.seconds), "memory": peak_memory(),
    }  # fmt: skip


def label(folder: str, seed: int) -> Answer:
    """Answer the round truly, and others until there are enough labels."""
    from tailwise.campaign.answers import Answer as Said
    from tailwise.campaign.answers import record
    from tailwise.campaign.rounds import round_picks
    from tailwise.campaign.service import Campaign

    truth = _truth(seed)
    with Campaign.open(Path(folder) / "campaign") as campaign:
        ids = [one.id for one in campaign.classes()]
        asked = [pick.image for pick in round_picks(campaign.ledger, len(campaign.rounds()))]
        rows = {row["id"]: int(row["key"], 16) for row in campaign.ledger.read("SELECT id, key FROM image")}
        others = [image for image in rows if image not in asked][: LABELS - len(asked)]
        said = [Said(f"said-{image:08d}", image, "ann", "label", ids[truth[rows[image]]]) for image in asked + others]
        record(campaign.ledger, said)
    return {}


ROW = Row(NAME, "on 50,000 images with features that are kept and ten classes, the next round in ≤ 15 s", measure)
