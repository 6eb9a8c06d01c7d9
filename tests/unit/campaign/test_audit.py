"""Audits: what is drawn, which images count, and what is made of every kind of answer."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tailwise.campaign.answers import Answer, record
from tailwise.campaign.audit import UNKNOWN, Sample, audit, count_limits, draw, mixed, random_order, share_limits
from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.ledger import Ledger, write_meta
from tailwise.campaign.rounds import Pick, candidate_images, current_round, round_picks
from tailwise.campaign.state import write_settings
from tailwise.errors import BadInput

from .conftest import add_images

MakeStudio = Callable[..., Any]
THREE = {"a": 60, "b": 30, "c": 10}


def audited(ledger: Ledger, number: int) -> list[int]:
    return [pick.image for pick in round_picks(ledger, number) if pick.audit]


def run_rounds(studio: Any, rounds: int, budget: int = 10, share: float = 0.3) -> list[int]:  # noqa: ANN401 - a Studio
    """Rounds that are answered in full; gives the audited images in the order of the rounds."""
    found = []
    for _ in range(rounds):
        made = next_round(studio.campaign, RoundOptions(budget, audit=share))
        assert made.round is not None
        found += audited(studio.ledger, made.round.id)
        studio.say_round()
    return found


# -- intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("population", "drawn"), [(12, 5), (30, 7), (9, 9), (40, 1)])
@pytest.mark.parametrize("error", [0.05, 0.2])
def test_limits_of_counts_are_those_of_every_hypothesis_tried(population: int, drawn: int, error: float) -> None:
    for hits in range(drawn + 1):
        at_least = [stats.hypergeom.sf(hits - 1, population, count, drawn) for count in range(population + 1)]
        at_most = [stats.hypergeom.cdf(hits, population, count, drawn) for count in range(population + 1)]
        kept = [n for n in range(population + 1) if at_least[n] > error / 2 and at_most[n] > error / 2]
        assert count_limits(population, drawn, hits, hits, error) == (kept[0], kept[-1])


def test_limits_of_counts_in_a_large_pool_are_nearly_those_of_a_share() -> None:
    low, high = count_limits(1_000_000, 50, 20, 20)
    reference = stats.binomtest(20, 50).proportion_ci(0.95, "exact")
    assert (low / 1e6, high / 1e6) == pytest.approx((reference.low, reference.high), abs=1e-4)


@pytest.mark.parametrize(("hits", "size"), [(0, 4), (4, 4), (3, 17), (1, 2)])
def test_limits_of_a_share_are_those_of_clopper_and_pearson(hits: int, size: int) -> None:
    reference = stats.binomtest(hits, size).proportion_ci(0.95, "exact")
    assert share_limits(hits, size) == pytest.approx((reference.low, reference.high), abs=1e-9)


def test_undecided_images_widen_an_interval_to_both_sides() -> None:
    truth, guess = np.array([0] * 30 + [1] * 10 + [UNKNOWN] * 5), np.array([0] * 25 + [1] * 20)
    sample = Sample(500, truth, guess)
    found = sample.share(30)
    assert found.value == 30 / 40
    assert (found.low, found.high) == tuple(n / 500 for n in count_limits(500, 45, 30, 35))
    recall = sample.recall(np.array([1]))  # all undecided images are taken for class 1
    assert (recall.value, recall.images) == (1.0, 10)
    assert recall.low == pytest.approx(share_limits(10, 10)[0])
    other = sample.recall(np.array([0]))
    assert other.value == 25 / 30
    assert (other.low, other.high) == pytest.approx((share_limits(25, 35)[0], share_limits(25, 30)[1]))


# -- drawing -----------------------------------------------------------------------------------------------------------


def test_draws_of_all_rounds_go_through_one_random_order(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE)
    found = run_rounds(studio, 3)
    assert len(found) == 9
    order = random_order(studio.ledger, 100).tolist()
    end = max(order.index(image) for image in found)
    assert set(order[: end + 1]) - set(found) <= set(np.setdiff1d(order, candidate_images(studio.ledger)).tolist())
    rows = studio.ledger.read("SELECT round_id, drawn, population, last_image FROM audit_draw")
    assert [tuple(row) for row in rows] == [(1, 3, 100, 100), (2, 3, 90, 100), (3, 3, 80, 100)]
    assert studio.campaign.audit().images == end + 1  # those in between had a label already
    assert studio.campaign.audit().population == 100


def test_audited_images_have_guesses_and_stand_anywhere_among_the_others(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.3)
    run_rounds(studio, 1, budget=20)
    made = next_round(studio.campaign, RoundOptions(20, audit=0.25))
    assert (len(made.picks), sum(pick.audit for pick in made.picks), made.budget) == (20, 5, 20)
    assert all(pick.predicted is not None and pick.confidence is not None for pick in made.picks)
    assert sum(made.expected_counts or ()) == pytest.approx(15, abs=1e-3)  # of the images that were chosen
    assert any("5 images are drawn at random" in note for note in made.notes)
    assert [pick.audit for pick in round_picks(studio.ledger, 2)] == [pick.audit for pick in made.picks]


def test_mixing_puts_every_place_to_use_equally_often() -> None:
    chosen, drawn = [Pick(n) for n in range(8)], [Pick(100), Pick(101)]
    places: Counter[int] = Counter()
    for seed in range(2_000):
        round_ = mixed(chosen, drawn, seed)
        assert [pick.image for pick in round_ if not pick.audit] == list(range(8))
        places.update(at for at, pick in enumerate(round_) if pick.audit)
    assert stats.chisquare([places[at] for at in range(10)]).pvalue > 1e-4


def test_every_image_is_as_likely_to_be_drawn(ledger: Ledger) -> None:
    images, firsts = candidate_images(ledger), Counter[int]()
    for _ in range(600):
        with ledger.writing():
            write_meta(ledger, "campaign", uuid.uuid4().hex)
            firsts.update(draw(ledger, images, 0.5, 6).images.tolist())
    assert sum(firsts.values()) == 1_800
    assert stats.chisquare([firsts[image] for image in images.tolist()]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("share", "budget", "drawn"), [(0, 50, 0), (0.1, 50, 5), (0.05, 4, 1), (0.5, 1, 0), (0.5, 2, 1)]
)
def test_how_many_are_drawn(ledger: Ledger, share: float, budget: int, drawn: int) -> None:
    assert len(draw(ledger, candidate_images(ledger), share, budget).images) == drawn


def test_many_new_images_begin_another_series_and_a_few_do_not(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute("INSERT INTO round VALUES (1, 0, 1, 2, 'random', 'none', 0, NULL, '{}')")
        connection.execute("INSERT INTO audit_draw VALUES (1, 2, 12, 12, 0)")
    add_images(ledger, 1)
    source = draw(ledger, candidate_images(ledger), 0.5, 4).source
    assert source is not None
    assert (source.population, source.last_image) == (12, 12)
    add_images(ledger, 1)
    source = draw(ledger, candidate_images(ledger), 0.5, 4).source
    assert source is not None
    assert (source.population, source.last_image) == (14, 14)


# -- what counts -------------------------------------------------------------------------------------------------------


def test_before_any_draw_the_audit_says_how_to_begin(make_studio: MakeStudio) -> None:
    found = make_studio(THREE).campaign.audit()
    assert (found.images, found.accuracy, found.stop, found.classes) == (0, None, None, ())
    assert found.sentences == (
        "No image has been audited yet: open the next round with a share for the audit, such as 0.1.",
    )


def test_the_draw_of_a_round_counts_when_the_round_is_complete(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE)
    next_round(studio.campaign, RoundOptions(10, audit=0.3))
    studio.say_round(9)
    assert (studio.campaign.audit().images, studio.campaign.audit().waiting) == (0, True)
    studio.say_round()
    found = studio.campaign.audit()
    assert (found.images, found.rounds, found.waiting) == (3, 1, False)


def test_shares_are_those_of_the_sample_and_hunting_changes_nothing(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.3)
    run_rounds(studio, 4, budget=20)
    before = studio.campaign.audit()
    order = random_order(studio.ledger, 100).tolist()
    truth = Counter(studio.truth(image) for image in order[: before.images])
    for one in before.classes:
        low, high = count_limits(100, before.images, truth[one.class_id], truth[one.class_id])
        assert (one.share.value, one.share.low, one.share.high) == (
            truth[one.class_id] / before.images,
            low / 100,
            high / 100,
        )
        assert one.share.low <= THREE[one.name] / 100 <= one.share.high
    left = [image for image in order[before.images :] if studio.truth(image) == 3]
    left = [image for image in left if image in candidate_images(studio.ledger)]
    record(studio.ledger, [Answer(uuid.uuid4().hex, image, "ann", "label", 3, found_by="hunt") for image in left])
    after = studio.campaign.audit()
    assert [one.share for one in after.classes] == [one.share for one in before.classes]


def test_other_skip_and_conflict_are_counted_as_documented(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.1)
    run_rounds(studio, 2, budget=20)
    next_round(studio.campaign, RoundOptions(20, audit=0.4))
    current = current_round(studio.ledger)
    assert current is not None
    other, skipped, disputed = audited(studio.ledger, current.id)[:3]
    studio.say_round()
    studio.say([other], kind="other")
    studio.say([skipped], kind="skip")
    studio.say([disputed], annotator="bob", cls=1 + studio.truth(disputed) % 3)
    found = studio.campaign.audit()
    assert found.unknown == 2
    assert found.other is not None
    assert found.other.value == pytest.approx(1 / (found.images - 2))
    assert found.accuracy is not None
    assert found.accuracy.value == pytest.approx((found.images - 3) / (found.images - 2))  # the features say the class
    assert found.accuracy.low == count_limits(100, found.images, found.images - 3, found.images - 1)[0] / 100
    assert found.accuracy.high == count_limits(100, found.images, found.images - 3, found.images - 1)[1] / 100
    assert any("2 images have no decided answer" in text for text in found.sentences)


def test_a_label_of_a_retired_class_is_none_of_the_classes(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 50, "b": 50, "c": 20}, spread=0.1)
    run_rounds(studio, 2, budget=20)
    studio.campaign.retire_class("c")
    found = studio.campaign.audit()
    order = random_order(studio.ledger, 120).tolist()[: found.images]
    assert [one.name for one in found.classes] == ["a", "b"]
    assert found.other is not None
    assert found.other.value == sum(studio.truth(image) == 3 for image in order) / len(order)


class Memory:
    """A learner that knows what it has seen by heart, and else says class 0."""

    name = "memory"

    def fit(self, features: Any, labels: Any, **_: object) -> Memory:  # noqa: ANN401
        self.seen = {row.tobytes(): label for row, label in zip(np.asarray(features), labels, strict=True)}
        return self

    def predict_proba(self, features: Any) -> Any:  # noqa: ANN401
        return np.eye(3)[[self.seen.get(row.tobytes(), 0) for row in np.asarray(features)]]


def test_the_model_is_judged_on_images_whose_labels_it_has_not_seen(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.3)
    run_rounds(studio, 3, budget=20)
    write_settings(studio.ledger, learner=f"{__name__}:Memory")
    found = studio.campaign.audit()
    order = random_order(studio.ledger, 100).tolist()[: found.images]
    assert found.accuracy is not None
    assert found.accuracy.value == sum(studio.truth(image) == 1 for image in order) / len(order)
    assert [one.recall.value for one in found.classes[:2]] == [1.0, 0.0]


def test_it_says_stop_when_the_bound_reaches_the_wanted_accuracy(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.1)
    run_rounds(studio, 3, budget=20, share=0.5)
    found = audit(studio.ledger, wanted=0.5)
    assert found.stop is not None
    assert found.stop.reached
    low = count_limits(100, found.images, found.images, found.images, 2 * 0.05 / 12)[0] / 100  # the third look
    assert found.stop.bound == low
    assert found.sentences[0].startswith("You can stop: the accuracy is at least 50 %")
    strict = audit(studio.ledger, wanted=1.0)
    assert strict.stop is not None
    assert not strict.stop.reached
    assert strict.sentences[0].startswith("Go on: the accuracy is at least")
    with pytest.raises(BadInput, match="from 0 to 1"):
        audit(studio.ledger, wanted=90)


def test_the_settings_name_the_share_and_reject_nonsense(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, audit=0.2)
    made = next_round(studio.campaign, RoundOptions(10))
    assert sum(pick.audit for pick in made.picks) == 2
    assert studio.campaign.configure(audit=0, wanted_accuracy=1).audit == 0.0
    for bad in ({"audit": 0.6}, {"audit": -0.1}, {"wanted_accuracy": 1.5}, {"audit": "much"}):
        with pytest.raises(BadInput):
            studio.campaign.configure(**bad)
    with pytest.raises(BadInput, match="audit"):
        next_round(studio.campaign, RoundOptions(10, audit=0.7, dry_run=True, allow_unfinished=True))


def test_an_audit_shows_itself_in_notebooks(make_studio: MakeStudio) -> None:
    studio = make_studio(THREE, spread=0.1)
    run_rounds(studio, 1, budget=20)
    page = studio.campaign.audit()._repr_html_()
    assert "of 100 images drawn at random" in page
    assert "share of the pool" in page
