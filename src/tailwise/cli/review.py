"""`tailwise review`: likely label errors, near-duplicates and conflicts, listed and decided from the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import BadInput, LedgerBusy
from .campaign import PANEL, DryRun, Folder, Json, Quiet, campaigns
from .output import Form, WrongUsage, console_line, frameless, plain, progress_shown

if TYPE_CHECKING:
    from ..campaign.duplicates import DuplicateGroup
    from ..campaign.review import LabelError
    from ..campaign.service import Campaign

MOST_SHOWN = 20
MOST_PATHS = 6  # of a group that are named
PURPOSE = "tailwise review"
Document = dict[str, Any]


class What(Enum):
    """What is reviewed."""

    errors = "errors"
    duplicates = "duplicates"
    conflicts = "conflicts"


@campaigns.command(rich_help_panel=PANEL)
def review(
    folder: Folder,
    what: Annotated[What, typer.Argument(help="Likely label errors, images that look alike, or conflicts.")] = (
        What.errors
    ),
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="How many; default 20, of errors the likely ones.")
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="IMAGE", help="Keep its label: it is not listed again. May be repeated.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option(metavar="IMAGE=CLASS", help="Settle an image as a class. May be repeated.")
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="IMAGE=CLASS", help="Label an image and all that look like it. May be repeated."),
    ] = None,
    annotator: Annotated[str, typer.Option(metavar="NAME", help="Who decides.")] = "me",
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List what to look at again: labels that are likely wrong, images that look alike, images people differ on.

    Errors and duplicates need an extra: pip install 'tailwise[review]'.

    Example:

      tailwise review birds
      tailwise review birds --keep 0012.jpg --change 0040.jpg=kite
      tailwise review birds duplicates --json
    """
    form = Form.of(as_json=as_json, quiet=quiet)
    if keep or change or group:
        with progress_shown(quiet=form is Form.QUIET), _opened(folder, write=True) as campaign:
            done = decide(campaign, keep or (), change or (), group or (), annotator, dry_run=dry_run)
        _print(
            form, {"decided": done, "dry_run": dry_run}, [f"{one['image']}: {one['class'] or 'other'}" for one in done]
        )
        return
    with progress_shown(quiet=form is Form.QUIET) as report, _opened(folder) as campaign:
        if what is What.errors:
            errors, checked = _errors(campaign, count, report)
            _show(form, errors_json(errors, checked), lambda: show_errors(errors, checked), len(errors))
        elif what is What.duplicates:
            groups = campaign.duplicates(report=report)
            listed = groups[: count or MOST_SHOWN]
            _show(form, duplicates_json(groups, listed), lambda: show_groups(groups, listed), len(groups))
        else:
            rows = conflicts_json(campaign)
            listed_rows = rows[: count or MOST_SHOWN]
            document = {"count": len(rows), "conflicts": listed_rows}
            _show(form, document, lambda: show_conflicts(listed_rows, len(rows)), len(rows))


@contextmanager
def _opened(folder: Path, *, write: bool = False) -> Iterator[Campaign]:
    """For writing where nobody else writes, so that hashes and findings are kept; else for reading."""
    from ..campaign.database import BUSY_SECONDS
    from ..campaign.service import Campaign
    from .campaign_commands import folder_of

    home = folder_of(folder)
    try:
        campaign = Campaign.open(home, purpose=PURPOSE, wait=BUSY_SECONDS if write else 0.0)
    except LedgerBusy:
        if write:
            raise
        campaign = Campaign.open(home, read_only=True)
    with campaign:
        yield campaign


def _errors(campaign: Campaign, count: int | None, report: Any) -> tuple[list[LabelError], int]:  # noqa: ANN401 - Progress
    from ..campaign.review import review_labels

    found = review_labels(campaign, report=report)
    return list(found.errors[: min(found.likely, MOST_SHOWN) if count is None else count]), found.checked


def decide(
    campaign: Campaign, keep: Sequence[str], change: Sequence[str], group: Sequence[str], annotator: str, *,
    dry_run: bool = False,
) -> list[Document]:  # fmt: skip
    """Settle the images that were named, all or none; gives image and class of each."""
    done: list[Document] = []
    with campaign.ledger.writing(dry_run=dry_run):
        labels = campaign.labels() if keep else {}
        for image in keep:
            if image not in labels:
                raise BadInput(f"asked to keep the label of {image}, which has no decided label; use --change")
            campaign.settle(image, labels[image], annotator=annotator, found_by="review")
            done.append({"image": image, "class": labels[image]})
        for text in change:
            image, cls = _pair(text, "--change")
            campaign.settle(image, cls, annotator=annotator, found_by="review")
            done.append({"image": image, "class": cls})
        for text in group:
            image, cls = _pair(text, "--group")
            paths = _alike(campaign, image)
            campaign.relabel(paths, cls, annotator=annotator, found_by="duplicates")
            done += [{"image": path, "class": cls} for path in paths]
    return done


def _pair(text: str, option: str) -> tuple[str, str]:
    image, sign, cls = text.rpartition("=")
    if not sign or not image or not cls:
        raise WrongUsage(f"{option} is {text!r}; write IMAGE=CLASS, such as 0040.jpg=kite")
    return image, cls


def _alike(campaign: Campaign, image: str) -> list[str]:
    from ..campaign.images import locate

    key = locate(campaign.ledger, image).key
    for group in campaign.duplicates():
        if any(one.key == key for one in group.images):
            return [one.key for one in group.images]
    raise BadInput(f"nothing looks like {image}; label it with --change, or on the page")


# What is printed.


def _show(form: Form, document: Document, show: Any, count: int) -> None:  # noqa: ANN401 - a function without arguments
    if form is Form.JSON:
        print(json.dumps(document))
    elif form is Form.QUIET:
        print(count)
    else:
        show()


def _print(form: Form, document: Document, lines: Sequence[str]) -> None:
    if form is Form.JSON:
        print(json.dumps(document))
    elif form is Form.SUMMARY:
        if document["dry_run"]:
            console_line("[yellow]A dry run: nothing was changed.[/]")
        for line in lines:
            console_line(f"[green]{'·' if document['dry_run'] else '✓'}[/] {plain(line)}")


def errors_json(errors: Sequence[LabelError], checked: int) -> Document:
    """Of `tailwise review --json`."""
    return {
        "checked": checked,
        "errors": [
            {
                "image": one.path, "key": one.key, "given": one.given, "suggested": one.suggested,
                "probability": one.probability, "quality": one.quality, "likely": one.likely,
                "annotators": list(one.annotators), "reason": one.reason,
            }
            for one in errors
        ],
    }  # fmt: skip


def show_errors(errors: Sequence[LabelError], checked: int) -> None:
    """A table, worst first."""
    from rich.console import Console

    from ..inputs import many

    if not errors:
        console_line(f"[green]✓[/] None of {many(checked, 'label')} looks wrong.")
        return
    console_line(f"[bold]{many(len(errors), 'label')} of {checked:,} to look at again[/], worst first")
    table = frameless()
    for name in ("image", "labelled", "by", "looks like", ""):
        table.add_column(name, overflow="fold", justify="right" if not name else "left")
    for one in errors:
        share = f"{100 * one.probability:.0f} %"
        table.add_row(
            plain(one.path), plain(one.given), plain(", ".join(one.annotators)), plain(one.suggested), share
        )  # fmt: skip
    Console(highlight=False).print(table)
    console_line("[dim]Keep a label with --keep IMAGE, change it with --change IMAGE=CLASS, or decide on the page.[/]")


def duplicates_json(groups: Sequence[DuplicateGroup], listed: Sequence[DuplicateGroup]) -> Document:
    """Of `tailwise review duplicates --json`."""
    return {
        "count": len(groups),
        "disagree": sum(one.disagree for one in groups),
        "groups": [
            {
                "disagree": group.disagree, "labels": list(group.labels), "unlabelled": group.unlabelled,
                "images": [{"image": one.path, "key": one.key, "label": one.label} for one in group.images],
            }
            for group in listed
        ],
    }  # fmt: skip


def show_groups(groups: Sequence[DuplicateGroup], listed: Sequence[DuplicateGroup]) -> None:
    """A table, groups whose labels differ first."""
    from rich.console import Console

    from ..inputs import many

    if not groups:
        console_line("[green]✓[/] No images look alike.")
        return
    differ = sum(one.disagree for one in groups)
    console_line(f"[bold]{many(len(groups), 'group')} of images that look alike[/], {differ} with different labels")
    table = frameless()
    for name in ("images", "labels"):
        table.add_column(name, overflow="fold")
    for group in listed:
        paths = [one.path for one in group.images]
        more = f" and {len(paths) - MOST_PATHS} more" if len(paths) > MOST_PATHS else ""
        said = ", ".join([*group.labels, *([f"{group.unlabelled} unlabelled"] if group.unlabelled else [])])
        table.add_row(plain(", ".join(paths[:MOST_PATHS]) + more), plain(said), style="red" if group.disagree else "")
    Console(highlight=False).print(table)
    console_line("[dim]Label a group with --group IMAGE=CLASS, or on the page.[/]")


def conflicts_json(campaign: Campaign) -> list[Document]:
    """Images that people see differently, with the answers."""
    from ..campaign.images import find_image

    names = {one.id: one.name for one in campaign.classes(retired=True)}
    return [
        {
            "image": find_image(campaign.ledger, one.image).path,
            "answers": {
                voice.annotator: "other" if voice.class_id is None else names[voice.class_id] for voice in one.answers
            },
        }
        for one in campaign.conflicts()
    ]


def show_conflicts(rows: Sequence[Document], count: int) -> None:
    """A table of who said what."""
    from rich.console import Console

    from ..inputs import many

    if not rows:
        console_line("[green]✓[/] Nothing to settle.")
        return
    console_line(f"[bold]{many(count, 'image')} on which people differ[/]")
    table = frameless()
    for name in ("image", "answers"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(plain(row["image"]), plain(", ".join(f"{who}: {what}" for who, what in row["answers"].items())))
    Console(highlight=False).print(table)
    console_line("[dim]Settle one with --change IMAGE=CLASS, or on the page.[/]")
