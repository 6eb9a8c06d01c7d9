"""The program: options and help of all commands but those of campaigns, in the order of the help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import __version__
from ..errors import BadInput
from . import find as _find  # noqa: F401 - adds its command
from . import map as _map  # noqa: F401 - adds its command
from . import review as _review  # noqa: F401 - adds its command
from .audit import audits
from .campaign import campaigns
from .classes import class_commands
from .output import (
    SCORE,
    AtLeast,
    AtMost,
    Budget,
    BudgetOrCost,
    ClassNames,
    Cost,
    Counts,
    Engine,
    Exclude,
    Form,
    Groups,
    Ids,
    Include,
    Json,
    PerGroup,
    Proba,
    Quiet,
    Score,
    Seed,
    Shards,
    Shares,
    Threads,
    Wanted,
    WrongUsage,
    plain,
    progress_shown,
    say_what_the_demo_shows,
    shell_line,
)  # fmt: skip

if TYPE_CHECKING:
    from rich.console import Console

    from ..inference.pipeline import Plan, Predicted
    from ..pools.pool import BadImage

MOST_BAD, USUAL_BUDGET = 5, 1000  # after predict: images named (all are in the shards' JSON), the budget proposed

HELP = """Pick the images worth labelling next: informative, class-balanced, with a certificate.

Example:

  tailwise select proba.npy --budget 500 --counts counts.csv --out picks.csv

  tailwise init birds --images photos --classes owl,kite,heron

Exit codes:

  0  done
  2  wrong usage
  3  bad input or file
  4  target or budget cannot be met
  5  a missing extra
  130  interrupted
  1  anything else; TAILWISE_DEBUG=1 shows the traceback
"""

app = typer.Typer(help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
SELECT, EXPERIMENTS = "Select", "Experiments"


@app.callback(invoke_without_command=True)
def tailwise(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Options of the program itself."""
    if version:
        print("tailwise", __version__)
        raise typer.Exit


@app.command(rich_help_panel=SELECT)
def select(
    proba: Proba,
    budget: BudgetOrCost,
    counts: Counts = None,
    embeddings: Annotated[
        str | None, typer.Option(help="Features of the pool, one row per image: .npy, .parquet, a folder of such.")
    ] = None,
    labelled_embeddings: Annotated[str | None, typer.Option(help="The same of the labelled images.")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="See `tailwise strategies`; default: boundary with embeddings, else base.")
    ] = None,
    score: Annotated[str | None, typer.Option(help=f"The paper's program with a score: {SCORE}")] = None,
    balance: Annotated[
        str, typer.Option(help="auto, λ as a number, paper, or a wish such as 'within 5%'; 0: none.")
    ] = "auto",
    target: Wanted = None,
    shares: Shares = None,
    at_least: AtLeast = None,
    at_most: AtMost = None,
    ids: Ids = None,
    class_names: ClassNames = None,
    exclude: Exclude = None,
    include: Include = None,
    groups: Groups = None,
    per_group: PerGroup = 1,
    cost: Cost = None,
    gap: Annotated[float, typer.Option(min=0, help="Relative gap to stop at.")] = 1e-4,
    time_limit: Annotated[float | None, typer.Option(min=0, help="Seconds; then the best batch so far.")] = None,
    logits: Annotated[bool, typer.Option("--logits", help="The file holds logits, not probabilities.")] = False,
    seed: Seed = 0,
    threads: Threads = None,
    engine: Engine = "local",
    shards: Shards = None,
    out: Annotated[Path | None, typer.Option(help="Write the picks to .csv, .parquet or .npy.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Pick a batch and say how good it is.

    For example:

      tailwise select proba.npy --budget 500 --counts counts.csv --out picks.csv
      tailwise select proba.npy -b 500 --embeddings pool.npy --labelled-embeddings labelled.npy
      tailwise select proba.npy -b 500 --score entropy --balance 'within 5%' --at-least 7=20
      tailwise select proba.npy -b 500 --ids names.txt --exclude labelled.txt --groups bursts.txt --per-group 2
      tailwise select s3://bucket/shards --budget 100000 --engine ray
    """
    from . import select as commands

    request = commands.Request(
        proba, budget, counts, score, target, shares, at_least, at_most, seed, engine, shards,
        strategy, embeddings, labelled_embeddings, logits, ids, class_names, exclude, include, groups, per_group, cost,
        threads,
    )  # fmt: skip
    solving = {"balance": balance, "gap": gap, "time_limit": time_limit}
    commands.select(request, solving, out, Form.of(as_json=as_json, quiet=quiet))


@app.command(rich_help_panel=SELECT)
def path(
    proba: Proba,
    budget: Budget,
    counts: Counts = None,
    score: Score = "entropy",
    target: Wanted = None,
    shares: Shares = None,
    at_least: AtLeast = None,
    at_most: AtMost = None,
    lams: Annotated[str | None, typer.Option(help="Values of λ, such as 0.1,0.5,1; default: 30 steps.")] = None,
    seed: Seed = 0,
    engine: Engine = "local",
    shards: Shards = None,
    out: Annotated[Path | None, typer.Option(help="Draw it to .png, .svg or .pdf, or keep it as .csv.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what balance costs, λ by λ.

    Example:

      tailwise path proba.npy --budget 500 --counts counts.csv --out path.png
    """
    from . import select as commands

    request = commands.Request(proba, budget, counts, score, target, shares, at_least, at_most, seed, engine, shards)
    commands.path(request, lams, out, Form.of(as_json=as_json, quiet=quiet))


@app.command(rich_help_panel=SELECT)
def strategies(as_json: Json = False) -> None:
    """List the strategies and scores, what they need and what can be set.

    Example:

      tailwise strategies --json
    """
    if as_json:
        from dataclasses import asdict

        from ..report.tables import score_rows, strategy_rows

        scores = [{"name": name, "what": what} for name, what in score_rows()]
        print(json.dumps({"strategies": [asdict(row) for row in strategy_rows(plugins=True)], "scores": scores}))
        return
    from .select_output import show_strategies

    show_strategies()


@app.command(rich_help_panel=SELECT)
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
        typer.Option(metavar="NAME", help="What made a head's features: simple, module:factory, owner/name, …"),
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


for own in (campaigns, class_commands, audits):  # here, so that help shows them before the experiments
    app.registered_commands += own.registered_commands
    app.registered_groups += own.registered_groups


@app.command(rich_help_panel=EXPERIMENTS)
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the results; made if it is absent.")] = Path("tailwise-demo"),
    seeds: Annotated[str | None, typer.Option(help="Other seeds than 0 to 7, such as 0,1,2.")] = None,
    quiet: Quiet = False,
) -> None:
    """Run a whole experiment on long-tailed digits: table of gains, label savings, report. A minute, needs no files.

    Example:

      tailwise demo --out tailwise-demo
    """
    say_what_the_demo_shows(quiet=quiet)
    from .bench import run_demo

    run_demo(out, seeds, quiet=quiet)


bench = typer.Typer(help="Compare strategies: run experiments, go on after a crash, report.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="FILE|PRESET", help="A .toml file, or a name from `bench list`.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the results; default tailwise-runs/NAME.")]
Data = Annotated[Path | None, typer.Option(help="Where the pool's files are.")]
Seeds = Annotated[str | None, typer.Option(help="Other seeds than the file's, such as 0,1,2.")]


@bench.command()
def run(
    source: Source,
    out: Out = None,
    data: Data = None,
    seeds: Seeds = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Default: one per core, one thread each.")] = None,
    engine: Annotated[
        str, typer.Option(metavar="local|ray|ray=ADDRESS", help="Processes of this machine, or tasks on Ray.")
    ] = "local",
    tensorboard: Annotated[Path | None, typer.Option(help="Also log to this folder for TensorBoard.")] = None,
    mlflow: Annotated[str | None, typer.Option(help="Also log to this MLflow tracking URI.")] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Go on with results of an older version, which did not record their data.")
    ] = False,
    report: Annotated[bool, typer.Option(help="Write the report at the end.")] = True,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
) -> None:
    """Run an experiment, or go on with it: what is done is not done again.

    Example:

      tailwise bench run demo-digits
      tailwise bench run cifar10-features --data cifar10_features.npz --seeds 0,1
      tailwise bench run cifar10-features --engine ray=10.0.0.5:6379 --out /shared/cifar10
    """
    from .bench import Tracking, read_options, run_bench, tasks_of

    run_bench(
        read_options(source, out, data, seeds, to_run=True), tasks_of(engine, processes), Tracking(tensorboard, mlflow),
        adopt=adopt, report=report, as_json=as_json, quiet=quiet,
    )  # fmt: skip


@bench.command(name="list")
def listed(as_json: Json = False) -> None:
    """List the presets.

    Example:

      tailwise bench list
    """
    from .bench import list_presets

    list_presets(as_json=as_json)


@bench.command()
def show(source: Source) -> None:
    """Print an experiment as TOML with every default written out; a start for a file of your own.

    Example:

      tailwise bench show demo-digits > mine.toml
    """
    from ..experiments.experiment import read_experiment

    print(read_experiment(source, to_run=False).to_toml(), end="")


@bench.command()
def status(source: Source, out: Out = None, data: Data = None, seeds: Seeds = None, as_json: Json = False) -> None:
    """Say how far an experiment is.

    Example:

      tailwise bench status demo-digits
    """
    from .bench import read_options, show_status

    show_status(read_options(source, out, data, seeds), as_json=as_json)


@bench.command()
def report(source: Source, out: Out = None, data: Data = None, seeds: Seeds = None, as_json: Json = False) -> None:
    """Draw the figures and tables of what is there, without training anything and without the pool.

    Example:

      tailwise bench report demo-digits
    """
    from .bench import read_options, report_bench

    report_bench(read_options(source, out, data, seeds), as_json=as_json)


app.add_typer(bench, name="bench", rich_help_panel=EXPERIMENTS)


# Terminal output of `predict`.


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

        from ..inputs import many

        console = Console(highlight=False)
        shards = f"{many(len(plan.shards), 'shard')}, {len(plan.kept):,} of them done"
        size = f"about {plan.bytes / 1e6:,.1f} MB in {plain(str(plan.store.folder))}"
        classes = many(plan.job.learner.classes, "class", "classes")
        console.print(f"[bold]{plan.images:,} images[/] in {shards}; {classes}, {size}", soft_wrap=True)
        console.print("Nothing was written: this was a dry run.")


def _facts(done: Predicted) -> dict[str, object]:
    bad = [{"name": image.path, "reason": image.reason} for shard in done.shards for image in shard.bad]
    return {
        "out": str(done.folder), "rows": done.manifest.rows, "classes": done.manifest.classes,
        "shards": len(done.shards), "computed": done.computed, "dtype": done.manifest.dtype,
        "bad": bad, "seconds": done.seconds,
    }  # fmt: skip


def _show_done(done: Predicted, out: Path) -> None:
    from rich.console import Console

    from ..inputs import many

    console, rows = Console(highlight=False), done.manifest.rows
    there = len(done.shards) - done.computed
    shards = f"{many(len(done.shards), 'shard')}{f', {there:,} of them done before' if there else ''}"
    console.print(f"[bold]{rows:,} images × {done.manifest.classes:,} classes[/] in {shards}; {done.seconds:,.1f} s")
    _show_bad([image for shard in done.shards for image in shard.bad], console)
    shards_folder, budget = shell_line(str(out)), min(USUAL_BUDGET, max(1, rows // 10))
    console.print(f"Next: tailwise select {plain(shards_folder)} --budget {budget}", soft_wrap=True)


def _show_bad(bad: list[BadImage], console: Console) -> None:
    from ..inputs import many

    if not bad:
        return
    console.print(f"[yellow]{many(len(bad), 'image')} could not be used[/], and got no row:")
    for image in bad[:MOST_BAD]:
        console.print(f"  {plain(image.path)}: {plain(image.reason)}", soft_wrap=True)
    if len(bad) > MOST_BAD:
        console.print(f"  … and {len(bad) - MOST_BAD:,} more, in the shards' .json")
