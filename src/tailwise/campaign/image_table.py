"""A table of all images in memory, which follows the ledger event by event: what people have said of each image.

Reading the verdicts of 100,000 images takes a second; reading those of the images with new events, a millisecond.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..types import BoolArray, IntArray
from .ledger import Ledger

UNLABELLED, LABELLED, OTHER, SKIPPED, CONFLICT = range(5)
STATES = ("unlabelled", "labelled", "other", "skipped", "conflict")
RECENT = 2.0  # seconds between two counts of the images in quarantine, which read the whole table
MANY = 20_000  # images with new events from which on all events are read again


@dataclass(frozen=True, slots=True)
class Said:
    """What people have said of one image."""

    state: int
    class_id: int | None
    at: int  # the latest answer or decision that stands, microseconds
    annotators: tuple[str, ...]
    found_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImageTable:
    """All images that can be shown, in the order of their ids, as of one event.

    Attributes
    ----------
    mark: the state of the images that it was made from.
    event: the last event that it knows.
    ids: (n,) ascending.
    keys: (n,) their keys.
    original: (n,) id of the first image with the same bytes, 0 where it is that one.
    copied: (n,) whether another image has the same bytes.
    path_rank: (n,) place in the order of the paths.
    said: what people have said, by id; images without answers are absent.
    state, class_id, at: (n,) the same as arrays.
    """

    mark: tuple[int, ...]
    event: int
    ids: IntArray
    keys: NDArray[np.str_]
    original: IntArray
    copied: BoolArray
    path_rank: IntArray
    said: dict[int, Said]
    state: NDArray[np.int8]
    class_id: IntArray
    at: IntArray

    def rows(self, ids: Iterable[int]) -> IntArray:
        """Rows of the images that the table has, ascending."""
        wanted = np.fromiter(set(ids), dtype=np.int64)
        return np.flatnonzero(np.isin(self.ids, wanted))

    def unseen(self) -> BoolArray:
        """(n,) images that nobody has answered or skipped, and no copy of them either."""
        fresh = (self.state == UNLABELLED) & (self.original == 0)
        answered = self.original[(self.state != UNLABELLED) & (self.original > 0)]
        unseen: BoolArray = fresh & ~np.isin(self.ids, answered)
        return unseen


@dataclass(slots=True, eq=False)
class _Table:
    turn: threading.Lock = field(default_factory=threading.Lock)
    table: ImageTable | None = None
    troubled: int = 0  # images in quarantine, as counted last
    looked: float = -math.inf  # when


_TABLES: WeakKeyDictionary[Ledger, _Table] = WeakKeyDictionary()
_TURN = threading.Lock()


def image_table(ledger: Ledger) -> ImageTable:
    """The table as of now; only images with new events are looked at again."""
    with _TURN:
        kept = _TABLES.setdefault(ledger, _Table())
    with kept.turn, ledger.reading():
        if time.monotonic() - kept.looked > RECENT:
            kept.troubled = int(ledger.read("SELECT count(trouble) FROM image")[0][0])
            kept.looked = time.monotonic()
        counted = ledger.read(
            "SELECT (SELECT coalesce(max(id), 0) FROM image), "
            "(SELECT count(*) FROM image WHERE duplicate_of IS NOT NULL)"
        )[0]
        mark = (counted[0], counted[1], kept.troubled)
        last = int(ledger.read("SELECT coalesce(max(id), 0) FROM event")[0][0])
        table = kept.table
        if table is None or table.mark != mark:
            table = _read_images(ledger, mark)
        if table.event != last:
            table = _with_answers(ledger, table, last)
        kept.table = table
        return table


def _read_images(ledger: Ledger, mark: tuple[int, ...]) -> ImageTable:
    rows = ledger.read(
        "SELECT id, key, coalesce(duplicate_of, 0), path FROM image WHERE trouble IS NULL AND sha256 IS NOT NULL "
        "ORDER BY id"
    )
    size = len(rows)
    ids = np.fromiter((row[0] for row in rows), np.int64, size)
    original = np.fromiter((row[2] for row in rows), np.int64, size)
    by_path = sorted(range(size), key=lambda at: rows[at][3])
    rank = np.empty(size, np.int64)
    rank[np.array(by_path, dtype=np.int64)] = np.arange(size)
    copied = (original > 0) | np.isin(ids, original)
    blank = (np.zeros(size, np.int8), np.zeros(size, np.int64), np.zeros(size, np.int64))
    return ImageTable(mark, 0, ids, np.array([row[1] for row in rows], dtype="U16"), original, copied, rank, {}, *blank)


def _with_answers(ledger: Ledger, table: ImageTable, last: int) -> ImageTable:
    touched = [row[0] for row in ledger.read("SELECT DISTINCT image_id FROM event WHERE id > ?", (table.event,))]
    if table.event == 0 or len(touched) > MANY:
        said = _opinions(ledger.read(f"{_STANDING} ORDER BY id"))
    else:
        said = dict(table.said)
        for number in touched:
            said.pop(number, None)
        said |= said_of(ledger, touched)
    size = len(table.ids)
    state, class_id, at = np.zeros(size, np.int8), np.zeros(size, np.int64), np.zeros(size, np.int64)
    images = np.fromiter(said, np.int64, len(said))
    there = np.isin(images, table.ids)
    places = np.searchsorted(table.ids, images[there])
    values = list(said.values())
    state[places] = np.array([one.state for one in values], dtype=np.int8)[there]
    class_id[places] = np.array([one.class_id or 0 for one in values], dtype=np.int64)[there]
    at[places] = np.array([one.at for one in values], dtype=np.int64)[there]
    return replace(table, event=last, said=said, state=state, class_id=class_id, at=at)


_STANDING = "SELECT image_id, annotator, kind, class_id, at, found_by FROM standing"


def said_of(ledger: Ledger, images: Sequence[int]) -> dict[int, Said]:
    """What people have said of some images, as the ledger has it now; inside `writing()` too, where no table may be."""
    some = ledger.read(
        f"{_STANDING} WHERE image_id IN (SELECT value FROM json_each(?)) ORDER BY id", (json.dumps(list(images)),)
    )
    return _opinions(some)


def _opinions(rows: Sequence[Sequence[object]]) -> dict[int, Said]:
    """What came of standing events, in their order, by image: as the view `verdict` has it."""
    answers: dict[int, dict[str, tuple[str, int | None, int, str | None]]] = {}
    decisions: dict[int, tuple[str, int | None, int, str | None]] = {}
    for image, annotator, kind, class_id, at, found in rows:
        given: tuple[str, int | None, int, str | None] = (kind, class_id, at, found)  # type: ignore[assignment]
        if str(kind).startswith("settle"):
            decisions[image] = given  # type: ignore[index]
        else:
            answers.setdefault(image, {})[annotator] = given  # type: ignore[arg-type, index]
    found_all = {}
    for image in {**answers, **decisions}:
        given_all = answers.get(image, {})
        decision = decisions.get(image)
        state, cls = _verdict([(one[0], one[1]) for one in given_all.values()], decision)
        every = [*given_all.values(), *([decision] if decision else [])]
        found = tuple(sorted({one[3] for one in every if one[3]}))
        found_all[image] = Said(state, cls, max(one[2] for one in every), tuple(given_all), found)
    return found_all


def _verdict(
    answers: Sequence[tuple[str, int | None]], decision: tuple[str, int | None, int, str | None] | None
) -> tuple[int, int | None]:
    if decision is not None:
        return (LABELLED, decision[1]) if decision[0] == "settle-label" else (OTHER, None)
    meant = {cls for kind, cls in answers if kind != "skip"}  # None: other
    if not meant:
        return SKIPPED, None
    if len(meant) > 1:
        return CONFLICT, None
    cls = meant.pop()
    return (OTHER, None) if cls is None else (LABELLED, cls)
