from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make


def make_predictions(seed: int, size: int = 80, passes: int = 4) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet([2.0, 1.0, 0.5], size=size)
    noisy = proba * rng.lognormal(sigma=0.8, size=(passes, size, 3))
    return tailwise.Predictions(
        proba, embeddings=rng.normal(size=(size, 3)), mc_proba=noisy / noisy.sum(axis=2, keepdims=True)
    )


def literal_candidates(given: tailwise.Predictions, threshold: float = 0.5) -> list[int]:
    """Images on which at least half of the passes disagree with the prediction."""
    kept = []
    for i, p in enumerate(np.asarray(given.proba)):
        differ = sum(one[i].argmax() != p.argmax() for one in np.asarray(given.mc_proba))
        if differ >= threshold * len(given.mc_proba):
            kept.append(i)
    return kept


def literal_picks(
    given: tailwise.Predictions, budget: int, seed: int, lam: float = 0.0, target: np.ndarray | None = None
) -> list[int]:
    """k-means of the candidates into as many clusters as picks; for each centre the nearest candidate that is left."""
    kept, proba = literal_candidates(given), np.asarray(given.proba)
    points = np.asarray(given.embeddings)[kept]
    places = KMeans(budget, n_init=1, random_state=seed).fit(points).labels_
    picks: list[int] = []
    for place in sorted(range(budget), key=lambda place: -(places == place).sum()):
        centre = points[places == place].mean(axis=0)
        prices = []
        for i, point in zip(kept, points, strict=True):
            price = np.linalg.norm(point - centre)
            if lam:
                price += lam * np.abs(target - proba[[*picks, i]].sum(axis=0)).sum()
            prices.append(np.inf if i in picks else price)
        picks.append(kept[int(np.argmin(prices))])
    return picks


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_picks_are_those_of_the_literal_algorithm(seed: int, lam: float) -> None:
    given = make_predictions(seed)
    assert len(literal_candidates(given)) > 12
    batch = make("dropquery", balance=lam).select(given, 6, counts=[2, 1, 0], seed=seed)
    assert batch.indices.tolist() == literal_picks(given, 6, seed, lam, batch.target)
    assert batch.status == "greedy"


def test_where_too_few_images_qualify_all_of_them_are_picked_and_then_the_next_best() -> None:
    given = make_predictions(0, passes=5)
    most, some = set(literal_candidates(given)), set(literal_candidates(given, threshold=0.2))
    assert 0 < len(most) < len(some) - 3
    batch = make("dropquery", balance=0).select(given, len(most) + 3)
    assert most < set(batch.indices.tolist()) < some
    everything = make("dropquery", balance=0).select(given, len(some) + 2)
    assert some < set(everything.indices.tolist())


def test_the_threshold_is_the_share_of_passes_that_disagree() -> None:
    given = make_predictions(1)
    strict = literal_candidates(given, threshold=0.75)
    batch = make("dropquery", balance=0, threshold=0.75).select(given, min(3, len(strict)))
    assert set(batch.indices.tolist()) <= set(strict)


@pytest.mark.parametrize("rows", [np.zeros((30, 2)), np.repeat(np.arange(3.0)[:, None], 10, axis=0)])
def test_fewer_distinct_images_than_clusters_do_no_harm(rows: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    given = tailwise.Predictions(np.full((30, 2), 0.5), rows, mc_proba=rng.dirichlet([1, 1], size=(3, 30)))
    batch = make("dropquery", balance=0.1).select(given, 7)
    assert len(set(batch.indices.tolist())) == 7


def test_one_class_can_never_disagree_and_still_gives_a_batch() -> None:
    given = tailwise.Predictions(np.ones((9, 1)), np.eye(9), mc_proba=np.ones((2, 9, 1)))
    assert len(set(make("dropquery", balance=0).select(given, 4).indices.tolist())) == 4


def test_passes_that_do_not_fit_and_wrong_thresholds_are_rejected() -> None:
    given = make_predictions(0)
    with pytest.raises(BadInput, match="mc_proba"):
        make("dropquery", balance=0).select(
            tailwise.Predictions(given.proba, given.embeddings, mc_proba=np.ones((2, 5, 3))), 3
        )
    for bad in (0.0, 1.5):
        with pytest.raises(BadInput, match="threshold is"):
            make("dropquery", balance=0, threshold=bad)
