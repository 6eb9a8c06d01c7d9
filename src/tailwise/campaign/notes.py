"""Flags and comments on images: rows that are added and never changed; the last flag or unflag of an image counts."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import PurePath

from ..errors import BadInput
from ..inputs import shown
from .answers import KEY
from .classes import clean_annotator, clean_text
from .images import SEAL_DIGITS, locate
from .ledger import Ledger, now

MOST_COMMENT = 2000
KINDS = ("flag", "unflag", "comment")


@dataclass(frozen=True, slots=True)
class Note:
    """What one person noted about one image."""

    id: int
    image: str  # the image's key
    seal: str  # of its bytes
    path: str
    annotator: str
    kind: str  # "flag", "unflag" or "comment"
    text: str  # of a comment
    at: int  # microseconds since 1970
    fresh: bool = True  # False where the key had been recorded before


def add_note(
    ledger: Ledger, image: str | PurePath, kind: str, text: str = "", *, annotator: str = "me", key: str | None = None
) -> Note:  # fmt: skip
    """Flag or unflag an image, or comment on it; the same key again is the same note."""
    key = uuid.uuid4().hex if key is None else key
    author = clean_annotator(annotator)
    cleaned = clean_text("comment", text, MOST_COMMENT)
    if not KEY.fullmatch(key):
        raise BadInput(f"the key {shown(key)} is not valid; make it of 8 to 64 letters, digits, - and _")
    if kind not in KINDS:
        raise BadInput(f"the note is {shown(kind)}; it must be flag, unflag or comment")
    if (kind == "comment") != bool(cleaned):
        raise BadInput("the comment is empty; write something" if kind == "comment" else f"{kind} has no text")
    with ledger.writing() as connection:
        row = locate(ledger, image)
        before = connection.execute("SELECT * FROM note WHERE key = ?", (key,)).fetchone()
        said = (row.id, author, kind, cleaned)
        if before is not None and said != tuple(before[name] for name in ("image_id", "annotator", "kind", "text")):
            raise BadInput(f"the key {key} was used for another note; make a new key for each note")
        at = now() if before is None else int(before["at"])
        number = None if before is None else int(before["id"])
        if number is None:
            cursor = connection.execute(
                "INSERT INTO note (key, image_id, annotator, kind, text, at) VALUES (?, ?, ?, ?, ?, ?)",
                (key, *said, at),
            )
            number = int(cursor.lastrowid or 0)
    return Note(number, row.key, row.seal, row.path, author, kind, cleaned, at, fresh=before is None)


def list_notes(ledger: Ledger, image: str | PurePath | None = None, *, flagged: bool = False) -> list[Note]:
    """Notes on all images or on one, the oldest first; with `flagged`, those on images that are flagged now."""
    number = None if image is None else locate(ledger, image).id
    rows = ledger.read(
        "SELECT n.*, i.key AS image, substr(coalesce(i.sha256, ''), 1, ?) AS seal, i.path FROM note AS n "
        "JOIN image AS i ON i.id = n.image_id WHERE (? IS NULL OR n.image_id = ?) ORDER BY n.id",
        (SEAL_DIGITS, number, number),
    )
    notes = [
        Note(row["id"], row["image"], row["seal"], row["path"], row["annotator"], row["kind"], row["text"], row["at"])
        for row in rows
    ]
    last = {one.image: one.kind for one in notes if one.kind != "comment"}  # the last one of each image counts
    return [one for one in notes if not flagged or last.get(one.image) == "flag"]
