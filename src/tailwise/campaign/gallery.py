"""All images of a campaign in any order: filter and sort them, and look at one with its history.

A table of the images is kept in memory and follows the ledger event by event, so that a page of 100,000 images takes
milliseconds. What people see of a model comes from predictions that were made in the background.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput
from ..types import BoolArray, FloatArray, IntArray
from .answers import FOUND_BY
from .image_table import LABELLED, STATES, UNLABELLED, ImageTable, image_table
from .images import SEAL_DIGITS, ImageRow
from .ledger import Ledger
from .notes import Note, list_notes
from .predictions import PoolPredictions, newest_version, read_predictions

SORTS = ("path", "time", "confidence", "uncertainty", "similarity", "text")
BY_GUESS = ("confidence", "uncertainty")
DUPLICATES = ("hide", "show", "only")
SNAPSHOTS = 16  # results that are kept to page through


@dataclass(frozen=True, slots=True)
class GalleryFilter:
    """Which images are wanted; all conditions that are given hold, of several values any.

    Attributes
    ----------
    states: of STATES.
    classes: ids of classes that images are labelled as.
    guesses: ids of the likeliest classes by the newest model.
    annotator: who has a standing answer.
    round_id: the round that asked for it.
    least, most: limits of the model's confidence in its guess, 0 to 1.
    found_by: where its answers were given, one of `answers.FOUND_BY`.
    flagged: only images with a flag.
    duplicates: "hide" copies of other images, "show" them, or "only" images that have copies, with these.
    images: ids of a selection; None for all.
    """

    states: tuple[str, ...] = ()
    classes: tuple[int, ...] = ()
    guesses: tuple[int, ...] = ()
    annotator: str | None = None
    round_id: int | None = None
    least: float | None = None
    most: float | None = None
    found_by: str | None = None
    flagged: bool = False
    duplicates: str = "hide"
    images: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for value, known, what in (
            *((state, STATES, "state") for state in self.states), (self.duplicates, DUPLICATES, "duplicates"),
            *([(self.found_by, FOUND_BY, "found_by")] if self.found_by is not None else []),
        ):  # fmt: skip
            if value not in known:
                raise BadInput(f"the filter's {what} is {value!r}; use one of {', '.join(known)}")

    @property
    def by_guess(self) -> bool:
        """Whether it needs the model's guesses."""
        return bool(self.guesses) or self.least is not None or self.most is not None


@dataclass(frozen=True, slots=True)
class GalleryOrder:
    """How images are sorted: by path, latest answer, highest confidence, hardest guess, likeness to images or a text.

    "text" needs the similarity to be given, as the text's features come from a net.
    """

    by: str = "path"
    reverse: bool = False
    like: tuple[int, ...] = ()  # ids, for "similarity"

    def __post_init__(self) -> None:
        if self.by not in SORTS:
            raise BadInput(f"the gallery cannot be sorted by {self.by!r}; use one of {', '.join(SORTS)}")
        if self.by == "similarity" and not len(self.like):
            raise BadInput("sorting by similarity needs images to be similar to; name at least one")


@dataclass(frozen=True, slots=True, eq=False)
class Guesses:
    """The model's guess for each row of a table; class 0 and NaN where it has none."""

    version: str
    classes: IntArray  # (n,)
    confidence: FloatArray  # (n,)
    margin: FloatArray  # (n,) how far the likeliest class is ahead of the next


@dataclass(slots=True, eq=False)
class _Kept:
    """What is kept in memory of one ledger."""

    predictions: PoolPredictions | None = None
    guesses: tuple[tuple[int, ...], Guesses] | None = None
    snapshots: OrderedDict[str, IntArray] = field(default_factory=OrderedDict)
    made: int = 0


_KEPT: WeakKeyDictionary[Ledger, _Kept] = WeakKeyDictionary()
_KEPT_TURN = threading.Lock()


def _kept(ledger: Ledger) -> _Kept:
    with _KEPT_TURN:
        return _KEPT.setdefault(ledger, _Kept())


def known_predictions(ledger: Ledger) -> PoolPredictions | None:
    """Predictions of the newest model that were made already; None until then. Nothing is computed."""
    version = newest_version(ledger)
    if version is None:
        return None
    kept = _kept(ledger)
    found = kept.predictions
    if found is None or found.version != version:
        kept.predictions = found = read_predictions(ledger, version)
    return found


def forget_predictions(ledger: Ledger) -> None:
    """Read predictions from their file again when they are needed next: it was written anew."""
    kept = _kept(ledger)
    kept.predictions = kept.guesses = None


def guesses_of(ledger: Ledger, table: ImageTable, predictions: PoolPredictions) -> Guesses:
    """The model's guesses by row of the table; made once per model and set of images."""
    kept = _kept(ledger)
    known = kept.guesses
    if known is not None and known[0] == table.mark and known[1].version == predictions.version:
        return known[1]
    size, classes = len(table.ids), len(predictions.class_ids)
    guess, confidence, margin = np.zeros(size, np.int64), np.full(size, np.nan), np.full(size, np.nan)
    if len(predictions.ids) and classes:
        best = predictions.proba.argmax(axis=1)
        first = np.take_along_axis(predictions.proba, best[:, None], 1)[:, 0]
        second = np.partition(predictions.proba, classes - 2, axis=1)[:, classes - 2] if classes > 1 else 0 * first
        source = np.where(table.original > 0, table.original, table.ids)  # a copy is guessed as its original
        at = np.minimum(np.searchsorted(predictions.ids, source), len(predictions.ids) - 1)
        there = predictions.ids[at] == source
        guess[there] = np.array(predictions.class_ids)[best[at[there]]]
        confidence[there] = first[at[there]]
        margin[there] = (first - second)[at[there]]
    made = Guesses(predictions.version, guess, confidence, margin)
    kept.guesses = (table.mark, made)
    return made


Similarity = Callable[[Sequence[int]], tuple[IntArray, FloatArray]]  # ids → ids (m,) ascending, similarities (m,)


def select_images(
    ledger: Ledger, asked: GalleryFilter, order: GalleryOrder, similarity: Similarity | None = None
) -> IntArray:
    """Ids of the images that the filter lets through, in order; ties by id."""
    table = image_table(ledger)
    guesses = None
    if asked.by_guess or order.by in BY_GUESS:
        predictions = known_predictions(ledger)
        if predictions is None:
            raise BadInput("there are no guesses yet: open a round with labels of two classes, or wait for its model")
        guesses = guesses_of(ledger, table, predictions)
    keep = _passing(ledger, table, asked, guesses)
    rows = np.flatnonzero(keep)
    value = _order_values(ledger, table, order, guesses, similarity)[rows].astype(np.float64)
    value = np.where(np.isnan(value), np.inf, -value if order.reverse else value)  # what has no value comes last
    found: IntArray = table.ids[rows[np.argsort(value, kind="stable")]]
    return found


def _passing(ledger: Ledger, table: ImageTable, asked: GalleryFilter, guesses: Guesses | None) -> BoolArray:
    keep = np.ones(len(table.ids), dtype=bool)
    if asked.duplicates != "show":
        keep &= table.original == 0 if asked.duplicates == "hide" else table.copied
    if asked.states:
        keep &= np.isin(table.state, [STATES.index(one) for one in asked.states])
    if asked.classes:
        keep &= (table.state == LABELLED) & np.isin(table.class_id, asked.classes)
    if guesses is not None and asked.by_guess:
        if asked.guesses:
            keep &= np.isin(guesses.classes, asked.guesses)
        keep &= guesses.confidence >= (0.0 if asked.least is None else asked.least)  # False for NaN
        keep &= guesses.confidence <= (1.0 if asked.most is None else asked.most)
    for wanted in _wanted_ids(ledger, table, asked):
        keep &= np.isin(table.ids, wanted)
    return keep


def _wanted_ids(ledger: Ledger, table: ImageTable, asked: GalleryFilter) -> Iterable[IntArray]:
    """Sets of ids that an image must be in."""
    if asked.annotator is not None:
        yield _array(number for number, one in table.said.items() if asked.annotator in one.annotators)
    if asked.found_by is not None:
        yield _array(number for number, one in table.said.items() if asked.found_by in one.found_by)
    if asked.round_id is not None:
        rows = ledger.read("SELECT image_id FROM round_image WHERE round_id = ?", (asked.round_id,))
        yield _array(row[0] for row in rows)
    if asked.flagged:
        yield _array(flagged_images(ledger))
    if asked.images is not None:
        yield _array(asked.images)


def _array(numbers: Iterable[int]) -> IntArray:
    return np.fromiter(numbers, np.int64)


def flagged_images(ledger: Ledger) -> list[int]:
    """Ids of images whose last flag was not taken back."""
    rows = ledger.read(
        "SELECT image_id FROM note WHERE id IN (SELECT max(id) FROM note WHERE kind <> 'comment' GROUP BY image_id) "
        "AND kind = 'flag'"
    )
    return [row[0] for row in rows]


def _order_values(
    ledger: Ledger, table: ImageTable, order: GalleryOrder, guesses: Guesses | None, similarity: Similarity | None
) -> NDArray[np.generic]:
    """(n,) what comes first is smallest."""
    if order.by == "time":
        return np.where(table.at > 0, -table.at.astype(np.float64), np.nan)
    if order.by in ("similarity", "text"):
        if similarity is None:
            from .search import similarities

            similarity = lambda ids: similarities(ledger, ids)  # noqa: E731 - the search needs the ledger
        found, value = similarity(order.like)
        at = np.minimum(np.searchsorted(found, table.ids), max(len(found) - 1, 0))
        there = found[at] == table.ids if len(found) else np.zeros(len(table.ids), dtype=bool)
        return np.where(there, -value[at] if len(found) else 0.0, np.nan)
    if guesses is not None and order.by in BY_GUESS:
        return -guesses.confidence if order.by == "confidence" else guesses.margin
    return table.path_rank


# -- pages of a result -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GalleryPage:
    """A part of a result; the same snapshot pages through the same order, whatever is labelled meanwhile."""

    snapshot: str
    total: int
    offset: int
    ids: IntArray


def gallery_page(
    ledger: Ledger, asked: GalleryFilter, order: GalleryOrder, *, offset: int = 0, count: int = 200,
    snapshot: str | None = None, similarity: Similarity | None = None,
) -> GalleryPage:  # fmt: skip
    """Images of a result from `offset` on; a snapshot that is no longer kept is made again."""
    kept = _kept(ledger)
    found = kept.snapshots.get(snapshot) if snapshot is not None else None
    if found is None or snapshot is None:
        found = select_images(ledger, asked, order, similarity)
        with _KEPT_TURN:
            kept.made += 1
            snapshot = f"s{kept.made:x}"
            kept.snapshots[snapshot] = found
            while len(kept.snapshots) > SNAPSHOTS:
                kept.snapshots.popitem(last=False)
    return GalleryPage(snapshot, len(found), offset, found[offset : offset + count])


def keys_of(ledger: Ledger, ids: IntArray) -> list[str]:
    """Keys of images, in the order of their ids as given."""
    table = image_table(ledger)
    at = np.minimum(np.searchsorted(table.ids, ids), max(len(table.ids) - 1, 0))
    found: list[str] = table.keys[at[table.ids[at] == ids]].tolist() if len(table.ids) else []
    return found


def ids_of(ledger: Ledger, keys: Sequence[str]) -> dict[str, int]:
    """Ids of the images that have these keys."""
    rows = ledger.read(
        "SELECT key, id FROM image WHERE key IN (SELECT value FROM json_each(?))", (json.dumps(list(keys)),)
    )
    return {row[0]: row[1] for row in rows}


@dataclass(frozen=True, slots=True)
class GalleryImage:
    """One image as the gallery shows it."""

    id: int
    key: str
    seal: str
    path: str
    width: int
    height: int
    state: str
    class_id: int | None
    at: int | None
    guess: int | None  # class id
    confidence: float | None
    flagged: bool
    copies: bool  # whether another image has the same bytes


def describe_images(ledger: Ledger, ids: Sequence[int], *, guesses: bool = True) -> list[GalleryImage]:
    """Images in the order of their ids as given; without guesses where people label blind."""
    table = image_table(ledger)
    rows = ledger.read(
        "SELECT id, key, substr(coalesce(sha256, ''), 1, ?), path, coalesce(width, 0), coalesce(height, 0) FROM image "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (SEAL_DIGITS, json.dumps([int(one) for one in ids])),
    )
    by_id = {row[0]: row for row in rows}
    predictions = known_predictions(ledger) if guesses else None
    model = None if predictions is None else guesses_of(ledger, table, predictions)
    flags = set(flagged_images(ledger))
    found = []
    for number in (int(one) for one in ids if int(one) in by_id):
        _, key, seal, path, width, height = by_id[number]
        at = int(np.searchsorted(table.ids, number))
        inside = at < len(table.ids) and table.ids[at] == number
        said = table.said.get(number)
        guess, confidence = None, None
        if model is not None and inside and not np.isnan(model.confidence[at]):
            guess, confidence = int(model.classes[at]), min(max(float(model.confidence[at]), 0.0), 1.0)
        found.append(
            GalleryImage(
                number, key, seal, path, width, height, STATES[said.state if said else UNLABELLED],
                said.class_id if said else None, said.at if said else None, guess, confidence, number in flags,
                bool(inside and table.copied[at]),
            )
        )  # fmt: skip
    return found


# -- one image ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageEvent:
    """Something that was said of an image, and whether it was taken back."""

    at: int
    annotator: str
    kind: str
    class_id: int | None
    round_id: int | None
    found_by: str | None
    batch: str | None
    undone: bool
    key: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """Why a round asked for an image."""

    round_id: int
    rank: int
    of: int  # images of the round
    opened_at: int
    strategy: str
    predicted: int | None  # class id
    confidence: float | None
    cold_start: bool  # no model had learnt yet


@dataclass(frozen=True, slots=True)
class ImageHistory:
    """All that is known of one image."""

    image: GalleryImage
    events: tuple[ImageEvent, ...]  # oldest first
    chosen: tuple[Chosen, ...]
    notes: tuple[Note, ...]
    copies: tuple[str, ...]  # keys of images with the same bytes


def image_history(ledger: Ledger, row: ImageRow, *, guesses: bool = True) -> ImageHistory:
    """Who said what, why the image was chosen, notes, and copies; without guesses where people label blind."""
    with ledger.reading():
        image = describe_images(ledger, [row.id], guesses=guesses)[0]
        events = ledger.read(
            "SELECT e.at, e.annotator, e.kind, e.class_id, e.round_id, e.found_by, e.batch, "
            "EXISTS (SELECT 1 FROM event AS u WHERE u.undoes = e.id AND u.kind = 'undo') AS undone, e.key "
            "FROM event AS e WHERE e.image_id = ? ORDER BY e.id",
            (row.id,),
        )
        chosen = ledger.read(
            "SELECT r.id, i.rank, (SELECT count(*) FROM round_image WHERE round_id = r.id), r.opened_at, r.strategy, "
            "i.predicted, i.confidence, r.model_version IS NULL FROM round_image AS i "
            "JOIN round AS r ON r.id = i.round_id WHERE i.image_id = ? ORDER BY r.id",
            (row.id,),
        )
        notes = list_notes(ledger, row.key)
        first = row.duplicate_of or row.id
        copies = ledger.read(
            "SELECT key FROM image WHERE (id = :first OR duplicate_of = :first) AND id <> :own ORDER BY id",
            {"first": first, "own": row.id},
        )
    return ImageHistory(
        image,
        tuple(
            ImageEvent(at, who, kind, cls, number, found, batch, bool(undone), key)
            for at, who, kind, cls, number, found, batch, undone, key in events
        ),
        tuple(
            Chosen(number, rank, of, at, strategy, cls if guesses else None, sure if guesses else None, bool(cold))
            for number, rank, of, at, strategy, cls, sure, cold in chosen
        ),
        tuple(notes),
        tuple(one[0] for one in copies),
    )
