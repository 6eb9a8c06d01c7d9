"""The map on the page: whether it is drawn, drawing it in the background, and its points with what is known of them.

Points travel as bytes, 19 for an image, so that 100,000 are less than 2 MB and need no parsing: four bytes with the
length of a JSON header, the header, then one array after another, little-endian: keys (8 bytes each), x, y, class,
guess, round (16 bits each) and certainty (8 bits).
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from ..campaign.classes import list_classes
from ..campaign.ledger import Ledger
from ..campaign.projection import PointValues, Projection, check_method, point_values, stored_projection
from ..errors import UnknownName
from ..report.map import class_colours
from ..types import IntArray
from . import schemas
from .routes import ALWAYS_ASK, ERRORS, OWNER, WRITE_ERRORS, CurrentService, cached
from .views import Prelabels

MOST = 65_535  # of 16 bits; on both axes it is 1
OTHER = 65_535  # a class: none of the classes
UNSURE = 255  # a certainty: not known
BYTES = "application/octet-stream"

api = APIRouter(prefix="/api/map", responses=ERRORS)


class MapStatus(schemas.ResponseBody):
    """Whether there is a map, and how far drawing one is."""

    points: schemas.Count  # images on the map; 0 where none is drawn
    missing: schemas.Count  # images that are not on it yet
    method: str | None
    backbone: str | None
    umap: bool  # whether it is installed
    job: schemas.Job


class DrawMap(schemas.RequestBody):
    """How to draw it."""

    method: Literal["auto", "pca", "umap"] = "auto"
    redo: bool = Field(default=False, description="draw all anew, rather than place what is new")


@api.get("", name="map_status")
async def status(service: CurrentService) -> MapStatus:
    """Whether the map is drawn, and how far the job is."""
    return await service.read(lambda ledger: map_status(ledger, service.map_job.state))


@api.post("/start", name="draw_map", responses=WRITE_ERRORS, dependencies=OWNER)
async def draw(service: CurrentService, body: DrawMap) -> schemas.JobStarted:
    """Draw the map in the background, or place the images that are new on it."""
    check_method(body.method)
    return schemas.JobStarted(job=service.map_job.start({"map": {"method": body.method, "redo": body.redo}}))


@api.get(
    "/points", name="map_points", response_class=Response,
    responses={200: {"content": {BYTES: {}}}, 304: {"description": "not modified"}},
)  # fmt: skip
async def points(service: CurrentService, request: Request) -> Response:
    """All points as bytes; without guesses where people label blind."""
    content = await service.read(lambda ledger: points_of(ledger, service.prelabels))
    return cached(request, content, BYTES, f'"{hashlib.sha256(content).hexdigest()[:32]}"', ALWAYS_ASK)


def map_status(ledger: Ledger, job: schemas.Job) -> MapStatus:
    """Read from the stored map."""
    found = stored_projection(ledger)
    if found is None:
        usable = ledger.read("SELECT count(*) FROM image WHERE trouble IS NULL AND duplicate_of IS NULL")[0][0]
        return MapStatus(points=0, missing=usable, method=None, backbone=None, umap=_umap(), job=job)
    return MapStatus(
        points=len(found), missing=found.made, method=found.method, backbone=found.backbone, umap=_umap(), job=job
    )


def _umap() -> bool:
    return find_spec("umap") is not None


@dataclass(frozen=True, slots=True, eq=False)
class Guesses:
    """What people may see of the model's guesses."""

    state: Literal["none", "blind", "waiting", "ready"]
    classes: IntArray  # (n,) ids, 0 without a guess
    certainty: NDArray[np.float32]  # (n,)


def points_of(ledger: Ledger, prelabels: Prelabels) -> bytes:
    """The stored map with what is known of its images, as bytes."""
    found = stored_projection(ledger)
    if found is None:
        raise UnknownName("the map is not drawn yet; draw it with POST /api/map/start")
    classes = list_classes(ledger, retired=True)
    values = point_values(ledger, found.images)
    guesses = guesses_of(ledger, found, values, prelabels)
    keys: dict[int, str] = {row[0]: row[1] for row in ledger.read("SELECT id, key FROM image")}
    colours = {"light": class_colours(len(classes)), "dark": class_colours(len(classes), dark=True)}
    header = {
        "points": len(found), "method": found.method, "backbone": found.backbone, "missing": found.made,
        "guesses": guesses.state, "classes": [one.id for one in classes], "colours": colours,
    }  # fmt: skip
    places = {one.id: place + 1 for place, one in enumerate(classes)}
    certainty = np.where(guesses.classes > 0, np.rint(guesses.certainty * (UNSURE - 1)), UNSURE)
    arrays = (
        bytes.fromhex("".join([keys[number] for number in found.images.tolist()])),
        np.rint(found.xy[:, 0] * MOST).astype("<u2").tobytes(),
        np.rint(found.xy[:, 1] * MOST).astype("<u2").tobytes(),
        _codes(values.classes, places), _codes(guesses.classes, places),
        np.minimum(values.rounds, MOST).astype("<u2").tobytes(), certainty.astype(np.uint8).tobytes(),
    )  # fmt: skip
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)  # so that arrays begin where a browser can use them without a copy
    return b"".join([struct.pack("<I", len(text)), text, *arrays])


def guesses_of(ledger: Ledger, found: Projection, values: PointValues, prelabels: Prelabels) -> Guesses:
    """The newest model's guesses; until they have arrived, those that images were chosen with."""
    nothing = np.zeros(len(found), np.int64)
    if prelabels.is_blind(ledger):
        return Guesses("blind", nothing, nothing.astype(np.float32))
    rows = ledger.read("SELECT model_version FROM round WHERE model_version IS NOT NULL ORDER BY id DESC LIMIT 1")
    version = rows[0][0] if rows else None
    predictions = prelabels.predictions.of(version)
    if predictions is None or not len(predictions.ids):
        waiting = version is not None and prelabels.predictions.failed != version
        state: Literal["none", "waiting", "ready"] = "ready" if values.guesses.any() else "none"
        return Guesses("waiting" if waiting else state, values.guesses, values.certainty)
    at = np.minimum(np.searchsorted(predictions.ids, found.images), len(predictions.ids) - 1)
    known = predictions.ids[at] == found.images
    classes = np.where(known, predictions.classes[at, 0], 0)
    return Guesses("ready", classes, np.where(known, predictions.confidence[at, 0], 0).astype(np.float32))


def _codes(ids: IntArray, places: dict[int, int]) -> bytes:
    """Class ids as places in the header's list, from 1; 0 without a class, 65535 for other."""
    known, inverse = np.unique(ids, return_inverse=True)
    codes = [OTHER if one < 0 else places.get(one, 0) for one in known.tolist()]
    return np.array(codes, dtype="<u2")[inverse].tobytes()
