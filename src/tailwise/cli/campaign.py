"""Options and help of the commands of a campaign; what they do is in campaign_commands and data_commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import Form

PANEL = "Campaigns"
campaigns = typer.Typer()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The campaign's folder.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be done.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, and no more than the bare answer.")]


@campaigns.command(rich_help_panel=PANEL)
def quickstart(
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Where to put it; made if it is absent, never overwritten.")
    ] = Path("tailwise-quickstart"),
    port: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, max=65535, help="Default 8765, or the next that is free; 0 is any."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Try it: draw a small folder of shapes, some of them rare, and label them on the page. Ctrl-C ends it.

    Example:

      tailwise quickstart
      tailwise quickstart --folder shapes --no-open
    """
    from .quickstart import run_quickstart

    run_quickstart(folder, {"port": port, "open_browser": open_browser}, Form.of(as_json=as_json, quiet=quiet))


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
        typer.Option(metavar="NAME", help="How images become features: auto, simple, efficientnet-lite0, owner/name."),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Make a campaign over a folder of images; repeat it to add more.

    What is known stays as it is; new, changed, missing and unusable files are listed. The images are never touched.

    Example:

      tailwise init birds --images photos --classes owl,kite,heron
      tailwise init birds --classes-file classes.txt --labels labels.csv --images photos
      tailwise init birds
    """
    from .campaign_commands import Init, run_init

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
    audit: Annotated[
        float | None,
        typer.Option(metavar="SHARE", min=0, max=0.5, help="Draw this share at random, for `tailwise audit`: 0.1."),
    ] = None,
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

    wishes = {
        "budget": budget, "strategy": strategy, "balance": balance, "calibration": calibration, "seed": seed,
        "overlap": overlap, "allow_unfinished": allow_unfinished, "skipped": skipped, "dry_run": dry_run,
        "audit": audit,
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
    from .campaign_commands import run_label, run_label_dry

    options = {
        "host": host, "port": port, "with_token": token, "new_token": new_token, "overlap": overlap, "blind": blind,
        "other_names": tuple(host_name or ()), "ml_backend": ml_backend, "open_browser": open_browser,
    }  # fmt: skip
    form = Form.of(as_json=as_json, quiet=quiet)
    if dry_run:
        run_label_dry(folder, options, form)
    else:
        run_label(folder, options, form)


connections = typer.Typer(help="Connect a campaign with a labelling tool that runs already.", no_args_is_help=True)
campaigns.add_typer(connections, name="connect", rich_help_panel=PANEL)
AnnotatorMap = Annotated[
    str,
    typer.Option(metavar="PAIRS", help="Which account is which annotator: 1=anna,2=ben, or a file with such pairs."),
]


@connections.command("label-studio")
def connect_label_studio(
    url: Annotated[str, typer.Argument(metavar="URL", help="Where Label Studio runs.")],
    project: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="The project, as in its address.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The campaign's folder; default: this one.")] = Path(),
    api_key: Annotated[
        str,
        typer.Option(
            metavar="TOKEN", envvar="LABEL_STUDIO_API_KEY", help="A personal access token.", show_default=False
        ),
    ] = "",
    server: Annotated[
        str, typer.Option(metavar="URL", help="Where Label Studio reaches `tailwise label --ml-backend`.")
    ] = "http://127.0.0.1:8765",
    annotator_map: AnnotatorMap = "",
    write_config: Annotated[
        bool, typer.Option("--write-config", help="Replace a labelling configuration that does not fit the classes.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Connect a project of Label Studio with a campaign that `tailwise label DIR --ml-backend` serves.

    Adds the ML backend and the webhook, checks the labelling configuration, and puts the open round first. Again after
    a round: brings it up to date.

    Example:

      tailwise connect label-studio http://localhost:8080 birds --project 3
    """
    from .data_commands import run_connect

    options = {"annotator_map": annotator_map, "write_config": write_config}
    run_connect(folder, url, project, api_key, server, options, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
def status(folder: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say how a campaign stands: images, labels, round, people.

    Example:

      tailwise status birds
    """
    from .campaign_commands import run_status

    run_status(folder, Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
def advise(folder: Folder, as_json: Json = False, quiet: Quiet = False) -> None:
    """Say whether another round is worth it, with the evidence.

    Example:

      tailwise advise birds
    """
    from .campaign_commands import run_advise

    run_advise(folder, Form.of(as_json=as_json, quiet=quiet))


FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        metavar="NAME",
        help="csv, parquet, folders, huggingface, label-studio, cvat-imagenet, cvat-xml, fiftyone, coco or datumaro; "
        "default: guessed from the file.",
    ),
]


@campaigns.command(name="import", rich_help_panel=PANEL)
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
    annotator_map: AnnotatorMap = "",
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
    from .data_commands import run_import

    options = {
        "format": format, "annotator": annotator, "create_classes": create_classes, "overwrite": overwrite,
        "by_name": by_name, "annotator_map": annotator_map, "dry_run": dry_run,
    }  # fmt: skip
    run_import(folder, file, options, tuple(rename or ()), Form.of(as_json=as_json, quiet=quiet))


@campaigns.command(rich_help_panel=PANEL)
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
    of_round: Annotated[
        str | None, typer.Option("--round", metavar="N", help="Only the images of this round; 'open': of the open one.")
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
      tailwise export birds tasks.json --format label-studio --round open
    """
    from .data_commands import run_export

    options: dict[str, object] = {
        "round": int(of_round) if of_round and of_round.isdecimal() else of_round,
        "unlabelled": unlabelled,
        "every_answer": every_answer,
        "with_predictions": with_predictions,
    }
    run_export(folder, out, format, options, split, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)


@campaigns.command(rich_help_panel=PANEL)
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
    from .data_commands import run_report

    run_report(folder, out, Form.of(as_json=as_json, quiet=quiet), open_browser=open_browser, dry_run=dry_run)


@campaigns.command(rich_help_panel=PANEL)
def doctor(
    folder: Folder,
    fix: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Fix a finding that offers it. May be repeated.")
    ] = None,
    fix_all: Annotated[bool, typer.Option("--fix-all", help="Fix everything that can be fixed.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Look for faults, and fix those you name.

    The ledger, files that changed or are missing, damaged features and models, stale locks, conflicts.

    Example:

      tailwise doctor birds
      tailwise doctor birds --fix-all
    """
    from .data_commands import run_doctor

    run_doctor(folder, tuple(fix or ()), Form.of(as_json=as_json, quiet=quiet), fix_all=fix_all, dry_run=dry_run)


@campaigns.command(rich_help_panel=PANEL)
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
    from .data_commands import run_backup

    run_backup(folder, out, Form.of(as_json=as_json, quiet=quiet), dry_run=dry_run)
