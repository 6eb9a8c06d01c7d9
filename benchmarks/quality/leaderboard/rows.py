"""The leaderboard's results as one small gzipped CSV: a line per trial, in each column its rounds with spaces between.

Shares are rounded to three decimals. Round 0, the model on the first labelled set, is the same for every method of a
seed: it is kept once, as "start".
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tailwise.experiments.experiment import Row
from tailwise.files import csv_bytes, write_whole

FILE = "results.csv.gz"
START = "start"  # stands for the strategy in round 0
LONG = "long"  # stands for the settings of random selection that goes on to many more labels
CellKey: TypeAlias = tuple[str, str]  # pool, regime
Key: TypeAlias = tuple[str, str, str, str, int]  # pool, regime, strategy, settings, seed


@dataclass(frozen=True, slots=True, order=True)
class Method:
    """A strategy with the balance and the settings that `settings` names, such as "auto near=5, cold=0".

    >>> Method("boundary", "auto near=5, cold=0").balance, Method("boundary", "auto near=5, cold=0").own_settings
    ('auto', {'near': 5, 'cold': 0})
    """

    strategy: str
    settings: str = ""

    @property
    def balance(self) -> str:
        """The balance as text; "0" where there is none."""
        first = self.settings.split(" ")[0]
        return "0" if not first or "=" in first else first

    @property
    def own_settings(self) -> dict[str, float | str]:
        """Settings of the strategy that are not its defaults."""
        words = self.settings.replace(",", " ").split()
        return {name: _value(text) for name, is_one, text in (word.partition("=") for word in words) if is_one}

    @property
    def whole(self) -> Method:
        """The same with the strategy's default settings."""
        return Method(self.strategy, "" if self.balance == "0" else self.balance)


RANDOM, RANDOM_LONG, FIRST_SET = Method("random"), Method("random", LONG), Method(START)


@dataclass(frozen=True, slots=True)
class Score:
    """One round of one trial."""

    pool: str
    regime: str  # "few", "more" or "long"
    strategy: str
    settings: str  # balance and the strategy's own settings; empty: no balance
    seed: int
    round: int
    labels: int
    balanced: float  # mean recall of plain decisions, 0 to 1
    adjusted: float  # mean recall of decisions adjusted to equal class shares
    tail: float  # mean recall of plain decisions on the rarer half of the classes
    classes: int  # classes with a label
    seconds: float  # for choosing the batch that led to this round

    @property
    def trial(self) -> Key:
        """What is the same in all rounds of a trial."""
        return self.pool, self.regime, self.strategy, self.settings, self.seed

    @property
    def method(self) -> Method:
        """What chose the batches."""
        return Method(self.strategy, self.settings)

    @property
    def cell(self) -> CellKey:
        """Where."""
        return self.pool, self.regime


COLUMNS = tuple(field.name for field in fields(Score))
BY_TRIAL, BY_ROUND = COLUMNS[:5], COLUMNS[5:]


def scores_of(rows: Iterable[Row], pool: str, regime: str, settings: str | None = None, step: int = 1) -> list[Score]:
    """The rows of one trial, from round 0; `step` is how many rounds of the study one of its cycles is."""
    found, before = [], math.nan
    for row in rows:
        text = settings_text(row.balance, row.settings) if settings is None else settings
        found.append(
            Score(
                pool, regime, row.strategy, text, row.seed, step * row.cycle, row.labelled, row.balanced_accuracy,
                row.adjusted_balanced_accuracy, tail_recall(row), sum(count > 0 for count in row.counts), before,
            )
        )  # fmt: skip
        before = row.seconds_select
    return found


def settings_text(balance: str, settings: str) -> str:
    """The settings of a `Method`; empty where it runs without balance and with its defaults."""
    return " ".join(word for word in ("" if balance == "0" else balance, settings) if word)


def _value(text: str) -> float | str:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def tail_recall(row: Row) -> float:
    """Mean recall of the rarer half of the classes by images in the pool (the larger half where C is odd)."""
    images = np.array(row.counts) + np.array(row.pool_counts)  # (C,)
    rare = np.argsort(images, kind="stable")[: len(images) - len(images) // 2]
    return float(np.nanmean(np.array(row.recalls)[rare]))


def write_scores(scores: Iterable[Score], path: Path) -> None:
    """Write a .csv or .csv.gz; the order of the lines does not depend on the order of the runs."""
    ordered = sorted(scores, key=lambda one: (one.trial, one.round))
    lines = []
    for key, trial in ((key, list(rounds)) for key, rounds in groupby(ordered, key=lambda one: one.trial)):
        lists = ([_text(getattr(one, name), 1 if name == "seconds" else 3) for one in trial] for name in BY_ROUND)
        lines.append([*key, *(" ".join(words) for words in lists)])
    content = csv_bytes((*BY_TRIAL, *BY_ROUND), lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def read_scores(path: Path) -> list[Score]:
    """What `write_scores` wrote, also with a line per round; no scores if the file does not exist."""
    if not path.is_file():
        return []
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8", newline="") as file:
        return [score for line in csv.DictReader(file) for score in _scores(line)]


def _scores(line: Mapping[str, str]) -> list[Score]:
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": lambda text: float(text or "nan")}
    read = {field.name: kinds[str(field.type)] for field in fields(Score)}
    trial = [read[name](line[name]) for name in BY_TRIAL]
    lists = ([read[name](text) for text in line[name].split(" ")] for name in BY_ROUND)
    return [Score(*trial, *values) for values in zip(*lists, strict=True)]


def _text(value: float, digits: int) -> str:
    """A number as short as it can be: .512, 0, and nothing for NaN.

    >>> _text(0.5124, 3), _text(1.0, 3), _text(0.02, 1), _text(float("nan"), 1), _text(7, 3)
    ('.512', '1', '0', '', '7')
    """
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    text = f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return text.removeprefix("0") or "0"
