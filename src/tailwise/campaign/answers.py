"""Answers of annotators, recorded as events in the ledger: record, settle, undo, and the labels that follow.

An event is added once per key, even if a request is repeated, and never changed; an undo is an event, too.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import BadInput
from ..inputs import shown
from ..types import IntArray
from .classes import clean_annotator
from .leases import SECOND, SECONDS, lease_time
from .ledger import Ledger, now

ANSWERS = ("label", "other", "skip")
DECISIONS = ("settle-label", "settle-other")
SOURCES = ("page", "api", "import", "cli")
FOUND_BY = ("gallery", "hunt", "review", "duplicates", "map")
KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
LATEST = 1 << 62  # microseconds; far beyond any clock


@dataclass(frozen=True, slots=True)
class Answer:
    """What one person says of one image."""

    key: str  # made by the sender; the same key again is the same answer
    image: int  # its id
    annotator: str
    kind: str  # "label", "other", "skip", "settle-label" or "settle-other"
    class_id: int | None = None
    at: int | None = None  # microseconds since 1970 by the sender's clock; None: now
    round_id: int | None = None
    model_version: str | None = None
    source: str = "api"
    seconds: float | None = None  # that the person took
    found_by: str | None = None  # where its image was found, one of FOUND_BY; None: in its round, or by name
    batch: str | None = None  # shared by changes of many images at once


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer that is on the disk."""

    event_id: int
    fresh: bool  # False where the key had been recorded before


@dataclass(frozen=True, slots=True)
class Refused:
    """An answer that cannot be recorded."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What an undo did: the answer that it took back, or, for an undo of an undo, the answer that it said again."""

    event_id: int  # of the undo, or of the answer that is said again
    image: int
    kind: str
    class_id: int | None
    fresh: bool
    restored: bool = False


@dataclass(frozen=True, slots=True)
class StandingAnswer:
    """A standing answer as it was given."""

    event_id: int
    key: str
    image: int
    annotator: str
    kind: str
    class_id: int | None
    at: int
    round_id: int | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """An image that people see differently, and that nobody has settled."""

    image: int
    answers: tuple[StandingAnswer, ...]  # "label" and "other", by annotator


def record(ledger: Ledger, answers: Sequence[Answer]) -> list[Recorded]:
    """Record all answers in one transaction, or none where one of them cannot be."""
    with ledger.writing():
        done = record_each(ledger, answers)
        for one in done:
            if isinstance(one, Refused):
                raise BadInput(one.reason)
    return [one for one in done if isinstance(one, Recorded)]


def record_each(ledger: Ledger, answers: Sequence[Answer]) -> list[Recorded | Refused]:
    """Record the answers in one transaction; one that cannot be recorded does not hold up the others."""
    with ledger.writing() as connection:
        return [_record_or_refuse(connection, answer) for answer in answers]


def settle(
    ledger: Ledger, *, key: str, image: int, annotator: str, class_id: int | None, at: int | None = None,
    source: str = "api", found_by: str | None = None,
) -> Recorded:  # fmt: skip
    """Decide an image whose answers differ; without a class the image is of another kind. The last decision counts."""
    kind = "settle-other" if class_id is None else "settle-label"
    return record(ledger, [Answer(key, image, annotator, kind, class_id, at, source=source, found_by=found_by)])[0]


def undo(
    ledger: Ledger, key: str, annotator: str, *, undoes_key: str | None = None, round_id: int | None = None,
    at: int | None = None, source: str = "api",
) -> Undone | None:  # fmt: skip
    """Take back one's answer with that key, or one's last standing one (of a round); None without such an answer.

    Undoing an undo says the answer again, as one's latest. One can undo what one has said oneself.
    """
    name = clean_annotator(annotator)
    _check_key(key)
    with ledger.writing() as connection:
        before = _find(connection, key)
        if before is not None:
            return _undone_before(connection, before, name, undoes_key)
        target = _target(connection, name, undoes_key, round_id)
        if target is None:
            return None
        return _take_back(connection, target, key, _moment(at), source)


def take_back_batch(ledger: Ledger, batch: str, annotator: str, key: str, *, source: str = "api") -> list[int]:
    """Take back all answers of one's batch that stand, in one transaction; gives the ids of their images.

    The same key again takes nothing back.
    """
    name = clean_annotator(annotator)
    with ledger.writing() as connection:
        rows = connection.execute("SELECT * FROM event WHERE batch = ? AND kind <> 'undo'", (batch,)).fetchall()
        if not rows:
            raise BadInput(f"asked to undo the change {batch[:80]!r}, but no answer belongs to it")
        if any(row["annotator"] != name for row in rows):
            raise BadInput(f"{name} asked to undo a change of {rows[0]['annotator']}; people undo their own answers")
        left = connection.execute("SELECT * FROM standing WHERE batch = ? ORDER BY id", (batch,)).fetchall()
        at = now()
        for row in left:
            undo_key = f"{key}-{row['id']}"
            _check_key(undo_key)
            again = Answer(
                undo_key, row["image_id"], name, "undo", None, at, row["round_id"], row["model_version"], source,
                None, row["found_by"],
            )  # fmt: skip
            _insert(connection, again, name, at, row["id"])
    return [row["image_id"] for row in left]


def hunted(ledger: Ledger) -> set[int]:
    """Ids of images whose standing answers were all given while hunting for a class: no sample of any pool."""
    rows = ledger.read(
        "SELECT image_id FROM standing GROUP BY image_id HAVING sum(found_by IS NOT 'hunt') = 0 AND "
        "sum(kind <> 'skip') > 0"
    )
    return {row[0] for row in rows}


def labels(ledger: Ledger) -> tuple[IntArray, IntArray]:
    """The decided images (L,) and their classes (L,), both as ids, ascending by image.

    Those in quarantine are among them: what was said of the bytes that were there stays true.
    """
    rows = ledger.read("SELECT image_id, class_id FROM current_label ORDER BY image_id")
    pairs = np.array([(row[0], row[1]) for row in rows], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def counts(ledger: Ledger) -> dict[int, int]:
    """Decided images per class id; a class without any counts 0, retired ones are among them."""
    rows = ledger.read(
        "SELECT c.id, count(l.image_id) FROM class AS c LEFT JOIN current_label AS l ON l.class_id = c.id "
        "GROUP BY c.id ORDER BY c.position, c.id"
    )
    return {row[0]: row[1] for row in rows}


def conflicts(ledger: Ledger) -> list[Conflict]:
    """The images that people see differently and that nobody has settled, ascending."""
    rows = ledger.read(
        "SELECT a.* FROM conflict AS c JOIN answer AS a ON a.image_id = c.image_id WHERE a.kind <> 'skip' "
        "ORDER BY a.image_id, a.annotator"
    )
    by_image: dict[int, list[StandingAnswer]] = {}
    for row in rows:
        by_image.setdefault(row["image_id"], []).append(_given(row))
    return [Conflict(image, tuple(given)) for image, given in by_image.items()]


def history(
    ledger: Ledger, annotator: str, *, round_id: int | None = None, limit: int = 50, changed: bool = False,
    before: int | None = None,
) -> list[StandingAnswer]:  # fmt: skip
    """The standing answers of one person, latest first; with `before` those from before an event.

    With `changed` also those that the person gave otherwise since: they stand again when the later ones are undone.
    """
    table = f"(SELECT id AS event_id, * FROM standing WHERE kind IN {ANSWERS})" if changed else "answer"
    rows = ledger.read(
        f"SELECT * FROM {table} WHERE annotator = :who AND (:round IS NULL OR round_id = :round) "
        "AND (:before IS NULL OR event_id < :before) ORDER BY event_id DESC LIMIT :limit",
        {"who": clean_annotator(annotator), "round": round_id, "before": before, "limit": limit},
    )
    return [_given(row) for row in rows]


def settlements(ledger: Ledger, annotator: str, *, limit: int = 50) -> list[StandingAnswer]:
    """The standing decisions of one person about images whose answers differed, latest first."""
    rows = ledger.read(
        "SELECT s.*, NULL AS round_id FROM settled AS s WHERE s.annotator = ? ORDER BY s.event_id DESC LIMIT ?",
        (clean_annotator(annotator), limit),
    )
    return [_given(row) for row in rows]


def is_answered(ledger: Ledger, image: int) -> bool:
    """Whether anybody has said, or decided, what an image is; a skip says nothing."""
    rows = ledger.read(
        "SELECT 1 FROM answer WHERE image_id = :image AND kind <> 'skip' "
        "UNION ALL SELECT 1 FROM settled WHERE image_id = :image LIMIT 1",
        {"image": image},
    )
    return bool(rows)


def annotators(ledger: Ledger) -> dict[str, int]:
    """Who has answered, with the number of images that each has a standing answer to."""
    rows = ledger.read("SELECT annotator, count(*) FROM answer GROUP BY annotator ORDER BY annotator")
    return {row[0]: row[1] for row in rows}


def _record_or_refuse(connection: sqlite3.Connection, answer: Answer) -> Recorded | Refused:
    try:
        return _record_one(connection, answer)
    except BadInput as error:
        return Refused(answer.key, str(error))


def _record_one(connection: sqlite3.Connection, answer: Answer) -> Recorded:
    annotator = clean_annotator(answer.annotator)
    _check_answer(answer)
    at = _moment(answer.at)
    try:
        number = _insert(connection, answer, annotator, at)
    except (sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):  # the ledger sees to it that all is sound
        before = _find(connection, answer.key)
        if before is None:
            _check_known(connection, answer)
            raise
        _check_same(before, answer, annotator)
        return Recorded(before["id"], fresh=False)
    if answer.kind in ANSWERS:
        connection.execute("DELETE FROM lease WHERE image_id = ? AND annotator = ?", (answer.image, annotator))
    return Recorded(number, fresh=True)


def _insert(
    connection: sqlite3.Connection, answer: Answer, annotator: str, at: int, undoes: int | None = None
) -> int:  # fmt: skip
    cursor = connection.execute(
        "INSERT INTO event (key, image_id, annotator, kind, class_id, undoes, at, round_id, model_version, source, "
        "seconds, found_by, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            answer.key, answer.image, annotator, answer.kind, answer.class_id, undoes, at, answer.round_id,
            answer.model_version, answer.source, answer.seconds, answer.found_by, answer.batch,
        ),
    )  # fmt: skip
    return int(cursor.lastrowid or 0)


def _check_key(key: str) -> None:
    given: object = key
    if not isinstance(given, str) or not KEY.fullmatch(given):
        raise BadInput(f"the key {shown(given)} is not valid; make it of 8 to 64 letters, digits, - and _")


def _check_answer(answer: Answer) -> None:
    _check_key(answer.key)
    if answer.kind not in (*ANSWERS, *DECISIONS):
        raise BadInput(f"the answer {answer.key} is of the kind {answer.kind!r}; take one of {', '.join(ANSWERS)}")
    if answer.source not in SOURCES:
        raise BadInput(f"the answer {answer.key} has the source {answer.source!r}; take one of {', '.join(SOURCES)}")
    if answer.found_by not in (None, *FOUND_BY):
        raise BadInput(f"the answer {answer.key} was found by {answer.found_by!r}; take one of {', '.join(FOUND_BY)}")
    if answer.kind in ("label", "settle-label") and answer.class_id is None:
        raise BadInput(f"the answer {answer.key} names no class; give one, or answer 'other' or 'skip'")
    if answer.kind not in ("label", "settle-label") and answer.class_id is not None:
        raise BadInput(f"the answer {answer.key} is of the kind {answer.kind!r} and names a class; leave it out")
    if answer.seconds is not None and not (math.isfinite(answer.seconds) and answer.seconds >= 0):
        raise BadInput(f"the answer {answer.key} took {answer.seconds} seconds; give a number ≥ 0, or none")


def _check_known(connection: sqlite3.Connection, answer: Answer) -> None:
    """That all it names is there; a retired class is, since the answer may have been under way for long."""
    for table, column, value in (
        ("image", "id", answer.image),
        ("class", "id", answer.class_id),
        ("round", "id", answer.round_id),
        ("model", "version", answer.model_version),
    ):
        if value is not None and not _is_there(connection, f"SELECT 1 FROM {table} WHERE {column} = ?", value):
            raise BadInput(f"the answer {answer.key} names the {table} {value!r}, which is not in this campaign")


def _is_there(connection: sqlite3.Connection, sql: str, value: int | str) -> bool:
    try:
        return connection.execute(sql, (value,)).fetchone() is not None
    except (OverflowError, UnicodeEncodeError):  # a number or a text that no row can hold
        return False


def _check_same(before: sqlite3.Row, answer: Answer, annotator: str) -> None:
    said = (before["image_id"], before["annotator"], before["kind"], before["class_id"])
    if said != (answer.image, annotator, answer.kind, answer.class_id):
        raise BadInput(f"the key {answer.key} was used for another answer; make a new key for each answer")


def _moment(at: int | None) -> int:
    if at is None:
        return now()
    if not 0 <= at < LATEST:
        raise BadInput(f"the time {at} is invalid; give microseconds since 1970, or nothing")
    return at


def _find(connection: sqlite3.Connection, key: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = connection.execute("SELECT * FROM event WHERE key = ?", (key,)).fetchone()
    return row


def _undone_before(
    connection: sqlite3.Connection, before: sqlite3.Row, annotator: str, undoes_key: str | None
) -> Undone:  # fmt: skip
    """The same undo again: say what it did."""
    target = connection.execute("SELECT * FROM event WHERE id = ?", (before["undoes"],)).fetchone()
    if target is None or before["annotator"] != annotator or undoes_key not in (None, target["key"]):
        raise BadInput(f"the key {before['key']} was used for another answer; make a new key for each undo")
    if before["kind"] == "undo":
        return Undone(before["id"], target["image_id"], target["kind"], target["class_id"], fresh=False)
    return Undone(
        before["id"], before["image_id"], before["kind"], before["class_id"], fresh=False, restored=True
    )  # fmt: skip


def _target(
    connection: sqlite3.Connection, annotator: str, undoes_key: str | None, round_id: int | None
) -> sqlite3.Row | None:
    """The event to undo: the one that is named, which must be one's own and standing, or one's last answer."""
    if undoes_key is None:
        last: sqlite3.Row | None = connection.execute(
            "SELECT * FROM standing WHERE id = (SELECT max(event_id) FROM answer "
            "WHERE annotator = ? AND (? IS NULL OR round_id = ?))",
            (annotator, round_id, round_id),
        ).fetchone()
        return last
    target = _find(connection, undoes_key)
    if target is None:
        raise BadInput(f"asked to undo {undoes_key[:80]!r}, but no answer has that key")
    if target["annotator"] != annotator:
        raise BadInput(f"{annotator} asked to undo an answer of {target['annotator']}; people undo their own answers")
    gone = connection.execute("SELECT key FROM event WHERE undoes = ?", (target["id"],)).fetchone()
    if gone is not None:
        raise BadInput(f"{undoes_key} is undone already, by {gone['key']}")
    return target


def _take_back(connection: sqlite3.Connection, target: sqlite3.Row, key: str, at: int, source: str) -> Undone:
    restored = target["kind"] == "undo"
    said = target
    if restored:
        said = connection.execute("SELECT * FROM event WHERE id = ?", (target["undoes"],)).fetchone()
    kind, class_id = (said["kind"], said["class_id"]) if restored else ("undo", None)
    again = Answer(
        key, said["image_id"], said["annotator"], kind, class_id, at, said["round_id"], said["model_version"], source
    )  # fmt: skip
    number = _insert(connection, again, said["annotator"], at, target["id"])
    _keep_place(connection, said, answered=restored)
    return Undone(number, said["image_id"], said["kind"], said["class_id"], fresh=True, restored=restored)


def _keep_place(connection: sqlite3.Connection, said: sqlite3.Row, *, answered: bool) -> None:
    """Who takes an answer back is about to give another: nobody else is asked in between."""
    if said["kind"] not in ANSWERS:
        return
    if answered:
        who = (said["image_id"], said["annotator"])
        connection.execute("DELETE FROM lease WHERE image_id = ? AND annotator = ?", who)
        return
    connection.execute(
        "INSERT OR REPLACE INTO lease (image_id, annotator, until) VALUES (?, ?, ?)",
        (said["image_id"], said["annotator"], lease_time(connection) + int(SECONDS * SECOND)),
    )


def _given(row: sqlite3.Row) -> StandingAnswer:
    return StandingAnswer(
        row["event_id"], row["key"], row["image_id"], row["annotator"], row["kind"], row["class_id"], row["at"],
        row["round_id"],
    )  # fmt: skip
