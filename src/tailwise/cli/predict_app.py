"""`tailwise predict`: its arguments and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Select"
predicting = typer.Typer()


@predicting.command(rich_help_panel=PANEL)
def predict(
    images: Annotated[
        Path, typer.Argument(help="A folder of images, a .parquet file with them, or a folder of such files.")
    ],
    learner: Annotated[
        Path, typer.Option(help="A folder that a model's save() wrote, or a campaign: its newest model is taken.")
    ],
    out: Annotated[Path, typer.Option(help="Folder of the shards; made if it is absent.")],
    engine: Annotated[
        str, typer.Option(metavar="local|ray|ray=ADDRESS", help="This process, or a Ray cluster: started, or joined.")
    ] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Default: one per core.")] = None,
    shard_size: Annotated[int, typer.Option(min=1, help="Images of a folder that make one shard.")] = 10_000,
    dtype: Annotated[str, typer.Option(metavar="float16|float32", help="Of the probabilities.")] = "float16",
    embeddings: Annotated[bool, typer.Option("--embeddings", help="Write what goes into the last layer, too.")] = False,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What made a head's features: simple, efficientnet-lite0, module:factory."),
    ] = None,
    size: Annotated[int | None, typer.Option(min=1, help="Pixels of a side that a net was trained on.")] = None,
    column: Annotated[str | None, typer.Option(metavar="NAME", help="The column of images in Parquet.")] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where paths in Parquet start; default: beside it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Ask a learner about a pool: one shard of probabilities per shard of images, each with a checksum.

    What is done is not done again: stop it at any time and repeat it. Images that cannot be read are listed with why.

    Example:

      tailwise predict photos --learner birds --out shards
      tailwise predict train.parquet --learner model --out shards --engine ray --embeddings
    """
    from .predict import Asked, run_predict
    from .select import Form

    choices = {
        "shard_size": shard_size, "dtype": dtype, "embeddings": embeddings, "backbone": backbone, "size": size,
        "column": column, "root": root,
    }  # fmt: skip
    run_predict(Asked(images, learner, out, engine, workers, choices, dry_run), Form.of(as_json=as_json, quiet=quiet))
