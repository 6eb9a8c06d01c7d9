"""Published results: what a report reads of each row, as a small gzipped CSV under docs/results.

Published trials count as done, so a study continues on any machine. Whole rows stay in the folder of the runs.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tailwise.experiments.experiment import Row, Trial, balance_name
from tailwise.experiments.store import Cycle, Store
from tailwise.files import csv_bytes, write_whole
from tailwise.targets import l1_score

Record = TypeVar("Record")  # a dataclass of text and numbers
Key: TypeAlias = tuple[float, int, str, str]  # imbalance, seed, strategy, balance
NO_PICKS = np.empty(0, dtype=np.int64)
COLUMNS = (
    "experiment", "pool", "setting", "imbalance", "learner", "strategy", "balance", "settings", "seed", "cycle",
    "labelled", "share", "accuracy", "adjusted_accuracy", "balanced_accuracy", "adjusted_balanced_accuracy",
    "tail_accuracy", "picks", "version", "counts", "pool_counts",
)  # fmt: skip
EXPECTED = "expected"  # half of the bytes; only figures and tables of class counts need it
KINDS = {one.name: str(one.type) for one in fields(Row)}


@dataclass(frozen=True, slots=True)
class Continued(Store):
    """The folder of an experiment; trials that are published whole are not run again. Their picks are not known."""

    published: Mapping[Key, tuple[Row, ...]] = field(default_factory=dict)

    def cycles(self, trial: Trial) -> Iterator[Cycle]:
        """Those of the folder where they are whole, else those that are published whole."""
        here = list(Store.cycles(self, trial))
        key = (trial.factor, trial.seed, trial.part.name, balance_name(trial.balance))
        elsewhere = [Cycle(row, NO_PICKS) for row in self.published.get(key, ())]
        published = self.is_complete(trial, elsewhere) and not self.is_complete(trial, here)
        yield from elsewhere if published else here


def write_published(rows: Iterable[Row], path: Path, *, expected: bool = True) -> None:
    """Write the columns a report reads, rounded; the same rows give the same bytes.

    Images left per class are written for cycle 0 only: later cycles follow from the labels.
    """
    columns = (*COLUMNS, EXPECTED) if expected else COLUMNS
    lines = (
        ["" if name == "pool_counts" and row.cycle else _text(getattr(row, name)) for name in columns]
        for row in sorted(rows, key=lambda row: (_trial(row), row.cycle))
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(csv_bytes(columns, lines), mtime=0))


def read_published(path: Path) -> list[Row]:
    """The rows of `write_published`, with empty or NaN values in the columns that are not published.

    Returns no rows if the file does not exist.
    """
    if not path.is_file():
        return []
    text = gzip.decompress(path.read_bytes()).decode()
    rows = [_row(line) for line in csv.DictReader(io.StringIO(text, newline=""))]
    return [row for _, trial in groupby(rows, key=_trial) for row in _with_class_counts(list(trial))]


def by_trial(rows: Iterable[Row]) -> dict[Key, tuple[Row, ...]]:
    """Rows by trial, cycle by cycle."""
    ordered = sorted(rows, key=lambda row: (*_key(row), row.cycle))
    return {key: tuple(group) for key, group in groupby(ordered, key=_key)}


def _key(row: Row) -> Key:
    return row.imbalance, row.seed, row.strategy, row.balance


def _trial(row: Row) -> tuple[str, str, Key]:
    return row.experiment, row.settings, _key(row)


def _text(value: object) -> object:
    """A cell of the CSV: five digits of a number, two decimals of the numbers in a list.

    >>> _text(0.512345), _text(math.nan), _text((2.041, 3.0)), _text((7, 10)), _text("auto")
    ('0.51234', '', '2.04 3.00', '7 10', 'auto')
    """
    if isinstance(value, tuple):
        return " ".join(f"{one:.2f}" if isinstance(one, float) else str(one) for one in value)
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return value


def _row(line: Mapping[str, str]) -> Row:
    empty: dict[str, Any] = {"int": 0, "float": math.nan, "str": ""}
    values = {name: empty.get(kind, ()) for name, kind in KINDS.items()}
    return Row(**values | {name: _value(KINDS[name], text) for name, text in line.items()})


def _value(kind: str, text: str) -> object:
    if kind.startswith("tuple"):
        return tuple((float if "float" in kind else int)(word) for word in text.split())
    return text if kind == "str" else int(text) if kind == "int" else float(text or "nan")


def _with_class_counts(trial: Sequence[Row]) -> Iterator[Row]:
    """Restore what follows from the labels of a trial: images left, the batch's true counts, the L1 score."""
    images = np.add(trial[0].counts, trial[0].pool_counts)  # (C,)
    for row, after in zip(trial, [*trial[1:], None], strict=True):
        batch = () if after is None else tuple(np.subtract(after.counts, row.counts).tolist())
        left = tuple((images - row.counts).tolist())
        yield replace(row, pool_counts=left, realised=batch, l1_score=l1_score(row.counts))


def read_table(path: Path, kind: type[Record]) -> list[Record]:
    """The rows of a published table of text and numbers, as a dataclass has them; none where there is no file."""
    if not path.is_file():
        return []
    kinds = [{"str": str, "int": int, "float": float}[str(field.type)] for field in fields(kind)]
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.reader(file))[1:]
    return [kind(*(read(text) for read, text in zip(kinds, line, strict=True))) for line in lines]
