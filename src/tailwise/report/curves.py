"""Figures of an experiment: learning curves, gains, class histograms, expected against true counts.

Dashed and hollow = classical, solid and filled = class-balanced, one colour and marker per strategy, Random in grey;
bars = standard deviation. The first colours are those of Okabe and Ito, which colour-blind people can distinguish.
A histogram shows one seed, so that a tail chosen by chance is not blurred.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from ..experiments.experiment import Row
from ..targets import l1_score
from ..types import Float64Array
from .figures import FAINT, FULL, INK, MANY_CLASSES, NOTE, POOL, ROUND, STYLE, class_axis, legend_below, new_figure
from .names import Condition, Method, Study, method_order, published_gain, report_order, strategy_title
from .summary import Curve, Gain, Results, curve, curves, gains, has_counts

Cell = tuple[Condition, Method]  # what a panel of histograms shows

GREY, BLUE = "#7b838c", "#0072b2"
DARK = "#4b535c"  # of Random in histograms, where the grey of its curve is too near that of the pool
# By the position of a strategy in `report_order`; both start again after their last.
COLOURS = (
    GREY, BLUE, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a6d1a",
    "#5d3a9b", "#661100", "#332288", "#882255", "#44aa99", "#997700", "#6699cc", "#999933",
    "#117733", "#ff6f61", "#004488", "#ddaa33", "#2b2b2b", "#aa4499",
)  # fmt: skip
MARKERS = ("x", "o", "s", "^", "D", "v", "P", "<", ">", "p", "8", "d", "1", "2", "3", "4", "h")
DASHED, SOLID = (0, (3.2, 1.8)), "-"
VARIANT_MARKERS = ("", "*", "X")
VARIANTS = (SOLID, (0, (6, 1.2, 1.2, 1.2)), (0, (1.2, 1.2)))  # several balances or settings of one strategy
PLAIN_VARIANTS = (DASHED, (0, (3.2, 1.2, 1, 1.2)), (0, (1, 2)))
STEP = 0.5  # points by which the bars of neighbouring curves are moved sideways, so that none hides another
MOST_TICKS = (10, 8)  # in a single panel, and in one of several
MOST_CURVES = 7  # in the figure that a page opens with
APART = 5.5  # points between the gains of neighbouring methods, at most
IN_A_ROW = 3  # panels
SHIFT = 0.75  # of the way to the next cycle, for all methods of one
PAPER_MARK: Any = {"linestyle": "none", "marker": "_", "markersize": 6.5, "markeredgewidth": 1.5, "zorder": 2.5}
LABELS = {
    "accuracy": "accuracy (%)", "adjusted_accuracy": "adjusted accuracy (%)",
    "balanced_accuracy": "balanced accuracy (%)",
    "tail_accuracy": "accuracy on the tail (%)", "l1_score": "L1 score of the labelled set",
}  # fmt: skip


# Learning curves and gains.


def curve_figure(results: Results, study: Study, methods: Sequence[Method], measure: str = "accuracy") -> Figure:
    """A measure against the share labelled, one panel per condition (the paper's Fig. 5 and 6, Supp. A, B, C)."""
    conditions = [
        condition for condition in study.conditions
        if any(one.method in methods and one.has(measure) for one in curves(results, condition))
    ]  # fmt: skip
    with mpl.rc_context(STYLE):
        figure, panels = _panels(conditions)
        for axes, condition in zip(panels, conditions, strict=True):
            ran = [one for one in methods if one in results.trials[condition]]
            for place, method in enumerate(ran):
                shift = (place - (len(ran) - 1) / 2) * STEP
                _draw_curve(axes, curve(results, condition, method), measure, _look(method, methods), shift)
            if measure == "l1_score":
                axes.set_ylim(bottom=0)
            _share_ticks(
                axes,
                [point.share for one in ran for point in curve(results, condition, one).points],
                several=len(panels) > 1,
            )
        _share_scale(panels)
        panels[0].set_ylabel(LABELS[measure])
        legend_below(figure, _legend_handles(methods))
    return figure


def opening_figure(results: Results, condition: Condition) -> Figure:
    """Accuracy and adjusted accuracy of one condition side by side, on one scale; of many methods the best."""
    found = sorted(curves(results, condition), key=lambda one: -one.last.accuracy.mean)
    kept = {one.method for one in found[:MOST_CURVES]} | {
        one.method for one in found if one.method.strategy == "random"
    }
    methods = [one.method for one in curves(results, condition) if one.method in kept]
    measures = [name for name in ("accuracy", "adjusted_accuracy") if any(one.has(name) for one in found)]
    with mpl.rc_context(STYLE):
        figure, panels = _panels([condition] * len(measures))
        for axes, measure in zip(panels, measures, strict=True):
            axes.set_title(LABELS[measure].removesuffix(" (%)"))
            for place, method in enumerate(methods):
                shift = (place - (len(methods) - 1) / 2) * STEP
                _draw_curve(axes, curve(results, condition, method), measure, _look(method, methods), shift)
            _share_ticks(axes, [point.share for one in found for point in one.points], several=len(panels) > 1)
        _share_scale(panels)
        panels[0].set_ylabel(LABELS["accuracy"])
        legend_below(figure, _legend_handles(methods))
    return figure


def gain_figure(results: Results, study: Study, *, published: bool = True) -> Figure:
    """What balance adds, cycle by cycle, ± paired standard error; short dashes are the paper's numbers."""
    found = {condition: gains(results, condition) for condition in study.conditions}
    conditions = [condition for condition in study.conditions if found[condition]]
    methods = sorted({gain.method for some in found.values() for gain in some}, key=method_order)
    with mpl.rc_context(STYLE):
        printed = published and any(_printed(gain) is not None for some in found.values() for gain in some)
        figure, panels = _panels(conditions)
        for axes, condition in zip(panels, conditions, strict=True):
            axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
            axes.margins(x=0.14)
            apart = _apart(figure, len(panels), len({gain.cycle for gain in found[condition]}), len(methods))
            for place, method in enumerate(methods):
                line = [gain for gain in found[condition] if gain.method == method]
                shift = (place - (len(methods) - 1) / 2) * apart
                _draw_gains(axes, line, _look(method, methods), shift, printed)
            _share_ticks(axes, [gain.share for gain in found[condition]], several=len(panels) > 1)
        _share_scale(panels)
        panels[0].set_ylabel("gain in accuracy (points)")
        handles = [
            Line2D([], [], label=method.shown, **{**_look(method, methods), "linestyle": "none"}) for method in methods
        ]
        dash = Line2D([], [], color=INK, label="printed in the paper", **PAPER_MARK)
        legend_below(figure, [*handles, *([dash] if printed else [])])
    return figure


def _apart(figure: Figure, panels: int, cycles: int, methods: int) -> float:
    """Points between the gains of neighbouring methods: those of one cycle stay apart from those of the next."""
    between = 0.6 * 72 * float(figure.get_size_inches()[0]) / min(panels, IN_A_ROW) / max(1, cycles - 1)  # less margins
    return min(APART, SHIFT * between / methods)


def _panels(conditions: Sequence[Condition]) -> tuple[Figure, list[Axes]]:
    """One panel per condition, three in a row; a single one is as wide as a column."""
    columns = min(len(conditions), IN_A_ROW)
    rows = math.ceil(len(conditions) / columns)
    figure = new_figure(FULL if columns > 1 else 3.6, 2.2 * rows + 0.45)
    grid = figure.subplots(rows, columns, squeeze=False)
    panels = list(grid.flat)
    for axes in panels[len(conditions) :]:
        axes.set_axis_off()
    for place, (axes, condition) in enumerate(zip(panels, conditions, strict=False)):
        axes.set_title(setting_title(condition))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g}"))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))
        axes.tick_params(labelleft=place % columns == 0)
        if place + columns >= len(conditions):
            axes.set_xlabel("labelled (%)")
    return figure, panels[: len(conditions)]


def setting_title(condition: Condition) -> str:
    """A condition over its panel."""
    text = f"IF {condition.imbalance:g}"
    return f"{text}, balanced" if condition.imbalance == 1 else f"{text}, {condition.setting.split()[0]}"


def _share_ticks(axes: Axes, shares: Sequence[float], *, several: bool) -> None:
    """Ticks where there are points, while they fit."""
    places = sorted({round(share, 9) for share in shares})
    if len(places) <= MOST_TICKS[several]:
        axes.set_xticks(places)


def _share_scale(panels: Sequence[Axes]) -> None:
    """The same heights mean the same in every panel."""
    low, high = min(axes.get_ylim()[0] for axes in panels), max(axes.get_ylim()[1] for axes in panels)
    for axes in panels:
        axes.set_ylim(low, high)


def _look(method: Method, among: Sequence[Method]) -> dict[str, Any]:
    """Colour and marker by strategy; dashes and filling by balance."""
    place = _place(method.strategy, among)
    colour = COLOURS[place % len(COLOURS)]
    plain = not method.balanced
    variants = [one for one in among if one.strategy == method.strategy and one.balanced is method.balanced]
    variant = variants.index(method) % len(VARIANTS)
    return {
        "color": colour,
        "marker": VARIANT_MARKERS[variant] or MARKERS[place % len(MARKERS)],
        "linestyle": (PLAIN_VARIANTS if plain else VARIANTS)[variant],
        "markerfacecolor": "white" if plain else colour,
        "markersize": 6 if variant else 4.4 if method.strategy == "random" else 3.8,
        "markeredgewidth": 1.0,
        "linewidth": 1.3 if plain else 1.6,
    }


def _place(strategy: str, among: Sequence[Method]) -> int:
    """The position of a strategy in the order of reports; those that are not registered here follow by name."""
    order = report_order()
    others = sorted({one.strategy for one in among} - set(order))
    return order.index(strategy) if strategy in order else len(order) + others.index(strategy)


def _draw_curve(axes: Axes, one: Curve, measure: str, look: dict[str, Any], shift: float) -> None:
    """A curve, and its bars moved a little; the numbers stay where they are."""
    bands = [point.measure(measure) for point in one.points]
    factor = 1 if measure == "l1_score" else 100
    drawn = _errorbar(
        axes, [point.share for point in one.points], [factor * band.mean for band in bands],
        [factor * band.std for band in bands], look,
    )  # fmt: skip
    _move(drawn[2], axes, shift)


def _draw_gains(axes: Axes, line: Sequence[Gain], look: dict[str, Any], shift: float, printed: bool) -> None:
    """Dots and bars of one method next to those of the others, and the paper's numbers as short dashes."""
    shares = [gain.share for gain in line]
    means, errors = [100 * gain.difference.mean for gain in line], [100 * gain.difference.error for gain in line]
    drawn = _errorbar(axes, shares, means, errors, {**look, "linestyle": "none"})
    theirs = [_printed(gain) for gain in line] if printed else []
    known = [(share, points) for share, points in zip(shares, theirs, strict=False) if points is not None]
    marks = axes.plot(*zip(*known, strict=True), color=look["color"], **PAPER_MARK) if known else []
    _move([*drawn.get_children(), *marks], axes, shift)


def _printed(gain: Gain) -> float | None:
    theirs = published_gain(gain.condition, gain.method, gain.cycle, gain.share)
    return theirs.points if theirs else None


def _errorbar(
    axes: Axes, xs: list[float], ys: list[float], spread: list[float], look: dict[str, Any]
) -> ErrorbarContainer:
    """A curve with bars; where the spread is unknown (one seed) there is no bar."""
    bars = None if all(math.isnan(one) for one in spread) else [0 if math.isnan(one) else one for one in spread]
    front = 3 if look["linestyle"] == SOLID else 2
    return axes.errorbar(xs, ys, yerr=bars, elinewidth=0.8, capsize=0, zorder=front, **look)


def _move(artists: Iterable[Artist], axes: Axes, points: float) -> None:
    """Shift what is drawn, not its numbers; only afterwards, else the panel would not be scaled to it."""
    shifted = offset_copy(axes.transData, axes.get_figure(root=True), x=points, units="points")
    for artist in artists:
        artist.set_transform(shifted)


def _legend_handles(methods: Sequence[Method]) -> list[Line2D]:
    """Strategies by colour, then what dashes mean; where a strategy has several balances, each method by itself."""
    keyed = {(one.strategy, one.balanced) for one in methods}
    paired = {strategy for strategy, balanced in keyed if balanced and (strategy, False) in keyed}
    if len(keyed) < len(methods) or not paired:
        return [Line2D([], [], label=one.shown, **_look(one, methods)) for one in methods]
    handles = []
    for strategy in dict.fromkeys(one.strategy for one in methods):
        own = [one for one in methods if one.strategy == strategy]
        name = strategy_title(strategy) if strategy in paired else own[0].shown
        handles.append(Line2D([], [], label=name, **_look(own[-1], methods)))
    handles.append(Line2D([], [], color=INK, linewidth=1.3, linestyle=DASHED, label="classical"))
    return [*handles, Line2D([], [], color=INK, linewidth=1.6, label="class-balanced (CB)")]


# Class histograms, and expected against true counts.


def histogram_figure(results: Results, grid: Sequence[Sequence[Cell]], names: Sequence[str] = ()) -> Figure:
    """Labelled images of each class, stacked cycle by cycle, with the pool behind (the paper's Fig. 2 and 3, Supp. D).

    `grid` holds one row of conditions and methods for each row of panels. The pool is scaled to as many images as are
    labelled in the end: what a draw at random would give.
    """
    columns = max(len(row) for row in grid)
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL, 1.7 * len(grid) + (0.9 if names and _few(results, grid) else 0.5))
        panels = figure.subplots(len(grid), columns, squeeze=False)
        for place, (row, line) in enumerate(zip(panels, grid, strict=True)):
            rows = [_rows(results, condition, method, histogram_seed(results, line)) for condition, method in line]
            top = 1.06 * max(max(trial[-1].counts) for trial in rows)
            top = max(top, 1.06 * max(float(_pool_scaled(trial).max()) for trial in rows))
            for axes, (condition, method), trial in zip(row, line, rows, strict=False):
                _stack(axes, method, trial, names)
                axes.set_ylim(0, top)
                axes.tick_params(labelleft=axes is row[0])
                axes.set_title(method.shown, fontweight="bold", pad=17)
                axes.annotate(
                    f"{setting_title(condition)}; L1 score {l1_score(trial[-1].counts):.2f}", (0, 1),
                    xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", fontsize=NOTE,
                )  # fmt: skip
                if place < len(grid) - 1:  # all rows have the same classes
                    axes.set_xlabel("")
                    axes.tick_params(labelbottom=False)
            row[0].set_ylabel("labelled images")
            for axes in row[len(line) :]:
                axes.set_axis_off()
        cycles = max(len(_rows(results, *line[0], histogram_seed(results, line))) for line in grid)
        _histogram_legend(figure, cycles)
    return figure


def counts_figure(results: Results, condition: Condition, methods: Sequence[Method]) -> Figure:
    """Expected against true counts of each class in each batch, one panel per method; the line is where they agree."""
    counts = {one: _mean_counts(results, condition, one) for one in methods}
    chosen = [one for one in methods if counts[one]]
    columns = min(len(chosen), 4)
    lines = math.ceil(len(chosen) / columns)
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL * max(columns, 2) / 4, FULL / 4 * lines + 0.75)
        figure.set_layout_engine("compressed")  # panels that must be square
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        most = 1.05 * max(float(means.max()) for one in chosen for means in counts[one])
        for place, (axes, method) in enumerate(zip(panels, chosen, strict=False)):
            _scatter(axes, counts[method], most)
            axes.set_title(method.shown, fontweight="bold")
            axes.tick_params(labelleft=place % columns == 0)
            if place % columns == 0:
                axes.set_ylabel("true images")
            if place + columns >= len(chosen):
                axes.set_xlabel("expected images")
        for axes in panels[len(chosen) :]:
            axes.set_axis_off()
        _counts_legend(figure, max(len(counts[one]) for one in chosen))
    return figure


def histogram_seed(results: Results, cells: Sequence[Cell]) -> int | None:
    """The seed that a row of histograms shows: the smallest that all its methods ran with; None if they share none."""
    common = set.intersection(*(set(results.trials[condition][method]) for condition, method in cells))
    return min(common, default=None)


def _few(results: Results, grid: Sequence[Sequence[Cell]]) -> bool:
    condition, method = grid[0][0]
    trial = next(iter(results.trials[condition][method].values()))
    return len(next(iter(trial.values())).counts) <= MANY_CLASSES


def _rows(results: Results, condition: Condition, method: Method, seed: int | None) -> list[Row]:
    trials = results.trials[condition][method]
    return list(trials[min(trials) if seed is None else seed].values())


def _pool_scaled(trial: Sequence[Row]) -> Float64Array:
    """Everything there is in the first cycle, scaled to as many images as are labelled in the last, (C,)."""
    there = np.array(trial[0].pool_counts, dtype=np.float64) + np.array(trial[0].counts)
    scaled: Float64Array = there * (trial[-1].labelled / there.sum())
    return scaled


def _stack(axes: Axes, method: Method, trial: Sequence[Row], names: Sequence[str]) -> None:
    classes = len(trial[0].counts)
    low = np.zeros(classes)
    _layer(axes, low, _pool_scaled(trial), POOL, width=1.0)
    colour = DARK if method.strategy == "random" else COLOURS[_place(method.strategy, [method]) % len(COLOURS)]
    shades = _shades(colour, len(trial))
    for row, shade in zip(trial, shades, strict=True):
        high = np.array(row.counts, dtype=np.float64)
        _layer(axes, low, high, shade, width=0.62)
        low = high
    axes.axhline(trial[-1].labelled / classes, color=INK, linewidth=0.8, linestyle=(0, (3, 2)), zorder=3)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=ROUND))
    class_axis(axes, classes, names)
    axes.tick_params(axis="x", labelsize=NOTE)


def _layer(axes: Axes, low: Float64Array, high: Float64Array, colour: str, width: float) -> None:
    """Bars from `low` to `high`; many classes are one outline, which is drawn far faster than as many bars."""
    if len(low) > MANY_CLASSES:
        edges = np.arange(len(low) + 1) - 0.5
        axes.stairs(high, edges, baseline=low, fill=True, color=colour, linewidth=0)
    else:
        axes.bar(np.arange(len(low)), high - low, bottom=low, width=width, color=colour, linewidth=0)


def _shades(colour: str, number: int) -> list[str]:
    """From light (labelled first) to full (labelled last)."""
    full = np.array(to_rgb(colour))
    return [to_hex(1 - share * (1 - full)) for share in np.linspace(0.42, 1.0, number)]


def _histogram_legend(figure: Figure, cycles: int) -> None:
    shades = _shades(INK, cycles)
    handles: list[Patch | Line2D] = [Patch(color=POOL, label="pool, scaled")]
    handles += [Patch(color=shades[0], label="initial set")]
    handles += [Patch(color=shades[place], label=f"batch {place}") for place in range(1, cycles)]
    handles.append(Line2D([], [], color=INK, linewidth=0.8, linestyle=(0, (3, 2)), label="uniform"))
    legend_below(figure, handles)


def _mean_counts(results: Results, condition: Condition, method: Method) -> list[Float64Array]:
    """Expected and true counts of each batch, (2, C), means over seeds; in the order of cycles."""
    found: dict[int, list[Row]] = {}
    for trial in results.trials[condition][method].values():
        for cycle, row in trial.items():
            if has_counts(row):
                found.setdefault(cycle, []).append(row)
    return [
        np.array([np.mean([row.expected for row in rows], axis=0), np.mean([row.realised for row in rows], axis=0)])
        for _, rows in sorted(found.items())
    ]


def _scatter(axes: Axes, batches: list[Float64Array], most: float) -> None:
    axes.plot([0, most], [0, most], color=FAINT, linewidth=0.9, zorder=1)
    for (expected, realised), shade in zip(batches, _shades(BLUE, len(batches)), strict=True):
        size = 12 if len(expected) <= MANY_CLASSES else 5
        axes.scatter(expected, realised, s=size, color=[shade], linewidth=0, alpha=0.85, zorder=2)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_box_aspect(1)
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=ROUND))


def _counts_legend(figure: Figure, batches: int) -> None:
    shades = _shades(BLUE, batches)
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=4, color=shade, label=f"batch {place + 1}")
        for place, shade in enumerate(shades)
    ]
    handles.append(Line2D([], [], color=FAINT, linewidth=0.9, label="as expected"))
    legend_below(figure, handles)
