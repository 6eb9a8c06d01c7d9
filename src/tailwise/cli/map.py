"""`tailwise map`: draw the map of a campaign, and write it as a table or as a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .campaign import PANEL, Folder, Json, Quiet, campaigns
from .output import Form, console_line, plain, progress_shown

if TYPE_CHECKING:
    from ..campaign.projection import Projection
    from ..campaign.service import Campaign
    from ..types import IntArray

COLUMNS = ("path", "x", "y", "class", "guess")
WAIT = 1.0  # seconds for another writer
ENDS = (".csv", ".png", ".svg", ".pdf")


@campaigns.command(name="map", rich_help_panel=PANEL)
def draw_map(
    folder: Folder,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="pca, umap (needs the extra `map`), or auto: umap where it is installed."),
    ] = "auto",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of the points (.csv), or a figure (.png, .svg, .pdf).")
    ] = None,
    redo: Annotated[bool, typer.Option("--redo", help="Draw all anew, rather than place new images on it.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Draw all images in two dimensions, alike ones close together; the page shows the same map.

    Example:

      tailwise map birds
      tailwise map birds --method pca --out map.csv
      tailwise map birds --out map.png
    """
    run_map(folder, method, out, Form.of(as_json=as_json, quiet=quiet), redo=redo)


def run_map(folder: Path, method: str, out: Path | None, form: Form, *, redo: bool = False) -> None:
    """What `tailwise map` does."""
    from ..campaign.projection import check_method
    from ..errors import BadInput

    check_method(method)
    if out is not None and out.suffix.lower() not in ENDS:
        raise BadInput(f"cannot write a map to {out}; name a file that ends in {', '.join(ENDS)}")
    with progress_shown(quiet=form is Form.QUIET) as report, _opened(folder) as campaign:
        found = campaign.map(method, redo=redo, report=report)
        if out is not None:
            _write(campaign, found, out)
    document: dict[str, Any] = {
        "images": len(found), "new": found.made, "method": found.method, "backbone": found.backbone,
        "out": None if out is None else str(out), "note": found.note,
    }  # fmt: skip
    if form is Form.JSON:
        print(json.dumps(document))
    elif form is Form.SUMMARY:
        _show(found, folder, out)


def _opened(folder: Path) -> Campaign:
    """For writing, so that the map is kept; where the page is served, which writes, for reading."""
    from ..campaign.service import Campaign
    from ..errors import LedgerBusy
    from .campaign_commands import folder_of

    home = folder_of(folder)
    try:
        return Campaign.open(home, purpose="`tailwise map`", wait=WAIT)
    except LedgerBusy:
        return Campaign.open(home, read_only=True)


def _show(found: Projection, folder: Path, out: Path | None) -> None:
    from ..inputs import many
    from .campaign_output import command

    name = "UMAP" if found.method == "umap" else "PCA"
    news = f"has {many(found.made, 'new image')}" if found.made else "is up to date"
    what = "was drawn" if found.made == len(found) else news
    lines = [f"The map of {many(len(found), 'image')} {what} ({name} of features by {found.backbone})."]
    if out is not None:
        lines.append(f"Written to {out}.")
    else:
        lines.append(f"See it on the page, `{command('label', folder)}`, or write it with --out map.png.")
    for line in [*lines, *([found.note] if found.note else [])]:
        console_line(plain(line))


def _write(campaign: Campaign, found: Projection, out: Path) -> None:
    from ..campaign.projection import point_values

    values = point_values(campaign.ledger, found.images)
    if out.suffix.lower() == ".csv":
        _write_table(campaign, found, values.classes, out)
    else:
        _write_figure(campaign, found, values.classes, out)


def _write_table(campaign: Campaign, found: Projection, classes: IntArray, out: Path) -> None:
    from ..campaign.classes import list_classes
    from ..campaign.images import list_images
    from ..files import csv_bytes, write_whole

    names = {0: "", -1: "other", **{one.id: one.name for one in list_classes(campaign.ledger, retired=True)}}
    paths = {image.id: image.path for image in list_images(campaign.ledger)}
    guesses = _guesses(campaign, found.images)
    rows = [
        (paths[image], f"{x:.6f}", f"{y:.6f}", names[cls], names[guesses.get(image, 0)])
        for image, (x, y), cls in zip(found.images.tolist(), found.xy.tolist(), classes.tolist(), strict=True)
    ]
    write_whole(out.expanduser(), csv_bytes(COLUMNS, rows))


def _guesses(campaign: Campaign, images: IntArray) -> dict[int, int]:
    """The newest model's class of each image; empty without a model."""
    from ..campaign.models import predict
    from ..campaign.rounds import list_models

    if not list_models(campaign.ledger):
        return {}
    predicted = predict(campaign.ledger, images)
    return dict(zip(predicted.images.tolist(), predicted.best()[0].tolist(), strict=True))


def _write_figure(campaign: Campaign, found: Projection, classes: IntArray, out: Path) -> None:
    import numpy as np

    from ..campaign.classes import list_classes
    from ..report.figures import write_figure
    from ..report.map import map_figure

    known = list_classes(campaign.ledger, retired=True)
    place = {one.id: at for at, one in enumerate(known)}
    places = np.array([place.get(cls, -1) for cls in classes.tolist()], dtype=np.int64)
    figure = map_figure(found, places, [one.name for one in known], campaign.name)
    write_figure(figure, out.expanduser())
