"""The routes of the API, each one thin: a checked request in, a question or a deed for the desk, a wire object out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from ..errors import UnknownName
from . import commands, schemas, views
from .jobs import check_wishes
from .service import PAGE, Desk

FOREVER = "private, max-age=31536000, immutable"  # for what a seal tells from everything else
ALWAYS_ASK = "private, no-cache"
REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.Error, "description": "the request is not sound"},
    401: {"model": schemas.Error, "description": "no token, or not that of this campaign"},
    403: {"model": schemas.Error, "description": "from another host or page"},
    404: {"model": schemas.Error, "description": "there is no such thing"},
    409: {"model": schemas.Error, "description": "not possible now"},
    422: {"model": schemas.Error, "description": "a value is missing, or out of bounds"},
    503: {
        "model": schemas.Error,
        "description": "the ledger was deleted or replaced; nothing is recorded until a restart",
    },
}
WRITING: dict[int | str, dict[str, Any]] = {
    413: {"model": schemas.Error, "description": "the body is too long"},
    415: {"model": schemas.Error, "description": "not JSON"},
    500: {"model": schemas.Error, "description": "the disk is full or gone; nothing was recorded, ask again later"},
}


async def _desk(request: Request) -> Desk:
    """Async, so that no thread is needed to find it."""
    desk: Desk = request.app.state.desk
    return desk


OurDesk = Annotated[Desk, Depends(_desk)]

api = APIRouter(prefix="/api", responses=REFUSALS)
page = APIRouter()


@api.get("/state")
async def state(desk: OurDesk, query: Annotated[schemas.StateQuery, Query()]) -> schemas.State:
    """Campaign, classes, round, balance, job and people."""
    job, who = desk.jobs.now(), query.annotator
    return await desk.read_parts(lambda ask: views.state(ask, who, desk.tallies, desk.sight, job))


@api.post("/lease", responses=WRITING)
async def lease(desk: OurDesk, asked: schemas.Lease) -> schemas.Pictures:
    """Images of the open round, kept for one annotator for ten minutes; asking again renews them."""
    return await desk.write(lambda ledger: commands.lease(ledger, asked, desk.sight))


@api.post("/release", responses=WRITING)
async def release(desk: OurDesk, asked: schemas.Release) -> schemas.Released:
    """Give images back unanswered."""
    return schemas.Released(released=await desk.write(lambda ledger: commands.release(ledger, asked)))


@api.post("/answers", responses=WRITING)
async def answers(desk: OurDesk, asked: schemas.Answers) -> schemas.Results:
    """Record answers; what is called saved is on the disk."""
    return await desk.write(lambda ledger: commands.save(ledger, asked))


@api.post("/undo", responses=WRITING)
async def undo(desk: OurDesk, asked: schemas.Undo) -> schemas.UndoResult:
    """Take an answer back."""
    return await desk.write(lambda ledger: commands.undo(ledger, asked))


@api.get("/history")
async def history(desk: OurDesk, query: Annotated[schemas.HistoryQuery, Query()]) -> schemas.History:
    """The last answers of one annotator."""
    return await desk.read(lambda ledger: views.history(ledger, query.annotator, query.limit))


@api.post("/grid", responses=WRITING)
async def grid(desk: OurDesk, asked: schemas.Grid) -> schemas.Pictures:
    """Images of the round that the model takes for one class, the most confident first, kept for one annotator.

    Where people label blind there is no grid: its order would show what the model thinks.
    """
    return await desk.write(lambda ledger: commands.lease_class(ledger, asked, desk.sight))


@api.get("/conflicts")
async def conflicts(desk: OurDesk, query: Annotated[schemas.StateQuery, Query()]) -> schemas.Conflicts:
    """Images on which people differ, and what the one who asks has settled last."""
    return await desk.read_parts(lambda ask: views.conflicts(ask, query.annotator, desk.sight))


@api.post("/settle", responses=WRITING)
async def settle(desk: OurDesk, asked: schemas.Settle) -> schemas.Settled:
    """Decide a conflict; an image of which nobody has said anything is refused."""
    return await desk.write(lambda ledger: commands.settle(ledger, asked))


@api.get("/rounds")
async def rounds(desk: OurDesk) -> schemas.Rounds:
    """All rounds."""
    return await desk.read_parts(views.all_rounds)


@api.post("/next", responses=WRITING)
async def next_round(desk: OurDesk, asked: schemas.Next) -> schemas.JobStarted:
    """Train on all labels and choose the next round, in the background."""
    await desk.read(lambda ledger: check_wishes(ledger, asked))
    return schemas.JobStarted(job=desk.jobs.start(asked))


@api.get("/job")
async def job(desk: OurDesk) -> schemas.Job:
    """How far the background job is."""
    return desk.jobs.now()


@page.get(
    "/image/{key}", response_class=Response,
    responses={**REFUSALS, 200: {"content": {"image/jpeg": {}}}, 304: {"description": "you have it"},
               429: {"model": schemas.Error, "description": "too many images at once"}},
)  # fmt: skip
async def image(
    desk: OurDesk, request: Request, key: Annotated[str, Path(pattern=schemas.IMAGE)],
    query: Annotated[schemas.ImageQuery, Query()],
) -> Response:  # fmt: skip
    """An image as a fresh JPEG: upright, without metadata, its longer side at most `size` pixels.

    With the seal that came with the key it is made of these bytes alone, and may be kept for ever.
    """
    found = await desk.pictures.get(key, int(query.size), query.seal)
    return _cached(request, found.content, "image/jpeg", found.etag, FOREVER if query.seal else ALWAYS_ASK)


@page.get("/", include_in_schema=False)
async def index(desk: OurDesk, request: Request) -> Response:
    """The page."""
    return _file(desk, request, PAGE)


@page.get("/static/{name:path}", include_in_schema=False)
async def static(desk: OurDesk, request: Request, name: str) -> Response:
    """The page's scripts and styles."""
    return _file(desk, request, name)


def _file(desk: Desk, request: Request, name: str) -> Response:
    found = desk.files.get(name)
    if found is None:
        raise UnknownName("the page has no such file")
    return _cached(request, found.content, found.kind, found.etag, ALWAYS_ASK)


def _cached(request: Request, content: bytes, kind: str, etag: str, how_long: str) -> Response:
    headers = {"ETag": etag, "Cache-Control": how_long}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
