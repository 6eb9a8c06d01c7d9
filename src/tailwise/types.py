"""The values that travel between modules: predictions in, selections out.

Frozen, slotted dataclasses with shapes at the fields: N pool rows, C classes, b picks, L labelled, d features.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import MissingExtra

if TYPE_CHECKING:
    import pandas


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


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A class whose target lies beyond what any batch from the pool can reach."""

    cls: int
    wanted: float
    reachable: float

    def __str__(self) -> str:
        return f"class {self.cls} can reach at most {self.reachable:.1f} of the {self.wanted:.1f} wanted"


@dataclass(frozen=True, slots=True)
class Trust:
    """How well probabilities did on labelled images, and so how far expected counts can be trusted.

    Attributes
    ----------
    labels: how many labelled images were asked about; the model must not have learnt from them.
    accuracy: the share of them whose most probable class is right.
    confidence: the mean of their largest probabilities.
    calibration_error: mean distance between the two over bins of confidence (`expected_calibration_error`).
    picks: size of the batch.
    misplaced: about how many picks are of other classes than counted: an estimate of Σ|true − expected| / 2
        (docs/select.md says from what).
    advice: what to do where confidence and accuracy disagree; else empty.
    """

    labels: int
    accuracy: float = np.nan
    confidence: float = np.nan
    calibration_error: float = np.nan
    picks: int = 0
    misplaced: float = np.nan
    advice: str = ""

    def __str__(self) -> str:
        if not self.labels:
            return "No label could be held out, so nothing is known of how far the counts can be trusted."
        text = (
            f"On {self.labels:,} held-out {'label' if self.labels == 1 else 'labels'} the model was right "
            f"{self.accuracy:.0%} of the time and said {self.confidence:.0%}"
        )
        if self.picks:
            text += f": about {self.misplaced:.0f} of {self.picks:,} picks will be of other classes than counted"
        return f"{text}. {self.advice}".rstrip()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Selection:
    """A batch to label next, with its certificate.

    Attributes
    ----------
    indices: (b,) int64 rows of the pool, best first.
    objective: uᵀz + λ·‖Ω − Pᵀz‖₁ with u = −score.
    bound: a lower bound that no batch can beat; −inf where a method has none.
    hidden: the most by which the objective may be larger, where the softmax is sparse (`TopK`); 0 otherwise.
    gap: (objective + hidden − bound) / (Σ|score of a pick| + λ·l1): scaling scores and λ together does not change it. 0
        where the difference is within the rounding errors of its terms.
    status: "optimal" (gap ≤ 1e-6), "within gap", "best found", "time limit", "greedy" or
        "optimal chunks" (`boundary`: each of its chunks is optimal, given those before).
    lam: the λ that was used.
    target: (C,) Ω; where the target is a range, its low end.
    target_high: (C,) the high end; equal to `target` where the target is a point.
    expected_counts: (C,) Pᵀz.
    counts_std: (C,) the standard deviation of the counts, sqrt(Σ p·(1 − p)) over the picks: if the probabilities are
        right and the picks are independent, true counts scatter around the expected ones by so much.
    informativeness: the sum of the scores of the picks.
    l1: the distance of the expected counts from the target.
    seconds: wall time.
    unreachable: classes whose target no batch of this size can reach in expected counts; empty if `balance` was 0.
    method: the score or strategy that made it.
    trust: how well the probabilities did on labelled images, and so how far the counts can be trusted; None where no
        labels were there to check them.
    places: (C,) how many picks stand at the border of each class, where a strategy gives each class its places: these
        are what it balances. A pick near a border may well be of the class across it, so they differ from
        `expected_counts`. None where a strategy has no such places.
    notes: plain sentences on what to know about the batch, such as a limit of the rule for λ that was hit.
    """

    indices: IntArray
    objective: float
    bound: float
    gap: float
    status: str
    lam: float
    target: Float64Array
    target_high: Float64Array
    expected_counts: Float64Array
    counts_std: Float64Array
    informativeness: float
    l1: float
    seconds: float
    unreachable: tuple[Shortfall, ...] = ()
    method: str = ""
    hidden: float = 0.0
    trust: Trust | None = None
    notes: tuple[str, ...] = ()
    places: IntArray | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        certificate = f"gap={self.gap:.1e}" if np.isfinite(self.gap) else "no bound"
        lines = [
            f"Selection({self.method or 'scores'}: {len(self)} picks, {self.status}, {certificate}, "
            f"λ={self.lam:.4g}, {self.seconds:.2f} s)",
            f"  objective {self.objective:.6g}   bound {self.bound:.6g}   "
            f"informativeness {self.informativeness:.6g}   l1 {self.l1:.4g}",
            f"  expected {_brief(self.expected_counts)}",
            f"  ±        {_brief(self.counts_std)}",
            f"  target   {_brief(self.target)}",
        ]
        if (self.target_high > self.target).any():
            lines.append(f"  up to    {_brief(self.target_high)}")
        if self.places is not None:
            lines.append(f"  places   {_brief(self.places)}")
        if self.trust is not None:
            lines.append(f"  {self.trust}")
        lines += [f"  {note}" for note in self.notes]
        lines += [f"  {shortfall}" for shortfall in self.unreachable[:5]]
        if len(self.unreachable) > 5:
            lines.append(f"  … and {len(self.unreachable) - 5} more classes out of reach")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON (an absent bound is None)."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def to_json(self) -> str:
        """One line of standard JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self) -> pandas.DataFrame:
        """One row per pick: its rank, from 1, and its row in the pool."""
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra.named("to_frame()", "pandas", "tables") from error
        return pandas.DataFrame({"rank": np.arange(1, len(self) + 1), "index": self.indices})


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


def _brief(values: Iterable[float], most: int = 12) -> str:
    shown = list(values)
    text = " ".join(f"{value:.1f}" for value in shown[:most])
    return f"{text} … ({len(shown)} classes)" if len(shown) > most else text


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, Shortfall):
        return {"class": value.cls, "wanted": value.wanted, "reachable": value.reachable}
    if isinstance(value, Trust):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)} | {"text": str(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
