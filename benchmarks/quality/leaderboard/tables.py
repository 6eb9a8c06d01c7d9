"""The leaderboard's tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.quality.leaderboard.analysis import (
    ADJUSTED,
    ADJUSTED_END,
    CLASSES,
    PLAIN,
    PLAIN_END,
    TAIL,
    Analysis,
    name_of,
)
from benchmarks.quality.leaderboard.rows import RANDOM, CellKey, Method
from benchmarks.quality.leaderboard.statistics import (
    SIGNIFICANT,
    Difference,
    Measure,
    Overall,
    Saved,
    Test,
    compare,
    labels_saved,
    overall,
    trials_in,
)
from tailwise.report.names import classical_form
from tailwise.report.tables import DASH, Cell, Grid, markdown, merge_down, number, with_spread


def loss_table(analysis: Analysis, most: int) -> tuple[str, int]:
    """Comparisons that the default lost, adjusted next to plain, the `most` surest; and how many there are in all."""
    places = list(dict.fromkeys((one.cell, one.other) for one in analysis.losses))
    tests = {(one.cell, one.other, one.measure): one for one in analysis.tests}
    lines = [
        [Cell(" ".join(cell)), Cell(name_of(other)), *_test_cells(tests.get((cell, other, ADJUSTED))),
         *_test_cells(tests.get((cell, other, PLAIN)))]
        for cell, other in places[:most]
    ]  # fmt: skip
    header = ("cell", "against", "adjusted", "p", "Holm", "plain", "p", "Holm")
    return _table(header, lines, 2), len(places)


def _test_cells(test: Test | None) -> list[Cell]:
    if test is None:
        return [Cell(DASH)] * 3
    lost = test.difference.mean < 0 and test.holm < SIGNIFICANT
    return [Cell(points(test.difference), lost), Cell(p_value(test.difference.p)), Cell(p_value(test.holm), lost)]


def rival_table(analysis: Analysis) -> str:
    """The default against every other method, in the mean over cells."""
    lines = []
    for other in dict.fromkeys(one.other for one in analysis.tests):
        line = [Cell(name_of(other))]
        for measure in (ADJUSTED, PLAIN):
            own = [one for one in analysis.tests if one.other == other and one.measure == measure]
            mean = overall(analysis.trials, analysis.default, other, analysis.cells, measure)
            sure = [one.difference.mean for one in own if one.holm < SIGNIFICANT]
            won, lost = sum(one > 0 for one in sure), sum(one < 0 for one in sure)
            ahead = sum(one.difference.mean > 0 for one in own)
            line += [_strong(mean), Cell(f"{ahead} of {len(own)}"), Cell(f"{won} / {lost}", lost > 0)]
        lines.append(line)
    header = ("against", "adjusted", "ahead in", "better / worse", "plain", "ahead in", "better / worse")
    return _table(header, lines, 1)


def method_table(analysis: Analysis) -> str:
    """Every method in one line."""
    header = (
        "method", "adjusted", "end", "worst cell", "plain", "end", "tail half", "classes found", "labels saved", "rank",
        "s per batch", "cells",
    )  # fmt: skip
    return _table(header, [_method_line(analysis, one) for one in analysis.methods if one != RANDOM], 1)


def _method_line(analysis: Analysis, method: Method) -> list[Cell]:
    adjusted, plain = analysis.gain(method), analysis.gain(method, PLAIN)
    ends = [points(analysis.gain(method, one)) for one in (ADJUSTED_END, PLAIN_END)]
    texts = (
        analysis.shown(method), points(adjusted), ends[0], number(100 * adjusted.worst, 1, sign=True), points(plain),
        ends[1], points(analysis.gain(method, TAIL)), number(analysis.gain(method, CLASSES).mean, 1, sign=True),
        saved_text(analysis.saved(method)), number(analysis.ranks.mean.get(method, math.nan), 1),
        number(analysis.seconds(method), 1), f"{adjusted.cells} of {len(analysis.cells)}",
    )  # fmt: skip
    return [Cell(text, method == analysis.default and not place) for place, text in enumerate(texts)]


def cell_table(analysis: Analysis, cells: Sequence[CellKey], measure: Measure) -> str:
    """Random selection's own level, and the gains of the default and its rivals over it."""
    methods = [one for one in analysis.drawn if one != RANDOM]
    scale = 1 if measure.column == "classes" else 100
    lines = []
    for cell in cells:
        level = [measure.of(trial) for trial in trials_in(analysis.trials, RANDOM, cell).values()]
        line = [*_place(analysis, cell), Cell(number(scale * float(np.mean(level)), 1))]
        for method in methods:
            found = compare(analysis.trials, method, RANDOM, cell, measure)
            line.append(_strong(found, scale))
        lines.append(line)
    return _table(("pool", "regime", "Random", *map(analysis.shown, methods)), _merged(lines), 2)


def saved_table(analysis: Analysis) -> str:
    """Labels saved at the end, cell by cell."""
    methods = [one for one in analysis.drawn if one != RANDOM]
    lines = []
    for cell in analysis.cells:
        found = [labels_saved(analysis.trials, one, cell, ADJUSTED_END) for one in methods]
        lines.append([*_place(analysis, cell), *(Cell(saved_text(one)) for one in found)])
    return _table(("pool", "regime", *map(analysis.shown, methods)), _merged(lines), 2)


def balance_table(analysis: Analysis) -> str:
    """What balance adds to each strategy; empty where no strategy ran with and without."""
    lines = []
    for method in [one for one in analysis.methods if one.settings == "auto"]:
        base = Method(classical_form(method.strategy))
        if base in analysis.trials:
            found = [overall(analysis.trials, method, base, analysis.cells, one) for one in (ADJUSTED, PLAIN, TAIL)]
            cells = [(_strong(one), Cell(number(100 * one.worst, 1, sign=True))) for one in found]
            ran = Cell(f"{found[0].cells} of {len(analysis.cells)}")
            lines.append([Cell(name_of(method)), *(cell for pair in cells for cell in pair), ran])
    header = ("method", "adjusted", "worst cell", "plain", "worst cell", "tail half", "worst cell", "cells")
    return _table(header, lines, 1) if lines else ""


def parts_table(analysis: Analysis) -> str:
    """A strategy minus its variants: what each part adds; empty where no variant ran."""
    lines = []
    for part, words in analysis.setup.parts.items():
        whole = Method(part.strategy, "auto")
        if part in analysis.trials and whole in analysis.trials:
            found = [overall(analysis.trials, whole, part, analysis.cells, one) for one in (ADJUSTED, PLAIN, TAIL)]
            cells = [(_strong(one), Cell(number(100 * one.worst, 1, sign=True))) for one in found]
            ran = Cell(f"{found[0].cells} of {len(analysis.cells)}")
            lines.append([Cell(words), *(cell for pair in cells for cell in pair), ran])
    header = ("compared with", "adjusted", "worst cell", "plain", "worst cell", "tail half", "worst cell", "cells")
    return _table(header, lines, 1) if lines else ""


def points(found: Difference | Overall, scale: float = 100) -> str:
    """A difference in points, with its standard error."""
    return with_spread(scale * found.mean, scale * found.error, 1, sign=True)


def saved_text(saved: Saved) -> str:
    """A share of labels in percent.

    >>> saved_text(Saved(0.5, 0.04, "≥")), saved_text(Saved(-0.2, 0.1))
    ('≥ 50 ± 4 %', '−20 ± 10 %')
    """
    if math.isnan(saved.share):
        return DASH
    return f"{saved.limit} {with_spread(100 * saved.share, 100 * saved.error, 0)} %".strip()


def p_value(p: float) -> str:
    """A p value in three digits.

    >>> p_value(0.00004), p_value(0.0312), p_value(float("nan"))
    ('< 0.001', '0.031', '–')
    """
    return "< 0.001" if p < 0.001 else number(p, 3)


def _strong(found: Difference | Overall, scale: float = 100) -> Cell:
    """In bold where p < 0.05 before correction; in means over cells where two standard errors or more from zero."""
    clear = found.p < SIGNIFICANT if isinstance(found, Difference) else abs(found.mean) >= 2 * found.error
    return Cell(points(found, scale), clear)


def _place(analysis: Analysis, cell: CellKey) -> list[Cell]:
    return [Cell(analysis.setup.pools.get(cell[0], cell[0])), Cell(cell[1])]


def _table(header: Sequence[str], lines: Sequence[Sequence[Cell]], words: int) -> str:
    """A Markdown table without its caption."""
    grid = Grid("", "", tuple(header), tuple(tuple(line) for line in lines), (), (), (), words)
    return markdown(grid).split("\n", 2)[2].strip()


def _merged(lines: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """Leave out a pool that is named in the line above."""
    texts = merge_down([tuple(cell.text for cell in line) for line in lines])
    return [[Cell(text[0]), *line[1:]] for text, line in zip(texts, lines, strict=True)]
