"""A sign of life on stderr for work that takes over a second: a spinner on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..solver.program import silent

PATIENCE = 1.0  # seconds of silence at the start
EVERY = 5.0  # seconds between plain lines


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Give a `report` callback that shows the latest line, late enough not to flicker."""
    if quiet:
        yield silent
        return
    shown = _spinner if sys.stderr.isatty() else _plain
    with shown() as report:
        yield report


@contextmanager
def _spinner() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.markup import escape

    started = time.perf_counter()
    status = Console(stderr=True).status("")

    def report(line: str) -> None:
        if time.perf_counter() - started > PATIENCE:
            status.update(escape(line))
            status.start()

    try:
        yield report
    finally:
        status.stop()


@contextmanager
def _plain() -> Iterator[Callable[[str], None]]:
    due = time.perf_counter() + PATIENCE

    def report(line: str) -> None:
        nonlocal due
        now = time.perf_counter()
        if now > due:
            due = now + EVERY
            print(line, file=sys.stderr, flush=True)

    yield report
