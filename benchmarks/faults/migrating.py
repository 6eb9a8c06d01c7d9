"""Kills of a migration: the ledger is the old one or the new one, whole, and the old one is kept."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tailwise.campaign.database import BACKUPS, LEDGER_FILE, connect, schema_of
from tailwise.campaign.ledger import CURRENT_SCHEMA

from .sound import ledger_faults, left_over
from .stage import Stage
from .strikes import Struck

# Steps as a later version might have them: one rewrites much, one adds a table that every image has a row in.
STEPS = (
    (
        CURRENT_SCHEMA + 1,
        "ALTER TABLE image ADD COLUMN note TEXT NOT NULL DEFAULT ''; UPDATE image SET note = sha256 || path;",
    ),
    (
        CURRENT_SCHEMA + 2,
        "CREATE TABLE copy_of_event (id INTEGER PRIMARY KEY, key TEXT NOT NULL, said TEXT NOT NULL) STRICT;"
        "INSERT INTO copy_of_event SELECT id, key, annotator || ' ' || kind || ' ' || image_id FROM event;"
        "CREATE INDEX copy_by_key ON copy_of_event (key);",
    ),
)
OLD, NEW = CURRENT_SCHEMA, CURRENT_SCHEMA + 2

Rows = list[tuple[object, ...]]


@dataclass(slots=True)
class Migrating:
    """A fresh copy of an old ledger for each kill."""

    stage: Stage
    verb: str = "migrate"

    def undisturbed(self) -> float:
        """A whole migration."""
        folder = self.stage.copy("imported")
        started = time.monotonic()
        self.stage.nursery.run("migrate", folder=str(folder), steps=STEPS)
        return time.monotonic() - started

    def strike(self, moment: float) -> Struck:
        """Kill it, look, open it again, look."""
        folder = self.stage.copy("imported")
        path = folder / LEDGER_FILE
        before = rows_of(path)
        with self.stage.nursery.start("migrate", folder=str(folder), steps=STEPS) as victim:
            hit = victim.kill_at(moment)
        schema, half = schema_in(path), rows_of(path)
        problems = [] if schema in (OLD, NEW) else [f"schema {schema} is neither {OLD} nor {NEW}"]
        problems += [f"after the kill: {fault}" for fault in ledger_faults(path)]
        last = self.stage.nursery.run("migrate", folder=str(folder), steps=STEPS)
        after = rows_of(path)
        problems += [*ledger_faults(path), *kept_faults(folder / BACKUPS, before)]
        beside = [name.name for name in folder.iterdir() if name.name.startswith(".")]
        return Struck(
            acknowledged=len(before),
            lost=len({*before} - {*half}) + len({*before} - {*after}),
            doubled=max(0, len(after) - len(before)) + max(0, len(half) - len(before)),
            went_on="done" in last and schema_in(path) == NEW,
            faults=(*problems, *(f"left over: {name}" for name in beside)),
            hit=hit,
            at=f"schema {schema}",
            left=left_over(folder),
        )


def rows_of(path: Path) -> Rows:
    """All events of a ledger of any schema."""
    with closing(connect(path, "rw")) as connection:  # rolls back what a kill has left, as the next writer would
        return [tuple(row) for row in connection.execute("SELECT * FROM event")]


def schema_in(path: Path) -> int:
    """The schema of a ledger; rolled back first, as above."""
    with closing(connect(path, "rw")) as connection:
        return schema_of(connection)


def kept_faults(backups: Path, before: Rows) -> list[str]:
    """What is wrong with the copies of the old ledger; there must be one."""
    copies = sorted(backups.glob("*.sqlite"))
    found = [] if copies else ["the old ledger was not kept"]
    for copy in copies:
        found += [f"{copy.name}: {fault}" for fault in ledger_faults(copy)]
        if (schema_in(copy), rows_of(copy)) != (OLD, before):
            found.append(f"{copy.name} is not the ledger as it was")
    return found
