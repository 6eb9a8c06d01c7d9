"""The routes of the API and of the Label Studio ML backend, and the commands by which they change the ledger.

Each route is thin: a checked request in, a query or a command for the service, a response out. Commands are functions
of the ledger; they run in the writer's thread, inside its transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from ..campaign import answers as campaign_answers
from ..campaign import leases
from ..campaign.answers import Answer, Recorded, Refused
from ..campaign.images import find_image
from ..campaign.ledger import Ledger, now
from ..campaign.rounds import Asked, asked_last, current_round
from ..errors import BadInput, PoolExhausted, TailwiseError, UnknownName
from . import label_studio, schemas, views
from .grid import Grid, GridImages, lease_class
from .jobs import AlreadyRunning, Unfinished, check_request, check_training
from .predictions import ModelPredictions
from .service import INDEX, Service
from .settings import Role, get_log
from .views import Prelabels

log = get_log(__name__)

SOURCE = "page"
FOREVER = "private, max-age=31536000, immutable"  # for images with a seal: their bytes never change
ALWAYS_ASK = "private, no-cache"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "the request is malformed"},
    401: {"model": schemas.Error, "description": "no token, or not the token of this campaign"},
    403: {"model": schemas.Error, "description": "from another host or page, or only the owner's token may do this"},
    404: {"model": schemas.Error, "description": "not found"},
    409: {"model": schemas.Error, "description": "not possible now"},
    422: {"model": schemas.Error, "description": "a value is missing, or out of bounds"},
    503: {
        "model": schemas.Error,
        "description": "the ledger was deleted or replaced; nothing is recorded until a restart",
    },
}
WRITE_ERRORS: dict[int | str, dict[str, Any]] = {
    413: {"model": schemas.Error, "description": "the body is too long"},
    415: {"model": schemas.Error, "description": "not JSON"},
    500: {"model": schemas.Error, "description": "the disk is full or missing; nothing was recorded, try again later"},
}
PREDICTIONS_TIMEOUT = 60.0  # seconds that Label Studio's prediction waits for the model's; it gives up after 100
POLL = 0.1
RECORDED = frozenset({"ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED"})
DELETED = frozenset({"ANNOTATION_DELETED", "ANNOTATIONS_DELETED"})
TRAIN, STARTED = "START_TRAINING", "started"
CHUNK = 500  # annotations of one transaction
MOST_LISTED = 20
LONGEST_REASON = 500  # characters


async def _service(request: Request) -> Service:
    """Async, so that FastAPI needs no thread for it."""
    service: Service = request.app.state.service
    return service


CurrentService = Annotated[Service, Depends(_service)]


class OwnerOnly(TailwiseError, PermissionError):
    """The request carries the annotators' token, and needs the owner's."""


async def _role(request: Request) -> Role:
    """Whose token came with the request; `security.check_token` has found out."""
    role: Role = request.scope["role"]
    return role


CurrentRole = Annotated[Role, Depends(_role)]


async def require_owner(role: CurrentRole) -> None:
    """For routes that train, measure or compute for long, settle, export, or change classes or settings."""
    if role != "owner":
        raise OwnerOnly(
            "this needs the owner's link: annotators label, and only the owner can train, start long work, settle "
            "conflicts, export, or change classes and settings; ask the person who runs `tailwise label`"
        )


OWNER = [Depends(require_owner)]  # `dependencies=OWNER` of a route or a router

api = APIRouter(prefix="/api", responses=ERRORS)
page = APIRouter()


@api.get("/state")
async def state(
    service: CurrentService, query: Annotated[schemas.StateQuery, Query()], role: CurrentRole
) -> schemas.State:
    """Campaign, classes, round, balance, job and annotators."""
    job, who = service.jobs.state, query.annotator
    return await service.read_parts(lambda read: views.state(read, who, service.counts, service.prelabels, job, role))


@api.post("/lease", responses=WRITE_ERRORS)
async def lease(service: CurrentService, body: schemas.Lease) -> schemas.LeasedImages:
    """Images of the open round, kept for one annotator for ten minutes; asking again renews them."""
    return await service.write(lambda ledger: lease_images(ledger, body, service.prelabels))


@api.post("/release", responses=WRITE_ERRORS)
async def release(service: CurrentService, body: schemas.Release) -> schemas.Released:
    """Give images back unanswered."""
    return schemas.Released(released=await service.write(lambda ledger: release_images(ledger, body)))


@api.post("/answers", responses=WRITE_ERRORS)
async def answers(service: CurrentService, body: schemas.Answers) -> schemas.Results:
    """Record answers; an answer with saved=true is on the disk."""
    return await service.write(lambda ledger: save_answers(ledger, body))


@api.post("/undo", responses=WRITE_ERRORS)
async def undo(service: CurrentService, body: schemas.Undo, role: CurrentRole) -> schemas.UndoResult:
    """Undo an answer; the owner also undoes decisions about conflicts."""
    if role != "owner" and body.undoes and await service.read(lambda ledger: is_decision(ledger, body.undoes or "")):
        await require_owner(role)
    return await service.write(lambda ledger: undo_answer(ledger, body))


@api.get("/history")
async def history(service: CurrentService, query: Annotated[schemas.HistoryQuery, Query()]) -> schemas.History:
    """The last answers of one annotator; those before them with `before`."""
    return await service.read(lambda ledger: views.history(ledger, query.annotator, query.limit, query.before))


@api.post("/grid", responses=WRITE_ERRORS)
async def grid(service: CurrentService, body: Grid) -> GridImages:
    """Images of the round with one predicted class, the most confident first, leased to one annotator.

    Not available where people label blind: the order would reveal the predictions.
    """
    return await service.write(lambda ledger: lease_class(ledger, body, service.prelabels))


@api.get("/conflicts")
async def conflicts(service: CurrentService, query: Annotated[schemas.StateQuery, Query()]) -> schemas.Conflicts:
    """Images on which people differ, and what the annotator who asks has settled."""
    return await service.read_parts(lambda read: views.conflicts(read, query.annotator, service.prelabels))


@api.post("/settle", responses=WRITE_ERRORS, dependencies=OWNER)
async def settle(service: CurrentService, body: schemas.Settle) -> schemas.Settled:
    """Decide a conflict; an unlabelled image is rejected."""
    return await service.write(lambda ledger: settle_conflict(ledger, body))


@api.get("/rounds")
async def rounds(service: CurrentService) -> schemas.Rounds:
    """All rounds."""
    return await service.read_parts(views.all_rounds)


@api.post("/next", responses=WRITE_ERRORS, dependencies=OWNER)
async def next_round(service: CurrentService, body: schemas.Next) -> schemas.JobStarted:
    """Train on all labels and choose the next round, in the background."""
    await service.read(lambda ledger: check_request(ledger, body))
    return schemas.JobStarted(job=service.jobs.start(body))


@api.get("/job")
async def job(service: CurrentService) -> schemas.Job:
    """Progress of the background job."""
    return service.jobs.state


# The page, its images and its static files.


@page.get(
    "/image/{key}", response_class=Response,
    responses={**ERRORS, 200: {"content": {"image/jpeg": {}}}, 304: {"description": "not modified"},
               429: {"model": schemas.Error, "description": "too many images at once"}},
)  # fmt: skip
async def image(
    service: CurrentService, request: Request, key: Annotated[str, Path(pattern=schemas.IMAGE)],
    query: Annotated[schemas.ImageQuery, Query()],
) -> Response:  # fmt: skip
    """An image as a fresh JPEG: upright, without metadata, its longer side at most `size` pixels.

    With the seal that came with the key it is made of these bytes alone, and may be cached for ever.
    """
    found = await service.images.get(key, int(query.size), query.seal)
    return cached(request, found.content, "image/jpeg", found.etag, FOREVER if query.seal else ALWAYS_ASK)


@page.get("/", include_in_schema=False)
async def index(service: CurrentService, request: Request) -> Response:
    """The page."""
    return _file(service, request, INDEX)


@page.get("/static/{name:path}", include_in_schema=False)
async def static(service: CurrentService, request: Request, name: str) -> Response:
    """The page's scripts and styles."""
    return _file(service, request, name)


def _file(service: Service, request: Request, name: str) -> Response:
    found, versioned = service.files.find(name)
    if found is None:
        raise UnknownName("the page has no such file; it may have been updated: load the page again")
    content, etag, packed = found.content, found.etag, {"Vary": "Accept-Encoding"}
    if found.gzipped is not None and accepts_gzip(request.headers.get("accept-encoding", "")):
        content, etag = found.gzipped, f'{etag[:-1]}-gzip"'
        packed["Content-Encoding"] = "gzip"
    return cached(request, content, found.content_type, etag, FOREVER if versioned else ALWAYS_ASK, packed)


def accepts_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header allows gzip.

    >>> accepts_gzip("gzip, deflate, br"), accepts_gzip("gzip;q=0, br"), accepts_gzip("")
    (True, False, False)
    """
    for coding in accepted.lower().replace(" ", "").split(","):
        name, _, weight = coding.partition(";q=")
        if name == "gzip":
            return weight.strip("0.") != "" or not weight
    return False


def cached(
    request: Request, content: bytes, kind: str, etag: str, how_long: str, more: Mapping[str, str] | None = None
) -> Response:
    """Content that a browser may keep; one that has it gets none."""
    headers = {"ETag": etag, "Cache-Control": how_long, **(more or {})}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


# Commands: what a request changes.


def lease_images(ledger: Ledger, body: schemas.Lease, prelabels: Prelabels) -> schemas.LeasedImages:
    """Images of the open round for one annotator; empty where no round is open."""
    current = current_round(ledger)
    if current is None:
        return schemas.LeasedImages(images=[])
    leased = leases.lease(ledger, current.id, body.annotator, body.count, first=body.first)
    return views.leased_images(ledger, leased, current.model_version, prelabels)


def release_images(ledger: Ledger, body: schemas.Release) -> int:
    """Give images back; unknown keys are ignored."""
    known = []
    for key in set(body.images):
        with suppress(UnknownName):
            known.append(find_image(ledger, key).id)
    return leases.release(ledger, body.annotator, known) if known else 0


def save_answers(ledger: Ledger, body: schemas.Answers) -> schemas.Results:
    """Record answers; an answer that cannot be recorded does not affect the others."""
    targets = [_target_of(ledger, one) for one in body.answers]
    rows = [
        Answer(
            one.key, target.image, body.annotator, one.kind, one.class_id,
            None if one.at is None else min(one.at, now()),  # clocks of clients may be ahead
            target.round_id, target.model_version, SOURCE, one.seconds,
        )
        for one, target in zip(body.answers, targets, strict=True) if isinstance(target, Asked)
    ]  # fmt: skip
    outcomes = iter(campaign_answers.record_each(ledger, rows))
    results: list[schemas.Saved | schemas.NotSaved] = []
    for one, target in zip(body.answers, targets, strict=True):
        outcome = next(outcomes) if isinstance(target, Asked) else target
        if isinstance(outcome, Recorded):
            results.append(schemas.Saved(key=one.key, event=outcome.event_id, fresh=outcome.fresh))
            continue
        if isinstance(outcome, Refused):
            outcome = schemas.ErrorText(code="bad_input", message=outcome.reason)
        results.append(schemas.NotSaved(key=one.key, error=outcome))
    return schemas.Results(results=results)


def _target_of(ledger: Ledger, answer: schemas.Answer) -> Asked | schemas.ErrorText:
    """The image and the round that an answer is about, or why it cannot be recorded."""
    found = asked_last(ledger, answer.image)
    if found is None:
        return schemas.ErrorText(code="unknown", message=f"no image has the key {answer.image!r}")
    if answer.seal not in (None, find_image(ledger, found.image).seal):
        message = f"the image {answer.image} has changed since it was shown; load the page, and look again"
        return schemas.ErrorText(code="changed", message=message)
    return found


def undo_answer(ledger: Ledger, body: schemas.Undo) -> schemas.UndoResult:
    """Undo an answer, the named one or the annotator's last in the open round."""
    current = current_round(ledger)
    undone = campaign_answers.undo(
        ledger, body.key, body.annotator, undoes_key=body.undoes, source=SOURCE,
        round_id=current.id if current and body.undoes is None else None,
    )  # fmt: skip
    if undone is None:
        return schemas.UndoResult(undone=None)
    image = find_image(ledger, undone.image)
    return schemas.UndoResult(
        undone=schemas.Undone(image=image.key, kind=undone.kind, class_id=undone.class_id, restored=undone.restored)
    )


def is_decision(ledger: Ledger, key: str) -> bool:
    """Whether an event decides a conflict, or undoes such a decision."""
    rows = ledger.read(
        "SELECT 1 FROM event AS e LEFT JOIN event AS u ON u.id = e.undoes "
        "WHERE e.key = ? AND (e.kind LIKE 'settle-%' OR u.kind LIKE 'settle-%')",
        (key,),
    )
    return bool(rows)


def settle_conflict(ledger: Ledger, body: schemas.Settle) -> schemas.Settled:
    """Decide an image on which people differ, or any other with an answer."""
    if (body.kind == "settle-label") != (body.class_id is not None):
        raise BadInput("settle-label needs a class_id, and settle-other must not have one")
    image = find_image(ledger, body.image)
    recorded = ledger.read("SELECT 1 FROM event WHERE key = ?", (body.key,))
    if not recorded and not campaign_answers.is_answered(ledger, image.id):
        raise BadInput(f"asked to settle the image {image.key}, but it has no answer yet; label it instead")
    done = campaign_answers.settle(
        ledger, key=body.key, image=image.id, annotator=body.annotator, class_id=body.class_id, source=SOURCE,
        found_by=body.found_by,
    )  # fmt: skip
    return schemas.Settled(event=done.event_id, fresh=done.fresh)


# Label Studio ML backend: /health, /setup, /predict with the campaign's model, /webhook for annotations.

label_studio_api = APIRouter(tags=["Label Studio ML backend"], responses=ERRORS, dependencies=OWNER)
label_studio_health = APIRouter(
    tags=["Label Studio ML backend"], responses={status: ERRORS[status] for status in (400, 403)}
)


@label_studio_health.get("/health")
async def health() -> label_studio.Health:
    """Answered at once, also while other requests wait."""
    return label_studio.Health()


@label_studio_api.post("/setup", responses=WRITE_ERRORS)
async def setup(service: CurrentService, body: label_studio.Setup) -> label_studio.SetupDone:
    """Check the configuration, and return the model's version."""
    service.controls.learn(body.project, body.label_schema)
    return label_studio.SetupDone(model_version=await service.read(label_studio.version_shown))


@label_studio_api.post("/predict", responses=WRITE_ERRORS)
async def predict(service: CurrentService, body: label_studio.Predict) -> label_studio.Predictions:
    """The model's class for each task, with its probability as score."""
    control = service.controls.learn(body.project, body.label_config)
    version = await service.read(label_studio.version_now)
    predicted = None if version is None else await _predictions(service, version)
    return await service.read_parts(
        lambda read: label_studio.predictions(
            read, service.matcher.get(read), body.tasks, predicted, control, blind=read(service.prelabels.is_blind)
        )
    )


@label_studio_api.post(
    "/webhook", status_code=202,
    responses={**WRITE_ERRORS, 409: {"model": label_studio.Accepted | schemas.Error, "description": "not now"}},
)  # fmt: skip
async def webhook(
    service: CurrentService, body: label_studio.Webhook, response: Response
) -> label_studio.Accepted:  # fmt: skip
    """Record annotations, undo deleted ones, start training; the response lists what was left out.

    A training that cannot start has the status 409: Label Studio would show "Training" for ever otherwise.
    """
    if body.action in RECORDED:
        return await _record(service, body)
    if body.action in DELETED:
        return await _undo(service, body)
    if body.action == TRAIN:
        said = await _start_training(service)
        response.status_code = 202 if said == STARTED else 409
        return label_studio.Accepted(training=said)
    return label_studio.Accepted()


async def _record(service: Service, body: label_studio.Webhook) -> label_studio.Accepted:
    """Accepted annotations are on the disk."""
    control = service.controls.learn(body.project, label_studio.config_of(body.project))
    tasks = label_studio.annotated_tasks(body)
    if not tasks:
        return label_studio.Accepted()
    images = await service.read_parts(service.matcher.get)
    found = await service.read(lambda ledger: label_studio.read_annotations(ledger, images, tasks, control))
    refused = []
    for start in range(0, len(found.answers), CHUNK):
        part = found.answers[start : start + CHUNK]
        refused += await service.write(lambda ledger, part=part: label_studio.record_annotations(ledger, part))  # type: ignore[misc]
    return label_studio.Accepted(
        accepted=len(found.answers) - len(refused), left_out=_left_out(service, [*found.left_out, *refused])
    )


async def _undo(service: Service, body: label_studio.Webhook) -> label_studio.Accepted:
    numbers = [one.get("id") for one in label_studio.objects_in(body.annotation, body.annotations)]
    left_out = await service.write(lambda ledger: label_studio.take_back(ledger, numbers))
    return label_studio.Accepted(taken_back=len(numbers) - len(left_out), left_out=_left_out(service, left_out))


async def _start_training(service: Service) -> str:
    """Start training and choosing the next round in the background; or why not."""
    try:
        await service.read(check_training)
        service.jobs.start(schemas.Next())
    except (Unfinished, AlreadyRunning, BadInput, PoolExhausted) as error:
        log.warning("Label Studio asked for training, which was not started: %s", error)
        return f"not started: {service.public(str(error))}"
    return STARTED


def _left_out(service: Service, left_out: Sequence[str]) -> list[str]:
    """What was left out, for the response and for the log."""
    if left_out:
        log.warning("of Label Studio's annotations %d were left out: %s", len(left_out), "; ".join(left_out[:5]))
    more = [f"and {len(left_out) - MOST_LISTED + 1} more"] if len(left_out) > MOST_LISTED else []
    return [*(service.public(one[:LONGEST_REASON]) for one in left_out[: MOST_LISTED - len(more)]), *more]


async def _predictions(service: Service, version: str) -> ModelPredictions | None:
    """The model's predictions; waits while they are being made."""
    predictions = service.jobs.predictions
    try:
        async with asyncio.timeout(PREDICTIONS_TIMEOUT):
            while (found := predictions.of(version)) is None and predictions.failed != version:
                await asyncio.sleep(POLL)
    except TimeoutError:
        return None
    return found
