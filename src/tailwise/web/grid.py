"""The grid: images of the open round that the model takes for one class, and how many each class has."""

from __future__ import annotations

from pydantic import Field

from ..campaign import leases
from ..campaign.ledger import Ledger
from ..campaign.rounds import current_round
from . import schemas, views
from .views import Prelabels

MOST_GRID = 200


class Grid(schemas.RequestBody):
    """Asks for images of one predicted class."""

    annotator: schemas.Annotator
    class_id: schemas.ClassId
    count: int = Field(default=48, ge=1, le=MOST_GRID)


class ClassProposals(schemas.ResponseBody):
    """How many images of the round a class is proposed for, of those that the annotator could answer."""

    class_id: int
    images: schemas.Count


class GridImages(schemas.LeasedImages):
    """Images of one predicted class, and how many each class has."""

    counts: list[ClassProposals] = Field(description="the class with the most images first")


def lease_class(ledger: Ledger, body: Grid, prelabels: Prelabels) -> GridImages:
    """Images of the open round with one predicted class; an error where people label blind."""
    prelabels.check_not_blind(ledger)
    current = current_round(ledger)
    if current is None:
        return GridImages(images=[], counts=[])
    free = leases.free_by_class(ledger, current.id, body.annotator)
    leased = leases.lease(ledger, current.id, body.annotator, body.count, predicted=body.class_id)
    counts = sorted(free.items(), key=lambda one: (-one[1], one[0]))
    return GridImages(
        images=views.leased_images(ledger, leased, current.model_version, prelabels).images,
        counts=[ClassProposals(class_id=number, images=count) for number, count in counts],
    )
