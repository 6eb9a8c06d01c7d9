"""The learning curve of a campaign, how good the model was after each round; and how far annotators agree.

Every round is measured by cross-validation on the same images, all that are labelled now, by models that knew the
labels of that time. So two rounds differ by what was learnt, not by what was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from ..errors import BadInput
from ..inputs import many
from ..learners.learner import Learner, stratified_folds
from ..types import BoolArray, Float64Array, FloatArray, IntArray, Progress, no_progress
from .features import embed
from .ledger import HasLedger, Ledger, ledger_of, now
from .models import Labelled, head_named, labelled_set, last_event, with_features
from .rounds import Round, list_rounds
from .state import read_settings

FOLDS = 5
SEED = 0
MOST_POINTS = 25  # more rounds are thinned out, the first and the last kept
NO_GUESS = -1
ENOUGH = 10  # measured images, below which a level is anybody's guess


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with its standard error."""

    value: float
    error: float


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The model after a round.

    Attributes
    ----------
    round_id: 0: before the first round.
    at: when the round ended, in microseconds since 1970; of the last one, now.
    labels: how many were known.
    classes_seen: how many classes had labels.
    accuracy, balanced_accuracy: None where nothing can be measured.
    guessed, right: images of the round with a guess and a label, and those whose guess was right.
    """

    round_id: int
    at: int
    labels: int
    classes_seen: int
    accuracy: Measure | None
    balanced_accuracy: Measure | None
    guessed: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class CurveGain:
    """From one point to the next, image by image."""

    round_id: int  # of the later point
    labels: int  # that were added
    accuracy: Measure
    balanced_accuracy: Measure


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The learning curve of a campaign.

    Attributes
    ----------
    points, gains: in the order of the rounds; rounds without a new label are left out.
    class_ids: (C,) the classes in use.
    measured: (C,) images that are asked about; a class with one label has none, since it would be unknown without it.
    confusion: (C, C) at the last point: true classes down, guesses across.
    backbone, learner: what was measured.
    lost: labelled images without features, which are left out.
    """

    points: tuple[CurvePoint, ...]
    gains: tuple[CurveGain, ...]
    class_ids: tuple[int, ...]
    measured: IntArray
    confusion: IntArray
    backbone: str
    learner: str
    lost: int = 0

    @property
    def is_measured(self) -> bool:
        """Whether the level means anything: two classes at least, and not a handful of images."""
        return int(np.count_nonzero(self.measured)) > 1 and int(self.measured.sum()) >= ENOUGH

    def recalls(self) -> Float64Array:
        """Share of each class that was recognised at the last point, (C,); NaN where none was asked about."""
        totals = self.confusion.sum(axis=1)
        return np.where(totals > 0, np.diag(self.confusion) / np.maximum(totals, 1), np.nan)


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The end of a round, as the ledger saw it."""

    round_id: int
    last_event: int
    at: int


def learning_curve(campaign: HasLedger | Ledger, *, report: Progress = no_progress) -> Curve:
    """Measure the model after each round; the same ledger gives the same curve."""
    ledger = ledger_of(campaign)
    settings = read_settings(ledger)
    everything = labelled_set(ledger)
    embedding = embed(ledger, everything.images, backbone=settings.backbone, report=report)
    final = with_features(everything, embedding)
    features = embedding.features[embedding.rows(final.images)[0]]
    ends, past = _past(ledger, final)
    folds = stratified_folds(final.labels, FOLDS, np.random.default_rng(SEED))
    learner, guesses = head_named(settings.learner), []
    for number, labels in enumerate(past):
        report(number / len(past), f"measuring the model after {number + 1} of {many(len(past), 'round')}")
        guesses.append(held_out(learner, features, labels, folds, len(final.class_ids)))
    report(1.0, "measured")
    counted = _guesses_of_rounds(ledger, final)
    points = [
        _point(end, labels, guess, final, folds, counted)
        for end, labels, guess in zip(ends, past, guesses, strict=True)
    ]
    asked = final.labels[folds >= 0]
    return Curve(
        tuple(points), tuple(_gains(points, guesses, final.labels, folds)), final.class_ids,
        np.bincount(asked, minlength=len(final.class_ids)).astype(np.int64),
        _confusion(final.labels, guesses[-1] if guesses else None, len(final.class_ids)),
        embedding.backbone, settings.learner, len(everything) - len(final),
    )  # fmt: skip


def round_ends(ledger: Ledger) -> list[RoundEnd]:
    """The state before the first round, and at the end of each: when the next was chosen, or now."""
    rounds = list_rounds(ledger)
    starts = [_known_at_opening(ledger, one) for one in rounds]
    ends = [*starts[1:], last_event(ledger)] if rounds else []
    before = [RoundEnd(0, starts[0] if rounds else last_event(ledger), rounds[0].opened_at if rounds else now())]
    return before + [
        RoundEnd(one.id, end, now() if one.closed_at is None else one.closed_at)
        for one, end in zip(rounds, ends, strict=True)
    ]


def held_out(learner: Learner, features: FloatArray, known: IntArray, folds: IntArray, classes: int) -> IntArray:
    """The guess about each image, (n,), by a model that learnt from the known labels of the other folds.

    `known` (n,) is −1 where an image had no label; `folds` (n,) is −1 where an image is not asked about, and then it is
    always learnt from. Where nothing is known there is no guess (−1).
    """
    guesses = np.full(len(folds), NO_GUESS, dtype=np.int64)
    for fold in np.unique(folds[folds >= 0]):
        asked, learnt = folds == fold, (folds != fold) & (known >= 0)
        if learnt.any():
            model = learner.fit(features[learnt], known[learnt], classes=classes, seed=SEED)
            guesses[asked] = np.asarray(model.predict_proba(features[asked])).argmax(axis=1)
    return guesses


def _known_at_opening(ledger: Ledger, one: Round) -> int:
    """The last event that the choice of a round knew of; by the clock where the round does not say."""
    kept = one.why.get("last_event")
    if isinstance(kept, int):
        return kept
    return int(ledger.read("SELECT coalesce(max(id), 0) FROM event WHERE at <= ?", (one.opened_at,))[0][0])


def _past(ledger: Ledger, final: Labelled) -> tuple[list[RoundEnd], list[IntArray]]:
    """Moments with new labels, and the columns of the final images as they were known then, −1 where unknown."""
    ends: list[RoundEnd] = []
    past: list[IntArray] = []
    for end in round_ends(ledger):
        then = labelled_set(ledger, end.last_event, final.class_ids)
        known = np.full(len(final), NO_GUESS, dtype=np.int64)
        at = np.searchsorted(final.images, then.images)
        same = (at < len(final)) & (final.images[np.minimum(at, max(len(final) - 1, 0))] == then.images)
        known[at[same]] = then.labels[same]
        if (known >= 0).any() and not (past and np.array_equal(past[-1], known)):
            ends.append(end)
            past.append(known)
    kept = thinned(len(past), MOST_POINTS)
    return [ends[place] for place in kept], [past[place] for place in kept]


def thinned(count: int, most: int) -> list[int]:
    """At most so many of 0..count-1, evenly, the first and the last among them.

    >>> thinned(3, 5), thinned(9, 3)
    ([0, 1, 2], [0, 4, 8])
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist() if count else []


def _point(
    end: RoundEnd, known: IntArray, guesses: IntArray, final: Labelled, folds: IntArray,
    counted: dict[int, tuple[int, int]],
) -> CurvePoint:  # fmt: skip
    guessed, right = counted.get(end.round_id, (0, 0))
    seen = len(np.unique(known[known >= 0]))
    point = CurvePoint(end.round_id, end.at, int((known >= 0).sum()), seen, None, None, guessed, right)
    asked = folds >= 0
    if not asked.any():
        return point
    hits = (guesses == final.labels)[asked]
    return replace(
        point, accuracy=share_with_error(hits), balanced_accuracy=balanced_share(hits, final.labels[asked])
    )  # fmt: skip


def share_with_error(hits: BoolArray) -> Measure:
    """A share and its standard error, which stays above 0 where all or none are hits (Agresti and Coull's +2 +2).

    >>> share_with_error(np.array([True, True, True, False])).value
    0.75
    """
    size = len(hits)
    smoothed = (hits.sum() + 2) / (size + 4)
    return Measure(float(hits.mean()), float(np.sqrt(smoothed * (1 - smoothed) / (size + 4))))


def balanced_share(hits: BoolArray, labels: IntArray) -> Measure:
    """The mean over classes of the share of hits, and its standard error."""
    parts = [share_with_error(hits[labels == cls]) for cls in np.unique(labels)]
    error = np.sqrt(sum(part.error**2 for part in parts)) / len(parts)
    return Measure(float(np.mean([part.value for part in parts])), float(error))


def difference(before: BoolArray, after: BoolArray) -> Measure:
    """How much more often there is a hit, on the same images, and its standard error; +1 +1 keeps that above 0."""
    change = after.astype(np.float64) - before
    size = len(change)
    spread = (np.abs(change).sum() + 1) / (size + 2) - change.mean() ** 2
    return Measure(float(change.mean()), float(np.sqrt(max(spread, 0.0) / size)))


def balanced_difference(before: BoolArray, after: BoolArray, labels: IntArray) -> Measure:
    """The mean over classes of the difference, and its standard error."""
    parts = [difference(before[labels == cls], after[labels == cls]) for cls in np.unique(labels)]
    error = np.sqrt(sum(part.error**2 for part in parts)) / len(parts)
    return Measure(float(np.mean([part.value for part in parts])), float(error))


def _gains(
    points: Sequence[CurvePoint], guesses: Sequence[IntArray], labels: IntArray, folds: IntArray
) -> list[CurveGain]:
    asked = folds >= 0
    if not asked.any():
        return []
    hits = [(guess == labels)[asked] for guess in guesses]
    truth = labels[asked]
    return [
        CurveGain(
            points[place].round_id, points[place].labels - points[place - 1].labels,
            difference(hits[place - 1], hits[place]), balanced_difference(hits[place - 1], hits[place], truth),
        )
        for place in range(1, len(points))
    ]  # fmt: skip


def _guesses_of_rounds(ledger: Ledger, final: Labelled) -> dict[int, tuple[int, int]]:
    """How many images of each round have a guess and a label, and how many of the guesses are right."""
    truth = {image: final.class_ids[label] for image, label in zip(final.images.tolist(), final.labels, strict=True)}
    found: dict[int, tuple[int, int]] = {}
    for row in ledger.read("SELECT round_id, image_id, predicted FROM round_image WHERE predicted IS NOT NULL"):
        if row["image_id"] in truth:
            guessed, right = found.get(row["round_id"], (0, 0))
            found[row["round_id"]] = (guessed + 1, right + (truth[row["image_id"]] == row["predicted"]))
    return found


def _confusion(labels: IntArray, guesses: IntArray | None, classes: int) -> IntArray:
    table = np.zeros((classes, classes), dtype=np.int64)
    if guesses is not None:
        asked = guesses >= 0
        np.add.at(table, (labels[asked], guesses[asked]), 1)
    return table


# -- agreement beyond chance: Cohen's kappa of two annotators, Krippendorff's alpha of any number ---------------------


Answers = Sequence[Hashable | None]
OTHER = "other"  # the answer "none of the classes" is a category of its own
NOTHING = "no image was answered by two people"
ONE_CLASS = "all shared answers are of one class, which chance alone would explain"


@dataclass(frozen=True, slots=True)
class Agreement:
    """A coefficient, 1 = full agreement and 0 = chance, or why it is not defined.

    Attributes
    ----------
    value: None where it is not defined.
    images: those that at least two people answered.
    same: the share of pairs of answers that are equal; None without pairs.
    reason: why `value` is None, else "".
    """

    value: float | None
    images: int
    same: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two people who answered the same images."""

    first: str
    second: str
    kappa: Agreement


@dataclass(frozen=True, slots=True)
class AnnotatorAgreement:
    """Everyone at once, and each two by themselves."""

    alpha: Agreement
    pairs: tuple[Pair, ...]  # those with a shared image, by name


def cohen_kappa(first: Answers, second: Answers) -> Agreement:
    """Agreement of two people beyond what their own habits explain; None is an unanswered image and left out.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "b", "b", "b"]).value
    0.5
    """
    if len(first) != len(second):
        raise BadInput(f"the two lists of answers have {len(first)} and {len(second)} images; give the same images")
    shared = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not shared:
        return Agreement(None, 0, None, NOTHING)
    size = len(shared)
    same = sum(a == b for a, b in shared) / size
    ones, others = Counter(a for a, _ in shared), Counter(b for _, b in shared)
    by_chance = sum(count * others[answer] for answer, count in ones.items()) / size**2
    if by_chance == 1:
        return Agreement(None, size, same, ONE_CLASS)
    return Agreement((same - by_chance) / (1 - by_chance), size, same)


def krippendorff_alpha(units: Sequence[Sequence[Hashable]]) -> Agreement:
    """Agreement of any number of people (Krippendorff 2011), nominal, from the answers to each image.

    1 − observed / expected disagreement: the coincidences of an image with m answers weigh 1 / (m − 1). An image with
    fewer than two answers has nothing to compare and is left out.

    >>> krippendorff_alpha([["a", "a"], ["b", "b"], ["b", "a"], ["a"]]).value
    0.444...
    """
    compared = [Counter(unit) for unit in units if len(unit) > 1]
    if not compared:
        return Agreement(None, 0, None, NOTHING)
    totals: Counter[Hashable] = sum(compared, Counter())
    size = totals.total()  # n: answers that can be compared
    agreeing = sum(sum(count * (count - 1) for count in unit.values()) / (unit.total() - 1) for unit in compared)
    expected = sum(count * (count - 1) for count in totals.values()) / (size - 1)
    same = agreeing / size
    if len(totals) == 1:
        return Agreement(None, len(compared), same, ONE_CLASS)
    return Agreement(1 - (size - agreeing) / (size - expected), len(compared), same)


def annotator_agreement(campaign: HasLedger | Ledger, round_id: int | None = None) -> AnnotatorAgreement:
    """Agreement of all people who answered, over the campaign or over the images of one round; a skip says nothing."""
    answers = standing_answers(ledger_of(campaign), round_id)
    units: dict[int, list[Hashable]] = {}
    for said in answers.values():
        for image, answer in said.items():
            units.setdefault(image, []).append(answer)
    pairs = [
        Pair(first, second, _kappa_of(answers[first], answers[second]))
        for first, second in combinations(sorted(answers), 2)
        if answers[first].keys() & answers[second].keys()
    ]
    return AnnotatorAgreement(krippendorff_alpha(list(units.values())), tuple(pairs))


def standing_answers(ledger: Ledger, round_id: int | None = None) -> dict[str, dict[int, Hashable]]:
    """What each person says of each image: a class id or "other"."""
    within = "" if round_id is None else "AND image_id IN (SELECT image_id FROM round_image WHERE round_id = ?)"
    rows = ledger.read(
        f"SELECT annotator, image_id, kind, class_id FROM answer WHERE kind <> 'skip' {within}",
        () if round_id is None else (round_id,),
    )
    said: dict[str, dict[int, Hashable]] = {}
    for row in rows:
        answer = row["class_id"] if row["kind"] == "label" else OTHER
        said.setdefault(row["annotator"], {})[row["image_id"]] = answer
    return said


def _kappa_of(first: dict[int, Hashable], second: dict[int, Hashable]) -> Agreement:
    shared = sorted(first.keys() & second.keys())
    return cohen_kappa([first[image] for image in shared], [second[image] for image in shared])
