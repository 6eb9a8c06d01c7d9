"""The labels as they stood: an event in, the images that were decided when it was the last one out.

The ledger only grows, so every past state can be read from it; the views of the ledger are the same for the last event.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..types import IntArray
from .classes import list_classes
from .ledger import Ledger

_LABELS = """
WITH standing AS (
    SELECT e.id, e.image_id, e.annotator, e.kind, e.class_id FROM event AS e
    WHERE e.id <= :last AND e.kind <> 'undo'
        AND NOT EXISTS (SELECT 1 FROM event AS u WHERE u.undoes = e.id AND u.kind = 'undo' AND u.id <= :last)
),
answered AS (
    SELECT image_id, annotator, kind, class_id, max(id) FROM standing WHERE kind IN ('label', 'other', 'skip')
    GROUP BY image_id, annotator
),
decision AS (
    SELECT image_id, kind, class_id, max(id) FROM standing WHERE kind IN ('settle-label', 'settle-other')
    GROUP BY image_id
)
SELECT image_id, class_id FROM decision WHERE kind = 'settle-label'
UNION ALL
SELECT image_id, min(class_id) FROM answered
WHERE kind <> 'skip' AND image_id NOT IN (SELECT image_id FROM decision)
GROUP BY image_id HAVING sum(kind = 'other') = 0 AND min(class_id) = max(class_id)
ORDER BY 1
"""  # with max() the other columns are those of the row that has it


class HasLedger(Protocol):
    """A campaign, as far as the learning side needs it."""

    @property
    def ledger(self) -> Ledger:
        """Where all is kept."""
        ...


def ledger_of(campaign: HasLedger | Ledger) -> Ledger:
    """The ledger of a campaign; a ledger is one too."""
    return campaign if isinstance(campaign, Ledger) else campaign.ledger


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """A labelled set at one moment, ready to learn from.

    Attributes
    ----------
    images: (L,) ids, ascending; of images with equal bytes the first.
    labels: (L,) columns: places in `class_ids`.
    class_ids: (C,) the classes, by position.
    last_event: the last event that counts.
    disputed: images left out because an image with equal bytes has another label.
    """

    images: IntArray
    labels: IntArray
    class_ids: tuple[int, ...]
    last_event: int
    disputed: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def counts(self) -> IntArray:
        """Images per class, (C,)."""
        return np.bincount(self.labels, minlength=len(self.class_ids)).astype(np.int64)

    def digest(self, ledger: Ledger) -> str:
        """Names the set by the content of its images and by its classes."""
        bytes_of = {row["id"]: row["sha256"] for row in ledger.read("SELECT id, sha256 FROM image")}
        pairs = zip(self.images.tolist(), self.labels.tolist(), strict=True)
        lines = sorted(f"{bytes_of[image]} {self.class_ids[label]}" for image, label in pairs)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def last_event(ledger: Ledger) -> int:
    """The number of the last event; 0 before the first."""
    return int(ledger.read("SELECT coalesce(max(id), 0) FROM event")[0][0])


def labels_at(ledger: Ledger, event: int) -> tuple[IntArray, IntArray]:
    """Images (L,) and classes (L,), as ids, that were decided when this was the last event."""
    rows = ledger.read(_LABELS, {"last": event})
    pairs = np.array([(row[0], row[1]) for row in rows], dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def labelled_set(ledger: Ledger, event: int | None = None, class_ids: tuple[int, ...] | None = None) -> Labelled:
    """What can be learnt from at an event, or now: labels of these classes, or of those in use."""
    with ledger.reading():
        last = last_event(ledger) if event is None else event
        images, classes = labels_at(ledger, last)
        bytes_of = {row["id"]: row["sha256"] for row in ledger.read("SELECT id, sha256 FROM image")}
        used = tuple(one.id for one in list_classes(ledger)) if class_ids is None else class_ids
    column = {number: place for place, number in enumerate(used)}
    said: dict[str, list[tuple[int, int]]] = {}  # bytes → image and class
    for image, cls in zip(images.tolist(), classes.tolist(), strict=True):
        said.setdefault(bytes_of[image] or str(image), []).append((image, cls))
    agreed = [group[0] for group in said.values() if len({cls for _, cls in group}) == 1]
    disputed = sum(len(group) for group in said.values() if len({cls for _, cls in group}) > 1)
    kept = sorted((image, column[cls]) for image, cls in agreed if cls in column)
    pairs = np.array(kept, dtype=np.int64).reshape(-1, 2)
    return Labelled(pairs[:, 0].copy(), pairs[:, 1].copy(), used, last, disputed)
