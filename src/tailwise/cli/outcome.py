"""How a command ends: arguments in, exit code out; every error becomes one or two lines on stderr.

0 done · 1 anything else · 2 wrong usage · 3 bad input or file · 4 target or budget cannot be met · 5 a missing extra ·
130 interrupted. TAILWISE_DEBUG=1 shows the traceback; with --json an error is also an object on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache

from ..errors import BadInput, LedgerBusy, MissingExtra, NewerLedger, PoolExhausted, TargetUnreachable, UnknownName

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
