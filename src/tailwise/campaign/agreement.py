"""How far annotators agree beyond chance: Cohen's kappa of two, Krippendorff's alpha of any number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations

from ..errors import BadInput
from .ledger import HasLedger, Ledger, ledger_of

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
