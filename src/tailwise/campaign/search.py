"""Find images: more like some, by a text, or the likeliest of a class that is short of labels.

Neighbours are exact: cosines in unit features that are kept in one file and read as it lies on the disk.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np

from ..errors import BadFile, BadInput, TailwiseError
from ..files import npy_bytes, write_whole
from ..inputs import many, whole_number
from ..learners.features import Features
from ..types import BoolArray, FloatArray, IntArray, Progress, no_progress
from . import answers
from .class_needs import short_classes
from .classes import ClassRow
from .features import chosen_backbone, embed
from .gallery import known_predictions
from .image_table import image_table
from .ledger import Ledger, now
from .predictions import pool_predictions
from .state import read_settings

FOLDER = "search"
STATE = "index.json"
BLOCK = 8192  # rows of one product
MOST = 1000  # images of one answer
CERTAIN = 0.6  # probability from which on a candidate is offered as accepted
PROMPT = "a photo of a {}"


class NotReady(TailwiseError, RuntimeError):
    """What a search needs is still being made."""


@dataclass(frozen=True, slots=True, eq=False)
class FeatureIndex:
    """Unit features of all usable images.

    Attributes
    ----------
    ids: (n,) ascending.
    rows: (n, d) float32, each of length 1 (or 0); memory-mapped.
    backbone: what made them.
    digest: of the images that it was made from.
    """

    ids: IntArray
    rows: Features
    backbone: str
    digest: str

    def places(self, images: Sequence[int]) -> IntArray:
        """Rows of the images that are in it."""
        wanted = np.asarray(list(images), dtype=np.int64)
        if not len(self.ids) or not len(wanted):
            return np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        found: IntArray = at[self.ids[at] == wanted]
        return found

    def cosines(self, direction: FloatArray) -> Features:
        """(n,) of all rows with a direction (d,); in blocks, so that a file is read once from start to end."""
        unit = np.asarray(direction, np.float32)
        length = float(np.linalg.norm(unit))
        unit = unit / length if length > 0 else unit
        found = np.empty(len(self.rows), np.float32)
        for start in range(0, len(self.rows), BLOCK):
            np.dot(self.rows[start : start + BLOCK], unit, out=found[start : start + BLOCK])
        return found


@dataclass(frozen=True, slots=True)
class Match:
    """A found image; `score` is a cosine, or a probability where a model was asked."""

    image: int
    score: float


_INDEXES: WeakKeyDictionary[Ledger, FeatureIndex] = WeakKeyDictionary()
_TURN = threading.Lock()


# -- the index ---------------------------------------------------------------------------------------------------------


def known_index(ledger: Ledger) -> FeatureIndex | None:
    """The index as it was made last for the campaign's backbone; None where there is not any. Nothing is computed."""
    folder = ledger.files / FOLDER
    try:
        state = json.loads((folder / STATE).read_bytes())
        backbone, digest, name = str(state["backbone"]), str(state["images"]), str(state["file"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if backbone != chosen_backbone(read_settings(ledger).backbone) or Path(name).name != name:
        return None
    with _TURN:
        kept = _INDEXES.get(ledger)
    if kept is not None and (kept.digest, kept.backbone) == (digest, backbone):
        return kept
    try:
        ids = np.load(folder / f"{name}.ids.npy", allow_pickle=False)
        rows = np.load(folder / f"{name}.rows.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    if len(rows) != len(ids):
        return None
    found = FeatureIndex(ids, rows, backbone, digest)
    with _TURN:
        _INDEXES[ledger] = found
    return found


def is_current(ledger: Ledger, index: FeatureIndex) -> bool:
    """Whether it holds exactly the images that are usable now."""
    return images_digest(ledger) == index.digest


def images_digest(ledger: Ledger) -> str:
    """Names the set of usable images by their content."""
    digest = hashlib.sha256()
    for row in ledger.read(
        "SELECT id, sha256 FROM image WHERE trouble IS NULL AND duplicate_of IS NULL AND sha256 IS NOT NULL ORDER BY id"
    ):
        digest.update(f"{row[0]} {row[1]}\n".encode())
    return digest.hexdigest()


def make_index(ledger: Ledger, *, report: Progress = no_progress) -> FeatureIndex:
    """The index for the images of now: as kept, or made again from the features, of which new ones are computed."""
    known = known_index(ledger)
    if known is not None and is_current(ledger, known):
        return known
    found = embed(ledger, backbone=read_settings(ledger).backbone, report=report)
    digest = images_digest(ledger)  # afterwards: an image that cannot be read is in quarantine by now
    lengths = np.linalg.norm(found.features, axis=1, keepdims=True)
    rows = np.ascontiguousarray(found.features / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
    made = FeatureIndex(found.ids, rows, found.backbone, digest)
    if not ledger.read_only:
        _keep(ledger, made)
    with _TURN:
        _INDEXES[ledger] = made
    return made


def _keep(ledger: Ledger, made: FeatureIndex) -> None:
    """Rows and ids first, then the file that makes them count; what it replaces goes."""
    folder = ledger.files / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(f"{made.backbone} {made.digest}".encode()).hexdigest()[:16]
    try:
        write_whole(folder / f"{name}.rows.npy", npy_bytes(made.rows))
        write_whole(folder / f"{name}.ids.npy", npy_bytes(made.ids))
        state = {"backbone": made.backbone, "images": made.digest, "file": name}
        write_whole(folder / STATE, json.dumps(state).encode())
    except BadFile:
        return  # a full disk: the index serves from memory, and is made again next time
    for path in folder.glob("*.npy"):
        if not path.name.startswith(name):
            path.unlink(missing_ok=True)


def _index(ledger: Ledger, *, make: bool, report: Progress) -> FeatureIndex:
    found = make_index(ledger, report=report) if make else known_index(ledger)
    if found is None:
        raise NotReady("the images are being prepared for the search; try again in a moment")
    return found


# -- more like these ---------------------------------------------------------------------------------------------------


def similarities(ledger: Ledger, images: Sequence[int], *, make: bool = False) -> tuple[IntArray, Features]:
    """Ids (n,), ascending, and the cosine of each with the mean direction of some images."""
    index = _index(ledger, make=make, report=no_progress)
    return index.ids, index.cosines(_direction(ledger, index, images))


def fitting(ledger: Ledger, direction: FloatArray) -> tuple[IntArray, Features]:
    """Ids (n,), ascending, and the cosine of each with the features of a text; nothing is computed that takes long."""
    index = _index(ledger, make=False, report=no_progress)
    return index.ids, index.cosines(direction)


def more_like(
    ledger: Ledger, images: Sequence[int], count: int = 50, *, unlabelled: bool = False, make: bool = True,
    report: Progress = no_progress,
) -> list[Match]:  # fmt: skip
    """The images nearest to some, which are not among them; of several, to the mean of their unit features.

    With `unlabelled` only images that nobody has answered. With `make=False` nothing is computed that may take long.
    """
    index = _index(ledger, make=make, report=report)
    score = index.cosines(_direction(ledger, index, images))
    allowed = _unseen(ledger, index) if unlabelled else np.ones(len(index.ids), dtype=bool)
    allowed[index.places(_originals(ledger, images))] = False
    return _best(index.ids, score, allowed, count)


def _direction(ledger: Ledger, index: FeatureIndex, images: Sequence[int]) -> FloatArray:
    if not len(images):
        raise BadInput("asked for images like none; name at least one image")
    places = index.places(_originals(ledger, images))
    if not len(places):
        raise NotReady("these images have no features yet; try again when the images are prepared")
    direction: FloatArray = np.asarray(index.rows[places]).mean(axis=0)
    return direction


def _originals(ledger: Ledger, images: Sequence[int]) -> list[int]:
    """Ids, with the first image of the same bytes in place of a copy."""
    rows = ledger.read(
        "SELECT coalesce(duplicate_of, id) FROM image WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps([int(one) for one in images]),),
    )
    return [row[0] for row in rows]


def _best(ids: IntArray, score: FloatArray, allowed: BoolArray, count: int) -> list[Match]:
    """The `count` highest scores among the allowed, highest first, ties by id."""
    whole_number(count, "count", least=1, most=MOST)
    rows = np.flatnonzero(allowed & ~np.isnan(score))
    if len(rows) > count:
        edge = np.partition(score[rows], len(rows) - count)[len(rows) - count]
        rows = rows[score[rows] >= edge]  # all ties of the last one, so that the lowest ids of them win
    order = np.argsort(-score[rows], kind="stable")[:count]
    return [Match(int(ids[row]), float(score[row])) for row in rows[order]]


def _unseen(ledger: Ledger, index: FeatureIndex) -> BoolArray:
    table = image_table(ledger)
    unseen: BoolArray = np.isin(index.ids, table.ids[table.unseen()])
    return unseen


# -- by text -----------------------------------------------------------------------------------------------------------


def has_text(ledger: Ledger) -> bool:
    """Whether the campaign's backbone knows texts; nothing is loaded."""
    from ..learners.backbone import has_text_tower

    return has_text_tower(chosen_backbone(read_settings(ledger).backbone))


def find_text(
    ledger: Ledger, query: str, count: int = 50, *, unlabelled: bool = False, make: bool = True,
    report: Progress = no_progress,
) -> list[Match]:  # fmt: skip
    """The images that fit a text best, by a backbone that was trained on images and texts together."""
    direction = text_direction(ledger, query)
    _index(ledger, make=make, report=report)
    return find_direction(ledger, direction, count, unlabelled=unlabelled)


def find_direction(ledger: Ledger, direction: FloatArray, count: int, *, unlabelled: bool = False) -> list[Match]:
    """The images whose features have the direction of a text's, by an index that is there."""
    index = _index(ledger, make=False, report=no_progress)
    allowed = _unseen(ledger, index) if unlabelled else np.ones(len(index.ids), dtype=bool)
    return _best(index.ids, index.cosines(direction), allowed, count)


def text_direction(ledger: Ledger, query: str) -> FloatArray:
    """Features (d,) of a text; loads the net, which takes seconds the first time."""
    if not query.strip():
        raise BadInput("the text to search for is empty; say what the images show")
    from ..learners.backbone import text_features

    return np.asarray(text_features(chosen_backbone(read_settings(ledger).backbone), query.strip()))


# -- the likeliest images of a class -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hunt:
    """The likeliest images of a class that nobody has looked at.

    Attributes
    ----------
    how: "model" (scores are probabilities), "examples" (cosines with its labelled or example images) or "text".
    """

    class_id: int
    name: str
    labelled: int
    short: int
    how: str
    matches: tuple[Match, ...]

    def __str__(self) -> str:
        short = f"{self.name} is {many(self.short, 'label')} short" if self.short else f"{self.name} is not short"
        return f"{short}: {many(len(self.matches), 'image')} that nobody has looked at, the likeliest first"


def hunt(
    ledger: Ledger, klass: ClassRow, count: int = 50, *, text: str | None = None,
    direction: FloatArray | None = None, make: bool = True, report: Progress = no_progress,
) -> Hunt:  # fmt: skip
    """The likeliest images of a class among those that nobody has looked at and that nobody has on the screen.

    By a text where one is given; else by calibrated probabilities where the model has learnt the class, by likeness to
    its images, or by the usual text. A text needs the net of the backbone: with `make=False`, which computes nothing
    that takes long, give its features as `direction` (see `usual_text`, `text_direction`).
    """
    table = image_table(ledger)
    free = table.ids[table.unseen() & ~np.isin(table.ids, _leased(ledger))]
    how, ids, score = _hunted(ledger, klass, text, direction, make=make, report=report)
    matches = _best(ids, score, np.isin(ids, free), count)
    labelled = answers.counts(ledger).get(klass.id, 0)
    short = {one.class_id: one.short for one in short_classes(ledger)}.get(klass.id, 0)
    return Hunt(klass.id, klass.name, labelled, short, how, tuple(matches))


def usual_text(ledger: Ledger, klass: ClassRow) -> str | None:
    """The text to hunt with where nothing else is known of a class; None where something is, or no text helps."""
    known = known_predictions(ledger)
    learnt = known is not None and known.of_class(klass.id) is not None
    return None if learnt or _images_of(ledger, klass.id) or not has_text(ledger) else PROMPT.format(klass.name)


def _hunted(
    ledger: Ledger, klass: ClassRow, text: str | None, direction: FloatArray | None, *, make: bool, report: Progress
) -> tuple[str, IntArray, FloatArray]:
    """How the images are scored, their ids (n,) and their scores (n,)."""
    if text is None:
        known = pool_predictions(ledger, report=report) if make else known_predictions(ledger)
        score = None if known is None else known.of_class(klass.id)
        if known is not None and score is not None:
            return "model", known.ids, score
        if images := _images_of(ledger, klass.id):
            return "examples", *similarities(ledger, images, make=make)
        text = PROMPT.format(klass.name) if make and has_text(ledger) else None
    if text is None:
        raise BadInput(
            f"nothing is known of {klass.name!r} yet: it has no label and no example image, and the backbone knows "
            "no texts; label one image of it, or give it an example"
        )
    index = _index(ledger, make=make, report=report)
    return "text", index.ids, index.cosines(text_direction(ledger, text) if direction is None else direction)


def _images_of(ledger: Ledger, class_id: int) -> list[int]:
    """Labelled images and examples of a class."""
    rows = ledger.read(
        "SELECT image_id FROM current_label WHERE class_id = :cls UNION "
        "SELECT image_id FROM class_example WHERE class_id = :cls",
        {"cls": class_id},
    )
    return [row[0] for row in rows]


def _leased(ledger: Ledger) -> list[int]:
    """Images that somebody has on the screen."""
    return [row[0] for row in ledger.read("SELECT image_id FROM lease WHERE until > ?", (now(),))]
