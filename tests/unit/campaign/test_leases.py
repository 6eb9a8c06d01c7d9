from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tailwise.campaign.answers import Answer, record, settle, undo
from tailwise.campaign.classes import add_classes
from tailwise.campaign.images import quarantine
from tailwise.campaign.leases import MOST_SECONDS, SECOND, lease, release, renew
from tailwise.campaign.ledger import Ledger
from tailwise.campaign.rounds import Pick, open_round, progress
from tailwise.errors import BadInput

MINUTE = 60 * SECOND


def open_with(ledger: Ledger, images: range | list[int], wanted: int = 1) -> int:
    return open_round(ledger, [Pick(image, wanted=wanted) for image in images], budget=len(images), strategy="x").id


def ids(ledger: Ledger, annotator: str, how_many: int, at: int = 0, number: int = 1, **more: object) -> list[int]:
    return [one.image for one in lease(ledger, number, annotator, how_many, at=at, **more)]  # type: ignore[arg-type]


def answer(ledger: Ledger, image: int, annotator: str, key: str | None = None) -> None:
    record(ledger, [Answer(key or f"key-{annotator}-{image:04d}", image, annotator, "label", 1)])


def skip(ledger: Ledger, image: int, annotator: str, key: str | None = None, number: int | None = None) -> None:
    record(ledger, [Answer(key or f"skip-{annotator}-{image:04d}", image, annotator, "skip", round_id=number)])


def test_images_come_by_rank_and_each_goes_to_one_person(ledger: Ledger) -> None:
    open_with(ledger, [7, 3, 9, 1, 5])
    assert ids(ledger, "ann", 2) == [7, 3]
    assert ids(ledger, "bob", 2) == [9, 1]
    assert ids(ledger, "eve", 9) == [5]
    assert ids(ledger, "zoe", 9) == []


def test_a_lease_says_all_that_a_page_needs(ledger: Ledger) -> None:
    open_round(ledger, [Pick(4, predicted=2, confidence=0.75)], budget=1, strategy="x")
    (one,) = lease(ledger, 1, "ann", 1, 60, at=5)
    assert (one.image, one.key, one.width, one.height) == (4, f"{4:016x}", 8, 8)
    assert (one.rank, one.predicted, one.confidence, one.until) == (1, 2, 0.75, 60 * SECOND + 5)


def test_who_asks_again_gets_what_it_holds_first_and_for_longer(ledger: Ledger) -> None:
    open_with(ledger, range(1, 7))
    assert ids(ledger, "ann", 2) == [1, 2]
    assert ids(ledger, "bob", 1) == [3]
    assert ids(ledger, "ann", 3, at=9 * MINUTE) == [1, 2, 4]
    assert ids(ledger, "bob", 6, at=11 * MINUTE) == [3, 5, 6]
    assert ids(ledger, "bob", 6, at=20 * MINUTE) == [3, 5, 6, 1, 2, 4]


def test_an_ended_lease_is_free_for_others(ledger: Ledger) -> None:
    open_with(ledger, [1])
    assert ids(ledger, "ann", 1, at=0) == [1]
    assert ids(ledger, "bob", 1, at=10 * MINUTE - 1) == []
    assert ids(ledger, "bob", 1, at=10 * MINUTE) == [1]
    assert ids(ledger, "ann", 1, at=10 * MINUTE) == []


def test_nobody_is_asked_about_an_image_twice(ledger: Ledger) -> None:
    open_with(ledger, [1, 2], wanted=3)
    assert ids(ledger, "ann", 2) == [1, 2]
    answer(ledger, 1, "ann")
    assert ids(ledger, "ann", 2) == [2]
    answer(ledger, 2, "ann")
    assert ids(ledger, "ann", 2) == []


def test_an_image_goes_to_as_many_people_as_it_wants(ledger: Ledger) -> None:
    open_with(ledger, [1], wanted=2)
    assert [ids(ledger, who, 1) for who in ("ann", "bob", "eve")] == [[1], [1], []]
    answer(ledger, 1, "ann")
    assert ids(ledger, "eve", 1) == []
    release(ledger, "bob")
    assert ids(ledger, "eve", 1) == [1]
    answer(ledger, 1, "eve")
    assert ids(ledger, "bob", 1) == []
    assert progress(ledger, 1).complete


def test_a_place_that_was_filled_meanwhile_is_lost(ledger: Ledger) -> None:
    open_with(ledger, [1, 2])
    assert ids(ledger, "ann", 1) == [1]
    answer(ledger, 1, "bob")  # answered without asking
    assert ids(ledger, "ann", 2) == [2]


def test_settled_and_quarantined_images_are_not_given_out(ledger: Ledger) -> None:
    open_with(ledger, [1, 2, 3])
    settle(ledger, key="settle-0001", image=1, annotator="eve", class_id=1)
    quarantine(ledger, [(2, "it cannot be decoded")])
    assert ids(ledger, "ann", 9) == [3]


def test_an_answer_ends_the_lease_and_an_undo_brings_it_back(ledger: Ledger) -> None:
    open_with(ledger, [1, 2])
    assert [one.image for one in lease(ledger, 1, "ann", 1)] == [1]
    answer(ledger, 1, "ann")
    assert ledger.read("SELECT * FROM lease") == []
    undo(ledger, "undo-0001", "ann")
    assert [one.image for one in lease(ledger, 1, "bob", 2)] == [2]  # ann is about to answer 1
    assert [one.image for one in lease(ledger, 1, "ann", 2)] == [1]
    undo(ledger, "redo-0001", "ann", undoes_key="undo-0001")
    assert [row["annotator"] for row in ledger.read("SELECT * FROM lease")] == ["bob"]


def test_who_took_back_a_second_thought_takes_one_place_not_two(ledger: Ledger) -> None:
    open_with(ledger, [1], wanted=2)
    answer(ledger, 1, "ann", "first-thought")
    answer(ledger, 1, "ann", "second-thought")
    undo(ledger, "undo-0001", "ann")  # the first stands again, and she may be about to answer
    assert [one.image for one in lease(ledger, 1, "bob", 1)] == [1]
    assert lease(ledger, 1, "eve", 1) == []


def test_a_skipped_image_goes_to_somebody_else_and_not_to_the_same_person_again(ledger: Ledger) -> None:
    open_with(ledger, [1, 2, 3])
    assert ids(ledger, "ann", 3) == [1, 2, 3]
    for image in (1, 2, 3):
        skip(ledger, image, "ann")
    assert ids(ledger, "ann", 3) == []
    assert ids(ledger, "bob", 2) == [1, 2]
    assert ids(ledger, "eve", 3) == [3]
    answer(ledger, 1, "bob")
    skip(ledger, 2, "bob")
    assert ids(ledger, "eve", 3) == [3, 2]


def test_a_skip_does_not_use_up_a_second_opinion(ledger: Ledger) -> None:
    open_with(ledger, [1], wanted=2)
    skip(ledger, 1, "ann")
    assert [ids(ledger, who, 1) for who in ("bob", "eve", "zoe")] == [[1], [1], []]
    answer(ledger, 1, "bob")
    assert ids(ledger, "zoe", 1) == []
    answer(ledger, 1, "eve")
    assert progress(ledger, 1).answers == 3
    assert ids(ledger, "zoe", 1) == []


def test_one_person_alone_finishes_a_round_by_skipping_and_others_may_still_answer(ledger: Ledger) -> None:
    open_with(ledger, [1, 2])
    answer(ledger, 1, "ann")
    skip(ledger, 2, "ann")
    assert progress(ledger, 1).complete
    assert (ids(ledger, "ann", 2), ids(ledger, "bob", 2)) == ([], [2])


def test_who_takes_a_skip_back_has_the_image_again(ledger: Ledger) -> None:
    open_with(ledger, [1])
    skip(ledger, 1, "ann", "the-skip-01")
    undo(ledger, "undo-0001", "ann")
    assert [one.image for one in lease(ledger, 1, "ann", 1)] == [1]
    assert not progress(ledger, 1).complete


def test_a_skip_of_an_earlier_round_asks_anew_in_the_next_one(ledger: Ledger) -> None:
    first = open_with(ledger, [1, 2])
    skip(ledger, 1, "ann", number=first)
    skip(ledger, 2, "ann", number=first)
    second = open_with(ledger, [1, 2])
    assert progress(ledger, first).complete
    assert progress(ledger, second, "ann").remaining == 2
    assert ids(ledger, "ann", 2, number=second) == [1, 2]
    skip(ledger, 1, "ann", "again-0001", number=second)
    assert ids(ledger, "ann", 2, number=second) == [2]
    assert progress(ledger, second, "ann").mine == 1


def test_renewing_keeps_what_is_still_held(ledger: Ledger) -> None:
    open_with(ledger, [1, 2, 3])
    ids(ledger, "ann", 2)
    assert renew(ledger, "ann", [1, 2, 3], at=9 * MINUTE) == [1, 2]
    assert ids(ledger, "bob", 9, at=18 * MINUTE) == [3]
    assert renew(ledger, "ann", [1, 2], at=19 * MINUTE) == []
    assert renew(ledger, "bob", [1], at=19 * MINUTE) == []


def test_releasing_frees_at_once(ledger: Ledger) -> None:
    open_with(ledger, [1, 2, 3])
    ids(ledger, "ann", 3)
    assert release(ledger, "ann", [2, 9]) == 1
    assert release(ledger, "bob", [1]) == 0
    assert ids(ledger, "bob", 9) == [2]
    assert release(ledger, "ann") == 2
    assert ids(ledger, "eve", 9) == [1, 3]


def test_the_grid_gets_one_class_the_most_confident_first(ledger: Ledger) -> None:
    picks = [Pick(1, 1, 0.4), Pick(2, 2, 0.9), Pick(3, 1, 0.8), Pick(4, None, None), Pick(5, 1, 0.6)]
    open_round(ledger, picks, budget=5, strategy="x")
    assert ids(ledger, "ann", 2, predicted=1) == [3, 5]
    assert ids(ledger, "bob", 9, predicted=1) == [1]
    assert ids(ledger, "ann", 9, predicted=3) == []
    assert ids(ledger, "eve", 9) == [2, 4]


class Clocks:
    """The computer's two clocks, which a test sets: the one that people can set, and the one that they cannot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = 1_800_000_000 * 10**9, 5_000 * 10**9  # nanoseconds
        monkeypatch.setattr("time.time_ns", lambda: self.wall)
        monkeypatch.setattr("time.monotonic_ns", lambda: self.steady)

    def wait(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)
        self.steady += int(seconds * 1e9)

    def set(self, seconds: float) -> None:
        self.wall += int(seconds * 1e9)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def held_by(ledger: Ledger, annotator: str, how_many: int = 9) -> list[int]:
    """By the computer's own clocks."""
    return [one.image for one in lease(ledger, 1, annotator, how_many)]


JUMPS = (-86_400, -1_800, -601, -2, 2, 601, 7_200, 86_400 * 365)


@pytest.mark.parametrize("jump", JUMPS)
def test_a_lease_lasts_ten_minutes_whatever_the_clock_is_set_to(ledger: Ledger, clocks: Clocks, jump: float) -> None:
    open_with(ledger, [1, 2])
    assert held_by(ledger, "ann", 1) == [1]
    clocks.wait(300)
    clocks.set(jump)
    assert held_by(ledger, "bob") == [2]
    clocks.wait(299)
    assert held_by(ledger, "eve") == []
    clocks.wait(2)
    assert held_by(ledger, "eve") == [1]


@pytest.mark.parametrize("jump", JUMPS)
def test_an_undo_after_the_clock_was_set_keeps_the_place_for_ten_minutes(
    ledger: Ledger, clocks: Clocks, jump: float
) -> None:
    open_with(ledger, [1, 2])
    assert held_by(ledger, "bob", 1) == [1]
    answer(ledger, 2, "ann")
    clocks.set(jump)
    undo(ledger, "undo-0001", "ann")
    clocks.wait(599)
    assert held_by(ledger, "eve") == []
    clocks.wait(2)
    assert held_by(ledger, "eve") == [1, 2]


def test_a_jump_that_is_taken_back_with_its_transaction_is_seen_again(ledger: Ledger, clocks: Clocks) -> None:
    open_with(ledger, [1])
    held_by(ledger, "ann")
    clocks.set(7_200)

    def fail() -> None:
        with ledger.writing():
            held_by(ledger, "bob")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert held_by(ledger, "bob") == []


def test_two_ledgers_of_one_process_move_leases_once(ledger: Ledger, clocks: Clocks) -> None:
    open_with(ledger, [1])
    with Ledger.open(ledger.folder) as other:
        assert held_by(ledger, "ann") == [1]
        assert held_by(other, "bob") == []
        clocks.set(-1_800)
        assert held_by(ledger, "bob") == held_by(other, "bob") == []
        clocks.wait(601)
        assert held_by(other, "bob") == [1]


def test_the_time_that_a_lease_ends_is_told_by_the_clock_as_it_is_now(ledger: Ledger, clocks: Clocks) -> None:
    open_with(ledger, [1])
    held_by(ledger, "ann")
    clocks.set(-7_200)
    (one,) = lease(ledger, 1, "ann", 1)
    assert one.until == clocks.wall // 1000 + 600 * SECOND


def test_another_process_goes_on_with_the_leases_by_the_clock(ledger: Ledger, clocks: Clocks) -> None:
    """Its monotonic clock begins anywhere, as after a restart of the computer."""
    open_with(ledger, [1, 2])
    assert held_by(ledger, "ann", 1) == [1]
    clocks.set(7_200)  # noticed by the process that runs
    assert held_by(ledger, "bob", 1) == [2]
    clocks.wait(60)
    ledger.close()
    script = (
        "import sys, time\n"
        "time.time_ns, time.monotonic_ns = (lambda: int(sys.argv[2])), (lambda: 7)\n"
        "from tailwise.campaign.leases import lease\n"
        "from tailwise.campaign.ledger import Ledger\n"
        "with Ledger.open(sys.argv[1]) as ledger:\n"
        "    print([one.image for one in lease(ledger, 1, 'eve', 9)])\n"
    )
    for later, free in ((0, "[]"), (530, "[]"), (545, "[1, 2]")):
        moment = clocks.wall + later * 10**9
        command = [sys.executable, "-c", script, str(ledger.folder), str(moment)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.strip() == free, later


def test_a_clock_that_jumps_back_between_two_runs_neither_freezes_nor_doubles(ledger: Ledger) -> None:
    open_with(ledger, [1, 2])
    day = 24 * 60 * MINUTE
    assert ids(ledger, "ann", 1, at=10 * day) == [1]
    assert ids(ledger, "bob", 2, at=10 * day - MINUTE) == [2]  # a little: the lease lasts a little longer
    assert ids(ledger, "eve", 2, at=9 * day) == [1, 2]  # far: leases of the future are void, not eternal
    assert ids(ledger, "zoe", 2, at=9 * day) == []
    latest = max(row["until"] for row in ledger.read("SELECT until FROM lease"))
    assert latest <= 9 * day + MOST_SECONDS * SECOND


@pytest.mark.parametrize(
    ("how_many", "seconds", "says"),
    [
        (0, 60, "asked for 0 images"),
        (-1, 60, "asked for -1"),
        (1001, 60, "asked for 1001"),
        (1, 0, "for 0 seconds"),
        (1, 3601, "a lease lasts up to 3600"),
        (1, float("nan"), "for nan seconds"),
    ],
)
def test_what_no_lease_can_be_is_refused(ledger: Ledger, how_many: int, seconds: float, says: str) -> None:
    open_with(ledger, [1])
    with pytest.raises(BadInput, match=says):
        lease(ledger, 1, "ann", how_many, seconds)
    with pytest.raises(BadInput, match="is empty"):
        lease(ledger, 1, " ", 1)
    assert ledger.read("SELECT * FROM lease") == []


def test_an_unknown_round_has_no_images(ledger: Ledger) -> None:
    assert ids(ledger, "ann", 5, number=9) == []


@pytest.mark.slow
def test_eight_people_at_once_are_never_given_more_places_than_an_image_wants(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.executemany(
            "INSERT INTO image (key, folder_id, path, width, height, added_at) VALUES (?, 1, ?, 1, 1, 0)",
            [(f"more {n}", f"more {n}") for n in range(13, 61)],
        )
    images = {image: 1 + image % 2 for image in range(1, 61)}
    open_round(ledger, [Pick(image, wanted=wanted) for image, wanted in images.items()], budget=60, strategy="x")
    served: list[tuple[int, str]] = []
    faults: list[str] = []

    def work(name: str) -> None:
        dice = random.Random(name)
        while not progress(ledger, 1).complete:
            for one in lease(ledger, 1, name, dice.randint(1, 3)):
                served.append((one.image, name))
                time.sleep(dice.random() / 500)
                answer(ledger, one.image, name, f"{name}-{one.image:06d}")

    def guarded(name: str) -> None:
        try:
            work(name)
        except Exception as error:  # a thread's fault must not be silent
            faults.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(f"person-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert Counter(image for image, _ in set(served)) == images
    assert len(served) == len(set(served))
    assert ledger.read("SELECT * FROM lease") == []


class Leasing(RuleBasedStateMachine):
    """Any order of asking, answering, undoing, giving back and waiting."""

    PEOPLE = ("ann", "bob", "eve")

    @initialize(wanted=st.lists(st.integers(1, 2), min_size=4, max_size=4))
    def begin(self, wanted: list[int]) -> None:
        self.folder = TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))  # where tmp_path is
        self.ledger = Ledger.create(self.folder.name)
        self.block = self.ledger.writing()  # one transaction: the disk is not what is tested here
        connection = self.block.__enter__()
        add_classes(self.ledger, ["cat"])
        connection.execute("INSERT INTO folder VALUES (1, '/photos')")
        for n in range(1, 5):
            connection.execute(
                "INSERT INTO image (key, folder_id, path, width, height, added_at) VALUES (?, 1, ?, 1, 1, 0)",
                (str(n),) * 2,
            )
        self.wanted = dict(zip(range(1, 5), wanted, strict=True))
        open_round(self.ledger, [Pick(i, wanted=w) for i, w in self.wanted.items()], budget=4, strategy="x")
        self.clock = 1_000 * MINUTE
        self.held: dict[tuple[int, str], int] = {}  # until
        self.answered: dict[tuple[int, str], str] = {}  # key
        self.skipped: set[tuple[int, str]] = set()  # of the answered
        self.keys = 0

    def key(self) -> str:
        self.keys += 1
        return f"key-{self.keys:06d}"

    def takers(self, image: int) -> set[str]:
        holders = {who for (i, who), until in self.held.items() if i == image and until > self.clock}
        return holders | {who for i, who in self.answered.keys() - self.skipped if i == image}

    @rule(who=st.sampled_from(PEOPLE), how_many=st.integers(1, 4))
    def ask(self, who: str, how_many: int) -> None:
        given = ids(self.ledger, who, how_many, at=self.clock)
        free = {
            image for image, wanted in self.wanted.items()
            if (image, who) not in self.answered and len(self.takers(image) - {who}) < wanted
        }  # fmt: skip
        mine = {image for image in free if self.held.get((image, who), 0) > self.clock}
        expected = [*sorted(mine), *sorted(free - mine)][:how_many]
        assert given == expected
        for image in given:
            self.held[image, who] = self.clock + 10 * MINUTE

    @rule(who=st.sampled_from(PEOPLE), image=st.integers(1, 4))
    def say(self, who: str, image: int) -> None:
        key = self.key()
        answer(self.ledger, image, who, key)
        self.answered[image, who] = key
        self.skipped.discard((image, who))
        self.held.pop((image, who), None)

    @rule(who=st.sampled_from(PEOPLE), image=st.integers(1, 4))
    def pass_over(self, who: str, image: int) -> None:
        key = self.key()
        skip(self.ledger, image, who, key)
        self.answered[image, who] = key
        self.skipped.add((image, who))
        self.held.pop((image, who), None)

    @rule(who=st.sampled_from(PEOPLE), image=st.integers(1, 4))
    def hand_back(self, who: str, image: int) -> None:
        release(self.ledger, who, [image])
        self.held.pop((image, who), None)

    @rule(minutes=st.integers(1, 15))
    def wait(self, minutes: int) -> None:
        self.clock += minutes * MINUTE

    @invariant()
    def what_is_left_is_counted_right(self) -> None:
        if not hasattr(self, "answered"):
            return
        given = defaultdict(int)
        for image, _ in self.answered:
            given[image] += 1
        done = sum(given[image] >= wanted for image, wanted in self.wanted.items())
        found = progress(self.ledger, 1)
        assert (found.done, found.remaining, found.answers) == (done, 4 - done, len(self.answered))

    def teardown(self) -> None:
        if hasattr(self, "block"):
            self.block.__exit__(None, None, None)
            self.ledger.close()
            self.folder.cleanup()


TestEveryOrderOfLeasing = Leasing.TestCase
TestEveryOrderOfLeasing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
