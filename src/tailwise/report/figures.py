"""Figures for papers and reports: results in, matplotlib Figures out, without pyplot and its global state.

One house style: white ground, thin grey axes, few colours that also differ in grey, text that stays text in SVG, PDF.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike

from ..balance.measure import l1_score
from ..files import write_whole
from ..strategies.path import BalancePath
from ..types import Float64Array

BLUE, ORANGE, GREEN, POOL, INK, FAINT = "#2f5d8a", "#c8742b", "#4f8a5b", "#dfe3e8", "#22282f", "#b8bfc8"
STYLE: Any = {  # matplotlib types its keys one by one
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#eceff2",
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "savefig.dpi": 200,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailwise",  # the same figure gives the same bytes
    "pdf.fonttype": 42,
}
PANEL = (2.55, 2.3)  # inches
ROUND = [1, 2, 2.5, 5, 10]  # steps between ticks
MANY_CLASSES = 20


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """How many images of each class a batch holds."""

    name: str
    counts: ArrayLike  # (C,)
    note: str = ""


def path_figure(path: BalancePath) -> Figure:
    """Informativeness, l1 distance and L1 score against λ, the chosen λ marked (the paper's Fig. 4)."""
    with mpl.rc_context(STYLE):
        figure = _figure(3, height=PANEL[1])
        panels = (
            ("Informativeness of the batch", path.informativeness, BLUE),
            ("l1 distance from the target", path.l1, ORANGE),
            ("L1 score of the labelled set", path.l1_score, GREEN),
        )
        for axes, (title, values, colour) in zip(_row(figure, len(panels)), panels, strict=True):
            axes.plot(path.lam, values, color=colour, linewidth=1.6, marker="o", markersize=2.6, clip_on=False)
            axes.set_title(title)
            axes.set_xlabel("λ")
            axes.set_xlim(left=0)
            axes.margins(y=0.12)
            if values is not path.informativeness:  # distances have a zero; sums of scores do not
                axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
            _mark(axes, path.chosen, float(values[path.lam == path.chosen][0]), colour)
    return figure


def batch_figure(batches: Sequence[Histogram], pool: ArrayLike) -> Figure:
    """Class shares of each batch, one panel per batch, with those of the pool behind (the paper's Fig. 2 and 3)."""
    with mpl.rc_context(STYLE):
        figure = _figure(len(batches), height=PANEL[1] + 0.4)
        tallest = max(float(_shares(counts).max()) for counts in [pool, *(batch.counts for batch in batches)])
        row = _row(figure, len(batches))
        for axes, batch in zip(row, batches, strict=True):
            _histogram(axes, batch, _shares(pool))
            axes.set_ylim(0, tallest * 1.05)
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0))
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        row[0].set_ylabel("share of images")
        for axes in row[1:]:
            axes.tick_params(labelleft=False)
        uniform, *bars = row[0].get_legend_handles_labels()[0]
        figure.legend(handles=[*bars, uniform], loc="outside lower center", ncols=3)
    return figure


def write_figure(figure: Figure, path: Path) -> None:
    """Write .png, .svg or .pdf: whole or not at all, and the same bytes for the same figure."""
    kind = path.suffix.lower().removeprefix(".")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata=undated.get(kind))
    write_whole(path, buffer.getvalue())


def _figure(panels: int, height: float) -> Figure:
    figure = Figure(figsize=(PANEL[0] * panels, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _row(figure: Figure, panels: int) -> list[Axes]:
    grid = figure.subplots(1, panels, squeeze=False)
    return list(grid[0])


def _mark(axes: Axes, lam: float, value: float, colour: str) -> None:
    """A thin line and a ring at the chosen λ; its value is written beside the line."""
    axes.axvline(lam, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    axes.plot([lam], [value], "o", markersize=6.5, markerfacecolor="white", markeredgecolor=colour, clip_on=False)
    left, right = axes.get_xlim()
    beyond = lam > (left + right) / 2
    axes.annotate(
        f"λ = {lam:.3g}", (lam, 1), xycoords=("data", "axes fraction"), xytext=(-4 if beyond else 4, -2),
        textcoords="offset points", ha="right" if beyond else "left", va="top", fontsize=7.5,
    )  # fmt: skip


def _histogram(axes: Axes, batch: Histogram, pool: Float64Array) -> None:
    classes = np.arange(len(pool))
    axes.bar(classes, pool, width=0.94, color=POOL, label="pool")
    axes.bar(classes, _shares(batch.counts), width=0.56, color=BLUE, label="batch, true classes")
    axes.axhline(1 / len(pool), color=INK, linewidth=0.8, linestyle=(0, (3, 3)), label="uniform", zorder=3)
    axes.set_title(batch.name, fontweight="bold", pad=19)
    note = batch.note or f"L1 score {l1_score(batch.counts):.2f}"
    axes.annotate(note, (0, 1), xycoords="axes fraction", xytext=(0, 6), textcoords="offset points", fontsize=7.5)
    axes.set_xlabel("class")
    axes.set_xlim(-0.7, len(pool) - 0.3)
    if len(pool) <= MANY_CLASSES:
        axes.set_xticks(classes)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _shares(counts: ArrayLike) -> Float64Array:
    numbers = np.asarray(counts, dtype=np.float64)
    total = numbers.sum()
    return numbers / total if total > 0 else numbers
