"""Figures of a campaign: its summary in; matplotlib Figures out, each on a light or on a dark ground.

Learning curve, class balance by round, expected against realised counts, confusion of classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..campaign.learning_curve import Curve, CurvePoint, Measure
from ..targets import l1_score
from ..types import Float64Array, IntArray
from .campaign_summary import CampaignSummary, RoundSummary
from .figures import FULL, MANY_CLASSES, NOTE, ROUND, STYLE, drawable_names, legend_below, new_figure

MOST_PANELS = 6  # rounds with panels of their own, the last ones
MOST_NUMBERS = 14  # classes of a confusion matrix with numbers in it
LONGEST_NAME = 14
DASHES, DOTS = (0, (3, 2)), (0, (1.5, 1.5))


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours on one ground."""

    ground: str
    ink: str
    faint: str
    grid: str
    first: str  # of the main measure
    second: str
    quiet: str  # of what stands behind


LIGHT = Palette("#ffffff", "#22282f", "#b8bfc8", "#eceff2", "#0072b2", "#d55e00", "#dfe3e8")
DARK = Palette("#15191e", "#e6e9ed", "#5b6570", "#262c33", "#6cb6e8", "#f0965a", "#39414a")


@dataclass(frozen=True, slots=True)
class CampaignFigureSpec:
    """A figure that can be drawn on either ground."""

    name: str  # of its files
    title: str
    caption: str
    draw: Callable[[Palette], Figure]


def campaign_figure_specs(summary: CampaignSummary) -> list[CampaignFigureSpec]:
    """The figures that this summary has the numbers for."""
    curve, specs = summary.curve, []
    if curve is not None and any(point.balanced_accuracy for point in curve.points):
        draw: Callable[[Palette], Figure] = partial(curve_figure, curve)
        specs.append(CampaignFigureSpec("learning-curve", "Learning curve", _curve_caption(curve), draw))
    if summary.counts.sum():
        draw = partial(balance_figure, summary)
        specs.append(CampaignFigureSpec("class-balance", "Labels by class and round", _balance_caption(summary), draw))
    if _with_counts(summary.rounds):
        draw = partial(counts_figure, summary)
        specs.append(
            CampaignFigureSpec("expected-realised", "Expected and realised counts", _counts_caption(summary), draw)
        )
    if curve is not None and curve.confusion.sum():
        draw = partial(confusion_figure, summary)
        specs.append(
            CampaignFigureSpec("confusion", "Which classes are taken for which", _confusion_caption(summary), draw)
        )
    return specs


def curve_figure(curve: Curve, palette: Palette) -> Figure:
    """Accuracy and balanced accuracy against the number of labels, with bars of one standard error."""
    with drawing(palette):
        figure = new_page(FULL, 3.0, palette)
        axes = figure.subplots()
        lines = (("balanced accuracy", "balanced_accuracy", palette.first, "o", "-"),
                 ("accuracy", "accuracy", palette.second, "s", DASHES))  # fmt: skip
        for label, name, colour, marker, dashes in lines:
            measured = [(point, _measure(point, name)) for point in curve.points]
            known = [(point.labels, measure) for point, measure in measured if measure is not None]
            axes.errorbar(
                [labels for labels, _ in known], [measure.value for _, measure in known],
                yerr=[measure.error for _, measure in known], color=colour, marker=marker, markersize=4.5,
                linestyle=dashes, linewidth=1.6, elinewidth=1, capsize=2.5, label=label,
            )  # fmt: skip
        _name_rounds(axes, curve.points, palette)
        axes.set_xlabel("labels that the model learnt from")
        axes.set_ylabel("right, by cross-validation (%)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
        axes.xaxis.set_major_locator(MaxNLocator(7, steps=ROUND, integer=True))
        axes.margins(x=0.06, y=0.16)
        _within_zero_and_one(axes)
        legend_below(figure, axes.get_legend_handles_labels()[0])
    return figure


def balance_figure(summary: CampaignSummary, palette: Palette) -> Figure:
    """Labels of each class, stacked round by round; the line is where all classes would have as many."""
    table, classes = summary.by_round, len(summary.classes)
    shown = [place for place in range(len(table)) if table[place].any()]
    shades = shades_of(palette.first, len(shown), palette)
    with drawing(palette):
        figure = new_page(FULL, 3.1, palette)
        axes = figure.subplots()
        low = np.zeros(classes)
        for place, shade in zip(shown, shades, strict=True):
            axes.bar(np.arange(classes), table[place], bottom=low, width=0.68, color=shade, linewidth=0)
            low = low + table[place]
        even = summary.counts.sum() / classes
        axes.axhline(even, color=palette.ink, linewidth=0.9, linestyle=DASHES, zorder=3)
        if classes <= MANY_CLASSES:
            _write_totals(axes, low)
        axes.set_ylabel("labelled images")
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND, integer=True))
        axes.margins(y=0.12)
        name_classes(axes, summary.class_names)
        named = few([(place, shade) for place, shade in zip(shown, shades, strict=True)])
        handles: list[Any] = [
            Patch(color=shade, label=f"round {place}" if place else "outside of rounds") for place, shade in named
        ]
        handles.append(Line2D([], [], color=palette.ink, linewidth=0.9, linestyle=DASHES, label="even"))
        legend_below(figure, handles)
    return figure


def counts_figure(summary: CampaignSummary, palette: Palette) -> Figure:
    """What each round was expected to bring of each class, and what it brought; one panel per round."""
    rounds = _with_counts(summary.rounds)[-MOST_PANELS:]
    many = len(summary.classes) > MANY_CLASSES
    columns = min(len(rounds), 3)
    lines = math.ceil(len(rounds) / columns)
    with drawing(palette):
        height = (2.0 if many else 2.35) * lines + 0.5
        figure = new_page(FULL if columns > 1 else FULL * 0.62, height, palette)
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        for place, (axes, one) in enumerate(zip(panels, rounds, strict=False)):
            (_scatter_counts if many else _bar_counts)(axes, one, summary.class_names, palette)
            axes.set_title(f"Round {one.id}", fontweight="bold")
            if place % columns == 0:
                axes.set_ylabel("realised images" if many else "images")
        for axes in panels[len(rounds) :]:
            axes.set_axis_off()
        legend_below(figure, _counts_handles(palette, many=many))
    return figure


def confusion_figure(summary: CampaignSummary, palette: Palette) -> Figure:
    """Of each true class, how many percent are taken for which; the diagonal is right."""
    assert summary.curve is not None
    table = summary.curve.confusion
    asked = np.flatnonzero(table.sum(axis=1))
    names = [summary.class_names[place] for place in range(len(summary.class_names))]
    shares = 100 * table[asked] / table[asked].sum(axis=1, keepdims=True)  # (asked, C)
    size = min(0.36 * len(names) + 2.2, FULL)
    with drawing(palette):
        figure = new_page(size + 0.5, min(0.3 * len(asked) + 1.9, FULL), palette)
        axes = figure.subplots()
        scale = LinearSegmentedColormap.from_list("share", [palette.ground, palette.first])
        axes.imshow(shares, cmap=scale, vmin=0, vmax=100, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        axes.set_xlabel("taken for")
        axes.set_ylabel("true class")
        name_classes(axes, names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        _name_rows(axes, [names[place] for place in asked], asked, many=len(names) > MANY_CLASSES)
        if len(names) <= MOST_NUMBERS:
            _write_shares(axes, shares, scale, palette)
    return figure


@contextmanager
def drawing(palette: Palette) -> Iterator[None]:
    """The common style in the colours of a ground."""
    colours = {
        "text.color": palette.ink, "axes.labelcolor": palette.ink, "xtick.color": palette.ink,
        "ytick.color": palette.ink, "axes.edgecolor": palette.faint, "grid.color": palette.grid,
        "axes.facecolor": palette.ground,
    }  # fmt: skip
    with mpl.rc_context(STYLE | colours):
        yield


def new_page(width: float, height: float, palette: Palette) -> Figure:
    """An empty figure on a ground."""
    figure = new_figure(width, height)
    figure.set_facecolor(palette.ground)
    return figure


def shades_of(colour: str, number: int, palette: Palette) -> list[str]:
    """From near the ground (labelled first) to full (labelled last)."""
    full, ground = np.array(to_rgb(colour)), np.array(to_rgb(palette.ground))
    return [to_hex(ground + share * (full - ground)) for share in np.linspace(0.35, 1.0, number)]


def few(items: Sequence[tuple[int, str]], most: int = 8) -> list[tuple[int, str]]:
    """So many of them at most, evenly, the first and the last among them."""
    kept = np.unique(np.linspace(0, len(items) - 1, min(len(items), most)).round().astype(int))
    return [items[place] for place in kept]


def name_classes(axes: Axes, names: Sequence[str]) -> None:
    """Names along the bottom while they fit and the font has them; numbers from 1 otherwise, as in the tables."""
    count = len(names)
    axes.set_xlim(-0.7, count - 0.3)
    if count > MANY_CLASSES:
        axes.set_xlabel(axes.get_xlabel() or "class")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place + 1:.0f}"))
        return
    shown = shown_names(names)
    upright = count <= 12 and max(len(name) for name in shown) * count <= 90
    axes.set_xticks(range(count), labels=shown, rotation=0 if upright else 60, ha="center" if upright else "right",
                    rotation_mode="default" if upright else "anchor")  # fmt: skip
    axes.tick_params(axis="x", labelsize=NOTE if count > 8 else NOTE + 0.5, length=0)


def shown_names(names: Sequence[str]) -> list[str]:
    """Names that the font can draw, cut to length; numbers from 1 where it lacks a letter of any.

    >>> shown_names(["owl", "a very long name indeed"]), shown_names(["owl", "梟"])
    (['owl', 'a very long n…'], ['1', '2'])
    """
    shown = drawable_names(names, LONGEST_NAME)
    return [str(number) for number in range(1, len(names) + 1)] if shown is None else shown


def _measure(point: CurvePoint, name: str) -> Measure | None:
    found: Measure | None = getattr(point, name)
    return found


def _name_rounds(axes: Axes, points: Sequence[CurvePoint], palette: Palette) -> None:
    """The number of the round above each point, while they fit."""
    known = [point for point in points if point.balanced_accuracy is not None and point.accuracy is not None]
    if len(known) > 16:
        return
    for point in known:
        assert point.balanced_accuracy is not None
        assert point.accuracy is not None
        top = max(one.value + one.error for one in (point.balanced_accuracy, point.accuracy))
        text = "start" if point.round_id == 0 else f"round {point.round_id}" if len(known) <= 8 else str(point.round_id)
        axes.annotate(
            text, (point.labels, top), xytext=(0, 5), textcoords="offset points", ha="center", fontsize=NOTE,
            color=palette.ink,
        )  # fmt: skip


def _within_zero_and_one(axes: Axes) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, 0.0), max(min(high, 1.04), max(low, 0.0) + 0.02))


def _write_totals(axes: Axes, totals: Float64Array) -> None:
    for place, total in enumerate(totals):
        axes.annotate(
            f"{total:.0f}", (place, total), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=NOTE
        )  # fmt: skip


def _with_counts(rounds: Sequence[RoundSummary]) -> list[RoundSummary]:
    """Rounds that were expected to bring something, and have brought something."""
    return [one for one in rounds if one.expected is not None and one.realised.any()]


def _bar_counts(axes: Axes, one: RoundSummary, names: Sequence[str], palette: Palette) -> None:
    assert one.expected is not None
    places = np.arange(len(names))
    axes.bar(places, one.realised, width=0.66, color=palette.first, linewidth=0, alpha=0.9)
    axes.hlines(one.expected, places - 0.42, places + 0.42, color=palette.second, linewidth=2, zorder=3)
    if one.target is not None:
        axes.hlines(
            one.target,
            places - 0.42,
            places + 0.42,
            color=palette.ink,
            linewidth=0.9,
            linestyle=(0, (1.5, 1.5)),
            zorder=4,
        )
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND, integer=True))
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    name_classes(axes, names)


def _scatter_counts(axes: Axes, one: RoundSummary, _names: Sequence[str], palette: Palette) -> None:
    assert one.expected is not None
    most = 1.08 * max(float(one.expected.max()), float(one.realised.max()), 1.0)
    axes.plot([0, most], [0, most], color=palette.faint, linewidth=0.9, zorder=1)
    axes.scatter(one.expected, one.realised, s=9, color=palette.first, linewidth=0, alpha=0.8, zorder=2)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_box_aspect(1)
    axes.set_xlabel("expected images")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=ROUND))


def _counts_handles(palette: Palette, *, many: bool) -> list[Any]:
    if many:
        return [
            Line2D([], [], linestyle="none", marker="o", markersize=4, color=palette.first, label="one class"),
            Line2D([], [], color=palette.faint, linewidth=0.9, label="as expected"),
        ]
    return [
        Patch(color=palette.first, label="realised: what people said"),
        Line2D([], [], color=palette.second, linewidth=2, label="expected by the model"),
        Line2D([], [], color=palette.ink, linewidth=0.9, linestyle=DOTS, label="target"),
    ]


def _name_rows(axes: Axes, names: Sequence[str], numbers: IntArray, *, many: bool) -> None:
    if many:
        kept = np.unique(np.linspace(0, len(names) - 1, 8).astype(int))
        axes.set_yticks(kept, labels=[str(numbers[place] + 1) for place in kept])
        return
    shown = shown_names(names)
    if shown and shown[0] == "1" and names[0] != "1":  # numbered: by their place among all classes
        shown = [str(number + 1) for number in numbers]
    axes.set_yticks(range(len(names)), labels=shown)
    axes.tick_params(axis="y", labelsize=NOTE + 0.5)


def _write_shares(axes: Axes, shares: Float64Array, scale: LinearSegmentedColormap, palette: Palette) -> None:
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            if share >= 0.5:
                colour = readable_on(to_hex(scale(share / 100)), palette)
                axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=NOTE, color=colour)


def readable_on(ground: str, palette: Palette) -> str:
    """Ink or ground colour, whichever stands out more on a coloured cell.

    >>> readable_on("#ffffff", LIGHT) == LIGHT.ink, readable_on("#0072b2", LIGHT) == LIGHT.ground
    (True, True)
    """
    behind = _brightness(ground)
    contrasts = []  # WCAG 2
    for colour in (palette.ink, palette.ground):
        darker, lighter = sorted((_brightness(colour), behind))
        contrasts.append((lighter + 0.05) / (darker + 0.05))
    return palette.ink if contrasts[0] >= contrasts[1] else palette.ground


def _brightness(colour: str) -> float:
    """Relative luminance of a colour, 0 to 1 (WCAG 2)."""
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _curve_caption(curve: Curve) -> str:
    return (
        f"Each round is measured on the same {int(curve.measured.sum()):,} labelled images, in five parts, by models "
        "that knew the labels of that time and not the part they were asked about. Bars: one standard error. "
        "Labelled images were chosen to be hard and balanced: on all images the numbers may be higher or lower."
    )


def _balance_caption(summary: CampaignSummary) -> str:
    return (
        "The stronger the colour, the later the round. "
        f"The L1 score, 0 for even and 1 for all in one class, is {l1_score(summary.counts):.2f}. "
        "The dashed line is the same number for every class."
    )


def _counts_caption(summary: CampaignSummary) -> str:
    rounds = _with_counts(summary.rounds)
    shown = "" if len(rounds) <= MOST_PANELS else f" The last {MOST_PANELS} rounds."
    missed = [np.abs(one.expected - one.realised).sum() / 2 for one in rounds if one.expected is not None]
    total = sum(int(one.realised.sum()) for one in rounds)
    return (
        f"Over {len(rounds)} round{'' if len(rounds) == 1 else 's'} about {100 * sum(missed) / max(total, 1):.0f} % of "
        f"the images turned out to be of another class than the model's probabilities led one to expect.{shown}"
    )


def _confusion_caption(summary: CampaignSummary) -> str:
    assert summary.curve is not None
    asked = int(summary.curve.confusion.sum())
    alone = [name for name, count in zip(summary.class_names, summary.curve.measured, strict=True) if not count]
    missing = f" Not asked about, with fewer than two labels: {', '.join(alone[:8])}." if alone else ""
    return f"In percent of each true class, by cross-validation on {asked:,} images after the last round.{missing}"
