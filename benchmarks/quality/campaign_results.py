"""Results of whole campaigns: measured rows in; results.csv, table.md and a figure out.

A trial replaces the rows that it had; the table and the figure are made of what is kept.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tailwise.files import csv_bytes, write_whole
from tailwise.report.curves import BLUE, GREY
from tailwise.report.figures import FULL, POOL, ROUND, STYLE, figure_bytes, legend_below, new_figure
from tailwise.report.tables import number, with_spread

TAILWISE, RANDOM, EVERYTHING = "tailwise", "random", "all labels"
LOOK: dict[str, dict[str, Any]] = {
    TAILWISE: {"color": BLUE, "marker": "o"},
    RANDOM: {"color": GREY, "marker": "x"},
}
CSV, TABLE, FIGURE = "results.csv", "table.md", "campaign.png"

Words: TypeAlias = tuple[str, str, int, str, str]


@dataclass(frozen=True, slots=True)
class Result:
    """What one exported folder is worth."""

    labels: int
    accuracy: float
    tail_accuracy: float  # of the rarer half of the classes
    counts: tuple[int, ...]  # labels per class, the commonest in the pool first


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of results.csv."""

    backbone: str
    method: str
    seed: int
    plan: str
    settings: str
    round: int  # 0 where there was no campaign
    labels: int
    accuracy: float
    tail_accuracy: float
    fewest: int  # labels of the class that has the fewest
    l1: float  # distance of the labels' class shares from equal ones, 0 to 2
    counts: tuple[int, ...]

    @classmethod
    def of(cls, words: Words, round_number: int, result: Result) -> Measured:
        """A result with the trial that it belongs to."""
        return cls(
            *words, round_number, result.labels, result.accuracy, result.tail_accuracy, min(result.counts),
            unevenness(result.counts), result.counts,
        )  # fmt: skip

    @property
    def trial(self) -> Words:
        """Which campaign it is of."""
        return self.backbone, self.method, self.seed, self.plan, self.settings


def unevenness(counts: Sequence[int]) -> float:
    """Σ|share − 1/C|: 0 where all classes have as many labels.

    >>> unevenness((5, 5)), unevenness((10, 0))
    (0.0, 1.0)
    """
    shares = np.array(counts) / sum(counts)
    return float(np.abs(shares - 1 / len(counts)).sum())


def load(folder: Path) -> list[Measured]:
    """What is kept; nothing where there is no file."""
    path = folder / CSV
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [_read(line) for line in csv.DictReader(file)]


def keep(rows: Sequence[Measured], folder: Path) -> None:
    """Write the rows of a trial in place of those that it had."""
    new = {row.trial for row in rows}
    kept = [*(row for row in load(folder) if row.trial not in new), *rows]
    kept.sort(key=lambda row: (row.backbone, row.plan, row.method, row.settings, row.seed, row.round))
    names = [field.name for field in fields(Measured)]
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / CSV, csv_bytes(names, [[_plain(value) for value in asdict(row).values()] for row in kept]))


def write_results(rows: Sequence[Measured], folder: Path) -> str:
    """Write table and figure of rows of one plan; gives the table."""
    table = "\n".join(_page(rows))
    write_whole(folder / TABLE, table.encode())
    write_whole(folder / FIGURE, figure_bytes(draw(rows), "png"))
    return table


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:.6g}" if isinstance(value, float) else value


def _read(line: dict[str, str]) -> Measured:
    return Measured(
        line["backbone"], line["method"], int(line["seed"]), line["plan"], line["settings"], int(line["round"]),
        int(line["labels"]), float(line["accuracy"]), float(line["tail_accuracy"]), int(line["fewest"]),
        float(line["l1"]), tuple(int(count) for count in line["counts"].split()),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean over seeds with its standard deviation."""

    mean: float
    deviation: float  # NaN for a single seed

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of one number per seed."""
        return cls(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan)

    def shown(self, scale: float = 1.0, digits: int = 1, *, sign: bool = False) -> str:
        """As in "61.2 ± 0.8"."""
        if math.isnan(self.deviation):
            return number(scale * self.mean, digits, sign=sign)
        return with_spread(scale * self.mean, scale * self.deviation, digits, sign=sign)


def picked(rows: Iterable[Measured], **wanted: object) -> list[Measured]:
    """The rows whose fields are as wanted, by seed."""
    found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    return sorted(found, key=lambda row: row.seed)


def _page(rows: Sequence[Measured]) -> list[str]:
    plans = {row.plan for row in rows}
    settings = sorted({row.settings for row in rows if row.method == TAILWISE})
    lines = [
        "# Complete campaigns on real images",
        "",
        f"CIFAR-10 with a long tail, {', '.join(sorted(plans))}: the rarest class is a twentieth as common as the "
        "commonest. The images are labelled over the HTTP API and exported as folders; then scikit-learn's logistic "
        "regression is trained on the same features and tested on 2,000 other images, 200 of each class. "
        f"Tailwise: {'; '.join(settings)}. Mean ± standard deviation over {len({row.seed for row in rows})} seeds; "
        "gains are paired by seed.",
        "",
        "Written by `python -m benchmarks.quality.campaign --data FOLDER` (the binary files of CIFAR-10).",
        "",
        "![Accuracy by labels, and labels per class](campaign.png)",
    ]
    for backbone in dict.fromkeys(row.backbone for row in rows):
        own = [row for row in rows if row.backbone == backbone]
        lines += ["", f"## Features: {backbone}", "", *_accuracy_table(own), "", *_count_table(own)]
    return [*lines, ""]


def _accuracy_table(rows: Sequence[Measured]) -> list[str]:
    lines = [
        "| labels | Tailwise (%) | random (%) | gain | rarer half: Tailwise (%) | random (%) | gain |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for round_number in sorted({row.round for row in rows if row.round}):
        ours, theirs = (picked(rows, method=method, round=round_number) for method in (TAILWISE, RANDOM))
        if not ours or [row.seed for row in ours] != [row.seed for row in theirs]:
            continue
        cells = [str(ours[0].labels)]
        for name in ("accuracy", "tail_accuracy"):
            a, b = ([getattr(row, name) for row in some] for some in (ours, theirs))
            gain = Spread.of([x - y for x, y in zip(a, b, strict=True)])
            cells += [Spread.of(a).shown(100), Spread.of(b).shown(100), gain.shown(100, sign=True)]
        lines.append(f"| {' | '.join(cells)} |")
    whole = picked(rows, method=EVERYTHING)
    if whole:
        top, tail = (
            Spread.of([getattr(row, name) for row in whole]).shown(100) for name in ("accuracy", "tail_accuracy")
        )
        lines.append(f"| all {whole[0].labels:,} | {top} | | | {tail} | | |")
    return lines


def _count_table(rows: Sequence[Measured]) -> list[str]:
    classes = len(rows[0].counts)
    lines = [
        f"Labels per class, the commonest in the pool first, mean over {len({row.seed for row in rows})} seeds; "
        "L1: distance from equal shares, 0 to 2.",
        "",
        f"| labels | method | {' | '.join(str(place + 1) for place in range(classes))} | fewest | L1 |",
        f"|---:|---|{'---:|' * (classes + 2)}",
    ]
    for round_number in sorted({row.round for row in rows}):
        for method in (TAILWISE, RANDOM, EVERYTHING):
            found = picked(rows, method=method, round=round_number)
            if found:
                counts = [f"{count:.0f}" for count in np.mean([row.counts for row in found], axis=0)]
                fewest, l1 = np.mean([row.fewest for row in found]), np.mean([row.l1 for row in found])
                shown = f"{found[0].labels} | {method} | {' | '.join(counts)} | {fewest:.1f} | {l1:.2f}"
                lines.append(f"| {shown} |")
    return lines


def draw(rows: Sequence[Measured]) -> Figure:
    """For each backbone, accuracy against labels and the labels per class at the end."""
    backbones = list(dict.fromkeys(row.backbone for row in rows))
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL, 2.3 * len(backbones) + 0.4)
        grid = figure.subplots(len(backbones), 2, squeeze=False)
        handles = []
        for (left, right), backbone in zip(grid, backbones, strict=True):
            own = [row for row in rows if row.backbone == backbone]
            handles = _draw_accuracy(left, own, backbone)
            _draw_counts(right, own)
        legend_below(figure, handles)
    return figure


def _draw_accuracy(axes: Axes, rows: Sequence[Measured], backbone: str) -> list[Any]:
    handles: list[Any] = []
    for method in (TAILWISE, RANDOM):
        numbers = sorted({row.round for row in rows if row.method == method})
        points = [picked(rows, method=method, round=one) for one in numbers]
        spreads = [Spread.of([100 * row.accuracy for row in point]) for point in points]
        means, bars = [one.mean for one in spreads], [np.nan_to_num(one.deviation) for one in spreads]
        look = {"linewidth": 1.3, "markersize": 4, "elinewidth": 0.8, **LOOK[method]}
        handles.append(axes.errorbar([point[0].labels for point in points], means, bars, label=method, **look))
    whole = picked(rows, method=EVERYTHING)
    if whole:
        level = 100 * float(np.mean([row.accuracy for row in whole]))
        handles.append(axes.axhline(level, color=GREY, linewidth=0.9, linestyle=(0, (1, 1.5)), label=EVERYTHING))
    axes.set_title(f"{backbone}: accuracy (%)")
    axes.set_xlabel("labels")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=ROUND))
    return handles


def _draw_counts(axes: Axes, rows: Sequence[Measured]) -> None:
    last = max(row.round for row in rows)
    classes = np.arange(len(rows[0].counts))
    pool = picked(rows, method=EVERYTHING)
    if pool:
        shares = np.mean([row.counts for row in pool], axis=0) / pool[0].labels
        budget = max(row.labels for row in rows if row.round == last)
        axes.bar(classes, shares * budget, width=0.9, color=POOL, zorder=1)
    for place, method in enumerate((TAILWISE, RANDOM)):
        found = picked(rows, method=method, round=last)
        if found:
            means = np.mean([row.counts for row in found], axis=0)
            axes.bar(classes + 0.36 * (place - 0.5), means, width=0.34, color=LOOK[method]["color"], zorder=2)
    axes.set_title("labels per class at the end; pale: the pool's shares")
    axes.set_xlabel("class, the commonest first")
    axes.set_xticks(classes, labels=[str(one + 1) for one in classes])
