"""A whole campaign on real images, as a new user has it: init, next, label over HTTP, export; then train elsewhere.

`python -m benchmarks.quality.campaign --data DIR` compares Tailwise with random picks and writes docs/results/campaign.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.labeller import Labeller, Line, open_next_round
from benchmarks.quality.campaign_results import (
    EVERYTHING,
    RANDOM,
    TAILWISE,
    Measured,
    Result,
    Words,
    keep,
    load,
    write_results,
)
from tailwise.campaign.features import FOLDER as FEATURES
from tailwise.campaign.features import Extractor, chosen_backbone, find_extractor
from tailwise.campaign.service import Campaign
from tailwise.campaign.state import Settings
from tailwise.pools.datasets import cifar10
from tailwise.pools.pool import LabelledImages, Pool, exponential_profile, keep_counts
from tailwise.types import IntArray
from tailwise.web.serve import Options, running

FACTOR = 0.05  # the rarest class is so much as common as the commonest
TEST_IMAGES = 2_000
WISHES: Mapping[str, Mapping[str, Any]] = {TAILWISE: {}, RANDOM: {"strategy": "random", "balance": 0.0}}
ANNOTATOR = "oracle"


@dataclass(frozen=True, slots=True)
class Plan:
    """How large the campaigns are."""

    images: int = 2_000
    rounds: int = 5
    budget: int = 100


@dataclass(frozen=True, slots=True)
class Photos:
    """A flat folder of images with names that tell nothing, and what they show, kept aside."""

    folder: Path
    truth: Mapping[str, str]  # file name → class
    classes: tuple[str, ...]  # the commonest first

    def counts(self) -> IntArray:
        """Images per class, (C,), in the order of `classes`."""
        shown = list(self.truth.values())
        return np.array([shown.count(name) for name in self.classes], dtype=np.int64)


def main() -> int:
    """Run what is missing and write the results."""
    given = _parse()
    plan = Plan(given.images, given.rounds, given.budget)
    pool = cifar10(given.data)
    for backbone in given.backbone or dict.fromkeys((chosen_backbone("auto"), "simple")):
        school = School.of(pool.test, backbone)
        for seed in range(given.seeds):
            run_seed(pool, plan, school, seed, given.out, fresh=given.fresh)
    rows = [row for row in load(given.out) if row.plan == plan_words(plan)]
    print(write_results(rows, given.out))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.campaign", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the binary files of CIFAR-10")
    parser.add_argument("--images", type=int, default=2_000, help="images of a campaign")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=100, help="images of a round")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--backbone", action="append", help="what `auto` gives, and `simple`, where it is not given")
    parser.add_argument("--fresh", action="store_true", help="run again what is there already")
    parser.add_argument("--out", type=Path, default=Path("docs/results/campaign"))
    return parser.parse_args()


def run_seed(pool: Pool, plan: Plan, school: School, seed: int, out: Path, *, fresh: bool = False) -> None:
    """All methods on the images of one seed; each is kept as soon as it is done."""
    done = set() if fresh else {row.trial for row in load(out)}
    with tempfile.TemporaryDirectory(prefix="tailwise-campaign-") as place:
        photos = make_photos(pool.train, plan.images, seed, Path(place) / "photos")
        for method in (TAILWISE, RANDOM, EVERYTHING):
            trial = Trial(method, seed, plan, school.backbone)
            if trial.words in done:
                continue
            run = everything(photos, school) if method == EVERYTHING else campaign(photos, trial, school, Path(place))
            rows = [Measured.of(trial.words, round_number, result) for round_number, result in run]
            keep(rows, out)
            print(
                f"{' '.join(map(str, trial.words[:3]))}: {100 * rows[-1].accuracy:.1f} %", file=sys.stderr, flush=True
            )


@dataclass(frozen=True, slots=True)
class Trial:
    """One campaign."""

    method: str
    seed: int
    plan: Plan
    backbone: str

    @property
    def words(self) -> Words:
        """As the results name it; other defaults are another trial."""
        usual = Settings()
        how = f"{usual.strategy}, balance {usual.balance}, calibration {usual.calibration}, learner {usual.learner}"
        settings = {TAILWISE: how, RANDOM: "random, balance 0"}.get(self.method, "")
        return self.backbone, self.method, self.seed, plan_words(self.plan), settings


def plan_words(plan: Plan) -> str:
    """The sizes, as the results name them."""
    return f"{plan.images} images, {plan.rounds} rounds of {plan.budget}"


def make_photos(images: LabelledImages, size: int, seed: int, folder: Path) -> Photos:
    """A long-tailed draw written as PNG files; which classes are rare, and the names, are chance."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(images.classes)
    chosen = rng.permutation(keep_counts(images.labels, long_tail(images.classes, size, order), rng))
    folder.mkdir(parents=True)
    truth = {}
    for index in chosen.tolist():
        name = f"{rng.bytes(8).hex()}.png"
        pixels: NDArray[np.uint8] = images.inputs[np.array([index])][0]
        Image.fromarray(pixels).save(folder / name)
        truth[name] = images.class_names[images.labels[index]]
    return Photos(folder, truth, tuple(images.class_names[cls] for cls in order.tolist()))


def long_tail(classes: int, size: int, order: IntArray) -> IntArray:
    """Counts (C,) that fall exponentially along `order` and add up to `size`; the commonest takes what rounding left.

    >>> long_tail(3, 73, np.array([2, 0, 1])).tolist()
    [13, 3, 57]
    """
    most = size / sum(FACTOR ** (place / max(classes - 1, 1)) for place in range(classes))
    counts = exponential_profile(np.full(classes, round(most), dtype=np.int64), FACTOR, order)
    counts[order[0]] += size - counts.sum()
    return counts


def campaign(photos: Photos, trial: Trial, school: School, place: Path) -> Iterator[tuple[int, Result]]:
    """One campaign through the server; after each round, what a model learns from the folder that is exported."""
    home, features = place / f"{trial.method}-campaign", place / f"{TAILWISE}-campaign" / FEATURES
    names = sorted(photos.classes)
    Campaign.create(home, photos.folder, names, backbone=trial.backbone).close()
    if features.exists() and not (home / FEATURES).exists():  # the same images: the net need not look at them twice
        shutil.copytree(features, home / FEATURES)
    with running(home, Options(port=0)) as serving, Line(serving.url, serving.token) as line:
        labeller = Labeller(line, ANNOTATOR, Oracle.of(home, photos).class_of)
        for number in range(1, trial.plan.rounds + 1):
            opened = open_next_round(line, budget=trial.plan.budget, **WISHES[trial.method])
            said = labeller.finish_round()
            if (opened, said) != (number, trial.plan.budget):
                raise AssertionError(
                    f"round {opened} took {said} answers, where round {number} of {trial.plan} was due"
                )
            out = place / f"{trial.method}-export-{number}"
            with Campaign.open(home, read_only=True) as reader:
                reader.export(out, format="folders")
            yield number, school.examine(out, photos)


def everything(photos: Photos, school: School) -> Iterator[tuple[int, Result]]:
    """What could be learnt if every image had its label."""
    paths = sorted(photos.truth)
    yield 0, school.learn([photos.folder / path for path in paths], [photos.truth[path] for path in paths], photos)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Looks images up where a person looks at them: the server names them by keys alone."""

    path_of: Mapping[str, str]
    class_ids: Mapping[str, int]
    truth: Mapping[str, str]

    @classmethod
    def of(cls, home: Path, photos: Photos) -> Oracle:
        """Of one campaign."""
        with Campaign.open(home, read_only=True) as reader:
            paths = {row["key"]: row["path"] for row in reader.ledger.read("SELECT key, path FROM image")}
            return cls(paths, {one.name: one.id for one in reader.classes()}, photos.truth)

    def class_of(self, key: str) -> int:
        """The id of what the image shows."""
        return self.class_ids[self.truth[self.path_of[key]]]


@dataclass(slots=True)
class School:
    """Elsewhere: plain Pillow, scikit-learn with its own defaults, and test images that no campaign saw."""

    backbone: str
    extractor: Extractor
    test: NDArray[np.float32]  # (n, d)
    test_names: NDArray[np.str_]  # (n,)
    known: dict[bytes, NDArray[np.float32]] = field(default_factory=dict)  # by the bytes of a file

    @classmethod
    def of(cls, test: LabelledImages, backbone: str, *, images: int = TEST_IMAGES) -> School:
        """Test images with as many of each class."""
        extractor = find_extractor(backbone)
        per_class = np.full(test.classes, images // test.classes, dtype=np.int64)
        chosen = keep_counts(test.labels, per_class, np.random.default_rng(0))
        pictures = [Image.fromarray(test.inputs[np.array([index])][0]) for index in chosen.tolist()]
        names = np.array([test.class_names[label] for label in test.labels[chosen].tolist()])
        return cls(extractor.name, extractor, features_of(pictures, extractor), names)

    def examine(self, exported: Path, photos: Photos) -> Result:
        """Learn from a folder of class folders, whose names are all that is known of the campaign."""
        files = sorted(path for path in exported.glob("*/*") if path.is_file())
        listed = json.loads((exported / "classes.json").read_text(encoding="utf-8"))["classes"]
        name_of = {entry["folder"]: entry["name"] for entry in listed}
        return self.learn(files, [name_of[path.parent.name] for path in files], photos)

    def learn(self, files: Sequence[Path], names: Sequence[str], photos: Photos) -> Result:
        """Logistic regression on standardised features, both as scikit-learn has them."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
        model.fit(self._features(files), np.array(names))
        right = model.predict(self.test) == self.test_names
        rare = np.isin(self.test_names, photos.classes[len(photos.classes) // 2 :])
        counts = tuple(list(names).count(name) for name in photos.classes)
        return Result(len(names), float(right.mean()), float(right[rare].mean()), counts)

    def _features(self, files: Sequence[Path]) -> NDArray[np.float32]:
        """Made once per image: a later export holds those of the one before."""
        keys = [hashlib.sha256(path.read_bytes()).digest() for path in files]
        new = {key: path for key, path in zip(keys, files, strict=True) if key not in self.known}
        made = features_of([Image.open(path) for path in new.values()], self.extractor)
        self.known.update(zip(new, made, strict=True))
        return np.stack([self.known[key] for key in keys])


def features_of(pictures: Sequence[Image.Image], extractor: Extractor, batch: int = 64) -> NDArray[np.float32]:
    """Features (n, d) of pictures that Pillow has resized."""
    made = [np.empty((0, 0), np.float32)]
    size = (extractor.side, extractor.side)
    for start in range(0, len(pictures), batch):
        part = [
            picture.convert("RGB").resize(size, Image.Resampling.BILINEAR)
            for picture in pictures[start : start + batch]
        ]
        made.append(extractor.features(np.stack([np.asarray(picture) for picture in part])))
    return np.concatenate(made[1:] or made)


if __name__ == "__main__":
    sys.exit(main())
