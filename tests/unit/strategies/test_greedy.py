"""Algorithm 2, pick for pick, against a literal transcription."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailwise.matrix.shards import Rows
from tailwise.strategies import farthest_first, kcenter
from tailwise.strategies.farthest_first import measure
from tailwise.strategies.kcenter import k_center
from tailwise.targets import Ranges

from .algorithm_2 import OnDisk, literal, random_case


def even(total: float, classes: int = 6) -> Ranges:
    omega = np.full(classes, total / classes)
    return Ranges(omega, omega)


@pytest.mark.parametrize("lam", [0.0, 0.1, 0.5, 5.0, 1e3])
@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_the_literal_algorithm(seed: int, lam: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 16)  # many refreshes
    pool, labelled, proba = random_case(seed)
    omega = np.full(6, 10.0)
    found = k_center(pool, labelled, 60, Rows(proba), lam, Ranges(omega, omega))
    assert found.indices.tolist() == literal(pool, labelled, 60, proba, lam, Ranges(omega, omega))


@pytest.mark.parametrize("seed", range(3))
def test_range_targets_follow_the_same_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 32)
    pool, labelled, proba = random_case(seed)
    ranges = Ranges(np.full(6, 3.0), np.full(6, 12.0))
    found = k_center(pool, labelled, 50, Rows(proba), 0.7, ranges)
    assert found.indices.tolist() == literal(pool, labelled, 50, proba, 0.7, ranges)


def test_ties_and_duplicates_go_to_the_lower_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 8)
    rng = np.random.default_rng(0)
    pool = np.repeat(rng.integers(0, 3, size=(40, 2)).astype(np.float64), 3, axis=0)  # a lattice, each point thrice
    proba = np.eye(3)[np.repeat(rng.integers(0, 3, size=40), 3)]
    ranges = Ranges(np.full(3, 30.0), np.full(3, 30.0))
    found = k_center(pool, pool[:1], 90, Rows(proba), 0.25, ranges)
    assert found.indices.tolist() == literal(pool, pool[:1], 90, proba, 0.25, ranges)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lam", [0.0, 0.3, 7.0, 1e4])
@pytest.mark.parametrize("spacing", [1.0, 0.1])  # sums of 0.1² differ in their last bits
def test_on_a_lattice_picks_follow_the_last_bit_of_the_literal_prices(
    spacing: float, lam: float, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 5)
    monkeypatch.setattr(kcenter, "WARM_BYTES", 2_000)
    rng = np.random.default_rng(seed)
    pool = spacing * rng.integers(0, 5, size=(200, 3))
    labelled = spacing * rng.integers(0, 5, size=(6, 3))
    proba = rng.dirichlet(np.ones(4), size=8)[rng.integers(8, size=200)]  # eight kinds of probabilities
    found = k_center(pool, labelled, 150, Rows(proba), lam, even(150, 4))
    assert found.indices.tolist() == literal(pool, labelled, 150, proba, lam, even(150, 4))


@pytest.mark.parametrize("lam", [0.0, 0.3])
@pytest.mark.parametrize("distinct", [1, 7])
def test_where_few_points_are_distinct_the_rest_is_picked_at_distance_zero(
    distinct: int, lam: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 16)
    rng = np.random.default_rng(distinct)
    pool = rng.normal(size=(distinct, 5))[rng.integers(distinct, size=150)].astype(np.float32)
    proba = rng.dirichlet(np.ones(3), size=150)
    found = k_center(pool, pool[:1] + 1, 60, Rows(proba), lam, even(60, 3))
    assert found.indices.tolist() == literal(pool, pool[:1] + 1, 60, proba, lam, even(60, 3))
    assert (found.distances[distinct if lam == 0 else 60 - 1 :] == 0).all()


def test_points_far_from_the_origin_are_told_apart_by_their_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 4)
    rng = np.random.default_rng(3)
    pool = 1e6 + rng.normal(size=(120, 3))  # |x|² − 2x·c + |c|² keeps four digits of such distances
    proba = rng.dirichlet(np.ones(3), size=120)
    found = k_center(pool, pool[:2], 60, Rows(proba), 0.2, even(60, 3))
    assert found.indices.tolist() == literal(pool, pool[:2], 60, proba, 0.2, even(60, 3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("half", [False, True])
def test_embeddings_and_probabilities_of_any_float_are_used_as_they_are(dtype: type, half: bool) -> None:
    pool, labelled, proba = random_case(5)
    pool, labelled = (3 * pool).astype(dtype), (3 * labelled).astype(dtype)
    proba = proba.astype(np.float16) if half else proba
    found = k_center(pool, labelled, 60, Rows(proba), 0.4, even(60))
    assert found.indices.tolist() == literal(pool, labelled, 60, proba, 0.4, even(60))


@pytest.mark.parametrize(("hot", "warm", "batch"), [(1, 1, 1), (3, 900, 2), (10, 4_000, 7), (1_000, 10**7, 512)])
def test_picks_do_not_depend_on_how_many_rows_are_looked_at_together(
    hot: int, warm: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", hot)
    monkeypatch.setattr(kcenter, "WARM_BYTES", warm)
    for module, name in [(kcenter, "READ_ROWS"), (farthest_first, "BATCH_ROWS"), (farthest_first, "READ_BYTES"),
                         (farthest_first, "LABELLED_BYTES"), (farthest_first, "STRIDE_ROWS")]:  # fmt: skip
        monkeypatch.setattr(module, name, batch)
    pool, labelled, proba = random_case(6, size=150)
    found = k_center(pool, labelled, 50, Rows(proba), 0.6, even(50))
    assert found.indices.tolist() == literal(pool, labelled, 50, proba, 0.6, even(50))


def test_a_pool_in_files_gives_the_same_picks_and_is_never_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "WARM_BYTES", 40_000)
    monkeypatch.setattr(kcenter, "READ_ROWS", 128)
    monkeypatch.setattr(farthest_first, "READ_BYTES", 1)
    pool, labelled, proba = random_case(7, size=4_000)
    filed = OnDisk(pool)
    found = k_center(filed, OnDisk(labelled), 80, Rows(proba), 0.4, even(80))
    assert found.indices.tolist() == literal(pool, labelled, 80, proba, 0.4, even(80))
    assert 0 < filed.most <= 512


def test_a_memory_mapped_pool_gives_the_same_picks(tmp_path: Path) -> None:
    pool, labelled, proba = random_case(8)
    np.save(tmp_path / "pool.npy", pool)
    mapped = np.load(tmp_path / "pool.npy", mmap_mode="r")
    found = k_center(mapped, labelled, 40, Rows(proba), 0.4, even(40))
    assert found.indices.tolist() == literal(pool, labelled, 40, proba, 0.4, even(40))


def test_what_is_known_of_the_labelled_set_serves_every_lam() -> None:
    pool, labelled, proba = random_case(9)
    start = measure(pool, labelled)
    for lam in (0.5, 0.0, 3.0):
        found = k_center(pool, labelled, 60, Rows(proba), lam, even(60), start=start)
        assert found.indices.tolist() == literal(pool, labelled, 60, proba, lam, even(60))


def test_labelled_samples_that_are_in_the_pool_leave_their_copies_for_last() -> None:
    pool, _, proba = random_case(10, size=60)
    found = k_center(pool, pool[:30], 60, Rows(proba), 0.0, even(60))
    assert found.indices[30:].tolist() == list(range(30))
    assert (found.distances[:30] > 0).all()
    assert (found.distances[30:] == 0).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), size=st.integers(1, 60), side=st.integers(1, 6), lam=st.sampled_from([0.0, 0.2, 2.0])
)
def test_small_pools_of_any_kind_follow_the_literal_algorithm(seed: int, size: int, side: int, lam: float) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.integers(0, side, size=(size, 2)) / rng.integers(1, 4)
    labelled = rng.integers(0, side, size=(int(rng.integers(1, 4)), 2)) / 2
    proba = rng.dirichlet(np.full(3, 0.5), size=size)
    budget = int(rng.integers(0, size + 1))
    low = rng.uniform(0, budget / 2, size=3)
    ranges = Ranges(low, low + rng.integers(0, 3))
    found = k_center(pool, labelled, budget, Rows(proba), lam, ranges)
    assert found.indices.tolist() == literal(pool, labelled, budget, proba, lam, ranges)


def test_distances_are_those_at_which_the_picks_were_made() -> None:
    pool, labelled, proba = random_case(1)
    found = k_center(pool, labelled, 10, Rows(proba), 0.0, Ranges(np.zeros(6), np.zeros(6)))
    for turn, pick in enumerate(found.indices):
        centres = np.concatenate([labelled, pool[found.indices[:turn]]]).astype(np.float64)
        nearest = np.sqrt(((centres - pool[pick]) ** 2).sum(axis=1)).min()
        assert found.distances[turn] == pytest.approx(nearest, rel=1e-9)


def test_without_labels_the_first_pick_is_the_most_central_row() -> None:
    pool, _, proba = random_case(2)
    none = np.empty((0, 8), dtype=np.float32)
    found = k_center(pool, none, 20, Rows(proba), 0.3, Ranges(np.full(6, 4.0), np.full(6, 4.0)))
    first = int(((pool - pool.mean(axis=0)) ** 2).sum(axis=1).argmin())
    assert found.indices.tolist() == literal(pool, none, 20, proba, 0.3, even(24), first=[first])
    assert found.distances[0] == np.inf
    assert np.isfinite(found.distances[1:]).all()


def test_the_whole_pool_can_be_picked_and_none_of_it() -> None:
    pool, labelled, proba = random_case(3, size=50)
    target = Ranges(np.full(6, 4.0), np.full(6, 4.0))
    assert sorted(k_center(pool, labelled, 50, Rows(proba), 0.5, target).indices) == list(range(50))
    assert len(k_center(pool, labelled, 0, Rows(proba), 0.5, target).indices) == 0


def test_no_matrix_of_pool_by_pool_or_pool_by_labelled_is_formed() -> None:
    rng = np.random.default_rng(0)
    pool, labelled = rng.normal(size=(12_000, 4)).astype(np.float32), rng.normal(size=(6_000, 4)).astype(np.float32)
    proba = np.full((12_000, 2), 0.5, dtype=np.float32)
    tracemalloc.start()
    k_center(pool, labelled, 50, Rows(proba), 0.5, Ranges(np.full(2, 25.0), np.full(2, 25.0)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000 * 6_000 * 8 / 8  # an eighth of the float64 matrix of pool by labelled


def test_progress_is_told_and_ends_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kcenter, "HOT_ROWS", 16)
    pool, labelled, proba = random_case(4)
    told: list[str] = []
    k_center(pool, labelled, 60, Rows(proba), 0.5, even(60), told.append)
    picked = [int(line.split()[1]) for line in told if line.endswith("of 60 picked")]
    assert len(picked) > 2
    assert picked == sorted(picked)
    assert picked[-1] == 60
