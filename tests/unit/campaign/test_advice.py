"""Advice: rules that say yes, no or unclear for the right reason, and never no of too little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.advice import Advice, Facts, Stability, advise, expected_gain, gather, judge, lean_of, mean_gain
from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.learning_curve import Agreement, Curve, CurveGain, CurvePoint, Measure
from tailwise.campaign.rounds import Pending

MakeStudio = Callable[..., Any]
PLENTY = {"owl": 60, "kite": 60}


def curve(levels: Sequence[float], error: float = 0.004, step: int = 50) -> Curve:
    """A curve with these balanced accuracies."""
    points = tuple(
        CurvePoint(place, 0, step * (place + 1), 2, Measure(level, error), Measure(level, error))
        for place, level in enumerate(levels)
    )
    gains = tuple(
        CurveGain(place, step, Measure(b - a, error), Measure(b - a, error))
        for place, (a, b) in enumerate(pairwise(levels), start=1)
    )
    return Curve(points, gains, (1, 2), np.array([60, 60]), np.zeros((2, 2), np.int64), "simple", "linear")


def stable(kappa: float = 0.995) -> Stability:
    return Stability(1000, 0.002, Agreement(kappa, 1000, 0.998))


def facts(**changes: Any) -> Facts:  # noqa: ANN401 - fields of Facts
    usual: dict[str, Any] = {"labels": PLENTY, "candidates": 1000, "budget": 50, "rounds": 3}
    return Facts(**usual | changes)


def evidence(advice: Advice, what: str) -> Any:  # noqa: ANN401 - an Evidence
    return next(one for one in advice.evidence if one.what == what)


def test_a_curve_that_clearly_rises_is_worth_another_round() -> None:
    advice = judge(facts(curve=curve([0.6, 0.7, 0.78])))
    assert advice.worth_it == "yes"
    assert evidence(advice, "gain").text == (
        "The last 50 new labels changed it by +8.0 ± 0.4 points, measured on the same images. "
        "Over the last two rounds it was +9.0 ± 0.3 points a round."
    )


def test_a_flat_curve_with_stable_predictions_is_not() -> None:
    advice = judge(facts(curve=curve([0.90, 0.901, 0.9005, 0.901], 0.002), stability=stable()))
    assert advice.worth_it == "no"
    assert evidence(advice, "stability").numbers["kappa"] == 0.995
    assert evidence(advice, "law").leans == "no"


@pytest.mark.parametrize(
    "changes",
    [
        {"curve": curve([0.90, 0.901], 0.002)},  # two points
        {"curve": curve([0.90, 0.901, 0.9005, 0.901], 0.02)},  # as flat, but badly measured
        {"curve": curve([0.90, 0.901, 0.9005, 0.901], 0.002), "stability": stable(0.9)},
        {"curve": curve([0.90, 0.901, 0.9005, 0.901], 0.002), "stability": None},
        {"curve": curve([0.9])},
        {"curve": None},
        {"curve": curve([0.9, 0.85, 0.88], 0.03)},
    ],
)
def test_what_the_numbers_do_not_bear_out_is_unclear(changes: dict[str, Any]) -> None:
    assert judge(facts(**{"stability": stable()} | changes)).worth_it == "unclear"


@pytest.mark.parametrize(
    ("last", "mean", "leans"),
    [
        ((-0.03, 0.01), (0.05, 0.02), "unclear"),  # it fell, after a large step
        ((0.0, 0.083), (0.2, 0.05), "unclear"),  # nothing was added
        ((0.041, 0.03), (0.054, 0.023), "yes"),
        ((0.08, 0.01), (0.02, 0.03), "yes"),
        ((0.0, 0.002), (0.0, 0.001), "no"),
    ],
)
def test_a_large_step_of_the_past_is_no_rise_of_today(
    last: tuple[float, float], mean: tuple[float, float], leans: str
) -> None:
    assert lean_of(Measure(*last), Measure(*mean), 5) == leans


@pytest.mark.parametrize(
    ("measured", "told"), [((2, 0, 0), "2 labelled images of 1 of 3 classes"), ((3, 3, 3), "9 lab")]
)
def test_a_level_of_a_handful_of_images_is_not_told(measured: tuple[int, ...], told: str) -> None:
    few = replace(curve([0.9, 1.0, 1.0]), measured=np.array(measured), class_ids=(1, 2, 3))
    advice = judge(facts(curve=few))
    assert not [one for one in advice.evidence if one.what == "level"]
    assert told in evidence(advice, "gain").text
    enough = judge(facts(curve=replace(few, measured=np.array([6, 6, 0]))))
    assert "on 12 labelled images of 2 of 3 classes; these" in evidence(enough, "level").text


def test_one_clear_step_is_a_yes_that_says_so() -> None:
    advice = judge(facts(curve=curve([0.6, 0.8])))
    assert (advice.worth_it, "one step alone" in advice.because) == ("yes", True)


def test_an_empty_pool_ends_it_whatever_the_curve_says() -> None:
    advice = judge(facts(curve=curve([0.5, 0.7, 0.9]), candidates=0))
    assert (advice.worth_it, advice.because) == ("no", "No image is left to choose from.")
    assert "Only 20 images of the 50" in evidence(judge(facts(candidates=20)), "pool").text


def test_without_labels_it_is_worth_a_round() -> None:
    assert judge(facts(labels={"owl": 0, "kite": 0}, rounds=0)).worth_it == "yes"


def test_a_class_without_labels_speaks_for_a_round_until_it_was_tried_for_long() -> None:
    flat = curve([0.90, 0.901, 0.9005, 0.901], 0.002)
    early = judge(facts(labels={"owl": 60, "wren": 0}, rounds=2, curve=flat, stability=stable()))
    late = judge(facts(labels={"owl": 60, "wren": 0}, rounds=3, curve=flat, stability=stable()))
    assert (early.worth_it, late.worth_it) == ("yes", "no")
    assert evidence(late, "absent").text.startswith("wren has no label after 3 rounds: perhaps no image shows it")


def test_a_class_with_few_labels_speaks_for_a_round_unless_the_pool_is_short_of_it() -> None:
    flat = curve([0.90, 0.901, 0.9005, 0.901], 0.002)
    rare = {"labels": {"owl": 60, "wren": 4}, "curve": flat, "stability": stable()}
    assert judge(facts(**rare)).worth_it == "yes"
    short = judge(facts(**rare, unreachable=("wren",)))
    assert short.worth_it == "no"
    assert "the pool is short of wren" in evidence(short, "reach").text
    assert evidence(short, "reach").text.endswith("It has seen too few labels of wren to be sure.")
    known = judge(facts(labels={"owl": 60, "wren": 5}, unreachable=("wren",)))
    assert evidence(known, "reach").text.endswith("more images would help more than more rounds.")
    assert judge(facts(**rare | {"rounds": 6})).worth_it == "no"


def test_disagreement_of_people_and_pending_answers_are_told() -> None:
    advice = judge(
        facts(curve=curve([0.6, 0.7, 0.78]), alpha=Agreement(0.4, 30, 0.6), pending=Pending(3, 4, 5, 50))
    )  # fmt: skip
    assert evidence(advice, "agreement").text.startswith(
        "People disagree: Krippendorff's alpha is 0.40 on 30 shared images."
    )
    assert evidence(advice, "pending").text == "Round 3 still waits for 5 answers; finish it before deciding."
    good = judge(facts(alpha=Agreement(0.9, 1, 0.95)))
    assert evidence(good, "agreement").text == "People agree: Krippendorff's alpha is 0.90 on 1 shared image."
    assert not [one for one in judge(facts(alpha=Agreement(None, 3, 1.0, "why"))).evidence if one.what == "agreement"]


def test_a_power_law_is_recovered() -> None:
    sizes = np.array([50, 100, 200, 400, 800.0])
    levels = [Measure(1 - 2.0 * size**-0.5, 0.001) for size in sizes]
    found = expected_gain(sizes, levels, 800)
    assert found is not None
    assert found.value == pytest.approx(2.0 * (800**-0.5 - 1600**-0.5), rel=1e-6)
    assert found.error < 0.002


def test_the_error_of_an_expected_gain_is_honest() -> None:
    rng, sizes = np.random.default_rng(0), np.array([50, 100, 150, 200, 250.0])
    truth = 2.0 * (250**-0.5 - 300**-0.5)
    inside = 0
    for _ in range(300):
        levels = [Measure(float(1 - 2.0 * size**-0.5 + rng.normal(0, 0.01)), 0.01) for size in sizes]
        found = expected_gain(sizes, levels, 50)
        assert found is not None
        inside += abs(found.value - truth) < 2 * found.error
    assert 0.9 < inside / 300 < 0.999


def test_a_law_needs_three_sizes_and_survives_a_perfect_model() -> None:
    assert expected_gain(np.array([50, 100.0]), [Measure(0.5, 0.1)] * 2, 10) is None
    assert expected_gain(np.array([50, 50, 100.0]), [Measure(0.5, 0.1)] * 3, 10) is None
    perfect = expected_gain(np.array([50, 100, 150.0]), [Measure(1.0, 0.01)] * 3, 50)
    assert perfect is not None
    assert abs(perfect.value) < 0.01


def test_the_mean_of_gains_has_a_smaller_error() -> None:
    found = mean_gain(curve([0.5, 0.6, 0.62], 0.01).gains)
    assert found.value == pytest.approx(0.06)
    assert found.error == pytest.approx(0.01 / np.sqrt(2))


def test_many_classes_are_named_in_short() -> None:
    advice = judge(facts(labels={"owl": 9, **{f"c{n}": 0 for n in range(8)}}, rounds=1))
    assert evidence(advice, "coverage").text.startswith("c0, c1, c2, c3, c4 and 3 more have no label yet")


def test_a_campaign_is_measured_from_its_first_label_to_its_last_image(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 30, "b": 30}, spread=0.6, budget=12)
    assert advise(studio.campaign).worth_it == "yes"  # nothing is labelled
    for _ in range(3):
        next_round(studio.campaign)
        studio.say_round()
    found = gather(studio.ledger)
    assert (found.candidates, found.budget, found.rounds, sum(found.labels.values())) == (24, 12, 3, 36)
    assert found.stability is not None
    assert found.stability.images == 24
    assert len(found.curve.points) == 3
    advice = advise(studio.campaign)
    assert {"level", "gain", "law", "stability"} <= {one.what for one in advice.evidence}
    studio.say([row["id"] for row in studio.ledger.read("SELECT id FROM image")], "bob")
    assert advise(studio.campaign).because == "No image is left to choose from."
    assert gather(studio.ledger).alpha.value == 1.0


def test_an_open_round_is_told(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10}, also=["c"])
    next_round(studio.campaign, RoundOptions(5))
    advice = advise(studio.campaign)
    assert evidence(advice, "pending").numbers == {"answers": 5.0}
    assert evidence(advice, "gain").text == "There are too few labels to measure the model."
