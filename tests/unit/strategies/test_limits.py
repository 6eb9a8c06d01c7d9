"""Rows that must or must not be picked, and groups, through the public call."""

from __future__ import annotations

import time
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tailwise
from tailwise.errors import BadInput, PoolExhausted
from tailwise.matrix.nearest import border_distances

RNG = np.random.default_rng(0)
PROBA = RNG.dirichlet([3.0, 1.0, 0.5, 0.2], 400)
EMBEDDINGS = RNG.normal(size=(400, 8))
IDS = [f"img-{row}.jpg" for row in range(400)]
STRATEGIES = ["base", "margin", "entropy", "random", "boundary", "kcenter", "typiclust", "badge", "uherding"]


def call(strategy: str, **limits: object) -> tailwise.Selection:
    embedded = {"embeddings": EMBEDDINGS, "labelled_embeddings": EMBEDDINGS[:3] + 0.1}
    return tailwise.select(PROBA, 20, strategy=strategy, counts=[3, 0, 0, 0], **embedded, **limits)  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_keeps_to_the_limits(strategy: str) -> None:
    free = call(strategy)
    top = free.indices[:8].tolist()
    groups = np.arange(400) // 4
    batch = call(strategy, exclude=top, include=[399, 7 if 7 not in top else 11], groups=groups, per_group=1)
    assert len(set(batch.indices.tolist())) == 20
    assert not set(top) & set(batch.indices.tolist())
    assert batch.indices[:2].tolist()[0] == 399
    assert batch.included == 2
    assert np.bincount(groups[batch.indices]).max() == 1
    assert batch.expected_counts == pytest.approx(PROBA[batch.indices].sum(axis=0), abs=1e-6)
    assert batch.picks[0].reason.startswith("included on request")


@pytest.mark.parametrize("strategy", ["base", "entropy"])
def test_excluding_is_selecting_from_the_others(strategy: str) -> None:
    out = np.arange(0, 400, 3)
    rest = np.setdiff1d(np.arange(400), out)
    batch = tailwise.select(PROBA, 20, strategy=strategy, exclude=out)
    alone = tailwise.select(PROBA[rest], 20, strategy=strategy)
    assert batch.indices.tolist() == rest[alone.indices].tolist()
    assert batch.objective == alone.objective
    flags = np.zeros(400, dtype=bool)
    flags[out] = True
    for same in (
        tailwise.select(PROBA, 20, strategy=strategy, mask=~flags),
        tailwise.select(PROBA, 20, strategy=strategy, exclude=flags),
        tailwise.select(PROBA, 20, strategy=strategy, exclude=[IDS[row] for row in out], ids=IDS),
    ):
        assert same.indices.tolist() == batch.indices.tolist()


def test_included_rows_are_fixed_in_an_exact_program() -> None:
    proba = np.random.default_rng(1).dirichlet([2.0, 1.0, 0.3], 12)
    wanted = np.array([1.0, 1.0, 2.0])
    batch = tailwise.select(proba, 4, score="entropy", balance=0.7, target=wanted, include=[5, 2])
    entropy = -(proba * np.log(proba)).sum(axis=1)

    def value(rows: list[int]) -> float:
        return float(-entropy[rows].sum() + 0.7 * np.abs(wanted - proba[rows].sum(axis=0)).sum())

    best = min(value([5, 2, *rest]) for rest in combinations([row for row in range(12) if row not in (5, 2)], 2))
    assert value(batch.indices.tolist()) == pytest.approx(best)
    assert batch.indices[:2].tolist() == [5, 2]


@pytest.mark.parametrize("kind", ["npy", "parquet", "shards", "top-k"])
def test_files_and_sparse_softmax_keep_to_the_limits(tmp_path: Path, kind: str) -> None:
    proba, source = PROBA.astype(np.float32), tmp_path / "proba.npy"
    given: object = source
    if kind == "npy":
        np.save(source, proba)
    elif kind == "parquet":
        given = tmp_path / "proba.parquet"
        pd.DataFrame(proba, columns=list("abcd")).to_parquet(given)
    elif kind == "shards":
        given = tmp_path / "shards"
        given.mkdir()
        for part in range(4):
            np.save(given / f"{part}.npy", proba[part * 100 : part * 100 + 100])
    else:
        given = tailwise.TopK.of(proba, 3)
    limits = {"exclude": range(50), "include": [60], "groups": np.arange(400) // 8, "score": "margin"}
    batch = tailwise.select(given, 20, **limits)  # type: ignore[arg-type]
    assert batch.indices[0] == 60
    assert batch.indices.min() >= 50
    assert np.bincount(batch.indices // 8).max() == 1
    if kind != "top-k":
        assert batch.indices.tolist() == tailwise.select(proba, 20, **limits).indices.tolist()  # type: ignore[arg-type]


def test_a_group_may_be_called_anything_and_none_is_alone() -> None:
    groups = ["a", None, ("b", 1), 7, float("nan"), "a"] * 66 + ["z"] * 4
    batch = tailwise.select(PROBA, 100, score="margin", balance=0, groups=groups, per_group=2)
    named = [groups[row] for row in batch.indices.tolist()]
    assert all(named.count(name) <= 2 for name in ("a", ("b", 1), 7, "z"))
    assert len(batch) == 100


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"exclude": [0], "mask": np.ones(400, bool)}, "give one of them"),
        ({"exclude": [400]}, "names row 400, but the pool has 400 images"),
        ({"exclude": [3, 3]}, "names row 3 twice"),
        ({"include": ["img-1.jpg"]}, "whole number"),
        ({"include": ["nobody.jpg"], "ids": IDS}, "'nobody.jpg', which is not one of the ids"),
        ({"include": [1], "exclude": [1]}, "row 1 is both included and excluded"),
        ({"include": range(30)}, "the included images take 30 of a budget of 20"),
        ({"mask": np.ones(3, bool)}, "mask must be 400 booleans"),
        ({"groups": [1, 2]}, "groups must have 400 entries"),
        ({"groups": range(400), "per_group": 0}, "per_group"),
        ({"ids": ["a"] * 400}, "holds 'a' twice"),
        ({"ids": ["a"]}, "ids has 1 entries, but the pool has 400 images"),
        ({"class_names": ["a", "b"]}, "class_names has 2 entries, but there are 4 classes"),
    ],
)
def test_limits_that_make_no_sense_are_rejected(limits: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        tailwise.select(PROBA, 20, **limits)  # type: ignore[arg-type]


def test_a_budget_that_the_limits_leave_too_little_for_is_rejected() -> None:
    with pytest.raises(PoolExhausted, match="only 10 of 400 images may be picked"):
        tailwise.select(PROBA, 20, exclude=range(390))
    with pytest.raises(PoolExhausted, match="the groups allow only 2"):
        tailwise.select(PROBA, 20, groups=np.arange(400) % 2)


def test_threads_do_not_change_the_picks() -> None:
    one = tailwise.select(PROBA, 20, score="entropy", threads=1)
    assert one.indices.tolist() == tailwise.select(PROBA, 20, score="entropy").indices.tolist()
    with pytest.raises(BadInput, match="threads"):
        tailwise.select(PROBA, 20, threads=0)


def test_a_strategy_that_is_made_already_brings_its_settings() -> None:
    made = tailwise.strategies.make("entropy", balance=0.5)
    assert tailwise.select(PROBA, 20, strategy=made).lam == 0.5
    with pytest.raises(BadInput, match="balance is given, but the strategy was made already"):
        tailwise.select(PROBA, 20, strategy=made, balance=0.1)


def test_predictions_are_taken_where_a_strategy_needs_more() -> None:
    passes = np.stack([PROBA, PROBA[::-1]])
    batch = tailwise.select(tailwise.Predictions(PROBA, mc_proba=passes), 20, strategy="bald", exclude=range(100))
    assert batch.indices.min() >= 100


PRICES = np.random.default_rng(5).lognormal(0, 0.7, 400)


@pytest.mark.parametrize("balance", [0.0, 0.4, "auto"])
def test_a_budget_of_costs_is_kept_and_certified(balance: float | str) -> None:
    batch = tailwise.select(PROBA, 60.0, cost=PRICES, balance=balance)
    assert batch.method == "margin"
    spent = PRICES[batch.indices].sum()
    assert 59 < spent <= 60
    assert batch.gap < 5e-3
    assert f"images cost {spent:,.6g} of 60" in batch.notes[-1]
    assert len(batch) > len(tailwise.select(PROBA, 60.0, cost=2 * PRICES, balance=balance))


@pytest.mark.parametrize("seed", range(4))
def test_a_budget_of_costs_is_exact_on_a_small_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    proba, prices = rng.dirichlet([2.0, 1.0, 0.4], 10), rng.lognormal(0, 0.5, 10)
    target = tailwise.Target.ranges(low=[0.0, 1.0, 1.0], high=[1.0, 2.0, 3.0])
    batch = tailwise.select(proba, 3.5, cost=prices, score="entropy", balance=0.6, target=target, exclude=[0])
    entropy = -(proba * np.log(proba)).sum(axis=1)

    def value(rows: tuple[int, ...]) -> float:
        expected = proba[list(rows)].sum(axis=0)
        beyond = np.maximum([0, 1, 1] - expected, 0) + np.maximum(expected - np.minimum([1, 2, 3], np.inf), 0)
        return float(-entropy[list(rows)].sum() + 0.6 * beyond.sum())

    possible = [
        rows for size in range(10) for rows in combinations(range(1, 10), size) if prices[list(rows)].sum() <= 3.5
    ]
    assert value(tuple(batch.indices.tolist())) == pytest.approx(min(map(value, possible)), abs=1e-6)


def test_included_images_are_paid_from_the_same_budget() -> None:
    batch = tailwise.select(PROBA, 20.0, cost=PRICES, include=[3, 5], exclude=[7])
    assert batch.indices[:2].tolist() == [3, 5]
    assert PRICES[batch.indices].sum() <= 20


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"strategy": "base"}, "cost works with a score alone"),
        ({"groups": range(400)}, "leave groups out"),
        ({"cost": np.zeros(400)}, "cost of image 0 is 0; it must be above 0"),
        ({"balance": "paper"}, "with cost it must be a number or 'auto'"),
        ({"budget": 1e-9}, "pays for no informative image"),
        ({"include": range(200)}, "raise the budget"),
    ],
)
def test_a_budget_of_costs_that_makes_no_sense_is_rejected(more: dict[str, object], message: str) -> None:
    asked = {"budget": 20.0, "cost": PRICES, **more}
    with pytest.raises(BadInput, match=message):
        tailwise.select(PROBA, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_one_of_each_group_is_exact_at_the_borders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    proba, groups = rng.dirichlet([2.0, 1.0, 0.5], 14), rng.integers(0, 6, 14)
    batch = tailwise.select(proba, 4, strategy="base", groups=groups)
    assert batch.status == "optimal"
    assert batch.places is not None
    assert np.bincount(groups[batch.indices]).max() == 1
    places = np.repeat(np.arange(3), batch.places)
    distance = border_distances(proba)
    best = min(
        distance[list(rows), places].sum()
        for rows in permutations(range(14), 4)
        if len(set(groups[list(rows)].tolist())) == 4
    )
    assert batch.objective == pytest.approx(best)


def test_one_of_each_group_is_exact_in_a_pool_of_bursts() -> None:
    bursts = np.repeat(np.random.default_rng(0).dirichlet([3.0, 1.0, 0.5, 0.2], 300), 10, axis=0)
    proba = bursts * np.exp(0.05 * np.random.default_rng(1).normal(size=bursts.shape))
    proba /= proba.sum(axis=1, keepdims=True)
    groups = np.arange(3000) // 10
    batch = tailwise.select(proba, 200, groups=groups)
    assert (batch.status, len(set((batch.indices // 10).tolist()))) == ("optimal", 200)
    class_order = tailwise.strategies.make("base", conflicts="class-order")
    again = tailwise.select(proba, 200, strategy=class_order, groups=groups)
    assert batch.objective <= again.objective + 1e-9


def test_a_mask_is_not_changed() -> None:
    mask = np.ones(400, dtype=bool)
    tailwise.select(PROBA, 20, mask=mask, include=[3])
    assert mask.all()


def test_the_bound_of_costs_holds_for_what_a_sparse_softmax_hides() -> None:
    asked = {"cost": PRICES, "balance": 0.5, "score": "entropy"}
    sparse = tailwise.select(tailwise.TopK.of(PROBA, 2), 60.0, **asked)  # type: ignore[arg-type]
    assert sparse.hidden > 0
    whole = tailwise.select(PROBA, 60.0, target=sparse.target, **asked)  # type: ignore[arg-type]
    assert sparse.bound <= whole.objective + 1e-9


def test_many_groups_take_no_more_than_sorting_them() -> None:
    proba = np.random.default_rng(0).dirichlet([2.0, 1.0, 0.5], 200_000)
    began = time.process_time()
    tailwise.select(proba, 500, score="margin", balance=0.5, groups=np.arange(200_000) // 4)
    assert time.process_time() - began < 30  # one pass over the pool for each group would take minutes
