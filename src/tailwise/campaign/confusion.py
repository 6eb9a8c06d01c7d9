"""Which classes are confused most often: by the model, on labels that it has not seen, and by people who differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, cast

import numpy as np

from ..types import IntArray
from .classes import list_classes
from .gallery import keys_of
from .learning_curve import OTHER, standing_answers
from .ledger import Ledger

MOST = 5  # pairs that are shown of the model, and of people
MOST_IMAGES = 500  # of one pair


@dataclass(frozen=True, slots=True)
class ConfusedPair:
    """Two classes that are confused.

    Attributes
    ----------
    by: "model" (images of the first class that it took for the second) or "people" (images that got both answers).
    class_id, other_id: None for "none of the classes".
    count, of: confused images; of the labelled images of the first class, or of the images that two people answered,
        one of them with one of the two classes.
    images: keys of the confused images, where people differ.
    """

    by: str
    class_id: int | None
    other_id: int | None
    count: int
    of: int
    text: str
    images: tuple[str, ...] = ()


def confused_by_model(confusion: IntArray, class_ids: Sequence[int]) -> list[list[int]]:
    """Class, what it was taken for, how often, and of how many, from (C, C) counts: true classes down, guesses across.

    Most often first, then the larger share of its class, then in the order of the classes.

    >>> confused_by_model(np.array([[8, 2, 0], [1, 3, 0], [2, 0, 5]]), [10, 20, 30])
    [[30, 10, 2, 7], [10, 20, 2, 10], [20, 10, 1, 4]]
    """
    of = confusion.sum(axis=1)  # (C,)
    wrong = [(int(true), int(guess)) for true, guess in np.argwhere(confusion) if true != guess]
    wrong.sort(key=lambda pair: (-confusion[pair], -confusion[pair] / of[pair[0]]))
    return [[class_ids[true], class_ids[guess], int(confusion[true, guess]), int(of[true])] for true, guess in wrong]


@dataclass(frozen=True, slots=True)
class Difference:
    """Two answers that people gave to the same images: class ids, or "other"."""

    first: Hashable
    second: Hashable
    images: tuple[int, ...]  # that got both
    of: int  # images that two people answered, one of them with one of the two


def confused_by_people(answers: Mapping[str, Mapping[int, Hashable]]) -> list[Difference]:
    """Pairs of different answers to the same image, by person and image; most images first, then the larger share."""
    said: dict[int, list[Hashable]] = {}
    for given in answers.values():
        for image, answer in given.items():
            said.setdefault(image, []).append(answer)
    shared = {image: sorted(set(several), key=str) for image, several in sorted(said.items()) if len(several) > 1}
    alone: Counter[Hashable] = Counter(answer for different in shared.values() for answer in different)
    both: dict[tuple[Hashable, Hashable], list[int]] = {}
    for image, different in shared.items():
        for pair in combinations(different, 2):
            both.setdefault(pair, []).append(image)
    found = [
        Difference(one, other, tuple(images), alone[one] + alone[other] - len(images))
        for (one, other), images in both.items()
    ]
    return sorted(found, key=lambda pair: (-len(pair.images), -len(pair.images) / pair.of, str(pair.first)))


def confused_classes(ledger: Ledger, measures: Mapping[str, Any] | None) -> tuple[ConfusedPair, ...]:
    """The pairs that are confused most often, first those of the model as it was measured last."""
    names: dict[Hashable, str] = {one.id: one.name for one in list_classes(ledger, retired=True)}
    names[OTHER] = "other"
    kept = [pair for pair in (measures or {}).get("confused", []) if pair[0] in names and pair[1] in names]
    model = [
        ConfusedPair("model", true, guess, count, of, f"{names[true]} taken for {names[guess]}: {count:,} of {of:,}")
        for true, guess, count, of in kept[:MOST]
    ]
    people = []
    for pair in confused_by_people(standing_answers(ledger))[:MOST]:
        count, (first, second) = len(pair.images), (None if one == OTHER else one for one in (pair.first, pair.second))
        text = f"{names[pair.first]} or {names[pair.second]}: people differ on {count:,} of {pair.of:,}"
        keys = keys_of(ledger, np.array(pair.images[:MOST_IMAGES], np.int64))
        ids = cast("tuple[int | None, int | None]", (first, second))
        people.append(ConfusedPair("people", *ids, count, pair.of, text, tuple(keys)))
    return (*model, *people)
