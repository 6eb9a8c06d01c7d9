"""What Label Studio says of images: annotations in; answers in the ledger out, and of what is left out, why.

The key of an answer holds the number of its annotation: told twice it counts once, deleted there it is undone here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..campaign import answers, leases
from ..campaign.answers import LATEST, Answer, Refused
from ..campaign.classes import Klass, find_class, list_classes
from ..campaign.formats.base import Record
from ..campaign.formats.label_studio_tasks import task_records
from ..campaign.ledger import Ledger
from ..campaign.matching import Matcher
from ..campaign.names import clean_annotator
from ..errors import BadInput, UnknownName
from .label_control import Control

ANNOTATOR = "label-studio"  # of annotations that name nobody
SOURCE = "import"
DIGITS = 24
MOST_NUMBER = 1 << 63


@dataclass(frozen=True, slots=True)
class Heard:
    """The annotations of one message."""

    answers: tuple[Answer, ...]  # those that fit
    left_out: tuple[str, ...]  # why the others do not


def read_annotations(
    ledger: Ledger, images: Matcher, tasks: Iterable[Mapping[str, Any]], control: Control
) -> Heard:  # fmt: skip
    """The answers in tasks with one annotation each; nothing is written."""
    classes = [one.name for one in list_classes(ledger)]
    fitting, left_out = [], []
    for number, task in enumerate(tasks, start=1):
        records, problems = task_records(task, number, classes)
        left_out += problems
        for record in records:
            try:
                fitting.append(_answer(ledger, images, record, task["annotations"][0], control))
            except (BadInput, UnknownName) as error:
                left_out.append(f"task {task.get('id', number)} ({record.path}): {error}")
    return Heard(tuple(fitting), tuple(left_out))


def record_annotations(ledger: Ledger, heard: Sequence[Answer]) -> list[str]:
    """Record what does not stand already; gives why answers were refused."""
    outcomes = [one for answer in heard if not _stands(ledger, answer) for one in answers.record_each(ledger, [answer])]
    return [one.reason for one in outcomes if isinstance(one, Refused)]


def take_back(ledger: Ledger, annotations: Iterable[object]) -> list[str]:
    """Undo all that annotations said, by their numbers; gives those that nothing here came from."""
    left_out = []
    for number in annotations:
        given = _given(ledger, number)
        for row in given:
            answers.undo(ledger, f"gone-{row['key']}", row["annotator"], undoes_key=row["key"], source=SOURCE)
            leases.release(ledger, row["annotator"], [row["image_id"]])  # nobody waits here to answer it anew
        if not given:
            left_out.append(f"annotation {number}: no answer here came from it, or it is undone already")
    return left_out


def _answer(
    ledger: Ledger, images: Matcher, record: Record, annotation: Mapping[str, Any], control: Control
) -> Answer:  # fmt: skip
    place = images.find(record)
    if isinstance(place, str):
        raise BadInput(place)
    annotator = clean_annotator(record.annotator or ANNOTATOR)
    class_id = None if record.label is None else _class(ledger, record.label, control).id
    at = record.at if record.at is not None and 0 <= record.at < LATEST else None
    known = ledger.read("SELECT 1 FROM model WHERE version = ?", (record.model_version,))
    version = record.model_version if known else None
    said = [place.key, annotator, record.kind, class_id, annotation.get("updated_at", annotation.get("created_at"))]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:DIGITS]
    key = f"{_prefix(annotation.get('id'))}{digest}"
    return Answer(key, place.id, annotator, record.kind, class_id, at, model_version=version, source=SOURCE)


def _class(ledger: Ledger, choice: str, control: Control) -> Klass:
    """The class that a choice stands for: as the configuration shows it, else by the name itself."""
    try:
        found = find_class(ledger, control.shown(choice))
    except UnknownName:
        found = find_class(ledger, choice)
    if found.retired:
        raise BadInput(f"the class {found.name!r} is retired; restore it with `tailwise classes`")
    return found


def _prefix(number: object) -> str:
    """How the keys of an annotation's answers begin.

    >>> _prefix(12), _prefix("12"), _prefix(None)
    ('ls-12-', 'ls-x-', 'ls-x-')
    """
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MOST_NUMBER
    return f"ls-{number}-" if known else "ls-x-"


def _stands(ledger: Ledger, answer: Answer) -> bool:
    """Whether this person says so already."""
    rows = ledger.read(
        "SELECT 1 FROM answer WHERE image_id = ? AND annotator = ? AND kind = ? AND class_id IS ?",
        (answer.image, answer.annotator, answer.kind, answer.class_id),
    )
    return bool(rows)


def _given(ledger: Ledger, number: object) -> Sequence[Mapping[str, Any]]:
    """The standing answers that came from an annotation, the latest first."""
    prefix = _prefix(number)
    if prefix == _prefix(None):
        return []
    rows = ledger.read(
        "SELECT key, annotator, image_id FROM standing WHERE key >= ? AND key < ? AND source = ? ORDER BY id DESC",
        (prefix, f"{prefix[:-1]}.", SOURCE),  # a full stop comes right after a hyphen
    )
    return [dict(row) for row in rows]
