"""`python -m benchmarks.quality.label_errors --data FOLDER`: how many planted label errors the review finds.

Labels are drawn at random from long-tailed pools of real features; some of them are changed, to any other class or to
the class that the image resembles most. Compared with the plain way: labels ranked by the probability that held-out
models leave for them, as these models say it. Rows and a page go to docs/results/label-errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from benchmarks.quality.calibration import SOURCES, load
from benchmarks.quality.published import read_table
from tailwise.campaign.models import head_named
from tailwise.campaign.review import SEED, calibrated, rank_labels
from tailwise.files import csv_bytes, write_whole
from tailwise.learners.learner import FOLDS, out_of_fold
from tailwise.processes import one_blas_thread
from tailwise.types import FloatArray, IntArray

RESULTS = Path("docs/results/label-errors")
ROWS = RESULTS / "results.csv"
LABELS = {
    "cifar-10": 500, "signs": 500, "blood cells": 400, "seedlings": 300, "fish": 400, "tiny-50": 500, "flowers": 600,
}  # fmt: skip
SHARES = (0.03, 0.05, 0.10)
KINDS = ("random", "confusable")


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled set with planted errors."""

    pool: str
    classes: int
    labels: int
    kind: str
    share: float
    seed: int
    planted: int
    found: float  # share of the planted errors among as many findings
    found_twice: float  # among twice as many
    plain_found: float
    plain_found_twice: float
    likely: int  # labels that are shown as likely errors
    likely_right: float  # share of them that were planted; NaN without any
    suggested_right: float  # share of the planted errors among twice as many findings whose true class is suggested


def plant(
    features: FloatArray, truth: IntArray, means: FloatArray, share: float, kind: str, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:  # fmt: skip
    """Labels (n,) of which some are wrong, and which (k,): any other class, or the one whose mean is nearest."""
    wrong = rng.choice(len(truth), max(1, round(share * len(truth))), replace=False)
    labels = truth.copy()
    if kind == "random":
        present = np.unique(truth)
        for at in wrong.tolist():
            labels[at] = rng.choice(present[present != truth[at]])
        return labels, wrong
    distance = ((features[wrong][:, None] - means[None]) ** 2).sum(axis=2)  # (k, C)
    distance[np.arange(len(wrong)), truth[wrong]] = np.inf
    labels[wrong] = distance.argmin(axis=1)
    return labels, wrong


def measure(
    pool: str, features: FloatArray, truth: IntArray, *, kind: str, share: float, seed: int
) -> Row:  # fmt: skip
    """Plant errors into one random draw, and look for them in both ways."""
    classes = SOURCES[pool].classes
    rng = np.random.default_rng([seed, round(100 * share), KINDS.index(kind)])
    means = np.stack([features[truth == cls].mean(axis=0) for cls in range(classes)])
    drawn = np.sort(rng.choice(len(truth), LABELS[pool], replace=False))
    labels, wrong = plant(features[drawn], truth[drawn], means, share, kind, rng)
    head = head_named("linear")
    plain = out_of_fold(head, features[drawn], labels, classes=classes, folds=FOLDS, seed=SEED)
    held = calibrated(plain, head, labels)
    own = labels[held.rows]
    _, likely, order = rank_labels(own, held.proba)
    plain_order = np.argsort(plain.proba[np.arange(len(plain.rows)), own], kind="stable")
    planted = np.isin(held.rows, wrong)
    count = len(wrong)
    others = held.proba.copy()
    others[np.arange(len(own)), own] = -1
    suggested = others.argmax(axis=1) == truth[drawn][held.rows]
    first = order[: 2 * count]
    hit = first[planted[first]]
    return Row(
        pool, classes, len(labels), kind, share, seed, count,
        planted[order[:count]].sum() / count, planted[first].sum() / count,
        planted[plain_order[:count]].sum() / count, planted[plain_order[: 2 * count]].sum() / count,
        int(likely.sum()), float(planted[likely].mean()) if likely.any() else np.nan,
        float(suggested[hit].mean()) if len(hit) else np.nan,
    )  # fmt: skip


def run(folder: Path, pool: str, seed: int) -> Iterator[Row]:
    """All kinds of errors and shares."""
    features, labels = load(folder, pool, np.random.default_rng(seed))
    for kind in KINDS:
        for share in SHARES:
            yield measure(pool, features, labels, kind=kind, share=share, seed=seed)


def page(rows: Sequence[Row]) -> str:
    """What was found, in one table over all pools and one line for each of them."""
    lines = [PAGE.format(seeds=len({row.seed for row in rows}))]
    for kind in KINDS:
        for share in SHARES:
            mine = [row for row in rows if (row.kind, row.share) == (kind, share)]
            if mine:
                lines.append(_line([f"all {len({row.pool for row in mine})}", kind, f"{share:.0%}"], mine))
    for pool in dict.fromkeys(row.pool for row in rows):
        for kind in KINDS:
            mine = [row for row in rows if (row.pool, row.kind) == (pool, kind)]
            name = f"{pool}, {mine[0].classes} classes, {mine[0].labels} labels"
            lines.append(_line([name, kind, "all"], mine))
    return "\n".join(lines) + "\n"


def _line(first: Sequence[str], rows: Sequence[Row]) -> str:
    gain = [row.found - row.plain_found for row in rows]
    error = stdev(gain) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
    right = sum(row.likely_right * row.likely for row in rows if row.likely) / max(1, sum(row.likely for row in rows))
    times = [row.likely / row.planted for row in rows]
    cells = [
        *first, f"{mean(row.found for row in rows):.0%}", f"{mean(row.plain_found for row in rows):.0%}",
        f"{100 * mean(gain):+.1f} ± {100 * error:.1f}", f"{mean(row.found_twice for row in rows):.0%}",
        f"{mean(row.plain_found_twice for row in rows):.0%}", f"{right:.0%}",
        f"{mean(times):.1f} ({min(times):.1f} to {max(times):.1f})",
        f"{np.nanmean([row.suggested_right for row in rows]):.0%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


PAGE = """# Label errors: how many are found

Labels were drawn at random from long-tailed pools of real images, and 3, 5 or 10 % of them were changed: to any other
class ("random"), or to the class whose mean is nearest to the image ("confusable"). {seeds} seeds of each. Written by
`python -m benchmarks.quality.label_errors --data folder`.

- *Found*: share of the planted errors among as many findings, or among twice as many, in the order of the review.
- *Plain*: the same if labels are ranked by the probability that held-out models leave for them, without calibration
  and without cleanlab.
- *Likely right*: share of the labels shown as likely errors that were planted. Errors that the pools have of their own
  count as wrong findings.
- *Likely per planted*: labels shown as likely errors for each planted one (least to most over all sets).
- *Suggested right*: share of the found errors for which the suggested class is the true one.

How labels are ranked and counted was chosen on CIFAR-10, signs, blood cells and seedlings. Fish and Tiny ImageNet, and
all but two seeds of flowers, played no part in it.

| pool | errors | share | found | plain | difference, points | in twice as many | plain | likely right \
| likely per planted | suggested right |
|---|---|---|---|---|---|---|---|---|---|---|"""


def main() -> int:
    """Measure what is missing, and write the rows and the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.label_errors", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the feature files")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", action="append", choices=list(LABELS), help="a pool; may be given more than once")
    parser.add_argument("--fresh", action="store_true", help="measure again what is there already")
    given = parser.parse_args()
    rows = [] if given.fresh else read_table(ROWS, Row)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for pool in given.only or list(LABELS):
        for seed in set(range(given.seeds)) - {row.seed for row in rows if row.pool == pool}:
            with one_blas_thread():
                rows += run(given.data, pool, seed)
            rows.sort(key=lambda row: (list(LABELS).index(row.pool), row.seed))
            cells = [[round(one, 4) if isinstance(one, float) else one for one in astuple(row)] for row in rows]
            write_whole(ROWS, csv_bytes([field.name for field in fields(Row)], cells))
    write_whole(RESULTS / "README.md", page(rows).encode())
    print(page(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
