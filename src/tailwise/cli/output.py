"""What all commands share: exit codes and errors, progress on stderr, and the pieces of terminal output.

0 done · 1 anything else · 2 wrong usage · 3 bad input or file · 4 target or budget cannot be met · 5 a missing extra ·
130 interrupted. TAILWISE_DEBUG=1 shows the traceback; with --json an error is also an object on stdout. rich and numpy
load when they are used: starting the command line stays light.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BadInput, LedgerBusy, MissingExtra, NewerLedger, PoolExhausted, TargetUnreachable, UnknownName

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..types import Progress

FAILED, USAGE, INPUT, UNMET, EXTRA, INTERRUPTED = 1, 2, 3, 4, 5, 130
CODES: tuple[tuple[type[Exception], int], ...] = (
    (UnknownName, USAGE),
    (PoolExhausted, UNMET),
    (TargetUnreachable, UNMET),
    (MissingExtra, EXTRA),
    (BadInput, INPUT),
    (LedgerBusy, INPUT),
    (NewerLedger, INPUT),
)
DELAY = 1.0  # seconds before progress is shown
INTERVAL = 5.0  # seconds between plain lines of progress
BAR = 24  # cells
EIGHTHS = " ▏▎▍▌▋▊▉"

# Options that several commands have.

Proba = Annotated[
    str,
    typer.Argument(
        help="Softmax of the pool, one row per image: .npy, .parquet, a folder of such or of a TopK, s3://…."
    ),
]
Budget = Annotated[int, typer.Option("--budget", "-b", min=1, help="How many images to pick.")]
BudgetOrCost = Annotated[
    float, typer.Option("--budget", "-b", min=0, help="How many images to pick; with --cost, what they may cost.")
]
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

# Which images may be picked, and what they are called.

Ids = Annotated[str | None, typer.Option(help="What the images are called: a text file, one name per line.")]
ClassNames = Annotated[str | None, typer.Option(help="Names of the classes: owl,kite,heron or a text file.")]
Exclude = Annotated[str | None, typer.Option(help="Images that cannot be picked: 3,17 or a text file, ids or rows.")]
Include = Annotated[str | None, typer.Option(help="Images that must be in the batch: 3,17 or a text file.")]
Groups = Annotated[str | None, typer.Option(help="The burst, video or patient of each image: a text file or .npy.")]
PerGroup = Annotated[int, typer.Option(min=1, help="At most so many picks of each group.")]
Cost = Annotated[str | None, typer.Option(help="What each image costs to label: .npy or a text file of numbers.")]
Threads = Annotated[int | None, typer.Option(min=1, help="CPUs to use; default: all.")]


class WrongUsage(Exception):
    """Options that do not go together, or a value that cannot be read."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    import typer

    try:
        code = _commands()(list(arguments), prog_name="tailwise", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as stop:
        code = stop.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe; stdout is replaced so that closing it raises no second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # any error is shown as a message, not as a traceback
        return _failed(arguments, *_describe(error))
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code
        return _failed(arguments, "Interrupted", "interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Callable[..., object]:
    """The program; built once per process, as reading the options of all commands takes 20 ms."""
    from typer.main import get_command

    from .app import app

    main: Callable[..., object] = get_command(app).main
    return main


def _describe(error: Exception) -> tuple[str, str, int]:
    """Kind, message and exit code of an error."""
    if hasattr(error, "format_message"):  # what typer raises; its classes have no public name
        context = getattr(error, "ctx", None)
        message = error.format_message()
        if message[1:2].islower():  # a sentence
            message = message[:1].lower() + message[1:].removesuffix(".")
        hint = f"\nHelp: {context.command_path} --help" if context is not None and message else ""
        return "WrongUsage", message + hint, USAGE
    if isinstance(error, WrongUsage):
        return "WrongUsage", str(error), USAGE
    for kind, code in CODES:
        if isinstance(error, kind):
            return type(error).__name__, str(error), code
    if isinstance(error, MemoryError):
        return "MemoryError", "not enough memory; save the probabilities as .npy, which is read in blocks", FAILED
    return type(error).__name__, f"{type(error).__name__}: {error} (TAILWISE_DEBUG=1 shows where)", FAILED


def _failed(arguments: Sequence[str], kind: str, message: str, code: int) -> int:
    if os.environ.get("TAILWISE_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exc()
    if "--json" in arguments:
        print(json.dumps({"error": {"kind": kind, "message": message}}))
    if message:  # without any argument the help has been shown
        print(f"tailwise: {printable(message)}", file=sys.stderr)
    return code


def printable(text: str) -> str:
    r"""Text that cannot move the cursor or fail to encode: control characters and lone surrogates are shown escaped.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\nc'
    """
    shown = "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
    encoding = sys.stderr.encoding or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


class Form(Enum):
    """How to print the answer."""

    SUMMARY = "summary"
    JSON = "json"
    QUIET = "quiet"

    @classmethod
    def of(cls, *, as_json: bool, quiet: bool) -> Form:
        """JSON wins where both are given."""
        return cls.JSON if as_json else cls.QUIET if quiet else cls.SUMMARY


# Progress on stderr, for work that takes over a second: a spinner or a bar on a terminal, else a line now and then.


@contextmanager
def progress(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Gives a callback that shows the latest line."""
    if quiet:
        yield lambda _: None
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
        if time.perf_counter() - started > DELAY:
            status.update(escape(line))
            status.start()

    try:
        yield report
    finally:
        status.stop()


@contextmanager
def _plain() -> Iterator[Callable[[str], None]]:
    due = time.perf_counter() + DELAY

    def report(line: str) -> None:
        nonlocal due
        now = time.perf_counter()
        if now > due:
            due = now + INTERVAL
            print(line, file=sys.stderr, flush=True)

    yield report


@contextmanager
def progress_shown(*, quiet: bool) -> Iterator[Progress]:
    """Gives a callback for the share that is done and the current step."""
    if quiet:
        yield lambda _share, _what: None
    elif sys.stderr.isatty():
        with _bar() as report:
            yield report
    else:
        with progress(quiet=False) as show:
            yield lambda share, what: show(f"{what} ({share:.0%})")


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bars

    bar = BarColumn(bar_width=24, complete_style="cyan", finished_style="green")
    columns = (SpinnerColumn(), bar, TaskProgressColumn(), TextColumn("{task.description}"))
    bars = Bars(*columns, console=Console(stderr=True), transient=True)
    task = bars.add_task("", total=1.0)
    due = time.perf_counter() + DELAY

    def report(share: float, what: str) -> None:
        bars.update(task, completed=share, description=plain(what))
        if time.perf_counter() > due:
            bars.start()

    try:
        yield report
    finally:
        if bars.live.is_started:
            bars.stop()


# Pieces of terminal output.


def console_line(text: str) -> None:
    """Print a line with markup to stdout."""
    from rich.console import Console

    Console(highlight=False).print(text)


def say_what_the_demo_shows(*, quiet: bool) -> None:
    """The first sentence of `tailwise demo`; here, as it is printed before anything heavy loads."""
    if not quiet:
        print(
            "This demo shows how much more a model learns from the labels that Tailwise\n"
            "picks than from random ones, on handwritten digits of which half of the\nclasses are ten times rarer.",
            flush=True,
        )


def frameless() -> Table:
    """A table with one line, below its header."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def plain(text: str) -> str:
    """A text of the user, safe to print: no markup, no control characters."""
    from rich.markup import escape

    return escape(printable(text))


def shell_line(*words: str) -> str:
    """A command line for the shell of this system.

    >>> shell_line("tailwise", "label", "birds")
    'tailwise label birds'
    """
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def bar(value: float, mark: float | None, longest: float) -> Text:
    """A bar of at most 24 cells in eighths of a cell, with a mark at the target.

    >>> bar(1.0, 2.0, 2.0).plain
    '████████████           │'
    """
    from rich.text import Text

    eighths = round(8 * BAR * value / longest) if longest > 0 else 0
    cells = list("█" * (eighths // 8) + EIGHTHS[eighths % 8].strip())
    text = Text("".join(cells), style="cyan")
    if mark is None:
        return text
    at = min(BAR - 1, math.floor(BAR * mark / longest))
    drawn = text.plain.ljust(at + 1)
    return Text.assemble((drawn[:at], "cyan"), ("│", "bold yellow"), (drawn[at + 1 :], "cyan"))


def certificate(status: str, gap: float | None) -> str:
    """How good a batch is, in words.

    >>> certificate("within gap", 7e-5)
    'within 0.0070 % of the best possible batch, certified'
    """
    if status == "optimal":
        return "optimal: no batch is better, to one in a million"
    if gap is None or not math.isfinite(gap):
        return f"{status}: this method gives no bound"
    if status == "optimal chunks":
        best = "the best possible" if gap <= 1e-6 else f"within {percent(gap)} of the best possible"
        return f"chosen in chunks, each {best} after those before it, certified"
    within = f"within {percent(gap)} of the best possible batch, certified"
    return within if status == "within gap" else f"{within} ({status})"


def percent(share: float) -> str:
    """A share in percent, never rounded down to a better one; below 1e-9 it is rounding noise.

    >>> percent(7.01e-5), percent(0.0123), percent(0.5), percent(1e-14)
    ('0.0071 %', '1.3 %', '50 %', '0 %')
    """
    if share <= 1e-9:
        return "0 %"
    digits = 1 - math.floor(math.log10(100 * share))
    up = math.ceil(round(100 * share * 10**digits, 6)) / 10**digits
    return f"{up:.{max(0, digits)}f} %" if digits > 0 and up != int(up) else f"{up:.0f} %"
