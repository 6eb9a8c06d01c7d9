"""`tailwise predict`: a learner's probabilities for a pool, as shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BadInput
from .output import Form, WrongUsage, plain, progress_shown, shell_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..inference.pipeline import Plan, Predicted
    from ..pools.pool import BadImage

PANEL = "Select"
MOST_BAD = 5  # images that are named in the summary; all are in the shards' JSON
USUAL_BUDGET = 1000

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
        Path | None, typer.Option(metavar="FOLDER", help="Where paths in Parquet start; default: next to it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would be done.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Predict a pool with a learner: one shard of probabilities per shard of images, each with a checksum.

    What is done is not done again: stop it at any time and repeat it. Images that cannot be read are listed.

    Example:

      tailwise predict photos --learner birds --out shards
      tailwise predict train.parquet --learner model --out shards --engine ray --embeddings
    """
    from ..inference.pipeline import plan_pool, predict_pool
    from .output import Form

    _check(dtype, engine)
    form = Form.of(as_json=as_json, quiet=quiet)
    with progress_shown(quiet=form is not Form.SUMMARY) as report:
        report(0.0, f"looking at {images}")
        plan = plan_pool(
            images, learner, out, shard_size=shard_size, dtype=dtype, embeddings=embeddings, backbone=backbone,
            size=size, column=column, root=root,
        )  # fmt: skip
        done = None if dry_run else predict_pool(plan, engine=engine, workers=workers, report=report)
    if done is None:
        _show_plan(plan, form)
    elif form is Form.JSON:
        print(json.dumps(_facts(done)))
    elif form is Form.SUMMARY:
        _show_done(done, out)


def _check(dtype: str, engine: str) -> None:
    from ..inference.pipeline import DTYPES, LOCAL
    from ..ray.cluster import address_of, ray_module

    if dtype not in DTYPES:
        raise WrongUsage(f"--dtype is {dtype!r}; give {' or '.join(DTYPES)}")
    if engine == LOCAL:
        return
    try:
        address_of(engine)
    except BadInput as error:
        raise WrongUsage(f"--engine: {error}, or {LOCAL!r}") from error
    ray_module()  # a missing extra is reported at once


def _show_plan(plan: Plan, form: Form) -> None:
    facts = {
        "images": plan.images, "shards": len(plan.shards), "done": len(plan.kept), "classes": plan.job.learner.classes,
        "bytes": plan.bytes, "out": str(plan.store.folder), "dry_run": True,
    }  # fmt: skip
    if form is Form.JSON:
        print(json.dumps(facts))
    elif form is Form.SUMMARY:
        from rich.console import Console

        console = Console(highlight=False)
        shards = f"{_counted(len(plan.shards), 'shard')}, {len(plan.kept):,} of them done"
        size = f"about {plan.bytes / 1e6:,.1f} MB in {plain(str(plan.store.folder))}"
        classes = _counted(plan.job.learner.classes, "class", "es")
        console.print(f"[bold]{plan.images:,} images[/] in {shards}; {classes}, {size}", soft_wrap=True)
        console.print("Nothing was written: this was a dry run.")


def _facts(done: Predicted) -> dict[str, object]:
    return {
        "out": str(done.folder), "rows": done.manifest.rows, "classes": done.manifest.classes,
        "shards": len(done.shards), "computed": done.computed, "dtype": done.manifest.dtype,
        "bad": [{"name": image.path, "reason": image.reason} for image in _bad(done)], "seconds": done.seconds,
    }  # fmt: skip


def _bad(done: Predicted) -> list[BadImage]:
    return [image for shard in done.shards for image in shard.bad]


def _show_done(done: Predicted, out: Path) -> None:
    from rich.console import Console

    console, rows = Console(highlight=False), done.manifest.rows
    there = len(done.shards) - done.computed
    shards = f"{_counted(len(done.shards), 'shard')}{f', {there:,} of them done before' if there else ''}"
    console.print(f"[bold]{rows:,} images × {done.manifest.classes:,} classes[/] in {shards}; {done.seconds:,.1f} s")
    _show_bad(_bad(done), console)
    shards_folder, budget = shell_line(str(out)), min(USUAL_BUDGET, max(1, rows // 10))
    console.print(f"Next: tailwise select {plain(shards_folder)} --budget {budget}", soft_wrap=True)


def _show_bad(bad: list[BadImage], console: Console) -> None:
    if not bad:
        return
    console.print(f"[yellow]{_counted(len(bad), 'image')} could not be used[/], and got no row:")
    for image in bad[:MOST_BAD]:
        console.print(f"  {plain(image.path)}: {plain(image.reason)}", soft_wrap=True)
    if len(bad) > MOST_BAD:
        console.print(f"  … and {len(bad) - MOST_BAD:,} more, in the shards' .json")


def _counted(number: int, what: str, plural: str = "s") -> str:
    """A number with its noun.

    >>> _counted(1, "shard"), _counted(1200, "shard"), _counted(2, "class", "es")
    ('1 shard', '1,200 shards', '2 classes')
    """
    return f"{number:,} {what}{'' if number == 1 else plural}"
