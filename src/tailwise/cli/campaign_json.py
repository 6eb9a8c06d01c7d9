"""What a campaign's commands print with --json: results in, plain dictionaries out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign.images import find_image

if TYPE_CHECKING:
    from ..campaign.agreement import Agreement
    from ..campaign.campaign import Campaign
    from ..campaign.choosing import Proposal
    from ..campaign.classes import Klass
    from ..campaign.doctor import Finding
    from ..campaign.exporting import Exported
    from ..campaign.images import Indexed
    from ..campaign.importing import Imported
    from ..campaign.state import Status
    from .campaign_commands import Begun

Document = dict[str, Any]


def begun_json(begun: Begun, home: Path, *, dry_run: bool) -> Document:
    """Of `tailwise init`."""
    return {
        "campaign": str(home),
        "created": begun.created,
        "dry_run": dry_run,
        "folders": [{"folder": str(folder), **indexed_json(found)} for folder, found in begun.indexed],
        "classes": list(begun.classes),
        "new_classes": list(begun.new_classes),
        "labels": None if begun.imported is None else imported_json(begun.imported),
        "images": begun.status.images,
        "usable": begun.status.usable,
    }


def indexed_json(found: Indexed) -> Document:
    """What a folder held."""
    return {
        "new": found.added,
        "known": found.known,
        "moved": found.moved,
        "duplicates": found.duplicates,
        "changed": list(found.changed),
        "gone": list(found.missing),
        "quarantined": [{"path": path, "reason": reason} for path, reason in found.quarantined],
        "passed_over": dict(found.passed_over),
    }


def proposal_json(made: Proposal, campaign: Campaign) -> Document:
    """Of `tailwise next`: the round, the certificate and the images, best first."""
    names = {one.id: one.name for one in campaign.classes(retired=True)}
    facts = {
        name: getattr(made, name)
        for name in ("budget", "strategy", "balance", "seed", "cold_start", "lam", "gap", "status", "candidates",
                     "labels", "model_version", "backbone")
    }  # fmt: skip
    return {
        "round": None if made.round is None else made.round.id,
        **facts,
        "classes": _class_counts(made, names),
        "unreachable": [
            {"class": names[number], "wanted": wanted, "reachable": reachable}
            for number, wanted, reachable in made.unreachable
        ],
        "seconds": dict(made.seconds),
        "notes": list(made.notes),
        "images": _images(made, campaign, names),
    }


def _class_counts(made: Proposal, names: Mapping[int, str]) -> list[Document]:
    empty = [None] * len(made.class_ids)
    rows = zip(
        made.class_ids, made.why["counts"], made.target or empty, made.expected_counts or empty, strict=True
    )  # fmt: skip
    return [
        {"class": names[number], "labelled": labelled, "target": target, "expected": expected}
        for number, labelled, target, expected in rows
    ]


def _images(made: Proposal, campaign: Campaign, names: Mapping[int, str]) -> list[Document]:
    with campaign.ledger.reading():
        return [
            {
                "path": find_image(campaign.ledger, pick.image).path,
                "guess": None if pick.predicted is None else names[pick.predicted],
                "confidence": pick.confidence,
            }
            for pick in made.picks
        ]


def status_json(campaign: Campaign, status: Status, agreement: Agreement) -> Document:
    """Of `tailwise status`."""
    counted = ("images", "usable", "duplicates", "quarantined", "labelled", "aside", "other", "skipped", "conflicts",
               "rounds")  # fmt: skip
    return {
        "campaign": campaign.name,
        "folder": str(campaign.folder),
        **{name: getattr(status, name) for name in counted},
        "classes": classes_json(campaign.classes(retired=True), status.labels),
        "round": _round_json(status),
        "annotators": dict(status.annotators),
        "agreement": asdict(agreement),
        "settings": asdict(campaign.settings),
    }


def _round_json(status: Status) -> Document | None:
    if status.round is None or status.progress is None:
        return None
    facts = {name: getattr(status.round, name) for name in ("id", "opened_at", "budget", "strategy", "balance", "seed")}
    found = status.progress
    return facts | {
        "images": found.images, "done": found.done, "remaining": found.remaining, "answers": found.answers,
        "complete": found.complete,
    }  # fmt: skip


def classes_json(classes: Sequence[Klass], labels: Mapping[int, int]) -> list[Document]:
    """All classes by position."""
    return [{"name": one.name, "labelled": labels.get(one.id, 0), "retired": one.retired} for one in classes]


def imported_json(done: Imported) -> Document:
    """Of `tailwise import`."""
    return asdict(done)


def exported_json(done: Exported, conflicts: int, *, dry_run: bool) -> Document:
    """Of `tailwise export`."""
    return {
        "path": str(done.path),
        "format": done.format,
        "records": done.records,
        "images": done.images,
        "left_out": [{"path": path, "reason": reason} for path, reason in done.left_out],
        "retired": dict(done.retired),
        "copies": done.copies,
        "conflicts": conflicts,
        "dry_run": dry_run,
    }


def findings_json(found: Sequence[Finding], mended: Sequence[Finding], *, dry_run: bool) -> Document:
    """Of `tailwise doctor`."""
    return {"findings": [asdict(one) for one in found], "mended": [one.name for one in mended], "dry_run": dry_run}
