"""Tables: cells in; Markdown, LaTeX (booktabs), HTML and CSV out; and files of picks and sweeps (.csv, .parquet, .npy).

The tables of strategies and scores in the docs are made here from the registries. Files are whole or absent.
"""

from __future__ import annotations

import inspect
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import Any

from ..errors import BadFile, BadInput, MissingExtra
from ..files import csv_bytes, npy_bytes, write_whole
from ..score import SCORES
from ..selection import Selection
from ..strategies import STRATEGIES
from ..strategies.select import PATH_COLUMNS, BalancePath

DASH = "–"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "−": "$-$", "–": "--", "λ": r"$\lambda$",
    "†": r"$^\dagger$", "≥": r"$\geq$", "×": r"$\times$", "Σ": r"$\Sigma$", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip
LATEX_TABLE = str.maketrans(LATEX)
MARKDOWN_TABLE = str.maketrans({"|": r"\|", "*": r"\*", "<": "&lt;", ">": "&gt;", "`": r"\`", "\n": " "})
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
PICK_SUFFIXES = (".csv", ".parquet", ".npy")
PATH_SUFFIXES = (".png", ".svg", ".pdf", ".csv")


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
    header = [_markdown(Cell(name)) for name in grid.header]
    rules = ["---"] * grid.words + ["---:"] * (len(grid.header) - grid.words)
    rows = [header, rules, *([_markdown(cell) for cell in row] for row in grid.body)]
    lines = [f"**{grid.title.translate(MARKDOWN_TABLE)}**", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
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
    records = []
    for record in grid.records:
        cells: list[object] = []
        for value in record:
            if isinstance(value, float):
                cells.append("" if math.isnan(value) else round(value, 10))
            else:
                cells.append(f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value)
        records.append(cells)
    return csv_bytes(grid.columns, records)


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


def plural(count: int, word: str) -> str:
    """A count with its noun.

    >>> plural(1, "seed"), plural(1200, "seed")
    ('1 seed', '1,200 seeds')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


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


# What is registered: the tables of the docs and of the command line.


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One registered strategy, as people read it."""

    name: str
    what: str
    needs: tuple[str, ...]
    settings: dict[str, object]  # name → default


def strategy_rows(*, plugins: bool = False) -> list[StrategyRow]:
    """Every registered strategy, by name; with `plugins` also those of other packages."""
    rows = []
    if plugins:
        STRATEGIES.load_plugins()
    for name in sorted(STRATEGIES):
        kind: Any = STRATEGIES[name]
        settings = {field.name: field.default for field in fields(kind)}
        rows.append(StrategyRow(name, first_line(kind), tuple(getattr(kind, "needs", ("proba",))), settings))
    return rows


def score_rows() -> list[tuple[str, str]]:
    """Name and meaning of every score that `select` takes by name."""
    return [(name, first_line(SCORES[name])) for name in sorted(SCORES)]


def shared_settings(rows: list[StrategyRow]) -> dict[str, object]:
    """Settings that every strategy has, with the same default."""
    first, *others = rows
    return {
        name: default for name, default in first.settings.items()
        if all(name in row.settings and row.settings[name] == default for row in others)
    }  # fmt: skip


def own_settings(row: StrategyRow, shared: dict[str, object]) -> str:
    """What a strategy adds to the shared settings, as name=default."""
    return ", ".join(f"{name}={default!r}" for name, default in row.settings.items() if name not in shared)


def first_line(item: object) -> str:
    """The first line of a docstring, without its full stop."""
    return (inspect.getdoc(item) or "").split("\n")[0].removesuffix(".")


def strategy_markdown() -> str:
    """The table of docs/strategies.md."""
    rows = strategy_rows()
    shared = shared_settings(rows)
    lines = ["| strategy | what it picks | needs | settings of its own |", "|---|---|---|---|"]
    for row in rows:
        needs = ", ".join(f"`{need}`" for need in row.needs)
        own = own_settings(row, shared)
        lines.append(f"| `{row.name}` | {row.what} | {needs} | {f'`{own}`' if own else ''} |")
    every = ", ".join(f"`{name}={default!r}`" for name, default in shared.items())
    return "\n".join([*lines, "", f"Every strategy takes {every}."])


def score_markdown() -> str:
    """The table of scores of docs/strategies.md."""
    return _listing(("score", "what it measures"), score_rows())


def learner_markdown() -> str:
    """The table of docs/learners.md."""
    from ..learners import LEARNERS

    return _listing(("learner", "what it is"), [(name, first_line(LEARNERS[name])) for name in sorted(LEARNERS)])


def pool_markdown() -> str:
    """The table of docs/pools.md."""
    from ..pools import POOLS

    rows = []
    for name in sorted(POOLS):
        settings = [
            f"{one.name}={one.default!r}" for one in inspect.signature(POOLS[name]).parameters.values()
            if one.name not in {"path", "report"}
        ]  # fmt: skip
        rows.append((name, first_line(POOLS[name]), f"`{', '.join(settings)}`" if settings else ""))
    return _listing(("pool", "what it is", "settings"), rows)


def format_markdown() -> str:
    """The table of docs/formats.md."""
    from ..formats import FORMATS

    rows = [(name, FORMATS[name].about, "copied" if FORMATS[name].copies else "not copied") for name in sorted(FORMATS)]
    return _listing(("format", "what is written", "images"), rows)


def _listing(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([*lines, *(f"| `{name}` | {' | '.join(rest)} |" for name, *rest in rows)])


# Files of picks and sweeps.


def check_writable(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse, before any work is done, a file that could not be written in the end."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise BadInput(f"cannot write {path.name!r}: its name must end in {', '.join(suffixes)}")
    if path.is_dir():
        raise BadFile(f"cannot write {path}: there is a folder of that name")
    if not path.parent.is_dir():
        raise BadFile(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadFile(f"cannot write {path}: no permission to write to the folder {path.parent.resolve()}")
    if suffix == ".parquet":
        _parquet()


def write_picks(batch: Selection, path: Path, names: Sequence[str] | None = None) -> None:
    """The picks, best first: columns rank (from 1), index and, where known, name; in .npy the indices alone."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        write_whole(path, npy_bytes(batch.indices))
        return
    columns: dict[str, Sequence[int | str]] = {
        "rank": range(1, len(batch) + 1), "index": batch.indices.tolist(), **({} if names is None else {"name": names}),
    }  # fmt: skip
    if suffix == ".parquet":
        write_whole(path, _parquet_bytes({name: list(values) for name, values in columns.items()}))
    else:
        write_whole(path, csv_bytes(tuple(columns), zip(*columns.values(), strict=True)))


def write_sweep(path: BalancePath, where: Path) -> None:
    """A λ sweep as .csv, one row per λ."""
    columns = [getattr(path, name).tolist() for name in PATH_COLUMNS]
    write_whole(where, csv_bytes(PATH_COLUMNS, zip(*columns, strict=True)))


def _parquet_bytes(columns: dict[str, list[int | str]]) -> bytes:
    table, write = _parquet()
    buffer = io.BytesIO()
    write(table(columns), buffer)
    return buffer.getvalue()


def _parquet() -> tuple[Callable[..., object], Callable[..., object]]:
    """pyarrow's table constructor and writer."""
    try:
        from pyarrow import parquet, table
    except ImportError as error:
        raise MissingExtra.named("writing .parquet", "pyarrow", "tables") from error
    return table, parquet.write_table
