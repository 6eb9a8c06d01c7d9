from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.matrix.shards import Rows
from tailwise.strategies import make
from tailwise.strategies.badge import Gradients


def make_predictions(seed: int, size: int = 40, classes: int = 3) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    return tailwise.Predictions(
        proba=rng.dirichlet(np.linspace(2.0, 0.3, classes), size=size), embeddings=rng.normal(size=(size, 5))
    )


def literal_gradients(given: tailwise.Predictions) -> np.ndarray:
    """(onehot(ŷ) − p) ⊗ h, written out, (N, C·d)."""
    rows = []
    for p, h in zip(np.asarray(given.proba), np.asarray(given.embeddings), strict=True):
        error = np.eye(len(p))[p.argmax()] - p
        rows.append(np.outer(error, h).ravel())
    return np.array(rows)


def literal_picks(
    given: tailwise.Predictions, budget: int, seed: int, lam: float = 0.0, target: np.ndarray | None = None
) -> list[int]:
    """k-means++: the longest gradient, then each in proportion to its squared distance, times exp(−λ·added)."""
    gradients, proba = literal_gradients(given), np.asarray(given.proba)
    rng, picks = np.random.default_rng(seed), []
    for turn in range(budget):
        weights = []
        for i, g in enumerate(gradients):
            squared = min(((g - gradients[j]) ** 2).sum() for j in picks) if picks else (g**2).sum()
            factor = 1.0
            if lam:
                counts = proba[picks].sum(axis=0)
                factor = np.exp(-lam * (np.abs(target - counts - proba[i]).sum() - np.abs(target - counts).sum()))
            weights.append(0.0 if i in picks else squared * factor)
        chances = np.array(weights) / sum(weights)
        picks.append(int(rng.choice(len(chances), p=chances)) if turn else int(chances.argmax()))
    return picks


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lam", [0.0, 0.8])
def test_picks_are_those_of_the_literal_algorithm(seed: int, lam: float) -> None:
    given = make_predictions(seed)
    batch = make("badge", balance=lam).select(given, 8, counts=[3, 1, 0], seed=seed)
    assert batch.indices.tolist() == literal_picks(given, 8, seed, lam, batch.target)
    assert batch.status == "greedy"


def test_factored_distances_are_those_of_the_gradients() -> None:
    given = make_predictions(0)
    gradients = Gradients.of(Rows(np.asarray(given.proba)), np.asarray(given.embeddings))
    literal = literal_gradients(given)
    for row in (0, 7):
        expected = ((literal - literal[row]) ** 2).sum(axis=1)
        np.testing.assert_allclose(gradients.scale**2 * gradients.distances(row), expected, rtol=1e-4, atol=1e-5)


def test_distances_of_confident_images_keep_their_precision() -> None:
    sure = 1 - np.geomspace(1e-7, 1e-3, 20)
    given = tailwise.Predictions(np.stack([sure, 1 - sure], axis=1), np.ones((20, 2)))
    gradients = Gradients.of(Rows(np.asarray(given.proba)), np.asarray(given.embeddings))
    expected = ((literal_gradients(given) - literal_gradients(given)[5]) ** 2).sum(axis=1)
    np.testing.assert_allclose(gradients.distances(5), expected, rtol=1e-3)


def test_informativeness_is_the_sum_of_the_distances_to_earlier_picks() -> None:
    given = make_predictions(1)
    batch = make("badge", balance=0).select(given, 5)
    g, picks = literal_gradients(given), batch.indices.tolist()
    far = [
        min(np.linalg.norm(g[i] - g[j]) for j in picks[:t]) if t else np.linalg.norm(g[i]) for t, i in enumerate(picks)
    ]
    assert batch.informativeness == pytest.approx(sum(far), rel=1e-4)


def test_copies_of_a_pick_are_drawn_last() -> None:
    base = make_predictions(2, size=6)
    copies = tailwise.Predictions(np.repeat(base.proba, 10, axis=0), np.repeat(base.embeddings, 10, axis=0))
    for seed in range(5):
        batch = make("badge", balance=0).select(copies, 6, seed=seed)
        assert sorted((batch.indices // 10).tolist()) == list(range(6))


@pytest.mark.parametrize(
    ("proba", "embeddings"),
    [
        (np.ones((7, 1)), np.ones((7, 2))),  # one class: no gradient at all
        (np.full((7, 2), 0.5), np.zeros((7, 2))),
        (np.full((7, 2), 0.5), np.full((7, 2), 1e90)),
        (np.full((7, 2), 0.5), np.full((7, 2), 6e4, dtype=np.float16)),
    ],
)
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_gradients_that_are_all_equal_do_no_harm(proba: np.ndarray, embeddings: np.ndarray, lam: float) -> None:
    batch = make("badge", balance=lam).select(tailwise.Predictions(proba, embeddings), 4)
    assert len(set(batch.indices.tolist())) == 4
    assert np.isfinite(batch.objective)
