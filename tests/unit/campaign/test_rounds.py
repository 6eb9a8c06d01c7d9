from __future__ import annotations

import sqlite3

import pytest

from tailwise.campaign.answers import Answer, labels, record, settle, undo
from tailwise.campaign.images import quarantine
from tailwise.campaign.leases import lease
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import (
    ModelRow,
    Pick,
    close_round,
    current_round,
    find_model,
    find_round,
    list_models,
    list_rounds,
    open_round,
    progress,
    round_picks,
)
from tailwise.errors import BadInput, UnknownName

MODEL = ModelRow("v1", "linear", {"c": 1.0}, 12, (3, 1), {"accuracy": 0.5}, 77)


def answer(ledger: Ledger, image: int, annotator: str, kind: str = "label") -> None:
    class_id = 1 if kind == "label" else None
    record(ledger, [Answer(f"key-{annotator}-{image:04d}", image, annotator, kind, class_id)])


def test_a_round_keeps_what_was_chosen_and_why(ledger: Ledger) -> None:
    picks = [Pick(5, 2, 0.9, 2), Pick(1, None, None), Pick(3, 1, 0.25)]
    why = {"lam": 1.5, "status": "optimal", "expected_counts": [1.0, 2.0], "bound": None}
    made = open_round(
        ledger, picks, budget=3, strategy="entropy", balance="auto", seed=7, model=MODEL, why=why, at=99
    )  # fmt: skip
    assert (made.id, made.opened_at, made.closed_at) == (1, 99, None)
    assert (made.budget, made.strategy, made.balance, made.seed, made.model_version) == (3, "entropy", "auto", 7, "v1")
    assert made.why == why
    assert current_round(ledger) == find_round(ledger, 1) == made
    assert round_picks(ledger, 1) == picks
    assert find_model(ledger, "v1") == list_models(ledger)[0] == MODEL


def test_the_next_round_closes_the_one_before_and_ends_its_leases(ledger: Ledger) -> None:
    assert current_round(ledger) is None
    open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="x", at=10)
    lease(ledger, 1, "ann", 2)
    second = open_round(ledger, [Pick(2), Pick(3)], budget=2, strategy="y", at=20)
    assert (second.id, [one.closed_at for one in list_rounds(ledger)]) == (2, [20, None])
    assert [one.is_open for one in list_rounds(ledger)] == [False, True]
    assert current_round(ledger) == second
    assert ledger.read("SELECT * FROM lease") == []
    record(ledger, [Answer("late-answer", 1, "ann", "label", 2, round_id=1)])  # an outbox may come late
    assert labels(ledger)[0].tolist() == [1]


def test_closing_without_a_next_one(ledger: Ledger) -> None:
    assert close_round(ledger) is None
    open_round(ledger, [Pick(1)], budget=1, strategy="x", at=10)
    closed = close_round(ledger, at=5)
    assert closed is not None
    assert closed.closed_at == 10  # a clock that jumped back does not close a round before it opened
    assert current_round(ledger) is None
    assert open_round(ledger, [Pick(1)], budget=1, strategy="x").id == 2


def test_the_ledger_itself_holds_one_open_round(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1)], budget=1, strategy="x")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), ledger.writing() as connection:
        connection.execute(
            "INSERT INTO round (opened_at, budget, strategy, balance, seed, why) VALUES (1, 1, 'x', 'none', 0, '{}')"
        )


@pytest.mark.parametrize(
    ("picks", "says"),
    [
        ([], "without images"),
        ([Pick(1), Pick(1)], "holds an image twice"),
        ([Pick(1, wanted=0)], "want no answer"),
        ([Pick(99)], "not in this campaign"),
        ([Pick(1, predicted=9)], "not in this campaign"),
    ],
)
def test_a_round_that_cannot_be_leaves_the_former_one_open(ledger: Ledger, picks: list[Pick], says: str) -> None:
    open_round(ledger, [Pick(1)], budget=1, strategy="x")
    with pytest.raises(BadInput, match=says):
        open_round(ledger, picks, budget=2, strategy="y", model=MODEL)
    current = current_round(ledger)
    assert current is not None
    assert (current.id, len(list_rounds(ledger)), list_models(ledger)) == (1, 1, [])


def test_reasons_that_are_no_json_are_refused(ledger: Ledger) -> None:
    for why in ({"gap": float("inf")}, {"what": object()}):
        with pytest.raises(BadInput, match="cannot be kept as JSON"):
            open_round(ledger, [Pick(1)], budget=1, strategy="x", why=why)
    assert list_rounds(ledger) == []


def test_a_model_has_its_own_version(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1)], budget=1, strategy="x", model=MODEL)
    with pytest.raises(BadInput, match="'v1' is there already"):
        open_round(ledger, [Pick(2)], budget=1, strategy="x", model=MODEL)
    with pytest.raises(UnknownName, match="no model has the version 'v2'"):
        find_model(ledger, "v2")


def test_unknown_rounds_are_told(ledger: Ledger) -> None:
    for verb in (find_round, progress):
        with pytest.raises(UnknownName, match="no round has the number 4; the last one is 0"):
            verb(ledger, 4)


def test_progress_is_counted_from_what_people_said(ledger: Ledger) -> None:
    open_round(ledger, [Pick(1), Pick(2, wanted=2), Pick(3), Pick(4), Pick(5)], budget=5, strategy="x")

    def counted(annotator: str | None = None) -> tuple[int, int, int, int]:
        found = progress(ledger, 1, annotator)
        assert found.images == 5
        assert found.complete == (found.remaining == 0)
        return found.done, found.remaining, found.answers, found.mine

    assert counted() == (0, 5, 0, 0)
    answer(ledger, 1, "ann")
    answer(ledger, 2, "ann")
    answer(ledger, 9, "ann")  # of no round
    assert counted("ann") == (1, 4, 2, 2)
    answer(ledger, 2, "bob", "other")
    assert counted("bob") == (2, 3, 3, 1)
    answer(ledger, 3, "bob", "skip")  # no answer, but nobody else needs to be waited for
    assert counted() == (3, 2, 4, 0)
    settle(ledger, key="settle-0001", image=4, annotator="eve", class_id=1)
    assert counted() == (4, 1, 4, 0)
    quarantine(ledger, [(5, "it cannot be decoded")])  # nobody can answer it any more
    assert counted() == (5, 0, 4, 0)
    undo(ledger, "undo-0001", "ann", undoes_key="key-ann-0002")
    assert counted("ann") == (4, 1, 3, 1)


def test_answers_given_before_the_round_count(ledger: Ledger) -> None:
    answer(ledger, 1, "import")
    open_round(ledger, [Pick(1), Pick(2)], budget=2, strategy="x")
    assert progress(ledger, 1).remaining == 1
