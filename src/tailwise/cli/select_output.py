"""How selections, paths and strategies look on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..report.tables import own_settings, score_rows, shared_settings, strategy_rows
from ..targets import l1_score
from .output import bar, certificate, frameless, percent, plain
from .select import is_number

if TYPE_CHECKING:
    from ..selection import Selection
    from ..strategies.select import BalancePath
    from ..types import Float64Array
    from .select import Inputs, Request


MOST_CLASSES = 25
MOST_NOTES = 5
MOST_PICKS = 8


def show_selection(
    batch: Selection, inputs: Inputs, request: Request, balance: str, out: Path | None, names: list[str] | None
) -> None:
    """Headline, certificate, one line per class, notes, and where the picks are."""
    console = Console(highlight=False)
    rows, classes = inputs.proba.shape
    method = request.score or "" if batch.method == "scores" else batch.method
    chosen = "" if is_number(balance) else f" ({balance.strip()})"
    console.print(f"[bold]{len(batch):,} of {rows:,} images[/], {classes:,} class{'es' if classes != 1 else ''}")
    console.print(f"{plain(method)}, λ = {batch.lam:.4g}{plain(chosen)}, {batch.seconds:.2f} s")
    console.print(f"[green]{certificate(batch.status, batch.gap)}[/]")
    console.print()
    labelled = np.zeros(classes) if inputs.counts is None else inputs.counts
    console.print(class_table(batch, labelled))
    for line in [*_overview(batch, labelled, request), *_notes(batch)]:
        console.print(line)
    console.print()
    console.print(_whereabouts(batch, out, names), soft_wrap=True)


def class_table(batch: Selection, labelled: Float64Array) -> Table:
    """Labelled so far, target, expected counts with a bar, and places where there are any.

    Of many classes those farthest from their target.
    """
    table = frameless()
    places = [] if batch.places is None else batch.places.tolist()
    for name in ("class", "labelled", "target", *(["places"] if places else []), "expected"):
        table.add_column(name, justify="right")
    table.add_column("expected █  target │", no_wrap=True)
    longest = float(max(batch.expected_counts.max(initial=0.0), batch.target.max(initial=0.0)))
    for cls in shown_classes(batch):
        low, expected = float(batch.target[cls]), float(batch.expected_counts[cls])
        wanted = wanted_text(low, float(batch.target_high[cls]), len(batch))
        drawn = bar(expected, low if low > 0 else None, longest)
        place = [str(places[cls])] if places else []
        name = str(cls) if batch.class_names is None else plain(str(batch.class_names[cls]))
        table.add_row(name, f"{labelled[cls]:g}", wanted, *place, f"{expected:.1f}", drawn)
    return table


def shown_classes(batch: Selection) -> list[int]:
    """All classes, or the 25 farthest from their target, ascending."""
    expected = batch.expected_counts
    far = np.maximum(batch.target - expected, 0) + np.maximum(expected - batch.target_high, 0)
    return sorted(np.argsort(-far, kind="stable")[:MOST_CLASSES].tolist())


def wanted_text(low: float, high: float, budget: int) -> str:
    """A target as people say it.

    >>> wanted_text(3, 3, 9), wanted_text(3, 9, 9), wanted_text(0, 4, 9), wanted_text(2, 4, 9), wanted_text(0, 9, 9)
    ('3.0', '≥ 3', '≤ 4', '2–4', 'any')
    """
    if low == high:
        return f"{low:.1f}"
    if high >= budget:
        return f"≥ {low:g}" if low > 0 else "any"
    return f"{low:g}–{high:g}" if low > 0 else f"≤ {high:g}"


def _overview(batch: Selection, labelled: Float64Array, request: Request) -> list[str]:
    lines = []
    expected = batch.expected_counts
    classes = len(expected)
    if classes > MOST_CLASSES:
        least, most = int(expected.argmin()), int(expected.argmax())
        lines.append(
            f"[dim]The {MOST_CLASSES} of {classes:,} classes farthest from their target; over all, expected counts run "
            f"from {expected[least]:.1f} (class {least}) to {expected[most]:.1f} (class {most}).[/]"
        )
    if request.uniform and classes > 1:
        before = f"{l1_score(labelled):.3f} → " if labelled.any() else ""
        lines.append(f"L1 score of the labelled set: {before}{l1_score(labelled + expected):.3f} (0 = uniform)")
    if batch.places is not None:
        lines.append("[dim]places: picks at the border of each class; some will be of the class across it.[/]")
    return ["", *lines] if lines else []


def _notes(batch: Selection) -> list[str]:
    notes = [
        f"[yellow]note:[/] {plain(short.named(str(batch.name_of(short.cls))))}"
        for short in batch.unreachable[:MOST_NOTES]
    ]
    more = len(batch.unreachable) - MOST_NOTES
    if more > 0:
        notes.append(f"[yellow]note:[/] … and {more} more classes out of reach")
    notes += [f"[yellow]note:[/] {plain(note)}" for note in batch.notes]
    if batch.hidden > 0:
        share = percent(batch.hidden / max(1.0, abs(batch.objective)))
        notes.append(f"[yellow]note:[/] what the sparse softmax left out may hide {share} of the objective; keep more")
    return notes


def _whereabouts(batch: Selection, out: Path | None, names: list[str] | None) -> str:
    if out is not None:
        return f"Wrote {len(batch):,} picks, best first, to {plain(str(out))}"
    first = ", ".join(plain(name) for name in (names or list(map(str, batch.indices.tolist())))[:MOST_PICKS])
    more = f", … ({len(batch) - MOST_PICKS:,} more)" if len(batch) > MOST_PICKS else ""
    return f"Best first: {first}{more}\nSave them with --out picks.csv (or .parquet, .npy)."


def show_path(path: BalancePath, out: Path | None) -> None:
    """One row per λ, the row that the paper's rule takes marked."""
    console = Console(highlight=False)
    table = frameless()
    for name in ("", "λ", "informativeness", "l1", "L1 score", "gap"):
        table.add_column(name, justify="right")
    for lam, information, l1, score, gap in zip(
        path.lam, path.informativeness, path.l1, path.l1_score, path.gap, strict=True
    ):
        chosen = bool(lam == path.chosen)
        cells = (f"{lam:.4g}", f"{information:.6g}", f"{l1:.4g}", f"{score:.3f}", percent(float(gap)))
        table.add_row("▶" if chosen else "", *cells, style="bold green" if chosen else None)
    console.print(table)
    console.print()
    console.print(
        f"▶ λ = {path.chosen:.4g}: the smallest λ after which the l1 distance no longer falls (--balance paper)"
    )
    if out is None:
        console.print("Draw it with --out path.png (or .svg, .pdf), or keep the numbers with --out path.csv.")
    else:
        console.print(f"Wrote {plain(str(out))}", soft_wrap=True)


def show_strategies() -> None:
    """The registries as two tables."""
    console = Console(highlight=False)
    rows = strategy_rows(plugins=True)
    shared = shared_settings(rows)
    table = frameless()
    for name in ("strategy", "what it picks", "needs"):
        table.add_column(name, no_wrap=name != "what it picks")
    for row in rows:
        own = own_settings(row, shared)
        what = f"{row.what} (setting: {own})" if own else row.what
        table.add_row(f"[bold]{row.name}[/]", escape(what), "\n".join(row.needs))
    console.print(table)
    console.print()
    scores = frameless()
    scores.add_column("score", no_wrap=True)
    scores.add_column("what it measures")
    for name, what in score_rows():
        scores.add_row(f"[bold]{name}[/]", escape(what))
    console.print(scores)
    console.print()
    every = ", ".join(f"{name}={default!r}" for name, default in shared.items())
    console.print(f"Every strategy takes {every}:\n  tailwise.strategies.make('entropy', balance='auto')")
    console.print("Scores are for tailwise select --score and tailwise.select(score=…).")
