from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput
from tailwise.strategies import make


def make_proba(seed: int, size: int = 40) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet([2.0, 1.0, 0.5, 0.3], size=size)


def literal_picks(
    proba: np.ndarray, budget: int, seed: int, gamma: float = 10.0, lam: float = 0.0, target: np.ndarray | None = None
) -> list[int]:
    """Relevance u + d, drawn in proportion to its γ-th power; d to the nearest pick, scaled to 0 … 1."""
    rng, picks = np.random.default_rng(seed), []
    u = [1 - (sorted(p)[-1] - sorted(p)[-2]) for p in proba]
    d = list(u)
    for _ in range(budget):
        weights = []
        for i, p in enumerate(proba):
            counts = proba[picks].sum(axis=0)
            factor = 1.0
            if lam:
                factor = np.exp(-lam * (np.abs(target - counts - p).sum() - np.abs(target - counts).sum()))
            weights.append(0.0 if i in picks else (u[i] + d[i]) ** gamma * factor)
        pick = int(rng.choice(len(proba), p=np.array(weights) / sum(weights)))
        picks.append(pick)
        d = [min(d[i], np.abs(p - proba[pick]).sum()) for i, p in enumerate(proba)]
        low, high = min(d), max(d)
        d = [(one - low) / (high - low) for one in d]
    return picks


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("gamma", "lam"), [(10.0, 0.0), (1.0, 0.0), (0.0, 0.0), (10.0, 0.7)])
def test_picks_are_those_of_the_literal_algorithm(seed: int, gamma: float, lam: float) -> None:
    proba = make_proba(seed)
    batch = make("falcun", gamma=gamma, balance=lam).select(
        tailwise.Predictions(proba), 9, counts=[2, 1, 0, 0], seed=seed
    )
    assert batch.indices.tolist() == literal_picks(proba, 9, seed, gamma, lam, batch.target)
    assert batch.status == "greedy"


def test_a_huge_gamma_takes_the_most_relevant_image() -> None:
    proba = make_proba(1)
    batch = make("falcun", balance=0, gamma=1e6).select(tailwise.Predictions(proba), 1)
    top = np.sort(proba, axis=1)
    assert batch.indices.tolist() == [int((top[:, -1] - top[:, -2]).argmin())]


@pytest.mark.parametrize("proba", [np.ones((6, 1)), np.full((6, 3), 1 / 3), np.eye(3)[[0, 0, 0, 1, 1, 2]]])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_equal_and_certain_probabilities_do_no_harm(proba: np.ndarray, lam: float) -> None:
    batch = make("falcun", balance=lam).select(tailwise.Predictions(proba), 5)
    assert len(set(batch.indices.tolist())) == 5


def test_a_gamma_below_zero_is_rejected() -> None:
    with pytest.raises(BadInput, match="gamma is -1"):
        make("falcun", balance=0, gamma=-1)
