"""Everything a campaign's report shows, read once: a campaign in; rounds, classes, people, curve and advice out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import numpy as np

from ..campaign.advice import Advice, gather, judge
from ..campaign.classes import ClassRow, list_classes
from ..campaign.learning_curve import AnnotatorAgreement, Curve, annotator_agreement
from ..campaign.ledger import HasLedger, Ledger, ledger_of, read_meta
from ..campaign.rounds import Round, list_rounds, progress
from ..campaign.state import Settings, Status, read_settings, read_status
from ..types import Float64Array, IntArray, Progress, no_progress

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class RoundSummary:
    """One round, as it was chosen and as it came out.

    Attributes
    ----------
    done: images that have all the answers they want.
    expected, target: (C,) of the batch, by class in use; None in a cold start.
    realised: (C,) decided images of the round.
    lam, gap, l1, seconds: of the choice; None where images were not chosen.
    unreachable: class, wanted and reachable number.
    guessed, right: images with a guess and a label, and those whose guess was right.
    """

    id: int
    opened_at: int
    closed_at: int | None
    images: int
    done: int
    strategy: str
    balance: str
    status: str
    cold_start: bool
    expected: Float64Array | None
    target: Float64Array | None
    realised: IntArray
    lam: float | None
    gap: float | None
    l1: float | None
    seconds: float | None
    unreachable: tuple[tuple[str, float, float], ...]
    guessed: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class Person:
    """What one person did."""

    name: str
    labels: int
    other: int
    skips: int
    seconds: float | None  # in the middle, per answer
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class CampaignSummary:
    """A campaign at one moment.

    Attributes
    ----------
    classes: those in use, (C,), with their names and their labels; `retired` those that are not.
    by_round: (R + 1, C) labels by the round of their image; row 0 is outside of rounds.
    """

    name: str
    key: str  # the campaign's own
    created: int
    at: int
    settings: Settings
    status: Status
    classes: tuple[ClassRow, ...]
    class_names: tuple[str, ...]
    counts: IntArray
    retired: tuple[ClassRow, ...]
    rounds: tuple[RoundSummary, ...]
    by_round: IntArray
    people: tuple[Person, ...]
    agreement: AnnotatorAgreement
    curve: Curve | None
    advice: Advice


def read_summary(campaign: HasLedger | Ledger, *, at: int, report: Progress = no_progress) -> CampaignSummary:
    """Read and measure everything; `at` is the moment of the report, in microseconds since 1970."""
    ledger = ledger_of(campaign)
    facts = gather(ledger, report=report)
    settings, status = read_settings(ledger), read_status(ledger)
    everything = list_classes(ledger, retired=True)
    classes = tuple(one for one in everything if not one.retired)
    rounds = list_rounds(ledger)
    by_round = _labels_by_round(ledger, rounds, classes)
    return CampaignSummary(
        name=settings.name or ledger.folder.name,
        key=read_meta(ledger, "campaign") or "",
        created=int(read_meta(ledger, "created") or 0),
        at=at,
        settings=settings,
        status=status,
        classes=classes,
        class_names=tuple(one.name for one in classes),
        counts=np.array([status.labels.get(one.id, 0) for one in classes], dtype=np.int64),
        retired=tuple(one for one in everything if one.retired),
        rounds=tuple(_round_summary(ledger, one, classes, by_round[one.id], facts.curve) for one in rounds),
        by_round=by_round,
        people=tuple(_people(ledger)),
        agreement=annotator_agreement(ledger),
        curve=facts.curve,
        advice=judge(facts),
    )


def format_time(moment: int | None) -> str:
    """A moment as people read it, in UTC.

    >>> format_time(1_700_000_000_000_000), format_time(None)
    ('2023-11-14 22:13 UTC', '–')
    """
    return "–" if moment is None else f"{datetime.fromtimestamp(moment / MICROSECONDS, UTC):%Y-%m-%d %H:%M} UTC"


def _labels_by_round(ledger: Ledger, rounds: list[Round], classes: tuple[ClassRow, ...]) -> IntArray:
    """Decided images by their last round and their class, (R + 1, C)."""
    rows = ledger.read(
        "SELECT l.class_id, coalesce((SELECT max(round_id) FROM round_image AS r WHERE r.image_id = l.image_id), 0) "
        "AS round_id, count(*) AS images FROM current_label AS l GROUP BY 1, 2"
    )
    column = {one.id: place for place, one in enumerate(classes)}
    table = np.zeros((len(rounds) + 1, len(classes)), dtype=np.int64)
    for row in rows:
        if row["class_id"] in column:
            table[row["round_id"], column[row["class_id"]]] += row["images"]
    return table


def _round_summary(
    ledger: Ledger, one: Round, classes: tuple[ClassRow, ...], realised: IntArray, curve: Curve | None
) -> RoundSummary:
    how_far = progress(ledger, one.id)
    why, names = one.why, {klass.id: klass.name for klass in classes}
    points = {point.round_id: point for point in curve.points} if curve is not None else {}
    point = points.get(one.id)
    return RoundSummary(
        one.id, one.opened_at, one.closed_at, how_far.images, how_far.done, one.strategy, one.balance,
        str(why.get("status") or "–"), bool(why.get("cold_start")), _by_class(why, "expected_counts", classes),
        _by_class(why, "target", classes), realised, _number(why, "lam"), _number(why, "gap"), _number(why, "l1"),
        _number(why, "seconds"),
        tuple(
            (names[short["class_id"]], float(short["wanted"]), float(short["reachable"]))
            for short in why.get("unreachable") or [] if short.get("class_id") in names
        ),
        0 if point is None else point.guessed, 0 if point is None else point.right,
    )  # fmt: skip


def _by_class(why: Mapping[str, object], name: str, classes: tuple[ClassRow, ...]) -> Float64Array | None:
    """Numbers of a round by class in use; a class that was added since has 0."""
    values, numbers = why.get(name), why.get("class_ids")
    if not isinstance(values, list) or not isinstance(numbers, list):
        return None
    known = dict(zip(numbers, values, strict=False))
    return np.array([float(known.get(one.id, 0.0)) for one in classes])


def _number(why: Mapping[str, object], name: str) -> float | None:
    value = why.get(name)
    return float(value) if isinstance(value, int | float) else None


def _people(ledger: Ledger) -> list[Person]:
    said: dict[str, list[tuple[str, float | None, int]]] = {}
    for row in ledger.read("SELECT annotator, kind, seconds, at FROM answer ORDER BY annotator, event_id"):
        said.setdefault(row["annotator"], []).append((row["kind"], row["seconds"], row["at"]))
    people = []
    for name, answers in said.items():
        kinds = [kind for kind, _, _ in answers]
        took = [seconds for _, seconds, _ in answers if seconds is not None]
        times = [at for _, _, at in answers]
        people.append(
            Person(
                name, kinds.count("label"), kinds.count("other"), kinds.count("skip"),
                float(median(took)) if took else None, min(times), max(times),
            )
        )  # fmt: skip
    return people
