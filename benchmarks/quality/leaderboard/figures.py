"""The leaderboard's figures: a critical-difference diagram, gains by cell, what balance adds, and learning curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.quality.leaderboard.rows import FIRST_SET, RANDOM, CellKey, Method
from benchmarks.quality.leaderboard.statistics import (
    SIGNIFICANT,
    Measure,
    Ranks,
    Trials,
    compare,
    not_told_apart,
    trials_in,
)
from tailwise.report.figures import BLUE, FAINT, FULL, GREEN, INK, NOTE, ORANGE, ROUND, STYLE, legend_below, new_figure
from tailwise.report.tables import number

Named = Callable[[Method], str]
GREY = "#7d8791"
LOOKS: Sequence[Mapping[str, Any]] = (  # the default, random selection, then its rivals
    {"color": BLUE, "linewidth": 2.0, "zorder": 4},
    {"color": GREY, "linewidth": 1.6, "linestyle": (0, (1, 1.2)), "zorder": 3},
    {"color": ORANGE, "linewidth": 1.3},
    {"color": GREEN, "linewidth": 1.3, "linestyle": (0, (5, 1.5))},
    {"color": "#8a5a9e", "linewidth": 1.3, "linestyle": (0, (3, 1, 1, 1))},
    {"color": "#b0413e", "linewidth": 1.3, "linestyle": (0, (6, 1.5, 1, 1.5))},
)
MOST_RANKS_NAMED = 18  # with more methods only every other rank has room for its number


def rank_figure(ranks: Ranks, named: Named, strong: Method) -> Figure:
    """Mean ranks on a line, the best on the left; bars join methods that the critical difference does not separate."""
    ordered = sorted(ranks.mean, key=lambda method: ranks.mean[method])
    groups = not_told_apart(ranks)
    lines, bars = -(-len(ordered) // 2), len(groups)
    top, step = -0.5 - 0.28 * bars, 0.62
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL, 1.0 + 0.3 * (0.45 * bars + lines * step))
        axes = figure.subplots()
        most = len(ordered)
        axes.set_xlim(1 - 0.62 * most, most + 0.62 * most)
        axes.set_ylim(top - 0.5 - lines * step, 1.9)
        axes.axis("off")
        axes.plot([1, most], [0, 0], color=INK, linewidth=1)
        for rank in range(1, most + 1):
            axes.plot([rank, rank], [0, 0.16], color=INK, linewidth=0.8)
            if most <= MOST_RANKS_NAMED or rank % 2:
                axes.text(rank, 0.3, str(rank), ha="center", va="bottom", fontsize=NOTE)
        axes.plot([1, min(1 + ranks.critical, most)], [1.45, 1.45], color=INK, linewidth=1.6, solid_capstyle="butt")
        axes.text(1, 1.62, f"critical difference {ranks.critical:.2f}", va="bottom", fontsize=NOTE)
        for place, group in enumerate(groups):
            ends = [ranks.mean[group[0]] - 0.04, ranks.mean[group[-1]] + 0.04]
            axes.plot(ends, [-0.3 - 0.28 * place] * 2, color=FAINT, linewidth=3.2, solid_capstyle="round", zorder=1)
        for place, method in enumerate(ordered):
            left = place < lines
            row = place if left else most - 1 - place
            _rank_label(axes, ranks.mean[method], top - 0.4 - row * step, most, named(method), left, method == strong)
    return figure


def _rank_label(axes: Axes, rank: float, height: float, most: int, name: str, left: bool, strong: bool) -> None:
    """A line from the axis down and out to a name on its side."""
    end = 1 - 0.06 * most if left else most + 0.06 * most
    colour = BLUE if strong else INK
    axes.plot([rank, rank, end], [0, height, height], color=colour, linewidth=1.3 if strong else 0.7, zorder=2)
    text = f"{name}  {rank:.1f}" if left else f"{rank:.1f}  {name}"
    axes.text(
        end + (-0.01 if left else 0.01) * most, height, text, ha="right" if left else "left", va="center",
        color=colour, fontweight="bold" if strong else "normal",
    )  # fmt: skip


def gain_figure(
    trials: Trials, methods: Sequence[Method], cells: Sequence[CellKey], measure: Measure, named: Named, strong: Method
) -> Figure:
    """Gains over random selection in points, method × cell; bold where p < 0.05 before any correction."""
    ordered = sorted(cells, key=lambda cell: (cell[1], list(cells).index(cell)))
    found = [[compare(trials, method, RANDOM, cell, measure) for cell in ordered] for method in methods]
    table = np.array([[100 * one.mean for one in row] for row in found])
    with mpl.rc_context({**STYLE, "axes.grid": False}):
        figure = new_figure(1.9 + 0.43 * len(ordered), 1.0 + 0.235 * len(methods))
        axes = figure.subplots()
        image = axes.imshow(table, cmap="RdBu", vmin=-12, vmax=12, aspect="auto")
        for row, line in enumerate(found):
            for column, one in enumerate(line):
                if not np.isnan(one.mean):
                    _gain_text(axes, row, column, 100 * one.mean, clear=one.p < SIGNIFICANT)
        axes.set_yticks(range(len(methods)), labels=[named(method) for method in methods])
        axes.set_xticks(range(len(ordered)), labels=[pool for pool, _ in ordered], rotation=45, ha="right")
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for label, method in zip(axes.get_yticklabels(), methods, strict=True):
            label.set(fontweight="bold" if method == strong else "normal", color=BLUE if method == strong else INK)
        _regimes_above(axes, [regime for _, regime in ordered])
        bar = figure.colorbar(image, ax=axes, fraction=0.025, pad=0.015)
        bar.outline.set_visible(False)
        bar.set_label("points over random", fontsize=NOTE)
    return figure


def _gain_text(axes: Axes, row: int, column: int, points: float, *, clear: bool) -> None:
    axes.text(
        column, row, number(points, 1, sign=True), ha="center", va="center", fontsize=6.8,
        color="white" if abs(points) > 8 else INK, fontweight="bold" if clear else "normal",
    )  # fmt: skip


def _regimes_above(axes: Axes, regimes: Sequence[str]) -> None:
    """The name of each regime over its columns, and a white line between them."""
    words = {"few": "few labels", "more": "more labels", "long": "20 rounds"}
    for regime in dict.fromkeys(regimes):
        places = [place for place, one in enumerate(regimes) if one == regime]
        axes.text(float(np.mean(places)), -0.75, words.get(regime, regime), ha="center", va="bottom", fontsize=9)
        if places[0]:
            axes.axvline(places[0] - 0.5, color="white", linewidth=4)


def balance_figure(
    trials: Trials, pairs: Mapping[str, tuple[Method, Method]], cells: Sequence[CellKey],
    measures: Mapping[str, Measure], shown: Mapping[str, str],
) -> Figure:  # fmt: skip
    """What class balance adds in points, cell by cell: a method with it minus one without, ± two standard errors."""
    colours, height = (BLUE, ORANGE, GREEN), 0.24
    with mpl.rc_context(STYLE):
        figure = new_figure(FULL, 1.1 + 0.27 * len(cells))
        panels = np.atleast_1d(figure.subplots(1, len(measures), sharey=True))
        for axes, (title, measure) in zip(panels, measures.items(), strict=True):
            axes.axvline(0, color=INK, linewidth=0.8)
            for place, (words, (balanced, plain)) in enumerate(pairs.items()):
                found = [compare(trials, balanced, plain, cell, measure) for cell in cells]
                axes.errorbar(
                    [100 * one.mean for one in found], np.arange(len(cells)) + height * (place - (len(pairs) - 1) / 2),
                    xerr=[200 * one.error for one in found], fmt="o", markersize=3.5, linewidth=1.2,
                    color=colours[place], label=words,
                )  # fmt: skip
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("points that balance adds")
            axes.grid(axis="y", visible=False)
        names = [f"{shown.get(pool, pool)}, {'few' if regime == 'few' else 'more'} labels" for pool, regime in cells]
        panels[0].set_yticks(range(len(cells)), labels=names, fontsize=7.5)
        panels[0].invert_yaxis()
        legend_below(figure, panels[0].get_legend_handles_labels()[0], size=8.5)
    return figure


def curve_figure(
    trials: Trials, methods: Sequence[Method], cells: Sequence[CellKey], column: str, named: Named,
    shown: Mapping[str, str],
) -> Figure:  # fmt: skip
    """Learning curves, a panel per cell, regimes below each other; bands are standard errors over seeds."""
    regimes = list(dict.fromkeys(regime for _, regime in cells))
    pools = list(dict.fromkeys(pool for pool, _ in cells))
    words = {"few": "few labels", "more": "more labels", "long": "20 rounds"}
    with mpl.rc_context(STYLE):
        figure = new_figure(max(FULL, 2.35 * len(pools)), 2.2 * len(regimes) + 0.5)
        grid = figure.subplots(len(regimes), len(pools), squeeze=False)
        handles: dict[str, Any] = {}
        for row, regime in enumerate(regimes):
            for place, pool in enumerate(pools):
                axes = grid[row][place]
                if (pool, regime) not in cells:
                    axes.axis("off")
                    continue
                for look, method in zip(LOOKS, methods, strict=False):
                    line = _curve(axes, trials, method, (pool, regime), column, look)
                    if line is not None:
                        handles.setdefault(named(method), line).set_label(named(method))
                axes.set_title(f"{shown.get(pool, pool)}\n{words.get(regime, regime)}", fontsize=8.5)
                axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=ROUND))
                axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
                if row == len(regimes) - 1:
                    axes.set_xlabel("labels")
            grid[row][0].set_ylabel(
                f"{column} balanced accuracy (%)" if column == "adjusted" else "balanced accuracy (%)"
            )
        legend_below(figure, list(handles.values()), size=8.5)
    return figure


def _curve(axes: Axes, trials: Trials, method: Method, cell: CellKey, column: str, look: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a line of matplotlib; None where the method did not run
    runs, starts = trials_in(trials, method, cell), trials_in(trials, FIRST_SET, cell)
    if not runs:
        return None
    known = runs.keys() <= starts.keys()  # else the curve begins after the first batch
    whole = [(*(starts[seed] if known else ()), *trial) for seed, trial in runs.items()]
    values = np.array([[100 * getattr(score, column) for score in trial] for trial in whole])  # (seeds, rounds + 1)
    labels = [score.labels for score in whole[0]]
    mean = values.mean(axis=0)  # (rounds + 1,)
    if len(whole) > 1:
        error = values.std(axis=0, ddof=1) / np.sqrt(len(whole))
        axes.fill_between(labels, mean - error, mean + error, color=look["color"], alpha=0.15, linewidth=0)
    return axes.plot(labels, mean, **look)[0]
