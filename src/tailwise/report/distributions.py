"""Class histograms of an experiment, and expected against true counts: results in, matplotlib Figures out.

Each histogram is one seed's, so that a tail chosen by chance is not blurred.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from ..balance.measure import l1_score
from ..bench.results import Row
from ..types import Float64Array
from .curves import COLOURS, SPARE_COLOURS, setting_title
from .names import Condition, Method
from .style import FAINT, FULL, INK, MANY_CLASSES, NOTE, POOL, ROUND, STYLE, class_axis, legend_below, new_figure
from .summary import Results, has_counts

DARK = "#4b535c"  # the grey of Random in the curves is too near that of the pool

Cell = tuple[Condition, Method]


def histogram_figure(results: Results, grid: Sequence[Sequence[Cell]], names: Sequence[str] = ()) -> Figure:
    """Labelled images of each class, stacked cycle by cycle, with the pool behind (the paper's Fig. 2 and 3, Supp. D).

    `grid` holds one row of conditions and methods for each row of panels. The pool is scaled to as many images as are
    labelled in the end: what a draw at random would give.
    """
    columns = max(len(row) for row in grid)
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL, 1.7 * len(grid) + (0.9 if names and _few(results, grid) else 0.5))
        panels = figure.subplots(len(grid), columns, squeeze=False)
        for row, line, lowest in zip(panels, grid, _lowest(len(grid)), strict=True):
            rows = [_rows(results, condition, method, histogram_seed(results, line)) for condition, method in line]
            top = 1.06 * max(max(trial[-1].counts) for trial in rows)
            top = max(top, 1.06 * max(float(_pool_scaled(trial).max()) for trial in rows))
            for axes, (condition, method), trial in zip(row, line, rows, strict=False):
                _stack(axes, method, trial, names)
                axes.set_ylim(0, top)
                axes.tick_params(labelleft=axes is row[0])
                axes.set_title(method.shown, fontweight="bold", pad=17)
                _note(axes, f"{setting_title(condition)}; L1 score {l1_score(trial[-1].counts):.2f}")
                if not lowest:  # all rows have the same classes
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
    chosen = [one for one in methods if _batches(results, condition, one)]
    columns = min(len(chosen), 4)
    lines = math.ceil(len(chosen) / columns)
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL * max(columns, 2) / 4, FULL / 4 * lines + 0.75)
        figure.set_layout_engine("compressed")  # panels that must be square
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        most = 1.05 * max(_farthest(results, condition, one) for one in chosen)
        for place, (axes, method) in enumerate(zip(panels, chosen, strict=False)):
            _scatter(axes, _batches(results, condition, method), most)
            axes.set_title(method.shown, fontweight="bold")
            axes.tick_params(labelleft=place % columns == 0)
            if place % columns == 0:
                axes.set_ylabel("true images")
            if place + columns >= len(chosen):
                axes.set_xlabel("expected images")
        for axes in panels[len(chosen) :]:
            axes.set_axis_off()
        _counts_legend(figure, max(len(_batches(results, condition, one)) for one in chosen))
    return figure


def histogram_seed(results: Results, cells: Sequence[Cell]) -> int | None:
    """The seed that a row of histograms shows: the smallest that all its methods ran with; None if there is none."""
    common = set.intersection(*(set(results.trials[condition][method]) for condition, method in cells))
    return min(common, default=None)


def _lowest(rows: int) -> list[bool]:
    return [False] * (rows - 1) + [True]


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
    shades = _shades(_colour(method), len(trial))
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


def _colour(method: Method) -> str:
    return DARK if method.strategy == "random" else COLOURS.get(method.strategy, SPARE_COLOURS[0])


def _shades(colour: str, number: int) -> list[str]:
    """From light (labelled first) to full (labelled last)."""
    full = np.array(to_rgb(colour))
    return [to_hex(1 - share * (1 - full)) for share in np.linspace(0.42, 1.0, number)]


def _note(axes: Axes, text: str) -> None:
    axes.annotate(text, (0, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", fontsize=NOTE)


def _histogram_legend(figure: Figure, cycles: int) -> None:
    shades = _shades(INK, cycles)
    handles: list[Patch | Line2D] = [Patch(color=POOL, label="pool, scaled")]
    handles += [Patch(color=shades[0], label="initial set")]
    handles += [Patch(color=shades[place], label=f"batch {place}") for place in range(1, cycles)]
    handles.append(Line2D([], [], color=INK, linewidth=0.8, linestyle=(0, (3, 2)), label="uniform"))
    legend_below(figure, handles)


def _batches(results: Results, condition: Condition, method: Method) -> dict[int, list[Row]]:
    """Rows with a batch, by cycle."""
    found: dict[int, list[Row]] = {}
    for trial in results.trials[condition][method].values():
        for cycle, row in trial.items():
            if has_counts(row):
                found.setdefault(cycle, []).append(row)
    return dict(sorted(found.items()))


def _farthest(results: Results, condition: Condition, method: Method) -> float:
    """The largest number in a method's panel."""
    return max(float(np.max(_means(rows))) for rows in _batches(results, condition, method).values())


def _means(rows: Sequence[Row]) -> Float64Array:
    """Expected and true counts over seeds, (2, C)."""
    return np.array([np.mean([row.expected for row in rows], axis=0), np.mean([row.realised for row in rows], axis=0)])


def _scatter(axes: Axes, batches: dict[int, list[Row]], most: float) -> None:
    axes.plot([0, most], [0, most], color=FAINT, linewidth=0.9, zorder=1)
    for (_, rows), shade in zip(batches.items(), _shades(COLOURS["entropy"], len(batches)), strict=True):
        expected, realised = _means(rows)
        size = 12 if len(expected) <= MANY_CLASSES else 5
        axes.scatter(expected, realised, s=size, color=[shade], linewidth=0, alpha=0.85, zorder=2)
    axes.set_xlim(0, most)
    axes.set_ylim(0, most)
    axes.set_box_aspect(1)
    axes.grid(visible=False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=ROUND))


def _counts_legend(figure: Figure, batches: int) -> None:
    shades = _shades(COLOURS["entropy"], batches)
    handles = [
        Line2D([], [], linestyle="none", marker="o", markersize=4, color=shade, label=f"batch {place + 1}")
        for place, shade in enumerate(shades)
    ]
    handles.append(Line2D([], [], color=FAINT, linewidth=0.9, label="as expected"))
    legend_below(figure, handles)
