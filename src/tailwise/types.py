"""The values that travel between modules: arrays, matrices and predictions; `selection.py` has the answer.

Frozen, slotted dataclasses with shapes at the fields: N pool rows, C classes, b picks, L labelled, d features.
"""

from __future__ import annotations

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
