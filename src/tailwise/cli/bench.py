"""Options and help of `tailwise bench`; what the commands do is in bench_commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .bench_commands import Wanted


bench = typer.Typer(help="Compare strategies: run experiments, go on after a crash, report.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(metavar="FILE|PRESET", help="A .toml file, or a name from `bench list`.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the results; default tailwise-runs/NAME.")]
Data = Annotated[Path | None, typer.Option(help="Where the pool's files are.")]
Seeds = Annotated[str | None, typer.Option(help="Other seeds than the file's, such as 0,1,2.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


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
    from .bench_commands import Tracking, run_bench, tasks_of, wanted_of

    run_bench(
        wanted_of(source, out, data, seeds, to_run=True), tasks_of(engine, processes), Tracking(tensorboard, mlflow),
        adopt=adopt, report=report, as_json=as_json, quiet=quiet,
    )  # fmt: skip


@bench.command(name="list")
def listed(as_json: Json = False) -> None:
    """List the presets.

    Example:

      tailwise bench list
    """
    from .bench_commands import list_presets

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
    from .bench_commands import show_status

    show_status(_asked(source, out, data, seeds), as_json=as_json)


@bench.command()
def report(source: Source, out: Out = None, data: Data = None, seeds: Seeds = None, as_json: Json = False) -> None:
    """Draw the figures and tables of what is there, without training anything and without the pool.

    Example:

      tailwise bench report demo-digits
    """
    from .bench_commands import report_bench

    report_bench(_asked(source, out, data, seeds), as_json=as_json)


def _asked(source: str, out: Path | None, data: Path | None, seeds: str | None) -> Wanted:
    from .bench_commands import wanted_of

    return wanted_of(source, out, data, seeds)
