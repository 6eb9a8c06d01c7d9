"""The next round: from what it is chosen, why, what is written of it, and that a crash leaves all of it or nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailwise.campaign.answers import Answer, record, settle
from tailwise.campaign.choosing import RoundOptions, choose_cold, next_round
from tailwise.campaign.features import embed
from tailwise.campaign.leases import lease
from tailwise.campaign.ledger import Ledger, write_meta
from tailwise.campaign.models import fault_of, labelled_set, load, predict
from tailwise.campaign.rounds import (
    candidate_images,
    current_round,
    find_model,
    list_models,
    list_rounds,
    pending_answers,
    round_picks,
)
from tailwise.errors import BadInput, PoolExhausted, UnknownName

MakeStudio = Callable[..., Any]
FIVE = {"a": 40, "b": 40, "c": 30, "d": 8, "e": 8}


def tree(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def started(make_studio: MakeStudio, **settings: object) -> Any:  # noqa: ANN401 - a Studio
    """A campaign with three labels of each class."""
    studio = make_studio(FIVE, **settings)
    studio.say([row["id"] for row in studio.ledger.read("SELECT id FROM image WHERE path LIKE '%-00_.png'")][::3])
    return studio


def test_the_first_round_starts_cold_and_covers_the_classes_without_a_guess(make_studio: MakeStudio) -> None:
    studio = make_studio(FIVE)
    made = next_round(studio.campaign, RoundOptions(25))
    assert made.cold_start
    assert (made.strategy, made.balance, made.labels, made.candidates) == ("typiclust", "none", 0, 126)
    assert (made.expected_counts, made.target, made.model_version) == (None, None, None)
    assert {(pick.predicted, pick.confidence) for pick in made.picks} == {(None, None)}
    assert made.notes[0] == "nothing is labelled yet: images are chosen by typiclust, without a model"
    features = embed(studio.ledger, backbone="simple").features
    reference = choose_cold(features, features[:0], 25, strategy="entropy", classes=5, seed=1)
    assert [pick.image for pick in made.picks] == (reference.indices + 1).tolist()
    assert list_models(studio.ledger) == []
    assert made.round == current_round(studio.ledger)
    assert made.round.why["cold_start"] is True


def test_a_round_by_the_model_says_what_was_chosen_and_why(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    made = next_round(studio.campaign, RoundOptions(20, strategy="entropy", balance="auto", seed=3, overlap=2))
    assert not made.cold_start
    assert made.class_ids == (1, 2, 3, 4, 5)
    assert sum(made.expected_counts) == pytest.approx(20, abs=1e-3)
    labelled = np.array(made.why["counts"])
    wanted = np.maximum((labelled.sum() + 20) / 5 - labelled, 0)  # the paper's Eq. 4
    np.testing.assert_allclose(made.target, wanted)
    assert made.gap is not None
    assert made.status in {"optimal", "within gap", "best found"}
    assert set(made.seconds) == {"features", "fit", "choose", "write"}
    assert [pick.image for pick in made.picks] == [pick.image for pick in round_picks(studio.ledger, 1)]
    kept = made.round.why
    for name in ("lam", "gap", "status", "objective", "bound", "expected_counts", "target", "class_ids", "l1",
                 "unreachable", "seconds", "cold_start"):  # fmt: skip
        assert name in kept
    assert (made.round.strategy, made.round.balance, made.round.seed) == ("entropy", "auto", 3)
    assert made.round.model_version == made.model_version == list_models(studio.ledger)[0].version
    assert {pick.wanted for pick in made.picks} == {2}


def test_guesses_are_the_models_own_and_add_up_to_the_expected_counts(make_studio: MakeStudio) -> None:
    studio = started(make_studio, calibration="temperature")
    made = next_round(studio.campaign, RoundOptions(20))
    said = predict(studio.campaign, np.array([pick.image for pick in made.picks]))
    best, sure = said.best()
    assert [pick.predicted for pick in made.picks] == best.tolist()
    np.testing.assert_allclose([pick.confidence for pick in made.picks], sure, rtol=1e-5)
    np.testing.assert_allclose(said.proba.sum(axis=0), made.expected_counts, rtol=1e-4)


def test_guesses_are_tempered_and_never_corrected_for_the_counts_of_labels(make_studio: MakeStudio) -> None:
    """Picks depend on the images: that a class has many labels does not tell that it has many images."""
    studio = started(make_studio, calibration="temperature")
    made = next_round(studio.campaign, RoundOptions(12))
    images = np.array([pick.image for pick in made.picks])
    trained = load(studio.ledger)
    assert trained.calibration.kind == "temperature"
    assert trained.calibration.temperature != 1
    pixels = embed(studio.ledger, images, backbone="simple")
    shares = labelled_set(studio.ledger).counts() / len(labelled_set(studio.ledger))
    evidence = trained.model.predict_proba(pixels.features[pixels.rows(images)[0]]).astype(np.float64) / shares
    tempered = shares * evidence ** (1 / trained.calibration.temperature)
    tempered /= tempered.sum(axis=1, keepdims=True)
    np.testing.assert_allclose([pick.confidence for pick in made.picks], tempered.max(axis=1), rtol=1e-3)


@pytest.mark.parametrize("kind", ["prior", "both", "sideways"])
def test_a_campaign_cannot_be_told_to_correct_the_prior(make_studio: MakeStudio, kind: str) -> None:
    studio = started(make_studio)
    with pytest.raises(BadInput, match=f"calibration is '{kind}'; a campaign takes one of none, temperature"):
        studio.campaign.configure(calibration=kind)
    assert studio.campaign.settings.calibration == "temperature"


def test_each_round_has_a_seed_of_its_own_unless_one_is_given(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    seeds = []
    for given in (None, None, 7, None):
        made = studio.campaign.next(2, seed=given, allow_unfinished=True)
        seeds.append((made.seed, made.round.seed))
    assert seeds == [(1, 1), (2, 2), (7, 7), (4, 4)]
    assert studio.campaign.next(2, dry_run=True, allow_unfinished=True).seed == 5


def test_rounds_become_balanced_where_the_pool_is_not(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    next_round(studio.campaign, RoundOptions(16, strategy="entropy", balance=3.0))
    studio.say_round()
    rare = Counter(studio.truth(pick.image) for pick in round_picks(studio.ledger, 1))
    assert rare[4] + rare[5] >= 5  # 10 of 113 in the pool: 1.4 by chance


def test_equal_seeds_give_equal_rounds_and_a_dry_run_writes_nothing(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    before = tree(studio.ledger.folder)
    proposed = [next_round(studio.campaign, RoundOptions(15, dry_run=True)) for _ in range(2)]
    assert tree(studio.ledger.folder) == before
    opened = next_round(studio.campaign, RoundOptions(15))
    assert [one.picks for one in proposed] == [opened.picks] * 2
    assert proposed[0].round is None
    assert (proposed[0].lam, proposed[0].expected_counts) == (opened.lam, opened.expected_counts)


def test_a_dry_run_works_where_nothing_may_be_written_and_a_round_does_not(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    with Ledger.open(studio.ledger.folder, read_only=True) as reader:
        assert len(next_round(reader, RoundOptions(5, dry_run=True)).picks) == 5
        with pytest.raises(BadInput, match="opened read-only"):
            next_round(reader, RoundOptions(5))


def test_only_images_of_which_nobody_has_said_anything_are_candidates(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 12, "b": 4})
    shutil.copy(studio.photos / "a-007.png", studio.photos / "z-copy.png")
    (studio.photos / "broken.png").write_bytes(b"no image")
    studio.campaign.index()
    copy = studio.ledger.read("SELECT id FROM image WHERE path = 'z-copy.png'")[0]["id"]
    everything = set(candidate_images(studio.ledger).tolist())
    assert everything == set(range(1, 17))  # neither the broken one nor the copy
    studio.say([1])
    studio.say([2], kind="other")
    studio.say([3], kind="skip")
    studio.say([4], "ann", cls=1)
    studio.say([4], "bob", cls=2)  # a conflict
    settle(studio.ledger, key=uuid.uuid4().hex, image=5, annotator="judge", class_id=None)
    studio.say([copy], cls=1)  # and so of image 8, which has the same bytes
    left = set(candidate_images(studio.ledger).tolist())
    assert everything - left == {1, 2, 3, 4, 5, 8}


def test_what_was_skipped_comes_back_only_where_it_is_asked_for(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 5, "b": 5})
    first = [pick.image for pick in next_round(studio.campaign, RoundOptions(4)).picks]
    studio.say(first[:2])
    studio.say(first[2:], kind="skip")
    assert pending_answers(studio.ledger).images == 0  # one person alone has finished the round
    studio.say(first[3:], "bob", kind="other")  # and another one has helped with one that was skipped
    assert not set(candidate_images(studio.ledger).tolist()) & set(first)
    assert set(candidate_images(studio.ledger, skipped=True).tolist()) & set(first) == {first[2]}
    with pytest.raises(PoolExhausted, match=r"1 image was skipped: skipped=True \(--skipped\) takes these, too"):
        next_round(studio.campaign, RoundOptions(7))
    second = studio.campaign.next(7, skipped=True)
    assert first[2] in {pick.image for pick in second.picks}
    assert pending_answers(studio.ledger).answers == 7
    assert lease(studio.ledger, 2, "ann", 7)[-1].rank == 7  # who has skipped it is asked again, in the new round


def test_images_of_the_open_round_return_to_the_pool_only_where_that_is_allowed(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10})
    first = next_round(studio.campaign, RoundOptions(6))
    studio.say_round(2)
    assert pending_answers(studio.ledger).answers == 4
    before = tree(studio.ledger.folder)
    with pytest.raises(BadInput, match="round 1 is not finished: 4 of its 6 images wait for 4 answers"):
        next_round(studio.campaign, RoundOptions(6))
    assert tree(studio.ledger.folder) == before
    made = next_round(studio.campaign, RoundOptions(18, allow_unfinished=True))
    unanswered = {pick.image for pick in first.picks[2:]}
    assert unanswered <= {pick.image for pick in made.picks}
    assert (made.pending.round_id, made.pending.images, made.pending.answers) == (1, 4, 4)
    assert "4 answers pending" in " ".join(made.notes)
    assert [one.closed_at is None for one in list_rounds(studio.ledger)] == [False, True]


def test_a_finished_round_is_followed_by_another_without_its_images(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10})
    first = next_round(studio.campaign, RoundOptions(6))
    studio.say_round()
    second = next_round(studio.campaign, RoundOptions(6))
    assert not {pick.image for pick in first.picks} & {pick.image for pick in second.picks}
    assert second.pending is None


def test_overlap_counts_the_answers_that_are_pending(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 10, "b": 10})
    next_round(studio.campaign, RoundOptions(5, overlap=3))
    studio.say_round(2, "ann")
    studio.say_round(1, "bob")
    assert pending_answers(studio.ledger).answers == 15 - 3
    assert pending_answers(studio.ledger).images == 5


def test_more_than_there_is_is_refused_with_the_numbers(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 8, "b": 3})
    shutil.copy(studio.photos / "a-007.png", studio.photos / "a-copy.png")
    (studio.photos / "a-bad.png").write_bytes(b"")
    studio.campaign.index()
    studio.say([1, 2])
    with pytest.raises(PoolExhausted) as caught:
        next_round(studio.campaign, RoundOptions(10))
    assert str(caught.value) == (
        "asked for 10 images, but only 9 are left to choose from: of 13 images 2 are answered, 1 duplicates and "
        "1 in quarantine; lower the budget or add images"
    )
    assert len(next_round(studio.campaign, RoundOptions(9)).picks) == 9


def test_the_last_images_are_taken_where_fewer_are_left_than_a_round_usually_has(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 8, "b": 8}, budget=10)
    (studio.photos / "a-003.png").unlink()
    cold = next_round(studio.campaign)  # of a large enough pool
    assert (len(cold.picks), cold.round.budget) == (10, 10)
    studio.say_round()
    last = next_round(studio.campaign)
    assert (len(last.picks), last.budget, last.round.budget) == (5, 5, 5)
    assert "5 images are left to choose from, fewer than the usual 10: the round has all of them" in last.notes
    studio.say_round()
    with pytest.raises(PoolExhausted, match="asked for 10 images, but only 0 are left"):
        next_round(studio.campaign)


def test_a_small_pool_starts_with_all_of_it(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 4, "b": 3})
    made = next_round(studio.campaign)
    assert (made.cold_start, len(made.picks), made.round.budget) == (True, 7, 7)


def test_calibration_is_asked_for_round_by_round(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    studio.campaign.next(6, calibration="none")
    assert load(studio.ledger).calibration.kind == "none"
    assert studio.campaign.settings.calibration == "temperature"
    with pytest.raises(BadInput, match="a campaign takes one of none, temperature"):
        next_round(studio.campaign, RoundOptions(6, calibration="prior", allow_unfinished=True))


def test_images_that_turn_out_unreadable_are_left_out_and_told(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 8, "b": 8})
    (studio.photos / "a-003.png").unlink()
    made = next_round(studio.campaign, RoundOptions(15))
    assert any(note.startswith("could not be read and is left out: a-003.png") for note in made.notes)
    with pytest.raises(PoolExhausted, match="only 15 are left"):
        next_round(studio.campaign, RoundOptions(16, allow_unfinished=True))


def test_with_one_class_labelled_it_starts_cold_again_away_from_what_is_labelled(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 40, "b": 40})
    studio.say(list(range(1, 21)))
    made = next_round(studio.campaign, RoundOptions(10))
    assert made.cold_start
    assert made.labels == 20
    assert made.notes[0].startswith("only one class has labels")
    features = embed(studio.ledger, backbone="simple").features
    reference = choose_cold(features[20:], features[:20], 10, strategy="entropy", classes=2, seed=1)
    assert [pick.image for pick in made.picks] == (reference.indices + 21).tolist()


def test_a_class_without_labels_and_one_without_images_do_no_harm(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 20, "b": 20, "c": 5}, also=["never seen", "ünïcode 🦉"])
    studio.say([1, 2, 21, 22])
    made = next_round(studio.campaign, RoundOptions(10))
    assert not made.cold_start
    assert 0 < made.expected_counts[2] == pytest.approx(made.expected_counts[4])  # unseen, and equally likely
    assert sum(made.expected_counts) == pytest.approx(10, rel=1e-5)
    assert sum(made.expected_counts[2:]) < sum(made.expected_counts[:2])
    assert made.target[4] > 0
    assert "3 of 5 classes have no label yet" in made.notes


def test_retired_classes_take_no_part(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    studio.campaign.retire_class("b")
    made = next_round(studio.campaign, RoundOptions(10))
    assert made.class_ids == (1, 3, 4, 5)
    assert 2 not in {pick.predicted for pick in made.picks}
    assert find_model(studio.ledger, made.model_version).class_ids == (1, 3, 4, 5)


def test_without_classes_or_images_or_with_one_class(make_studio: MakeStudio) -> None:
    studio = make_studio({"a": 12})
    assert next_round(studio.campaign, RoundOptions(4)).cold_start
    studio.say_round()
    assert next_round(studio.campaign, RoundOptions(4)).cold_start
    studio.campaign.retire_class("a")
    with pytest.raises(BadInput, match="no classes in use"):
        next_round(studio.campaign, RoundOptions(2, allow_unfinished=True))


def test_an_empty_campaign_has_nothing_to_choose_from(make_studio: MakeStudio) -> None:
    with pytest.raises(PoolExhausted, match="asked for 5 images, but only 0 are left"):
        next_round(make_studio({}, also=["a", "b"]).campaign, RoundOptions(5))


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"budget": 0}, BadInput, "budget is 0"),
        ({"budget": True}, BadInput, "budget is True"),
        ({"budget": 2.5}, BadInput, "budget is 2.5"),
        ({"overlap": 0}, BadInput, "overlap is 0"),
        ({"strategy": "entrpy"}, UnknownName, "did you mean 'entropy'"),
        ({"strategy": "vaal"}, BadInput, "looks at pixels"),
        (
            {"strategy": "galaxy"},
            BadInput,
            "'galaxy' reads the label of each pick .* labelled only when it is complete",
        ),
        ({"strategy": "direct"}, BadInput, "'direct' reads the label of each pick .* use 'direct' in `tailwise bench`"),
        ({"balance": "much"}, BadInput, "balance is 'much'"),
        ({"balance": -1}, BadInput, "balance is -1; it must be a number ≥ 0, 'auto', 'paper', or a wish"),
    ],
)
def test_what_means_nothing_is_refused_before_any_work(
    make_studio: MakeStudio, wrong: dict[str, Any], error: type[Exception], told: str
) -> None:
    studio = make_studio({"a": 4, "b": 4})
    before = tree(studio.ledger.folder)
    with pytest.raises(error, match=told):
        next_round(studio.campaign, RoundOptions(**{"budget": 2} | wrong))
    assert tree(studio.ledger.folder) == before


ON_FEATURES = [
    "random", "margin", "least-confidence", "kcenter", "bald", "typiclust", "pcb", "base", "maxherding", "uherding",
    "badge", "falcun", "dropquery", "tcm", "refine", "boundary",
]  # fmt: skip


@pytest.mark.parametrize("strategy", ON_FEATURES)
@pytest.mark.parametrize("balance", ["none", 0.5, "auto"])
def test_every_strategy_on_features_opens_a_round(make_studio: MakeStudio, strategy: str, balance: str | float) -> None:
    studio = started(make_studio, spread=0.5)
    made = next_round(studio.campaign, RoundOptions(6, strategy=strategy, balance=balance))
    assert (made.strategy, len(made.picks)) == (strategy, 6)
    assert made.round.balance == {"none": "0", 0.5: "0.5"}.get(balance, balance)


def test_settings_are_taken_where_nothing_is_said(make_studio: MakeStudio) -> None:
    studio = started(make_studio, budget=7, strategy="margin", balance="none", overlap=2, learner="mlp")
    made = next_round(studio.campaign)
    assert (len(made.picks), made.strategy, made.balance, made.picks[0].wanted) == (7, "margin", "0", 2)
    assert list_models(studio.ledger)[0].learner == "mlp"
    kept = {"learner": "resnet18"}  # by another version, perhaps
    write_meta(studio.ledger, "settings", json.dumps(kept))
    with pytest.raises(BadInput, match="one of linear, mlp, not 'resnet18'"):
        next_round(studio.campaign, RoundOptions(allow_unfinished=True))


def test_an_answer_that_comes_while_it_is_being_chosen_takes_its_image_out(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    probe = next_round(studio.campaign, RoundOptions(5, dry_run=True)).picks[0].image

    def answered_meanwhile(_done: float, what: str) -> None:
        if what == "opening the round":
            record(studio.ledger, [Answer("meanwhile-1", probe, "bob", "skip")])

    made = next_round(studio.campaign, RoundOptions(5), report=answered_meanwhile)
    assert probe not in {pick.image for pick in made.picks}
    assert len(made.picks) == 4
    assert "1 of the images chosen was answered or lost meanwhile, and left out" in made.notes


def test_progress_never_runs_backwards_and_ends_at_one(make_studio: MakeStudio) -> None:
    told: list[float] = []
    next_round(
        started(make_studio, calibration="temperature").campaign,
        RoundOptions(5),
        report=lambda done, _what: told.append(done),
    )
    assert told[-1] == 1.0
    assert all(0 <= done <= 1 for done in told)


CHILD = """
import sys
from tailwise.campaign.service import Campaign
with Campaign.open(sys.argv[1]) as campaign:
    campaign.next(10, allow_unfinished=True, report=lambda done, what: print(what, flush=True))
"""
MOMENTS = [
    ("features of", 0), ("fitting", 0), ("choosing", 0), ("opening", 0), ("opening", 3), ("opening", 8),
    ("opening", 15), ("opening", 30), ("opening", 60), ("is open", 0),
]  # fmt: skip


@pytest.mark.slow
def test_kill_9_leaves_no_round_or_a_whole_one(make_studio: MakeStudio) -> None:
    studio = started(make_studio)
    folder = studio.ledger.folder
    studio.campaign.close()
    rounds = [0]
    for line, milliseconds in MOMENTS:
        kill_after(folder, line, milliseconds / 1000)
        with Ledger.open(folder) as ledger:
            for one in list_rounds(ledger):
                assert len(round_picks(ledger, one.id)) == 10
                assert fault_of(ledger, find_model(ledger, one.model_version)) is None
            assert len(list_models(ledger)) == len(list_rounds(ledger))
            assert ledger.read("PRAGMA integrity_check")[0][0] == "ok"
            rounds.append(len(list_rounds(ledger)))
    assert rounds[3] == 0  # killed before anything of a round was there
    assert rounds[-1] > rounds[-2]  # and after all of it was


def kill_after(folder: Path, line: str, seconds: float) -> None:
    """Kill a process that opens a round, some time after it has said a line."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert any(line in said for said in child.stdout)
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
