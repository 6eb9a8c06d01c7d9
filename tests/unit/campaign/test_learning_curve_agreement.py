"""Agreement: the numbers of published worked examples, of brute force, and a reason where there is no number."""

from __future__ import annotations

import uuid
from collections.abc import Hashable, Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tailwise.campaign.answers import Answer, record, undo
from tailwise.campaign.learning_curve import NOTHING, ONE_CLASS, annotator_agreement, cohen_kappa, krippendorff_alpha
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round
from tailwise.errors import BadInput


def row(text: str) -> list[str | None]:
    return [None if answer == "." else answer for answer in text.split()]


def by_image(table: Sequence[Sequence[Hashable | None]]) -> list[list[Hashable]]:
    """The answers to each image, from one row per person."""
    return [[answer for answer in column if answer is not None] for column in zip(*table, strict=True)]


FOUR_CODERS = [
    row("1 2 3 3 2 1 4 1 2 . . ."),
    row("1 2 3 3 2 2 4 1 2 5 . 3"),
    row(". 3 3 3 2 3 4 2 2 5 1 ."),
    row("1 2 3 3 2 4 4 1 2 5 1 ."),
]


def test_krippendorff_2011_four_observers_with_gaps() -> None:
    found = krippendorff_alpha(by_image(FOUR_CODERS))
    assert found.value == pytest.approx(0.743, abs=5e-4)
    assert found.images == 11  # the twelfth has one answer


def test_krippendorff_2011_two_observers_binary() -> None:
    table = [row("0 1 0 0 0 0 0 0 1 0"), row("1 1 1 0 0 1 0 0 0 0")]
    assert krippendorff_alpha(by_image(table)).value == pytest.approx(0.095, abs=5e-4)


def test_krippendorff_2011_two_observers_nominal() -> None:
    table = [row("a a b b d c c c e d d a"), row("b a b b b c c c e d d d")]
    assert krippendorff_alpha(by_image(table)).value == pytest.approx(0.692, abs=5e-4)


def test_cohen_1960_two_hundred_cases() -> None:
    cells = {"11": 88, "12": 14, "13": 18, "21": 10, "22": 40, "23": 10, "31": 2, "32": 6, "33": 12}
    answers = [pair for pair, times in cells.items() for _ in range(times)]
    found = cohen_kappa([pair[0] for pair in answers], [pair[1] for pair in answers])
    assert found.value == pytest.approx(0.492, abs=5e-4)
    assert found.same == pytest.approx(0.70)
    assert found.images == 200


def literal_alpha(table: Sequence[Sequence[Hashable | None]]) -> float:
    """The definition, pair by pair: 1 − mean difference within images over mean difference between all answers."""
    units = [unit for unit in by_image(table) if len(unit) > 1]
    everything = [answer for unit in units for answer in unit]
    observed = sum(sum(a != b for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in units) / len(everything)
    differing = sum(a != b for a, b in permutations(everything, 2))
    return 1 - observed / (differing / (len(everything) * (len(everything) - 1)))


tables = some.integers(1, 5).flatmap(
    lambda people: some.lists(
        some.lists(some.sampled_from(["a", "b", "c", None]), min_size=people, max_size=people), min_size=1, max_size=9
    )
)


@given(tables)
def test_alpha_equals_the_literal_definition_wherever_there_is_one(columns: list[list[str | None]]) -> None:
    table = [list(row) for row in zip(*columns, strict=True)]
    found = krippendorff_alpha(by_image(table))
    compared = [[a for a in column if a] for column in columns if sum(a is not None for a in column) > 1]
    kinds = {answer for unit in compared for answer in unit}
    assert (found.value is None) == (len(kinds) < 2)
    assert found.images == len(compared)
    if found.value is not None:
        assert found.value == pytest.approx(literal_alpha(table))


@given(some.lists(some.tuples(some.sampled_from("abc"), some.sampled_from("abc")), min_size=1, max_size=30))
def test_kappa_equals_the_literal_definition(pairs: list[tuple[str, str]]) -> None:
    found = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs])
    crossed = [a == b for a, _ in pairs for _, b in pairs]  # every answer of one with every answer of the other
    by_chance = sum(crossed) / len(crossed)
    same = sum(a == b for a, b in pairs) / len(pairs)
    if by_chance == 1:
        assert (found.value, found.reason) == (None, ONE_CLASS)
    else:
        assert found.value == pytest.approx((same - by_chance) / (1 - by_chance))


def test_without_a_shared_image_there_is_a_reason_and_no_number() -> None:
    for found in (cohen_kappa([], []), cohen_kappa(["a", None], [None, "b"]), krippendorff_alpha([["a"], ["b"]])):
        assert (found.value, found.images, found.same, found.reason) == (None, 0, None, NOTHING)
    assert krippendorff_alpha([]).reason == NOTHING


def test_answers_of_one_class_alone_have_a_reason_and_no_number() -> None:
    for found in (cohen_kappa(["a", "a"], ["a", "a"]), krippendorff_alpha([["a", "a"], ["a", "a"]])):
        assert (found.value, found.images, found.same, found.reason) == (None, 2, 1.0, ONE_CLASS)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(BadInput, match="2 and 1 images"):
        cohen_kappa(["a", "b"], ["a"])


def answered(ledger: Ledger, answers: str) -> None:
    """Answers such as "ann 1 2": who, which image, which class, or "other" or "skip"."""
    for line in answers.split(","):
        who, image, what = line.split()
        kind, cls = ("label", int(what)) if what.isdigit() else (what, None)
        record(ledger, [Answer(uuid.uuid4().hex, int(image), who, kind, cls)])


def test_the_ledger_is_read_with_other_as_an_answer_and_a_skip_as_none(ledger: Ledger) -> None:
    answered(ledger, "ann 1 1, bob 1 1, ann 2 2, bob 2 other, ann 3 other, bob 3 other, ann 4 1, bob 4 skip, cat 4 2")
    found = annotator_agreement(ledger)
    literal = [[1, 2, "other", 1], [1, "other", "other", None], [None, None, None, 2]]
    assert found.alpha == krippendorff_alpha(by_image(literal))
    assert [(pair.first, pair.second) for pair in found.pairs] == [("ann", "bob"), ("ann", "cat")]
    assert found.pairs[0].kappa == cohen_kappa([1, 2, "other"], [1, "other", "other"])
    assert found.pairs[1].kappa.images == 1


def test_only_the_last_answer_of_a_person_counts_and_an_undone_one_does_not(ledger: Ledger) -> None:
    answered(ledger, "ann 1 1, bob 1 2, ann 2 1, bob 2 2, ann 3 3, bob 3 3, bob 1 1")
    undo(ledger, uuid.uuid4().hex, "bob", undoes_key=ledger.read("SELECT key FROM event WHERE id = 4")[0]["key"])
    found = annotator_agreement(ledger)
    assert (found.alpha.value, found.alpha.images) == (1.0, 2)


def test_a_round_is_looked_at_by_itself(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="random")
    answered(ledger, "ann 1 1, bob 1 1, ann 2 2, bob 2 2, ann 3 1, bob 3 2")
    assert annotator_agreement(ledger, 1).alpha.value == 1.0
    assert annotator_agreement(ledger).alpha.value != 1.0


def test_before_anybody_has_answered_there_is_a_reason(ledger: Ledger) -> None:
    found = annotator_agreement(ledger)
    assert (found.alpha.value, found.alpha.reason, found.pairs) == (None, NOTHING, ())
