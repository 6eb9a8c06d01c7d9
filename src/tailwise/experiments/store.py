"""The folder of an experiment's results, and which data they belong to. Each file is whole or absent.

    FOLDER/experiment.toml                       what was asked for, every default written out
    FOLDER/pools.json                            which data the results belong to, names of its classes
    FOLDER/trials/NAME/cycle-00.json             the row of a cycle, with the checksum of its picks
    FOLDER/trials/NAME/cycle-00.npy              the picks, as indices of the training set, best first
    FOLDER/models/NAME/                          models of cycle 0, shared by trials
    FOLDER/sweeps/NAME.json                      λ sweeps of the cycle-0 model
    FOLDER/results.csv (and .parquet)            all rows, written when they are collected

A damaged file counts as absent: its cycle, and those after it, are done again. A run identifies the pool by its content
and records it; a report finds the record by the path, and reads the pool only for a path without a record.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput, TailwiseError
from ..files import csv_bytes, npy_bytes, write_whole
from ..pools import Pool, load_pool, pool_content
from ..types import IntArray
from .experiment import Experiment, PoolPart, Row, Trial

NOT_REPEATABLE = (  # all else is the same in every run
    "seconds_fit", "seconds_predict", "seconds_select", "seconds_calibrate", "seconds_test",
)  # fmt: skip
OLDER = (
    "an older version of Tailwise computed these results and did not record the data that they belong to; "
    "they are shown as results of this experiment's data"
)


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """The data of one run."""

    content: str  # identity, see `pool_content`
    pool: str  # its name in the experiment
    settings: dict[str, Any]
    path: str  # as it was given; empty where none was
    place: str  # the same, absolute
    stamp: str  # size and time of a file when it was read; empty for folders
    name: str  # as reports show it
    class_names: tuple[str, ...]  # (C,)

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or f"the pool {self.pool!r}"


@dataclass(frozen=True, slots=True)
class RecordedContent:
    """The content that an experiment's results in a folder belong to, and what to say about it."""

    content: str
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Cycle:
    """What is kept of one cycle."""

    row: Row
    picks: IntArray  # (b,) indices of the training set; empty in the last cycle

    @property
    def exhausted(self) -> bool:
        """True where nothing was left to choose from."""
        return sum(self.row.pool_counts) == 0


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of an experiment."""

    folder: Path

    def trial(self, trial: Trial) -> Path:
        """The folder of a trial."""
        return self.folder / "trials" / trial.folder

    def sweep(self, name: str) -> Path:
        """The file of a λ sweep."""
        return self.folder / "sweeps" / f"{name}.json"

    def keep_pool(self, record: PoolRecord) -> None:
        """Record the data of a run, for reports that are made without it; the latest comes last."""
        known = [one for one in self.pool_records() if (one.content, one.place) != (record.content, record.place)]
        content = {"pools": [asdict(one) for one in (*known, record)]}
        write_whole(self.folder / "pools.json", json.dumps(content, ensure_ascii=False, indent=1).encode())

    def pool_records(self) -> list[PoolRecord]:
        """The data of every run, the latest last; nothing where the file is missing or damaged."""
        try:
            content = json.loads((self.folder / "pools.json").read_bytes())
            return [
                PoolRecord(**one | {"class_names": tuple(map(str, one["class_names"]))}) for one in content["pools"]
            ]
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return []

    def other_data(self, record: PoolRecord) -> PoolRecord | None:
        """The data that was last at the same place, where its content was another."""
        before = [one for one in self.pool_records() if (one.pool, one.place) == (record.pool, record.place)]
        return before[-1] if before and before[-1].content != record.content else None

    def pool_name(self, content: str) -> str:
        """What the pool of this content was called last; empty where it is not recorded."""
        return next((one.name for one in reversed(self.pool_records()) if one.content == content), "")

    def class_names(self, content: str | None = None) -> dict[str, tuple[str, ...]]:
        """Names of the classes by pool, of this content or of all; where none are recorded a class is a number."""
        recorded = {one.name: one.class_names for one in self.pool_records() if content in (None, one.content)}
        return recorded or self._older_class_names()

    def _older_class_names(self) -> dict[str, tuple[str, ...]]:
        """From classes.json, which versions wrote that did not record the data."""
        try:
            content = json.loads((self.folder / "classes.json").read_bytes())
            return {str(pool): tuple(map(str, names)) for pool, names in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def cycles(self, trial: Trial) -> Iterator[Cycle]:
        """The cycles that are there, from the first, up to the first that is missing or damaged."""
        for number in range(trial.experiment.cycles + 1):
            found = _read_cycle(self.trial(trial) / f"cycle-{number:02d}.json")
            if found is None:
                return
            if number < trial.experiment.cycles and not len(found.picks) and not found.exhausted:
                return  # it was the last cycle of a shorter experiment: this one needs its batch
            yield found
            if found.exhausted:
                return

    def is_complete(self, trial: Trial, cycles: Sequence[Cycle] | None = None) -> bool:
        """True where nothing is left to do; `cycles` are those of the trial, if they have been read."""
        done = list(self.cycles(trial)) if cycles is None else cycles
        return bool(done) and (done[-1].exhausted or done[-1].row.cycle == trial.experiment.cycles)

    def keep(self, trial: Trial, cycle: Cycle) -> None:
        """Write a cycle: the picks first, then the row that names them."""
        folder = self.trial(trial)
        folder.mkdir(parents=True, exist_ok=True)
        picks = npy_bytes(cycle.picks)
        path = folder / f"cycle-{cycle.row.cycle:02d}.json"
        write_whole(path.with_suffix(".npy"), picks)
        content = {
            "picks_sha256": hashlib.sha256(picks).hexdigest(),
            "row": {name: _plain(value) for name, value in asdict(cycle.row).items()},
        }
        write_whole(path, json.dumps(content, allow_nan=False).encode())


# Which data the results belong to.


@functools.lru_cache(maxsize=1)
def identified_pool(part: str) -> tuple[Pool, str]:
    """The pool of a `PoolPart` in JSON, and its content; it is read once per process and run."""
    wanted = PoolPart.model_validate_json(part)
    pool = load_pool(wanted.name, Path(wanted.path) if wanted.path else None, **wanted.settings)
    return pool, pool_content(pool)


def read_pool(part: PoolPart, content: str = "") -> Pool:
    """The pool of an experiment; refused where it is not the data that the run began with."""
    pool, found = identified_pool(part.model_dump_json())
    if content and found != content:
        raise BadFile(
            f"the data at {part.path or part.name} is not the data that this run began with (its content is {found}, "
            f"expected {content}); keep the data unchanged while a run works, and the same on every machine"
        )
    return pool


def identify(part: PoolPart) -> PoolRecord:
    """Read the pool of an experiment and describe it."""
    identified_pool.cache_clear()  # the files may have changed since an earlier run of this process
    pool, content = identified_pool(part.model_dump_json())
    return PoolRecord(
        content, part.name, dict(part.settings), part.path, *_locate(part.path), pool.name, pool.train.class_names
    )


def recorded_content(experiment: Experiment, store: Store) -> RecordedContent:
    """The content of the data that an experiment's results in a folder belong to; the pool itself may be gone.

    Empty where nothing is recorded: no run has begun here, or one of a version that recorded nothing.
    """
    part = experiment.pool
    records = [one for one in store.pool_records() if (one.pool, one.settings) == (part.name, part.settings)]
    if not records:
        return RecordedContent("", OLDER if has_older_results(experiment, store) else "")
    named = [record for record in records if record.place == _locate(part.path)[0]] if part.path else records
    named = named or [record for record in records if record.path == part.path and not Path(part.path).exists()]
    if part.path and not named:
        return _by_reading(part, records, store)
    if not part.path and len({record.content for record in named}) > 1:
        raise BadInput(
            f"{store.folder} holds results of several data sets; name one with --data: "
            f"{', '.join(dict.fromkeys(record.where for record in named))}"
        )
    last = named[-1]
    changed = last.stamp and _locate(last.place)[1] not in ("", last.stamp)
    note = f"{last.where} has changed since these results were computed" if changed else ""
    return RecordedContent(last.content, note)


def has_older_results(experiment: Experiment, store: Store) -> bool:
    """Whether a version that did not record the data has left results of this experiment in a folder."""
    from .experiment import trials_of

    return any(store.trial(trial).is_dir() for trial in trials_of(experiment))


def adopt_older(experiment: Experiment, store: Store, content: str) -> None:
    """Take results of an older version as results of this data; refused where they show that they are not."""
    from .experiment import trials_of
    from .trial_run import open_setup

    for trial in trials_of(experiment):
        here, now = store.trial(trial), replace(trial, content=content)
        first = next(store.cycles(trial), None)
        if first is not None:
            setup = open_setup(now)
            train = setup.pool.train
            counts = train.take(setup.split.labelled).counts().tolist()
            left = train.take(setup.left(setup.split.labelled)).counts().tolist()
            if (list(first.row.counts), list(first.row.pool_counts)) != (counts, left):
                raise BadFile(
                    f"{here} cannot be adopted: its classes have {list(first.row.counts)} initial labels, but "
                    f"{counts} in this data; it was computed from other data. Give another --out"
                )
        if here.is_dir() and not store.trial(now).exists():
            here.rename(store.trial(now))
        if store.sweep(trial.folder).is_file():
            store.sweep(trial.folder).replace(store.sweep(now.folder))


def _by_reading(part: PoolPart, records: list[PoolRecord], store: Store) -> RecordedContent:
    """The content of data at a path that no record names: the pool is read, if it is there."""
    known = ", ".join(dict.fromkeys(f"{record.where} (content {record.content})" for record in records))
    try:
        content = identify(part).content
    except TailwiseError as error:
        raise BadInput(
            f"{store.folder} has no results for {part.path}, but for {known}; name that as --data"
        ) from error
    if content not in {record.content for record in records}:
        raise BadInput(f"{store.folder} has no results for {part.path} (content {content}), but for {known}")
    return RecordedContent(content)


def _locate(path: str) -> tuple[str, str]:
    """A path made absolute, and size and time of the file there; the latter is empty for a folder and for nothing."""
    if not path:
        return "", ""
    file = Path(path).expanduser()
    status = file.stat() if file.is_file() else None
    return str(file.resolve()), f"{status.st_size} {status.st_mtime_ns}" if status else ""


# Rows as tables, cycles as files.


def write_rows(rows: list[Row], path: Path) -> None:
    """All rows as .csv, or as .parquet; lists are JSON in .csv."""
    names = [field.name for field in fields(Row)]
    if path.suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        buffer = io.BytesIO()
        parquet.write_table(pyarrow.Table.from_pylist([asdict(row) for row in rows]), buffer)
        write_whole(path, buffer.getvalue())
        return
    cells = ([_cell(getattr(row, name)) for name in names] for row in rows)
    write_whole(path, csv_bytes(names, cells))


def read_rows(path: Path) -> list[Row]:
    """Rows from a .csv that `write_rows` wrote."""
    import csv

    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
        return [Row(**{name: _unplain(_uncell(name, text)) for name, text in line.items()}) for line in lines]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadFile(f"cannot read results from {path}: {error}") from error


def _read_cycle(path: Path) -> Cycle | None:
    """A cycle; None where it is missing, damaged, or written by a version with other columns."""
    try:
        content = json.loads(path.read_bytes())
        picks = path.with_suffix(".npy").read_bytes()
        if hashlib.sha256(picks).hexdigest() != content["picks_sha256"]:
            return None
        row = Row(**{name: _unplain(value) for name, value in content["row"].items()})
        return Cycle(row, np.load(io.BytesIO(picks), allow_pickle=False))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _plain(value: object) -> object:
    """JSON has no NaN, no infinity and no tuples."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unplain(value: object) -> Any:  # noqa: ANN401 - whatever the column holds
    if isinstance(value, list):
        return tuple(_unplain(one) for one in value)
    return math.nan if value is None else value


def _cell(value: object) -> object:
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, list) else "" if plain is None else plain


def _uncell(name: str, text: str) -> object:
    kind = {field.name: str(field.type) for field in fields(Row)}[name]
    if kind.startswith("tuple"):
        return json.loads(text)
    if kind == "str":
        return text
    return int(text) if kind == "int" else float(text) if text else None
