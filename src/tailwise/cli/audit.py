"""`tailwise audit`: what the images that were drawn at random say of the model and of the pool."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .campaign import PANEL, Folder, Json, Quiet
from .output import Form

if TYPE_CHECKING:
    from ..campaign.audit import Audit, Estimate


audits = typer.Typer()


@audits.command(rich_help_panel=PANEL)
def audit(
    folder: Folder,
    wanted: Annotated[
        float | None,
        typer.Option(metavar="SHARE", min=0, max=1, help="The accuracy to reach; default 0.9, or the setting."),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate accuracy, class shares and recall from images drawn at random, and say whether to stop.

    The images are drawn by `tailwise next DIR --audit 0.1`. Every interval covers the truth in 95 of 100 campaigns.

    Example:

      tailwise audit birds
      tailwise audit birds --wanted 0.95 --json
    """
    run_audit(folder, wanted, Form.of(as_json=as_json, quiet=quiet))


def run_audit(folder: Path, wanted: float | None, form: Form) -> None:
    """`tailwise audit`."""
    from .campaign_commands import opened
    from .output import progress_shown

    with opened(folder) as campaign, progress_shown(quiet=form is Form.QUIET) as report:
        found = campaign.audit(wanted=wanted, report=report)
    if form is Form.JSON:
        print(json.dumps(asdict(found)))
    elif form is Form.QUIET:
        print(found.sentences[0])
    else:
        show_audit(found, folder)


def show_audit(found: Audit, folder: Path) -> None:
    """The advice, the other sentences, and a table of the classes, the rarest first."""
    from rich.console import Console

    from .campaign_output import command
    from .output import frameless, plain
    from .select_output import MOST_CLASSES

    console = Console(highlight=False)
    first, *others = found.sentences
    colour = "green" if found.stop is not None and found.stop.reached else "yellow"
    console.print(f"[bold {colour}]{plain(first)}[/]")
    for text in others:
        console.print(plain(text))
    if not found.images:
        console.print(f"\n  [bold cyan]{plain(command('next', folder, '--audit', '0.1'))}[/]")
        return
    table = frameless()
    table.add_column("class", overflow="fold")
    for title in ("of the pool", "95 % interval", "recognised", "95 % interval", "images"):
        table.add_column(title, justify="right", no_wrap=True)
    ordered = sorted(found.classes, key=lambda one: (one.share.value or 0.0, one.name))
    for one in ordered[:MOST_CLASSES]:
        table.add_row(plain(one.name), *_cells(one.share), *_cells(one.recall), f"{one.recall.images:,}")
    console.print()
    console.print(table)
    if len(ordered) > MOST_CLASSES:
        console.print(f"[dim]… and {len(ordered) - MOST_CLASSES} more classes; --json lists all[/]")


def _cells(one: Estimate) -> tuple[str, str]:
    from ..campaign.audit import percent

    if one.value is None:
        return "–", "not measured"
    return percent(one.value), f"{percent(one.low)} – {percent(one.high)}"
