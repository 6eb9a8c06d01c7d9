"""Label many images at once: all in one transaction or none, undone as a whole or one by one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadInput
from .answers import Answer, record, take_back_batch
from .classes import clean_annotator
from .image_table import CONFLICT, LABELLED, OTHER, said_of
from .ledger import Ledger, now

MOST = 10_000  # images of one change: the writer is busy for about a second
LONGEST_BATCH = 48  # characters, so that an image's number fits behind it in a key


@dataclass(frozen=True, slots=True)
class Relabelled:
    """What a change of many images did."""

    batch: str  # names the change, to undo it
    changed: tuple[int, ...]  # ids of images with a new event
    unchanged: int  # images that had the label already
    settled: int  # of the changed ones, those whose earlier answers by other people were overruled


def relabel(
    ledger: Ledger, images: Sequence[int], class_id: int | None, annotator: str, *, batch: str | None = None,
    found_by: str | None = "gallery", source: str = "api", settle: bool = True,
) -> Relabelled:  # fmt: skip
    """Give images, named by id, a class, or None for none of the classes; all of them, or none where one cannot be.

    What others have said differently of an image stays in the ledger and is overruled by a decision; with
    `settle=False` it is answered like any other, and people then differ. The same `batch` again changes nothing.
    """
    name = clean_annotator(annotator)
    wanted = list(dict.fromkeys(images))
    mark = f"g{uuid.uuid4().hex[:16]}" if batch is None else batch
    if not wanted:
        raise BadInput("asked to label no images; select at least one")
    if len(wanted) > MOST:
        raise BadInput(f"asked to label {len(wanted):,} images at once; the most is {MOST:,}: select fewer")
    if not 8 <= len(mark) <= LONGEST_BATCH:
        raise BadInput(f"the batch {mark[:80]!r} is not valid; give 8 to {LONGEST_BATCH} letters, digits, - and _")
    with ledger.writing() as connection:
        before = connection.execute("SELECT image_id, kind FROM event WHERE batch = ?", (mark,)).fetchall()
        if before:
            settled = sum(row[1].startswith("settle") for row in before)
            return Relabelled(mark, tuple(row[0] for row in before), len(wanted) - len(before), settled)
        kinds = _kinds(ledger, wanted, class_id, name, settle=settle)
        rounds = _last_rounds(ledger, list(kinds))
        at = now()
        answers = []
        for image, kind in kinds.items():
            round_id, version = rounds.get(image, (None, None))
            answers.append(
                Answer(
                    f"{mark}-{image}", image, name, kind, class_id, at, round_id, version, source,
                    found_by=found_by, batch=mark,
                )
            )  # fmt: skip
        record(ledger, answers)
    settled = sum(kind.startswith("settle") for kind in kinds.values())
    return Relabelled(mark, tuple(kinds), len(wanted) - len(kinds), settled)


def undo_batch(ledger: Ledger, batch: str, annotator: str, *, key: str | None = None, source: str = "api") -> list[int]:
    """Take back what is left of one's change of many images, all at once; gives the ids of the images."""
    return take_back_batch(ledger, batch, annotator, key or f"u{uuid.uuid4().hex[:16]}", source=source)


def _kinds(
    ledger: Ledger, images: Sequence[int], class_id: int | None, annotator: str, *, settle: bool
) -> dict[int, str]:  # fmt: skip
    """The kind of event that each image needs; those that have the label already need none."""
    known = said_of(ledger, images)
    decided = {row[0] for row in ledger.read(
        "SELECT image_id FROM settled WHERE image_id IN (SELECT value FROM json_each(?))", (json.dumps(list(images)),)
    )}  # fmt: skip
    wanted = (OTHER, None) if class_id is None else (LABELLED, class_id)
    plain, decision = ("other", "settle-other") if class_id is None else ("label", "settle-label")
    kinds = {}
    for image in images:
        said = known.get(image)
        if said is not None and (said.state, said.class_id) == wanted:
            continue
        others = said is not None and (
            image in decided
            or said.state == CONFLICT
            or (said.state in (LABELLED, OTHER) and set(said.annotators) != {annotator})
        )
        kinds[image] = decision if settle and others else plain
    return kinds


def _last_rounds(ledger: Ledger, images: Sequence[int]) -> dict[int, tuple[int, str | None]]:
    """The last round that asked for each image, and its model."""
    rows = ledger.read(
        "SELECT i.image_id, r.id, r.model_version FROM (SELECT image_id, max(round_id) AS last FROM round_image "
        "WHERE image_id IN (SELECT value FROM json_each(?)) GROUP BY image_id) AS i JOIN round AS r ON r.id = i.last",
        (json.dumps(list(images)),),
    )
    return {row[0]: (row[1], row[2]) for row in rows}
