"""The images of a round that still want answers, by rank: a round in, a temporary table of the writer out.

A skip is no answer: an image that somebody skipped still wants one of others. The table is counted from the events once
and kept in step by triggers, so that who asks for images does not pass over all that are answered. Nothing of it is in
the file; it is rolled back with its transaction.
"""

from __future__ import annotations

import sqlite3

_WANTS = """
SELECT r.rank, r.image_id FROM round_image AS r JOIN image AS i ON i.id = r.image_id
WHERE r.round_id = (SELECT round_id FROM waiting_of) AND i.trouble IS NULL AND i.duplicate_of IS NULL
    AND r.wanted > (SELECT count(*) FROM answer AS a WHERE a.image_id = i.id AND a.kind <> 'skip')
    AND NOT EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = i.id)
"""


def _again(image: str) -> str:
    """Look at one image anew; in a trigger, where tables go without the name of their database."""
    return (
        f"BEGIN DELETE FROM waiting WHERE image_id = {image}; "
        f"INSERT INTO waiting (rank, image_id) {_WANTS} AND r.image_id = {image}; END"
    )


_TABLES = (
    "CREATE TEMP TABLE waiting_of (round_id INTEGER NOT NULL, version INTEGER NOT NULL)",
    "CREATE TEMP TABLE waiting (rank INTEGER, image_id INTEGER UNIQUE, PRIMARY KEY (rank, image_id)) WITHOUT ROWID",
    f"CREATE TEMP TRIGGER waiting_after_event AFTER INSERT ON main.event {_again('NEW.image_id')}",
    f"CREATE TEMP TRIGGER waiting_after_pick AFTER INSERT ON main.round_image {_again('NEW.image_id')}",
    f"CREATE TEMP TRIGGER waiting_after_image AFTER UPDATE OF trouble, duplicate_of ON main.image {_again('NEW.id')}",
)


def keep_waiting(connection: sqlite3.Connection, round_id: int) -> None:
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
        connection.execute(f"INSERT INTO waiting (rank, image_id) {_WANTS}")
