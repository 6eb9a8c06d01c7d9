"""`tailwise find`: images like some, by a text, or the likeliest of a class that is short of labels."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .campaign import PANEL, Folder, Json, Quiet, campaigns
from .output import Form, WrongUsage, frameless, plain, progress_shown, shell_line

if TYPE_CHECKING:
    from ..campaign.class_needs import ClassNeed
    from ..campaign.finding import FoundImage
    from ..campaign.service import Campaign


@campaigns.command(rich_help_panel=PANEL)
def find(
    folder: Folder,
    like: Annotated[
        list[str] | None, typer.Option(metavar="IMAGE", help="Images nearest to this one; may be repeated.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Images that fit a text; needs a backbone such as CLIP.")
    ] = None,
    class_: Annotated[
        str | None,
        typer.Option("--class", metavar="NAME", help="The likeliest images of a class that nobody has looked at."),
    ] = None,
    count: Annotated[int, typer.Option(metavar="NUMBER", min=1, max=1000, help="How many images.")] = 20,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Find images: like others, by a text, or of a class that is short; without any of these, list the short classes.

    Example:

      tailwise find birds
      tailwise find birds --class owl --count 50
      tailwise find birds --like photos/0012.jpg
      tailwise find birds --text 'an owl in flight' --json
    """
    if like and (text is not None or class_ is not None):
        raise WrongUsage("--like cannot be given with --text or --class; ask for one of them")
    _run(folder, like or [], text, class_, count, Form.of(as_json=as_json, quiet=quiet))


def _run(folder: Path, like: list[str], text: str | None, name: str | None, count: int, form: Form) -> None:
    from ..campaign.class_needs import nothing_short_text, short_classes
    from ..campaign.classes import find_class
    from ..campaign.finding import named_matches
    from ..campaign.models import newest_model
    from ..campaign.search import hunt

    rough = False
    with (
        _opened(folder, write=bool(like or text or name)) as campaign,
        progress_shown(quiet=form is not Form.SUMMARY) as report,
    ):
        if name is not None:
            found = hunt(campaign.ledger, find_class(campaign.ledger, name), count, text=text, report=report)
            images, title = named_matches(campaign.ledger, found.matches, found.how), str(found)
            rough = found.how == "model" and newest_model(campaign.ledger).rough
        elif like or text is not None:
            images = campaign.find(like or None, text=text, count=count, report=report)
            title = f"{len(images)} images, the {'nearest' if like else 'best fit'} first"
        else:
            short = short_classes(campaign.ledger)
            _show_short(short, "" if short else nothing_short_text(campaign.ledger), folder, form)
            return
    _show_found(images, title, form, rough=rough)


def _opened(folder: Path, *, write: bool) -> Campaign:
    """For writing, so that new features are kept; for reading alone while a server has it."""
    from ..campaign.service import Campaign
    from ..errors import LedgerBusy
    from .campaign_commands import folder_of

    home = folder_of(folder)
    if write:
        with suppress(LedgerBusy):
            return Campaign.open(home, purpose="tailwise find", wait=0)
    return Campaign.open(home, read_only=True)


def _show_found(images: list[FoundImage], title: str, form: Form, *, rough: bool) -> None:
    if form is Form.JSON:
        print(json.dumps({"images": [asdict(one) for one in images]}))
    elif form is Form.QUIET:
        print("\n".join(one.path for one in images))
    else:
        from rich.console import Console

        console, table = Console(highlight=False), frameless()
        for column in ("", "image", "likely" if images and images[0].how == "model" else "alike", "label"):
            table.add_column(column, justify="right" if column in ("", "likely", "alike") else "left")
        for place, one in enumerate(images, 1):
            score = f"{100 * one.score:.0f} %" if one.how == "model" else f"{one.score:.3f}"
            table.add_row(str(place), plain(one.path), score, plain(one.label or one.state))
        console.print(f"[bold]{plain(title)}[/]", soft_wrap=True)
        if images:
            console.print(table)
        if images and rough:
            console.print("The percentages are rough: there are too few labels yet to check them.", soft_wrap=True)


def _show_short(classes: list[ClassNeed], message: str, folder: Path, form: Form) -> None:
    if form is Form.JSON:
        print(json.dumps({"short": [asdict(one) for one in classes], "message": message}))
    elif form is Form.QUIET:
        print("\n".join(one.name for one in classes))
    else:
        from rich.console import Console

        console, table = Console(highlight=False), frameless()
        if not classes:
            console.print(message, soft_wrap=True)
            return
        for column in ("class", "labelled", "wanted", "short"):
            table.add_column(column, justify="left" if column == "class" else "right")
        for one in classes:
            table.add_row(plain(one.name), f"{one.labelled:,}", f"{one.wanted:,}", f"{one.short:,}")
        console.print("[bold]Classes that are short of labels[/]")
        console.print(table)
        line = shell_line("tailwise", "find", str(folder), "--class", classes[0].name)
        console.print(f"Next: {plain(line)}", soft_wrap=True)
