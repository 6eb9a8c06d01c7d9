"""Responses made from the ledger: the page's state, leased images, history, conflicts and rounds.

Counts of a large ledger are cached: with a million labels a count takes seconds, and every page asks every few seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from .. import __version__
from ..campaign import answers, rounds
from ..campaign.class_needs import round_targets
from ..campaign.classes import list_classes
from ..campaign.features import SIMPLE, chosen_backbone
from ..campaign.images import SEAL_DIGITS, find_image
from ..campaign.learning_curve import AnnotatorAgreement, annotator_agreement
from ..campaign.leases import Leased
from ..campaign.ledger import CURRENT_SCHEMA, Ledger, read_meta
from ..campaign.rounds import candidate_images
from ..campaign.state import Settings, read_settings
from ..errors import TailwiseError
from . import schemas
from .predictions import ModelPredictions, PredictionCache
from .settings import Role

KEYS = "1234567890"
PAIR = 2
MOST_PAIRS = 10
QUICK = 0.005  # seconds of processor time; quicker counts are not cached
SHARE = 20  # a slow count is used twenty times as long as it took

Result = TypeVar("Result")
Counted = TypeVar("Counted")


def state(
    read: Read, annotator: str | None, counts: CountCache, prelabels: Prelabels, job: schemas.Job, role: Role
) -> schemas.State:
    """Everything that the page shows around the image."""
    settings, current, classes, name, blind, rough = read(lambda ledger: _surroundings(ledger, prelabels))
    tally = counts.campaign.get(read)
    of_round = counts.of_round(read, current.id) if current else None
    finished = of_round is None or of_round.progress.complete
    return schemas.State(
        campaign=name,
        images=schemas.Images(usable=tally.usable),
        classes=classes,
        classes_version=read(classes_version),
        round=_progress(current, of_round, annotator, rough=rough) if current and of_round else None,
        balance=_balance(current, tally.labelled, of_round.realised if of_round else {}),
        settings=schemas.LabelSettings(
            overlap=settings.overlap, blind=blind, plain_features=chosen_backbone(settings.backbone) == SIMPLE
        ),
        next=schemas.NextBatch(budget=settings.budget, **asdict(counts.left.get(read))) if finished else None,
        job=job,
        annotators=list(tally.annotators),
        conflicts=tally.conflicts,
        role=role,
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


def leased_images(
    ledger: Ledger, leased: Iterable[Leased], version: str | None, prelabels: Prelabels
) -> schemas.LeasedImages:
    """Leased images, with the predictions that people may see."""
    preview, kept = prelabels.preview(ledger, version), list(leased)
    seals = seals_of(ledger, [one.image for one in kept])
    return schemas.LeasedImages(images=[_leased_image(one, seals[one.image], preview) for one in kept])


def seals_of(ledger: Ledger, images: Sequence[int]) -> dict[int, str]:
    """Seals of many images by id, with one query."""
    rows = ledger.read(
        "SELECT id, substr(coalesce(sha256, ''), 1, ?) FROM image WHERE id IN (SELECT value FROM json_each(?))",
        (SEAL_DIGITS, json.dumps(list(images))),
    )
    return {row[0]: row[1] for row in rows}


def history(ledger: Ledger, annotator: str, limit: int, before: int | None = None) -> schemas.History:
    """The last answers of one annotator, the latest first."""
    given = answers.history(ledger, annotator, limit=limit, changed=True, before=before)
    return schemas.History(items=[_past(ledger, one) for one in given])


def conflicts(read: Read, annotator: str | None, prelabels: Prelabels) -> schemas.Conflicts:
    """Images on which people differ, their agreement, and what one annotator has settled."""
    found = read(annotator_agreement)
    items = read(lambda ledger: [_conflict(ledger, one, prelabels) for one in answers.conflicts(ledger)])
    settled: list[schemas.PastAnswer] = []
    if annotator:
        settled = read(lambda ledger: [_past(ledger, one) for one in answers.settlements(ledger, annotator)])
    return schemas.Conflicts(
        items=items,
        settled=settled,
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


def all_rounds(read: Read) -> schemas.Rounds:
    """Every round with its expected and its actual counts."""
    return schemas.Rounds(items=[read(partial(_round, one=one)) for one in read(rounds.list_rounds)])


def _surroundings(
    ledger: Ledger, prelabels: Prelabels
) -> tuple[Settings, rounds.Round | None, list[schemas.LabelClass], schemas.CampaignName, bool, bool]:
    """What is quick to read, in one query; last whether people label blind, and whether percentages are rough."""
    settings = read_settings(ledger)
    name = schemas.CampaignName(id=read_meta(ledger, "campaign") or "", name=settings.name or ledger.folder.name)
    current, blind = rounds.current_round(ledger), prelabels.is_blind(ledger)
    version = current.model_version if current and not blind else None
    rough = version is not None and rounds.find_model(ledger, version).rough
    return settings, current, label_classes(ledger), name, blind, rough


def label_classes(ledger: Ledger) -> list[schemas.LabelClass]:
    """Those in use in their order, then the retired ones."""
    known = sorted(list_classes(ledger, retired=True), key=lambda one: one.retired)
    return [
        schemas.LabelClass(
            id=one.id, name=one.name, key=one.hotkey or key_of(at), hotkey=one.hotkey, retired=one.retired
        )
        for at, one in enumerate(known)
    ]  # fmt: skip


def classes_version(ledger: Ledger) -> int:
    """Counts up with each change of a class."""
    return int(ledger.read("SELECT coalesce(max(id), 0) FROM class_event")[0][0])


def _progress(
    current: rounds.Round, tally: RoundCounts, annotator: str | None, *, rough: bool
) -> schemas.RoundProgress:  # fmt: skip
    found = tally.progress
    return schemas.RoundProgress(
        id=current.id, budget=current.budget, answered=found.done, skipped=min(tally.skipped, found.done),
        remaining=found.remaining, complete=found.complete, mine=tally.mine.get(annotator or "", 0), rough=rough,
    )  # fmt: skip


def _balance(
    current: rounds.Round | None, labelled: Mapping[int, int], fresh: Mapping[int, int]
) -> list[schemas.ClassBalance]:  # fmt: skip
    why = current.why if current else {}
    expected, target = _by_class(why, "expected_counts"), round_targets(why)
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


def _by_class(why: Mapping[str, Any], name: str) -> dict[int, float]:
    """Counts that a round was chosen with, by class id; empty where it was not chosen by a model."""
    numbers, values = [int(number) for number in why.get("class_ids") or []], why.get(name)
    known = values if isinstance(values, list) and len(values) == len(numbers) else []
    return {number: float(value) for number, value in zip(numbers, known, strict=False) if value is not None}


def _leased_image(one: Leased, seal: str, preview: Preview) -> schemas.LeasedImage:
    return schemas.LeasedImage(
        key=one.key, seal=seal, width=one.width or 0, height=one.height or 0, rank=one.rank, lease_until=one.until,
        prelabel=preview.prelabel(one.image, one.predicted, one.confidence),
    )  # fmt: skip


def _past(ledger: Ledger, one: answers.StandingAnswer) -> schemas.PastAnswer:
    image = find_image(ledger, one.image)
    return schemas.PastAnswer(
        event=one.event_id, key=one.key, image=image.key, seal=image.seal, kind=one.kind, class_id=one.class_id,
        at=one.at,
    )  # fmt: skip


def _conflict(ledger: Ledger, one: answers.Conflict, prelabels: Prelabels) -> schemas.Conflict:
    image = find_image(ledger, one.image)
    rows = ledger.read(
        "SELECT i.predicted, i.confidence, r.model_version FROM round_image AS i JOIN round AS r ON r.id = i.round_id "
        "WHERE i.image_id = ? ORDER BY r.id DESC LIMIT 1",
        (one.image,),
    )
    predicted, confidence, version = rows[0] if rows else (None, None, None)
    return schemas.Conflict(
        image=image.key, seal=image.seal, width=image.width or 0, height=image.height or 0,
        prelabel=prelabels.preview(ledger, version).prelabel(image.id, predicted, confidence),
        answers=[schemas.ConflictAnswer(annotator=v.annotator, kind=v.kind, class_id=v.class_id) for v in one.answers],
    )  # fmt: skip


def _round(ledger: Ledger, one: rounds.Round) -> schemas.Round:
    why = one.why
    fresh, found = realised(ledger, one.id), rounds.progress(ledger, one.id)
    expected, target = _by_class(why, "expected_counts"), _by_class(why, "target")
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


# Predictions, as people see them: not at all where they label blind.


class LabelledBlind(TailwiseError, RuntimeError):
    """A request would reveal predictions in a campaign that is labelled blind."""


@dataclass(frozen=True, slots=True)
class Preview:
    """The predictions of one model, or of none, for display."""

    blind: bool
    predictions: ModelPredictions | None

    def prelabel(self, image: int, predicted: int | None, confidence: float | None) -> schemas.Prelabel | None:
        """What the page shows with an image; None where there is nothing to show."""
        if self.blind or predicted is None or confidence is None:
            return None
        top = self.predictions.top(image) if self.predictions is not None else []
        best, *others = [
            schemas.Prediction(class_id=number, confidence=min(max(float(share), 0.0), 1.0))
            for number, share in [(predicted, confidence), *top]
        ]
        return schemas.Prelabel(class_id=best.class_id, confidence=best.confidence, top=others or [best])


@dataclass(frozen=True, slots=True)
class Prelabels:
    """Which predictions people see on one server."""

    blind: bool  # set for the server; the campaign has its own setting
    predictions: PredictionCache

    def is_blind(self, ledger: Ledger) -> bool:
        """Whether predictions are hidden."""
        return self.blind or read_settings(ledger).blind

    def check_not_blind(self, ledger: Ledger) -> None:
        """Reject requests that are sorted by predictions, where these are hidden."""
        if self.is_blind(ledger):
            raise LabelledBlind(
                "asked for images by predicted class, but this campaign is labelled blind; "
                "label them one by one, or start the page without --blind"
            )

    def preview(self, ledger: Ledger, version: str | None) -> Preview:
        """The predictions of a round's model that people may see."""
        blind = self.is_blind(ledger)
        return Preview(blind, None if blind else self.predictions.of(version))


# Cached counts.


class Read(Protocol):
    """Runs one query on the ledger, concurrently with the writer; the writer may run before the next."""

    def __call__(self, query: Callable[[Ledger], Result], /) -> Result:
        """The result of the query."""
        ...


@dataclass(frozen=True, slots=True)
class CampaignCounts:
    """Counts of the whole campaign."""

    usable: int  # images
    labelled: Mapping[int, int]  # by class id
    annotators: tuple[str, ...]
    conflicts: int


@dataclass(frozen=True, slots=True)
class RoundCounts:
    """Counts of one round."""

    progress: rounds.RoundProgress
    mine: Mapping[str, int]  # images that each person has answered
    realised: Mapping[int, int]  # labels by class id
    skipped: int  # images that are done with skips alone


@dataclass(frozen=True, slots=True)
class Candidates:
    """What the next round can be chosen from."""

    left: int  # images
    skipped: int  # more images, which people have skipped


class Cached(Generic[Counted]):
    """The result of a count, recomputed at most every SHARE times its cost."""

    def __init__(self, count: Callable[[Read], Counted]) -> None:
        self._count = count
        self._turn = threading.Lock()
        self._kept: Counted | None = None
        self._cost = 0.0
        self._until = 0.0

    def get(self, read: Read) -> Counted:
        """The counts; cached ones while they are fresh enough, or while another thread is counting."""
        kept = self._kept
        if kept is not None and self._cost > QUICK and (time.monotonic() < self._until or self._turn.locked()):
            return kept
        with self._turn:
            started = time.thread_time()  # not the clock: on a busy machine everything takes long
            self._kept = fresh = self._count(read)
            self._cost = time.thread_time() - started
            self._until = time.monotonic() + SHARE * self._cost
            return fresh


class CountCache:
    """Cached counts of the campaign, of what the next round can be chosen from, and of the newest round."""

    def __init__(self) -> None:
        self.campaign = Cached(count)
        self.left = Cached(count_left)
        self._round: tuple[int, Cached[RoundCounts]] = (0, Cached(lambda read: count_round(read, 0)))

    def of_round(self, read: Read, number: int) -> RoundCounts:
        """Counts of a round; those of another round are dropped."""
        known, remembered = self._round
        if known != number:
            remembered = Cached(lambda read: count_round(read, number))
            self._round = (number, remembered)
        return remembered.get(read)


def count(read: Read) -> CampaignCounts:
    """Count the campaign."""
    usable: int = read(lambda ledger: ledger.read(_USABLE)[0][0])
    conflicts: int = read(lambda ledger: ledger.read("SELECT count(*) FROM conflict")[0][0])
    return CampaignCounts(usable, read(answers.counts), tuple(read(answers.annotators)), conflicts)


_USABLE = "SELECT count(*) FROM image WHERE trouble IS NULL AND duplicate_of IS NULL"


def count_left(read: Read) -> Candidates:
    """Count the images that can be chosen."""
    left, with_skipped = len(read(candidate_images)), len(read(lambda ledger: candidate_images(ledger, skipped=True)))
    return Candidates(left, with_skipped - left)


def count_round(read: Read, number: int) -> RoundCounts:
    """Count a round."""
    return RoundCounts(
        read(lambda ledger: rounds.progress(ledger, number)),
        read(lambda ledger: answered(ledger, number)),
        read(lambda ledger: realised(ledger, number)),
        read(lambda ledger: int(ledger.read(_SKIPPED, (number,))[0][0])),
    )


def answered(ledger: Ledger, number: int) -> dict[str, int]:
    """How many images of a round each person has answered, without skips."""
    rows = ledger.read(
        "SELECT a.annotator, count(*) FROM round_image AS r JOIN answer AS a ON a.image_id = r.image_id "
        "WHERE r.round_id = ? AND a.kind <> 'skip' GROUP BY a.annotator",
        (number,),
    )
    return {row[0]: row[1] for row in rows}


def realised(ledger: Ledger, number: int) -> dict[int, int]:
    """Decided images of a round by class id."""
    rows = ledger.read(
        "SELECT l.class_id, count(*) FROM current_label AS l "
        "JOIN round_image AS r ON r.image_id = l.image_id AND r.round_id = ? GROUP BY l.class_id",
        (number,),
    )
    return {row[0]: row[1] for row in rows}


# Images of a round with all wanted answers, all of them skips, and not settled.
_SKIPPED = """
SELECT count(*) FROM round_image AS r JOIN round AS o ON o.id = r.round_id
WHERE r.round_id = ? AND r.wanted <= (
        SELECT count(*) FROM answer AS a WHERE a.image_id = r.image_id AND a.kind = 'skip'
            AND (a.round_id >= r.round_id OR (a.round_id IS NULL AND a.at >= o.opened_at))
    )
    AND NOT EXISTS (SELECT 1 FROM answer AS a WHERE a.image_id = r.image_id AND a.kind <> 'skip')
    AND NOT EXISTS (SELECT 1 FROM settled AS s WHERE s.image_id = r.image_id)
"""
