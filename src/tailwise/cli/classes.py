"""Commands about classes and notes: `tailwise classes` and `tailwise notes`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from .campaign import PANEL, DryRun, Folder, Json, Quiet
from .output import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..campaign.notes import Note
    from ..campaign.service import Campaign

class_commands = typer.Typer()


@class_commands.command(rich_help_panel=PANEL)
def classes(
    folder: Folder,
    add: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Add a class. May be repeated.")] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="Give a class another name; its labels stay.")
    ] = None,
    retire: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Offer a class no more; its labels are kept.")
    ] = None,
    restore: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Bring a retired class back.")] = None,
    describe: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="Say what belongs to a class; shown on the page.")
    ] = None,
    move: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PLACE", help="Put a class at a place, the first is 1.")
    ] = None,
    hotkey: Annotated[
        list[str] | None, typer.Option(metavar="NAME=KEY", help="A key of its own on the page; NAME= takes it away.")
    ] = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="Show an image as an example of a class.")
    ] = None,
    remove_example: Annotated[
        list[str] | None, typer.Option(metavar="NAME=IMAGE", help="Show it no more as an example.")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the classes, or change them; no label is ever lost.

    All changes are made, or none.

    Example:

      tailwise classes birds
      tailwise classes birds --add heron --rename 'kite=red kite' --retire owl
      tailwise classes birds --move heron=1 --hotkey heron=h --describe 'heron=Grey, long legs' --example heron=7.jpg
    """
    from .data_commands import ClassChanges, run_classes

    lists = (add, rename, retire, restore, describe, move, hotkey, example, remove_example)
    changes = ClassChanges(*(tuple(one or ()) for one in lists))
    run_classes(folder, changes, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)


@class_commands.command(rich_help_panel=PANEL)
def notes(
    folder: Folder,
    flagged: Annotated[bool, typer.Option("--flagged", help="Only notes on images that are flagged.")] = False,
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="Only notes on this image: its path or key.")
    ] = None,
    flag: Annotated[list[str] | None, typer.Option(metavar="IMAGE", help="Flag an image. May be repeated.")] = None,
    unflag: Annotated[list[str] | None, typer.Option(metavar="IMAGE", help="Flag an image no more.")] = None,
    comment: Annotated[
        list[str] | None, typer.Option(metavar="IMAGE=TEXT", help="Comment on an image. May be repeated.")
    ] = None,
    annotator: Annotated[str, typer.Option(metavar="NAME", help="Who flags and comments.")] = "me",
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the flags and comments on images, or add some; they are never changed.

    All changes are made, or none.

    Example:

      tailwise notes birds --flagged
      tailwise notes birds --flag 7.jpg --comment '7.jpg=Two birds: which one counts?' --annotator ann
    """
    from ..campaign.service import Campaign
    from .campaign_commands import dry_run_copy, folder_of, opened
    from .data_commands import pair_of

    adds = [(one, "flag", "") for one in flag or ()] + [(one, "unflag", "") for one in unflag or ()]
    adds += [(name, "comment", text) for name, text in (pair_of(one, "--comment") for one in comment or ())]
    form = Form.of(as_json=as_json, quiet=quiet)

    def show(campaign: Campaign) -> None:
        _add_notes(campaign, adds, annotator)
        _show_notes(campaign.notes(image, flagged=flagged), len(adds), form, dry_run=dry_run)

    if adds and dry_run:
        with dry_run_copy(folder_of(folder)) as place, Campaign.open(place) as campaign:
            show(campaign)
    else:
        with opened(folder, "`tailwise notes`" if adds else "") as campaign:
            show(campaign)


def _add_notes(campaign: Campaign, adds: Sequence[tuple[str, str, str]], annotator: str) -> None:
    from ..campaign.notes import add_note

    if not adds:
        return
    with campaign.ledger.writing():
        for image, kind, text in adds:
            add_note(campaign.ledger, image, kind, text, annotator=annotator)


def _show_notes(notes: Sequence[Note], added: int, form: Form, *, dry_run: bool) -> None:
    if form is Form.JSON:
        found = [
            {"image": one.path, "key": one.image, "annotator": one.annotator, "kind": one.kind, "text": one.text,
             "at": one.at}
            for one in notes
        ]  # fmt: skip
        print(json.dumps({"notes": found, "added": added, "dry_run": dry_run}))
        return
    if form is Form.QUIET:
        if not added and notes:
            print("\n".join(dict.fromkeys(one.path for one in notes)))
        return
    from rich.console import Console

    from ..inputs import many
    from .output import frameless, plain

    console = Console(highlight=False)
    if added:
        done = f"[green]✓[/] {many(added, 'note')} added"
        console.print("[yellow]A dry run: nothing was changed.[/]" if dry_run else done)
    table = frameless()
    for header in ("image", "who", "when (UTC)", "note"):
        table.add_column(header)
    for one in notes:
        what = one.text if one.kind == "comment" else f"({one.kind})"
        table.add_row(plain(one.path), plain(one.annotator), _when(one.at), plain(what))
    console.print(table if notes else "No flags or comments.")


def _when(at: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
