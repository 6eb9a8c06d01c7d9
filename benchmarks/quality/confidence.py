"""`python -m benchmarks.quality.confidence --data FOLDER`: how often guesses are right, and what is said of them.

Labelled sets of 1 to 4 labels per class, drawn at random, chosen as a campaign does, or equally many of each class.
The confidence that people would see, and the accuracy, on images without labels. Goes to docs/results/confidence.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.quality.calibration import SOURCES, load
from benchmarks.quality.published import read_table
from tailwise.campaign.choosing import choose_cold
from tailwise.campaign.state import Settings
from tailwise.cycle import Asking, choose, fit
from tailwise.files import csv_bytes, write_whole
from tailwise.learners import LinearLearner, fit_calibrated
from tailwise.pools.pool import LabelledImages
from tailwise.processes import one_blas_thread
from tailwise.strategies import make
from tailwise.types import FloatArray, IntArray

RESULTS = Path("docs/results/confidence")
ROWS = RESULTS / "results.csv"
PER_CLASS = (1.0, 1.5, 2.0, 3.0, 4.0)
SETS = ("random", "campaign", "equal")
CLUSTERS = {"44 clusters": 1.0, "44 clusters, blurred": 2.0}  # and how far their images lie from the centres
POOLS = ("fish", "blood cells", "cifar-10", *CLUSTERS, "tiny-50", "flowers")
LARGEST_POOL, ASKED = 4_000, 2_000
BINS = (0, 1, 10, 20, 30, 45, 100)  # of labels that can be held out


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled set."""

    pool: str
    how: str
    per_class: float
    seed: int
    held_out: int  # labels that are not alone in their class
    accuracy: float
    confidence: float  # mean of what is shown
    chosen_accuracy: float  # the same for the probabilities that batches are chosen by
    chosen_confidence: float


def pool_of(folder: Path, name: str, seed: int) -> tuple[FloatArray, IntArray, int]:
    """Features (N, d), labels (N,) and the number of classes."""
    rng = np.random.default_rng(seed)
    if name in CLUSTERS:
        classes = 44
        shares = rng.permutation(0.2 ** (np.arange(classes) / (classes - 1)))
        labels = rng.choice(classes, 3000, p=shares / shares.sum())
        centres = rng.normal(size=(classes, 64))
        return (centres[labels] + CLUSTERS[name] * rng.normal(size=(3000, 64))).astype(np.float32), labels, classes
    features, labels = load(folder, name, rng)
    kept = np.sort(rng.permutation(len(labels))[:LARGEST_POOL])
    return features[kept], labels[kept], SOURCES[name].classes


def labelled_sets(
    how: str, features: FloatArray, labels: IntArray, classes: int, seed: int
) -> Iterator[tuple[float, IntArray]]:  # fmt: skip
    """Growing sets of rows, with their labels per class."""
    rng = np.random.default_rng([seed, 9])
    order = rng.permutation(len(labels))
    members = [order[labels[order] == cls] for cls in range(classes)]
    learner, names, chosen = LinearLearner(), tuple(map(str, range(classes))), order[:0]
    for per_class in PER_CLASS:
        size = int(per_class * classes)
        if how == "random":
            chosen = order[:size]
        elif how == "equal":
            more = rng.permutation(classes) < size % classes
            chosen = np.concatenate([rows[: int(per_class) + one] for rows, one in zip(members, more, strict=True)])
        elif not len(chosen):
            strategy = Settings().strategy
            chosen = choose_cold(features, features[:0], size, strategy=strategy, classes=classes, seed=seed).indices
        else:
            rest = np.setdiff1d(np.arange(len(labels)), chosen)
            images = LabelledImages(features[chosen], labels[chosen], names)
            picked = choose(
                make(Settings().strategy, balance=Settings().balance), learner, fit(learner, images, seed=seed), images,
                features[rest], size - len(chosen), seed=seed, asking=Asking(),
            )  # fmt: skip
            chosen = np.concatenate([chosen, rest[picked.selection.indices]])
        yield per_class, chosen


def measure(folder: Path, pool: str, seed: int) -> Iterator[Row]:
    """All sets of one pool."""
    features, labels, classes = pool_of(folder, pool, seed)
    learner = LinearLearner()
    for how in SETS:
        for per_class, chosen in labelled_sets(how, features, labels, classes, seed):
            rest = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(len(labels)), chosen))[:ASKED]
            model = learner.fit(features[chosen], labels[chosen], classes=classes, seed=0)
            raw = np.asarray(model.predict_proba(features[rest]))
            fitted = fit_calibrated(
                learner, features[chosen], labels[chosen], classes=classes, kind="temperature", seed=seed
            )  # fmt: skip
            counts = np.bincount(labels[chosen], minlength=classes)
            marks = []
            for calibration in (fitted.shown(), fitted):
                proba = calibration.apply(raw)
                right = proba.argmax(axis=1) == labels[rest]
                marks += [round(float(right.mean()), 4), round(float(proba.max(axis=1).mean()), 4)]
            yield Row(pool, how, per_class, seed, int(counts[counts > 1].sum()), *marks)


def table(rows: Sequence[Row]) -> str:
    """By labels that can be held out, and by how they were chosen."""
    lines = [HEAD.format("labels that can be held out"), RULE]
    for low, high in zip(BINS, (*BINS[1:], 10**9), strict=True):
        name = "0" if high == 1 else f"{low} and more" if high == 10**9 else f"{low} to {high - 1}"
        lines.append(_line(name, [row for row in rows if low <= row.held_out < high]))
    lines += ["", HEAD.format("set, labels per class"), RULE]
    for how in SETS:
        for size in PER_CLASS:
            lines.append(_line(f"{how}, {size:g}", [row for row in rows if (row.how, row.per_class) == (how, size)]))
    return "\n".join(lines) + "\n"


HEAD = "| {} | sets | right | confidence − accuracy, points | mean distance | within 10 points | right, as chosen by |"
RULE = "|---|---|---|---|---|---|---|"


def _line(name: str, rows: Sequence[Row]) -> str:
    if not rows:
        return f"| {name} | 0 | – | – | – | – | – |"
    gaps = np.array([row.confidence - row.accuracy for row in rows])
    right, before = (np.mean([getattr(row, field) for row in rows]) for field in ("accuracy", "chosen_accuracy"))
    cells = [name, str(len(rows)), f"{right:.0%}", f"{100 * gaps.mean():+.1f}", f"{100 * np.abs(gaps).mean():.1f}"]
    cells += [f"{np.mean(np.abs(gaps) <= 0.1):.0%}", f"{before:.0%}"]
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Measure what is missing, and write the rows and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.confidence", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the feature files")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", action="append", choices=POOLS, help="a pool; may be given more than once")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")
    given = parser.parse_args()
    rows = [] if given.fresh else read_table(ROWS, Row)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for pool in given.only or POOLS:
        for seed in sorted(set(range(given.seeds)) - {row.seed for row in rows if row.pool == pool}):
            with one_blas_thread():
                rows += measure(given.data, pool, seed)
            rows.sort(key=lambda row: (POOLS.index(row.pool), row.seed))
            write_whole(ROWS, csv_bytes([field.name for field in fields(Row)], [astuple(row) for row in rows]))
            write_whole(RESULTS / "table.md", table(rows).encode())
    print(table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
