"""The learning curve: what a literal cross-validation gives, on the labels known at each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.choosing import RoundOptions, next_round
from tailwise.campaign.features import embed
from tailwise.campaign.learning_curve import (
    FOLDS,
    Measure,
    balanced_difference,
    balanced_share,
    difference,
    held_out,
    learning_curve,
    round_ends,
    share_with_error,
    thinned,
)
from tailwise.campaign.models import labelled_set, labels_at, last_event
from tailwise.learners import make_learner
from tailwise.learners.learner import stratified_folds

MakeStudio = Callable[..., Any]


def lived(make_studio: MakeStudio, rounds: int = 3) -> Any:  # noqa: ANN401 - a Studio
    studio = make_studio({"a": 30, "b": 30, "c": 20, "d": 6}, spread=0.8)
    studio.say([1, 2, 31, 32])
    for _ in range(rounds):
        next_round(studio.campaign, RoundOptions(10))
        studio.say_round()
    return studio


def test_every_point_is_what_a_literal_cross_validation_gives(make_studio: MakeStudio) -> None:
    studio = lived(make_studio)
    curve = learning_curve(studio.campaign)
    final = labelled_set(studio.ledger)
    features = embed(studio.ledger, final.images, backbone="simple").features
    folds = stratified_folds(final.labels, FOLDS, np.random.default_rng(0))
    assert [point.labels for point in curve.points] == [4, 14, 24, 34]
    assert [point.round_id for point in curve.points] == [0, 1, 2, 3]
    for point, moment in zip(curve.points, round_ends(studio.ledger), strict=True):
        then = set(labels_at(studio.ledger, moment.last_event)[0].tolist())
        right: dict[int, list[bool]] = {cls: [] for cls in range(4)}
        for fold in range(FOLDS):
            learnt = [at for at in range(len(final)) if folds[at] != fold and int(final.images[at]) in then]
            model = make_learner("linear").fit(features[learnt], final.labels[learnt], classes=4, seed=0)
            for image in np.flatnonzero(folds == fold):
                guess = model.predict_proba(features[[image]]).argmax()
                right[int(final.labels[image])].append(bool(guess == final.labels[image]))
        every = [hit for some in right.values() for hit in some]
        recalls = [np.mean(some) for some in right.values() if some]
        assert point.accuracy.value == pytest.approx(np.mean(every))
        assert point.balanced_accuracy.value == pytest.approx(np.mean(recalls))
    assert curve.points[0].classes_seen == 2
    assert 0.3 < curve.points[-1].accuracy.value < 1  # neither chance nor trivial, or the test shows little


def test_gains_are_differences_of_points_and_confusion_adds_up(make_studio: MakeStudio) -> None:
    curve = learning_curve(lived(make_studio).campaign)
    for gain, before, after in zip(curve.gains, curve.points, curve.points[1:], strict=False):
        assert gain.round_id == after.round_id
        assert gain.labels == 10
        assert gain.accuracy.value == pytest.approx(after.accuracy.value - before.accuracy.value)
        assert gain.balanced_accuracy.value == pytest.approx(
            after.balanced_accuracy.value - before.balanced_accuracy.value
        )
        assert gain.accuracy.error > 0
    assert len(curve.gains) == 3
    assert curve.confusion.sum(axis=1).tolist() == curve.measured.tolist()
    accuracy = np.trace(curve.confusion) / curve.confusion.sum()
    assert curve.points[-1].accuracy.value == pytest.approx(accuracy)
    assert np.nanmean(curve.recalls()) == pytest.approx(curve.points[-1].balanced_accuracy.value)


def test_the_same_ledger_gives_the_same_curve(make_studio: MakeStudio) -> None:
    studio = lived(make_studio, 2)
    first, second = (learning_curve(studio.campaign) for _ in range(2))
    assert [(p.accuracy, p.balanced_accuracy) for p in first.points] == [
        (p.accuracy, p.balanced_accuracy) for p in second.points
    ]
    assert np.array_equal(first.confusion, second.confusion)


def test_guesses_of_a_round_are_compared_with_what_people_said(make_studio: MakeStudio) -> None:
    studio = lived(make_studio, 2)
    points = learning_curve(studio.campaign).points
    rows = studio.ledger.read("SELECT image_id, predicted FROM round_image WHERE round_id = 2")
    right = sum(studio.truth(row["image_id"]) == row["predicted"] for row in rows)
    assert (points[2].guessed, points[2].right) == (10, right)
    assert points[0].guessed == 0


def test_a_round_without_a_new_label_has_no_point(make_studio: MakeStudio) -> None:
    studio = lived(make_studio, 1)
    next_round(studio.campaign, RoundOptions(10))  # nobody has answered yet
    assert [point.round_id for point in learning_curve(studio.campaign).points] == [0, 1]
    next_round(studio.campaign, RoundOptions(10, allow_unfinished=True))
    studio.say_round(3)
    assert [point.round_id for point in learning_curve(studio.campaign).points] == [0, 1, 3]


def test_a_label_that_was_changed_later_counts_as_it_was_then_and_is_measured_as_it_is_now(
    make_studio: MakeStudio,
) -> None:
    studio = make_studio({"a": 20, "b": 20}, noise=1)
    images = [1, 2, 3, 4, 21, 22, 23, 24]
    for image in images:
        studio.say([image], cls=3 - studio.truth(image))  # all wrong
    next_round(studio.campaign, RoundOptions(4))
    studio.say_round()
    studio.say(images)  # mended
    first, last = learning_curve(studio.campaign).points
    assert first.accuracy.value < 0.3
    assert last.accuracy.value > 0.8


def test_a_class_with_one_label_is_learnt_from_and_not_asked_about(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10, "c": 2}, also=["none"])
    studio.say([1, 2, 3, 11, 12, 13, 21])
    curve = learning_curve(studio.campaign)
    assert curve.measured.tolist() == [3, 3, 0, 0]
    assert np.isnan(curve.recalls()[2:]).all()
    assert curve.points[0].labels == 7


@pytest.mark.parametrize("said", [[], [1], [1, 11]])
def test_with_too_little_to_measure_there_is_no_number(make_studio: MakeStudio, said: list[int]) -> None:
    studio = make_studio({"a": 10, "b": 10})
    studio.say(said)
    curve = learning_curve(studio.campaign)
    assert [point.labels for point in curve.points] == ([len(said)] if said else [])
    assert all(point.accuracy is None for point in curve.points)
    assert (curve.gains, int(curve.confusion.sum())) == ((), 0)


def test_one_class_alone_is_always_right(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10})
    studio.say([1, 2, 3])
    (point,) = learning_curve(studio.campaign).points
    assert point.accuracy.value == 1.0
    assert point.accuracy.error > 0.1  # three images prove little


def test_retired_classes_are_left_out(make_studio: MakeStudio) -> None:
    studio = lived(make_studio, 1)
    studio.campaign.retire_class("b")
    curve = learning_curve(studio.campaign)
    assert curve.class_ids == (1, 3, 4)
    assert curve.confusion.shape == (3, 3)


def test_what_is_lost_with_its_features_is_left_out_and_counted(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10})
    studio.say([1, 2, 3, 11, 12, 13])
    (studio.photos / "a-001.png").unlink()
    studio.campaign.index()
    curve = learning_curve(studio.campaign)
    assert (curve.lost, int(curve.measured.sum())) == (1, 5)


def test_rounds_opened_by_hand_are_dated_by_the_clock(make_studio: MakeStudio) -> None:
    from tailwise.campaign.rounds import Pick, open_round

    studio = make_studio({"a": 10, "b": 10})
    studio.say([1, 2])
    open_round(studio.ledger, [Pick(3)], budget=1, strategy="random")
    studio.say([3])
    assert [moment.last_event for moment in round_ends(studio.ledger)] == [2, last_event(studio.ledger)]


def test_where_nothing_is_known_there_is_no_guess() -> None:
    features = np.eye(4, dtype=np.float32)
    guesses = held_out(make_learner("linear"), features, np.full(4, -1), np.array([0, 1, 0, -1]), 2)
    assert guesses.tolist() == [-1] * 4


def test_errors_of_shares_and_differences() -> None:
    rng = np.random.default_rng(0)
    hits = rng.random((4000, 50)) < 0.8
    found = np.array([share_with_error(some).error for some in hits[:200]])
    assert found.mean() == pytest.approx(hits.mean(axis=1).std(), rel=0.1)
    after = hits | (rng.random(hits.shape) < 0.2)
    changes = after.mean(axis=1) - hits.mean(axis=1)
    errors = [difference(a, b).error for a, b in zip(hits[:200], after[:200], strict=True)]
    assert np.mean(errors) == pytest.approx(changes.std(), rel=0.25)
    labels = np.repeat([0, 1], [10, 40])
    both = balanced_share(hits[0], labels)
    assert both.value == pytest.approx((hits[0][:10].mean() + hits[0][10:].mean()) / 2)
    same = balanced_difference(hits[0], hits[0], labels)
    assert same.value == 0
    assert 0 < same.error < 0.2
    assert share_with_error(np.ones(1, dtype=bool)) == Measure(1.0, pytest.approx(0.219, abs=1e-3))


@pytest.mark.parametrize(("count", "most"), [(0, 3), (1, 3), (3, 3), (50, 25), (26, 25)])
def test_thinning_keeps_the_ends(count: int, most: int) -> None:
    kept = thinned(count, most)
    assert len(kept) == min(count, most)
    assert kept == sorted(set(kept))
    if count:
        assert (kept[0], kept[-1]) == (0, count - 1)
