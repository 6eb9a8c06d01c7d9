"""DIRECT against a literal transcription: every threshold of every class is judged by counting, for every pick anew."""

from __future__ import annotations

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.strategies import make

from .reading_labels import Case


def literal_direct(case: Case, budget: int) -> list[int]:
    known = {image: int(case.labels[image]) for image in range(case.size, len(case.labels))}
    orders = {cls: case.order(cls) for cls in range(case.classes) if case.proba[: case.size, cls].max() > 0}
    turns, picks = dict.fromkeys(orders, 0), list[int]()

    def labels_of(cls: int) -> int:
        return sum(label == cls for label in known.values())

    while len(picks) < budget // 2:
        candidates = []
        for cls, order in orders.items():
            first, last = interval(order, cls, known)
            inside = [image for image in order[first:last] if image not in known]
            if inside:
                candidates.append((turns[cls], labels_of(cls), cls, inside[(len(inside) - 1) // 2]))
        if not candidates:
            break
        _, _, cls, image = min(candidates)
        turns[cls] += 1
        picks.append(image)
        known[image] = int(case.labels[image])

    thresholds = {cls: sum(interval(order, cls, known)) // 2 for cls, order in orders.items()}
    by_rarity = sorted(orders, key=lambda cls: (labels_of(cls), cls))
    turn, taken = 0, set(known)
    while len(picks) < budget:
        for cls in by_rarity:
            before = [image for image in orders[cls][: thresholds[cls]][::-1] if image not in taken]
            after = [image for image in orders[cls][thresholds[cls] :] if image not in taken]
            near = before + after if turn % 2 == 0 else after + before
            if near and len(picks) < budget:
                # The nearest of the side whose turn it is, or else of the other.
                picks.append(near[0])
                taken.add(near[0])
        turn += 1
    return picks


def interval(order: list[int], cls: int, known: dict[int, int]) -> tuple[int, int]:
    worth = []
    for threshold in range(len(order) + 1):
        called = [known[image] for image in order[:threshold] if image in known]
        worth.append(sum(label == cls for label in called) - sum(label != cls for label in called))
    best = [threshold for threshold, one in enumerate(worth) if one == max(worth)]
    return best[0], best[-1]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("size", "labelled", "classes", "budget"),
    [(40, 6, 3, 15), (25, 0, 4, 25), (60, 12, 2, 30), (12, 3, 1, 6), (50, 20, 7, 21), (20, 5, 3, 1), (20, 5, 3, 20)],
)
@pytest.mark.parametrize("seed", range(3))
def test_picks_are_those_of_the_literal_algorithm(
    size: int, labelled: int, classes: int, budget: int, seed: int, *, ties: bool
) -> None:
    case = Case(seed, size, labelled, classes, ties=ties)
    assert case.select("direct", budget) == literal_direct(case, budget)


def test_only_the_labels_of_the_first_half_are_read() -> None:
    case = Case(1, 80, 10, 4)
    picks = case.select("direct", 31)
    assert case.oracle.asked == picks[: len(case.oracle.asked)]
    assert 0 < len(case.oracle.asked) <= 15


def test_a_class_that_the_model_gives_no_probability_gets_no_turn() -> None:
    case = Case(2, 60, 9, 3)
    case.proba = np.hstack([case.proba, np.zeros((69, 1))])
    case.classes = 4
    assert case.select("direct", 30) == literal_direct(case, 30)


def test_the_rarest_class_is_narrowed_first() -> None:
    case = Case(4, 90, 12, 3)
    case.labels[case.size :] = [0] * 6 + [1] * 5 + [2]
    first = case.select("direct", 2)[0]
    start, stop = interval(case.order(2), 2, dict(zip(range(90, 102), case.labels[90:].tolist(), strict=True)))
    inside = [image for image in case.order(2)[start:stop] if image < 90]
    assert first == inside[(len(inside) - 1) // 2]


def test_it_has_no_balanced_form() -> None:
    with pytest.raises(BadInput, match="direct has no balanced form"):
        make("direct", balance=1.0)
