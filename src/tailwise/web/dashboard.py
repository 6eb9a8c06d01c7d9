"""The dashboard: counts, measures from the background, the settings of the next round, and a download of the labels."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from ..campaign.ledger import Ledger
from ..campaign.overview import Overview, overview
from ..campaign.service import Campaign
from ..campaign.state import Settings, write_settings
from ..errors import BadInput, UnknownName
from . import schemas
from .routes import ERRORS, OWNER, WRITE_ERRORS, CurrentService

api = APIRouter(prefix="/api/dashboard", responses=ERRORS)


class NewSettings(schemas.RequestBody):
    """Settings of the next round; those that are left out stay."""

    strategy: str | None = Field(default=None, min_length=1, max_length=60)
    balance: str | None = Field(default=None, min_length=1, max_length=60)
    budget: int | None = Field(default=None, ge=1, le=1_000_000)
    overlap: int | None = Field(default=None, ge=1, le=100)
    audit: Annotated[float, Field(ge=0, le=0.5)] | None = None
    wanted_accuracy: schemas.Share | None = None


class Dashboard(schemas.ResponseBody):
    """Everything on the dashboard."""

    overview: Overview
    job: schemas.Job  # of measuring


class Saved(schemas.ResponseBody):
    """The settings that are in use now."""

    settings: Settings


class Measure(schemas.RequestBody):
    """Asks for the learning curve, the advice and the audit to be measured again."""


@api.get("")
async def dashboard(service: CurrentService) -> Dashboard:
    """Counts of now, and what was measured last."""
    job = service.measures_job.state
    return Dashboard(overview=await service.read(overview), job=job)


@api.post("/measure", responses=WRITE_ERRORS, dependencies=OWNER)
async def measure(service: CurrentService, body: Measure) -> schemas.JobStarted:  # noqa: ARG001 - an empty object
    """Measure in the background."""
    return schemas.JobStarted(job=service.measures_job.start({"measure": True}))


@api.post("/settings", responses=WRITE_ERRORS, dependencies=OWNER)
async def settings(service: CurrentService, body: NewSettings) -> Saved:
    """Change the settings of the next round."""
    changes = body.model_dump(exclude_none=True)
    try:
        return Saved(settings=await service.write(lambda ledger: write_settings(ledger, **changes)))
    except UnknownName as error:  # the name of a strategy, not an address
        raise BadInput(str(error)) from error


@api.get(
    "/labels.csv", response_class=Response, responses={200: {"content": {"text/csv": {}}}}, dependencies=OWNER,
)  # fmt: skip
async def labels(service: CurrentService) -> Response:
    """All labels as a CSV file."""
    content = await service.read(_labels)
    headers = {"Content-Disposition": 'attachment; filename="labels.csv"', "Cache-Control": "private, no-store"}
    return Response(content, media_type="text/csv", headers=headers)


def _labels(ledger: Ledger) -> bytes:
    with TemporaryDirectory(prefix="tailwise-") as folder:
        return Campaign(ledger).export(Path(folder) / "labels.csv").read_bytes()
