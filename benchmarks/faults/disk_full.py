"""The disk fills up under each verb: the error says so, nothing that was saved is lost, and with room all goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.labeller import SaidNo

from .choosing import BUDGET
from .importing import doubled_claims, imported, missing_claims
from .labelling import Labelling
from .nursery import PATIENCE
from .people import Person, label_together
from .small_disk import SmallDisk, small_disk
from .sound import compare, events, faults
from .stage import Stage
from .strikes import Struck

EACH = 12  # answers of a person with room, and as many tried without
AFTER = 4  # and with room again
SERVER_FAULT = 500  # from this status on, the page keeps an answer and tries again
CLEAR = ("no space", "free space", "disk is full", "file too large")  # one of these says what is wrong


def disk_full(
    stage: Stage, verbs: Sequence[str] = ("label", "import", "next"), *, may_mount: bool = True
) -> Iterator[tuple[str, Struck]]:
    """Each verb on a small disk of its own; the name for the table and what came of it."""
    for verb in verbs:
        template, tried = TRIALS[verb]
        place = stage.place / f"small-{verb}-{'mounted' if may_mount else 'limited'}"
        with small_disk(stage.copy(template), place, may_mount=may_mount) as disk:
            yield f"{verb}, disk full ({disk.kind})", tried(stage, disk)


def _label(stage: Stage, disk: SmallDisk) -> Struck:
    """People go on labelling while there is no room; the server stays, and takes what waits when there is room."""
    work = Labelling(stage, np.random.default_rng(0), folder=disk.campaign)
    with stage.nursery.start("serve", folder=str(disk.campaign)) as server:
        up = server.hear()
        _all_label(work.people, up, EACH)
        disk.fill(server.pid)
        _all_label(work.people, up, EACH)
        full, troubles = work.compared(), [person.trouble for person in work.people]
        disk.free(server.pid)
        saved = len(work.acknowledged())
        for person in work.people:
            person.trouble = None
        _all_label(work.people, up, AFTER)
        went_on = len(work.acknowledged()) >= saved + AFTER * len(work.people)
        server.end()
    end = work.compared()
    found = [*filter(None, map(_fault_of_refusal, troubles)), *work.complaints(), *faults(disk.campaign)]
    return Struck(
        len(work.acknowledged()), len({*full.lost, *end.lost}), len({*full.doubled, *end.doubled}), went_on,
        tuple(found), hit=False, at=str(troubles[0]),
    )  # fmt: skip


def _all_label(people: Sequence[Person], up: Mapping[str, str], most: int) -> None:
    for thread in label_together(people, up["url"], up["token"], most):
        thread.join(PATIENCE)


def _fault_of_refusal(trouble: SaidNo | None) -> str:
    if trouble is None:
        return "answers were taken although there was no room for them"
    if trouble.status < SERVER_FAULT:
        return f"a full disk is told with {trouble.status} {trouble.code}, as if the answer were wrong"
    return _fault_of_message(trouble.message)


def _fault_of_message(message: str) -> str:
    return "" if any(word in message.lower() for word in CLEAR) else f"the error does not say why: {message!r}"


def _import(stage: Stage, disk: SmallDisk) -> Struck:
    before, claims = events(disk.campaign), stage.claims()
    last, again = _fails_then_works(stage, disk, "import", table=str(stage.table()))
    there = imported(disk.campaign)
    lost = len({*before} - {*events(disk.campaign)}) + missing_claims(there, claims)
    return _struck(disk, last, went_on="done" in again, stake=len(before), lost=lost, doubled=doubled_claims(there))


def _next(stage: Stage, disk: SmallDisk) -> Struck:
    before = events(disk.campaign)
    last, again = _fails_then_works(stage, disk, "next", budget=BUDGET)
    compared = compare(events(disk.campaign), dict(before), [key for key, _ in before])
    lost, doubled = len(compared.lost), len(compared.doubled)
    return _struck(disk, last, went_on=again.get("done") == 1, stake=len(before), lost=lost, doubled=doubled)


def _fails_then_works(
    stage: Stage, disk: SmallDisk, verb: str, **more: object
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The last word of a verb that finds no room, and that of the same verb with room."""
    with stage.nursery.start(verb, held=True, folder=str(disk.campaign), **more) as victim:
        disk.fill(victim.pid)
        victim.let_go()
        last: Mapping[str, Any] = (victim.hear_out() or [{}])[-1]
        disk.free(victim.pid)
    return last, stage.nursery.run(verb, folder=str(disk.campaign), **more)


def _struck(
    disk: SmallDisk, last: Mapping[str, Any], *, went_on: bool, stake: int, lost: int, doubled: int
) -> Struck:  # fmt: skip
    if "error" in last:
        found = [_fault_of_message(last["error"])]
    else:
        found = [f"no error, but {last!r}, with no room on the disk"]
    found += faults(disk.campaign)
    return Struck(stake, lost, doubled, went_on, tuple(filter(None, found)), hit=False, at=str(last.get("error")))


TRIALS: Mapping[str, tuple[str, Callable[[Stage, SmallDisk], Struck]]] = {
    "label": ("round", _label),
    "import": ("labelled", _import),
    "next": ("labelled", _next),
}
