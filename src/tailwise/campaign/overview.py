"""What the dashboard shows: balance against the target, work per person, agreement in words, the last round, measures.

Counts are read at once. The measures (learning curve, advice, audit) take long: `measure` is run in the background, and
keeps them in a file of the campaign.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from ..errors import BadFile
from ..files import write_whole
from ..inputs import many
from ..types import Progress, no_progress
from .class_needs import ClassNeed, class_needs
from .classes import list_classes
from .confusion import MOST, ConfusedPair, confused_by_model, confused_classes
from .learning_curve import Curve, standing_answers
from .ledger import Ledger, now
from .models import last_event
from .rounds import Round, list_rounds, progress
from .state import Settings, check_strategy, read_settings

FILE = "dashboard.json"
HOUR = 3_600_000_000  # microseconds
HOURS = 48  # of work that are shown
MOST_PAIRS = 10
DONE = 0.8  # of a round must have labels before it is judged
# Strategies with plain words, the recommended one first; the others are offered by name.
PLAIN = {
    "boundary": "Images at the borders between classes, a fixed number for each class. Recommended.",
    "typiclust": "Typical images of parts of the pool without labels. Good while there are few labels.",
    "uherding": "Images that stand for many others of which the model is unsure.",
    "margin": "Images for which two classes are about equally likely.",
    "random": "Images drawn at random. A yardstick for the others.",
}


@dataclass(frozen=True, slots=True)
class Work:
    """What one person has answered lately."""

    annotator: str
    answers: int  # in all
    hours: tuple[int, ...]  # answers in each of the last HOURS hours, the oldest first
    per_hour: float  # mean over the hours with an answer, of those shown


@dataclass(frozen=True, slots=True)
class Asked:
    """What a round expected of a class, and what came of it; without the images of an audit."""

    class_id: int
    name: str
    expected: float | None
    labelled: int


@dataclass(frozen=True, slots=True)
class LastRound:
    """The newest round: what it asked for and got."""

    id: int
    images: int
    answered: int
    audited: int
    open: bool
    text: str
    classes: tuple[Asked, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy that can be set."""

    name: str
    what: str  # in plain words, or ""


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the dashboard that is quick to count."""

    usable: int
    labelled: int
    rounds: int
    needs: tuple[ClassNeed, ...]  # the shortest first
    work: tuple[Work, ...]
    work_until: int | None  # microseconds since 1970: the end of the last hour
    agreement: tuple[str, ...]
    confused: tuple[ConfusedPair, ...]
    last_round: LastRound | None
    settings: Settings
    strategies: tuple[Choice, ...]
    measures: Mapping[str, Any] | None  # None before the first measurement
    measures_fresh: bool  # whether nothing was answered since


def overview(ledger: Ledger) -> Overview:
    """Count everything, at one moment."""
    with ledger.reading():
        rounds = list_rounds(ledger)
        needs = class_needs(ledger, rounds)
        work, until = work_of_people(ledger)
        usable = ledger.read("SELECT count(*) FROM image WHERE trouble IS NULL AND duplicate_of IS NULL")[0][0]
        kept = read_measures(ledger)
        return Overview(
            usable, sum(one.labelled for one in needs), len(rounds), needs, work, until, agreement_texts(ledger),
            confused_classes(ledger, kept),
            last_round(ledger, rounds[-1]) if rounds else None, read_settings(ledger), strategy_choices(), kept,
            kept is not None and kept["last_event"] == last_event(ledger) and kept["rounds"] == len(rounds),
        )  # fmt: skip


def work_of_people(ledger: Ledger) -> tuple[tuple[Work, ...], int | None]:
    """Answers per person and hour, in the hours up to the last answer; and when they end."""
    rows = ledger.read(
        "SELECT annotator, at FROM event WHERE kind IN ('label', 'other', 'skip') AND source <> 'import'"
    )
    if not rows:
        return (), None
    end = HOUR * (max(row["at"] for row in rows) // HOUR + 1)
    totals: Counter[str] = Counter()
    hours: dict[str, list[int]] = {}
    for row in rows:
        name, ago = row["annotator"], (end - 1 - row["at"]) // HOUR
        totals[name] += 1
        bars = hours.setdefault(name, [0] * HOURS)
        if ago < HOURS:
            bars[HOURS - 1 - ago] += 1
    people = [
        Work(name, totals[name], tuple(bars), sum(bars) / max(1, sum(count > 0 for count in bars)))
        for name, bars in hours.items()
    ]
    return tuple(sorted(people, key=lambda one: (-one.answers, one.annotator))), end


def agreement_texts(ledger: Ledger) -> tuple[str, ...]:
    """How far each two people agree, in words; those who share most images first."""
    answers = standing_answers(ledger)
    pairs = []
    for first, second in combinations(sorted(answers), 2):
        shared = sorted(answers[first].keys() & answers[second].keys())
        if shared:
            said = [(answers[first][image], answers[second][image]) for image in shared]
            pairs.append((len(shared), pair_text(first, second, said)))
    ordered = sorted(pairs, key=lambda one: -one[0])
    more = [f"… and {len(ordered) - MOST_PAIRS} more pairs of people"] if len(ordered) > MOST_PAIRS else []
    return (*(text for _, text in ordered[:MOST_PAIRS]), *more)


def pair_text(first: str, second: str, said: Sequence[tuple[Hashable, Hashable]]) -> str:
    """How far two people agree on the images that both have answered.

    By chance: if each gave as many answers of each class as they did, but to images at random.

    >>> pair_text("ada", "bob", [("owl", "owl"), ("owl", "owl"), ("kite", "kite"), ("kite", "owl")])
    'ada and bob agree on 3 of 4 images; by chance they would on 2.'
    """
    size, same = len(said), sum(one == other for one, other in said)
    ones, others = Counter(one for one, _ in said), Counter(other for _, other in said)
    chance = sum(count * others[answer] for answer, count in ones.items()) / size
    if len(ones | others) == 1:
        return f"{first} and {second} agree on all of {many(size, 'image')}, which are of one class."
    return f"{first} and {second} agree on {same:,} of {many(size, 'image')}; by chance they would on {chance:.0f}."


def last_round(ledger: Ledger, one: Round) -> LastRound:
    """What a round expected of each class, and what came of it."""
    rows = ledger.read(
        "SELECT l.class_id, count(*) FROM current_label AS l JOIN round_image AS r ON r.image_id = l.image_id "
        "WHERE r.round_id = ? AND NOT r.audit GROUP BY l.class_id",
        (one.id,),
    )
    found = {row[0]: row[1] for row in rows}
    audited = int(ledger.read("SELECT coalesce(sum(audit), 0) FROM round_image WHERE round_id = ?", (one.id,))[0][0])
    numbers, values = one.why.get("class_ids") or [], one.why.get("expected_counts") or []
    expected = dict(zip(numbers, values, strict=False))
    done = progress(ledger, one.id)
    classes = tuple(
        Asked(cls.id, cls.name, expected.get(cls.id), found.get(cls.id, 0))
        for cls in list_classes(ledger, retired=True)
        if cls.id in expected or found.get(cls.id)
    )
    return LastRound(
        one.id,
        done.images,
        done.done,
        audited,
        one.is_open,
        _round_text(done.images - audited, found, classes),
        classes,
    )


def _round_text(chosen: int, found: Mapping[int, int], classes: Sequence[Asked]) -> str:
    labels = sum(found.values())
    if labels < DONE * chosen:
        return f"{labels:,} of the {many(chosen, 'chosen image')} have a label so far."
    text = f"{many(chosen, 'image was', 'images were')} chosen, and {many(labels, 'has', 'have')} a label."
    known = [(one.labelled - one.expected, one) for one in classes if one.expected is not None]
    if not known:
        return text
    off, worst = max(known, key=lambda pair: abs(pair[0]))
    if abs(off) < 2:
        return f"{text} Every class came about as often as expected."
    how = "more often" if off > 0 else "less often"
    return f"{text} {worst.name} came {how} than expected: {worst.labelled} instead of {worst.expected:.0f}."


def strategy_choices() -> tuple[Choice, ...]:
    """The strategies that a campaign can use: those with plain words first, the others by name."""
    from ..errors import TailwiseError
    from ..strategies.strategy import STRATEGIES

    others = []
    for name in sorted(set(STRATEGIES) - set(PLAIN)):
        try:
            check_strategy(name, "auto")
        except TailwiseError:
            continue
        others.append(name)
    return (*(Choice(name, what) for name, what in PLAIN.items()), *(Choice(name, "") for name in others))


# -- measures, in the background ---------------------------------------------------------------------------------------


def measure(ledger: Ledger, *, report: Progress = no_progress) -> dict[str, Any]:
    """Measure the learning curve, the advice and the audit, and keep them among the campaign's files."""
    from .advice import gather, judge
    from .audit import audit

    event, rounds = last_event(ledger), len(list_rounds(ledger))
    facts = gather(ledger, report=lambda done, what: report(0.8 * done, what))
    advice = judge(facts)
    found = audit(ledger, report=lambda done, what: report(0.8 + 0.2 * done, what))
    made = {
        "last_event": event, "rounds": rounds, "at": now(), "labels": sum(facts.labels.values()),
        "advice": {"worth_it": advice.worth_it, "because": advice.because,
                   "evidence": [{"leans": one.leans, "text": one.text} for one in advice.evidence]},
        "curve": curve_points(facts.curve), "audit": asdict(found),
        "confused": confused_by_model(facts.curve.confusion, facts.curve.class_ids)[:MOST] if facts.curve else [],
    }  # fmt: skip
    write_whole(ledger.files / FILE, json.dumps(made).encode())
    return made


def curve_points(curve: Curve | None) -> list[dict[str, float | int]]:
    """The measured points of a learning curve: balanced accuracy, with a band of two standard errors."""
    points = [] if curve is None or not curve.is_measured else curve.points
    return [
        {
            "round": point.round_id, "labels": point.labels, "value": level.value,
            "low": max(0.0, level.value - 2 * level.error), "high": min(1.0, level.value + 2 * level.error),
        }
        for point in points if (level := point.balanced_accuracy) is not None
    ]  # fmt: skip


def read_measures(ledger: Ledger) -> dict[str, Any] | None:
    """What was measured last; None where nothing was, or the file is damaged."""
    try:
        made = json.loads((ledger.files / FILE).read_bytes())
    except (OSError, ValueError, BadFile):
        return None
    needed = {"last_event", "rounds", "at", "labels", "advice", "curve", "audit"}
    return made if isinstance(made, dict) and needed <= made.keys() else None
