"""The common style of all figures, how a figure is made and saved without pyplot, and the figure of a λ sweep (Fig. 4).

White ground, thin grey axes, few colours that also differ in grey, text that stays text in SVG and PDF.
The figures of experiments are in `curves`, those of campaigns in `campaign_figures`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from ..files import write_whole
from ..strategies.select import BalancePath
from ..types import Float64Array
from .names import Reference

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
    "text.parse_math": False,  # a "$" in a name is a "$"
    "savefig.dpi": 200,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailwise",  # the same figure gives the same bytes
    "pdf.fonttype": 42,
}
PANEL = (2.55, 2.3)  # inches
ROUND = [1, 2, 2.5, 5, 10]  # steps between ticks
MANY_CLASSES = 20
FULL = 7.2  # inches: the width of a page of two columns
NOTE = 7.5  # points: the smallest text
LAST_LETTER = 0x530  # the first one after Cyrillic


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that can be drawn and saved on its own."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def legend_below(figure: Figure, handles: Sequence[Any], size: float = NOTE) -> None:
    """A legend under the panels, read line by line, with as many lines as the names need."""
    columns = _columns(handles, size, figure.get_size_inches()[0] * 72)
    rows = [list(handles[start : start + columns]) for start in range(0, len(handles), columns)]
    ordered = [row[place] for place in range(columns) for row in rows if place < len(row)]  # it is filled by columns
    figure.legend(handles=ordered, loc="outside lower center", ncols=columns, fontsize=size, columnspacing=1.4)


def _columns(handles: Sequence[Any], size: float, width: float) -> int:
    """In how many columns a legend fits into so many points; each is as wide as its longest name."""
    font = FontProperties(family=STYLE["font.family"], size=size)
    names = [text_to_path.get_text_width_height_descent(one.get_label(), font, False)[0] for one in handles]
    widths = [name + 4.3 * size for name in names]  # the sign, and the space around it
    fitting = (
        count for count in range(len(widths), 1, -1) if sum(max(widths[at::count]) for at in range(count)) <= width
    )
    count = next(fitting, 1)
    return -(-len(handles) // -(-len(handles) // count))  # lines of about equal length


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """The figure as png, svg or pdf; the same figure gives the same bytes."""
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format=kind, metadata=undated.get(kind))
    return _with_palette(buffer) if kind == "png" else buffer.getvalue()


def _with_palette(png: io.BytesIO) -> bytes:
    """The image with the 256 colours that differ least from its own: as sharp, and a third of the bytes."""
    from PIL import Image

    with Image.open(png) as image:
        dpi = image.info["dpi"]
        colours = image.convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    small = io.BytesIO()
    colours.save(small, "png", optimize=True, dpi=dpi)
    return small.getvalue()


def settle(figure: Figure) -> Figure:
    """Lay the panels out now, once for all formats: it is the slow part of drawing."""
    with mpl.rc_context(STYLE):
        figure.draw_without_rendering()
    figure.set_layout_engine(None)  # not "none", with which every format would be drawn twice
    return figure


def class_axis(axes: Axes, classes: int, names: Sequence[str] = ()) -> None:
    """Classes along the bottom: each one named or numbered while they fit, else a few numbers."""
    axes.set_xlim(-0.7, classes - 0.3)
    shown = drawable_names(names, 12) if len(names) == classes else None
    if classes > MANY_CLASSES:
        axes.set_xlabel("class")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    elif shown is not None:
        axes.set_xticks(range(classes), labels=shown, rotation=90)
    else:
        axes.set_xlabel("class")
        axes.set_xticks(range(classes))


def drawable_names(names: Sequence[str], longest: int) -> list[str] | None:
    """Class names cut to length; None where the font, which has Latin, Greek and Cyrillic, lacks a letter of any.

    >>> drawable_names(["owl", "a long name"], 6), drawable_names(["owl", "梟"], 6)
    (['owl', 'a lon…'], None)
    """
    if not all(name.isprintable() and all(ord(letter) < LAST_LETTER for letter in name) for name in names):
        return None
    return [name if len(name) <= longest else f"{name[: longest - 1]}…" for name in names]


def path_figure(path: BalancePath, references: Sequence[Reference] = ()) -> Figure:
    """Informativeness, l1 distance and L1 score against λ, the chosen λ marked (the paper's Fig. 4).

    `references` are methods without a λ to sweep, each drawn as a line across the panels.
    """
    with mpl.rc_context(STYLE):
        figure = new_figure(PANEL[0] * 3, PANEL[1] + (0.3 if references else 0))
        panels = (
            ("Informativeness of the batch", "informativeness", BLUE),
            ("l1 distance from the target", "l1", ORANGE),
            ("L1 score of the labelled set", "l1_score", GREEN),
        )
        row = list(figure.subplots(1, len(panels), squeeze=False)[0])
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
    write_whole(path, figure_bytes(figure, path.suffix.lower().removeprefix(".")))


def _mark(axes: Axes, lam: float, value: float, colour: str) -> None:
    """A thin line and a ring at the chosen λ; its value is written next to the line."""
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
