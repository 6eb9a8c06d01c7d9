"""The values that travel between modules: arrays, matrices, predictions, progress; `selection.py` has the answer.

Frozen, slotted dataclasses with shapes at the fields: N pool rows, C classes, b picks, L labelled, d features.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.floating[Any]]
Float64Array: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]


class Matrix(Protocol):
    """A float matrix that is read in blocks: what arrays, memory maps and matrices in files have in common."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The kind of float."""
        ...

    def __getitem__(self, where: Any, /) -> Any:  # noqa: ANN401 - slice or row numbers; numpy's own overloads differ
        """Contiguous rows, or rows by an ascending int64 array, as an array."""
        ...


AnyMatrix: TypeAlias = "FloatArray | Matrix | str | Path"
"""A float matrix wherever it is: an array (memory-mapped or not), or a path or URL to one."""
Proba: TypeAlias = AnyMatrix
"""Probabilities (N, C) in float16/32/64; a `TopK` too."""

StrategyName: TypeAlias = Literal[
    "badge", "bald", "base", "boundary", "coreset", "direct", "dropquery", "entropy", "entropy-l1-pseudo-label",
    "falcun", "galaxy", "kcenter", "least-confidence", "margin", "maxherding", "pcb", "random", "refine", "tcm",
    "typiclust", "uherding", "vaal",
]  # fmt: skip
"""The strategies that come with Tailwise, for editors and type checkers; plugins add others."""
ScoreName: TypeAlias = Literal["entropy", "margin", "least-confidence"]

Oracle: TypeAlias = Callable[[IntArray], IntArray]
"""Rows of the pool (m,) in, their true classes (m,) out: for strategies that read labels while they pick."""

Progress: TypeAlias = Callable[[float, str], None]
"""Called now and then with the share of the work that is done, 0 to 1, and what is being done."""


def no_progress(_done: float, _what: str) -> None:
    """The default `report`: shows nothing."""


class ProgressBar:
    """Shows how far a long call is, on a terminal or in a notebook; make one for each call.

    It goes wherever a call takes `report`: `campaign.next(100, report=tailwise.ProgressBar())`. Without a terminal it
    writes a line every few seconds.

    >>> bar = ProgressBar()
    >>> bar(0.5, "fitting"), bar(1.0, "fitted")
    (None, None)
    """

    CELLS = 24
    PAUSE, LINE_PAUSE = 0.1, 5.0  # seconds between two pictures, and between two lines where there is no terminal

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)
        self._place: Any = None  # of the picture in a notebook
        self._due, self._open = 0.0, False

    @property
    def interactive(self) -> bool:
        """Whether someone watches: a terminal or a notebook."""
        return self._console.is_terminal or self._console.is_jupyter

    def __call__(self, done: float | str, what: str = "") -> None:
        """The share that is done and the current step, or a line of text alone, as `select` reports it."""
        share, text = (None, done) if isinstance(done, str) else (min(max(done, 0.0), 1.0), what)
        moment = time.monotonic()
        if moment < self._due and share != 1.0:
            return
        self._due = moment + (self.PAUSE if self.interactive else self.LINE_PAUSE)
        if self._console.is_jupyter:
            self._show_html(share, text)
        elif self._console.is_terminal:
            self._show_line(share, text)
        else:
            self._console.out(text if share is None else f"{share:4.0%} {text}")

    def _show_html(self, share: float | None, text: str) -> None:
        from html import escape

        display = importlib.import_module("IPython.display")  # there, where a notebook is
        value = "" if share is None else f" value='{share:.3f}'"
        picture = display.HTML(f"<progress{value} max='1'></progress> {escape(text)}")
        if self._place is None:
            self._place = display.display(picture, display_id=True)
        else:
            self._place.update(picture)

    def _show_line(self, share: float | None, text: str) -> None:
        from rich.cells import set_cell_size

        full = 0 if share is None else round(self.CELLS * share)
        self._console.out("━" * full, style="cyan", end="")
        self._console.out("━" * (self.CELLS - full), style="dim", end="")
        step = f" {text}" if share is None else f" {share:4.0%} {text}"
        self._open = share != 1.0
        room = max(1, self._console.width - self.CELLS - 1)
        self._console.out(set_cell_size(step, room), end="\r" if self._open else "\n")

    def __del__(self) -> None:
        if getattr(self, "_open", False):  # a call that has ended early, such as by an error: its line stays
            self._console.file.write("\n")


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What a model says of the pool; a strategy names the fields that it needs.

    Attributes
    ----------
    proba: (N, C) softmax probabilities, or a path to them.
    embeddings: (N, d) penultimate-layer features of the pool, or a path to them.
    labelled_embeddings: (L, d) the same of the labelled set; L may be 0.
    mc_proba: (T, N, C) softmax of T dropout passes.
    labelledness: (N,) probability of being labelled, from VAAL's discriminator.
    labelled_proba: (L, C) softmax probabilities of the labelled set.
    labelled_labels: (L,) the classes of the labelled set, from 0.
    """

    proba: Proba
    embeddings: AnyMatrix | None = None
    labelled_embeddings: AnyMatrix | None = None
    mc_proba: FloatArray | None = None
    labelledness: FloatArray | None = None
    labelled_proba: FloatArray | None = None
    labelled_labels: IntArray | None = None


def gap_between(objective: float, bound: float, magnitude: float, rounding: float = 0.0) -> float:
    """Distance of an objective from its bound, relative to the sum of the objective's terms without their signs.

    `magnitude` is Σ|score of a pick| + λ·l1, so opposite terms cannot cancel in it; differences up to `rounding` are 0.

    >>> gap_between(-100.0, -101.0, magnitude=200.0)
    0.005
    """
    missing = objective - bound
    if missing <= rounding:
        return 0.0
    return missing / magnitude if magnitude > 0 else np.inf
