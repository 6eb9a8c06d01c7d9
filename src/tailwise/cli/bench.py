"""What `tailwise bench` and `tailwise demo` do, and how experiments look on a terminal."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from ..errors import BadInput
from ..experiments.experiment import Experiment, Row, Trial, presets, read_experiment, trials_of
from ..experiments.runner import (
    RunTasks,
    Watcher,
    collect,
    count_done,
    keep_results,
    on_processes,
    run_experiment,
    status_of,
)
from ..experiments.store import Store, identify, recorded_content
from ..experiments.trial_run import kept_sweeps
from .output import FAILED, WrongUsage, console_line, frameless, plain

RUNS = Path("tailwise-runs")
DEMO = "demo-digits"  # the preset
CIRCUMSTANCES = {"pool", "setting", "seeds"}
WORDS = {"what it does", "method"}  # columns whose text may take several lines; it is never cut off
NOT_REACHED = "–"
EVERY = 2.5  # seconds between lines where there is no terminal


@dataclass(frozen=True, slots=True)
class StoredExperiment:
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


def read_options(
    source: str, out: Path | None, data: Path | None, seeds: str | None, *, to_run: bool = False
) -> StoredExperiment:
    """The experiment, with the options in place of the file's values."""
    experiment = read_experiment(source, to_run=to_run)
    if data is not None:
        experiment = experiment.model_copy(update={"pool": experiment.pool.model_copy(update={"path": str(data)})})
    if seeds is not None:
        experiment = experiment.model_copy(update={"seeds": _whole_numbers(seeds)})
    return StoredExperiment(experiment, Store(out or RUNS / experiment.name))


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
    ray_module()  # a missing extra is reported before anything is trained
    return on_ray(engine, cpus=processes)


def run_bench(
    wanted: StoredExperiment, run_tasks: RunTasks | None, tracking: Tracking, *, report: bool, as_json: bool,
    quiet: bool, adopt: bool = False,
) -> None:  # fmt: skip
    """`tailwise bench run`."""
    console = Console(stderr=True, highlight=False)
    experiment, store = wanted.experiment, wanted.store
    silent = quiet or as_json
    with lively("reading the data", quiet=silent):
        data = identify(experiment.pool)
    if other := store.other_data(data):
        changed = f"{other.where} has changed since an earlier run; results of the new data are kept apart"
        console.print(f"[yellow]note:[/] {plain(changed)}", soft_wrap=True)
    with show_progress(experiment, store, data.content, quiet=silent) as watcher:
        failed = run_experiment(
            experiment, store, watchers=(watcher, *tracking.watchers()), run_tasks=run_tasks, adopt=adopt, data=data
        )
    show_failures(failed, console)
    rows = collect(experiment, store, data.content)
    page = write_page(wanted, rows, data.content, quiet=silent) if report and rows else None
    if as_json:
        _print_json(wanted, rows, failed, page)
    elif rows and not quiet:
        show_summary(rows, page, wanted.store.folder)
    if failed:
        raise typer.Exit(FAILED)


def report_bench(wanted: StoredExperiment, *, as_json: bool) -> None:
    """`tailwise bench report`."""
    with suppress(BadInput):  # plugins know how their strategies are called; a report can do without
        wanted.experiment.import_plugins()
    content = _recorded(wanted)
    if not collect(wanted.experiment, wanted.store, content):
        raise BadInput(
            f"no results in {wanted.store.folder}; run: tailwise bench run {wanted.experiment.name} "
            "(with the same --out, --data and --seeds)"
        )
    rows = keep_results(wanted.experiment, wanted.store, content)
    page = write_page(wanted, rows, content, quiet=as_json)
    if as_json:
        _print_json(wanted, rows, {}, page)
    else:
        show_summary(rows, page, wanted.store.folder)


def write_page(wanted: StoredExperiment, rows: list[Row], content: str, *, quiet: bool) -> Path:
    """The report, from what is in the folder alone."""
    with lively("drawing the report", quiet=quiet) as show:
        from ..report.experiment import write_report
        from ..report.names import sweep_of

        sweeps = [sweep_of(values) for values in kept_sweeps(wanted.experiment, wanted.store, content)]
        return write_report(
            rows, wanted.store.folder, title=wanted.experiment.name, sweeps=sweeps, config=wanted.experiment.to_toml(),
            versions={"Content of the data": content or "not recorded"},
            class_names=wanted.store.class_names(content), report=lambda _done, what: show(f"the report: {what}"),
        )  # fmt: skip


def _recorded(wanted: StoredExperiment) -> str:
    """The content of the data that the results belong to; anything unusual about it is shown."""
    found = recorded_content(wanted.experiment, wanted.store)
    if found.note:
        Console(stderr=True, highlight=False).print(f"[yellow]note:[/] {plain(found.note)}", soft_wrap=True)
    return found.content


def show_status(wanted: StoredExperiment, *, as_json: bool) -> None:
    """`tailwise bench status`."""
    content = _recorded(wanted)
    if as_json:
        status = status_of(wanted.experiment, wanted.store, content)
        print(json.dumps({"experiment": wanted.experiment.name, **asdict(status)}))
    else:
        show_status_table(wanted.experiment, wanted.store, content)


def list_presets(*, as_json: bool) -> None:
    """`tailwise bench list`."""
    found = presets()
    if as_json:
        print(json.dumps([{"name": one.name, "about": one.about} for one in found]))
    else:
        show_presets(found)


def _print_json(wanted: StoredExperiment, rows: list[Row], failed: dict[str, str], page: Path | None) -> None:
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


def run_demo(folder: Path, seeds: str | None, *, quiet: bool) -> None:
    """Run the preset, or go on with it."""
    wanted = read_options(DEMO, folder, None, seeds)
    if not quiet:
        console_line(
            f"[dim]A linear model starts with 30 labels and gets 30 more, five times; {len(wanted.experiment.seeds)} "
            "seeds; about a minute. CB: balanced by class; Boundary-CB is what campaigns use. Accuracy is measured on "
            "equally many images of each digit. Adjusted: decisions that make up for the rarity of classes. Tail: the "
            "rare half of them.[/]\n"
        )
    run_bench(wanted, None, Tracking(), report=True, as_json=False, quiet=quiet, adopt=True)


# Progress and tables.


class ProgressBars(Watcher):
    """One bar for the experiment, one line for each trial at work."""

    def __init__(self, bars: Progress, whole: TaskID) -> None:
        self.bars, self.whole = bars, whole
        self.lines: dict[str, TaskID] = {}

    def line(self, trial: Trial, done: float, what: str) -> None:
        """Show the current step of a trial."""
        key = trial.fingerprint
        if key not in self.lines:
            self.lines[key] = self.bars.add_task("", total=1.0)
        self.bars.update(self.lines[key], description=plain(what), completed=done)

    def finished(self, trial: Trial, rows: list[Row]) -> None:  # noqa: ARG002 - a Watcher's
        """Remove the trial's line, and move on."""
        task = self.lines.pop(trial.fingerprint, None)
        if task is not None:
            self.bars.remove_task(task)
        self.bars.advance(self.whole)

    def retried(self, trial: Trial, why: str) -> None:  # noqa: ARG002 - a Watcher's
        """Say so at once."""
        self.bars.console.print(f"[yellow]note:[/] {plain(why)}")

    def failed(self, trial: Trial, why: str) -> None:
        """Say so at once."""
        self.bars.console.print(f"[red]failed[/] {plain(trial.title)}: {plain(why)}")
        self.finished(trial, [])


@dataclass(eq=False)
class ProgressLines(Watcher):
    """A line for each trial that ends, and now and then the current step, for logs."""

    left: int  # trials to be done
    show: Callable[[str], None] = lambda _: None  # the current step
    done: int = 0

    def line(self, trial: Trial, done: float, what: str) -> None:  # noqa: ARG002 - a Watcher's
        """Keep the current step, which is printed where nothing else is."""
        self.show(f"{self.done}/{self.left} trials  {what}")

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        """Print how a trial ended."""
        self.done += 1
        print(f"{self.done}/{self.left} {trial.title}: accuracy {rows[-1].accuracy:.1%}", file=sys.stderr, flush=True)

    def retried(self, trial: Trial, why: str) -> None:  # noqa: ARG002 - a Watcher's
        """Print what was lost."""
        print(f"{self.done}/{self.left} {why}", file=sys.stderr, flush=True)

    def failed(self, trial: Trial, why: str) -> None:
        """Print why a trial failed."""
        self.done += 1
        print(f"{self.done}/{self.left} {trial.title}: FAILED: {why}", file=sys.stderr, flush=True)


@contextmanager
def lively(what: str, *, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows on stderr that work goes on, also while nothing is reported: a spinner, or a line every few seconds.

    Gives a callback for the current step.
    """
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with Console(stderr=True).status(plain(what)) as status:
            yield lambda text: status.update(plain(text))
    else:
        latest, ended = [what], threading.Event()

        def speak() -> None:
            while not ended.wait(EVERY):
                print(f"{latest[0]} …", file=sys.stderr, flush=True)

        speaker = threading.Thread(target=speak, name="tailwise-progress", daemon=True)
        speaker.start()
        try:
            yield lambda text: latest.__setitem__(0, text)
        finally:
            ended.set()
            speaker.join()


@contextmanager
def show_progress(experiment: Experiment, store: Store, content: str, *, quiet: bool) -> Iterator[Watcher]:
    """A watcher that shows what happens on stderr."""
    status = status_of(experiment, store, content)
    left = status.trials - status.complete
    if quiet or not left:
        yield Watcher()
    elif not sys.stderr.isatty():
        with lively("starting the trials", quiet=False) as show:
            yield ProgressLines(left, show)
    else:
        columns = (
            BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )  # fmt: skip
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            whole = bars.add_task(f"[bold]{experiment.name}[/]: trials", total=left)
            yield ProgressBars(bars, whole)


def show_presets(found: Sequence[Experiment]) -> None:
    """A table of the presets."""
    table = _table("preset", "what it does", "trials")
    for one in found:
        table.add_row(f"[bold]{one.name}[/]", plain(one.about), str(sum(1 for _ in trials_of(one))))
    console = Console(highlight=False)
    console.print(table)
    console.print("\nRun one with:     tailwise bench run NAME\nSee all of it:    tailwise bench show NAME")


def show_status_table(experiment: Experiment, store: Store, content: str) -> None:
    """How far each method is, and all of them together."""
    table = _table("imbalance", "method", "trials", "cycles")
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials_of(experiment, content):
        groups.setdefault((trial.setting, trial.method), []).append(trial)
    complete = 0
    for (setting, method), trials in groups.items():
        status = count_done(trials, store)
        complete += status.complete
        cells = (f"{status.complete} of {status.trials}", f"{status.cycles_done} of {status.cycles}")
        style = "green" if status.complete == status.trials else None
        table.add_row(setting, plain(method), *cells, style=style)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"\n{complete} of {sum(map(len, groups.values()))} trials are complete in {plain(str(store.folder))}")


def show_failures(failed: dict[str, str], console: Console) -> None:
    """Each failure in one line."""
    for title, why in failed.items():
        console.print(f"[red]failed[/] {plain(title)}: {plain(why)}", soft_wrap=True)


def show_summary(rows: list[Row], page: Path | None, folder: Path) -> None:
    """Accuracy, gains and label savings; the path of the report comes last."""
    from ..report.experiment import compared_rows, default_findings, saving_rows
    from ..report.summary import Results

    console = Console(highlight=False)
    results = Results.of(rows)
    over_random, balanced = compared_rows(results, over_random=True), compared_rows(results, over_random=False)
    gain = balanced[0].index("gain")
    if over_random[1:] or not any(line[gain] for line in balanced[1:]):  # the first table names all methods
        balanced = [line for line in balanced if line[gain]]
    savings = [line for line in saving_rows(results) if line[-2] != NOT_REACHED]
    titles = ("Accuracy, mean over all cycles, and gains over Random in points", "What balance gains, in points")
    noise = any(cell.startswith("(") for line in (*over_random[1:], *balanced[1:]) for cell in line)
    for title, table in (*zip(titles, (over_random, balanced), strict=True), ("Label savings", savings)):
        header, *lines = without_constants(table)
        if lines:
            console.print(f"\n[bold]{title}[/]")
            shown = _table(*header)
            for cells in lines:
                shown.add_row(*(plain(cell) for cell in cells))
            console.print(shown)
        if noise and table is balanced:
            console.print("[dim]In parentheses: within noise, nearer to zero than two standard errors.[/]")
    if findings := default_findings(results):
        console.print("\n" + "\n".join(plain(one.text) for one in findings))
    console.print(f"\nResults: {plain(str(folder / 'results.csv'))}", soft_wrap=True)
    if page is not None:
        console.print(f"Report:  {plain(str(page))}", soft_wrap=True)


def without_constants(table: list[list[str]]) -> list[list[str]]:
    """A table without the columns of its circumstances that say the same in every row.

    >>> without_constants([["setting", "method", "gain"], ["step 0.1", "a", "1"], ["step 0.1", "b", "1"]])
    [['method', 'gain'], ['a', '1'], ['b', '1']]
    """
    header, *rows = table
    kept = [
        column for column, name in enumerate(header)
        if name not in CIRCUMSTANCES or len({row[column] for row in rows}) > 1
    ]  # fmt: skip
    return [[row[column] for column in kept] for row in table]


def _table(*names: str) -> Table:
    table = frameless()
    table.padding = 0  # one space between columns: the demo's tables fit into 80 columns
    for name in names:
        first, _, rest = (name, "", "") if name in WORDS else name.partition(" ")  # long headings take two lines
        table.add_column(f"{first}\n{rest}" if rest else first, no_wrap=name not in WORDS, overflow="fold")
    return table
