"""What is published counts as done: a study goes on from docs/results, on whatever machine it was begun."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tailwise.bench.results import Row
from tailwise.bench.store import Cycle, Store, is_whole, read_rows
from tailwise.bench.trials import Trial, balance_name

Key: TypeAlias = tuple[float, int, str, str]  # imbalance, seed, strategy, balance
NO_PICKS = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Continued(Store):
    """The folder of an experiment; trials that are published whole are not run again. Their picks are not known."""

    published: Mapping[Key, tuple[Row, ...]] = field(default_factory=dict)

    def cycles(self, trial: Trial) -> Iterator[Cycle]:
        """Those of the folder where they are whole, else those that are published whole."""
        here = list(Store.cycles(self, trial))
        key = (trial.factor, trial.seed, trial.part.name, balance_name(trial.balance))
        elsewhere = [Cycle(row, NO_PICKS) for row in self.published.get(key, ())]
        yield from elsewhere if is_whole(trial, elsewhere) and not is_whole(trial, here) else here


def read_published(path: Path) -> list[Row]:
    """The rows of a results.csv; none where there is no such file."""
    return read_rows(path) if path.is_file() else []


def by_trial(rows: Iterable[Row]) -> dict[Key, tuple[Row, ...]]:
    """Rows by trial, cycle by cycle."""
    ordered = sorted(rows, key=lambda row: (*_key(row), row.cycle))
    return {key: tuple(group) for key, group in groupby(ordered, key=_key)}


def _key(row: Row) -> Key:
    return row.imbalance, row.seed, row.strategy, row.balance
