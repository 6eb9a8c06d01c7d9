"""MaxHerding and UHerding: picks of the literal algorithms, and bounds that no batch beats."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make
from tailwise.targets import Target


def make_predictions(seed: int, size: int = 30, labelled: int = 4, classes: int = 3) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    return tailwise.Predictions(
        proba=rng.dirichlet(np.linspace(2.0, 0.3, classes), size=size),
        embeddings=rng.normal(size=(size, 4)),
        labelled_embeddings=rng.normal(size=(labelled, 4)),
    )


def normalised(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def literal_width(given: tailwise.Predictions, kind: str) -> float:
    """s²: the smallest distance, or the median of the nearest ones, within the labelled set, or else the pool."""
    rows = given.labelled_embeddings if len(given.labelled_embeddings) > 1 else given.embeddings
    rows = normalised(np.asarray(rows))
    nearest = [min(((a - b) ** 2).sum() for j, b in enumerate(rows) if j != i) for i, a in enumerate(rows)]
    return float(min(nearest) if kind == "smallest" else np.median(nearest))


def literal_weights(given: tailwise.Predictions, name: str, temperature: float = 1.0) -> np.ndarray:
    proba = np.asarray(given.proba) ** (1 / temperature)
    top = np.sort(proba / proba.sum(axis=1, keepdims=True), axis=1)
    plain = name == "maxherding" or not len(given.labelled_embeddings)
    weights = np.ones(len(proba)) if plain else 1 - (top[:, -1] - top[:, -2])
    return weights / weights.sum()


def literal_value(given: tailwise.Predictions, weights: np.ndarray, width: float, picks: list[int]) -> float:
    """F: every image counts by its most similar labelled or picked one."""
    pool, labelled = normalised(np.asarray(given.embeddings)), np.asarray(given.labelled_embeddings)
    chosen = [*normalised(labelled), *pool[picks]]
    total = 0.0
    for weight, row in zip(weights, pool, strict=True):
        total += weight * max([np.exp(-((row - other) ** 2).sum() / width) for other in chosen], default=0.0)
    return total


def literal_l1(given: tailwise.Predictions, target: np.ndarray, picks: list[int]) -> float:
    return float(np.abs(target - np.asarray(given.proba)[picks].sum(axis=0)).sum())


def literal_picks(
    given: tailwise.Predictions, weights: np.ndarray, width: float, budget: int, lam: float, target: np.ndarray
) -> list[int]:
    picks: list[int] = []
    for _ in range(budget):
        price = [
            np.inf if i in picks
            else lam * literal_l1(given, target, [*picks, i]) - literal_value(given, weights, width, [*picks, i])
            for i in range(len(weights))
        ]  # fmt: skip
        picks.append(int(np.argmin(price)))
    return picks


@pytest.mark.parametrize("name", ["maxherding", "uherding"])
@pytest.mark.parametrize("width", ["median", "smallest"])
@pytest.mark.parametrize("lam", [0.0, 0.02, 0.5])
@pytest.mark.parametrize("labelled", [0, 5])
def test_picks_are_those_of_the_literal_algorithm(name: str, width: str, lam: float, labelled: int) -> None:
    given = make_predictions(labelled + 1, labelled=labelled)
    batch = make(name, width=width, balance=lam).select(given, 5, counts=[3, 1, 0])
    weights, squared = literal_weights(given, name), literal_width(given, width)
    assert batch.indices.tolist() == literal_picks(given, weights, squared, 5, lam, batch.target)
    reached = literal_value(given, weights, squared, batch.indices.tolist())
    assert batch.informativeness == pytest.approx(reached, abs=1e-5)
    assert batch.objective == pytest.approx(lam * batch.l1 - reached, abs=1e-5)
    assert batch.status == "greedy"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["maxherding", "uherding"])
@pytest.mark.parametrize("lam", [0.0, 0.01, 0.1, 2.0])
def test_no_batch_of_a_tiny_pool_beats_the_bound(seed: int, name: str, lam: float) -> None:
    given = make_predictions(seed, size=11, labelled=3 * (seed % 2))
    batch = make(name, width=0.7, balance=lam).select(given, 3, counts=[2, 1, 0])
    weights = literal_weights(given, name)
    best = min(
        lam * literal_l1(given, batch.target, list(some)) - literal_value(given, weights, 0.49, list(some))
        for some in combinations(range(11), 3)
    )
    assert batch.bound <= best
    assert best <= batch.objective + 1e-6
    assert np.isfinite(batch.gap)


def test_bounds_hold_for_ranges_too() -> None:
    given = make_predictions(0, size=10, labelled=2)
    target = Target.ranges(low=[1, 1, 0], high=[2, 2, 1])
    batch = make("maxherding", width=0.7, balance=0.2).select(given, 3, target=target)
    weights, costs = literal_weights(given, "maxherding"), []
    for some in combinations(range(10), 3):
        expected = np.asarray(given.proba)[list(some)].sum(axis=0)
        outside = np.maximum([1, 1, 0] - expected, 0) + np.maximum(expected - [2, 2, 1], 0)
        costs.append(0.2 * outside.sum() - literal_value(given, weights, 0.49, list(some)))
    assert batch.bound <= min(costs)
    assert min(costs) <= batch.objective + 1e-6


def test_bounds_are_near_where_images_do_not_overlap() -> None:
    given = tailwise.Predictions(np.full((40, 2), 0.5), np.eye(40), np.empty((0, 40)))
    for lam in (0.0, 0.1):
        assert make("maxherding", width=0.2, balance=lam).select(given, 7).gap < 1e-4


def test_the_whole_pool_leaves_no_gap() -> None:
    batch = make("uherding", balance=0).select(make_predictions(0, size=12), 12)
    assert batch.informativeness == pytest.approx(1.0)
    assert batch.gap == pytest.approx(0.0, abs=1e-5)


def test_temperature_changes_the_weights_alone() -> None:
    given = make_predictions(3)
    batch = make("uherding", balance=0, width=0.6, temperature=0.3).select(given, 5)
    weights = literal_weights(given, "uherding", temperature=0.3)
    assert batch.indices.tolist() == literal_picks(given, weights, 0.36, 5, 0.0, batch.target)


def test_without_labels_the_two_are_one() -> None:
    given = make_predictions(4, labelled=0)
    plain, weighted = (make(name, balance=0).select(given, 6) for name in ("maxherding", "uherding"))
    assert plain.indices.tolist() == weighted.indices.tolist()


def test_a_large_pool_is_represented_by_a_seeded_sample() -> None:
    rng = np.random.default_rng(0)
    centres = 5 * rng.normal(size=(6, 8))
    places = rng.integers(6, size=600)
    given = tailwise.Predictions(
        rng.dirichlet([1, 1], size=600), centres[places] + 0.1 * rng.normal(size=(600, 8)), np.empty((0, 8))
    )
    sampled = make("maxherding", balance=0, references=60, width=0.5)
    batch = sampled.select(given, 6, seed=1)
    assert sorted(places[batch.indices]) == list(range(6))
    assert batch.indices.tolist() == sampled.select(given, 6, seed=1).indices.tolist()


def test_copies_and_zero_embeddings_do_no_harm() -> None:
    proba = np.full((9, 2), 0.5)
    for rows in (np.zeros((9, 3)), np.ones((9, 3))):
        batch = make("uherding", balance=0.1).select(tailwise.Predictions(proba, rows, rows[:2]), 4)
        assert len(set(batch.indices.tolist())) == 4
        assert np.isfinite(batch.gap)


def test_a_model_that_is_certain_of_all_images_still_covers_them() -> None:
    given = make_predictions(5)
    certain = tailwise.Predictions(np.eye(3)[np.arange(30) % 3], given.embeddings, given.labelled_embeddings)
    plain = make("maxherding", balance=0).select(certain, 5)
    assert make("uherding", balance=0).select(certain, 5).indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"width": "mean"}, "width is 'mean'"),
        ({"width": 0.0}, "width is 0.0"),
        ({"width": None}, "width is None"),
        ({"references": 0}, "references is 0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make("uherding", balance=0, **settings)
