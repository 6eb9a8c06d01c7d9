"""Whether a campaign is whole: a folder in, the faults that are found out, none where all is well.

Asked of SQLite itself and of the doctor, with the campaign closed; and what a kill has left lying about.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.service import Campaign

Event = tuple[str, str, str, int | None, str | None]
"""Image key, annotator, kind, class id and the key of what it undoes."""

SEVERE = ("error", "warning")  # what only is good to know is no fault
_EVENTS = """
SELECT e.key, i.key, e.annotator, e.kind, e.class_id, u.key
FROM event AS e JOIN image AS i ON i.id = e.image_id LEFT JOIN event AS u ON u.id = e.undoes ORDER BY e.id
"""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a ledger holds beside what it should hold."""

    lost: tuple[str, ...]  # keys that were acknowledged, and are not there as they were said
    doubled: tuple[str, ...]  # keys that are there twice, or that nobody has used


def compare(events: Iterable[tuple[str, Event]], sent: Mapping[str, Event], acknowledged: Iterable[str]) -> Compared:
    """The events of a ledger beside what was sent and what was acknowledged.

    >>> a, b = ("image1", "ann", "label", 1, None), ("image2", "ann", "label", 2, None)
    >>> compare([("key-1", a), ("key-3", b)], {"key-1": a, "key-2": b}, ["key-1", "key-2"])
    Compared(lost=('key-2',), doubled=('key-3',))
    """
    listed = list(events)
    there = dict(listed)
    lost = tuple(key for key in acknowledged if there.get(key) != sent[key])
    often = Counter(key for key, _ in listed)
    return Compared(lost, tuple(key for key, count in often.items() if count > 1 or key not in sent))


def events(folder: Path) -> list[tuple[str, Event]]:
    """Every event of a ledger with its key, in order."""
    with Ledger.open(folder, read_only=True) as ledger:
        return [(row[0], tuple(row[1:])) for row in ledger.read(_EVENTS)]


def faults(folder: Path) -> list[str]:
    """What is wrong with a campaign that nobody has open."""
    with Campaign.open(folder, wait=0) as campaign:  # nobody may hold it; what a crash left is rolled back here
        found = [f"doctor: {one.what}" for one in campaign.doctor() if one.severity in SEVERE]
    return [*ledger_faults(folder / LEDGER_FILE), *found, *(f"left over: {name}" for name in harmful(folder))]


def ledger_faults(path: Path) -> list[str]:
    """What SQLite finds wrong with a file, asked on a plain connection."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
        damage = [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        loose = [f"{row[0]} has a row that points nowhere" for row in connection.execute("PRAGMA foreign_key_check")]
    return [*damage, *loose]


def harmful(folder: Path) -> list[str]:
    """What a kill left that would be in the way: half a ledger, a journal or a log that waits, a job's place."""
    found = [path.name for path in folder.iterdir() if path.name.startswith((".job-", f".{LEDGER_FILE}"))]
    beside = [folder / f"{LEDGER_FILE}{end}" for end in ("-journal", "-wal")]
    return [*found, *(path.name for path in beside if path.exists() and path.stat().st_size)]


def left_over(folder: Path) -> tuple[int, int]:
    """How many files that no longer serve anything lie in the caches and backups, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob(".*") if path.is_file()]
    shards = folder.glob("features/*/*.npy")
    sizes += [
        path.stat().st_size for path in shards
        if not path.name.endswith(".keys.npy") and not path.with_name(f"{path.stem}.keys.npy").exists()
    ]  # fmt: skip
    return len(sizes), sum(sizes)
