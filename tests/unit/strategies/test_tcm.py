from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import cold_start, make

RNG = np.random.default_rng(0)
GIVEN = tailwise.Predictions(
    RNG.dirichlet([3.0, 1.0, 0.5], size=90),
    embeddings=RNG.normal(size=(90, 4)),
    labelled_embeddings=RNG.normal(size=(5, 4)),
)


def picks(name: str, counts: list[int], given: tailwise.Predictions = GIVEN, **settings: object) -> list[int]:
    return make(name, **{"balance": 0, **settings}).select(given, 8, counts=counts, seed=2).indices.tolist()


@pytest.mark.parametrize("balance", [0.0, 0.4, "auto"])
def test_typiclust_chooses_while_labels_are_few_and_margin_afterwards(balance: float | str) -> None:
    few, enough = [3, 2, 0], [3, 2, 1]  # of the 6 that two per class make
    assert picks("tcm", few, balance=balance) == picks("typiclust", few, balance=balance)
    assert picks("tcm", enough, balance=balance) == picks("margin", enough, balance=balance)


def test_the_number_of_labels_per_class_is_a_setting() -> None:
    assert picks("tcm", [3, 2, 0], labels_per_class=1) == picks("margin", [3, 2, 0])
    assert picks("tcm", [9, 9, 9], labels_per_class=10) == picks("typiclust", [9, 9, 9])


def test_labelled_embeddings_count_as_labels_where_no_counts_are_given() -> None:
    many = replace(GIVEN, labelled_embeddings=RNG.normal(size=(6, 4)))
    assert picks("tcm", [0, 0, 0], many) == picks("margin", [0, 0, 0], many)
    assert picks("tcm", [0, 0, 0]) == picks("typiclust", [0, 0, 0])


def test_a_start_without_labels_is_that_of_typiclust() -> None:
    blank = cold_start(np.asarray(GIVEN.embeddings), classes=3)
    assert picks("tcm", [0, 0, 0], blank) == picks("typiclust", [0, 0, 0], blank)


def test_margin_keeps_its_certificate() -> None:
    batch = make("tcm", balance=0.5).select(GIVEN, 8, counts=[9, 9, 9])
    assert batch.method == "tcm"
    assert batch.gap <= 1e-2


def test_a_negative_number_of_labels_is_rejected() -> None:
    with pytest.raises(BadInput, match="labels_per_class is -1"):
        make("tcm", balance=0, labels_per_class=-1)
