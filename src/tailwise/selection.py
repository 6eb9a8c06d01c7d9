"""The answer: a batch to label next, with its certificate, a reason for every pick, tables and HTML."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .errors import BadInput, MissingExtra
from .types import Float64Array, IntArray

SURE = 0.5  # a pick whose two likeliest classes are farther apart is called probable, not uncertain
SHOWN_CLASSES, SHOWN_PICKS, SHOWN_NOTES = 12, 10, 5
COLUMNS = ("rank", "index", "id", "predicted", "probability", "score", "reason")
STYLE = """<style>.tailwise{font-size:90%;line-height:1.4}.tailwise table{border-collapse:collapse;margin:.5em 0}
.tailwise td,.tailwise th{padding:.15em .7em .15em 0;text-align:left;background:none}
.tailwise td:not(:last-child){white-space:nowrap}
.tailwise .bar{position:relative;width:14em;height:.8em;background:rgba(127,127,127,.18)}
.tailwise .bar i{position:absolute;left:0;top:0;bottom:0;background:#3b7dd8}
.tailwise .bar b{position:absolute;top:-.15em;bottom:-.15em;width:2px;background:currentColor}</style>"""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A class whose target lies beyond what any batch from the pool can reach."""

    cls: int
    wanted: float
    reachable: float

    def __str__(self) -> str:
        return self.named(f"class {self.cls}")

    def named(self, name: str) -> str:
        """The same in words, with the name of the class."""
        return f"{name} can reach at most {self.reachable:.1f} of the {self.wanted:.1f} wanted"


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


@dataclass(frozen=True, slots=True)
class Pick:
    """One image of a batch, and why it was picked."""

    rank: int  # from 1
    index: int  # its row in the pool
    id: Hashable  # as given by `ids`; without them the row
    predicted: Hashable  # the likeliest class, by name if there are names
    probability: float
    score: float  # NaN where the strategy has no score for single images
    reason: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Selection:
    """A batch to label next, with its certificate.

    Iterating gives the picks, best first: by their ids where `ids` were given, else by row. As an index of an array it
    stands for its rows: `images[batch]`.

    Attributes
    ----------
    indices: (b,) int64 rows of the pool, best first; those of `include` come before all others.
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
    likeliest: (b, 2) the two most probable classes of each pick; one column where there is one class.
    probabilities: (b, 2) their probabilities.
    scores: (b,) the scores of the picks; None where the strategy has none for single images.
    ids: (b,) the ids of the picks; None where none were given.
    class_names: (C,) the names of the classes; None where they have none.
    included: how many of the first picks are there because `include` asked for them.
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
    likeliest: IntArray | None = None
    probabilities: Float64Array | None = None
    scores: Float64Array | None = None
    ids: tuple[Hashable, ...] | None = None
    class_names: tuple[Hashable, ...] | None = None
    included: int = 0

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.indices.tolist() if self.ids is None else self.ids)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.indices, dtype=dtype) if copy is not False else np.asarray(self.indices, dtype=dtype)

    @property
    def picks(self) -> list[Pick]:
        """Every pick with its rank, row, id, likeliest class, probability, score and the reason in words."""
        ids, unknown = list(self), np.full(len(self), np.nan)
        scores = unknown if self.scores is None else self.scores
        likeliest = np.empty((len(self), 0), np.int64) if self.likeliest is None else self.likeliest
        probabilities = unknown[:, None] if self.probabilities is None else self.probabilities
        return [
            Pick(
                at + 1, int(row), ids[at], self.name_of(likeliest[at, 0]) if likeliest.shape[1] else "",
                float(probabilities[at, 0]), float(scores[at]), self._reason(at),
            )
            for at, row in enumerate(self.indices.tolist())
        ]  # fmt: skip

    def name_of(self, cls: int) -> Hashable:
        """The name of a class; "class 3" where classes have no names."""
        return f"class {cls}" if self.class_names is None else self.class_names[cls]

    def _reason(self, at: int) -> str:
        """Why a pick: what the model doubts, and whether a likely class lacks labels."""
        parts = ["included on request"] if at < self.included else []
        if self.likeliest is not None and self.probabilities is not None and self.likeliest.shape[1] == 2:
            (first, second), (p, q) = self.likeliest[at].tolist(), self.probabilities[at].tolist()
            unsure = p - q < SURE
            parts.append(
                f"uncertain between {self.name_of(first)} and {self.name_of(second)}"
                if unsure else f"probably {self.name_of(first)}"
            )  # fmt: skip
            lacking = max([first, second] if unsure else [first], key=lambda cls: self.target[cls])
            if (self.lam > 0 or self.places is not None) and (short := round(float(self.target[lacking]))) > 0:
                parts.append(f"{self.name_of(lacking)} is {short:,} {'label' if short == 1 else 'labels'} short")
        return "; ".join(parts)

    def __repr__(self) -> str:
        certificate = f"gap={self.gap:.1e}" if np.isfinite(self.gap) else "no bound"
        lines = [
            f"Selection({self.method or 'scores'}: {len(self)} picks, {self.status}, {certificate}, "
            f"λ={self.lam:.4g}, {self.seconds:.2f} s)",
            f"  objective {self.objective:.6g}   bound {self.bound:.6g}   "
            f"informativeness {self.informativeness:.6g}   l1 {self.l1:.4g}",
            *(f"  {line}" for line in self._counts()),
            *(f"  {note}" for note in self._notes()),
        ]
        return "\n".join(lines)

    def _counts(self) -> list[str]:
        """Expected counts, their deviation, target and places in aligned columns, the first classes of many."""
        rows: dict[str, list[Any]] = {} if self.class_names is None else {"class": list(self.class_names)}
        rows |= {"expected": self.expected_counts.tolist(), "±": self.counts_std.tolist()}
        rows["target"] = self.target.tolist()
        if (self.target_high > self.target).any():
            rows["up to"] = self.target_high.tolist()
        if self.places is not None:
            rows["places"] = self.places.tolist()
        cells = {
            name: [f"{one:.1f}" if isinstance(one, float) else str(one) for one in row[:SHOWN_CLASSES]]
            for name, row in rows.items()
        }
        widths = [max(map(len, column)) for column in zip(*cells.values(), strict=True)]
        more = f" … ({len(self.target)} classes)" if len(self.target) > SHOWN_CLASSES else ""
        return [
            f"{name:<8} " + " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + more
            for name, row in cells.items()
        ]

    def _notes(self) -> list[str]:
        """What to know about the batch, a sentence each."""
        notes = [] if self.trust is None else [str(self.trust)]
        notes += self.notes
        notes += [one.named(str(self.name_of(one.cls))) for one in self.unreachable[:SHOWN_NOTES]]
        if (more := len(self.unreachable) - SHOWN_NOTES) > 0:
            notes.append(f"… and {more} more classes out of reach")
        return notes

    def _repr_html_(self) -> str:
        """For notebooks: the certificate, a bar for every class, the first picks with their reasons."""
        certificate = f"gap {self.gap:.1e}" if np.isfinite(self.gap) else "no bound"
        longest = max(float(self.expected_counts.max(initial=0)), float(self.target.max(initial=0)))
        far = np.maximum(self.target - self.expected_counts, self.expected_counts - self.target_high)
        shown = sorted(np.argsort(-far, kind="stable")[: 2 * SHOWN_CLASSES].tolist())
        classes = [
            (self.name_of(cls), f"{self.expected_counts[cls]:.1f} ± {self.counts_std[cls]:.1f}",
             f"{self.target[cls]:.1f}", Bar(self.expected_counts[cls], longest, self.target[cls]))
            for cls in shown
        ]  # fmt: skip
        picks = [
            (one.rank, one.id, one.predicted, _number(one.probability, ".0%"), _number(one.score, ".3f"), one.reason)
            for one in self.picks[:SHOWN_PICKS]
        ]
        return html_summary(
            f"{len(self):,} picks",
            f"{self.method or 'scores'} · {self.status}, {certificate} · λ = {self.lam:.4g} · {self.seconds:.2f} s",
            self._notes(),
            html_table(("class", "expected", "target", ""), classes),
            html_table(("rank", "id", "predicted", "probability", "score", "why"), picks, total=len(self)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON (an absent bound is None)."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    def to_json(self) -> str:
        """One line of standard JSON."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:  # noqa: ANN401 - a table of either
        """A table with one row per pick: rank, index, id, predicted class, its probability, score, reason."""
        if library not in ("pandas", "polars"):
            raise BadInput(f"library is {library!r}; it must be 'pandas' or 'polars'")
        try:
            frames = __import__(library)
        except ImportError as error:
            raise MissingExtra.named(f"to_frame({library!r})", library, "tables") from error
        picks = self.picks
        return frames.DataFrame({name: [getattr(one, name) for one in picks] for name in COLUMNS})

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the same table as CSV; text that a spreadsheet would run as a formula gets a ' in front."""
        with open(path, "w", newline="", encoding="utf-8") as file:  # noqa: PTH123 - as the user names it
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows([_cell(getattr(one, name)) for name in COLUMNS] for one in self.picks)


class Bar(NamedTuple):
    """A cell of a table that is drawn: a value of at most `longest`, and a mark where the target is."""

    value: float
    longest: float
    mark: float | None = None


def html_summary(title: str, facts: str, notes: Iterable[str], *tables: str) -> str:
    """What all values that notebooks show have in common: a line in bold, facts, notes, tables; text is escaped."""
    lines = "".join(f"<p>{escape(note)}</p>" for note in notes)
    headline = f"<b>{escape(title)}</b>{' · ' if facts else ''}{escape(facts)}"
    return f"{STYLE}<div class='tailwise'><p>{headline}</p>{lines}{''.join(tables)}</div>"


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]], *, total: int = 0) -> str:
    """A table of text and bars; with `total`, how many rows are not shown.

    >>> html_table(["class"], [["<owl>"]], total=3)
    '<table><tr><th>class</th></tr><tr><td>&lt;owl&gt;</td></tr></table><p>… 2 more</p>'
    """
    names = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{''.join(f'<td>{_drawn(cell)}</td>' for cell in row)}</tr>" for row in rows)
    more = f"<p>… {total - len(rows):,} more</p>" if total > len(rows) else ""
    return f"<table><tr>{names}</tr>{body}</table>{more}"


def _drawn(cell: object) -> str:
    if not isinstance(cell, Bar):
        return escape(str(cell))
    longest = max(cell.longest, 1e-9)
    mark = "" if cell.mark is None else f"<b style='left:{100 * min(1.0, cell.mark / longest):.1f}%'></b>"
    return f"<div class='bar'><i style='width:{100 * cell.value / longest:.1f}%'></i>{mark}</div>"


def _number(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else ""


def _cell(value: object) -> object:
    """A number as it is, NaN as nothing, text guarded against being run by a spreadsheet."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r", "'")) else value


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, Shortfall):
        return {"class": value.cls, "wanted": value.wanted, "reachable": value.reachable}
    if isinstance(value, Trust):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)} | {"text": str(value)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
