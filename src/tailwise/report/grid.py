"""A table as people and machines read it: cells in; Markdown, LaTeX (booktabs), HTML and CSV out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ..files import csv_bytes

DASH = "–"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "–": "--", "λ": r"$\lambda$",
    "†": r"$^\dagger$", "≥": r"$\geq$", "×": r"$\times$", "Σ": r"$\Sigma$", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
LATEX_TABLE = str.maketrans(LATEX)
MARKDOWN_TABLE = str.maketrans({"|": r"\|", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`", "\n": " "})
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Cell:
    """A text; strong where it stands out."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table to read, and its numbers in tidy form.

    Attributes
    ----------
    name: the stem of its files.
    title: its caption.
    header: names of the columns; those from `words` on hold numbers.
    body: rows of cells; an empty first cell means "as above".
    notes: what one must know to read it.
    columns, records: the same, and more, one number per cell, for the CSV file.
    """

    name: str
    title: str
    header: tuple[str, ...]
    body: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    columns: tuple[str, ...]
    records: tuple[tuple[object, ...], ...]
    words: int = 2


def markdown(grid: Grid) -> str:
    """A Markdown table with its caption above and its notes below."""
    rules = ["---"] * grid.words + ["---:"] * (len(grid.header) - grid.words)
    lines = [f"**{grid.title.translate(MARKDOWN_TABLE)}**", "", _bars([_markdown(Cell(name)) for name in grid.header])]
    lines += [_bars(rules), *(_bars([_markdown(cell) for cell in row]) for row in grid.body), ""]
    lines += [f"{note.translate(MARKDOWN_TABLE)}  " for note in grid.notes]
    return "\n".join(lines).rstrip() + "\n"


def latex(grid: Grid) -> str:
    r"""A LaTeX table for \input, in the style of booktabs; a new first cell opens a new group."""
    kinds = "l" * grid.words + "r" * (len(grid.header) - grid.words)
    lines = ["% needs \\usepackage{booktabs}", r"\begin{table}[t]", r"\centering", r"\small"]
    lines += [rf"\caption{{{escape_latex(grid.title)}}}", rf"\label{{tab:{grid.name}}}"]
    lines += [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule"]
    lines += [_ampersands([Cell(name) for name in grid.header]), r"\midrule"]
    for place, row in enumerate(grid.body):
        if place and row[0].text:
            lines.append(r"\addlinespace")
        lines.append(_ampersands(row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\smallskip{{\footnotesize {escape_latex(note)}}}" for note in grid.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def html(grid: Grid) -> str:
    """An HTML table; all text is escaped."""
    head = "".join(_html("th", Cell(name), place >= grid.words) for place, name in enumerate(grid.header))
    lines = [f"<table><caption>{escape(grid.title)}</caption>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row in grid.body:
        opens = ' class="group"' if row[0].text else ""
        cells = "".join(_html("td", cell, place >= grid.words) for place, cell in enumerate(row))
        lines.append(f"<tr{opens}>{cells}</tr>")
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in grid.notes)
    return "\n".join(['<div class="scroll">', *lines, f"</tbody></table></div>{notes}"])


def tidy_csv(grid: Grid) -> bytes:
    """One record per line; NaN is empty, and no text can be taken for a formula."""
    return csv_bytes(grid.columns, [[_tidy(value) for value in record] for record in grid.records])


def escape_latex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> escape_latex("a_b & 5 % ± −1")
    'a\\_b \\& 5 \\% $\\pm$ $-$1'
    """
    return text.translate(LATEX_TABLE)


def number(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with a true minus sign; NaN is a dash.

    >>> number(-0.5), number(0.5, sign=True), number(float("nan")), number(-0.001)
    ('−0.50', '+0.50', '–', '0.00')
    """
    if math.isnan(value):
        return DASH
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    return text.replace("-", "−")


def with_spread(mean: float, spread: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number and its ±.

    >>> with_spread(0.5, float("nan"), sign=True), with_spread(83.14, 0.26, 1)
    ('+0.50 ± –', '83.1 ± 0.3')
    """
    return f"{number(mean, digits, sign=sign)} ± {number(spread, digits)}" if not math.isnan(mean) else DASH


def merge_down(rows: Sequence[tuple[str, ...]], columns: int = 1) -> list[tuple[str, ...]]:
    """Leave out leading texts that stand in the row above already.

    >>> merge_down([("a", "1"), ("a", "2"), ("b", "3")])
    [('a', '1'), ('', '2'), ('b', '3')]
    """
    merged, above = [], ("",) * columns
    for row in rows:
        same = tuple(row[:columns]) == above
        merged.append(("",) * columns + tuple(row[columns:]) if same else tuple(row))
        above = tuple(row[:columns])
    return merged


def _bars(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(cell: Cell) -> str:
    text = cell.text.translate(MARKDOWN_TABLE)
    return f"**{text}**" if cell.strong and text else text


def _ampersands(row: Sequence[Cell]) -> str:
    texts = [escape_latex(cell.text) for cell in row]
    shown = [rf"\textbf{{{text}}}" if cell.strong else text for text, cell in zip(texts, row, strict=True)]
    return " & ".join(shown) + r" \\"


def _html(tag: str, cell: Cell, right: bool) -> str:
    text = f"<strong>{escape(cell.text)}</strong>" if cell.strong else escape(cell.text)
    return f'<{tag} class="n">{text}</{tag}>' if right else f"<{tag}>{text}</{tag}>"


def _tidy(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else round(value, 10)
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return f"'{value}"
    return value
