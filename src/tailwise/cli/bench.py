"""What `tailwise bench` does: read the experiment, call the library, print in the form that was asked for.

`tailwise demo`: the whole loop on long-tailed digits, from an embedded preset to a report.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console

from ..errors import BadInput
from ..experiments.config import Experiment, presets, read_experiment
from ..experiments.runner import RunTasks, Watcher, collect, keep_results, on_processes, run_experiment, status_of
from ..experiments.store import Store, identify, recorded_content
from ..experiments.trial_run import kept_sweeps
from ..experiments.trials import Row
from .bench_output import failures_shown, note_shown, presets_shown, progress_shown, status_shown, summary_shown
from .output import FAILED, WrongUsage
from .select_output import console_line, plain

RUNS = Path("tailwise-runs")


@dataclass(frozen=True, slots=True)
class Asked:
    """An experiment and where its results are."""

    experiment: Experiment
    store: Store


@dataclass(frozen=True, slots=True)
class Tracking:
    """Where else the rows go."""

    tensorboard: Path | None = None
    mlflow: str | None = None

    def watchers(self) -> tuple[Watcher, ...]:
        """One for each."""
        from ..experiments.runner import Mlflow, TensorBoard

        wanted: list[Watcher] = [TensorBoard(str(self.tensorboard))] if self.tensorboard else []
        return (*wanted, Mlflow(self.mlflow)) if self.mlflow else tuple(wanted)


def asked(source: str, out: Path | None, data: Path | None, seeds: str | None, *, to_run: bool = False) -> Asked:
    """The experiment, with what the options say put in place of what the file says."""
    experiment = read_experiment(source, to_run=to_run)
    if data is not None:
        experiment = experiment.model_copy(update={"pool": experiment.pool.model_copy(update={"path": str(data)})})
    if seeds is not None:
        experiment = experiment.model_copy(update={"seeds": _whole_numbers(seeds)})
    return Asked(experiment, Store(out or RUNS / experiment.name))


def tasks_of(engine: str, processes: int | None) -> RunTasks:
    """What runs the trials: processes of this machine, or a Ray cluster that is started with as many, or joined."""
    if engine == "local":
        return on_processes(processes)
    from ..ray.cluster import address_of, ray_module
    from ..ray.tasks import on_ray

    try:
        address = address_of(engine)
    except BadInput as error:
        raise WrongUsage(f"--engine: {error}, or 'local'") from error
    if address is not None and processes is not None:
        raise WrongUsage("--processes is for this machine; a cluster that is joined runs one trial per core of it")
    ray_module()  # a missing extra is told before anything is trained
    return on_ray(engine, cpus=processes)


def run_bench(
    wanted: Asked, run_tasks: RunTasks | None, tracking: Tracking, *, report: bool, as_json: bool,
    quiet: bool, adopt: bool = False,
) -> None:  # fmt: skip
    """`tailwise bench run`."""
    console = Console(stderr=True, highlight=False)
    experiment, store = wanted.experiment, wanted.store
    data = identify(experiment.pool)
    if other := store.other_data(data):
        note_shown(f"{other.where} has changed since an earlier run; results of the new data are kept apart", console)
    with progress_shown(experiment, store, data.content, quiet=quiet or as_json) as watcher:
        failed = run_experiment(
            experiment, store, watchers=(watcher, *tracking.watchers()), run_tasks=run_tasks, adopt=adopt, data=data
        )
    failures_shown(failed, console)
    rows = collect(experiment, store, data.content)
    page = write_page(wanted, rows, data.content) if report and rows else None
    if as_json:
        _print_json(wanted, rows, failed, page)
    elif rows and not quiet:
        summary_shown(rows, page, wanted.store.folder)
    if failed:
        raise typer.Exit(FAILED)


def report_bench(wanted: Asked, *, as_json: bool) -> None:
    """`tailwise bench report`."""
    content = _recorded(wanted)
    if not collect(wanted.experiment, wanted.store, content):
        raise BadInput(
            f"no results in {wanted.store.folder}; run: tailwise bench run {wanted.experiment.name} "
            "(with the same --out, --data and --seeds)"
        )
    rows = keep_results(wanted.experiment, wanted.store, content)
    page = write_page(wanted, rows, content)
    if as_json:
        _print_json(wanted, rows, {}, page)
    else:
        summary_shown(rows, page, wanted.store.folder)


def write_page(wanted: Asked, rows: list[Row], content: str) -> Path:
    """The report, from what is in the folder alone."""
    from ..report.experiment import write_report
    from ..report.names import sweep_of

    sweeps = [sweep_of(values) for values in kept_sweeps(wanted.experiment, wanted.store, content)]
    return write_report(
        rows, wanted.store.folder, title=wanted.experiment.name, sweeps=sweeps, config=wanted.experiment.to_toml(),
        versions={"Content of the data": content or "not recorded"}, class_names=wanted.store.class_names(content),
    )  # fmt: skip


def _recorded(wanted: Asked) -> str:
    """The content of the data that the results belong to; anything unusual about it is shown."""
    found = recorded_content(wanted.experiment, wanted.store)
    if found.note:
        note_shown(found.note, Console(stderr=True, highlight=False))
    return found.content


def show_status(wanted: Asked, *, as_json: bool) -> None:
    """`tailwise bench status`."""
    content = _recorded(wanted)
    if as_json:
        status = status_of(wanted.experiment, wanted.store, content)
        print(json.dumps({"experiment": wanted.experiment.name, **asdict(status)}))
    else:
        status_shown(wanted.experiment, wanted.store, content)


def list_presets(*, as_json: bool) -> None:
    """`tailwise bench list`."""
    found = presets()
    if as_json:
        print(json.dumps([{"name": one.name, "about": one.about} for one in found]))
    else:
        presets_shown(found)


def _print_json(wanted: Asked, rows: list[Row], failed: dict[str, str], page: Path | None) -> None:
    from ..report.experiment import gain_rows, random_rows, saving_rows
    from ..report.summary import Results

    results = Results.of(rows)
    print(json.dumps({
        "experiment": wanted.experiment.name, "folder": str(wanted.store.folder), "rows": len(rows),
        "over_random": _objects(random_rows(results)), "gains": _objects(gain_rows(results)),
        "savings": _objects(saving_rows(results)), "failed": failed, "report": str(page) if page else None,
    }))  # fmt: skip


def _objects(table: list[list[str]]) -> list[dict[str, str]]:
    header, *rows = table
    return [dict(zip(header, row, strict=True)) for row in rows]


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise WrongUsage(f"--seeds is {plain(text)!r}; give whole numbers such as 0,1,2") from None
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise WrongUsage(f"--seeds is {plain(text)!r}; give different whole numbers ≥ 0")
    return numbers


PRESET = "demo-digits"


def run_demo(folder: Path, seeds: str | None, *, quiet: bool) -> None:
    """Run the preset, or go on with it."""
    wanted = asked(PRESET, folder, None, seeds)
    if not quiet:
        console_line(
            "[bold]Which digits should be labelled next?[/] A long-tailed pool of handwritten digits: half of the "
            "classes are ten times rarer.\nA linear model starts with 30 labels and asks for 30 more, five times; "
            f"{len(wanted.experiment.seeds)} seeds. About a minute …\n"
            "CB: balanced by class. Boundary-CB is what campaigns use. The test images are equally many of each digit; "
            "adjusted: decisions that make up for the rarity of classes; tail: the rare half."
        )
    run_bench(wanted, None, Tracking(), report=True, as_json=False, quiet=quiet, adopt=True)
