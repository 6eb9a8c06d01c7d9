"""What a request changes, as functions of the ledger: they run in the writer's thread, inside its transaction."""

from __future__ import annotations

from collections.abc import Iterable

from ..campaign import answers, leases, rounds
from ..campaign.answers import Answer, Recorded, Refused
from ..campaign.images import find_image
from ..campaign.ledger import Ledger, now
from ..errors import BadInput, UnknownName
from . import schemas, views
from .images import seal_of
from .predictions import Sight

PAGE = "page"


def lease(ledger: Ledger, asked: schemas.Lease, sight: Sight) -> schemas.Pictures:
    """Images of the open round for one person; none where no round is open."""
    current = rounds.current_round(ledger)
    if current is None:
        return schemas.Pictures(images=[])
    leased = leases.lease(ledger, current.id, asked.annotator, asked.count)
    return views.pictures(ledger, leased, current.model_version, sight)


def lease_class(ledger: Ledger, asked: schemas.Grid, sight: Sight) -> schemas.Pictures:
    """Images of the open round that the model takes for one class; to nobody where people label blind."""
    sight.check_open(ledger)
    current = rounds.current_round(ledger)
    if current is None:
        return schemas.Pictures(images=[])
    leased = leases.lease(ledger, current.id, asked.annotator, asked.count, predicted=asked.class_id)
    return views.pictures(ledger, leased, current.model_version, sight)


def release(ledger: Ledger, asked: schemas.Release) -> int:
    """Give images back; keys that are not known are held by nobody."""
    known = _ids(ledger, asked.images)
    return leases.release(ledger, asked.annotator, list(known.values())) if known else 0


def save(ledger: Ledger, asked: schemas.Answers) -> schemas.Results:
    """Record answers; one that cannot be recorded does not hold up the others."""
    found = [(said, _asked(ledger, said)) for said in asked.answers]
    rows = [_row(asked.annotator, said, one) for said, one in found if isinstance(one, rounds.Asked)]
    outcomes = iter(answers.record_each(ledger, rows))
    return schemas.Results(
        results=[_result(said, next(outcomes) if isinstance(one, rounds.Asked) else one) for said, one in found]
    )


def undo(ledger: Ledger, asked: schemas.Undo) -> schemas.UndoResult:
    """Take an answer back, the named one or the last of this person in the open round."""
    current = rounds.current_round(ledger)
    undone = answers.undo(
        ledger, asked.key, asked.annotator, undoes_key=asked.undoes, source=PAGE,
        round_id=current.id if current and asked.undoes is None else None,
    )  # fmt: skip
    if undone is None:
        return schemas.UndoResult(undone=None)
    image = find_image(ledger, undone.image)
    return schemas.UndoResult(
        undone=schemas.Undone(image=image.key, kind=undone.kind, class_id=undone.class_id, restored=undone.restored)
    )


def settle(ledger: Ledger, asked: schemas.Settle) -> schemas.Settled:
    """Decide an image on which people differ, or of which somebody has said something."""
    if (asked.kind == "settle-label") != (asked.class_id is not None):
        raise BadInput("settle-label names a class, and settle-other names none")
    image = find_image(ledger, asked.image)
    told_before = ledger.read("SELECT 1 FROM event WHERE key = ?", (asked.key,))
    if not told_before and not answers.is_answered(ledger, image.id):
        raise BadInput(f"asked to settle the image {image.key}, but nobody has said what it is; label it instead")
    done = answers.settle(
        ledger, key=asked.key, image=image.id, annotator=asked.annotator, class_id=asked.class_id, source=PAGE
    )
    return schemas.Settled(event=done.event_id, fresh=done.fresh)


def _ids(ledger: Ledger, keys: Iterable[str]) -> dict[str, int]:
    """Ids of the images that are known."""
    found = {}
    for key in set(keys):
        try:
            found[key] = find_image(ledger, key).id
        except UnknownName:
            continue
    return found


def _asked(ledger: Ledger, said: schemas.Answer) -> rounds.Asked | schemas.ErrorText:
    """The image that an answer is about, with its round; or why it is about none."""
    found = rounds.asked_last(ledger, said.image)
    if found is None:
        return schemas.ErrorText(code="unknown", message=f"no image has the key {said.image!r}")
    if said.seal not in (None, seal_of(find_image(ledger, found.image))):
        message = f"the image {said.image} has other bytes than those that were answered; load the page, and look again"
        return schemas.ErrorText(code="changed", message=message)
    return found


def _row(annotator: str, said: schemas.Answer, asked: rounds.Asked) -> Answer:
    """No later than now, whatever a clock says."""
    at = None if said.at is None else min(said.at, now())
    return Answer(
        said.key, asked.image, annotator, said.kind, said.class_id, at, asked.round_id, asked.model_version, PAGE,
        said.seconds,
    )  # fmt: skip


def _result(said: schemas.Answer, outcome: Recorded | Refused | schemas.ErrorText) -> schemas.Saved | schemas.NotSaved:
    if isinstance(outcome, Recorded):
        return schemas.Saved(key=said.key, event=outcome.event_id, fresh=outcome.fresh)
    if isinstance(outcome, Refused):
        outcome = schemas.ErrorText(code="bad_input", message=outcome.reason)
    return schemas.NotSaved(key=said.key, error=outcome)
