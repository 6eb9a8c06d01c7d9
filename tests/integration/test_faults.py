"""The short version of `make bench-faults`: a dozen kills, full disks and a jumping clock, with nothing lost.

The second half shows that the checks themselves catch what they are there for.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.faults.choosing import BUDGET, Choosing, Job, candidates_left
from benchmarks.faults.clock_jump import clock_jump
from benchmarks.faults.disk_full import disk_full
from benchmarks.faults.importing import Importing
from benchmarks.faults.labelling import Labelling
from benchmarks.faults.migrating import Migrating
from benchmarks.faults.relabelling import Relabelling
from benchmarks.faults.sound import compare, events, faults, harmful
from benchmarks.faults.stage import Stage, stage
from benchmarks.faults.strikes import Attack, Line, Struck, attack, sums
from tailwise.campaign.database import LEDGER_FILE
from tailwise.campaign.rounds import Pick, candidate_images, open_round
from tailwise.campaign.service import Campaign
from tailwise.web.settings import SHORTEST_TOKEN, campaign_token

pytestmark = pytest.mark.slow

KILLS = {"label": 5, "import": 2, "next": 2, "migrate": 2, "relabel": 3}
ATTACKS: dict[str, Callable[[Stage], Attack]] = {
    "label": lambda place: Labelling(place, np.random.default_rng(7), each=10),
    "import": Importing,
    "next": Choosing,
    "migrate": Migrating,
    "relabel": Relabelling,
}


@pytest.fixture(scope="module")
def place() -> Iterator[Stage]:
    with stage(images=120) as made:
        yield made


def problems(struck: Struck) -> tuple[int, int, tuple[str, ...], bool]:
    """Lost, doubled, other faults, and whether the work did not go on."""
    return struck.lost, struck.doubled, struck.faults, not struck.went_on


@pytest.mark.parametrize("verb", KILLS)
def test_kill_9_loses_and_doubles_nothing_and_the_work_goes_on(place: Stage, verb: str) -> None:
    lines = attack(ATTACKS[verb](place), KILLS[verb], np.random.default_rng(11))
    assert [problems(line.struck) for line in lines] == [(0, 0, (), False)] * KILLS[verb]
    assert sum(line.struck.hit for line in lines) == KILLS[verb]
    assert min(line.struck.acknowledged for line in lines) >= (0 if verb == "label" else 24)


def test_kill_9_of_the_server_ends_the_process_that_chooses_for_it_too(place: Stage) -> None:
    struck = Job(place).strike(0.7)
    assert problems(struck) == (0, 0, (), False)
    assert struck.hit


@pytest.mark.parametrize(("verbs", "may_mount"), [(["label", "import", "next"], True), (["label"], False)])
def test_a_full_disk_is_told_clearly_and_loses_nothing(place: Stage, verbs: list[str], may_mount: bool) -> None:
    found = dict(disk_full(place, verbs, may_mount=may_mount))
    assert {verb: problems(struck) for verb, struck in found.items()} == dict.fromkeys(found, (0, 0, (), False))
    assert len(found) == len(verbs)


def test_a_clock_that_jumps_shuts_nobody_out_and_loses_nothing(place: Stage) -> None:
    _, struck = clock_jump(place)
    assert problems(struck) == (0, 0, (), False)
    assert struck.acknowledged >= place.images


def test_a_pool_that_runs_out_is_told_and_ends_the_campaign_not_the_ledger(place: Stage) -> None:
    folder = place.copy("labelled")
    asked = candidates_left(folder) + 1
    last = place.nursery.run("next", folder=str(folder), budget=asked)
    assert last["kind"] == "PoolExhausted"
    assert f"asked for {asked} images, but only {asked - 1} are left" in last["error"]
    assert faults(folder) == []


def test_an_attack_takes_a_new_campaign_before_its_images_run_out(place: Stage) -> None:
    work = Choosing(place)
    first = work.folder
    with Campaign.open(first) as campaign:  # all but a few wait in a round: the next kill would find too few
        taken = candidate_images(campaign.ledger).tolist()[BUDGET:]
        open_round(campaign.ledger, [Pick(image) for image in taken], budget=len(taken), strategy="random")
    assert candidates_left(first) == BUDGET
    assert work.strike(0.05).went_on
    assert work.folder != first


# Opens the campaign where not a byte can be written, as whoever comes to free the disk does.
FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from tailwise.campaign.service import Campaign
with Campaign.open(sys.argv[1]) as campaign:
    print(campaign.status().labelled)
"""


def test_a_campaign_on_a_full_disk_can_be_opened(place: Stage) -> None:
    folder = place.copy("labelled")
    done = subprocess.run([sys.executable, "-c", FULL, str(folder)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("24\n", "")


# Kills itself before the n-th file is opened, renamed or removed.
DIES = """
import os, signal, sys
from pathlib import Path
from tailwise.web.settings import campaign_token
left = int(sys.argv[1])

def hook(event, arguments):
    global left
    left -= event in ("open", "os.rename", "os.remove")
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
campaign_token(Path(sys.argv[2]))
"""


def test_a_kill_while_the_token_is_made_leaves_none_or_a_whole_one(tmp_path: Path) -> None:
    killed = 0
    for number in range(1, 20):
        folder = tmp_path / str(number)
        folder.mkdir()
        ended = subprocess.run([sys.executable, "-c", DIES, str(number), str(folder)]).returncode
        assert len(campaign_token(folder)) >= SHORTEST_TOKEN
        if ended == 0:
            break
        killed += 1
    assert killed >= 3


# The checks must see what they are there for.


def harm(folder: Path, *statements: str) -> None:
    with closing(sqlite3.connect(folder / LEDGER_FILE)) as connection:
        for statement in ("DROP TRIGGER event_is_not_deleted", "DROP TRIGGER event_is_not_replaced", *statements):
            connection.execute(statement)
        connection.commit()


def test_a_lost_answer_is_seen(place: Stage) -> None:
    folder = place.copy("labelled")
    before = events(folder)
    harm(folder, "DELETE FROM event WHERE id = 3")
    compared = compare(events(folder), dict(before), [key for key, _ in before])
    assert (compared.lost, compared.doubled) == ((before[2][0],), ())


def test_an_answer_that_is_there_twice_or_was_never_sent_is_seen(place: Stage) -> None:
    folder = place.copy("labelled")
    before = events(folder)
    copied = "SELECT 'another-key', image_id, annotator, kind, class_id, at, source FROM event WHERE id = 3"
    harm(folder, f"INSERT INTO event (key, image_id, annotator, kind, class_id, at, source) {copied}")
    assert compare(events(folder), dict(before), []).doubled == ("another-key",)
    assert compare([*before, before[0]], dict(before), []).doubled == (before[0][0],)


def test_a_row_that_points_nowhere_and_what_a_kill_leaves_are_seen(place: Stage) -> None:
    folder = place.copy("labelled")
    harm(folder, "INSERT INTO lease VALUES (99999, 'ann', 1)")
    (folder / ".job-0011").mkdir()
    found = faults(folder)
    assert any("points nowhere" in fault for fault in found)
    assert any("left over: .job-0011" in fault for fault in found)
    assert harmful(folder) == [".job-0011"]


def test_an_import_that_was_cut_short_for_good_is_seen(place: Stage) -> None:
    work = Importing(place)
    folder = place.copy("labelled")
    short = place.place / "short.csv"
    short.write_text(
        "".join(place.table().read_text(encoding="utf-8").splitlines(keepends=True)[:-5]), encoding="utf-8"
    )
    with Campaign.open(folder) as campaign:
        campaign.import_labels(short)
    assert work.judged(folder, [], reported=len(place.claims())).lost == 5


def test_the_table_adds_up() -> None:
    struck = [Struck(10, 1, 0, True), Struck(5, 0, 2, False, ("torn",)), Struck(0, 0, 0, True, hit=False)]
    (one,) = sums(Line("label", 0.1, 1.0, each) for each in struck)
    assert (one.kills, one.acknowledged, one.lost, one.doubled, one.went_on, one.faults) == (2, 15, 1, 2, 2, ("torn",))
    assert [each.sound for each in struck] == [False, False, True]
