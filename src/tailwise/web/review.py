"""The review views of the page: likely label errors and near-duplicates, found in the background and kept in files.

What was found last is shown at once, without what has been decided since; the page asks for a fresh look where labels
or images have changed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

from fastapi import APIRouter
from pydantic import Field

from ..campaign import answers
from ..campaign.duplicates import (
    DuplicateGroup,
    duplicate_groups,
    duplicates_key,
    kept_edges,
)
from ..campaign.ledger import Ledger
from ..campaign.review import LabelError, kept_review, review_key
from . import schemas
from .routes import ERRORS, OWNER, WRITE_ERRORS, CurrentService
from .views import Prelabels, Read, seals_of

MOST_ERRORS = 200
MOST_GROUPS = 200
MOST_SHOWN = 60  # images of a group that are sent

api = APIRouter(prefix="/api/review", responses=ERRORS)


class ReviewImage(schemas.ResponseBody):
    """An image to show."""

    image: str
    seal: str


class ErrorItem(ReviewImage):
    """A label that may be wrong."""

    given: int = Field(description="the class that it is labelled as")
    suggested: int = Field(description="the class that it may be")
    probability: schemas.Share = Field(description="of the suggested class, by a model that has not seen the label")
    likely: bool
    annotators: list[str]
    neighbours: list[ReviewImage] = Field(description="similar images that are labelled as the suggested class")


class LabelErrors(schemas.ResponseBody):
    """Likely label errors, worst first."""

    items: list[ErrorItem]
    likely: schemas.Count
    checked: schemas.Count
    labels: schemas.Count
    enough: bool = Field(description="whether two classes have two labels each")
    installed: bool = Field(description="whether cleanlab is installed")
    fresh: bool = Field(description="whether no label has changed since the check")
    job: schemas.Job


class GroupImage(ReviewImage):
    """An image of a group, with its label."""

    class_id: int | None
    outcome: str | None


class ImageGroup(schemas.ResponseBody):
    """Images that look alike."""

    images: list[GroupImage]
    size: schemas.Count = Field(description="images of the group; of a large one not all are sent")
    disagree: bool
    unlabelled: schemas.Count


class Duplicates(schemas.ResponseBody):
    """Groups of images that look alike: first those whose labels differ, then those that are labelled in part."""

    groups: list[ImageGroup]
    count: schemas.Count
    images: schemas.Count = Field(description="in all groups")
    disagree: schemas.Count = Field(description="groups whose labels differ")
    installed: bool = Field(description="whether imagehash is installed")
    fresh: bool
    job: schemas.Job


@api.get("/errors", name="label_errors")
async def label_errors(service: CurrentService) -> LabelErrors:
    """What was found last; not available where people label blind, as it reveals predictions."""
    job = service.errors_job.state
    return await service.read_parts(lambda read: errors_found(read, service.prelabels, job))


@api.post("/errors/start", name="check_labels", responses=WRITE_ERRORS, dependencies=OWNER)
async def check_labels(service: CurrentService, body: schemas.RequestBody) -> schemas.JobStarted:
    """Check the labels in the background."""
    del body
    await service.read(service.prelabels.check_not_blind)
    return schemas.JobStarted(job=service.errors_job.start({"review": "errors"}))


@api.get("/duplicates", name="duplicates")
async def duplicates(service: CurrentService) -> Duplicates:
    """The groups that were found last, with their labels now."""
    job = service.duplicates_job.state
    return await service.read_parts(lambda read: duplicates_found(read, job))


@api.post("/duplicates/start", name="look_for_duplicates", responses=WRITE_ERRORS, dependencies=OWNER)
async def look_for_duplicates(service: CurrentService, body: schemas.RequestBody) -> schemas.JobStarted:
    """Look for images that are alike in the background."""
    del body
    return schemas.JobStarted(job=service.duplicates_job.start({"review": "duplicates"}))


def errors_found(read: Read, prelabels: Prelabels, job: schemas.Job) -> LabelErrors:
    """The kept findings, without those whose label has changed or was settled since."""
    read(prelabels.check_not_blind)
    counts: dict[int, int] = read(answers.counts)
    kept, key = read(kept_review), read(review_key)
    found = () if kept is None else kept.errors
    items = read(lambda ledger: _error_items(ledger, found))
    return LabelErrors(
        items=items[:MOST_ERRORS], likely=sum(one.likely for one in items), checked=0 if kept is None else kept.checked,
        labels=sum(counts.values()), enough=sum(count >= 2 for count in counts.values()) >= 2,
        installed=find_spec("cleanlab") is not None, fresh=kept is not None and kept.key == key, job=job,
    )  # fmt: skip


def _error_items(ledger: Ledger, errors: Sequence[LabelError]) -> list[ErrorItem]:
    rows = ledger.read(
        "SELECT image_id, class_id FROM verdict WHERE outcome = 'agreed' "
        "AND image_id IN (SELECT value FROM json_each(?))",
        (json.dumps([one.image for one in errors]),),
    )
    label = {row["image_id"]: row["class_id"] for row in rows}
    still = [one for one in errors if label.get(one.image) == one.given_id]
    shown = _images(ledger, [number for one in still for number in (one.image, *one.neighbours)])
    return [
        ErrorItem(
            **shown[one.image].model_dump(), given=one.given_id, suggested=one.suggested_id,
            probability=one.probability, likely=one.likely, annotators=list(one.annotators),
            neighbours=[shown[number] for number in one.neighbours if number in shown],
        )
        for one in still
        if one.image in shown
    ]  # fmt: skip


def _images(ledger: Ledger, ids: Sequence[int]) -> dict[int, ReviewImage]:
    """Keys and seals of images that can be shown, by id."""
    rows = ledger.read(
        "SELECT id, key FROM image WHERE trouble IS NULL AND id IN (SELECT value FROM json_each(?))",
        (json.dumps(sorted(set(ids))),),
    )
    seals = seals_of(ledger, [row["id"] for row in rows])
    return {row["id"]: ReviewImage(image=row["key"], seal=seals[row["id"]]) for row in rows}


def duplicates_found(read: Read, job: schemas.Job) -> Duplicates:
    """The kept groups with their labels now."""
    kept, key = read(kept_edges), read(duplicates_key)
    groups: list[DuplicateGroup] = [] if kept is None else read(lambda ledger: duplicate_groups(ledger, kept[1]))
    sent = groups[:MOST_GROUPS]
    numbers = [one.image for group in sent for one in group.images[:MOST_SHOWN]]
    seals = read(lambda ledger: seals_of(ledger, numbers))
    return Duplicates(
        groups=[_group(group, seals) for group in sent], count=len(groups),
        images=sum(len(group.images) for group in groups), disagree=sum(group.disagree for group in groups),
        installed=find_spec("imagehash") is not None, fresh=kept is not None and kept[0] == key, job=job,
    )  # fmt: skip


def _group(group: DuplicateGroup, seals: dict[int, str]) -> ImageGroup:
    images = [
        GroupImage(image=one.key, seal=seals[one.image], class_id=one.class_id, outcome=one.outcome)
        for one in group.images[:MOST_SHOWN]
    ]
    return ImageGroup(
        images=images, size=len(group.images), disagree=group.disagree, unlabelled=group.unlabelled
    )  # fmt: skip
