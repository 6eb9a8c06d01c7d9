"""What Label Studio says of images: annotations in; answers in the ledger out, and of what is left out, why.

The key of an answer holds the number of its annotation: told twice it counts once, deleted there it is undone here.

Label Studio's ML backend protocol: /health, /setup, /predict with the campaign's model, /webhook for annotations.

Images are matched by path; nothing that a task names is ever fetched.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from ..campaign import answers, leases
from ..campaign.answers import LATEST, Answer, Refused
from ..campaign.classes import Klass, find_class, list_classes
from ..campaign.images import Matcher
from ..campaign.ledger import Ledger
from ..campaign.models import newest_model
from ..campaign.names import clean_annotator
from ..errors import BadInput, PoolExhausted, UnknownName
from ..formats.base import Record
from ..formats.label_studio import task_records
from . import label_studio_schemas, schemas
from .errors import get_log
from .jobs import AlreadyRunning, Unfinished, check_training
from .label_studio_schemas import Control
from .predictions import Guessed
from .routes import REFUSALS, WRITING, OurDesk
from .service import Desk
from .tallies import Ask

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


log = get_log(__name__)

NO_MODEL = "untrained"
PATIENCE = 60.0  # seconds that a prediction waits for the model's guesses; Label Studio waits 100
GLANCE = 0.1
RECORDED = frozenset({"ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED"})
DELETED = frozenset({"ANNOTATION_DELETED", "ANNOTATIONS_DELETED"})
TRAIN = "START_TRAINING"
CHUNK = 500  # annotations of one transaction
MOST_TOLD = 20
LONGEST_TOLD = 500  # characters

router = APIRouter(tags=["Label Studio ML backend"], responses=REFUSALS)
pulse = APIRouter(tags=["Label Studio ML backend"], responses={status: REFUSALS[status] for status in (400, 403)})


@pulse.get("/health")
async def health() -> label_studio_schemas.Health:
    """At once, whatever else is going on."""
    return label_studio_schemas.Health()


@router.post("/setup", responses=WRITING)
async def setup(desk: OurDesk, asked: label_studio_schemas.Setup) -> label_studio_schemas.SetupDone:
    """Check the configuration, and name the model."""
    desk.controls.learn(asked.project, asked.label_schema)
    version = await desk.read(version_now)
    return label_studio_schemas.SetupDone(model_version=version or NO_MODEL)


@router.post("/predict", responses=WRITING)
async def predict(desk: OurDesk, asked: label_studio_schemas.Predict) -> label_studio_schemas.Predictions:
    """The model's class for each task, with its probability as score."""
    control = desk.controls.learn(asked.project, asked.label_config)
    version = await desk.read(version_now)
    guessed = None if version is None else await _guessed(desk, version)
    return await desk.read_parts(lambda ask: predictions(ask, desk.matcher.get(ask), asked.tasks, guessed, control))


@router.post("/webhook", status_code=202, responses=WRITING)
async def webhook(desk: OurDesk, asked: label_studio_schemas.Webhook) -> label_studio_schemas.Accepted:
    """Record annotations, take back those that were deleted, begin to train; the answer says what was left out."""
    if asked.action in RECORDED:
        return await _recorded(desk, asked)
    if asked.action in DELETED:
        return await _taken_back(desk, asked)
    if asked.action == TRAIN:
        return label_studio_schemas.Accepted(training=await _training(desk))
    return label_studio_schemas.Accepted()


async def _recorded(desk: Desk, asked: label_studio_schemas.Webhook) -> label_studio_schemas.Accepted:
    """What is accepted is on the disk."""
    control = desk.controls.learn(asked.project, _config(asked.project))
    tasks = annotated_tasks(asked)
    if not tasks:
        return label_studio_schemas.Accepted()
    images = await desk.read_parts(desk.matcher.get)
    heard = await desk.read(lambda ledger: read_annotations(ledger, images, tasks, control))
    refused = []
    for start in range(0, len(heard.answers), CHUNK):
        part = heard.answers[start : start + CHUNK]
        refused += await desk.write(lambda ledger, part=part: record_annotations(ledger, part))  # type: ignore[misc]
    return label_studio_schemas.Accepted(
        accepted=len(heard.answers) - len(refused), left_out=_told(desk, [*heard.left_out, *refused])
    )


async def _taken_back(desk: Desk, asked: label_studio_schemas.Webhook) -> label_studio_schemas.Accepted:
    numbers = [one.get("id") for one in _annotations(asked)]
    left_out = await desk.write(lambda ledger: take_back(ledger, numbers))
    return label_studio_schemas.Accepted(taken_back=len(numbers) - len(left_out), left_out=_told(desk, left_out))


async def _training(desk: Desk) -> str:
    """Begin to train and to choose the next round, in the background; or why not."""
    try:
        await desk.read(check_training)
        desk.jobs.start(schemas.Next())
    except (Unfinished, AlreadyRunning, BadInput, PoolExhausted) as error:
        log.warning("Label Studio asked for training, which was not started: %s", error)
        return f"not started: {desk.public(str(error))}"
    return "started"


def _told(desk: Desk, left_out: Sequence[str]) -> list[str]:
    """What was left out, for the answer and for the log."""
    if left_out:
        log.warning("of Label Studio's annotations %d were left out: %s", len(left_out), "; ".join(left_out[:5]))
    more = [f"and {len(left_out) - MOST_TOLD + 1} more"] if len(left_out) > MOST_TOLD else []
    return [*(desk.public(one[:LONGEST_TOLD]) for one in left_out[: MOST_TOLD - len(more)]), *more]


def _config(project: object) -> str | None:
    """The configuration in a message, where it carries one."""
    config = project.get("label_config") if isinstance(project, dict) else None
    return config if isinstance(config, str) else None


def version_now(ledger: Ledger) -> str | None:
    """The version of the newest model; None before the first."""
    try:
        return newest_model(ledger).version
    except BadInput:
        return None


def predictions(
    ask: Ask, images: Matcher, tasks: Iterable[Mapping[str, Any]], guessed: Guessed | None, control: Control
) -> label_studio_schemas.Predictions:
    """One prediction for each task."""
    names = {one.id: one.name for one in ask(lambda ledger: list_classes(ledger, retired=True))}
    version = NO_MODEL if guessed is None else guessed.version
    results = []
    for task in tasks:
        top = [] if guessed is None else _top(images, task, guessed)
        results.append(_prediction([(names[number], share) for number, share in top[:1]], version, control))
    return label_studio_schemas.Predictions(results=results, model_version=version)


def annotated_tasks(asked: label_studio_schemas.Webhook) -> list[dict[str, Any]]:
    """Tasks with the annotations that a message carries; each annotation names its task, or there is but one."""
    said = _annotations(asked)
    tasks = {_number(one.get("id")): one for one in (*_many(asked.task), *_many(asked.tasks)) if isinstance(one, dict)}
    if not tasks or not said:
        return []
    only = next(iter(tasks.values())) if len(tasks) == 1 else {}
    paired = [(tasks.get(_task_id(one), only), one) for one in said]
    return [{"id": task.get("id"), "data": task.get("data"), "annotations": [one]} for task, one in paired if task]


def _annotations(asked: label_studio_schemas.Webhook) -> list[dict[str, Any]]:
    return [one for one in (*_many(asked.annotation), *_many(asked.annotations)) if isinstance(one, dict)]


def _task_id(annotation: Mapping[str, Any]) -> int | str | None:
    task = annotation.get("task")
    return _number(task.get("id") if isinstance(task, dict) else task)


def _number(value: object) -> int | str | None:
    return value if isinstance(value, int | str) else None


def _many(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _top(images: Matcher, task: Mapping[str, Any], guessed: Guessed) -> list[tuple[int, float]]:
    records, _ = task_records({**task, "annotations": []}, 0, ())
    place = images.find(records[0]) if records else "no image"
    return [] if isinstance(place, str) else guessed.top(place.id)


def _prediction(guess: list[tuple[str, float]], version: str, control: Control) -> label_studio_schemas.Prediction:
    if not guess:
        return label_studio_schemas.Prediction(result=[], score=0.0, model_version=version)
    name, share = guess[0]
    score = min(max(share, 0.0), 1.0)
    value = label_studio_schemas.Choices(choices=[control.choice(name)])
    region = label_studio_schemas.Region(from_name=control.from_name, to_name=control.to_name, value=value, score=score)
    return label_studio_schemas.Prediction(result=[region], score=score, model_version=version)


async def _guessed(desk: Desk, version: str) -> Guessed | None:
    """The model's guesses, waited for while they are being made."""
    guesses = desk.jobs.guesses
    try:
        async with asyncio.timeout(PATIENCE):
            while (found := guesses.of(version)) is None and not guesses.failed(version):
                await asyncio.sleep(GLANCE)
    except TimeoutError:
        return None
    return found
