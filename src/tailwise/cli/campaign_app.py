"""The commands of a campaign that people use round after round: init, next, label, status, classes, advise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Campaigns"
campaigns = typer.Typer()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The campaign's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and no more than the bare answer.")]


@campaigns.command(rich_help_panel=PANEL)
def init(
    folder: Folder,
    images: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Where the images are; they are read, never touched. May be repeated."),
    ] = None,
    classes: Annotated[str | None, typer.Option(metavar="NAMES", help="The classes, such as owl,kite,heron.")] = None,
    classes_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The same from a text file, one name per line.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels that are there already, in any format of `import`.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How images become features: auto, simple or efficientnet-lite0."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a campaign over a folder of images; repeat it to add more.

    What is known stays as it is; new, changed, gone and unusable files are told. The images are never touched.

    Example:

      tailwise init birds --images photos --classes owl,kite,heron
      tailwise init birds --classes-file classes.txt --labels labels.csv --images photos
      tailwise init birds
    """
    from .campaign_commands import Init, run_init
    from .commands import Form

    asked = Init(folder, tuple(images or ()), classes, classes_file, labels, backbone, dry_run)
    run_init(asked, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(name="next", rich_help_panel=PANEL)
def next_(
    folder: Folder,
    budget: Annotated[
        int | None, typer.Option("--budget", "-b", min=1, help="How many images; default 100, or what is left.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="One of `tailwise strategies`; default boundary.")] = None,
    balance: Annotated[
        str | None, typer.Option(help="λ as a number, auto, paper, none, or a wish such as 'within 5%'; default auto.")
    ] = None,
    calibration: Annotated[
        str | None, typer.Option(metavar="KIND", help="Of the model's probabilities: temperature (default) or none.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Equal labels and seeds, equal rounds; default the number of the round.")
    ] = None,
    overlap: Annotated[
        int | None, typer.Option(metavar="PEOPLE", min=1, help="How many people answer each image; default 1.")
    ] = None,
    allow_unfinished: Annotated[
        bool, typer.Option("--allow-unfinished", help="Also when the last round waits for answers; it ends then.")
    ] = False,
    skipped: Annotated[
        bool, typer.Option("--skipped", help="Choose also from the images that people have skipped.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train on the labels and choose the images worth labelling next.

    Example:

      tailwise next birds --budget 100
      tailwise next birds -b 50 --strategy margin --balance 'within 5%' --dry-run
    """
    from .campaign_commands import run_next
    from .commands import Form

    wishes = {
        "budget": budget, "strategy": strategy, "balance": balance, "calibration": calibration, "seed": seed,
        "overlap": overlap, "allow_unfinished": allow_unfinished, "skipped": skipped, "dry_run": dry_run,
    }  # fmt: skip
    run_next(folder, wishes, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
def label(
    folder: Folder,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Where to listen; 0.0.0.0 lets others in the network in.")
    ] = ("127.0.0.1"),
    port: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, max=65535, help="Default 8765, or the next that is free; 0 is any."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    blind: Annotated[bool, typer.Option("--blind", help="Hide the model's guesses.")] = False,
    overlap: Annotated[
        int | None,
        typer.Option(metavar="PEOPLE", min=1, help="How many people answer each image, from the next round on."),
    ] = None,
    ml_backend: Annotated[bool, typer.Option("--ml-backend", help="Also serve Label Studio as its ML backend.")] = (
        False
    ),
    token: Annotated[bool, typer.Option("--token/--no-token", help="Ask for the secret in the link.")] = True,
    new_token: Annotated[bool, typer.Option("--new-token", help="Make a new secret; old links end.")] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name by which people reach this machine. May be repeated."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Open the labelling page; it runs until Ctrl-C.

    Every answer is on the disk before the page calls it saved.

    Example:

      tailwise label birds
      tailwise label birds --host 0.0.0.0 --no-open
    """
    from .campaign_commands import run_label, run_label_rehearsed
    from .commands import Form

    options = {
        "host": host, "port": port, "with_token": token, "new_token": new_token, "overlap": overlap, "blind": blind,
        "other_names": tuple(host_name or ()), "ml_backend": ml_backend, "open_browser": open_browser,
    }  # fmt: skip
    form = Form.of(as_json=as_json, quiet=quiet)
    if dry_run:
        run_label_rehearsed(folder, options, form)
    else:
        run_label(folder, options, form)


@campaigns.command(rich_help_panel=PANEL)
def status(folder: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say how a campaign stands: images, labels, round, people.

    Example:

      tailwise status birds
    """
    from .campaign_commands import run_status
    from .commands import Form

    run_status(folder, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
def advise(folder: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say whether another round is worth it, with the evidence.

    Example:

      tailwise advise birds
    """
    from .campaign_commands import run_advise
    from .commands import Form

    run_advise(folder, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
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
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List the classes, or change them; no label is ever lost.

    All changes are made, or none.

    Example:

      tailwise classes birds
      tailwise classes birds --add heron --rename 'kite=red kite' --retire owl
    """
    from .campaign_data import ClassChanges, run_classes
    from .commands import Form

    changes = ClassChanges(tuple(add or ()), tuple(rename or ()), tuple(retire or ()), tuple(restore or ()))
    run_classes(folder, changes, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)
