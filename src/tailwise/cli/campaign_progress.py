"""How far a campaign's work is, on stderr: a bar on a terminal, else a line now and then; nothing for quick work."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..types import Progress, unheard
from . import progress
from .show import plain


@contextmanager
def progress_shown(*, quiet: bool) -> Iterator[Progress]:
    """Give a `report` callback for the share that is done and what is being done."""
    if quiet:
        yield unheard
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        with progress.progress(quiet=False) as say:
            yield lambda share, what: say(f"{what} ({share:.0%})")


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bars

    bar = BarColumn(bar_width=24, complete_style="cyan", finished_style="green")
    columns = (SpinnerColumn(), bar, TaskProgressColumn(), TextColumn("{task.description}"))
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task("", total=1.0)
    due = time.perf_counter() + progress.PATIENCE

    def report(share: float, what: str) -> None:
        bars.update(task, completed=share, description=plain(what))
        if time.perf_counter() > due:
            bars.start()

    try:
        yield report
    finally:
        if bars.live.is_started:
            bars.stop()
