"""Which data the results of a folder belong to: identified when a run begins, recorded, and found again by a report.

A run reads the pool and identifies its content. A report looks the content up in the folder's records: by the path that
was given at the time, and only for a path that no record names is the pool read, if it is there.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadFile, BadInput, TailwiseError
from ..pool import Pool, load_pool, pool_content
from .config import Experiment, PoolPart

if TYPE_CHECKING:
    from .store import Store

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

    def is_of(self, part: PoolPart) -> bool:
        """Whether it may be meant by the pool of an experiment, whatever its path."""
        return self.pool == part.name and self.settings == part.settings

    @property
    def where(self) -> str:
        """For messages."""
        return self.path or f"the pool {self.pool!r}"


@dataclass(frozen=True, slots=True)
class Found:
    """The content that an experiment's results in a folder belong to, and what to say about it."""

    content: str
    note: str = ""


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
        content, part.name, dict(part.settings), part.path, _place(part.path), _stamp(part.path), pool.name,
        pool.train.class_names,
    )  # fmt: skip


def recorded_content(experiment: Experiment, store: Store) -> Found:
    """The content of the data that an experiment's results in a folder belong to; the pool itself may be gone.

    Empty where nothing is recorded: no run has begun here, or one of a version that recorded nothing.
    """
    part = experiment.pool
    records = [record for record in store.pool_records() if record.is_of(part)]
    if not records:
        return Found("", OLDER if has_older_results(experiment, store) else "")
    named = [record for record in records if record.place == _place(part.path)] if part.path else records
    named = named or [record for record in records if record.path == part.path and not Path(part.path).exists()]
    if part.path and not named:
        return _by_reading(part, records, store)
    if not part.path and len({record.content for record in named}) > 1:
        raise BadInput(
            f"{store.folder} holds results of several data sets; name one with --data: "
            f"{', '.join(dict.fromkeys(record.where for record in named))}"
        )
    last = named[-1]
    changed = last.stamp and _stamp(last.place) not in ("", last.stamp)
    return Found(last.content, f"{last.where} has changed since these results were computed" if changed else "")


def has_older_results(experiment: Experiment, store: Store) -> bool:
    """Whether a version that did not record the data has left results of this experiment in a folder."""
    from .trials import trials_of

    return any(store.trial(trial).is_dir() for trial in trials_of(experiment))


def adopt_older(experiment: Experiment, store: Store, content: str) -> None:
    """Take results of an older version as results of this data; refused where they show that they are not."""
    from .trial_run import open_world
    from .trials import trials_of

    for trial in trials_of(experiment):
        here, now = store.trial(trial), replace(trial, content=content)
        first = next(store.cycles(trial), None)
        if first is not None:
            world = open_world(now)
            counts = world.train.take(world.split.labelled).counts().tolist()
            left = world.train.take(world.left(world.split.labelled)).counts().tolist()
            if (list(first.row.counts), list(first.row.pool_counts)) != (counts, left):
                raise BadFile(
                    f"{here} cannot be adopted: its classes have {list(first.row.counts)} initial labels, but "
                    f"{counts} in this data; it was computed from other data. Give another --out"
                )
        if here.is_dir() and not store.trial(now).exists():
            here.rename(store.trial(now))
        if store.sweep(trial.folder).is_file():
            store.sweep(trial.folder).replace(store.sweep(now.folder))


def _by_reading(part: PoolPart, records: list[PoolRecord], store: Store) -> Found:
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
    return Found(content)


def _place(path: str) -> str:
    return str(Path(path).expanduser().resolve()) if path else ""


def _stamp(path: str) -> str:
    """Size and time of a file; empty for a folder, and for what is not there."""
    file = Path(path).expanduser() if path else None
    if file is None or not file.is_file():
        return ""
    status = file.stat()
    return f"{status.st_size} {status.st_mtime_ns}"
