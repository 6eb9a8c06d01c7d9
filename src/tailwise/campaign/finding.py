"""The gallery and the search as Python and the command line call them: names and paths in, names and paths out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from ..errors import BadInput
from ..inputs import listed
from ..types import Progress, no_progress
from .classes import find_class, list_classes
from .gallery import BY_GUESS, GalleryFilter, GalleryOrder, describe_images, forget_predictions, select_images
from .images import locate
from .ledger import Ledger
from .predictions import pool_predictions
from .search import Match, find_text, hunt, make_index, more_like


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image of the gallery, with names."""

    path: str
    key: str
    state: str  # one of `image_table.STATES`
    label: str | None
    guess: str | None
    confidence: float | None
    flagged: bool


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that a search found."""

    path: str
    key: str
    score: float  # a cosine; a probability where the model was asked about a class
    how: str  # "similarity", "text", or for a class "model", "examples" or "text"
    state: str
    label: str | None


def list_images_by(
    ledger: Ledger, *, sort: str = "path", count: int | None = None, reverse: bool = False,
    like: str | Path | Sequence[str | Path] | None = None, state: str | Sequence[str] = (),
    cls: str | Sequence[str] = (), guess: str | Sequence[str] = (), annotator: str | None = None,
    round_id: int | None = None, confidence: tuple[float, float] | None = None, found_by: str | None = None,
    flagged: bool = False, duplicates: str = "hide", images: Sequence[str | Path] | None = None,
    report: Progress = no_progress,
) -> list[ListedImage]:  # fmt: skip
    """All images that fit, in order; `confidence` are two limits of the model's, such as (0.6, 0.9)."""
    low, high = (None, None) if confidence is None else confidence
    asked = GalleryFilter(
        _several(state), _class_ids(ledger, cls), _class_ids(ledger, guess), annotator, round_id, low, high, found_by,
        flagged, duplicates, None if images is None else tuple(locate(ledger, one).id for one in images),
    )  # fmt: skip
    order = GalleryOrder(sort, reverse, tuple(_located(ledger, like)) if like is not None else ())
    if asked.by_guess or sort in BY_GUESS:
        pool_predictions(ledger, report=report)
        forget_predictions(ledger)
    if sort == "similarity":
        make_index(ledger, report=report)
    found = select_images(ledger, asked, order)[:count].tolist()
    names = {one.id: one.name for one in list_classes(ledger, retired=True)}
    return [
        ListedImage(
            one.path, one.key, one.state, names.get(one.class_id or 0), names.get(one.guess or 0), one.confidence,
            one.flagged,
        )
        for one in describe_images(ledger, found)
    ]  # fmt: skip


def find(
    ledger: Ledger, like: str | Path | Sequence[str | Path] | None = None, *, text: str | None = None,
    cls: str | int | None = None, count: int = 50, report: Progress = no_progress,
) -> list[FoundImage]:  # fmt: skip
    """Images like some, images that fit a text, or unlabelled images of a class; a class may be given with a text."""
    if (like is None) + (text is None and cls is None) != 1:
        raise BadInput("asked to find images without saying which; give images to be like, a text, or a class")
    how = "similarity"
    if like is not None:
        matches = more_like(ledger, _located(ledger, like), count, report=report)
    elif cls is not None:
        found = hunt(ledger, find_class(ledger, cls), count, text=text, report=report)
        how, matches = found.how, list(found.matches)
    else:
        how, matches = "text", find_text(ledger, text or "", count, report=report)
    return named_matches(ledger, matches, how)


def named_matches(ledger: Ledger, matches: Sequence[Match], how: str) -> list[FoundImage]:
    """Matches with paths and labels, in their order."""
    names = {one.id: one.name for one in list_classes(ledger, retired=True)}
    described = {one.id: one for one in describe_images(ledger, [match.image for match in matches], guesses=False)}
    return [
        FoundImage(one.path, one.key, match.score, how, one.state, names.get(one.class_id or 0))
        for match in matches
        if (one := described.get(match.image)) is not None
    ]


def _located(ledger: Ledger, images: str | Path | Sequence[str | Path]) -> list[int]:
    several = [images] if isinstance(images, str | PurePath) else listed(images, "like", "paths or keys of images")
    return [locate(ledger, one).id for one in several]


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _class_ids(ledger: Ledger, names: str | Sequence[str]) -> tuple[int, ...]:
    return tuple(find_class(ledger, name).id for name in _several(names))
