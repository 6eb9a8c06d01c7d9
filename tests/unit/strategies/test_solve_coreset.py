"""CoreSet against brute force over all subsets, its certificate, its limits and its errors."""

from __future__ import annotations

import itertools
import time

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from tailwise.errors import BadInput, PoolExhausted, SolverFailed
from tailwise.processes import cores
from tailwise.strategies import coreset
from tailwise.strategies.coreset import CoreSetResult, robust_k_center
from tailwise.types import Float64Array, IntArray

NO_LABELS = np.empty((0, 2))


def naive_radius(pool: Float64Array, labelled: Float64Array, picks: IntArray | list[int], outliers: int = 0) -> float:
    """The definition, from differences: the (Ξ+1)-th largest distance to the nearest centre."""
    if outliers >= len(pool):
        return 0.0
    centres = np.concatenate([labelled, pool[list(picks)]])
    apart = np.linalg.norm(pool[:, None] - centres[None], axis=2)  # (N, centres)
    return float(np.sort(apart.min(axis=1, initial=np.inf))[-1 - outliers])


def best_radius(pool: Float64Array, labelled: Float64Array, budget: int, outliers: int = 0) -> float:
    """The smallest radius over all subsets."""
    subsets = itertools.combinations(range(len(pool)), budget)
    return min(naive_radius(pool, labelled, list(subset), outliers) for subset in subsets)


def naive_farthest_first(pool: Float64Array, labelled: Float64Array, count: int) -> list[int]:
    picks: list[int] = []
    for _ in range(count):
        if not len(labelled) and not picks:
            picks.append(int(np.linalg.norm(pool - pool.mean(axis=0), axis=1).argmin()))
            continue
        centres = np.concatenate([labelled, pool[picks]])
        nearest = np.linalg.norm(pool[:, None] - centres[None], axis=2).min(axis=1)
        nearest[picks] = -1.0
        picks.append(int(nearest.argmax()))
    return picks


def assert_consistent(
    found: CoreSetResult, pool: Float64Array, labelled: Float64Array, budget: int, outliers: int = 0
) -> None:
    assert found.indices.dtype == np.int64
    assert len(found.indices) == len(set(found.indices.tolist())) == budget
    assert ((found.indices >= 0) & (found.indices < len(pool))).all()
    assert found.lower <= found.radius
    assert found.radius == pytest.approx(naive_radius(pool, labelled, found.indices, outliers), rel=1e-9)
    if found.status == "optimal":
        assert found.lower == found.radius


def assert_optimal(pool: Float64Array, labelled: Float64Array, budget: int, outliers: int = 0) -> None:
    found = robust_k_center(pool, labelled, budget, outliers=outliers)
    assert_consistent(found, pool, labelled, budget, outliers)
    assert found.status == "optimal"
    assert found.radius == pytest.approx(best_radius(pool, labelled, budget, outliers), rel=1e-9)


def clusters(seed: int, size: int, features: int) -> Float64Array:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(size, features)) + 3.0 * rng.normal(size=(5, features))[rng.integers(5, size=size)]


# The optimum, against all subsets.


@pytest.mark.parametrize("outliers", [0, 1, 2])
@pytest.mark.parametrize("labels", [0, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_the_radius_is_the_smallest_of_all_subsets(seed: int, labels: int, outliers: int) -> None:
    rng = np.random.default_rng(seed)
    pool, labelled = rng.normal(size=(9, 2)), 2.0 * rng.normal(size=(labels, 2))
    for budget in (1, 2, 3, 4):
        assert_optimal(pool, labelled, budget, outliers)


@settings(max_examples=60, deadline=None)
@given(
    points=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8),
    labels=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3),
    outliers=st.integers(0, 2),
    data=st.data(),
)
def test_ties_and_duplicates_on_a_grid_are_solved(
    points: list[tuple[int, int]], labels: list[tuple[int, int]], outliers: int, data: st.DataObject
) -> None:
    pool = np.array(points, dtype=np.float64)
    labelled = np.array(labels, dtype=np.float64).reshape(-1, 2)
    budget = data.draw(st.integers(1, len(pool)))
    assert_optimal(pool, labelled, budget, outliers)


def test_copies_far_from_the_origin_are_at_distance_zero() -> None:
    pool = 1e7 + np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 3, axis=0)
    assert robust_k_center(pool, NO_LABELS, 3).radius == 0.0
    assert_optimal(pool, NO_LABELS, 2)
    assert robust_k_center(pool, pool[:1].copy(), 2).radius == 0.0


def test_points_within_reach_of_a_label_need_no_pick() -> None:
    pool = np.array([[0.0, 0.0], [0.1, 0.0], [10.0, 0.0], [10.0, 1.0], [10.0, 2.0]])
    found = robust_k_center(pool, np.array([[0.0, 0.0]]), 1)
    assert found.indices.tolist() == [3]
    assert found.radius == found.lower == 1.0


def test_an_outlier_is_left_alone_when_it_may_be() -> None:
    pool = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [500.0, 0.0]])
    assert robust_k_center(pool, NO_LABELS, 1).radius == 498.0
    alone = robust_k_center(pool, NO_LABELS, 1, outliers=1)
    assert (alone.indices.tolist(), alone.radius, alone.status) == ([1], 1.0, "optimal")


def test_the_greedy_start_alone_would_not_do() -> None:
    # Farthest-first takes the middle or an end; two centres at ±10 halve that.
    pool = np.array([[-11.0], [-10.0], [-9.0], [0.4], [9.0], [10.0], [11.0]])
    greedy = naive_radius(pool, np.empty((0, 1)), naive_farthest_first(pool, np.empty((0, 1)), 3))
    found = robust_k_center(pool, np.empty((0, 1)), 3)
    assert greedy == 2.0
    assert found.radius == 1.0
    assert sorted(found.indices.tolist()) == [1, 3, 5]


def three_squares() -> Float64Array:
    """Twelve corners; at radius 1 a square needs two of its own as centres, but only 4/3 when they may be fractions."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    return np.concatenate([square + np.array([shift, 0.0]) for shift in (0.0, 50.0, 100.0)])


@pytest.mark.parametrize("outliers", [0, 1])
def test_branching_proves_what_the_relaxation_cannot(outliers: int) -> None:
    budget = 5 - outliers
    assert_optimal(three_squares(), NO_LABELS, budget, outliers)
    assert robust_k_center(three_squares(), NO_LABELS, budget, outliers=outliers).radius == np.sqrt(2.0)


@pytest.mark.parametrize("outliers", [0, 1, 2])
def test_branching_finds_what_swaps_do_not(outliers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreset, "_swaps_fail", lambda _search, _cover: True)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        assert_optimal(rng.normal(size=(9, 2)), rng.normal(size=(seed % 3, 2)), 3, outliers)


def test_branching_without_an_end_proves_nothing() -> None:
    pool = np.random.default_rng(0).normal(size=(600, 16))
    search = coreset._greedy_start(pool, np.empty((0, 16)), 30, 0, 0.0)
    near = coreset._squares(search.pool, search.pool) <= 0.66 * search.upper_sq
    cover = sparse.csr_array(near.astype(np.float64))
    assert not coreset._branching_rules_out(search, 200, cover)
    search.deadline = np.inf
    assert coreset.relax_cover(search, cover)[0] > 20.0  # a real question, not an empty one


@pytest.mark.parametrize(("labels", "outliers"), [(0, 0), (6, 0), (6, 3)])
def test_the_first_lower_bound_holds(labels: int, outliers: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        pool, labelled = rng.normal(size=(9, 2)), rng.normal(size=(labels, 2))
        start = robust_k_center(pool, labelled, 2, outliers=outliers, time_limit=0.0)
        optimum = best_radius(pool, labelled, 2, outliers)
        assert 0.0 < start.lower <= optimum * (1 + 1e-9)
        assert optimum <= start.radius * (1 + 1e-9)


# The edges of the question.


def test_no_budget_gives_no_picks_and_the_radius_of_the_labels() -> None:
    pool, labelled = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0.0, 0.0]])
    found = robust_k_center(pool, labelled, 0)
    assert found.indices.shape == (0,)
    assert (found.radius, found.lower, found.status) == (5.0, 5.0, "optimal")
    assert robust_k_center(pool, labelled, 0, outliers=1).radius == 0.0


def test_nothing_covers_a_pool_without_labels_and_picks() -> None:
    found = robust_k_center(np.ones((3, 2)), NO_LABELS, 0, outliers=2)
    assert (found.radius, found.lower, found.status) == (np.inf, np.inf, "optimal")
    assert robust_k_center(np.ones((3, 2)), NO_LABELS, 0, outliers=3).radius == 0.0


def test_the_whole_pool_has_radius_zero() -> None:
    pool = np.random.default_rng(0).normal(size=(6, 2))
    found = robust_k_center(pool, NO_LABELS, 6)
    assert found.indices.tolist() == [0, 1, 2, 3, 4, 5]
    assert (found.radius, found.lower, found.status) == (0.0, 0.0, "optimal")


def test_an_empty_pool_is_covered() -> None:
    found = robust_k_center(np.empty((0, 2)), NO_LABELS, 0)
    assert (len(found.indices), found.radius, found.status) == (0, 0.0, "optimal")


def test_more_outliers_than_points_leave_nothing_to_cover() -> None:
    found = robust_k_center(np.random.default_rng(0).normal(size=(6, 2)), NO_LABELS, 2, outliers=50)
    assert (len(found.indices), found.radius, found.status) == (2, 0.0, "optimal")


def test_picks_that_a_cover_does_not_need_are_still_made() -> None:
    pool = np.repeat(np.array([[0.0, 0.0], [5.0, 0.0]]), 4, axis=0)
    found = robust_k_center(pool, NO_LABELS, 5)
    assert len(set(found.indices.tolist())) == 5
    assert (found.radius, found.status) == (0.0, "optimal")


def test_the_picks_come_in_farthest_first_order() -> None:
    pool, labelled = clusters(1, 60, 3), clusters(2, 4, 3)
    rows = np.sort(robust_k_center(pool, labelled, 8).indices)
    order = rows[naive_farthest_first(pool[rows], labelled, 8)]
    assert robust_k_center(pool, labelled, 8).indices.tolist() == order.tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_short_floats_are_taken_as_they_are(dtype: type[np.floating]) -> None:
    pool = np.random.default_rng(3).normal(size=(8, 2)).astype(dtype)
    assert_optimal(pool.astype(np.float64), NO_LABELS, 2)
    assert robust_k_center(pool, NO_LABELS, 2).radius == robust_k_center(pool.astype(np.float64), NO_LABELS, 2).radius


# Larger pools and limits.


@pytest.mark.parametrize(("labels", "outliers"), [(0, 0), (40, 6)])
def test_a_medium_pool_beats_greedy_with_consistent_bounds(labels: int, outliers: int) -> None:
    pool, labelled = clusters(0, 400, 8), clusters(1, labels, 8)
    found = robust_k_center(pool, labelled, 20, outliers=outliers, time_limit=20.0)
    assert_consistent(found, pool, labelled, 20, outliers)
    greedy = naive_radius(pool, labelled, naive_farthest_first(pool, labelled, 20), outliers)
    assert found.radius < 0.95 * greedy
    assert found.lower > 0.95 * found.radius


def test_the_same_input_gives_the_same_picks() -> None:
    pool, labelled = clusters(0, 150, 4), clusters(1, 10, 4)
    first, second = (robust_k_center(pool, labelled, 10, outliers=2) for _ in range(2))
    assert first.indices.tolist() == second.indices.tolist()
    assert (first.radius, first.lower, first.status) == (second.radius, second.lower, second.status)


def test_no_time_leaves_the_greedy_picks_with_honest_bounds() -> None:
    pool, labelled = clusters(0, 200, 4), clusters(1, 10, 4)
    hurried = robust_k_center(pool, labelled, 10, time_limit=0.0)
    patient = robust_k_center(pool, labelled, 10)
    assert hurried.status == "time limit"
    assert_consistent(hurried, pool, labelled, 10)
    assert sorted(hurried.indices.tolist()) == sorted(naive_farthest_first(pool, labelled, 10))
    assert patient.status == "optimal"
    assert 0.0 < hurried.lower <= patient.radius < hurried.radius


def test_a_time_limit_is_kept() -> None:
    pool = np.random.default_rng(0).normal(size=(1500, 16))
    start = time.process_time()  # of this process alone: others may be using the machine
    found = robust_k_center(pool, np.empty((0, 16)), 75, time_limit=1.0)
    assert time.process_time() - start < 4.0 * cores()
    assert found.status == "time limit"
    assert_consistent(found, pool, np.empty((0, 16)), 75)


def test_a_small_edge_limit_keeps_the_bounds_honest() -> None:
    pool = clusters(0, 120, 2)
    optimum = robust_k_center(pool, NO_LABELS, 6)
    assert optimum.status == "optimal"
    for edges in (0, 100, 500, 1000, 2000):
        found = robust_k_center(pool, NO_LABELS, 6, max_edges=edges)
        assert_consistent(found, pool, NO_LABELS, 6)
        assert found.lower <= optimum.radius * (1 + 1e-9)
        assert found.status == "best found" or found.radius == pytest.approx(optimum.radius)
    assert robust_k_center(pool, NO_LABELS, 6, max_edges=500).status == "best found"


def test_no_edges_leave_the_greedy_picks() -> None:
    pool = clusters(0, 60, 2)
    found = robust_k_center(pool, NO_LABELS, 4, max_edges=0)
    assert found.status == "best found"
    assert sorted(found.indices.tolist()) == sorted(naive_farthest_first(pool, NO_LABELS, 4))


def test_the_edge_limit_bounds_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coreset, "BLOCK", 1000)  # many blocks, so that the limit bites again and again
    pool = clusters(0, 200, 3)
    search = coreset._greedy_start(pool, np.empty((0, 3)), 5, 0, np.inf)
    whole = coreset._Graph.between(search, 10**9)
    part = coreset._Graph.between(search, 3000)
    assert whole is not None
    assert part is not None
    assert whole.complete
    assert not part.complete
    assert 0 < part.squares.nnz <= 3000 < whole.squares.nnz
    below = whole.squares.data < part.limit_sq
    assert part.squares.nnz == below.sum()


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, labelled = clusters(0, 90, 3), clusters(1, 30, 3)
    whole = robust_k_center(pool, labelled, 6, outliers=2)
    monkeypatch.setattr(coreset, "BLOCK", 100)
    split = robust_k_center(pool, labelled, 6, outliers=2)
    assert split.indices.tolist() == whole.indices.tolist()
    assert split.radius == pytest.approx(whole.radius, rel=1e-12)


# Steps: a limit that no clock has a part in.


@pytest.mark.parametrize(("labels", "outliers"), [(0, 0), (10, 2)])
def test_a_step_limit_keeps_the_bounds_honest_and_more_steps_do_no_harm(labels: int, outliers: int) -> None:
    pool, labelled = clusters(0, 200, 4), clusters(1, labels, 4)
    limits = (0, 1, 30, 300, 3_000, 100_000)
    found = [robust_k_center(pool, labelled, 10, outliers=outliers, max_steps=steps) for steps in limits]
    free = robust_k_center(pool, labelled, 10, outliers=outliers)
    for one in found:
        assert_consistent(one, pool, labelled, 10, outliers)
        assert one.status in ("best found", "optimal")
        assert one.lower <= free.radius * (1 + 1e-9)
    assert sorted(found[0].indices.tolist()) == sorted(naive_farthest_first(pool, labelled, 10))
    assert found[0].status == "best found"
    assert found[-1].indices.tolist() == free.indices.tolist()
    assert found[-1].status == free.status == "optimal"
    assert found[-1].radius < found[0].radius


def test_the_search_ends_with_its_steps() -> None:
    pool = np.random.default_rng(0).normal(size=(1500, 16))
    search = coreset._greedy_start(pool, np.empty((0, 16)), 75, 0, np.inf)
    search.steps = 500
    coreset._refine(search, 20_000_000, 200)
    assert search.steps == 0  # HiGHS stops at the iteration that was the last


def test_a_step_limit_gives_the_same_picks_on_a_machine_that_crawls(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, labelled = clusters(0, 150, 4), clusters(1, 10, 4)
    quick = robust_k_center(pool, labelled, 10, outliers=2, max_steps=400)
    hurried = robust_k_center(pool, labelled, 10, outliers=2, time_limit=60.0)
    ticks = itertools.count(0.0, 1e4)
    monkeypatch.setattr(time, "perf_counter", lambda: next(ticks))  # hours between any two looks at the clock
    slow = robust_k_center(pool, labelled, 10, outliers=2, max_steps=400)
    assert slow.indices.tolist() == quick.indices.tolist()
    assert (slow.radius, slow.lower, slow.status) == (quick.radius, quick.lower, quick.status)
    assert robust_k_center(pool, labelled, 10, outliers=2, time_limit=60.0).radius > hurried.radius  # as for time


def test_a_negative_step_limit_is_refused() -> None:
    with pytest.raises(BadInput, match="max_steps is -1; give 0 or more"):
        robust_k_center(np.ones((3, 2)), NO_LABELS, 1, max_steps=-1)


# The parts.


@pytest.mark.parametrize("labels", [0, 1, 7])
def test_farthest_first_is_the_textbook_one(labels: int) -> None:
    pool, labelled = clusters(3, 40, 5), clusters(4, labels, 5)
    found = robust_k_center(pool, labelled, 39, max_steps=0)
    assert found.indices.tolist() == naive_farthest_first(pool, labelled, 39)


def test_farthest_first_takes_the_first_of_equals() -> None:
    pool = np.array([[3.0, 0.0], [0.0, 3.0], [-3.0, 0.0], [0.0, -3.0]])
    assert robust_k_center(pool, np.zeros((1, 2)), 3, max_steps=0).indices.tolist() == [0, 1, 2]


def test_squares_keep_their_digits_far_from_the_origin() -> None:
    rng = np.random.default_rng(0)
    some, many = 1e6 + 1e-3 * rng.normal(size=(5, 4)), 1e6 + 1e-3 * rng.normal(size=(7, 4))
    found = coreset._squares(coreset._Points.of(some), coreset._Points.of(many))
    np.testing.assert_allclose(found, ((some[:, None] - many) ** 2).sum(axis=2), rtol=1e-12)


@pytest.mark.parametrize("outliers", [0, 2])
def test_the_relaxation_bounds_the_smallest_cover(outliers: int) -> None:
    rng = np.random.default_rng(7)
    pool = rng.normal(size=(9, 2))
    search = coreset._greedy_start(pool, NO_LABELS, 1, outliers, np.inf)
    for radius in (0.3, 0.6, 0.9, 1.2):
        near = (np.linalg.norm(pool[:, None] - pool, axis=2) <= radius).astype(np.float64)
        fewest = min(
            size
            for size in range(10)
            for subset in itertools.combinations(range(9), size)
            if (near[:, list(subset)].sum(axis=1) == 0).sum() <= outliers
        )
        centres, share = coreset.relax_cover(search, sparse.csr_array(near))
        assert centres <= fewest
        assert centres == pytest.approx(share.sum(), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_gains_and_losses_follow_every_move(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cover = sparse.csr_array((rng.random((8, 6)) < 0.5).astype(np.float64))
    columns = coreset.ChosenColumns(cover)
    columns.weight[:] = rng.integers(1, 5, size=8)
    columns.gain[:] = cover.T @ columns.weight
    chosen: set[int] = set()
    for column in rng.integers(6, size=20).tolist():
        columns.move(column, -1 if column in chosen else 1)
        chosen ^= {column}
        dense = cover.toarray()
        count = dense[:, sorted(chosen)].sum(axis=1)
        assert columns.gain.tolist() == (dense.T @ (columns.weight * (count == 0))).tolist()
        alone = dense.T @ (columns.weight * (count == 1))
        assert columns.loss.tolist() == [alone[j] if j in chosen else np.inf for j in range(6)]


# What cannot be answered.


@pytest.mark.parametrize(
    ("pool", "labelled", "budget", "outliers", "message"),
    [
        (np.ones(3), NO_LABELS, 1, 0, r"pool has shape \(3,\)"),
        (np.ones((3, 2)), np.ones((1, 3)), 1, 0, "pool has 2 features and labelled 3"),
        (np.array([[0.0, 0.0], [0.0, np.nan]]), NO_LABELS, 1, 0, "the first is row 1"),
        (np.ones((3, 2)), np.array([[np.inf, 0.0]]), 1, 0, "labelled has 1 rows with NaN or infinity"),
        (np.ones((3, 2)), NO_LABELS, -1, 0, "budget is -1"),
        (np.ones((3, 2)), NO_LABELS, 1, -2, "outliers -2"),
    ],
)
def test_bad_input_is_named(
    pool: Float64Array, labelled: Float64Array, budget: int, outliers: int, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        robust_k_center(pool, labelled, budget, outliers=outliers)


def test_more_picks_than_rows_are_refused() -> None:
    with pytest.raises(PoolExhausted, match="asked for 4 picks, but the pool has 3 rows"):
        robust_k_center(np.ones((3, 2)), NO_LABELS, 4)


def test_a_solver_that_answers_nothing_is_an_error() -> None:
    solver = highspy.Highs()  # never given a program
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = 1, 0
    model.col_cost_, model.col_lower_, model.col_upper_ = np.array([-1.0]), np.zeros(1), np.array([np.inf])
    solver.passModel(model)  # unbounded, which no covering program is
    with pytest.raises(SolverFailed, match="ended a covering program with status"):
        coreset.run_cover(solver)
