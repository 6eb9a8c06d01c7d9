"""Label Studio's ML backend protocol: /health, /setup, /predict with the campaign's model, /webhook to record labels.

Images are matched by path; nothing that a task names is ever fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import APIRouter

from ..campaign.classes import list_classes
from ..campaign.formats.label_studio_tasks import task_records
from ..campaign.ledger import Ledger
from ..campaign.matching import Matcher
from ..campaign.models import newest_model
from ..errors import BadInput
from . import ml_wire
from .desk import Desk
from .guesses import Guessed
from .label_control import Control, read_control
from .routes import REFUSALS, WRITING, OurDesk
from .tallies import Ask

NO_MODEL = "untrained"
PATIENCE = 60.0  # seconds that a prediction waits for the model's guesses; Label Studio waits 100
GLANCE = 0.1
RECORDED = frozenset({"ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED"})

router = APIRouter(tags=["Label Studio ML backend"], responses=REFUSALS)
pulse = APIRouter(tags=["Label Studio ML backend"], responses={status: REFUSALS[status] for status in (400, 403)})


@pulse.get("/health")
async def health() -> ml_wire.Health:
    """At once, whatever else is going on."""
    return ml_wire.Health()


@router.post("/setup", responses=WRITING)
async def setup(desk: OurDesk, asked: ml_wire.Setup) -> ml_wire.SetupDone:
    """Check the configuration, and name the model."""
    read_control(asked.label_schema)
    version = await desk.read(version_now)
    return ml_wire.SetupDone(model_version=version or NO_MODEL)


@router.post("/predict", responses=WRITING)
async def predict(desk: OurDesk, asked: ml_wire.Predict) -> ml_wire.Predictions:
    """The model's class for each task, with its probability as score."""
    control = read_control(asked.label_config)
    version = await desk.read(version_now)
    guessed = None if version is None else await _guessed(desk, version)
    return await desk.read_parts(lambda ask: predictions(ask, desk.matcher.get(ask), asked.tasks, guessed, control))


@router.post("/webhook", status_code=202, responses=WRITING)
async def webhook(desk: OurDesk, asked: ml_wire.Webhook) -> ml_wire.Accepted:
    """Take annotations in, and record them after the answer."""
    tasks = annotated_tasks(asked) if asked.action in RECORDED else []
    if tasks:
        desk.imports.add(tasks)
    return ml_wire.Accepted(accepted=sum(len(task["annotations"]) for task in tasks))


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
    said = [one for one in (*_many(asked.annotation), *_many(asked.annotations)) if isinstance(one, dict)]
    tasks = {_number(one.get("id")): one for one in (*_many(asked.task), *_many(asked.tasks)) if isinstance(one, dict)}
    if not tasks or not said:
        return []
    only = next(iter(tasks.values())) if len(tasks) == 1 else {}
    paired = [(tasks.get(_task_id(one), only), one) for one in said]
    return [{"id": task.get("id"), "data": task.get("data"), "annotations": [one]} for task, one in paired if task]


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
