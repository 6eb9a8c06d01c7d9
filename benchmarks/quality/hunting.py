"""What hunting and bulk accept do to the labels per minute and to the accuracy after 600 labels.

`python -m benchmarks.quality.hunting --data FOLDER` runs what is missing and writes docs/results/hunting. A script that
knows every class labels 3,000 long-tailed images of 40 classes in four ways, by the calls that the page makes. Features
are those of real images (Tiny ImageNet, an ImageNet backbone). Seconds are those of a person as `SECONDS` assumes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.quality.published import read_table
from tailwise.campaign.features import FOLDER as FEATURES
from tailwise.campaign.search import short_classes
from tailwise.campaign.service import Campaign
from tailwise.files import csv_bytes, write_whole
from tailwise.pools.pool import exponential_profile, keep_counts
from tailwise.processes import one_blas_thread
from tailwise.types import IntArray

FILE = "tinyimagenet_features.npz"
DATA = "TAILWISE_HUNTING_DATA"  # names the folder of the features to the backbone
RESULTS = Path("docs/results/hunting")
CLASSES, IMAGES, LABELS, ROUNDS = 40, 3_000, 600, 6
FACTOR = 0.02  # the rarest class is so much as common as the commonest
HUNTED = 30  # of the 100 labels of a round
MOST_TILES = 8  # of a hunt, per label that it is to give
TILES = 24  # shown at once
SURE = 0.6  # tiles above it start selected
SECONDS = {  # what an experienced person takes; the table has the counts, for other assumptions
    "confirm": 1.0,  # look at one image and accept the guess
    "choose": 2.5,  # look at one image and find its class among 40
    "tile": 0.35,  # glance at a tile
    "click": 0.8,  # take a tile in or out
    "accept": 1.0,  # accept all, and wait for the next tiles
}
BACKBONE = "benchmarks.quality.hunting:colour_net"
WAYS = ("one by one", "bulk accept", "hunting", "hunting and bulk accept")


@dataclass(frozen=True, slots=True)
class Row:
    """One campaign."""

    way: str
    seed: int
    labels: int
    seconds: float
    accuracy: float  # mean recall of the classes
    rare: float  # of the rarer half
    classes: int  # with at least one label
    confirm: int
    choose: int
    tile: int
    click: int
    accept: int


@dataclass(slots=True)
class Annotator:
    """Knows what every image shows, and counts what it takes to say so."""

    campaign: Campaign
    truth: Mapping[str, str]  # file name → class
    actions: Counter[str] = field(default_factory=Counter)

    def one_by_one(self, images: Iterable[tuple[Path, str | None]]) -> None:
        """Label images with their guesses, each on its own."""
        for path, guess in images:
            name = self.truth[path.name]
            self.actions["confirm" if guess == name else "choose"] += 1
            self.campaign.label(path, name)

    def tiles(self, images: Sequence[tuple[Path, float]], name: str, found_by: str | None = "hunt") -> list[Path]:
        """Accept the tiles that show a class; gives those that do not."""
        shown = {path: self.truth[path.name] == name for path, _ in images}
        self.actions["tile"] += len(images)
        self.actions["click"] += sum(shown[path] != (sure >= SURE) for path, sure in images)
        self.actions["accept"] += 1
        accepted = [path for path, right in shown.items() if right]
        if accepted:
            self.campaign.relabel(accepted, name, found_by=found_by)
        return [path for path, right in shown.items() if not right]

    @property
    def seconds(self) -> float:
        """All that it took."""
        return sum(SECONDS[action] * count for action, count in self.actions.items())


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Features of real images by number, and those of test images, with as many of each class."""

    train: NDArray[np.float32]  # (N, d)
    labels: IntArray  # (N,)
    test: NDArray[np.float32]  # (n, d)
    test_labels: IntArray  # (n,)

    @classmethod
    def read(cls, data: Path) -> Features:
        """The first classes of Tiny ImageNet."""
        with np.load(data / FILE) as file:
            scale = np.float32(file["x_train"].astype(np.float32).std(0).mean())
            train, test = (np.flatnonzero(file[name] < CLASSES) for name in ("y_train", "y_test"))
            return cls(
                file["x_train"][train].astype(np.float32) / scale, file["y_train"][train].astype(np.int64),
                file["x_test"][test].astype(np.float32) / scale, file["y_test"][test].astype(np.int64),
            )  # fmt: skip

    def examine(self, labels: Mapping[str, str], order: IntArray) -> tuple[float, float]:
        """Mean recall over all classes and over the rarer half of a model that scikit-learn fits to the labels."""
        from sklearn.linear_model import LogisticRegression

        numbers = np.array([int(Path(path).stem) for path in labels])
        classes = np.array([int(name.removeprefix("class ")) for name in labels.values()])
        model = LogisticRegression(max_iter=2000).fit(self.train[numbers], classes)
        right = model.predict(self.test) == self.test_labels
        recall = np.array([right[self.test_labels == cls].mean() for cls in range(CLASSES)])
        return float(recall.mean()), float(recall[order[CLASSES // 2 :]].mean())


def draw_photos(source: Features, seed: int, folder: Path) -> tuple[dict[str, str], IntArray]:
    """A long-tailed draw as files of one colour, which is the image's number; what they show, and the classes' order.

    The order is by chance, the commonest class first.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(CLASSES)
    most = IMAGES / sum(FACTOR ** (place / (CLASSES - 1)) for place in range(CLASSES))
    counts = exponential_profile(np.full(CLASSES, round(most), dtype=np.int64), FACTOR, order)
    counts[order[0]] += IMAGES - counts.sum()
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for number in keep_counts(source.labels, counts, rng).tolist():
        name = f"{number:05d}.png"
        Image.new("RGB", (8, 8), (number >> 16, number >> 8 & 255, number & 255)).save(folder / name)
        truth[name] = f"class {source.labels[number]}"
    return truth, order


def colour_net() -> Any:  # noqa: ANN401 - a torch module; torch is loaded when it is asked for
    """A backbone that looks up the features of the number that an image's colour is."""
    import torch

    from tailwise.learners.backbone import IMAGENET_MEAN, IMAGENET_STD

    features = torch.from_numpy(Features.read(Path(os.environ[DATA])).train)

    class Lookup(torch.nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:  # (B, 3, h, w) → (B, d)
            middle = images[:, :, images.shape[2] // 2, images.shape[3] // 2]
            colour = (middle * torch.tensor(IMAGENET_STD) + torch.tensor(IMAGENET_MEAN)) * 255
            red, green, blue = colour.round().long().T
            return features[(red << 16) + (green << 8) + blue]

    return Lookup()


def run(way: str, seed: int, source: Features, place: Path) -> Row:
    """One campaign of 600 labels; images and features of the seed are made once, and left in `place`."""
    photos, features, home = place / "photos", place / FEATURES, place / way
    truth, order = draw_photos(source, seed, photos)
    with Campaign.create(home, photos, sorted(set(truth.values())), backbone=BACKBONE) as campaign:
        if features.exists():
            shutil.copytree(features, home / FEATURES)
        annotator = Annotator(campaign, truth)
        for number in range(1, ROUNDS + 1):
            due = LABELS * number // ROUNDS - len(campaign.labels())
            hunted = HUNTED if "hunting" in way and 1 < number < ROUNDS else 0
            campaign.next(due - hunted, seed=100 * seed + number)
            finish_round(annotator, bulk="bulk" in way)
            if hunted:
                hunt(annotator, hunted)
        labels = campaign.labels()
    if not features.exists():
        shutil.copytree(home / FEATURES, features)
    accuracy, rare = source.examine(labels, order)
    counts = (annotator.actions[action] for action in SECONDS)
    return Row(way, seed, len(labels), annotator.seconds, accuracy, rare, len(set(labels.values())), *counts)


def finish_round(annotator: Annotator, *, bulk: bool) -> None:
    """Label the open round; in bulk those with a guess, class by class, and then the others."""
    picks = annotator.campaign.picks()
    if not bulk or picks[0].predicted is None:
        annotator.one_by_one((pick.path, pick.predicted) for pick in picks)
        return
    for name, group in groupby(sorted(picks, key=lambda pick: pick.predicted or ""), lambda pick: pick.predicted):
        proposed = sorted(((pick.path, pick.confidence or 0.0) for pick in group), key=lambda one: -one[1])
        rest = annotator.tiles(proposed, str(name), found_by=None)
        annotator.one_by_one((path, None) for path in rest)


def hunt(annotator: Annotator, wanted: int) -> None:
    """Label likely images of the classes that are furthest behind, until `wanted` are found or tiles run out."""
    found, looked = 0, 0
    for short in [one for one in short_classes(annotator.campaign.ledger) if one.labelled]:
        if found >= wanted or looked >= MOST_TILES * wanted:
            break
        likely = annotator.campaign.find(cls=short.name, count=min(TILES, wanted - found))
        rest = annotator.tiles([(Path(one.path), one.score) for one in likely], short.name)
        looked, found = looked + len(likely), found + len(likely) - len(rest)


def write_results(rows: Sequence[Row], folder: Path) -> str:
    """Rows as CSV, means as a table; gives the table."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [one.name for one in fields(Row)]
    write_whole(folder / "results.csv", csv_bytes(names, [astuple(row) for row in rows]))
    text = table(rows)
    write_whole(folder / "table.md", text.encode())
    return text


def table(rows: Sequence[Row]) -> str:
    """Means ± standard errors; differences from one by one are paired by seed."""
    base = {row.seed: row for row in rows if row.way == WAYS[0]}
    lines = [
        "| way | labels per minute | mean recall | difference | rarer half | difference | classes found | "
        "looked at singly | tiles | clicks | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        own = [row for row in rows if row.way == way and row.seed in base]
        if not own:
            continue
        recalls, rares = ([100 * getattr(row, name) for row in own] for name in ("accuracy", "rare"))
        cells = [
            way, spread([60 * row.labels / row.seconds for row in own]),
            spread(recalls), gain(recalls, [100 * base[row.seed].accuracy for row in own]),
            spread(rares), gain(rares, [100 * base[row.seed].rare for row in own]),
            spread([row.classes for row in own]), f"{mean(row.confirm + row.choose for row in own):.0f}",
            f"{mean(row.tile for row in own):.0f}", f"{mean(row.click for row in own):.0f}", str(len(own)),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def spread(values: Sequence[float]) -> str:
    """Mean ± standard error.

    >>> spread([1.0, 2.0, 3.0])
    '2.0 ± 0.6'
    """
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{mean(values):.1f} ± {error:.1f}"


def gain(values: Sequence[float], others: Sequence[float]) -> str:
    """Mean difference ± standard error, paired; – where all are equal.

    >>> gain([2.0, 4.0], [1.0, 1.0])
    '+2.0 ± 1.0'
    """
    differences = [value - other for value, other in zip(values, others, strict=True)]
    return f"{'+' if mean(differences) > 0 else ''}{spread(differences)}" if any(differences) else "–"


def main() -> int:
    """Run what is missing and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.hunting", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help=f"folder with {FILE}")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    os.environ[DATA] = str(given.data)
    source, rows = Features.read(given.data), read_table(given.out / "results.csv", Row)
    done = {(row.way, row.seed) for row in rows}
    with one_blas_thread():
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory(prefix="tailwise-hunting-") as place:
                for way in (way for way in WAYS if (way, seed) not in done):
                    rows.append(run(way, seed, source, Path(place)))
                    print(write_results(rows, given.out), file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
