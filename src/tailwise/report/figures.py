"""Figures for papers and reports: results in, matplotlib Figures out.

A λ sweep (the paper's Fig. 4); the figures of whole experiments are in `curves` and `distributions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..files import write_whole
from ..strategies.path import BalancePath
from ..types import Float64Array
from . import style
from .style import BLUE, GREEN, INK, NOTE, ORANGE, PANEL, ROUND, STYLE
from .sweeps import Reference


def path_figure(path: BalancePath, references: Sequence[Reference] = ()) -> Figure:
    """Informativeness, l1 distance and L1 score against λ, the chosen λ marked (the paper's Fig. 4).

    `references` are methods without a λ to sweep, each drawn as a line across the panels.
    """
    with mpl.rc_context(STYLE):
        figure = style.new_figure(PANEL[0] * 3, PANEL[1] + (0.3 if references else 0))
        panels = (
            ("Informativeness of the batch", "informativeness", BLUE),
            ("l1 distance from the target", "l1", ORANGE),
            ("L1 score of the labelled set", "l1_score", GREEN),
        )
        row = style.panel_row(figure, len(panels))
        for axes, (title, name, colour) in zip(row, panels, strict=True):
            values: Float64Array = getattr(path, name)
            axes.plot(path.lam, values, color=colour, linewidth=1.6, marker="o", markersize=2.6, clip_on=False)
            axes.set_title(title)
            axes.set_xlabel("λ")
            axes.set_xlim(left=0)
            axes.margins(y=0.12)
            _mark(axes, path.chosen, float(values[path.lam == path.chosen][0]), colour)
            _across(axes, [(reference, getattr(reference, name)) for reference in references])
            if name != "informativeness":  # distances have a zero; sums of scores do not
                axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
        if references:
            figure.legend(*row[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(references))
    return figure


def write_figure(figure: Figure, path: Path) -> None:
    """Write .png, .svg or .pdf: whole or not at all, and the same bytes for the same figure."""
    write_whole(path, style.figure_bytes(figure, path.suffix.lower().removeprefix(".")))


def _mark(axes: Axes, lam: float, value: float, colour: str) -> None:
    """A thin line and a ring at the chosen λ; its value is written beside the line."""
    axes.axvline(lam, color=INK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    axes.plot([lam], [value], "o", markersize=6.5, markerfacecolor="white", markeredgecolor=colour, clip_on=False)
    left, right = axes.get_xlim()
    beyond = lam > (left + right) / 2
    axes.annotate(
        f"λ = {lam:.3g}", (lam, 1), xycoords=("data", "axes fraction"), xytext=(-4 if beyond else 4, -2),
        textcoords="offset points", ha="right" if beyond else "left", va="top", fontsize=NOTE,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0}, zorder=4,
    )  # fmt: skip


def _across(axes: Axes, values: Sequence[tuple[Reference, float]]) -> None:
    """One line across the panel for each method that is compared."""
    dashes = ((0, (1, 1.4)), (0, (5, 2)), (0, (5, 1.5, 1, 1.5)))
    for place, (reference, value) in enumerate(values):
        pattern = dashes[place % len(dashes)]
        axes.axhline(value, color=INK, linewidth=1.1, linestyle=pattern, alpha=0.75, zorder=1.5, label=reference.name)
