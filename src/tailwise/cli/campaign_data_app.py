"""The commands that bring labels in and out and look after a campaign: import, export, report, doctor, backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .campaign_app import PANEL, DryRun, Folder, Json, Quiet

campaign_data = typer.Typer()

FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="NAME",
        help="csv, parquet, folders, huggingface, label-studio, cvat-imagenet, cvat-xml or fiftyone; "
        "default: told by the file.",
    ),
]


@campaign_data.command(name="import", rich_help_panel=PANEL)
def import_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Labels that were made elsewhere: a file or a folder.")],
    format: FormatName = None,
    annotator: Annotated[str, typer.Option(help="Who made the labels of which the file does not say so.")] = "import",
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="What a label of the file is called here. May be repeated."),
    ] = None,
    create_classes: Annotated[
        bool, typer.Option("--create-classes", help="Add the classes that only the file has.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let the file change what the same annotator said before.")
    ] = False,
    by_name: Annotated[
        bool, typer.Option("--by-name", help="Match images by name even where their bytes are others.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read labels that were made elsewhere.

    Importing twice changes nothing; answers that differ stand side by side.

    Example:

      tailwise import birds labels.csv --annotator ann --dry-run
      tailwise import birds cvat.zip --rename 'Milvus milvus=kite' --create-classes
    """
    from .campaign_data import run_import
    from .commands import Form

    options = {
        "format": format, "annotator": annotator, "create_classes": create_classes, "overwrite": overwrite,
        "by_name": by_name, "dry_run": dry_run,
    }  # fmt: skip
    run_import(folder, file, options, tuple(rename or ()), Form.of(as_json=as_json, quiet=quiet))


@campaign_data.command(rich_help_panel=PANEL)
def export(
    folder: Folder,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A file, or a folder for the formats with copies.")],
    format: FormatName = None,
    unlabelled: Annotated[bool, typer.Option("--unlabelled", help="Also the images without a label.")] = False,
    every_answer: Annotated[
        bool, typer.Option("--every-answer", help="One row per person and image, not what was decided.")
    ] = False,
    with_predictions: Annotated[
        bool, typer.Option("--with-predictions", help="Also the newest model's probabilities.")
    ] = False,
    split: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="A share for testing such as 0.2, or train=0.8,val=0.1,test=0.1."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the labels for other programs.

    Formats that hold the images get copies; nothing is moved.

    Example:

      tailwise export birds labels.csv
      tailwise export birds dataset --format folders --split 0.2
    """
    from .campaign_data import run_export
    from .commands import Form

    options = {"unlabelled": unlabelled, "every_answer": every_answer, "with_predictions": with_predictions}
    run_export(folder, out, format, options, split, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)


@campaign_data.command(rich_help_panel=PANEL)
def report(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to write it; default DIR/report.")] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write the story of a campaign as one HTML page.

    Example:

      tailwise report birds --open
    """
    from .campaign_data import run_report
    from .commands import Form

    run_report(folder, out, Form.of(as_json=as_json, quiet=quiet), open_browser=open_browser, dry_run=dry_run)


@campaign_data.command(rich_help_panel=PANEL)
def doctor(
    folder: Folder,
    fix: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Mend a finding that offers it. May be repeated.")
    ] = None,
    fix_all: Annotated[bool, typer.Option("--fix-all", help="Mend all that can be mended.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for faults, and mend those you name.

    The ledger, files that changed or are gone, damaged features and models, stale locks, conflicts.

    Example:

      tailwise doctor birds
      tailwise doctor birds --fix-all
    """
    from .campaign_data import run_doctor
    from .commands import Form

    run_doctor(folder, tuple(fix or ()), Form.of(as_json=as_json, quiet=quiet), fix_all=fix_all, dry_run=dry_run)


@campaign_data.command(rich_help_panel=PANEL)
def backup(
    folder: Folder,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it, a file or a folder; default DIR/backups.")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy the ledger, whole, also while people label.

    Example:

      tailwise backup birds --out birds-friday.sqlite
    """
    from .campaign_data import run_backup
    from .commands import Form

    run_backup(folder, out, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)
