"""How a command ends: arguments in, exit code out; every error becomes one or two lines on stderr.

0 done · 1 anything else · 2 wrong usage · 3 bad input or file · 4 target or budget cannot be met · 5 a missing extra ·
130 interrupted. TAILWISE_DEBUG=1 shows the traceback; with --json an error is also an object on stdout.

What a command was asked for: option texts in, the arguments of `tailwise.select` or `balance_path` out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, LedgerBusy, MissingExtra, NewerLedger, PoolExhausted, TargetUnreachable, UnknownName

if TYPE_CHECKING:
    from ..matrix.open import Matrix
    from ..types import Float64Array


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


class WrongUsage(Exception):
    """Options that do not go together, or a value that cannot be read."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and say how it ended."""
    import typer

    try:
        code = _commands()(list(arguments), prog_name="tailwise", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as stop:
        code = stop.exit_code
    except BrokenPipeError:
        # The reader has seen enough; stdout is replaced so that the interpreter does not complain when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # the last line of defence: whatever it is, it is shown as an error, not as a traceback
        return _failed(arguments, *_describe(error))
    if code == INTERRUPTED:  # typer turns Ctrl-C into this code by itself
        return _failed(arguments, "Interrupted", "interrupted", INTERRUPTED)
    return code if isinstance(code, int) else 0


@cache
def _commands() -> Callable[..., object]:
    """What runs a command line; built once per process, as reading the options of all commands takes 20 ms."""
    from typer.main import get_command

    from .app import app

    main: Callable[..., object] = get_command(app).main
    return main


def _describe(error: Exception) -> tuple[str, str, int]:
    """Kind, message and exit code of an error."""
    if hasattr(error, "format_message"):  # what typer raises; its classes have no public name
        context = getattr(error, "ctx", None)
        message = _sentence(error.format_message())
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


def _sentence(message: str) -> str:
    return message[:1].lower() + message[1:].removesuffix(".") if message[1:2].islower() else message


def _failed(arguments: Sequence[str], kind: str, message: str, code: int) -> int:
    if os.environ.get("TAILWISE_DEBUG", "") not in ("", "0"):
        import traceback

        traceback.print_exc()
    if "--json" in arguments:
        print(json.dumps({"error": {"kind": kind, "message": message}}))
    if message:  # without any argument the help has been shown, and says it all
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


PAPER = "paper"  # as a target


@dataclass(frozen=True, slots=True)
class Request:
    """The options that `select` and `path` share, as typed by the user."""

    proba: str  # a path or a URL, which a Path would mangle
    budget: int
    counts: str | None
    score: str | None
    target: str | None
    shares: str | None
    at_least: str | None
    at_most: str | None
    seed: int
    engine: str
    shards: int | None
    strategy: str | None = None
    embeddings: str | None = None
    labelled_embeddings: str | None = None
    logits: bool = False

    @property
    def uniform(self) -> bool:
        """True where every class is wanted equally often."""
        return self.target in {None, PAPER} and (self.shares, self.at_least, self.at_most) == (None,) * 3

    def check(self) -> None:
        """Refuse options that contradict each other, before anything is read."""
        kinds = {"--target": self.target, "--shares": self.shares}
        kinds["--at-least/--at-most"] = self.at_least or self.at_most
        given = [option for option, value in kinds.items() if value is not None]
        if len(given) > 1:
            raise WrongUsage(f"{' and '.join(given)} say the same thing in different ways; give one of them")
        if self.strategy is not None:
            from ..strategies import STRATEGIES

            STRATEGIES[self.strategy]  # an unknown name lists the known ones
            if self.score is not None:
                raise WrongUsage("--strategy and --score exclude each other; give one of them")
        if self.score is not None and not _is_npy(self.score):
            from ..strategies.select import named_score

            named_score(self.score)


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The files of a request, read."""

    proba: Matrix  # (N, C)
    counts: Float64Array | None  # (C,)
    arguments: dict[str, Any]  # what select and balance_path take beside proba and budget


def read(request: Request) -> Inputs:
    """Open the probabilities, then read what is given per class."""
    from ..matrix.source import open_proba
    from .select import per_class

    proba = open_proba(request.proba)
    classes = proba.shape[1]
    counts = None if request.counts is None else per_class(request.counts, "--counts", classes)
    arguments = {
        "score": _score(request.score),
        "counts": counts,
        "target": _target(request, classes),
        "seed": request.seed,
        "engine": request.engine,
        "shards": request.shards,
    }
    return Inputs(proba, counts, arguments)


def choices(request: Request) -> dict[str, Any]:
    """What `select` takes beside what it shares with `balance_path`."""
    return {
        "strategy": request.strategy, "embeddings": request.embeddings,
        "labelled_embeddings": request.labelled_embeddings, "logits": request.logits,
    }  # fmt: skip


def _is_npy(score: str) -> bool:
    return Path(score).suffix.lower() == ".npy"


def _score(score: str | None) -> object:
    from .select import read_scores

    return read_scores(Path(score)) if score is not None and _is_npy(score) else score


def _target(request: Request, classes: int) -> object:
    import numpy as np

    from ..targets import Target
    from .select import limit_per_class, per_class

    if request.target == PAPER:
        return Target.paper()
    if request.target is not None:
        return Target.counts(per_class(request.target, "--target", classes))
    if request.shares is not None:
        return Target.shares(per_class(request.shares, "--shares", classes))
    if request.at_least is None and request.at_most is None:
        return None
    low, high = request.at_least, request.at_most
    return Target.ranges(
        None if low is None else limit_per_class(low, "--at-least", classes, missing=0.0),
        None if high is None else limit_per_class(high, "--at-most", classes, missing=np.inf),
    )
