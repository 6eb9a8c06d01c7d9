"""Leases: which annotator is asked about which image of a round now, so that two people never take the same place.

A lease ends by itself; its time is corrected when the computer's clock is set. The images that still want answers are
in a temporary table of the writer, filled once and kept up to date by triggers, so that leasing does not read all
answered images. A skip does not count as an answer.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadInput
from .classes import clean_annotator
from .ledger import Ledger, now
from .rounds import COUNTS_IN_ROUND

SECONDS = 600.0
MOST_SECONDS = 3600.0
MOST_IMAGES = 1000
SECOND = 1_000_000  # microseconds
CLOCK = "lease_clock"  # where the ledger keeps how far the clock is ahead of the monotonic one
JUMP = SECOND  # clocks that are kept in step differ by less
PROCESS = uuid.uuid4().hex  # the monotonic clock of another process, or before a restart, cannot be compared


@dataclass(frozen=True, slots=True)
class Leased:
    """An image that one person is asked about."""

    image: int
    key: str
    width: int
    height: int
    rank: int
    predicted: int | None  # class id
    confidence: float | None
    until: int  # microseconds since 1970


def lease(
    ledger: Ledger, round_id: int, annotator: str, how_many: int, seconds: float = SECONDS, *,
    predicted: int | None = None, first: str | None = None, at: int | None = None,
) -> list[Leased]:  # fmt: skip
    """Up to `how_many` images of a round for one person: those that it holds first, then free ones by rank.

    With `predicted` only images that the model takes for this class, the most confident first; the image with the key
    `first` comes before the others. An image is free while fewer people than it wants have answered it or hold it; who
    skips it leaves its place to others. Nobody is asked twice in a round. Leases are renewed.
    """
    name = clean_annotator(annotator)
    _check(how_many, seconds)
    with ledger.writing() as connection:
        moment = lease_time(connection) if at is None else at
        until = moment + int(seconds * SECOND)
        _drop_ended(connection, moment)
        refresh_waiting(connection, round_id)
        order = "w.rank" if predicted is None else "r.confidence DESC, w.rank"
        order = order if first is None else f"i.key <> :first, {order}"
        asked = {"round": round_id, "me": name, "predicted": predicted, "first": first}
        rows: list[sqlite3.Row] = []
        for whose in (_HELD, _OPEN):  # first those that are held already
            if len(rows) < how_many:
                query = f"{whose} {_FREE} ORDER BY {order} LIMIT :how_many"
                rows += connection.execute(query, {**asked, "how_many": how_many - len(rows)}).fetchall()
        connection.executemany(
            "INSERT OR REPLACE INTO lease (image_id, annotator, until) VALUES (?, ?, ?)",
            [(row["id"], name, until) for row in rows],
        )
    return [_leased(row, until) for row in rows]


def free_by_class(ledger: Ledger, round_id: int, annotator: str) -> dict[int, int]:
    """How many images of a round one person could be asked about, by the class that the model takes them for."""
    name = clean_annotator(annotator)
    with ledger.writing() as connection:
        _drop_ended(connection, lease_time(connection))
        refresh_waiting(connection, round_id)
        rows = connection.execute(
            f"SELECT r.predicted, count(*) FROM waiting AS w {_PICKED} WHERE r.predicted IS NOT NULL {_FREE} "
            "GROUP BY r.predicted",
            {"round": round_id, "me": name, "predicted": None},
        )
        return {row[0]: row[1] for row in rows}


def renew(
    ledger: Ledger, annotator: str, images: Sequence[int], seconds: float = SECONDS, *, at: int | None = None
) -> list[int]:
    """Hold images longer; gives those that were still held."""
    name = clean_annotator(annotator)
    _check(1, seconds)
    with ledger.writing() as connection:
        moment = lease_time(connection) if at is None else at
        _drop_ended(connection, moment)
        until = moment + int(seconds * SECOND)
        return [
            image for image in images
            if connection.execute(
                "UPDATE lease SET until = ? WHERE image_id = ? AND annotator = ?", (until, image, name)
            ).rowcount
        ]  # fmt: skip


def release(ledger: Ledger, annotator: str, images: Sequence[int] | None = None) -> int:
    """Give images back, all that one holds where none are named; gives how many were held."""
    name = clean_annotator(annotator)
    with ledger.writing() as connection:
        if images is None:
            return connection.execute("DELETE FROM lease WHERE annotator = ?", (name,)).rowcount
        pairs = [(image, name) for image in images]
        return connection.executemany("DELETE FROM lease WHERE image_id = ? AND annotator = ?", pairs).rowcount


def lease_time(connection: sqlite3.Connection) -> int:
    """Now, in microseconds since 1970, after moving all leases by as much as the clock was set since the last call.

    How far the clock is ahead of the monotonic one is kept in the ledger, and so is taken back with its transaction.
    """
    moment = now()
    ahead = moment - time.monotonic_ns() // 1000
    row = connection.execute("SELECT value FROM meta WHERE key = ?", (CLOCK,)).fetchone()
    process, _, before = row["value"].partition(" ") if row else ("", "", "")
    jump = ahead - int(before) if process == PROCESS else 0
    if process != PROCESS or abs(jump) > JUMP:
        connection.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (CLOCK, f"{PROCESS} {ahead}"))
        connection.execute("UPDATE lease SET until = until + ?", (jump,))
    return moment


# CROSS JOIN keeps the order of the tables: from the few rows to their companions, whatever the planner guesses.
_COLUMNS = "SELECT i.id, i.key, i.width, i.height, w.rank, r.predicted, r.confidence"
_PICKED = """
CROSS JOIN round_image AS r ON r.round_id = :round AND r.image_id = w.image_id
CROSS JOIN round AS o ON o.id = r.round_id
CROSS JOIN image AS i ON i.id = w.image_id
"""
_HELD = (
    f"{_COLUMNS} FROM lease AS m CROSS JOIN waiting AS w ON w.image_id = m.image_id {_PICKED} WHERE m.annotator = :me"
)
_OPEN = f"""
{_COLUMNS} FROM waiting AS w {_PICKED}
WHERE NOT EXISTS (SELECT 1 FROM lease AS m WHERE m.image_id = w.image_id AND m.annotator = :me)
"""

# Of those that want answers, free for :me: :me has not answered, and fewer people than wanted have answered or hold it.
_FREE = f"""
    AND (:predicted IS NULL OR r.predicted = :predicted)
    AND NOT EXISTS (
        SELECT 1 FROM answer AS a WHERE a.image_id = w.image_id AND a.annotator = :me AND {COUNTS_IN_ROUND}
    )
    AND r.wanted > (
        SELECT count(*) FROM (
            SELECT a.annotator FROM answer AS a WHERE a.image_id = w.image_id AND a.kind <> 'skip'
            UNION SELECT l.annotator FROM lease AS l WHERE l.image_id = w.image_id AND l.annotator <> :me
        )
    )
"""


def _drop_ended(connection: sqlite3.Connection, moment: int) -> None:
    """Leases that have ended, and those that end later than any lease can: the clock was put back between two runs."""
    latest = moment + int(MOST_SECONDS * SECOND)
    connection.execute("DELETE FROM lease WHERE until <= ? OR until > ?", (moment, latest))


def _check(how_many: int, seconds: float) -> None:
    if not 1 <= how_many <= MOST_IMAGES:
        raise BadInput(f"asked for {how_many} images; ask for 1 to {MOST_IMAGES} at once")
    if not 0 < seconds <= MOST_SECONDS:
        raise BadInput(f"asked to hold images for {seconds:g} seconds; a lease lasts up to {MOST_SECONDS:g}")


def _leased(row: sqlite3.Row, until: int) -> Leased:
    return Leased(
        row["id"], row["key"], row["width"], row["height"], row["rank"], row["predicted"], row["confidence"], until
    )  # fmt: skip


# -- the table of images that still want answers -----------------------------------------------------------------------

_STILL_WANTED = """
SELECT r.rank, r.image_id FROM round_image AS r JOIN image AS i ON i.id = r.image_id
WHERE r.round_id = (SELECT round_id FROM waiting_of) AND i.trouble IS NULL AND i.duplicate_of IS NULL
    AND r.wanted > (SELECT count(*) FROM answer AS a WHERE a.image_id = i.id AND a.kind <> 'skip')
    AND NOT EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = i.id)
"""


def _recheck(image: str) -> str:
    """Check one image again; in a trigger, where tables go without the name of their database."""
    return (
        f"BEGIN DELETE FROM waiting WHERE image_id = {image}; "
        f"INSERT INTO waiting (rank, image_id) {_STILL_WANTED} AND r.image_id = {image}; END"
    )


_TABLES = (
    "CREATE TEMP TABLE waiting_of (round_id INTEGER NOT NULL, version INTEGER NOT NULL)",
    "CREATE TEMP TABLE waiting (rank INTEGER, image_id INTEGER UNIQUE, PRIMARY KEY (rank, image_id)) WITHOUT ROWID",
    f"CREATE TEMP TRIGGER waiting_after_event AFTER INSERT ON main.event {_recheck('NEW.image_id')}",
    f"CREATE TEMP TRIGGER waiting_after_pick AFTER INSERT ON main.round_image {_recheck('NEW.image_id')}",
    f"CREATE TEMP TRIGGER waiting_after_image AFTER UPDATE OF trouble, duplicate_of ON main.image {_recheck('NEW.id')}",
)


def refresh_waiting(connection: sqlite3.Connection, round_id: int) -> None:
    """Have the table `waiting (rank, image_id)` of this connection hold a round, within its transaction."""
    if not connection.execute("SELECT 1 FROM sqlite_temp_schema WHERE name = 'waiting'").fetchone():
        for statement in _TABLES:
            connection.execute(statement)
    version = connection.execute("PRAGMA main.data_version").fetchone()[0]  # another one where another wrote
    kept = connection.execute("SELECT round_id, version FROM waiting_of").fetchone()
    if kept is None or tuple(kept) != (round_id, version):
        connection.execute("DELETE FROM waiting_of")
        connection.execute("INSERT INTO waiting_of VALUES (?, ?)", (round_id, version))
        connection.execute("DELETE FROM waiting")
        connection.execute(f"INSERT INTO waiting (rank, image_id) {_STILL_WANTED}")
