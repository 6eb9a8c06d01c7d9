"""A campaign's labels for other programs: the ledger in, records out, and a file or a folder in one of the formats.

Nothing is changed but the place that is written to, which is whole or absent.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..errors import BadFile, BadInput
from ..files import usable
from ..formats import FORMATS, Format, Kind, Record
from ..inputs import many
from ..types import Progress, no_progress
from .classes import list_classes
from .images import folder_names, list_folders, real_path
from .ledger import HasLedger, Ledger, ledger_of
from .rounds import round_number, round_picks

# One row per decided image, with the answer that decided it: the settling one, else the last that says the same.
_DECIDED = """
SELECT l.image_id, coalesce(s.annotator, a.annotator) AS annotator, 'label' AS kind, l.class_id,
    coalesce(s.at, a.at) AS at, a.model_version
FROM current_label AS l
LEFT JOIN settled AS s ON s.image_id = l.image_id
LEFT JOIN (
    SELECT image_id, class_id, annotator, at, model_version, max(event_id) FROM answer WHERE kind = 'label'
    GROUP BY image_id, class_id
) AS a ON a.image_id = l.image_id AND a.class_id = l.class_id
"""
# Images that were decided to be none of the classes, or that all who saw them have skipped.
_ASIDE = """
SELECT v.image_id, coalesce(s.annotator, a.annotator) AS annotator, iif(v.outcome = 'other', 'other', 'skip') AS kind,
    NULL AS class_id, coalesce(s.at, a.at) AS at, a.model_version
FROM verdict AS v
LEFT JOIN settled AS s ON s.image_id = v.image_id
LEFT JOIN (
    SELECT image_id, kind, annotator, at, model_version, max(event_id) FROM answer GROUP BY image_id, kind
) AS a ON a.image_id = v.image_id AND a.kind = iif(v.outcome = 'other', 'other', 'skip')
WHERE v.outcome IN ('other', 'skipped')
"""
_ANSWERS = "SELECT image_id, annotator, kind, class_id, at, model_version FROM answer"
_ROWS = """
WITH said AS ({said})
SELECT i.id, i.folder_id, i.path, i.sha256, i.trouble, said.annotator, coalesce(said.kind, 'label') AS kind, c.name,
    said.at, said.model_version, o.round_id, o.rank
FROM image AS i {join} JOIN said ON said.image_id = i.id LEFT JOIN class AS c ON c.id = said.class_id
LEFT JOIN (
    SELECT ri.* FROM round_image AS ri JOIN round AS r ON r.id = ri.round_id WHERE r.closed_at IS NULL
) AS o ON o.image_id = i.id
WHERE said.image_id IS NOT NULL OR (i.trouble IS NULL AND i.duplicate_of IS NULL)
ORDER BY i.id, said.annotator
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, or would be.

    Attributes
    ----------
    left_out: images in quarantine, which formats with copies cannot take, and why.
    retired: classes that are not in use any more, with how many records have them.
    copies: files with the same bytes as an image in it, which are not listed: what is said of one holds for all.
    """

    path: Path
    format: str
    records: int
    images: int
    left_out: tuple[tuple[str, str], ...] = ()
    retired: tuple[tuple[str, int], ...] = ()
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """A record with what only the ledger knows."""

    image: int
    folder: int
    trouble: str
    record: Record


def export(
    campaign: HasLedger | Ledger, out: str | Path, *, format: str | None = None, unlabelled: bool = False,
    every_answer: bool = False, with_predictions: bool = False, split: float | Mapping[str, float] | None = None,
    round: int | str | None = None, dry_run: bool = False, report: Progress = no_progress,
) -> Path:  # fmt: skip
    """Write the labels of a campaign; where they are.

    Parameters
    ----------
    format: one of `FORMATS`; by default the one that the ending of `out` names.
    unlabelled: also the images without a label: 'other', skipped, at odds, and those that nobody has answered.
    every_answer: one record per person and image, instead of what was decided.
    with_predictions: the newest model's probabilities too.
    split: a share for testing, or names with shares such as {"train": 0.8, "test": 0.2}. An image stays in its
        split as labels are added: its bytes decide.
    round: only the images of this round, best first, labelled or not; "open": of the open one.
    dry_run: write nothing, but refuse what the export would refuse.
    """
    options = {"unlabelled": unlabelled, "every_answer": every_answer, "with_predictions": with_predictions}
    return write_export(
        campaign, out, format=format, split=split, round=round, dry_run=dry_run, report=report, **options
    ).path


def write_export(
    campaign: HasLedger | Ledger, out: str | Path, *, format: str | None = None, unlabelled: bool = False,
    every_answer: bool = False, with_predictions: bool = False, split: float | Mapping[str, float] | None = None,
    round: int | str | None = None, dry_run: bool = False, report: Progress = no_progress,
) -> Exported:  # fmt: skip
    """The same, with what was written and what was left out."""
    ledger, place = ledger_of(campaign), usable(out)
    kind = FORMATS[format_of(place) if format is None else format]
    folders = list_folders(ledger)
    shares = shares_of(split)
    _check(ledger, kind, place, folders, with_predictions=with_predictions)
    rows = read_rows(ledger, unlabelled=unlabelled or round is not None, every_answer=every_answer)
    if round is not None:
        rank = {pick.image: at for at, pick in enumerate(round_picks(ledger, round_number(ledger, round)))}
        rows = sorted((row for row in rows if row.image in rank), key=lambda row: rank[row.image])
    left_out = {row.record.path: row.trouble for row in rows if row.trouble and kind.copies}
    kept = [_in_split(row, shares) for row in rows if not (row.trouble and kind.copies)]
    done = _exported(ledger, kind, place, kept, left_out)
    if dry_run:
        _check_images(kind, kept, folders)
        return done
    if with_predictions:
        kept = _with_predictions(ledger, kept, report)
    places = {row.record.path: (folders[row.folder], row.record.within or row.record.path) for row in kept}
    asked = 0

    def source(record: Record) -> Path:
        nonlocal asked
        asked += 1
        report(min(asked / max(len(kept), 1), 1.0), f"writing {many(len(kept), 'record')}")
        folder, path = places[record.path]
        return real_path(folder, path) if kind.copies else folder / path

    names = tuple(one.name for one in list_classes(ledger))
    kind.write([row.record for row in kept], place, source, names)
    report(1.0, f"wrote {many(len(kept), 'record')}")
    return done


def _check(ledger: Ledger, kind: Format, out: Path, folders: Mapping[int, Path], *, with_predictions: bool) -> None:
    """Refuse, before any work, what cannot be written there."""
    if kind.copies:
        _check_outside(out.resolve(), folders)
    kind.check(out)
    if with_predictions:
        from .models import newest_model

        newest_model(ledger)


def _check_images(kind: Format, rows: Sequence[Row], folders: Mapping[int, Path]) -> None:
    """Of formats with copies: that there is something to copy."""
    for row in rows if kind.copies else ():
        origin = real_path(folders[row.folder], row.record.within or row.record.path)
        if not origin.is_file():
            raise BadFile(f"the image {origin} is gone; put it back, or export to a table such as CSV")


def _exported(
    ledger: Ledger, kind: Format, place: Path, rows: Sequence[Row], left_out: Mapping[str, str]
) -> Exported:  # fmt: skip
    images = {row.image for row in rows}
    out_of_use = {one.name for one in list_classes(ledger, retired=True) if one.retired}
    retired = Counter(row.record.label for row in rows if row.record.label in out_of_use)
    twins = ledger.read("SELECT id, duplicate_of FROM image WHERE duplicate_of IS NOT NULL AND trouble IS NULL")
    copies = sum(row["duplicate_of"] in images and row["id"] not in images for row in twins)
    named = tuple((str(name), count) for name, count in retired.items())
    return Exported(place, kind.name, len(rows), len(images), tuple(left_out.items()), named, copies)


def records(
    campaign: HasLedger | Ledger, *, unlabelled: bool = False, every_answer: bool = False,
    with_predictions: bool = False, split: float | Mapping[str, float] | None = None,
) -> Iterator[Record]:  # fmt: skip
    """The labels of a campaign as records, by image; see `export` for what the options mean."""
    ledger, shares = ledger_of(campaign), shares_of(split)
    rows = [_in_split(row, shares) for row in read_rows(ledger, unlabelled=unlabelled, every_answer=every_answer)]
    for row in _with_predictions(ledger, rows, no_progress) if with_predictions else rows:
        yield row.record


def read_rows(ledger: Ledger, *, unlabelled: bool, every_answer: bool) -> list[Row]:
    """What the ledger says, by image and then by person."""
    said = _ANSWERS if every_answer else f"{_DECIDED} UNION ALL {_ASIDE}" if unlabelled else _DECIDED
    names = folder_names(ledger)
    rows = [
        _row(row, names[row["folder_id"]])
        for row in ledger.read(_ROWS.format(said=said, join="LEFT" if unlabelled else ""))
    ]
    noted = {row["image_id"]: (bool(row["flagged"]), row["comments"] or "") for row in ledger.read(_NOTES)}
    return [
        replace(row, record=replace(row.record, flagged=noted[row.image][0], comments=noted[row.image][1]))
        if row.image in noted else row
        for row in rows
    ]  # fmt: skip


# Whether each image with notes is flagged now, and its comments, the oldest first.
_NOTES = """
SELECT n.image_id, (
        SELECT f.kind = 'flag' FROM note AS f WHERE f.image_id = n.image_id AND f.kind <> 'comment'
        ORDER BY f.id DESC LIMIT 1
    ) AS flagged, (
        SELECT group_concat(line, char(10)) FROM (
            SELECT c.annotator || ': ' || c.text AS line FROM note AS c
            WHERE c.image_id = n.image_id AND c.kind = 'comment' ORDER BY c.id
        )
    ) AS comments
FROM note AS n GROUP BY n.image_id
"""


def format_of(out: Path) -> str:
    """The format that a file's ending names.

    >>> format_of(Path("labels.csv"))
    'csv'
    """
    FORMATS.load_plugins()
    for name in FORMATS:
        if FORMATS[name].suffix and FORMATS[name].suffix == out.suffix.lower():
            return name
    raise BadInput(f"the ending of {out} does not name a format; give the format: one of {', '.join(FORMATS)}")


def shares_of(split: float | Mapping[str, float] | None) -> Mapping[str, float]:
    """Names of splits with their shares, checked; none for no split.

    >>> shares_of(0.25)
    {'train': 0.75, 'test': 0.25}
    """
    if split is None:
        return {}
    if not isinstance(split, Mapping):
        if not 0 < split < 1:
            raise BadInput(f"the split is {split!r}; give a share for testing between 0 and 1, or names with shares")
        return {"train": 1 - split, "test": float(split)}
    good = all(name and math.isfinite(share) and share >= 0 for name, share in split.items())
    if not good or not math.isclose(sum(split.values()), 1, abs_tol=1e-9):
        given = ", ".join(f"{name}={share:g}" for name, share in split.items()) or "nothing"
        raise BadInput(f"the split is {given}; give names with shares that sum to 1, such as train=0.8, test=0.2")
    return split


def split_of(content: str, shares: Mapping[str, float]) -> str:
    """The split of an image, drawn by its content alone: adding images moves none from one split to another.

    >>> split_of("abc", {"train": 1.0})
    'train'
    """
    if not shares:
        return ""
    drawn = int.from_bytes(hashlib.sha256(f"split {content}".encode()).digest()[:8]) / 2**64
    names = list(shares)
    edges = np.cumsum([shares[name] for name in names])
    return names[min(int(np.searchsorted(edges, drawn, side="right")), len(names) - 1)]


def _row(row: sqlite3.Row, folder: str) -> Row:
    kind: Kind = row["kind"]
    record = Record(
        f"{folder}/{row['path']}" if folder else row["path"],
        row["name"],
        annotator=row["annotator"] or "",
        at=row["at"],
        model_version=row["model_version"] or "",
        kind=kind,
        sha256=row["sha256"] or "",
        within=row["path"] if folder else "",
        round=row["round_id"],
        rank=row["rank"],
    )
    return Row(row["id"], row["folder_id"], row["trouble"] or "", record)


def _in_split(row: Row, shares: Mapping[str, float]) -> Row:
    split = split_of(row.record.sha256 or row.record.within or row.record.path, shares)
    return replace(row, record=replace(row.record, split=split)) if split else row


def _with_predictions(ledger: Ledger, rows: list[Row], report: Progress) -> list[Row]:
    """The rows with the newest model's probabilities; an image without features stays without."""
    from .models import predict

    ids = np.array(sorted({row.image for row in rows}), dtype=np.int64)
    predicted = predict(ledger, ids, report=report)
    names = {one.id: one.name for one in list_classes(ledger, retired=True)}
    columns = [names[number] for number in predicted.class_ids]
    shares = {
        int(image): {name: float(share) for name, share in zip(columns, line, strict=True)}
        for image, line in zip(predicted.images, predicted.proba, strict=True)
    }
    version = predicted.version
    return [
        replace(row, record=replace(row.record, proba=shares[row.image], model_version=version))
        if row.image in shares else row
        for row in rows
    ]  # fmt: skip


def _check_outside(out: Path, folders: Mapping[int, Path]) -> None:
    """Copies among the images would be taken for new images the next time they are read."""
    for folder in folders.values():
        if out.is_relative_to(folder):
            raise BadInput(f"{out} lies among the campaign's images in {folder}; name a place outside of it")
