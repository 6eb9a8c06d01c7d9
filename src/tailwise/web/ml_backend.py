"""Label Studio's ML backend protocol: /health, /setup, /predict with the campaign's model, /webhook for annotations.

Images are matched by path; nothing that a task names is ever fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter

from ..campaign.classes import list_classes
from ..campaign.formats.label_studio_tasks import task_records
from ..campaign.ledger import Ledger
from ..campaign.matching import Matcher
from ..campaign.models import newest_model
from ..errors import BadInput, PoolExhausted
from . import ml_wire, wire
from .annotations import read_annotations, record_annotations, take_back
from .desk import Desk
from .guesses import Guessed
from .jobs import AlreadyRunning, Unfinished, check_training
from .label_control import Control
from .logs import get_log
from .routes import REFUSALS, WRITING, OurDesk
from .tallies import Ask

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
async def health() -> ml_wire.Health:
    """At once, whatever else is going on."""
    return ml_wire.Health()


@router.post("/setup", responses=WRITING)
async def setup(desk: OurDesk, asked: ml_wire.Setup) -> ml_wire.SetupDone:
    """Check the configuration, and name the model."""
    desk.controls.learn(asked.project, asked.label_schema)
    version = await desk.read(version_now)
    return ml_wire.SetupDone(model_version=version or NO_MODEL)


@router.post("/predict", responses=WRITING)
async def predict(desk: OurDesk, asked: ml_wire.Predict) -> ml_wire.Predictions:
    """The model's class for each task, with its probability as score."""
    control = desk.controls.learn(asked.project, asked.label_config)
    version = await desk.read(version_now)
    guessed = None if version is None else await _guessed(desk, version)
    return await desk.read_parts(lambda ask: predictions(ask, desk.matcher.get(ask), asked.tasks, guessed, control))


@router.post("/webhook", status_code=202, responses=WRITING)
async def webhook(desk: OurDesk, asked: ml_wire.Webhook) -> ml_wire.Accepted:
    """Record annotations, take back those that were deleted, begin to train; the answer says what was left out."""
    if asked.action in RECORDED:
        return await _recorded(desk, asked)
    if asked.action in DELETED:
        return await _taken_back(desk, asked)
    if asked.action == TRAIN:
        return ml_wire.Accepted(training=await _training(desk))
    return ml_wire.Accepted()


async def _recorded(desk: Desk, asked: ml_wire.Webhook) -> ml_wire.Accepted:
    """What is accepted is on the disk."""
    control = desk.controls.learn(asked.project, _config(asked.project))
    tasks = annotated_tasks(asked)
    if not tasks:
        return ml_wire.Accepted()
    images = await desk.read_parts(desk.matcher.get)
    heard = await desk.read(lambda ledger: read_annotations(ledger, images, tasks, control))
    refused = []
    for start in range(0, len(heard.answers), CHUNK):
        part = heard.answers[start : start + CHUNK]
        refused += await desk.write(lambda ledger, part=part: record_annotations(ledger, part))  # type: ignore[misc]
    return ml_wire.Accepted(
        accepted=len(heard.answers) - len(refused), left_out=_told(desk, [*heard.left_out, *refused])
    )


async def _taken_back(desk: Desk, asked: ml_wire.Webhook) -> ml_wire.Accepted:
    numbers = [one.get("id") for one in _annotations(asked)]
    left_out = await desk.write(lambda ledger: take_back(ledger, numbers))
    return ml_wire.Accepted(taken_back=len(numbers) - len(left_out), left_out=_told(desk, left_out))


async def _training(desk: Desk) -> str:
    """Begin to train and to choose the next round, in the background; or why not."""
    try:
        await desk.read(check_training)
        desk.jobs.start(wire.Next())
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
) -> ml_wire.Predictions:
    """One prediction for each task."""
    names = {one.id: one.name for one in ask(lambda ledger: list_classes(ledger, retired=True))}
    version = NO_MODEL if guessed is None else guessed.version
    results = []
    for task in tasks:
        top = [] if guessed is None else _top(images, task, guessed)
        results.append(_prediction([(names[number], share) for number, share in top[:1]], version, control))
    return ml_wire.Predictions(results=results, model_version=version)


def annotated_tasks(asked: ml_wire.Webhook) -> list[dict[str, Any]]:
    """Tasks with the annotations that a message carries; each annotation names its task, or there is but one."""
    said = _annotations(asked)
    tasks = {_number(one.get("id")): one for one in (*_many(asked.task), *_many(asked.tasks)) if isinstance(one, dict)}
    if not tasks or not said:
        return []
    only = next(iter(tasks.values())) if len(tasks) == 1 else {}
    paired = [(tasks.get(_task_id(one), only), one) for one in said]
    return [{"id": task.get("id"), "data": task.get("data"), "annotations": [one]} for task, one in paired if task]


def _annotations(asked: ml_wire.Webhook) -> list[dict[str, Any]]:
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


def _prediction(guess: list[tuple[str, float]], version: str, control: Control) -> ml_wire.Prediction:
    if not guess:
        return ml_wire.Prediction(result=[], score=0.0, model_version=version)
    name, share = guess[0]
    score = min(max(share, 0.0), 1.0)
    value = ml_wire.Choices(choices=[control.choice(name)])
    region = ml_wire.Region(from_name=control.from_name, to_name=control.to_name, value=value, score=score)
    return ml_wire.Prediction(result=[region], score=score, model_version=version)


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
