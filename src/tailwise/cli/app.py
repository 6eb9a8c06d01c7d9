"""The program: all commands in the order of the help; select, path, strategies and demo with their options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .._version import __version__
from .bench import bench
from .campaign import campaigns
from .output import Form
from .predict import predicting

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

Proba = Annotated[
    str,
    typer.Argument(
        help="Softmax of the pool, one row per image: .npy, .parquet, a folder of such or of a TopK, s3://…."
    ),
]
Budget = Annotated[int, typer.Option("--budget", "-b", min=1, help="How many images to pick.")]
Counts = Annotated[
    str | None, typer.Option(help="Labels per class so far: .csv, .npy, .json, or a list such as 5,3,0.")
]
SCORE = "entropy, margin, least-confidence, or a .npy with one number per image, larger = better."
Score = Annotated[str, typer.Option(help=SCORE)]
Wanted = Annotated[
    str | None,
    typer.Option("--target", help="Wanted counts of this batch: a file, a list, or 'paper' (Eq. 4)."),
]
Shares = Annotated[str | None, typer.Option(help="Wanted shares of the labelled set: a file or a list.")]
AtLeast = Annotated[str | None, typer.Option(help="Fewest per class in this batch: 5, or a list, or 7=41,8=3.")]
AtMost = Annotated[str | None, typer.Option(help="Most per class in this batch: 30, or a list, or 0=10.")]
Seed = Annotated[int, typer.Option(min=0, help="Equal seeds, equal picks.")]
Engine = Annotated[
    str,
    typer.Option(help="Where to solve: local; ray (starts a cluster here); ray=HOST:PORT, ray=ray://…, ray=auto join."),
]
Shards = Annotated[int | None, typer.Option(min=1, help="Parts of the rows on a cluster; default: one per node.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]


@app.callback(invoke_without_command=True)
def tailwise(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    """Options of the program itself."""
    if version:
        print(f"tailwise {__version__}")
        raise typer.Exit


@app.command(rich_help_panel=SELECT)
def select(
    proba: Proba,
    budget: Budget,
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
    gap: Annotated[float, typer.Option(min=0, help="Relative gap to stop at.")] = 1e-4,
    time_limit: Annotated[float | None, typer.Option(min=0, help="Seconds; then the best batch so far.")] = None,
    logits: Annotated[bool, typer.Option("--logits", help="The file holds logits, not probabilities.")] = False,
    seed: Seed = 0,
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
      tailwise select s3://bucket/shards --budget 100000 --engine ray
    """
    from . import select as commands

    request = commands.Request(
        proba, budget, counts, score, target, shares, at_least, at_most, seed, engine, shards,
        strategy, embeddings, labelled_embeddings, logits,
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
        print(json.dumps({"strategies": [asdict(row) for row in strategy_rows()], "scores": scores}))
        return
    from .select_output import show_strategies

    show_strategies()


# Here, so that help shows them before the experiments.
app.registered_commands += [*predicting.registered_commands, *campaigns.registered_commands]


@app.command(rich_help_panel=EXPERIMENTS)
def demo(
    out: Annotated[Path, typer.Option(help="Folder of the results; made if it is absent.")] = Path("tailwise-demo"),
    seeds: Annotated[str | None, typer.Option(help="Other seeds than 0,1,2.")] = None,
    quiet: Quiet = False,
) -> None:
    """Run a whole experiment on long-tailed digits: table of gains, label savings, report. A minute, needs no files.

    Example:

      tailwise demo --out tailwise-demo
    """
    from .bench_commands import run_demo

    run_demo(out, seeds, quiet=quiet)


app.add_typer(bench, name="bench", rich_help_panel=EXPERIMENTS)
