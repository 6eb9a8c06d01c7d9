from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tailwise.errors import BadInput
from tailwise.experiments.experiment import Row
from tailwise.report.names import Condition, Method, method_label
from tailwise.report.summary import (
    Band,
    Curve,
    Gain,
    Point,
    Results,
    count_errors,
    curve,
    gains,
    labels_needed,
    mean_gains,
    passes_by_chance,
    saving_levels,
    savings,
)

RowMaker = Callable[..., list[Row]]


@pytest.fixture(scope="module")
def template(make_rows: RowMaker) -> Row:
    return make_rows(factors=(0.1,), methods=[("random", "0")], seeds=(0,))[0]


def trial(template: Row, strategy: str, balance: str, seed: int, accuracies: list[float]) -> list[Row]:
    """A trial whose cycle c has 100·(c + 1) labels."""
    return [
        replace(
            template, strategy=strategy, balance=balance, seed=seed, cycle=cycle, labelled=100 * (cycle + 1),
            share=(cycle + 1) / 10, accuracy=accuracy, tail_accuracy=accuracy / 2,
        )
        for cycle, accuracy in enumerate(accuracies)
    ]  # fmt: skip


def only(results: Results) -> Condition:
    (condition,) = results.trials
    return condition


def test_curves_are_means_with_the_sample_standard_deviation(template: Row) -> None:
    rows = trial(template, "random", "0", 0, [0.5, 0.6]) + trial(template, "random", "0", 1, [0.5, 0.8])
    results = Results.of(rows)
    found = curve(results, only(results), Method("random", "0", "random"))
    assert [point.labelled for point in found.points] == [100, 200]
    assert found.points[0].accuracy == Band(0.5, 0.0, 2)
    assert found.points[1].accuracy.mean == pytest.approx(0.7)
    assert found.points[1].accuracy.std == pytest.approx(0.2 / math.sqrt(2))  # ddof 1, by hand
    assert found.points[1].tail_accuracy.mean == pytest.approx(0.35)


def test_a_single_seed_has_no_spread(template: Row) -> None:
    results = Results.of(trial(template, "random", "0", 0, [0.5, 0.6]))
    assert math.isnan(curve(results, only(results), Method("random", "0", "random")).last.accuracy.std)


def test_seeds_that_ended_early_count_where_they_got(template: Row) -> None:
    rows = trial(template, "random", "0", 0, [0.5, 0.6]) + trial(template, "random", "0", 1, [0.7])
    results = Results.of(rows)
    found = curve(results, only(results), Method("random", "0", "random"))
    assert [(point.accuracy.mean, point.accuracy.seeds) for point in found.points] == [(0.6, 2), (0.6, 1)]


def test_gains_are_paired_over_common_seeds(template: Row) -> None:
    rows = [
        *trial(template, "entropy", "0", 0, [0.5, 0.60]), *trial(template, "entropy", "0", 1, [0.4, 0.50]),
        *trial(template, "entropy", "0", 2, [0.4, 0.70]), *trial(template, "entropy", "auto", 0, [0.5, 0.61]),
        *trial(template, "entropy", "auto", 1, [0.4, 0.53]),
    ]  # fmt: skip
    results = Results.of(rows)
    (gain,) = gains(results, only(results))
    assert (gain.method.label, gain.base.label, gain.cycle, gain.difference.seeds) == ("entropy-cb", "entropy", 1, 2)
    assert gain.difference.mean == pytest.approx(0.02)  # of 0.01 and 0.03; seed 2 has no partner
    assert gain.difference.error == pytest.approx(0.01)  # √((0.01² + 0.01²) / 1) / √2
    (tail,) = gains(results, only(results), "tail_accuracy")
    assert tail.difference.mean == pytest.approx(0.01)


def test_rows_with_different_numbers_of_labels_are_not_compared(template: Row) -> None:
    rows = trial(template, "entropy", "0", 0, [0.5, 0.6])
    rows += [
        replace(row, labelled=row.labelled + row.cycle) for row in trial(template, "entropy", "auto", 0, [0.5, 0.7])
    ]
    results = Results.of(rows)
    assert gains(results, only(results)) == []
    assert mean_gains(results, only(results)) == []


def test_mean_gains_average_each_seed_over_its_cycles_first(template: Row) -> None:
    rows = [
        *trial(template, "entropy", "0", 0, [0.5, 0.5, 0.5]), *trial(template, "entropy", "auto", 0, [0.5, 0.6, 0.8]),
        *trial(template, "entropy", "0", 1, [0.5, 0.5, 0.5]), *trial(template, "entropy", "auto", 1, [0.5, 0.5, 0.6]),
    ]  # fmt: skip
    results = Results.of(rows)
    (gain,) = mean_gains(results, only(results))
    assert gain.difference.mean == pytest.approx(0.125)  # of 0.2 and 0.05
    assert gain.difference.std == pytest.approx(0.15 / math.sqrt(2))


def test_pseudo_labels_are_measured_against_entropy(template: Row) -> None:
    rows = trial(template, "entropy", "0", 0, [0.5, 0.6]) + trial(
        template, "entropy-l1-pseudo-label", "auto", 0, [0.5, 0.7]
    )
    results = Results.of(rows)
    (gain,) = gains(results, only(results))
    assert (gain.method.label, gain.base.label) == ("entropy-l1-pseudo-label", "entropy")


def test_several_balances_of_a_strategy_are_told_apart(template: Row) -> None:
    rows = [row for balance in ("0", "0.6", "auto") for row in trial(template, "entropy", balance, 0, [0.5, 0.6])]
    results = Results.of(rows)
    labels = [method.label for method in list(results.trials[only(results)])]
    assert labels == ["entropy", "entropy-cb (auto)", "entropy-cb (0.6)"]
    assert [method.shown for method in list(results.trials[only(results)])][1] == "Entropy-CB (auto)"
    assert {gain.base.label for gain in gains(results, only(results))} == {"entropy"}


def test_several_settings_of_a_strategy_are_told_apart_and_measured_against_their_own_base(template: Row) -> None:
    rows = []
    for place, settings in enumerate(("", "parts=4", "parts=8")):
        for balance, last in (("0", 0.5), ("0.6", 0.6 + place / 10), ("auto", 0.7)):
            made = trial(template, "kcenter", balance, 0, [0.5, last])
            rows += [replace(row, settings=settings) for row in made]
    results = Results.of(rows)
    shown = [method.shown for method in list(results.trials[only(results)])]
    assert len(set(shown)) == 9
    assert shown[:3] == ["KCenter", "KCenter (parts 4)", "KCenter (parts 8)"]
    assert "KCenter-CB (λ = 0.6, parts 4)" in shown
    assert "KCenter-CB (λ = 0.6)" in shown
    assert "KCenter-CB (auto, parts 8)" in shown
    found = {gain.method.label: gain.base.label for gain in gains(results, only(results))}
    assert found["kcenter-cb (0.6, parts=4)"] == "kcenter (parts=4)"
    assert found["kcenter-cb (auto)"] == "kcenter"


def test_settings_that_all_methods_of_a_strategy_share_are_not_shown(template: Row) -> None:
    rows = [
        replace(row, settings="parts=4")
        for balance in ("0", "auto")
        for row in trial(template, "kcenter", balance, 0, [0.5])
    ]
    assert [one.shown for one in Results.of(rows).trials[only(Results.of(rows))]] == ["KCenter", "KCenter-CB"]


def test_one_balance_needs_no_telling_apart_even_where_pools_differ(template: Row) -> None:
    rows = trial(template, "entropy", "0.6", 0, [0.5])
    rows += [replace(row, pool="other", balance="2") for row in rows]
    labels = {method.label for methods in Results.of(rows).trials.values() for method in methods}
    assert labels == {"entropy-cb"}
    assert method_label("entropy-l1-pseudo-label", "0") == "entropy-l1-pseudo-label (0)"


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.01, 0.01], "up"), ([-0.01, -0.011], "down"), ([0.03, -0.01], "within noise"), ([0.0, 0.0], "within noise"),
        ([0.5], "one seed"),
    ],
)  # fmt: skip
def test_a_gain_is_called_one_only_two_standard_errors_from_zero(differences: list[float], verdict: str) -> None:
    where, method = Condition("p", "l", "step 0.1", 0.1), Method("entropy", "auto", "entropy-cb")
    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else math.nan
    band = Band(float(np.mean(differences)), spread, len(differences))
    assert Gain(where, method, method, 1, 0, 0, band).verdict == verdict


def test_labels_needed_lie_on_straight_lines_between_the_points() -> None:
    assert labels_needed([100, 200, 400], [0.5, 0.6, 0.8], 0.7) == pytest.approx(300)
    assert labels_needed([100, 200], [0.5, 0.6], 0.6) == pytest.approx(200)
    assert labels_needed([100, 200], [0.5, 0.6], 0.4) == 100
    assert math.isnan(labels_needed([100, 200], [0.5, 0.6], 0.61))


def test_after_a_dip_the_later_crossing_counts() -> None:
    dipped = labels_needed([100, 200, 300, 400], [0.70, 0.75, 0.73, 0.78], 0.76)
    assert dipped == pytest.approx(360)  # the running maximum would say 333


def test_savings_compare_with_random_and_say_what_is_not_reached(template: Row) -> None:
    rows = []
    for seed in (0, 1):
        rows += trial(template, "random", "0", seed, [0.50, 0.60, 0.70])
        rows += trial(template, "entropy", "0", seed, [0.50, 0.70, 0.755])
        rows += trial(template, "kcenter", "0", seed, [0.50, 0.55, 0.60])
    results = Results.of(rows)
    found = {(one.method.label, one.level): one for one in savings(results, only(results))}
    assert set(found) == {(name, level) for name in ("entropy", "kcenter") for level in (0.70, 0.75)}
    assert found["entropy", 0.70].share == pytest.approx(1 - 200 / 300)
    assert (found["entropy", 0.70].ahead, found["entropy", 0.70].seeds, found["entropy", 0.70].at_least) == (
        2,
        2,
        False,
    )
    beyond = found["entropy", 0.75]
    assert math.isnan(beyond.reference_needed)
    assert beyond.at_least
    assert beyond.share == pytest.approx(1 - (200 + 100 * 0.05 / 0.055) / 300)
    assert math.isnan(found["kcenter", 0.70].needed)
    assert math.isnan(found["kcenter", 0.70].share)
    assert found["kcenter", 0.70].ahead == 0


def test_without_random_there_are_no_savings(template: Row) -> None:
    results = Results.of(trial(template, "entropy", "0", 0, [0.5, 0.6]))
    assert savings(results, only(results)) == []


def test_a_level_met_before_the_first_batch_is_not_asked_for() -> None:
    band = [Band(value, 0.0, 2) for value in (0.805, 0.808)]
    points = tuple(Point(c, c, c, one, one, one, one, one) for c, one in enumerate(band))
    flat = Curve(Condition("p", "l", "s", 1), Method("random", "0", "random"), points)
    assert saving_levels(flat, []) == []


def test_count_errors_are_shares_of_the_batch(template: Row) -> None:
    rows = [
        replace(template, seed=seed, expected=expected, realised=(6, 4), picks=10, counts=(1, 1))
        for seed, expected in ((0, (5.0, 5.0)), (1, (3.0, 7.0)))
    ]
    rows += [replace(rows[0], cycle=1, picks=0, expected=(), realised=())]
    results = Results.of(rows)
    (error,) = count_errors(results, only(results))
    assert error.misplaced.mean == pytest.approx((0.1 + 0.3) / 2)
    assert error.absolute.mean == pytest.approx((0.1 + 0.3) / 2)  # with two classes it is the same
    assert error.misplaced.std == pytest.approx(0.2 / math.sqrt(2))
    assert (error.worst, error.worst_expected, error.worst_realised) == (0, 4.0, 6.0)


def test_the_order_of_the_rows_does_not_matter(make_rows: RowMaker) -> None:
    rows = make_rows(factors=(0.1, 1.0), seeds=(1, 0))
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    one, two = Results.of(rows), Results.of(shuffled)
    assert list(one.trials) == list(two.trials)
    assert [condition.imbalance for condition in one.trials] == [1.0, 0.1]
    for condition in one.trials:
        assert gains(one, condition) == gains(two, condition)
        assert savings(one, condition) == savings(two, condition)
        labels = [method.label for method in two.trials[condition]]
        assert labels == ["random", "entropy", "entropy-cb", "kcenter", "kcenter-cb", "vaal", "vaal-cb"]


def test_a_cycle_that_is_there_twice_is_refused(template: Row) -> None:
    with pytest.raises(BadInput, match=r"cycle 0 of random, seed 0, on cifar10 .* twice"):
        Results.of([template, template])


def test_no_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="no rows"):
        Results.of([])


def test_the_chance_of_two_standard_errors_is_that_of_students_t() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(200_000, 3))
    passed = np.abs(noise.mean(axis=1)) >= 2 * noise.std(axis=1, ddof=1) / math.sqrt(3)
    assert passes_by_chance(3) == pytest.approx(passed.mean(), abs=0.005)
    assert math.isnan(passes_by_chance(1))
