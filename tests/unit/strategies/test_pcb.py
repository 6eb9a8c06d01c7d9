"""PCB against a literal transcription, and as the limit of the paper's program with hard labels."""

from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make


def softmax(seed: int, size: int = 90, classes: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.geomspace(2.0, 0.2, classes), size=size)


def literal_pcb(proba: np.ndarray, counts: list[float], budget: int, scores: np.ndarray) -> list[int]:
    labels, picks = list(counts), list[int]()
    predicted = [max(range(proba.shape[1]), key=lambda k: (row[k], -k)) for row in proba]
    for _ in range(budget):
        open_classes = {predicted[i] for i in range(len(proba)) if i not in picks}
        rarest = min(open_classes, key=lambda k: (labels[k], k))
        images = [i for i in range(len(proba)) if predicted[i] == rarest and i not in picks]
        picks.append(max(images, key=lambda i: (scores[i], -i)))
        labels[rarest] += 1
    return picks


def margins(proba: np.ndarray) -> np.ndarray:
    ordered = np.sort(proba, axis=1)
    return 1.0 - (ordered[:, -1] - ordered[:, -2])


@pytest.mark.parametrize("pick", ["random", "uncertain"])
@pytest.mark.parametrize("counts", [[0, 0, 0, 0, 0], [9, 4, 1, 0, 0], [3, 3, 30, 2, 2]])
@pytest.mark.parametrize("budget", [1, 13, 90])
@pytest.mark.parametrize("seed", range(3))
def test_picks_are_those_of_the_literal_algorithm(pick: str, counts: list[float], budget: int, seed: int) -> None:
    proba = softmax(seed)
    scores = margins(proba) if pick == "uncertain" else np.random.default_rng(seed).random(90)
    batch = make("pcb", balance=0, pick=pick).select(tailwise.Predictions(proba), budget, counts=counts, seed=seed)
    assert batch.indices.tolist() == literal_pcb(proba, counts, budget, scores)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_program_with_hard_labels_in_the_limit(seed: int) -> None:
    """No batch of this size has counts of predicted classes nearer to the target."""
    proba, counts = softmax(seed), np.array([9, 4, 1, 0, 0])
    batch = make("pcb", balance=0).select(tailwise.Predictions(proba), 20, counts=counts)
    hard = np.eye(5)[proba.argmax(axis=1)]
    limit = tailwise.select(hard, 20, score=np.zeros(90), counts=counts, balance=1.0)
    assert np.abs(batch.target - hard[batch.indices].sum(axis=0)).sum() == pytest.approx(limit.l1)


def test_a_target_of_ones_own_decides_which_class_is_rarest() -> None:
    proba = np.repeat(np.eye(3) * 0.9 + 0.1 / 3, 20, axis=0)
    proba /= proba.sum(axis=1, keepdims=True)
    wanted = tailwise.Target.counts([1, 7, 4])
    batch = make("pcb", balance=0).select(tailwise.Predictions(proba), 12, target=wanted)
    assert np.bincount(proba.argmax(axis=1)[batch.indices]).tolist() == [1, 7, 4]


def test_balance_chooses_among_the_images_of_the_rarest_class() -> None:
    proba, counts = softmax(1, size=400), [9, 4, 1, 0, 0]
    plain, balanced = (
        make("pcb", balance=lam).select(tailwise.Predictions(proba), 30, counts=counts) for lam in (0.0, 20.0)
    )
    predicted = proba.argmax(axis=1)
    assert predicted[plain.indices].tolist() == predicted[balanced.indices].tolist()
    assert balanced.l1 < plain.l1


def test_one_class_equal_probabilities_and_an_unknown_pick() -> None:
    assert len(make("pcb", balance=0).select(tailwise.Predictions(np.ones((6, 1))), 4)) == 4
    equal = make("pcb", balance=0, pick="uncertain").select(tailwise.Predictions(np.full((6, 3), 1 / 3)), 4)
    assert equal.indices.tolist() == [0, 1, 2, 3]
    with pytest.raises(BadInput, match="pick is 'best'; it must be one of 'random', 'uncertain'"):
        make("pcb", balance=0, pick="best")
