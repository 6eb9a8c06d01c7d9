"""`tailwise demo`: one batch from a long-tailed pool of digits, at random, by entropy, and by entropy with balance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from ..balance.measure import l1_score
from ..errors import BadFile
from ..learn.linear import LinearLearner
from ..pool.digits import load_digits
from ..pool.images import LabelledImages
from ..pool.longtail import initial_set, keep_counts, step_profile
from ..report.figures import Histogram, batch_figure, write_figure
from ..strategies import make
from ..types import IntArray, Predictions, Selection
from .show import bar, percent, plain

FIRST_PER_CLASS = 10
FACTOR = 0.2
BUDGET = 100
STRENGTH = 0.05  # a model that was fitted harder on so few labels would be sure of itself, and its counts wrong
METHODS = (("random", 0.0), ("entropy", 0.0), ("entropy", "auto"))


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One method's picks, and what they turned out to be."""

    name: str
    selection: Selection
    counts: IntArray  # (C,) true classes of the picks
    l1_score: float  # of the labelled set with the batch added


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """A long-tailed pool and three batches from it."""

    pool: IntArray  # (C,)
    labelled: IntArray  # (C,)
    batches: tuple[Batch, ...]


def run_demo(folder: Path, seed: int) -> None:
    """Make the experiment, show it and draw it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {folder}: {error.strerror}") from error
    demo = experiment(seed)
    show_demo(demo)
    figure = folder / "batches.png"
    write_figure(batch_figure([_panel(batch) for batch in demo.batches], demo.pool), figure)
    Console(highlight=False).print(f"\nFigure: {plain(str(figure))}", soft_wrap=True)


def experiment(seed: int) -> Demo:
    """Reserve a class-uniform first set, thin out the tail, fit on the first set, pick from the rest (PAPER §1, §7)."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    first = initial_set(digits.labels, digits.classes, FIRST_PER_CLASS, rng)
    labelled, rest = digits.take(first), digits.take(np.setdiff1d(np.arange(len(digits)), first))
    pool = rest.take(keep_counts(rest.labels, step_profile(rest.counts(), FACTOR), rng))
    model = LinearLearner(digits.classes, STRENGTH).fit(labelled.inputs, labelled.labels)
    predictions = Predictions(proba=model.predict_proba(pool.inputs))
    batches = tuple(_batch(name, balance, predictions, pool, labelled, seed) for name, balance in METHODS)
    return Demo(pool.counts(), labelled.counts(), batches)


def _batch(
    name: str, balance: float | str, predictions: Predictions, pool: LabelledImages, labelled: LabelledImages, seed: int
) -> Batch:
    made = make(name, balance=balance)
    selection = made.select(predictions, BUDGET, counts=labelled.counts(), seed=seed)
    counts = pool.take(selection.indices).counts()
    shown = name if balance == 0.0 else f"{name}-balanced"
    return Batch(shown, selection, counts, l1_score(labelled.counts() + counts))


def _panel(batch: Batch) -> Histogram:
    return Histogram(batch.name, batch.counts.tolist(), f"labelled set: L1 score {batch.l1_score:.2f}")


def show_demo(demo: Demo) -> None:
    """True classes of the batches beside the pool, and what the balance gained."""
    console = Console(highlight=False)
    console.print(
        f"[bold]A long-tailed pool of {demo.pool.sum():,} handwritten digits[/]\n"
        f"A linear model, fitted on {FIRST_PER_CLASS} labels per class, says which {BUDGET} to label next.\n"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in ("digit", "pool", "random", "entropy", "balanced"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("balanced █  entropy │", no_wrap=True)
    plainly, balanced = demo.batches[1].counts, demo.batches[2].counts
    longest = float(max(plainly.max(), balanced.max()))
    for cls in range(len(demo.pool)):
        cells = [demo.pool[cls], *(batch.counts[cls] for batch in demo.batches)]
        table.add_row(str(cls), *map(str, cells), bar(float(balanced[cls]), float(plainly[cls]), longest))
    table.add_section()
    half = len(demo.pool) // 2
    table.add_row("tail", str(demo.pool[half:].sum()), *(f"{batch.counts[half:].sum()}" for batch in demo.batches))
    table.add_row("L1 score", f"{l1_score(demo.pool):.3f}", *(f"{batch.l1_score:.3f}" for batch in demo.batches))
    table.add_row("gap", "", *(percent(batch.selection.gap) for batch in demo.batches))
    console.print(table)
    chosen = demo.batches[2].selection
    console.print(
        "\nL1 score: of the pool; of the labels with the batch added. 0 = every digit equally often."
        f"\nThe balanced batch (λ = {chosen.lam:.2g}) is within {percent(chosen.gap)} of the best possible one."
    )
