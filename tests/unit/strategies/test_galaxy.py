"""GALAXY against a literal transcription: loops over all classes, pairs and images, for every pick anew."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make

from .reading_labels import Case


def literal_galaxy(case: Case, budget: int, seed: int = 0) -> list[int]:
    known = {image: int(case.labels[image]) for image in range(case.size, len(case.labels))}
    orders = {cls: case.order(cls) for cls in range(case.classes)}
    rng = np.random.default_rng(seed)
    picks: list[int] = []
    for _ in range(budget):
        found = bisected(orders, known)
        if found is None:
            found = around_borders(orders, known)
        if found is None:
            found = int(rng.choice([image for image in range(case.size) if image not in known]))
        picks.append(found)
        known[found] = int(case.labels[found])
    return picks


def bisected(orders: dict[int, list[int]], known: dict[int, int]) -> int | None:
    best: tuple[int, int, int] | None = None
    for cls, order in orders.items():
        ranks = [rank for rank, image in enumerate(order) if image in known]
        for left, right in pairwise(ranks):
            differ = (known[order[left]] == cls) != (known[order[right]] == cls)
            if differ and right - left > 1 and (best is None or (right - left, cls, left) < best):
                best = right - left, cls, left
    return None if best is None else orders[best[1]][best[2] + best[0] // 2]


def around_borders(orders: dict[int, list[int]], known: dict[int, int]) -> int | None:
    best: tuple[int, int, int] | None = None
    for cls, order in orders.items():
        own = [rank for rank, image in enumerate(order) if known.get(image) == cls]
        other = [rank for rank, image in enumerate(order) if image in known and known[image] != cls]
        if not own or not other:
            continue
        for rank, image in enumerate(order):
            if image not in known:
                farther = max(min(abs(rank - one) for one in own), min(abs(rank - one) for one in other))
                if best is None or (farther, cls, rank) < best:
                    best = farther, cls, rank
    return None if best is None else orders[best[1]][best[2]]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    ("size", "labelled", "classes"), [(40, 6, 3), (25, 0, 4), (60, 12, 2), (12, 3, 1), (50, 20, 7)]
)
@pytest.mark.parametrize("seed", range(3))
def test_picks_are_those_of_the_literal_algorithm(
    size: int, labelled: int, classes: int, seed: int, *, ties: bool
) -> None:
    case = Case(seed, size, labelled, classes, ties=ties)
    assert case.select("galaxy", size, seed=seed) == literal_galaxy(case, size, seed)


def test_a_gap_is_bisected_until_the_border_lies_between_neighbours() -> None:
    proba = np.linspace(0.995, 0.005, 100)
    labels = (np.arange(100) >= 37).astype(np.int64)  # the border of both classes
    given = tailwise.Predictions(
        np.stack([proba, 1 - proba], axis=1),
        labelled_proba=np.array([[1.0, 0.0], [0.0, 1.0]]),
        labelled_labels=np.array([0, 1]),
    )
    asked: list[int] = []

    def oracle(rows: np.ndarray) -> np.ndarray:
        asked.extend(rows.tolist())
        return labels[rows]

    picks = make("galaxy", balance=0).select(given, 9, oracle=oracle).indices.tolist()
    assert picks[:6] == [49, 24, 36, 42, 39, 37]  # the border lies between 36 and 37
    assert picks[6:] == [35, 38, 34]  # then around it: 2 ranks from the other class, and 3
    assert asked == picks


def test_with_labels_of_one_class_picks_are_random_until_a_second_is_found() -> None:
    case = Case(0, 300, 4, 3)
    case.labels[:] = 1
    first, same, other = (case.select("galaxy", 20, seed=seed) for seed in (0, 0, 1))
    assert first == same != other


@pytest.mark.parametrize("balance", [0.5, "paper", "within 5%"])
def test_it_has_no_balanced_form(balance: object) -> None:
    with pytest.raises(BadInput, match="galaxy has no balanced form"):
        make("galaxy", balance=balance)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labelled_proba": np.full((4, 2), 0.5)}, r"labelled_proba must be \(labelled images, 3\)"),
        ({"labelled_proba": np.full((4, 3), np.nan)}, "labelled_proba must hold probabilities"),
        ({"labelled_labels": np.array([0, 1, 2, 3])}, "labelled_labels must be classes from 0 to 2"),
        ({"labelled_labels": np.array([0, 1])}, "labelled_labels must be 4 whole numbers"),
    ],
)
def test_a_labelled_set_that_does_not_fit_is_rejected(change: dict[str, np.ndarray], message: str) -> None:
    case = Case(0, 20, 4, 3)
    given = {"proba": case.proba[:20], "labelled_proba": case.proba[20:], "labelled_labels": case.labels[20:]} | change
    with pytest.raises(BadInput, match=message):
        make("galaxy", balance=0).select(tailwise.Predictions(**given), 5, oracle=case.oracle)


def test_an_oracle_that_gives_no_class_is_rejected() -> None:
    case = Case(0, 20, 4, 3)
    for answer in (np.array([7]), np.array([0.5]), np.array([0, 1]), "cat"):
        with pytest.raises(BadInput, match="oracle must be"):
            make("galaxy", balance=0).select(case.predictions, 5, oracle=lambda _, answer=answer: answer)


def test_a_sparse_softmax_has_no_orders() -> None:
    case = Case(0, 20, 4, 3)
    sparse = tailwise.Predictions(
        tailwise.TopK.of(case.proba[:20], 2), labelled_proba=case.proba[20:], labelled_labels=case.labels[20:]
    )
    with pytest.raises(BadInput, match="needs every probability, but a TopK"):
        make("galaxy", balance=0).select(sparse, 5, oracle=case.oracle)
