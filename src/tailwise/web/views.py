"""What a request is shown, as functions of the ledger: rows in, wire objects out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from .. import __version__
from ..campaign import answers, rounds
from ..campaign.agreement import AnnotatorAgreement, annotator_agreement
from ..campaign.classes import list_classes
from ..campaign.images import find_image
from ..campaign.leases import Leased
from ..campaign.ledger import CURRENT_SCHEMA, Ledger, read_meta
from ..campaign.state import Settings, read_settings
from . import schemas
from .images import seal_of, seals_of
from .predictions import Glimpse, Sight
from .tallies import Ask, RoundTally, Tallies, realised

KEYS = "1234567890"
PAIR = 2
MOST_PAIRS = 10


def state(ask: Ask, annotator: str | None, tallies: Tallies, sight: Sight, job: schemas.Job) -> schemas.State:
    """All that the page shows around the image."""
    settings, current, classes, name, blind = ask(lambda ledger: _surroundings(ledger, sight))
    tally = tallies.get(ask)
    of_round = tallies.of_round(ask, current.id) if current else None
    finished = of_round is None or of_round.progress.complete
    return schemas.State(
        campaign=name,
        images=schemas.Images(usable=tally.usable),
        classes=classes,
        round=_progress(current, of_round, annotator) if current and of_round else None,
        balance=_balance(current, tally.labelled, of_round.realised if of_round else {}),
        settings=schemas.Habits(overlap=settings.overlap, blind=blind),
        next=schemas.NextBatch(budget=settings.budget, **asdict(tallies.left(ask))) if finished else None,
        job=job,
        annotators=list(tally.annotators),
        conflicts=tally.conflicts,
        schema_version=CURRENT_SCHEMA,
        version=__version__,
    )


def key_of(place: int) -> str:
    """The key for the class at a place: ten digits, then with shift.

    >>> key_of(0), key_of(9), key_of(10), key_of(20)
    ('1', '0', '⇧1', '')
    """
    shift, digit = divmod(place, len(KEYS))
    return ("", "⇧")[shift] + KEYS[digit] if shift < PAIR else ""


def pictures(ledger: Ledger, leased: Iterable[Leased], version: str | None, sight: Sight) -> schemas.Pictures:
    """Images to be answered, with as much of the model's guess as people are to see."""
    glimpse, kept = sight.through(ledger, version), list(leased)
    seals = seals_of(ledger, [one.image for one in kept])
    return schemas.Pictures(images=[_picture(one, seals[one.image], glimpse) for one in kept])


def history(ledger: Ledger, annotator: str, limit: int) -> schemas.History:
    """What one person said last, the latest first."""
    given = answers.history(ledger, annotator, limit=limit, changed=True)
    return schemas.History(items=[_past(ledger, one) for one in given])


def conflicts(ask: Ask, annotator: str | None, sight: Sight) -> schemas.Conflicts:
    """Images on which people differ, how far they agree on the whole, and what one person has settled last."""
    found = ask(annotator_agreement)
    items = ask(lambda ledger: [_conflict(ledger, one, sight) for one in answers.conflicts(ledger)])
    return schemas.Conflicts(
        items=items,
        settled=ask(lambda ledger: _settlements(ledger, annotator)) if annotator else [],
        agreement=_agreement(found),
    )


def _agreement(found: AnnotatorAgreement) -> schemas.Agreement:
    pairs = [
        schemas.PairAgreement(first=one.first, second=one.second, cohen=one.kappa.value, images=one.kappa.images)
        for one in sorted(found.pairs, key=lambda pair: -pair.kappa.images)
        if one.kappa.value is not None
    ]
    return schemas.Agreement(
        cohen=sum(one.cohen for one in pairs) / len(pairs) if pairs else None, pairs=pairs[:MOST_PAIRS],
        pair_count=len(pairs), krippendorff=found.alpha.value, images=found.alpha.images,
    )  # fmt: skip


def all_rounds(ask: Ask) -> schemas.Rounds:
    """Every round with what was foreseen and what came."""
    return schemas.Rounds(items=[ask(partial(_round, one=one)) for one in ask(rounds.list_rounds)])


def _surroundings(
    ledger: Ledger, sight: Sight
) -> tuple[Settings, rounds.Round | None, list[schemas.Klass], schemas.CampaignName, bool]:
    """What is read quickly, at one moment."""
    settings = read_settings(ledger)
    known = sorted(list_classes(ledger, retired=True), key=lambda one: one.retired)
    classes = [
        schemas.Klass(id=one.id, name=one.name, key=key_of(at), retired=one.retired) for at, one in enumerate(known)
    ]  # fmt: skip
    name = schemas.CampaignName(id=read_meta(ledger, "campaign") or "", name=settings.name or ledger.folder.name)
    return settings, rounds.current_round(ledger), classes, name, sight.is_blind(ledger)


def _progress(current: rounds.Round, tally: RoundTally, annotator: str | None) -> schemas.RoundProgress:
    found = tally.progress
    return schemas.RoundProgress(
        id=current.id, budget=current.budget, answered=found.done, skipped=min(tally.skipped, found.done),
        remaining=found.remaining, complete=found.complete, mine=tally.mine.get(annotator or "", 0),
    )  # fmt: skip


def _balance(
    current: rounds.Round | None, labelled: Mapping[int, int], fresh: Mapping[int, int]
) -> list[schemas.ClassBalance]:  # fmt: skip
    expected, wanted = foreseen(current) if current else ({}, {})
    before = _by_class(class_ids(current), current.why.get("counts")) if current else {}
    target = {number: before.get(number, 0.0) + share for number, share in wanted.items()}
    return [
        schemas.ClassBalance(
            class_id=number,
            labelled=count,
            round_labelled=fresh.get(number, 0),
            expected=expected.get(number),
            target=target.get(number),
        )
        for number, count in labelled.items()
    ]


def foreseen(one: rounds.Round) -> tuple[dict[int, float], dict[int, float]]:
    """Expected counts and target of a round's batch by class id; empty where it was not chosen by a model."""
    numbers = class_ids(one)
    return _by_class(numbers, one.why.get("expected_counts")), _by_class(numbers, one.why.get("target"))


def class_ids(one: rounds.Round) -> list[int]:
    """The order of a round's counts."""
    return [int(number) for number in one.why.get("class_ids") or []]


def _by_class(numbers: list[int], values: object) -> dict[int, float]:
    known = values if isinstance(values, list) and len(values) == len(numbers) else []
    return {number: float(value) for number, value in zip(numbers, known, strict=False) if value is not None}


def _picture(one: Leased, seal: str, glimpse: Glimpse) -> schemas.Picture:
    return schemas.Picture(
        key=one.key, seal=seal, width=one.width or 0, height=one.height or 0, rank=one.rank, lease_until=one.until,
        prelabel=glimpse.prelabel(one.image, one.predicted, one.confidence),
    )  # fmt: skip


def _past(ledger: Ledger, one: answers.Given) -> schemas.Past:
    image = find_image(ledger, one.image)
    return schemas.Past(
        event=one.event_id, key=one.key, image=image.key, seal=seal_of(image), kind=one.kind, class_id=one.class_id,
        at=one.at,
    )  # fmt: skip


def _settlements(ledger: Ledger, annotator: str) -> list[schemas.Past]:
    return [_past(ledger, one) for one in answers.settlements(ledger, annotator)]


def _conflict(ledger: Ledger, one: answers.Conflict, sight: Sight) -> schemas.Conflict:
    image = find_image(ledger, one.image)
    rows = ledger.read(
        "SELECT i.predicted, i.confidence, r.model_version FROM round_image AS i JOIN round AS r ON r.id = i.round_id "
        "WHERE i.image_id = ? ORDER BY r.id DESC LIMIT 1",
        (one.image,),
    )
    predicted, confidence, version = rows[0] if rows else (None, None, None)
    return schemas.Conflict(
        image=image.key, seal=seal_of(image), width=image.width or 0, height=image.height or 0,
        prelabel=sight.through(ledger, version).prelabel(image.id, predicted, confidence),
        answers=[schemas.Voice(annotator=v.annotator, kind=v.kind, class_id=v.class_id) for v in one.answers],
    )  # fmt: skip


def _round(ledger: Ledger, one: rounds.Round) -> schemas.Round:
    why = one.why
    fresh, found = realised(ledger, one.id), rounds.progress(ledger, one.id)
    expected, target = foreseen(one)
    numbers = sorted({*fresh, *expected, *target})
    return schemas.Round(
        id=one.id, opened_at=one.opened_at, closed_at=one.closed_at, budget=one.budget, answered=found.done,
        strategy=one.strategy, balance=one.balance, lam=_number(why, "lam"), model_version=one.model_version,
        counts=[
            schemas.ClassCount(class_id=n, expected=expected.get(n), target=target.get(n), realised=fresh.get(n, 0))
            for n in numbers
        ],
        certificate=_certificate(why),
    )  # fmt: skip


def _certificate(why: Mapping[str, Any]) -> schemas.Certificate | None:
    if not why.get("status"):
        return None
    return schemas.Certificate(
        status=str(why["status"]), objective=_number(why, "objective"), bound=_number(why, "bound"),
        gap=_number(why, "gap"), l1=_number(why, "l1"), seconds=_number(why, "seconds"),
    )  # fmt: skip


def _number(why: Mapping[str, Any], name: str) -> float | None:
    value = why.get(name)
    return float(value) if isinstance(value, int | float) else None
