"""How experiments look on a terminal: progress while they run, tables at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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

from ..experiments.config import Experiment
from ..experiments.runner import Quiet, Watcher, count_done, status_of
from ..experiments.store import Store
from ..experiments.trials import Row, Trial, trials_of
from .select_output import frameless, plain

CIRCUMSTANCES = {"pool", "setting", "seeds"}
WORDS = {"what it does", "method"}  # columns whose text may take several lines; it is never cut off
NOT_REACHED = "–"
EVERY = 15.0  # seconds between lines where there is no terminal


class Bars(Quiet):
    """One bar for the experiment, one line for each trial at work."""

    def __init__(self, bars: Progress, whole: TaskID) -> None:
        self.bars, self.whole = bars, whole
        self.lines: dict[str, TaskID] = {}

    def line(self, trial: Trial, done: float, what: str) -> None:
        """Show the latest words of a trial."""
        key = trial.fingerprint
        if key not in self.lines:
            self.lines[key] = self.bars.add_task("", total=1.0)
        self.bars.update(self.lines[key], description=plain(what), completed=done)

    def finished(self, trial: Trial, rows: list[Row]) -> None:  # noqa: ARG002 - a Watcher's
        """Move on."""
        self._gone(trial)

    def retried(self, trial: Trial, why: str) -> None:  # noqa: ARG002 - a Watcher's
        """Say so at once."""
        self.bars.console.print(f"[yellow]note:[/] {plain(why)}")

    def failed(self, trial: Trial, why: str) -> None:
        """Say so at once."""
        self.bars.console.print(f"[red]failed[/] {plain(trial.title)}: {plain(why)}")
        self._gone(trial)

    def _gone(self, trial: Trial) -> None:
        task = self.lines.pop(trial.fingerprint, None)
        if task is not None:
            self.bars.remove_task(task)
        self.bars.advance(self.whole)


class Lines(Quiet):
    """A line now and then, for logs."""

    def __init__(self, left: int) -> None:
        self.left, self.done, self.due = left, 0, time.perf_counter() + EVERY

    def line(self, trial: Trial, done: float, what: str) -> None:  # noqa: ARG002 - a Watcher's
        """Print, unless there was a line just now."""
        if time.perf_counter() > self.due:
            self.due = time.perf_counter() + EVERY
            print(f"{self.done}/{self.left} trials  {what}", file=sys.stderr, flush=True)

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
def progress_shown(experiment: Experiment, store: Store, content: str, *, quiet: bool) -> Iterator[Watcher]:
    """A watcher that shows what happens on stderr."""
    status = status_of(experiment, store, content)
    left = status.trials - status.complete
    if quiet or not left:
        yield Quiet()
    elif not sys.stderr.isatty():
        yield Lines(left)
    else:
        columns = (
            BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )  # fmt: skip
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            whole = bars.add_task(f"[bold]{experiment.name}[/]: trials", total=left)
            yield Bars(bars, whole)


def presets_shown(found: Sequence[Experiment]) -> None:
    """A table of the presets."""
    table = _table("preset", "what it does", "trials")
    for one in found:
        table.add_row(f"[bold]{one.name}[/]", plain(one.about), str(sum(1 for _ in trials_of(one))))
    console = Console(highlight=False)
    console.print(table)
    console.print("\nRun one with:     tailwise bench run NAME\nSee all of it:    tailwise bench show NAME")


def status_shown(experiment: Experiment, store: Store, content: str) -> None:
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


def failures_shown(failed: dict[str, str], console: Console) -> None:
    """Each failure in one line."""
    for title, why in failed.items():
        console.print(f"[red]failed[/] {plain(title)}: {plain(why)}", soft_wrap=True)


def note_shown(text: str, console: Console) -> None:
    """Something to know that is not an error."""
    console.print(f"[yellow]note:[/] {plain(text)}", soft_wrap=True)


def summary_shown(rows: list[Row], page: Path | None, folder: Path) -> None:
    """Accuracy, gains and label savings; the path of the report comes last."""
    from ..report.experiment import gain_rows, random_rows, saving_rows
    from ..report.findings import default_findings
    from ..report.summary import Results

    console = Console(highlight=False)
    results = Results.of(rows)
    over_random, balanced = random_rows(results), gain_rows(results)
    if over_random[1:]:  # which names all methods
        balanced = [line for line in balanced if line[-1]]
    savings = [line for line in saving_rows(results) if line[-2] != NOT_REACHED]
    titles = ("Gains over random choice, in points of accuracy", "What balance gains, in points of accuracy")
    for title, table in (*zip(titles, (over_random, balanced), strict=True), ("Label savings", savings)):
        header, *lines = without_constants(table)
        if lines:
            console.print(f"\n[bold]{title}[/]")
            shown = _table(*header)
            for cells in lines:
                shown.add_row(*(plain(cell) for cell in cells))
            console.print(shown)
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
    table.collapse_padding = True  # the demo's tables fit into 80 columns
    for name in names:
        first, _, rest = (name, "", "") if name in WORDS else name.partition(" ")  # long headings take two lines
        table.add_column(f"{first}\n{rest}" if rest else first, no_wrap=name not in WORDS, overflow="fold")
    return table
