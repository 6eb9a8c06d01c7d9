"""Statistics of the leaderboard against literal formulas and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.quality.leaderboard.rows import FIRST_SET, RANDOM, RANDOM_LONG, CellKey, Method, Score
from benchmarks.quality.leaderboard.statistics import (
    END,
    Measure,
    Ranks,
    by_trial,
    compare,
    compare_all,
    critical_difference,
    difference,
    holm,
    labels_saved,
    mean_ranks,
    not_told_apart,
    overall,
)

MINE, OTHER = Method("mine", "auto"), Method("other")
FEW, MORE = ("pool", "few"), ("pool", "more")
ADJUSTED = Measure()


def trial(
    method: Method, cell: CellKey, seed: int, values: list[float], *, first: int = 1, step: int = 10
) -> list[Score]:
    """Rounds with these accuracies, 10 labels more in each."""
    rounds = range(first, first + len(values))
    return [
        Score(
            *cell, method.strategy, method.settings, seed, number, 10 + step * number, value - 0.1, value, 0.0, 5, 0.1
        )
        for number, value in zip(rounds, values, strict=True)
    ]


def noisy(cells: list[CellKey], seeds: int, gain: Callable[[CellKey], float] = lambda _: 0.05) -> list[Score]:
    """Two methods that share what a seed has in common."""
    rng, found = np.random.default_rng(0), []
    for cell in cells:
        for seed in range(seeds):
            level = rng.normal(0.5, 0.1)
            for method, more in ((MINE, gain(cell)), (OTHER, 0.0)):
                found += trial(method, cell, seed, list(level + more + rng.normal(0, 0.02, 3)))
    return found


def test_a_comparison_is_the_paired_t_test_of_the_means_over_rounds() -> None:
    trials = by_trial(noisy([FEW], 8))
    found = compare(trials, MINE, OTHER, FEW, ADJUSTED)
    ours, theirs = (
        [np.mean([score.adjusted for score in trials[one][FEW][seed]]) for seed in range(8)] for one in (MINE, OTHER)
    )
    expected = stats.ttest_rel(ours, theirs)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.mean / found.error == pytest.approx(expected.statistic)
    assert found.seeds == 8
    at_end = compare(trials, MINE, OTHER, FEW, Measure("balanced", END))
    last = [trials[MINE][FEW][seed][-1].balanced - trials[OTHER][FEW][seed][-1].balanced for seed in range(8)]
    assert at_end.mean == pytest.approx(np.mean(last))


def test_only_common_seeds_with_equal_labels_are_compared() -> None:
    scores = [
        *trial(MINE, FEW, 0, [0.6, 0.7]), *trial(OTHER, FEW, 0, [0.5, 0.5]),
        *trial(MINE, FEW, 1, [0.9, 0.9]), *trial(OTHER, FEW, 1, [0.1, 0.1], step=20),
        *trial(MINE, FEW, 2, [0.9, 0.9]),
    ]  # fmt: skip
    found = compare(by_trial(scores), MINE, OTHER, FEW, ADJUSTED)
    assert found.seeds == 1
    assert found.mean == pytest.approx(0.15)
    assert math.isnan(found.error)
    assert math.isnan(found.p)


def test_equal_methods_have_p_1_and_a_constant_difference_p_0() -> None:
    assert difference([0.0, 0.0, 0.0]).p == 1.0
    assert difference([0.5, 0.5]).p == 0.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_is_the_definition(p_values: list[float]) -> None:
    count = len(p_values)
    ordered = sorted(p_values)
    by_definition = [
        max(min(1.0, (count - at) * ordered[at]) for at in range(place + 1)) for place in range(count)
    ]  # of the ordered p values
    assert sorted(holm(p_values)) == pytest.approx(by_definition)
    assert all(corrected >= p for corrected, p in zip(holm(p_values), p_values, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(holm(p_values))[order]) >= 0).all()


def test_holm_leaves_out_what_could_not_be_tested() -> None:
    assert holm([math.nan, 0.01, 0.04])[1:] == pytest.approx([0.02, 0.04])
    assert math.isnan(holm([math.nan, 0.01])[0])


def test_holm_counts_all_cells_and_measures_of_all_rivals() -> None:
    trials = by_trial(noisy([FEW, MORE], 6))
    measures = (ADJUSTED, Measure("balanced", END))
    tests = compare_all(trials, MINE, [OTHER, Method("never ran")], [FEW, MORE], measures)
    assert len(tests) == 4
    assert [one.holm for one in tests] == pytest.approx(holm([one.difference.p for one in tests]))
    assert all(one.other == OTHER for one in tests)


def test_the_overall_error_averages_regimes_by_seed_and_adds_pools_as_squares() -> None:
    cells = [FEW, MORE, ("second", "few")]
    gains = {FEW: 0.1, MORE: 0.0, ("second", "few"): -0.05}
    trials = by_trial(noisy(cells, 7, gains.__getitem__))
    found = overall(trials, MINE, OTHER, cells, ADJUSTED)
    parts = {
        cell: np.array([
            ADJUSTED.of(trials[MINE][cell][seed]) - ADJUSTED.of(trials[OTHER][cell][seed]) for seed in range(7)
        ])
        for cell in cells
    }  # fmt: skip
    first = (parts[FEW] + parts[MORE]) / 2
    errors = [stats.sem(first), stats.sem(parts["second", "few"])]
    assert found.mean == pytest.approx(np.mean([one.mean() for one in parts.values()]))
    assert found.error == pytest.approx(math.hypot(2 / 3 * errors[0], 1 / 3 * errors[1]))
    assert found.worst == pytest.approx(parts["second", "few"].mean())
    assert found.cells == 3


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_the_critical_difference_has_the_published_q(methods: int, q: float) -> None:
    """Demšar 2006, Table 5."""
    expected = q * math.sqrt(methods * (methods + 1) / (6 * 14))
    assert critical_difference(methods, 14) == pytest.approx(expected, abs=1e-3)


def test_mean_ranks_are_friedmans_and_the_best_has_the_lowest() -> None:
    rng = np.random.default_rng(1)
    methods, cells = [Method(name) for name in "abcd"], [(f"pool {at}", "few") for at in range(6)]
    values = rng.normal(size=(6, 4)).round(2) + np.array([0.0, 1.0, 0.5, 0.0])
    values[0, 3] = values[0, 0]  # a tie
    scores = [
        score
        for row, cell in enumerate(cells) for column, method in enumerate(methods)
        for score in trial(method, cell, 0, [values[row, column]])
    ]  # fmt: skip
    found = mean_ranks(by_trial(scores), methods, cells, ADJUSTED)
    by_hand = np.array([[1 + (row > one).sum() + ((row == one).sum() - 1) / 2 for one in row] for row in values])
    assert list(found.mean.values()) == pytest.approx(by_hand.mean(axis=0))
    assert found.p == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert found.cells == 6


def test_a_cell_that_a_method_lacks_does_not_count_for_ranks() -> None:
    methods = [Method(name) for name in "abc"]
    scores = [one for cell in (FEW, MORE) for method in methods for one in trial(method, cell, 0, [0.5])]
    scores += trial(methods[0], ("second", "few"), 0, [0.5])
    found = mean_ranks(by_trial(scores), methods, [FEW, MORE, ("second", "few")], ADJUSTED)
    assert found.cells == 2
    assert list(found.mean.values()) == [2.0, 2.0, 2.0]  # all tied
    assert found.p == 1.0


def test_groups_are_the_longest_runs_within_the_critical_difference() -> None:
    a, b, c, d = (Method(name) for name in "abcd")
    ranks = Ranks({a: 1.0, b: 1.8, c: 2.5, d: 4.7}, 0.01, 1.0, 10)
    assert not_told_apart(ranks) == [(a, b), (b, c)]


def curves(mine: list[float]) -> list[Score]:
    """Random selection gains 0.01 per label from 0.1 at 10 labels to 0.5 at 50, on to 0.9 at 90."""
    found = []
    for seed in range(3):
        found += trial(FIRST_SET, FEW, seed, [0.1], first=0)
        found += trial(RANDOM, FEW, seed, [0.2, 0.3, 0.4, 0.5])
        found += trial(RANDOM_LONG, FEW, seed, [0.5, 0.9], step=40)
        found += trial(MINE, FEW, seed, mine)
    return found


@pytest.mark.parametrize(
    ("reached", "share", "limit"),
    [
        (0.8, 1 - 50 / 80, ""),
        (0.5, 0.0, ""),
        (0.25, -0.5, ""),  # random selection needs 25
        (0.95, 1 - 50 / 90, "≥"),
        (0.05, 10 / 50 - 1, "≤"),
    ],
)
def test_labels_saved_are_read_off_the_curve_of_random_selection(reached: float, share: float, limit: str) -> None:
    found = labels_saved(by_trial(curves([0.2, 0.3, 0.4, reached])), MINE, FEW, Measure("adjusted", END))
    assert found.share == pytest.approx(share)
    assert found.error == pytest.approx(0.0)
    assert found.limit == limit


def test_labels_saved_over_rounds_are_the_mean_and_the_error_is_the_jackknife() -> None:
    trials = by_trial(curves([0.3, 0.45, 0.6, 0.8]))
    shares = [1 - 20 / 30, 1 - 30 / 45, 1 - 40 / 60, 1 - 50 / 80]
    assert labels_saved(trials, MINE, FEW, ADJUSTED).share == pytest.approx(np.mean(shares))
    ends = [0.7, 0.75, 0.8]
    scores = [one for one in curves([0.0]) if one.method != MINE]
    scores += [one for seed, end in enumerate(ends) for one in trial(MINE, FEW, seed, [0.2, 0.3, 0.4, end])]
    without = [1 - 50 / (100 * np.mean([end for end in ends if end != left])) for left in ends]
    expected = math.sqrt(2 / 3 * np.sum((np.array(without) - np.mean(without)) ** 2))
    assert labels_saved(by_trial(scores), MINE, FEW, Measure("adjusted", END)).error == pytest.approx(expected)


def test_labels_saved_need_random_selection() -> None:
    assert math.isnan(labels_saved(by_trial(trial(MINE, FEW, 0, [0.5])), MINE, FEW, ADJUSTED).share)
