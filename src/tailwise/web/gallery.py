"""The gallery, the search and the hunt for classes that are short: requests, responses and routes.

Nothing here computes what takes long: predictions and features are made by background jobs, and read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import Field

from ..campaign import gallery, search
from ..campaign.answers import counts
from ..campaign.class_needs import ClassNeed, nothing_short_text, short_classes
from ..campaign.classes import ClassRow, find_class
from ..campaign.gallery import Chosen, GalleryFilter, GalleryImage, GalleryOrder, ImageEvent
from ..campaign.images import find_image
from ..campaign.ledger import Ledger
from ..campaign.predictions import newest_version
from ..campaign.relabelling import MOST, relabel, undo_batch
from ..errors import BadInput
from ..types import FloatArray
from . import schemas
from .classes import NoteShown
from .routes import ERRORS, SOURCE, WRITE_ERRORS, CurrentRole, CurrentService
from .service import Service

MOST_TILES = 500
MOST_LIKE = 500
NEIGHBOURS = 12
MOST_FOUND = 200

State = Literal["unlabelled", "labelled", "other", "skipped", "conflict"]
Sort = Literal["path", "time", "confidence", "uncertainty", "similarity", "text"]
FoundBy = Literal["gallery", "hunt", "review", "duplicates", "map"]
Images = Annotated[list[schemas.ImageKey], Field(max_length=MOST)]
Text = Annotated[str, Field(max_length=500)]


class GalleryQuery(schemas.RequestBody):
    """Which images, and in which order; lists are alternatives."""

    states: list[State] = Field(default=[], max_length=5)
    classes: list[schemas.ClassId] = Field(default=[], max_length=5000)
    guesses: list[schemas.ClassId] = Field(default=[], max_length=5000)
    annotator: schemas.Annotator | None = None
    round: int | None = Field(default=None, ge=1, le=schemas.FAR)
    least: schemas.Share | None = None
    most: schemas.Share | None = None
    found_by: FoundBy | None = None
    flagged: bool = False
    duplicates: Literal["hide", "show", "only"] = "hide"
    images: Images | None = None
    sort: Sort = "path"
    reverse: bool = False
    like: list[schemas.ImageKey] = Field(default=[], max_length=MOST_LIKE)
    text: Text = ""


class GalleryRequest(GalleryQuery):
    """A part of the result; with the snapshot of an earlier response, of the same order."""

    offset: int = Field(default=0, ge=0, le=schemas.FAR)
    count: int = Field(default=200, ge=1, le=MOST_TILES)
    snapshot: str | None = Field(default=None, max_length=40)


class Tile(schemas.ResponseBody):
    """An image in the gallery."""

    key: schemas.ImageKey
    seal: str
    width: int
    height: int
    state: State
    class_id: int | None = None
    guess: int | None = None
    confidence: schemas.Share | None = None
    flagged: bool = False
    copies: bool = False
    score: float | None = Field(default=None, description="of a search: a cosine, or a probability")


class GalleryTiles(schemas.ResponseBody):
    """A part of a result."""

    snapshot: str
    total: schemas.Count
    offset: schemas.Count
    tiles: list[Tile]
    guesses: Literal["ready", "making", "none", "hidden"]
    search: Literal["ready", "making", "failed"]
    text: bool = Field(description="whether images can be searched by text")


class GalleryKeys(schemas.ResponseBody):
    """The keys of all images of a result."""

    total: schemas.Count
    keys: list[schemas.ImageKey]


class ImageDetail(schemas.ResponseBody):
    """One image with its history."""

    image: Tile
    events: list[ImageEvent]
    chosen: list[Chosen]
    notes: list[NoteShown]
    copies: list[schemas.ImageKey]
    neighbours: list[Tile]


class Relabel(schemas.RequestBody):
    """Label many images at once; without a class: none of the classes."""

    annotator: schemas.Annotator
    batch: schemas.Key = Field(max_length=48)
    images: Images = Field(min_length=1)
    class_id: schemas.ClassId | None
    found_by: FoundBy = "gallery"


class RelabelDone(schemas.ResponseBody):
    """What changed."""

    batch: str
    changed: schemas.Count
    unchanged: schemas.Count
    settled: schemas.Count


class UndoBatch(schemas.RequestBody):
    """Take back a change of many images."""

    annotator: schemas.Annotator
    key: schemas.Key = Field(max_length=40)
    batch: schemas.Key


class UndoneBatch(schemas.ResponseBody):
    """How many answers were taken back."""

    undone: schemas.Count


class Similar(schemas.RequestBody):
    """Images to be like."""

    images: list[schemas.ImageKey] = Field(min_length=1, max_length=MOST_LIKE)
    count: int = Field(default=50, ge=1, le=MOST_FOUND)
    unlabelled: bool = False


class TextSearch(schemas.RequestBody):
    """A text that images should fit."""

    text: str = Field(min_length=1, max_length=500)
    count: int = Field(default=50, ge=1, le=MOST_FOUND)
    unlabelled: bool = False


class Found(schemas.ResponseBody):
    """Images that were found, the best first."""

    tiles: list[Tile]


class HuntRequest(schemas.RequestBody):
    """The class to hunt for; without one, that which is shortest."""

    class_id: schemas.ClassId | None = None
    count: int = Field(default=48, ge=0, le=MOST_FOUND, description="0: say which classes are short, and no more")
    text: Text = Field(default="", description="what the images show, in place of what is known of the class")


class HuntResult(schemas.ResponseBody):
    """Classes that are short, and the likeliest images of one of them."""

    classes: list[ClassNeed]
    class_id: int | None = None
    labelled: int = 0
    short: int = 0
    how: Literal["model", "examples", "text", "none"] = "none"
    text: bool = Field(description="whether a class can be hunted by a text")
    message: str = Field(default="", description="why nothing can be offered")
    tiles: list[Tile] = Field(default=[])


api = APIRouter(prefix="/api", responses=ERRORS, tags=["Gallery"])


@api.post("/gallery", responses=WRITE_ERRORS)
async def show_gallery(service: CurrentService, body: GalleryRequest) -> GalleryTiles:
    """Images in any order; sorted or filtered by guesses only where people do not label blind."""
    direction = await _direction(service, body)
    return await service.read(lambda ledger: _gallery(service, ledger, body, direction))


@api.post("/gallery/keys", responses=WRITE_ERRORS)
async def gallery_keys(service: CurrentService, body: GalleryRequest) -> GalleryKeys:
    """The keys of a whole result, of the first 10,000 images at most."""
    direction = await _direction(service, body)
    return await service.read(lambda ledger: _keys(service, ledger, body, direction))


@api.get("/gallery/image/{key}")
async def image_detail(service: CurrentService, key: Annotated[str, Path(pattern=schemas.IMAGE)]) -> ImageDetail:
    """One image: who said what, why it was chosen, notes, copies and neighbours."""
    return await service.read(lambda ledger: _detail(service, ledger, key))


@api.post("/gallery/relabel", responses=WRITE_ERRORS)
async def relabel_images(service: CurrentService, role: CurrentRole, body: Relabel) -> RelabelDone:
    """Label many images at once; where others differ, the owner's change decides, an annotator's does not."""
    return await service.write(lambda ledger: _relabel(ledger, body, settle=role == "owner"))


@api.post("/gallery/undo", responses=WRITE_ERRORS)
async def undo_relabel(service: CurrentService, body: UndoBatch) -> UndoneBatch:
    """Take back all of a change that is left."""

    def command(ledger: Ledger) -> UndoneBatch:
        return UndoneBatch(undone=len(undo_batch(ledger, body.batch, body.annotator, key=body.key, source=SOURCE)))

    return await service.write(command)


@api.post("/find/similar", responses=WRITE_ERRORS)
async def find_similar(service: CurrentService, body: Similar) -> Found:
    """The images nearest to some."""

    def query(ledger: Ledger) -> Found:
        ids = _ids(ledger, body.images)
        matches = search.more_like(ledger, ids, body.count, unlabelled=body.unlabelled, make=False)
        return Found(tiles=_matches(service, ledger, matches))

    return await service.read(query)


@api.post("/find/text", responses=WRITE_ERRORS)
async def find_by_text(service: CurrentService, body: TextSearch) -> Found:
    """The images that fit a text best, where the backbone knows texts."""
    direction = await asyncio.to_thread(search.text_direction, service.ledger, body.text)

    def query(ledger: Ledger) -> Found:
        matches = search.find_direction(ledger, direction, body.count, unlabelled=body.unlabelled)
        return Found(tiles=_matches(service, ledger, matches))

    return await service.read(query)


@api.post("/hunt", responses=WRITE_ERRORS)
async def hunt(service: CurrentService, body: HuntRequest) -> HuntResult:
    """Classes that are short, and the likeliest unlabelled images of one; not where people label blind."""
    asked = await service.read(lambda ledger: _hunted(service, ledger, body))
    direction = None
    if asked.text is not None:  # a net makes it, so not in a reader's thread
        direction = await asyncio.to_thread(search.text_direction, service.ledger, asked.text)
    return await service.read(lambda ledger: _hunt(service, ledger, asked, direction))


async def _direction(service: Service, body: GalleryQuery) -> FloatArray | None:
    """The features of the text to sort by; a net makes them, so not in a reader's thread."""
    if body.sort != "text":
        return None
    return await asyncio.to_thread(search.text_direction, service.ledger, body.text)


def _asked(
    service: Service, ledger: Ledger, body: GalleryQuery, direction: FloatArray | None
) -> tuple[GalleryFilter, GalleryOrder, gallery.Similarity | None]:
    asked = GalleryFilter(
        tuple(body.states), tuple(body.classes), tuple(body.guesses), body.annotator, body.round, body.least,
        body.most, body.found_by, body.flagged, body.duplicates,
        None if body.images is None else tuple(_ids(ledger, body.images)),
    )  # fmt: skip
    order = GalleryOrder(body.sort, body.reverse, tuple(_ids(ledger, body.like)))
    if asked.by_guess or order.by in gallery.BY_GUESS:
        service.prelabels.check_not_blind(ledger)
    text = None if direction is None else (lambda _: search.fitting(ledger, direction))
    return asked, order, text


def _gallery(
    service: Service, ledger: Ledger, body: GalleryRequest, direction: FloatArray | None
) -> GalleryTiles:  # fmt: skip
    blind = service.prelabels.is_blind(ledger)
    guesses = _guesses_state(service, ledger, blind=blind)
    asked, order, text = _asked(service, ledger, body, direction)
    page = gallery.gallery_page(
        ledger, asked, order, offset=body.offset, count=body.count, snapshot=body.snapshot, similarity=text
    )
    found = gallery.describe_images(ledger, page.ids.tolist(), guesses=not blind)
    return GalleryTiles(
        snapshot=page.snapshot, total=page.total, offset=page.offset, tiles=[_tile(one) for one in found],
        guesses=guesses, search=_search_state(service, ledger), text=search.has_text(ledger),
    )  # fmt: skip


def _keys(service: Service, ledger: Ledger, body: GalleryRequest, direction: FloatArray | None) -> GalleryKeys:
    asked, order, text = _asked(service, ledger, body, direction)
    page = gallery.gallery_page(
        ledger, asked, order, count=MOST, snapshot=body.snapshot, similarity=text
    )  # fmt: skip
    return GalleryKeys(total=page.total, keys=gallery.keys_of(ledger, page.ids))


def _guesses_state(
    service: Service, ledger: Ledger, *, blind: bool
) -> Literal["ready", "making", "none", "hidden"]:  # fmt: skip
    """Whether guesses can be shown; asks for those of a new model."""
    if blind:
        return "hidden"
    version = newest_version(ledger)
    if version is None or service.jobs.predictions.failed == version:
        return "none"
    if gallery.known_predictions(ledger) is not None:
        return "ready"
    service.jobs.predictions.of(version)
    return "making"


def _search_state(service: Service, ledger: Ledger) -> Literal["ready", "making", "failed"]:
    """Whether images can be searched; asks for what that needs."""
    if search.known_index(ledger) is not None:
        return "ready"
    service.jobs.prepare()
    return "failed" if service.jobs.preparing == "failed" else "making"


def _detail(service: Service, ledger: Ledger, key: str) -> ImageDetail:
    row, blind = find_image(ledger, key), service.prelabels.is_blind(ledger)
    found = gallery.image_history(ledger, row, guesses=not blind)
    matches: Sequence[search.Match] = []
    if _search_state(service, ledger) == "ready":
        try:
            matches = search.more_like(ledger, [row.id], NEIGHBOURS, make=False)
        except search.NotReady:  # an image that came after the features were made
            service.jobs.prepare()
    return ImageDetail(
        image=_tile(found.image),
        events=list(found.events),
        chosen=list(found.chosen),
        notes=[NoteShown.of(one) for one in found.notes],
        copies=list(found.copies),
        neighbours=_matches(service, ledger, matches),
    )


def _relabel(ledger: Ledger, body: Relabel, *, settle: bool) -> RelabelDone:
    if body.class_id is not None and find_class(ledger, body.class_id).retired:
        raise BadInput("this class is retired; take another")
    done = relabel(
        ledger, _ids(ledger, body.images), body.class_id, body.annotator, batch=body.batch, found_by=body.found_by,
        source=SOURCE, settle=settle,
    )  # fmt: skip
    return RelabelDone(
        batch=done.batch, changed=len(done.changed), unchanged=done.unchanged, settled=done.settled
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Hunted:
    """What is hunted: the class, if any, how many images, and the text that is needed for it."""

    klass: ClassRow | None
    count: int
    text: str | None


def _hunted(service: Service, ledger: Ledger, body: HuntRequest) -> _Hunted:
    service.prelabels.check_not_blind(ledger)
    _guesses_state(service, ledger, blind=False)
    short = short_classes(ledger)
    chosen = body.class_id if body.class_id is not None else (short[0].class_id if short else None)
    if chosen is None or not body.count:
        return _Hunted(None, 0, None)
    klass = find_class(ledger, chosen)
    return _Hunted(klass, body.count, body.text.strip() or search.usual_text(ledger, klass))


def _hunt(service: Service, ledger: Ledger, asked: _Hunted, direction: FloatArray | None) -> HuntResult:
    short, klass = short_classes(ledger), asked.klass
    known = HuntResult(classes=short, text=search.has_text(ledger), message="" if short else nothing_short_text(ledger))
    if klass is None:
        return known
    missing = next((one.short for one in short if one.class_id == klass.id), 0)
    known = known.model_copy(update={"class_id": klass.id, "short": missing, "labelled": counts(ledger)[klass.id]})
    try:
        found = search.hunt(ledger, klass, asked.count, text=asked.text, direction=direction, make=False)
    except (BadInput, search.NotReady) as error:
        _search_state(service, ledger)
        return known.model_copy(update={"message": service.public(str(error))})
    tiles = _matches(service, ledger, found.matches)
    return known.model_copy(update={"how": found.how, "message": "", "tiles": tiles})


def _matches(service: Service, ledger: Ledger, matches: Sequence[search.Match]) -> list[Tile]:
    blind = service.prelabels.is_blind(ledger)
    found = gallery.describe_images(ledger, [one.image for one in matches], guesses=not blind)
    scores = {one.image: one.score for one in matches}
    return [_tile(one, score=scores[one.id]) for one in found]


def _tile(one: GalleryImage, score: float | None = None) -> Tile:
    return Tile(
        key=one.key, seal=one.seal, width=one.width, height=one.height, state=one.state, class_id=one.class_id,  # type: ignore[arg-type]
        guess=one.guess, confidence=one.confidence, flagged=one.flagged, copies=one.copies, score=score,
    )  # fmt: skip


def _ids(ledger: Ledger, keys: Sequence[str]) -> list[int]:
    """Ids of images by their keys, in their order; a key that is not there is an error."""
    known = gallery.ids_of(ledger, keys)
    missing = next((key for key in keys if key not in known), None)
    if missing is not None:
        raise BadInput(f"no image has the key {missing!r}; load the page again")
    return [known[key] for key in keys]
