"""`python -m benchmarks.quality.calibration --data FOLDER`: how far expected counts can be trusted, on real features.

For pools with 10 to 102 classes and 2 to 10 labels per class: confidence, accuracy and misplaced images of the linear
head as it is and calibrated as in campaigns. Rows go to tailwise-runs, a table to docs/results/calibration.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import mean

import numpy as np

from tailwise.calibration import Calibration, misplaced
from tailwise.files import csv_bytes, write_whole
from tailwise.learners import LinearLearner, fit_calibrated
from tailwise.processes import one_blas_thread
from tailwise.softmax import expected_calibration_error
from tailwise.strategies import make
from tailwise.types import Float64Array, FloatArray, IntArray, Predictions

RESULTS = Path("docs/results/calibration")
ROWS = Path("tailwise-runs/quality/calibration.csv")
BATCH = 200
PER_CLASS = (2, 5, 10)
FIRST_SETS = ("random", "picked", "equal")
LARGEST_POOL = 4_000


@dataclass(frozen=True, slots=True)
class Source:
    """A pool of features: its file, how many of its first classes, and the rarest class over the commonest if cut."""

    file: str
    classes: int
    tail: float | None = None


SOURCES = {
    "flowers": Source("flowers_features.npz", 102),
    "tiny-100": Source("tinyimagenet_features.npz", 100, 0.01),
    "tiny-50": Source("tinyimagenet_features.npz", 50, 0.01),
    "signs": Source("gtsrb_features.npz", 43),
    "fish": Source("fish_features.npz", 22),
    "seedlings": Source("seedlings_features.npz", 12),
    "blood cells": Source("bloodcells_features.npz", 11),
    "cifar-10": Source("cifar10_features.npz", 10, 0.01),
}


@dataclass(frozen=True, slots=True)
class Marks:
    """One labelled set: the head as it is (`calibration` "none") or calibrated."""

    pool: str
    classes: int
    first_set: str
    per_class: int
    seed: int
    calibration: str
    temperature: float
    accuracy: float
    confidence: float
    calibration_error: float
    log_loss: float
    pool_misplaced: float  # Σ|expected − true| / 2 over the pool, as a share of it
    batch_misplaced: float  # the same over a batch of 200 by margin, as a number of images
    batch_estimate: float  # what `Trust.misplaced` says it is
    batch_chance: float  # what independent draws alone make it, if all probabilities were right
    found: float  # classes in the batch


def load(folder: Path, name: str, rng: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Features (N, d) by one common scale, and labels (N,), cut to a long tail where the source is balanced."""
    source = SOURCES[name]
    with np.load(folder / source.file) as stored:
        features, labels = stored["x_train"].astype(np.float32), stored["y_train"].astype(np.int64)
    features, labels = features[labels < source.classes], labels[labels < source.classes]
    if source.tail is not None:
        most = np.bincount(labels).min()
        sizes = most * source.tail ** (np.arange(source.classes) / (source.classes - 1))
        order = rng.permutation(source.classes)
        kept = [
            rng.choice(np.flatnonzero(labels == cls), max(1, round(size)), replace=False)
            for cls, size in zip(order, sizes, strict=True)
        ]
        chosen = np.sort(np.concatenate(kept))
        features, labels = features[chosen], labels[chosen]
    return features / features.std(axis=0).mean(), labels


def first_set(
    kind: str, features: FloatArray, labels: IntArray, classes: int, per_class: int, rng: np.random.Generator
) -> IntArray:
    """A labelled set: drawn at random, half of it picked by margin in three rounds, or as many of every class."""
    size = min(max(per_class * classes, 20), len(labels) // 2)
    if kind == "equal":
        return np.concatenate([rng.permutation(np.flatnonzero(labels == cls))[:per_class] for cls in range(classes)])
    if kind == "random":
        return rng.choice(len(labels), size, replace=False)
    chosen = rng.choice(len(labels), size // 2, replace=False)
    for left in (3, 2, 1):
        rest = np.setdiff1d(np.arange(len(labels)), chosen)
        model = LinearLearner().fit(features[chosen], labels[chosen], classes=classes, seed=0)
        batch = make("margin", balance=0).select(
            Predictions(model.predict_proba(features[rest])), (size - len(chosen)) // left
        )
        chosen = np.concatenate([chosen, rest[batch.indices]])
    return chosen


def measure(
    pool: str, features: FloatArray, labels: IntArray, classes: int, *, kind: str, per_class: int, seed: int
) -> Iterator[Marks]:
    """Fit on one labelled set, and compare what is expected of the rest with what is true."""
    rng = np.random.default_rng([seed, per_class, FIRST_SETS.index(kind)])
    chosen = first_set(kind, features, labels, classes, per_class, rng)
    rest = rng.permutation(np.setdiff1d(np.arange(len(labels)), chosen))[:LARGEST_POOL]
    learner, truth = LinearLearner(), labels[rest]
    counts = np.bincount(labels[chosen], minlength=classes).astype(np.float64)
    raw = learner.fit(features[chosen], labels[chosen], classes=classes, seed=0).predict_proba(features[rest])
    fitted = fit_calibrated(
        learner, features[chosen], labels[chosen], classes=classes, kind="temperature", seed=seed
    )  # fmt: skip
    for calibration in (Calibration(), fitted):
        yield _marks(pool, kind, per_class, seed, calibration, raw, truth, counts)


def _marks(
    pool: str, kind: str, per_class: int, seed: int, calibration: Calibration, raw: FloatArray, truth: IntArray,
    counts: Float64Array,
) -> Marks:  # fmt: skip
    proba = calibration.apply(raw).astype(np.float64)
    proba /= proba.sum(axis=1, keepdims=True)
    classes = len(counts)
    batch = make("margin", balance=0).select(Predictions(proba), BATCH, counts=counts)
    real = np.bincount(truth[batch.indices], minlength=classes)
    own = proba[np.arange(len(truth)), truth]
    estimate = chance = np.nan
    if calibration.trust is not None:
        estimate = misplaced(batch.expected_counts, batch.counts_std, counts, calibration.trust)
        chance = float(np.sqrt(2 / np.pi) * batch.counts_std.sum() / 2)
    return Marks(
        pool, classes, kind, per_class, seed, calibration.kind, calibration.temperature,
        float((proba.argmax(axis=1) == truth).mean()), float(proba.max(axis=1).mean()),
        expected_calibration_error(proba, truth), -float(np.log(np.maximum(own, 1e-5)).mean()),
        float(np.abs(proba.sum(axis=0) - np.bincount(truth, minlength=classes)).sum() / 2 / len(truth)),
        float(np.abs(batch.expected_counts - real).sum() / 2), estimate, chance, float(np.count_nonzero(real)),
    )  # fmt: skip


def run(folder: Path, pools: Sequence[str], seeds: Sequence[int]) -> Iterator[Marks]:
    """All pools, first sets, sizes and seeds."""
    for pool in pools:
        for seed in seeds:
            features, labels = load(folder, pool, np.random.default_rng(seed))
            for kind in FIRST_SETS:
                for per_class in PER_CLASS:
                    yield from measure(
                        pool, features, labels, SOURCES[pool].classes, kind=kind, per_class=per_class, seed=seed
                    )  # fmt: skip


def table(rows: Sequence[Marks]) -> str:
    """Means over seeds, one line for each pool, first set and number of labels per class."""
    lines = [
        "| pool | classes | labels | per class | right | said | said, calibrated | right, calibrated "
        "| pool misplaced | calibrated | of 200 picks misplaced | calibrated | estimate | chance alone |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in dict.fromkeys((row.pool, row.classes, row.first_set, row.per_class) for row in rows):
        mine = [row for row in rows if (row.pool, row.classes, row.first_set, row.per_class) == key]
        before, after = ([row for row in mine if (row.calibration == "none") == plain] for plain in (True, False))
        shares = [
            mean(row.accuracy for row in before), mean(row.confidence for row in before),
            mean(row.confidence for row in after), mean(row.accuracy for row in after),
            mean(row.pool_misplaced for row in before), mean(row.pool_misplaced for row in after),
        ]  # fmt: skip
        images = [
            mean(row.batch_misplaced for row in before), mean(row.batch_misplaced for row in after),
            mean(row.batch_estimate for row in after), mean(row.batch_chance for row in after),
        ]  # fmt: skip
        cells = [*map(str, key), *(f"{share:.0%}" for share in shares), *(f"{number:.0f}" for number in images)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, and write the rows and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.calibration", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the feature files")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", action="append", choices=list(SOURCES), help="a pool; may be given more than once")
    given = parser.parse_args()
    with one_blas_thread():
        rows = list(run(given.data, given.only or list(SOURCES), range(given.seeds)))
    for folder in (ROWS.parent, RESULTS):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(ROWS, csv_bytes([field.name for field in fields(Marks)], [astuple(row) for row in rows]))
    text = table(rows)
    write_whole(RESULTS / "table.md", text.encode())
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
