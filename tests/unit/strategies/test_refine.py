from __future__ import annotations

import numpy as np
import pytest

import tailwise
from tailwise.errors import BadInput, UnknownName
from tailwise.strategies import make


def make_predictions(seed: int = 0, size: int = 120, dtype: type = np.float64) -> tailwise.Predictions:
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet([2.0, 1.0, 0.5], size=size).astype(dtype)
    return tailwise.Predictions(proba, rng.normal(size=(size, 4)), rng.normal(size=(5, 4)))


def literal_refine(given: tailwise.Predictions, budget: int, seed: int, proposers: list[str]) -> list[int]:
    """Two rounds, three batches of each proposer on random halves; the union is the next pool; UHerding picks."""
    rng, pool = np.random.default_rng(seed), list(range(len(given.proba)))

    def picks(name: str, rows: list[int], seed: int) -> list[int]:
        part = tailwise.Predictions(given.proba[rows], given.embeddings[rows], given.labelled_embeddings)
        return [rows[i] for i in make(name, balance=0).select(part, budget, seed=seed).indices]

    for _ in range(2):
        union: set[int] = set()
        for name in proposers:
            for _ in range(3):
                half = sorted(rng.choice(pool, -(-len(pool) // 2), replace=False).tolist())
                union |= set(picks(name, half, int(rng.integers(2**32))))
        pool = sorted(union)
    return picks("uherding", pool, seed)


@pytest.mark.parametrize("seed", range(3))
def test_picks_are_those_of_the_literal_algorithm(seed: int) -> None:
    given, proposers = make_predictions(seed), ["margin", "badge"]
    batch = make("refine", balance=0, proposers=proposers, batches=3).select(given, 6, seed=seed)
    assert batch.indices.tolist() == literal_refine(given, 6, seed, proposers)
    assert batch.status == "greedy"
    assert batch.bound == -np.inf  # images that were filtered out are not compared


def test_with_one_proposer_and_the_whole_pool_only_what_it_proposes_is_left() -> None:
    given = make_predictions()
    batch = make("refine", proposers=("margin",), batches=1, share=1.0).select(given, 10)
    assert sorted(batch.indices.tolist()) == sorted(make("margin", balance=0).select(given, 10).indices.tolist())


def test_without_rounds_it_is_uherding() -> None:
    given = make_predictions()
    for balance in (0.0, 0.3, "within 60%"):
        plain = make("uherding", balance=balance).select(given, 10, counts=[5, 2, 0])
        refined = make("refine", rounds=0, balance=balance).select(given, 10, counts=[5, 2, 0])
        assert refined.indices.tolist() == plain.indices.tolist()
        assert refined.lam == plain.lam
        assert refined.l1 == pytest.approx(plain.l1)


def test_targets_reach_the_last_choice() -> None:
    given = make_predictions()
    target = tailwise.Target.ranges(low={2: 6})
    batch = make("refine", balance=5.0).select(given, 12, target=target)
    assert batch.expected_counts[2] > make("refine", balance=0).select(given, 12).expected_counts[2]


def test_probabilities_in_halves_are_accepted() -> None:
    given = make_predictions(dtype=np.float16)
    assert len(make("refine", balance=0).select(given, 8)) == 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"proposers": ("bald",)}, "refine cannot take 'bald' as a proposer"),
        ({"proposers": ("refine",)}, "refine cannot take 'refine'"),
        ({"proposers": ["margin", "galaxy"]}, "refine cannot take 'galaxy'"),
        ({"proposers": ()}, "proposers is"),
        ({"proposers": "margin"}, "proposers is 'margin'"),
        ({"share": 0.0}, "share is 0.0"),
        ({"batches": 0}, "batches is 0"),
    ],
)
def test_settings_that_make_no_sense_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        make("refine", balance=0, **settings)


def test_an_unknown_proposer_is_rejected_with_the_nearest_name() -> None:
    with pytest.raises(UnknownName, match="margin"):
        make("refine", proposers=("margn",))
